"""What holds for every word mechanism: what comes out, on what it depends, how it is published."""

import re

import numpy as np
import pytest
from datasets import Dataset

import hf_dpsynth
from hf_dpsynth import registry
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word import base
from hf_dpsynth.mechanisms.word.text import PUNCTUATION
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.keys import Key
from tests.mechanisms.word_draws import PLANE, generators

NAMES = ("mahalanobis", "vickrey", "tem", "santext", "santext+", "custext", "custext+", "diffractor")
PARAMS = {"custext": {"k": 3}, "custext+": {"k": 3}, "santext+": {"sensitive": 0.9}, "tem": {"beta": 0.05}}
every = pytest.mark.parametrize("name", NAMES)


def made(name, **more):
    return registry.resolve(name, {**PARAMS.get(name, {}), **more}, "privatize")


def vocabulary(size=300, width=6):
    rng = np.random.default_rng(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [f"word{one}{other}" for one in letters for other in letters][: size - 4]
    return WordVectors((*words, "7", "1,000", "good", "n't"), rng.standard_normal((size, width)), "wide")


TEXTS = [
    "good wordaa, 7 unheard! it's 19,500",
    None,
    "",
    "\U0001f600 good \u05e9\u05dc\u05d5\u05dd",
    "a\x00b good",
    "good wordab " * 700,
    "COVIDXQ-19!!!",
    "\ud800 \x07",
    "?!",
]


@every
def test_nothing_but_vocabulary_and_punctuation_comes_out(name):
    vectors = vocabulary()
    for options in ({}, {"oov": "random", "numbers": "oov"}):
        out = made(name, **options).privatize(TEXTS, vectors, 2.0, generators())
        assert [text is None for text in out] == [text is None for text in TEXTS]
        assert (out[2], out[8]) == ("", "?!") and len(out[5].split()) == 1400
        for text in filter(None, out):
            for word in text.split(" "):
                parts = [word] if word in vectors.known else re.split("[" + re.escape(PUNCTUATION) + "]+", word)
                assert all(part in vectors.known or not part for part in parts)


@every
def test_a_row_does_not_depend_on_its_batch_or_on_chunks(name, monkeypatch):
    vectors, mechanism = vocabulary(), made(name)
    whole = mechanism.privatize(TEXTS, vectors, 1.0, generators())
    for size in (1, 3):
        parts = []
        for start in range(0, len(TEXTS), size):
            batch = TEXTS[start : start + size]
            parts += made(name).privatize(batch, vectors, 1.0, lambda i, start=start: generators()(start + i))
        assert parts == whole
    others = [f"wordb{letter} wordc{letter} more" for letter in "abcdefghijk"]
    assert mechanism.privatize([TEXTS[0], *others], vectors, 1.0, generators())[0] == whole[0]
    monkeypatch.setattr(base, "CHUNK_WORDS", 7)
    short = [text for text in TEXTS if text is None or len(text) < 100]
    cut = mechanism.privatize(short, vectors, 1.0, generators())
    monkeypatch.undo()
    assert cut == mechanism.privatize(short, vectors, 1.0, generators())


@every
def test_two_streams_draw_different_words(name):
    """A seed that is fixed by default, or one stream for all texts, would repeat itself."""
    text = "wordaa wordab wordac good " * 20
    out = made(name).privatize([text, text], vocabulary(), 0.5, lambda row: Key().derive(row).generator("noise"))
    assert out[0] != out[1]


@every
@pytest.mark.parametrize("epsilon", [1e-100, 1e-16, 1e300])
def test_extreme_scales_give_words(name, epsilon):
    vectors = vocabulary()
    (text,) = made(name).privatize(["good wordaa unheard 3.14 " * 100], vectors, epsilon, generators())
    words = text.split()
    assert set(words) <= set(vectors.words)
    if epsilon > 1:
        least = {"vickrey": 40, "tem": 80}.get(name, 100)  # a coin remains there, and the mass beta here
        assert words[::4].count("good") >= least and words[1::4].count("wordaa") >= least
    if epsilon < 1:
        assert len(set(words[::4])) > 1


@every
def test_an_infinite_scale_returns_words_of_the_vocabulary_and_no_others(name):
    options = {"t": 0.0} if name == "vickrey" else {}
    text = made(name, **options).privatize(
        ["good wordaa, 1,000 n't unheard"], vocabulary(), float("inf"), generators()
    )[0]
    assert text.startswith("good wordaa, 1,000 n't ") and "unheard" not in text
    with pytest.raises(ConfigError, match="epsilon is"):
        made(name).guarantee(float("nan"))


@every
def test_a_release_states_its_guarantee_and_verifies(name, tmp_path):
    ds = Dataset.from_dict({"text": ["a good film, the bank of the river", None, "unheard money 31,415"] * 5})
    out = ds.privatize(name, epsilon=3, vectors=PLANE, params=PARAMS.get(name), out=tmp_path / "run")
    statement = out.privacy.statement()
    assert f"Metric DP at scale 3 per word in {made(name).metric(3.0)}" in statement
    assert "Not anonymised" in statement and all(text in statement for text in made(name).assumptions())
    assert len(out) == 15 and out["text"][1] is None
    found = hf_dpsynth.verify(tmp_path / "run")
    assert found.ok and found.accounting_recomputed and not found.findings
    listed = {row[0]: row for row in hf_dpsynth.list_mechanisms()}[name]
    assert listed[1] == "privatize" and "arXiv:" in listed[3]
    assert hf_dpsynth.plan(name, epsilon=3, params=PARAMS.get(name)).guarantee == out.privacy.plan.guarantee


def test_a_budget_adds_scales_of_one_metric_and_refuses_another(tmp_path):
    ds = Dataset.from_dict({"text": ["a good film"] * 3})
    budget = hf_dpsynth.PrivacyBudget(tmp_path / "words.db", epsilon=10, delta=0, unit="word")
    for name in ("tem", "santext", "vickrey"):
        ds.privatize(name, epsilon=2, vectors=PLANE, budget=budget)
    assert budget.spent() == 6
    for name in ("mahalanobis", "santext+", "custext", "diffractor"):
        with pytest.raises(ConfigError, match="scales over"):
            ds.privatize(name, epsilon=1, vectors=PLANE, params=PARAMS.get(name), budget=budget)
    assert budget.spent() == 6


def test_workers_draw_what_one_process_draws():
    """Rows in two fresh interpreters, with equal texts: other laws or one shared stream would show."""
    ds = Dataset.from_dict({"text": ["good film bank river"] * 12})
    settings = {"epsilon": 1.0, "vectors": PLANE, "insecure_noise_seed": 3}
    two = ds.privatize("tem", num_proc=2, **settings)["text"][:]
    assert two == ds.privatize("tem", **settings)["text"][:]
    assert len(set(two)) > 8


@every
def test_private_text_stands_in_no_error(name):
    with pytest.raises(ConfigError) as error:
        made(name).privatize(["unheard secret"], PLANE, 1e-101, generators())
    assert "secret" not in str(error.value)
