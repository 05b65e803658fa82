import math
from collections import Counter

import numpy as np
import pytest
from datasets import Dataset
from scipy.stats import binom, chi2

import hf_dpsynth
from hf_dpsynth.errors import ConfigError, MissingExtra
from hf_dpsynth.mechanisms.word import base, syntax_guided
from hf_dpsynth.mechanisms.word.madlib import Madlib
from hf_dpsynth.mechanisms.word.syntax_guided import SyntaxGuided
from hf_dpsynth.mechanisms.word.text import read
from hf_dpsynth.models.tags import TAGS
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.words import MultivariateLaplaceDpEvent, TagResponseDpEvent

DRAWS = 100_000
PLACES = np.array([-5.0, 0.0, 1.0, 3.0, 6.0])
WORDS = ("the", "run", "house", "goes", "old")
NAMES = ("DET", "VERB", "NOUN", "VERB", "ADJ")
CODES = np.array([TAGS.index(name) for name in NAMES])
LINE = WordVectors(WORDS, PLACES[:, None], "line")
FORMS = ("rr", "public", "none")


@pytest.fixture(autouse=True)
def tags_of_the_line(monkeypatch):
    """Fix the tags of the small vocabulary, so that the laws below are those of known tags."""
    real = syntax_guided.lexical_tags

    def tags(words):
        return CODES.astype(np.int8) if tuple(words) == WORDS else real(words)

    monkeypatch.setattr(syntax_guided, "lexical_tags", tags)


def generators(seed=0):
    return lambda row: Key.from_insecure_seed(seed).derive("row", row).generator("noise")


def plane(size=300, width=8):
    """Words of the shipped table on random points."""
    words = [word for word in hf_dpsynth.models.lexicon._table() if word.isalpha()][: 40 * size : 40]
    return WordVectors(tuple(words), np.random.Generator(np.random.PCG64(1)).standard_normal((size, width)), "plane")


def outputs_at(y, k, target):
    """The specification, point by point: the first of the k nearest with the target tag, else the nearest."""
    order = np.argsort(np.abs(PLACES[None] - y[:, None]), axis=1, kind="stable")[:, :k]
    if target is None:
        target = []
        for row in CODES[order].tolist():
            counts = Counter(row)
            target.append(next(tag for tag in row if counts[tag] == max(counts.values())))
        target = np.array(target)
    match = CODES[order] == np.broadcast_to(target, len(y))[:, None]
    return np.where(match.any(axis=1), order[np.arange(len(y)), match.argmax(axis=1)], order[:, 0])


def exact_law(place, tag, epsilon, k, form, tag_epsilon=4.0):
    """Integrate the Laplace density over y, and over the eleven target tags; midpoints of 80,000 intervals."""
    edges = np.linspace(place - 40 / epsilon, place + 40 / epsilon, 80_001)
    y = (edges[1:] + edges[:-1]) / 2
    mass = epsilon / 2 * np.exp(-epsilon * np.abs(y - place)) * np.diff(edges)

    def law(target):
        return np.bincount(outputs_at(y, k, target), weights=mass, minlength=len(WORDS))

    if form == "none":
        return law(None)
    if form == "public":
        return law(tag)
    stay = 1 / (1 + 10 * math.exp(-tag_epsilon))
    return sum((stay if t == tag else (1 - stay) / 10) * law(t) for t in range(11))


def counted(word, epsilon, draws=DRAWS, seed=0, **fields):
    (text,) = SyntaxGuided(**fields).privatize([f"{word} " * draws], LINE, epsilon, generators(seed))
    found = Counter(text.split())
    return np.array([found[word] for word in WORDS])


def differs(counts, probabilities):
    """Pearson's chi-square at level 1e-6, over what can occur; what cannot must not."""
    possible = probabilities > 1e-9
    if counts[~possible].any():
        return True
    expected = counts.sum() * probabilities[possible]
    return chi2.sf(((counts[possible] - expected) ** 2 / expected).sum(), possible.sum() - 1) < 1e-6


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("at", "k"), [(1, 2), (2, 3), (0, 4), (4, 5)])
def test_the_law_is_the_integral_over_the_noisy_point(form, at, k):
    want = exact_law(PLACES[at], CODES[at], 0.9, k, form, 2.0)
    assert abs(want.sum() - 1) < 1e-6
    assert not differs(counted(WORDS[at], 0.9, k=k, tag_privacy=form, tag_epsilon=2.0), want)


