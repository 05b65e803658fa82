import math
import re
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chi2

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word import base
from hf_dpsynth.mechanisms.word.madlib import Madlib
from hf_dpsynth.mechanisms.word.text import PUNCTUATION
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.keys import Key

LINE = WordVectors(tuple("abcd"), np.array([[-5.0], [0.0], [1.0], [6.0]]), "line")
DRAWS = 100_000
PLAIN = Madlib()


def generators(seed=0):
    return lambda row: Key.from_insecure_seed(seed).derive("row", row).generator("noise")


def plane(size=300, width=8):
    rng = np.random.default_rng(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [f"word{one}{other}" for one in letters for other in letters][: size - 4]
    words += ["7", "1,000", "good", "n't"]
    return WordVectors(tuple(words), rng.standard_normal((size, width)), "plane")


def law_on_the_line(place, epsilon):
    """The Laplace integral between the mid-points -2.5, 0.5 and 3.5 (any text book on the Laplace distribution)."""

    def below(x):
        return 0.5 * math.exp(epsilon * x) if x < 0 else 1 - 0.5 * math.exp(-epsilon * x)

    edges = np.array([0, *(below(middle - place) for middle in (-2.5, 0.5, 3.5)), 1])
    return np.diff(edges)


def counts_on_the_line(word, epsilon, draws=DRAWS, mechanism=PLAIN, seed=0):
    """One long text of one word: all draws from one stream."""
    (text,) = mechanism.privatize([f"{word} " * draws], LINE, epsilon, generators(seed))
    found = Counter(text.split())
    assert found.total() == draws
    return np.array([found[c] for c in "abcd"])


def differs(counts, probabilities):
    """Pearson's chi-square at level 1e-6; with 100k draws it finds a 10 % wrong scale with probability > 0.999."""
    expected = counts.sum() * probabilities
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1) < 1e-6


@pytest.mark.parametrize(("word", "place"), [("b", 0.0), ("c", 1.0), ("a", -5.0)])
def test_the_law_is_the_laplace_integral(word, place):
    counts, want = counts_on_the_line(word, 0.9), law_on_the_line(place, 0.9)
    assert not differs(counts, want)
    assert np.abs(counts / DRAWS - want).max() < 0.01
    for wrong in (0.81, 0.99):
        assert differs(counts, law_on_the_line(place, wrong))


def test_many_short_texts_follow_the_same_law():
    texts = Madlib().privatize(["b"] * 20_000, LINE, 1.0, generators())
    counts = np.array([Counter(texts)[c] for c in "abcd"])
    assert not differs(counts, law_on_the_line(0.0, 1.0))


def test_the_law_on_the_plane_is_the_radial_one():
    """Two words in 3-D: P(stay) is that of one coordinate of z, whose tail beyond half the distance is an integral."""
    pair = WordVectors(("left", "right"), np.array([[0, 0, 0], [0, 2.0, 0]]), "pair")
    (text,) = Madlib().privatize(["left " * DRAWS], pair, 1.5, generators(3))
    # |z| ~ Gamma(3, 1/1.5); a coordinate of a uniform direction in 3-D is uniform on [-1, 1] (Archimedes).
    radius = np.linspace(1, 60, 2_000_001)
    density = 1.5**3 / 2 * radius**2 * np.exp(-1.5 * radius)
    leave = np.trapezoid(density * (1 - 1 / radius) / 2, radius)
    counts = np.array([text.split().count("left"), text.split().count("right")])
    assert not differs(counts, np.array([1 - leave, leave]))
    assert differs(counts, np.array([1 - 1.1 * leave, 1.1 * leave]))


def test_log_ratios_stay_within_epsilon_times_the_distance():
    """P of each output is at least 3 %, so a log-ratio of 100k draws has a standard error below 0.03: 5 of them."""
    for epsilon, one, other, distance in [(0.5, "b", "c", 1.0), (0.4, "a", "b", 5.0), (0.5, "c", "d", 5.0)]:
        first, second = counts_on_the_line(one, epsilon), counts_on_the_line(other, epsilon, seed=1)
        assert np.abs(np.log(first / second)).max() < epsilon * distance + 0.15


def test_words_outside_the_vocabulary_have_the_law_of_their_public_point():
    mean = float(LINE.unk[0])
    assert not differs(counts_on_the_line("unheard", 1.0), law_on_the_line(mean, 1.0))
    uniform = counts_on_the_line("unheard", 1.0, mechanism=Madlib(oov="random"))
    assert not differs(uniform, np.full(4, 0.25))


def test_numbers_outside_the_vocabulary_share_a_point_of_their_own():
    vectors = WordVectors(("a", "b", "7", "9"), np.array([[-9.0], [0.0], [10.0], [12.0]]), "numbers")
    inf = float("inf")
    assert Madlib().privatize(["31,415 7 x"], vectors, inf, generators()) == ["7 7 b"]
    assert Madlib(numbers="oov").privatize(["31,415 7 x"], vectors, inf, generators()) == ["b 7 b"]


