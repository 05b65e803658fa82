"""Canaries: what they are made of, how they are planted, and a bound that holds and that a leak exceeds."""

import math
import pickle

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, Value

from hf_dpsynth import data
from hf_dpsynth.audit import audit_canaries, make_canaries, multi_run, repeat_runs
from hf_dpsynth.audit.steinke import epsilon_bound, group_delta
from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.privacy.keys import Key
from tests.mechanisms import tiny
from tests.stubs import CANARY, WORDS, StubEmbedder, StubGenerator, reviews, synth

LETTERS = [a + b + c for a in "bcdfgh" for b in "aeiou" for c in "klmnprst"]
PUBLIC = reviews(30)["text"][:]


def made(number=100, key=0, **more):
    settings = {"vocabulary": LETTERS, "prefix_words": 3, "suffix_words": 4, "key": Key.from_insecure_seed(key)}
    return make_canaries(PUBLIC, number, **settings | more)


def answered(canaries, epsilon, seed, copies=1):
    """Release each canary by randomized response: its group's coin is kept at the odds e^(copies x epsilon)."""
    keep = 1 / (1 + math.exp(-epsilon * copies))
    flipped = np.random.default_rng(seed).random(len(canaries)) > keep
    return [text for text, there in zip(canaries.texts, canaries.included ^ flipped, strict=True) if there]


def test_a_canary_is_the_beginning_of_a_text_and_drawn_words():
    one = made(60)
    known = {" ".join(text.split()[:3]) for text in PUBLIC}
    for text in one.texts:
        head, tail = text.split()[:3], text.split()[3:]
        assert " ".join(head) in known and len(tail) == 4 and set(tail) <= set(LETTERS)
    assert len(set(one.texts)) == 60 and set(one.starts) == {3}
    drawn = [word for text in one.texts for word in text.split()[3:]]
    assert len(set(drawn)) == 240 == len(LETTERS), "no word twice while there are others"


def test_the_default_words_are_letters_of_a_public_vocabulary():
    one = make_canaries(["a good film"], 5, suffix_words=6)
    tails = [word for text in one.texts for word in text.split()[3:]]
    assert all(word.isalpha() and len(word) >= 3 for word in tails) and len(set(tails)) == 30


def test_the_seed_moves_the_texts_and_only_the_key_the_coins():
    first, again, other = (made(400, seed=seed) for seed in (0, 0, 1))
    assert first.texts == again.texts != other.texts and np.array_equal(first.included, other.included)
    fresh = [make_canaries(PUBLIC, 400, vocabulary=LETTERS) for _ in range(2)]
    assert fresh[0].texts == fresh[1].texts and not np.array_equal(fresh[0].included, fresh[1].included)


def test_the_coins_are_fair():
    """100,000 coins: a share that is 1 % off lies 6 standard errors away."""
    coins = np.concatenate([made(1000, key=key).included for key in range(100)])
    assert abs(coins.mean() - 0.5) < 0.007


def test_the_coins_are_neither_shown_nor_pickled_nor_changed():
    one = made(20)
    assert repr(one) == "Canaries(20, copies=1, <secret>)"
    with pytest.raises(PrivacyError, match="cannot be pickled"):
        pickle.dumps(one)
    with pytest.raises(ValueError, match="read-only"):
        one.included[0] = True