def test_a_scale_of_tags_or_words_that_is_ten_percent_wrong_is_caught():
    """At 400,000 draws both of the 10 % wrong laws of tags are refused with probability > 0.999."""
    counts = counted("run", 0.9, draws=4 * DRAWS, k=5, tag_epsilon=2.0)
    assert not differs(counts, exact_law(0.0, CODES[1], 0.9, 5, "rr", 2.0))
    for wrong in (1.8, 2.2):
        assert differs(counts, exact_law(0.0, CODES[1], 0.9, 5, "rr", wrong))
    for wrong in (0.81, 0.99):
        assert differs(counts, exact_law(0.0, CODES[1], wrong, 5, "rr", 2.0))


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("tag_epsilon", [0.5, 4.0])
def test_a_randomized_tag_keeps_log_ratios_within_the_stated_loss(k, tag_epsilon):
    """Exact, by the integral that the sampler was compared with; all outputs, all pairs of words."""
    epsilon = 0.5
    laws = [exact_law(place, tag, epsilon, k, "rr", tag_epsilon) for place, tag in zip(PLACES, CODES, strict=True)]
    for one in range(len(WORDS)):
        for other in range(len(WORDS)):
            bound = epsilon * abs(PLACES[one] - PLACES[other]) + tag_epsilon * (CODES[one] != CODES[other])
            assert np.log(laws[one] / laws[other]).max() <= bound + 1e-3


def test_a_tag_that_is_not_randomized_breaks_the_bound_of_words_alone():
    """(run VERB, house NOUN) at distance 1: the paper's form tells them apart, so it assumes that tags are public."""
    allowed = math.exp(0.5 * 1)
    run, house = (exact_law(PLACES[at], CODES[at], 0.5, 3, "public") for at in (1, 2))
    assert run[1] > 0.1 and run[1] > 3 * allowed * house[1]
    counts = [counted(word, 0.5, k=3, tag_privacy="public") for word in ("run", "house")]
    assert counts[0][1] > 3 * allowed * counts[1][1]
    run, house = (exact_law(PLACES[at], CODES[at], 0.5, 3, "rr", 4.0) for at in (1, 2))
    assert allowed * house[1] < run[1] < allowed * math.exp(4) * house[1]


@pytest.mark.parametrize("k", [2, 5])
def test_without_tags_of_words_the_loss_is_that_of_the_noisy_point(k):
    laws = [exact_law(place, None, 0.5, k, "none") for place in PLACES]
    for one in range(len(WORDS)):
        for other in range(len(WORDS)):
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.log(laws[one] / laws[other])
            assert np.nanmax(ratio) <= 0.5 * abs(PLACES[one] - PLACES[other]) + 1e-3


def test_without_tags_of_words_a_word_outside_w_is_as_one_at_its_point(monkeypatch):
    """Equal y give equal outputs: the same stream, the same point, another word."""
    vectors = WordVectors(WORDS, np.array([[-4.0], [-1.0], [0.0], [2.0], [3.0]]), "centred")
    assert vectors.unk[0] == 0.0
    for seed in range(3):
        one, other = (
            SyntaxGuided(k=4, tag_privacy="none").privatize([f"{word} " * 500], vectors, 0.9, generators(seed))
            for word in ("house", "unheard")
        )
        assert one == other
    made = [
        SyntaxGuided(k=4, tag_privacy="public").privatize([f"{word} " * 500], vectors, 0.9, generators())
        for word in ("house", "unheard")
    ]
    assert made[0] != made[1]


@pytest.mark.parametrize("form", FORMS)
def test_one_candidate_is_madlib(form):
    texts = ["house old, goes", None, "the 1999 unheard run!", ""]
    guided = SyntaxGuided(k=1, tag_privacy=form).privatize(texts, LINE, 0.7, generators())
    assert guided == Madlib().privatize(texts, LINE, 0.7, generators())
    many = SyntaxGuided(k=3, tag_privacy=form).privatize(["house old goes " * 50], LINE, 0.7, generators())
    assert many != Madlib().privatize(["house old goes " * 50], LINE, 0.7, generators())


def test_more_candidates_than_words_are_all_words():
    assert (counted("run", 0.9, 2000) == counted("run", 0.9, 2000, k=5)).all()


