"""Rating scales, several columns and many classes: what conditions comes out as it went in."""

from collections import Counter

import pytest
from datasets import ClassLabel, Dataset, Features, Value

import hf_dpsynth
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.finetune.examples import Encoder, prefix_text
from tests.mechanisms import tiny
from tests.stubs import CANARY

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
pytestmark = pytest.mark.usefixtures("one_thread")
PARAMS = {"steps": 2, "batch_size": 4, "max_tokens": 60, "max_new_tokens": 4, "rank": 2, "dtype": "float32"}
KINDS = [f"kind:{number:02d}" for number in range(47)]
FEATURES = Features({
    "text": Value("string"), "stars": Value("int8"), "topic": ClassLabel(names=["film", "food"]),
    "kind": ClassLabel(names=KINDS),
})  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.save_letters(tmp_path_factory.mktemp("letters"))


def rated(n=96):
    columns = {
        "text": [f"{CANARY} {number}" for number in range(n)],
        # no star, a star out of the scale, and what is missing, are in no domain
        "stars": [None, 9, *(1 + number % 5 for number in range(n - 2))],
        "topic": [number % 2 for number in range(n)],
        "kind": [number % 47 for number in range(n)],
    }
    return Dataset.from_dict(columns, features=FEATURES)


def tune(model, columns, **more):
    settings = {
        "epsilon": 0.5, "delta": 1e-2, "text_column": "text", "label_column": columns, "num_rows": 10,
        "generator": model, "params": PARAMS,
    } | more  # fmt: skip
    return rated().synthesize("dp-lora", **settings)


def test_a_scale_of_whole_numbers_comes_out_as_whole_numbers(model):
    shares = {1: 0.1, 2: 0.1, 3: 0.2, 4: 0.2, 5: 0.4}
    made = tune(model, "stars", labels=[1, 2, 3, 4, 5], label_proportions=shares, out="run")
    assert made.features == Features({name: FEATURES[name] for name in ("text", "stars")})
    assert Counter(made["stars"][:]) == {1: 1, 2: 1, 3: 2, 4: 2, 5: 4} and hf_dpsynth.verify("run").ok
    bought = tune(model, "stars", labels=[1, 2, 3, 4, 5])
    assert set(bought["stars"][:]) <= {1, 2, 3, 4, 5} and bought.privacy.charges[0].key == "label-counts"


def test_several_columns_of_different_kinds_come_out_as_they_went_in(model):
    made = tune(model, ["topic", "stars"], labels={"topic": ["film", "food"], "stars": [1, 2, 3, 4, 5]}, out="run")
    assert made.features == Features({name: FEATURES[name] for name in ("text", "topic", "stars")})
    assert len(made.privacy.plan.labels) == 10 and hf_dpsynth.verify("run").ok
    more = made.privacy.more(6)
    assert more.features == made.features and set(more["topic"][:]) <= {0, 1}


def test_more_than_forty_classes_come_out_as_declared(model):
    made = tune(model, "kind", label_proportions=dict.fromkeys(KINDS, 1 / 47), num_rows=94, out="run")
    assert made.features["kind"] == FEATURES["kind"] and Counter(made["kind"][:]) == dict.fromkeys(range(47), 2)
    assert hf_dpsynth.verify("run").ok


def test_labels_that_one_prefix_would_not_tell_apart_are_refused(model):
    domain = {"topic": ["film", "food"], "stars": [1, 2]}
    with pytest.raises(ConfigError, match="two labels the same prefix"):
        tune(model, ["topic", "stars"], labels=domain, params={**PARAMS, "prompt_template": "{stars} stars:"})
    # "1" "12" and "11" "2" are one text without anything between them
    with pytest.raises(ConfigError, match="two labels the same prefix"):
        Encoder(tiny.letters(), "{a}{b}", ("a", "b"), ((1, 12), (11, 2)), 60)


@pytest.mark.parametrize("label", [(1, "film"), (5, "food")])
def test_a_prefix_names_numbers_and_names(label):
    assert prefix_text("", ("stars", "topic"), label) == f"stars: {label[0]}\ntopic: {label[1]}\ntext:"


def test_the_card_says_that_texts_are_cut(model):
    made = tune(model, "stars", labels=[1, 2, 3, 4, 5])
    assert "each record, cut at 60 tokens, has its gradient clipped" in made.privacy.card()