@pytest.mark.parametrize(
    ("feature", "labels", "want"),
    [
        (Value("string"), ["neg", "pos"], {"neg", "pos"}), (Value("int64"), [0, 1], {0, 1}),
        (ClassLabel(names=["neg", "pos"]), ["neg", "pos"], {0, 1}), (ClassLabel(names=["neg", "pos"]), [0, 1], {0, 1}),
        (Value("bool"), [False, True], {False, True}),
    ],
)  # fmt: skip
def test_planted_rows_have_the_label_of_their_beginning(feature, labels, want):
    given = [labels[place % 2] for place in range(len(PUBLIC))]
    one = made(60, labels=given, copies=2)
    rows = Dataset.from_dict({"text": ["real"] * 40, "y": [next(iter(want))] * 40, "more": [1.5] * 40}).cast(
        Features({"text": Value("string"), "y": feature, "more": Value("float64")})
    )
    both = one.plant(rows, "text", "y")
    assert len(both) == 40 + 2 * one.included.sum() and both.features == rows.features
    found = [row for row in both if row["text"] != "real"]
    assert {row["text"] for row in found} == {t for t, there in zip(one.texts, one.included, strict=True) if there}
    assert {row["y"] for row in found} == want and {row["more"] for row in found} == {None}
    starts = {tuple(text.split()[:3]): labels[place % 2] for place, text in enumerate(PUBLIC)}
    names = feature.names if isinstance(feature, ClassLabel) else None
    for row in found:
        want_label = starts[tuple(row["text"].split()[:3])]
        shown = names[row["y"]] if names and isinstance(want_label, str) else row["y"]
        assert shown == want_label or list(starts.values()).count(want_label) == 0
    assert both["text"][:] == one.plant(rows, "text", "y")["text"][:], "a run that is resumed reads the same rows"
    assert [row["text"] for row in both][:40] != ["real"] * 40


def test_what_cannot_be_planted_is_refused():
    rows, one = reviews(20), made(20)
    for column, label, words in (("none", None, "does not exist"), ("text", "label", "have no labels")):
        with pytest.raises(ConfigError, match=words):
            one.plant(rows, column, label)
    with pytest.raises(ConfigError, match="one split"):
        one.plant({"train": rows}, "text")
    labelled = made(20, labels=[3] * len(PUBLIC))
    with pytest.raises(ConfigError, match="of type int; the column holds string"):
        labelled.plant(rows, "text", "label")
    named = rows.cast_column("label", ClassLabel(names=["neg", "pos"]))
    with pytest.raises(ConfigError, match="not in the ClassLabel column"):
        labelled.plant(named, "text", "label")
    with pytest.raises(ConfigError, match="holds no text"):
        one.plant(Dataset.from_dict({"text": [1, 2]}), "text")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"texts": ["", "  "]}, "no text with a word"), ({"number": 0}, "number is 0"), ({"copies": 0}, "copies is 0"),
        ({"labels": ["a"]}, "labels= has 1 values"), ({"vocabulary": ["two words", "one"]}, "vocabulary="),
        ({"texts": ["a"], "vocabulary": ["b", "c"], "suffix_words": 1, "number": 5}, "would not all differ"),
        ({"texts": [f"{CANARY} a", None]}, "NoneType"),
    ],
)  # fmt: skip
def test_canaries_that_cannot_be_made_are_refused(more, words):
    given = {"texts": PUBLIC, "number": 10, "vocabulary": LETTERS} | more
    with pytest.raises(ConfigError, match=words) as caught:
        make_canaries(given.pop("texts"), given.pop("number"), **given)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("signal", ["ngram", "nearest", "jaccard", "all"])
def test_a_release_of_the_included_canaries_is_caught_by_every_signal(signal):
    one = made(400)
    leak = answered(one, 50.0, 0)
    found = audit_canaries(leak, one, signal=signal, embedder=StubEmbedder(), claimed_epsilon=1.5)
    bound = found["epsilon_lower"]
    assert bound.violated and bound.value > 1.9 and bound.claimed == 1.5 and bound.uses_private_data
    assert found["auc" if signal != "all" else "jaccard_auc"].value > 0.9 and found.curve
    assert bound.confidence == 0.95 and ("3 signals" in bound.statement()) == (signal == "all")


def test_randomized_response_of_whole_canaries_is_bounded_by_its_epsilon_and_closely():
    """120 audits at epsilon 1, 120 of 300 canaries guessed, confidence .9: at most .1 exceed, with an error of .03."""
    found = []
    for seed in range(120):
        one = made(300, key=seed)
        rows = answered(one, 1.0, seed)
        found.append(audit_canaries(rows, one, confidence=0.9, delta=0.0, guesses=120)["epsilon_lower"].value)
    assert np.mean(np.array(found) > 1) <= 0.19 and np.mean(found) > 0.5