def test_the_response_of_tags_keeps_the_stated_share():
    """No noise on words is visible here: two words on one spot, so the output shows the target tag alone.

    Of 100,000 draws at tag_epsilon 2 a share of 0.425 stays; 1.8 or 2.2 give 0.377 or 0.474, 30 deviations away.
    """
    spot = WordVectors(WORDS, np.array([[0.0], [1e-6], [100.0], [100.0], [100.0]]), "spot")
    (text,) = SyntaxGuided(k=2, tag_epsilon=2.0).privatize(["the " * DRAWS], spot, 1.0, generators(7))
    # "run" comes out for the target VERB, and half of the time where neither tag is the target
    stay, leave = 1 / (1 + 10 * math.exp(-2)), math.exp(-2) / (1 + 10 * math.exp(-2))
    share = stay + 9 * leave / 2
    assert 1e-6 < binom.cdf(text.split().count("the"), DRAWS, share) < 1 - 1e-6


def test_words_outside_w_have_the_tag_of_their_public_point():
    """A word outside W shows no more than its point: X for words, NUM for numbers, whatever the word is."""
    vectors = WordVectors(("x1", "x2", "7", "9"), np.array([[-1.0], [1.0], [50.0], [52.0]]), "numbers")
    law = SyntaxGuided(k=2).law(base.prepared(Madlib(), vectors, 1.0)[0], 1.0)
    assert [TAGS[code] for code in law.lexical[-2:]] == ["X", "NUM"]
    law = SyntaxGuided(k=2, numbers="oov").law(base.prepared(Madlib(), vectors, 1.0)[0], 1.0)
    assert [TAGS[code] for code in law.lexical[-2:]] == ["X", "X"]


@pytest.mark.parametrize(
    "fields", [{}, {"tag_privacy": "none"}, {"oov": "random", "punctuation": "drop"}, {"tags": "contextual"}]
)
def test_a_row_does_not_depend_on_its_batch(fields):
    if "tags" in fields:
        pytest.importorskip("spacy")
    vectors = plane()
    first = " ".join(vectors.words[3:9])
    texts = [first, None, "", f"{first}, unheard 1999!", "\ud800 \U0001f600", "?!", " ".join(vectors.words[50:60])]
    mechanism = SyntaxGuided(**fields)
    whole = mechanism.privatize(texts, vectors, 1.0, generators())
    for size in (1, 2, 5):
        made = []
        for start in range(0, len(texts), size):
            part = texts[start : start + size]
            made += mechanism.privatize(part, vectors, 1.0, lambda i, start=start: generators()(start + i))
        assert made == whole
    assert (
        mechanism.privatize([texts[0], *[f"other {i} texts" * 9 for i in range(9)]], vectors, 1.0, generators())[0]
        == whole[0]
    )


def test_workers_give_the_same_rows():
    data = Dataset.from_dict({"text": ["the old doctor wrote a report, in london", None, "1999 unheard!"] * 4})
    one, two = (
        data.privatize("syntax-guided", epsilon=8, insecure_noise_seed=1, num_proc=n, params={"max_words": 500})
        for n in (1, 2)
    )
    assert one["text"][:] == two["text"][:]


def test_an_infinite_epsilon_keeps_words_and_tags():
    text = "house old, goes run"
    for form in ("rr", "public"):
        made = SyntaxGuided(tag_privacy=form, tag_epsilon=0.01).privatize(
            [f"{text} " * 50], LINE, math.inf, generators()
        )
        assert made == [f"{text} " * 49 + text]


def test_contextual_tags_are_those_of_the_text():
    pytest.importorskip("spacy")
    mechanism = SyntaxGuided(tags="contextual", tag_privacy="public")
    text = "They run fast. The run was good."
    (marks,) = mechanism.marks([text], [read(text, {})[0]], [], None)
    assert [TAGS[code] for code in marks] == ["PRON", "VERB", "ADV", "DET", "NOUN", "VERB", "ADJ"]
    # noise-free, each word stays where its own contextual tag is a candidate's tag, else the nearest of that tag
    made = mechanism.privatize(["the run", "a goes"], LINE, math.inf, generators())
    assert made[0].split()[0] == "the" and made[0].split()[1] == "house"


