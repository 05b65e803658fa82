"""What holds for every word mechanism, whatever its law: nothing but words of W and marks comes out, row by row."""

import re

import numpy as np
import pytest
from datasets import Dataset

from hf_dpsynth import registry
from hf_dpsynth.mechanisms.word.base import WordMechanism
from hf_dpsynth.mechanisms.word.text import PUNCTUATION
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.keys import Key

WORDS = (*(f"w{one}{other}" for one in "abcdefghij" for other in "abcdefghij"), "7", "the", "n't")
VECTORS = WordVectors(WORDS, np.random.default_rng(1).standard_normal((len(WORDS), 6)), "small")
ODD = ["the waa, wbb! isn't 7", None, "", " \n", "\U0001f600\u05e9\u05dc\u05d5\u05dd a\x00b", "?!", "19,500 zz \ud800"]
NAMES = [
    entry.name
    for entry in registry.table().values()
    if entry.kind == "privatize" and issubclass(entry.load(), WordMechanism)
]


def stream(row):
    return Key.from_insecure_seed(5).generator("row", row)


def test_there_are_ten():
    assert len(NAMES) == 10


@pytest.mark.parametrize("epsilon", [1e-100, 0.5, 1e300, float("inf")])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_the_vocabulary_comes_out_at_any_scale(name, epsilon):
    found = registry.resolve(name, None, "privatize").privatize([*ODD, "waa " * 4_000], VECTORS, epsilon, stream)
    assert found[1] is None and found[2] == found[3] == "" and found[5] == "?!"
    for text in filter(None, found):
        marks = "[ " + re.escape(PUNCTUATION) + "]+"
        assert all(w in WORDS or set(re.split(marks, w)) <= {*WORDS, ""} for w in text.split(" "))
    assert len(found[-1].split()) == 4_000
    # a tag drawn at random, and the share beta of far words, move a word at any finite scale
    if epsilon == float("inf") or (epsilon > 1 and name not in ("syntax-guided", "tem")):
        assert set(found[-1].split()) == {"waa"}


@pytest.mark.parametrize("name", NAMES)
def test_a_row_does_not_depend_on_its_batch_mates(name):
    mechanism = registry.resolve(name, {"oov": "random"}, "privatize")
    whole = mechanism.privatize(ODD, VECTORS, 1.0, stream)
    for row, text in enumerate(ODD):
        assert mechanism.privatize([text], VECTORS, 1.0, lambda _, row=row: stream(row)) == [whole[row]]
    others = mechanism.privatize([ODD[0], *["wcc wdd wcc 7"] * 300], VECTORS, 1.0, stream)
    assert others[0] == whole[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_release_says_what_it_promises_and_what_it_read(name):
    ds = Dataset.from_dict({"text": ["waa wbb the", None], "label": [0, 1]})
    out = ds.privatize(name, epsilon=2, text_column="text", keep_columns=["label"], vectors=VECTORS)
    release = out.privacy
    assert release.guarantee.epsilon == 2 and release.guarantee.unit == "word"
    assert release.guarantee.metric in release.statement() and "not eps-DP for individuals" in release.statement()
    assert any("label" in said for said in release.guarantee.assumptions)
    assert out["label"] == [0, 1] and release.plan.model_ids["vectors"].startswith("small@")
    assert release.card().count("Metric DP at scale 2 per word") == 1


@pytest.mark.parametrize("name", NAMES)
def test_fields_that_are_wrong_name_the_mechanism(name):
    for field in ("oov", "numbers", "punctuation", "stop_words"):
        with pytest.raises(registry.ConfigError, match=f"{re.escape(name)}: {field} is 'x'"):
            registry.resolve(name, {field: "x"}, "privatize")