def test_several_signals_share_the_confidence():
    one = made(300)
    rows = answered(one, 2.0, 3)
    alone = [
        audit_canaries(rows, one, signal=signal, embedder=StubEmbedder(), confidence=1 - 0.05 / 3)[
            "epsilon_lower"
        ].value
        for signal in ("ngram", "nearest", "jaccard")
    ]
    both = audit_canaries(rows, one, signal="all", embedder=StubEmbedder())["epsilon_lower"]
    assert both.value == pytest.approx(max(alone)) and both.confidence == 0.95


def test_the_bound_of_two_copies_is_one_for_a_record():
    """Response at 2 epsilon is what a record's epsilon of 1 allows two copies; taken for one record it is a breach."""
    as_one, as_two = [], []
    for seed in range(20):
        one, two = (made(300, key=seed, copies=copies) for copies in (1, 2))
        rows = answered(two, 1.0, seed, copies=2)
        as_one.append(audit_canaries(rows, one, delta=0.0, guesses=120)["epsilon_lower"].value)
        found = audit_canaries(rows, two, delta=0.0, guesses=120)["epsilon_lower"]
        as_two.append(found.value)
    assert np.mean(np.array(as_one) > 1) > 0.9 and np.mean(np.array(as_two) > 1) <= 0.2
    assert np.allclose(as_two, np.array(as_one) / 2, atol=1e-6), "without a delta the bound is half"
    assert "stands for 2 records" in found.statement()


def test_the_delta_of_a_group_is_that_of_steps_from_neighbour_to_neighbour():
    """P(k records) <= e^eps P(k - 1) + delta, k times."""
    for copies in (1, 2, 5):
        reached = 0.0
        for _ in range(copies):
            reached = math.exp(0.7) * reached + 1e-5
        assert group_delta(1e-5, 0.7, copies) == pytest.approx(reached)
    assert group_delta(1e-5, 90.0, 3) == 1.0
    assert epsilon_bound(400, 100, 99, 1e-5, 0.05, 3) < epsilon_bound(400, 100, 99, 1e-5, 0.05) / 3


def test_a_release_without_a_trace_has_a_bound_of_nothing():
    found = audit_canaries(["nobody says so"], made(100), claimed_epsilon=1.0)
    assert found["epsilon_lower"].value < 0.5 and [one.metric for one in found.findings] == ["epsilon_lower"]
    assert "nothing of them is in the released texts" in found["epsilon_lower"].statement()


@pytest.mark.parametrize("rows", [[], [None], "text"])
def test_released_texts_that_are_none_are_refused(rows):
    with pytest.raises(ConfigError, match="synthetic="):
        audit_canaries(rows, made(20))
    with pytest.raises(ConfigError, match="make_canaries"):
        audit_canaries(["a"], ["a"])


def planted_run(canaries, **more):
    labels = {"label_proportions": {"neg": 0.5, "pos": 0.5}}
    return synth(canaries.plant(reviews(), "text", "label"), num_rows=120, **labels, **more)


def with_labels(number, vocabulary=WORDS):
    return made(number, labels=["neg", "pos"] * 15, vocabulary=vocabulary, suffix_words=5)