def test_the_guarantee_prints_both_scales_or_names_what_is_public():
    rr, public, none = (SyntaxGuided(tag_privacy=form).guarantee(10) for form in FORMS)
    assert rr.metric.endswith("plus 4/10 for each part-of-speech tag that differs")
    assert "scale 10 per word" in rr.statement() and "tag_epsilon = 4 for each part-of-speech tag" in rr.statement()
    assert "the part-of-speech sequence of each text is public" in public.assumptions
    assert public.metric == none.metric == Madlib().guarantee(10).metric
    assert none.assumptions == Madlib().guarantee(10).assumptions
    contextual = SyntaxGuided(tags="contextual").guarantee(10).statement()
    assert "en-core-web-sm" in contextual and "may change the tags of several places" in contextual


def test_each_form_has_the_events_of_what_it_draws():
    both = SyntaxGuided(tag_epsilon=3).event(5)
    assert list(both.events) == [MultivariateLaplaceDpEvent(5.0), TagResponseDpEvent(3.0)]
    for form in ("public", "none"):
        assert SyntaxGuided(tag_privacy=form).event(5) == MultivariateLaplaceDpEvent(5.0)


@pytest.mark.parametrize("form", FORMS)
def test_a_release_is_verified_after_it_was_saved(form, tmp_path):
    data = Dataset.from_dict({"text": ["the old doctor wrote a report"] * 5})
    made = data.privatize(
        "syntax-guided", epsilon=8, params={"tag_privacy": form, "max_words": 500}, out=tmp_path / "run"
    )
    found = hf_dpsynth.verify(tmp_path / "run")
    assert found.ok and found.accounting_recomputed, found
    assert hf_dpsynth.load_privacy(tmp_path / "run").guarantee == made.privacy.guarantee
    assert "part-of-speech" in made.privacy.statement() or form == "none"


def test_what_is_missing_is_said_before_anything_is_charged(tmp_path, monkeypatch):
    def missing(module, **_):
        raise MissingExtra(module)

    monkeypatch.setattr("hf_dpsynth.models.tagger.need", missing)
    syntax_guided._tagger.cache_clear()
    budget = hf_dpsynth.PrivacyBudget(tmp_path / "b.db", epsilon=100, delta=0, unit="word", adjacency="replace-one")
    data = Dataset.from_dict({"text": ["the old doctor"]})
    with pytest.raises(MissingExtra):
        data.privatize("syntax-guided", epsilon=8, params={"tags": "contextual"}, budget=budget)
    assert budget.spent() == 0


def test_wrong_parameters_are_refused():
    for params, words in [
        ({"k": 0}, "k is 0"),
        ({"k": 2.0}, "k is 2.0"),
        ({"tags": "spacy"}, "tags is 'spacy'; it must be one of lexical, contextual"),
        ({"tag_privacy": None}, "tag_privacy is None"),
        ({"tag_epsilon": 0}, "tag_epsilon is 0"),
        ({"tag_epsilon": math.nan}, "tag_epsilon is nan"),
        ({"tag_epsilon": math.inf}, "tag_privacy='public'"),
        ({"tag_epsilon": True}, "tag_epsilon is True"),
        ({"tag_epsilon": "4"}, "tag_epsilon is '4'"),
        ({"tagger": ""}, "tagger is ''"),
        ({"tags": "contextual", "tag_privacy": "none"}, "has no meaning"),
    ]:
        with pytest.raises(ConfigError, match=words):
            SyntaxGuided(**params)


@pytest.mark.parametrize("form", ["rr", "public"])
def test_with_all_words_as_candidates_the_nearest_of_the_tag_comes_out(form):
    """What k = |W| gives, found without ordering W: tags that no word of W has fall back on the nearest word."""
    for vectors, text in ((LINE, "the run house goes old unheard 7 " * 300), (plane(), " ".join(plane().words) * 3)):
        every = SyntaxGuided(k=len(vectors), tag_privacy=form)
        made = SyntaxGuided(k="all", tag_privacy=form).privatize([text], vectors, 0.8, generators(2))
        assert made == every.privatize([text], vectors, 0.8, generators(2))


def test_all_candidates_are_a_word_not_a_number_and_need_a_tag_of_their_own():
    assert SyntaxGuided(k="all").guarantee(3.0) == SyntaxGuided().guarantee(3.0)
    assert hf_dpsynth.plan("syntax-guided", epsilon=3, params={"k": "all"}).params["k"] == "all"
    for params, words in [({"k": "some"}, "k is 'some'"), ({"k": "all", "tag_privacy": "none"}, "has no meaning")]:
        with pytest.raises(ConfigError, match=words):
            SyntaxGuided(**params)