def odd_texts():
    return [
        "good wordaa, 7 unheard! it's 19,500",
        None,
        "",
        "  \n",
        "\U0001f600\U0001f600 fine",
        "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
        "a\x00b good",
        "good " * 40_000,
        "COVIDXQ-19!!!",
        "\ud800 \x07",
        "?!",
    ]


@pytest.mark.parametrize("mechanism", [Madlib(), Madlib(oov="random"), Madlib(punctuation="drop", numbers="oov")])
def test_nothing_but_vocabulary_and_punctuation_comes_out(mechanism):
    vectors = plane()
    out = mechanism.privatize(odd_texts(), vectors, 2.0, generators())
    assert [text is None for text in out] == [text is None for text in odd_texts()]
    assert out[2] == out[3] == ""
    assert out[10] == ("?!" if mechanism.punctuation == "keep" else "")
    assert len(out[7].split()) == 40_000
    allowed = set(vectors.words)
    for text in filter(None, out):
        for word in text.split(" "):
            if word not in allowed:
                parts = re.split("[" + re.escape(PUNCTUATION) + "]+", word)
                assert mechanism.punctuation == "keep" and all(part in allowed or not part for part in parts)


def test_a_row_does_not_depend_on_its_batch():
    vectors, texts = plane(), odd_texts()
    whole = Madlib().privatize(texts, vectors, 1.0, generators())
    for size in (1, 2, 5):
        made = []
        for start in range(0, len(texts), size):
            part = texts[start : start + size]
            made += Madlib().privatize(part, vectors, 1.0, lambda i, start=start: generators()(start + i))
        assert made == whole
    others = [f"other {i} texts" * 9 for i in range(len(texts) - 1)]
    assert Madlib().privatize([texts[0], *others], vectors, 1.0, generators())[0] == whole[0]


def test_a_row_does_not_depend_on_where_the_search_is_cut(monkeypatch):
    vectors, texts = plane(), ["good wordaa 7", "wordab unheard 1999", "wordac"] * 20
    whole = Madlib(oov="random").privatize(texts, vectors, 1.0, generators())
    monkeypatch.setattr(base, "CHUNK_WORDS", 7)
    assert Madlib(oov="random").privatize(texts, vectors, 1.0, generators()) == whole


def test_streams_are_asked_only_for_texts_with_words():
    asked = []

    def stream(row):
        asked.append(row)
        return generators()(row)

    Madlib().privatize(["good", None, "", "!", "wordaa good"], plane(), 1.0, stream)
    assert asked == [0, 4]


def test_an_infinite_epsilon_returns_words_and_still_no_unknown_ones():
    text = Madlib().privatize(["good wordaa, 1,000 n't unheard"], plane(), float("inf"), generators())[0]
    assert text.startswith("good wordaa, 1,000 n't ") and "unheard" not in text


@pytest.mark.parametrize("epsilon", [1e-100, 1e-30, 1e300])
def test_extreme_scales_give_words(epsilon):
    vectors = plane()
    (text,) = Madlib().privatize(["good " * 200], vectors, epsilon, generators())
    words = text.split()
    assert set(words) <= set(vectors.words)
    assert len(set(words)) == 1 if epsilon > 1 else len(set(words)) > 20


def test_only_the_most_frequent_words_are_used():
    vectors = plane()
    (text,) = Madlib(max_words=5).privatize(["good wordab unheard " * 300], vectors, 0.1, generators())
    assert set(text.split()) == set(vectors.words[:5])


def test_the_guarantee_names_what_it_assumes():
    kept = Madlib().guarantee(5)
    assert (kept.epsilon, kept.unit, kept.metric) == (5.0, "word", "Euclidean distance of word embeddings")
    joined = " ".join(kept.assumptions)
    for words in ("number of words", "punctuation", "public vocabulary", "further release"):
        assert words in joined
    dropped = " ".join(Madlib(oov="random", punctuation="drop").guarantee(5).assumptions)
    assert "whether a token is in W is not protected" in dropped and "punctuation" not in dropped
    assert Madlib().event(5).epsilon == 5.0


def test_wrong_parameters_are_refused():
    for params, words in [
        ({"oov": "keep"}, "oov is 'keep'; it must be one of unk, random"),
        ({"numbers": None}, "numbers is None"),
        ({"punctuation": ""}, "punctuation is ''"),
        ({"max_words": 1}, "max_words is 1"),
        ({"max_words": float("nan")}, "max_words is nan"),
        ({"max_words": True}, "max_words is True"),
    ]:
        with pytest.raises(ConfigError, match=words):
            Madlib(**params)
    for epsilon in (0, -1, float("nan"), 1e-101):
        with pytest.raises(ConfigError, match="epsilon is") as error:
            Madlib().privatize(["unheard secret"], plane(), epsilon, generators())
        assert "secret" not in str(error.value)
        with pytest.raises(ConfigError):
            Madlib().guarantee(epsilon)