class Leaky(StubGenerator):
    """A "public" generator that has seen the private rows and returns them."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def generate(self, prompts, *, max_new_tokens=32, temperature=1.0, seed=0):
        self.calls += 1
        return [str(one) for one in np.random.default_rng([seed, self.calls]).choice(self.rows, len(prompts))]


def test_evolution_on_planted_rows_stays_below_its_claim():
    """A right mechanism is accused in one of 20 audits at most; this one draws noise anew each time and shows 0."""
    canaries = with_labels(300)
    made_rows = planted_run(canaries, epsilon=1.0, params={"iterations": 1, "variations": 2})
    found = audit_canaries(made_rows["text"][:], canaries, delta=1e-4, claimed_epsilon=1.0)["epsilon_lower"]
    assert not found.violated and found.value < 0.7 and made_rows.privacy.guarantee.epsilon == found.claimed


def test_a_generator_that_returns_private_rows_is_caught_through_the_public_call():
    """About 40 of the 150 planted are among 120 rows, so that 30 guesses are right: a bound of 2.2 against 1."""
    canaries = with_labels(300, LETTERS)
    rows = canaries.plant(reviews(), "text", "label")["text"][:]
    leak = planted_run(canaries, epsilon=1.0, generator=Leaky(rows), params={"iterations": 1, "variations": 2})
    found = audit_canaries(leak["text"][:], canaries, delta=1e-4, claimed_epsilon=1.0)
    assert found["epsilon_lower"].violated and found["epsilon_lower"].value > 1.5 and found["auc"].value > 0.55


@pytest.mark.usefixtures("one_thread")
def test_fine_tuning_on_planted_rows_stays_below_its_claim(tmp_path):
    pytest.importorskip("peft")
    canaries = with_labels(100)
    made_rows = canaries.plant(reviews(64), "text", "label").synthesize(
        "dp-lora", epsilon=2.0, delta=1e-2, text_column="text", label_column="label", num_rows=40, num_records=164,
        label_proportions={"pos": 0.5, "neg": 0.5}, generator=tiny.save(tmp_path / "model"),
        params={"steps": 4, "batch_size": 16, "max_tokens": 16, "max_new_tokens": 8, "rank": 2, "dtype": "float32"},
    )  # fmt: skip
    found = audit_canaries(made_rows["text"][:], canaries, delta=1e-2, claimed_epsilon=2.0)["epsilon_lower"]
    assert not found.violated and found.value < 1 and found.delta == 1e-2


def runs_of(generator):
    """Runs of evolution on 20 rows, of which a record is the last."""

    def run(record, number):
        rows = reviews(20 if record is None else 19)
        more = [] if record is None else [record]
        both = Dataset.from_dict({"text": [*rows["text"], *more], "label": [*rows["label"], *["pos"] * len(more)]})
        params = {"iterations": 1, "variations": 2}
        model = generator([*both["text"]][-3:])
        return synth(both, generator=model, seed=number, params=params, epsilon=1.0)["text"][:]

    return run


def test_runs_with_and_without_a_record_catch_a_leaky_generator_and_pass_a_right_one():
    """7 of 14 runs a side are counted: they show an epsilon of .9 at most at confidence .8, so .5 is refuted."""
    claim = {"delta": 1e-4, "confidence": 0.8}
    leak = multi_run(*repeat_runs(runs_of(Leaky), "zebra quartz violin", 14), **claim, claimed_epsilon=0.5)
    assert leak.violated and leak.epsilon_lower > 0.9
    right = repeat_runs(runs_of(lambda rows: StubGenerator()), "good film bad plot", 14)
    assert not multi_run(*right, **claim, claimed_epsilon=1.0).violated


def test_runs_that_cannot_be_scored_are_refused():
    for more, words in (
        ({"canary": ""}, "one record"),
        ({"signal": "all"}, "one score a run"),
        ({"runs": 0}, "runs is 0"),
        ({"make": lambda record, number: []}, "synthetic= is empty"),
    ):
        given = {"make": lambda record, number: ["a"], "canary": "a b", "runs": 2} | more
        with pytest.raises(ConfigError, match=words):
            repeat_runs(**given)


@pytest.mark.slow
def test_smollm2_without_noise_is_caught_by_its_rows_alone():
    """60 steps without noise on 50 messages and 48 canaries. A claim of 1 at delta 1e-3 would be refuted.

    With 100 canaries and 20 guesses the bound cannot exceed 1.48; 19 right guesses show 1.06. A run
    whose batches were drawn anew gave 20 right guesses and an area of .687.
    """
    messages = list(dict.fromkeys(text for text in data.load("sms-spam")["train"]["text"] if 30 < len(text) < 120))
    canaries = make_canaries(messages[1000:1200], 100, prefix_words=3, suffix_words=5, key=Key.from_insecure_seed(0))
    released = canaries.plant(Dataset.from_dict({"text": messages[:50]}), "text").synthesize(
        "dp-lora", epsilon=math.inf, num_rows=250, num_records=150, generator="smollm2-135m", insecure_noise_seed=0,
        params={
            "steps": 60, "batch_size": 16, "max_tokens": 32, "max_new_tokens": 32, "learning_rate": 5e-3, "rank": 16,
        },
    )  # fmt: skip
    found = audit_canaries(released["text"][:], canaries, delta=1e-3, claimed_epsilon=1.0)
    assert found["epsilon_lower"].violated and found["auc"].value > 0.6
