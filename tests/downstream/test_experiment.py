import json
import re
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from datasets import Dataset, DatasetDict

from hf_dpsynth import data, downstream
from hf_dpsynth.downstream import Classifier, InContext, WordCNN, study
from hf_dpsynth.downstream.base import FittedModel
from hf_dpsynth.downstream.experiment import MAJORITY, ZERO_SHOT, resolve
from hf_dpsynth.downstream.sources import in_short
from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.guarantees import ApproxDP, MetricDP
from tests.downstream.tiny_models import CANARY, rows, save_causal, save_encoder
from tests.stubs import StubEmbedder, StubGenerator, toy_vectors

SMALL = WordCNN(embedding_size=16, filters=8, hidden_size=8, epochs=3, learning_rate=1e-2)


class KnowsWords(FittedModel):
    """Says "pos" where a good word of the training rows stands."""

    def __init__(self, train):
        super().__init__(train.classes, len(train))
        pairs = list(zip(train.texts, train.labels, strict=True))
        self._good = {word for text, label in pairs if label == 1 for word in text.split()}
        self._good -= {word for text, label in pairs if label == 0 for word in text.split()}

    def log_probabilities(self, texts):
        good = np.array([bool(self._good & set(text.split())) for text in texts], dtype=float)
        return np.log(np.stack([1 - 0.9 * good, 0.1 + 0.8 * good], axis=1) / 1.1)


@dataclass(frozen=True)
class Lookup:
    """A model that needs no training, and remembers what it was given."""

    seen: tuple = ()
    reads_all_rows: ClassVar[bool] = True
    name: ClassVar[str] = "lookup"

    def repeats(self, asked):
        return asked

    def fit(self, train, *, seed=0):
        LOG.append((list(train.texts), seed))
        return KnowsWords(train)


LOG = []


def run(real=None, synthetic=None, **more):
    LOG.clear()
    real = DatasetDict({"train": rows(80), "test": rows(60, first=500, canary="t")}) if real is None else real
    settings = {"label_column": "label", "models": [Lookup()], "seeds": 2} | more
    return study(real=real, synthetic={} if synthetic is None else synthetic, **settings)


def one(found, source, **more):
    (row,) = [r for r in found.rows if r.source == source and all(getattr(r, k) == v for k, v in more.items())]
    return row


def test_one_call_gives_real_synthetic_and_baseline_rows():
    wrong = rows(80).remove_columns("label").add_column("label", [1 - row % 2 for row in range(80)])
    found = run(synthetic={"other": rows(80, first=200, canary="s"), "wrong": wrong})
    assert [row.source for row in found.rows] == [MAJORITY, "real", "other", "wrong"]
    assert one(found, "real").accuracy == 1.0 == one(found, "other").accuracy
    assert one(found, "wrong").accuracy == 0.0
    assert found.majority == one(found, MAJORITY).accuracy == 0.5
    assert one(found, "real").guarantee == "none" and one(found, "other").guarantee == "unknown"
    assert one(found, "real").fits == 2 and one(found, "real").spread == 0.0 and one(found, "real").num_train == 80
    assert one(found, "real").interval == pytest.approx((0.940, 1.0), abs=1e-3)
    assert found.uses_private_data and found.num_test == 60 and found.classes == ("neg", "pos")


def test_no_mechanism_and_no_fit_ever_sees_a_test_row():
    given = []

    def mechanism(train):
        given.append(train)
        return rows(50, first=900, canary="s")

    real = rows(100)
    run(real, {"made": mechanism}, holdout=0.3)
    parts = downstream.split(real, label_column="label", holdout=0.3)
    assert given[0]["text"][:] == parts["train"]["text"][:]
    tested = set(parts["test"]["text"])
    assert len(tested) == 30 and LOG
    assert all(not tested & set(texts) for texts, _ in LOG)


def test_a_ready_set_beside_unsplit_real_data_is_refused_before_anything_runs():
    called = []
    with pytest.raises(ConfigError, match=r"downstream\.split") as caught:
        run(rows(), {"late": lambda train: called.append(1), "ready": rows(20)})
    assert "'ready'" in str(caught.value) and not called and CANARY not in str(caught.value)


def test_functions_and_ready_sets_both_work_beside_split_data():
    made = DatasetDict({"train": rows(40, first=300, canary="s")})
    found = run(synthetic={"ready": made, "function": lambda train: made, "only split": DatasetDict(x=made["train"])})
    assert [row.num_train for row in found.rows[2:]] == [40, 40, 40]


def test_exact_copies_of_test_texts_are_counted():
    real = DatasetDict({"train": rows(40), "test": rows(30, first=500)})
    copies = Dataset.from_dict({"text": real["test"]["text"][:7] + ["new"] * 3, "label": [0, 1] * 5})
    row = one(run(real, {"copied": copies}), "copied")
    assert row.test_copies == 7 and any("7 rows of copied are exact copies" in limit for limit in row.limits)


def test_amounts_take_nested_subsets_and_a_small_set_says_so():
    found = run(synthetic={"big": rows(300, first=200, canary="s"), "small": rows(60, first=200, canary="s")},
                amounts=(3, 0.5, 1), seeds=1)  # fmt: skip
    assert [(r.amount, r.num_train) for r in found.rows if r.source == "real"] == [(0.5, 40), (1, 80)]
    assert [(r.amount, r.num_train) for r in found.rows if r.source == "big"] == [(0.5, 40), (1, 80), (3, 240)]
    small = [row for row in found.rows if row.source == "small"]
    assert [(row.amount, row.num_train) for row in small] == [(0.5, 40), (1, 60), (3, None)]
    assert any("has 60 of the 80 rows that 1x asks for" in limit for limit in small[1].limits)
    assert small[2].accuracy is None and "not run again, see 1x" in small[2].limits[0]
    texts = [set(texts) for texts, _ in LOG if any("s2" in text for text in texts)]
    assert texts[0] <= texts[1] <= texts[2]


@pytest.mark.parametrize("amounts", [("1",), (True,), (float("nan"),), ()])
def test_amounts_that_are_no_multiples_are_refused(amounts):
    with pytest.raises(ConfigError, match="amounts is"):
        run(amounts=amounts)


def test_amounts_that_are_the_same_number_of_rows_run_once():
    found = run(amounts=(0.5, 0.501))
    assert [(r.amount, r.num_train) for r in found.rows if r.source == "real"] == [(0.5, 40), (0.501, None)]
    assert "0.501x is 40 rows: not run again, see 0.5x" in found.rows[-1].limits


def test_only_large_amounts_still_compare_with_all_real_rows():
    assert one(run(synthetic={}, amounts=(3,)), "real").num_train == 80


def test_subgroups_have_a_column_each_and_a_gap():
    test = rows(80, first=500, canary="t")
    test = test.add_column("region", ["north" if row < 40 else "south" for row in range(80)])
    flipped = test.to_dict()
    flipped["label"] = [label if row < 40 else 1 - label for row, label in enumerate(flipped["label"])]
    real = DatasetDict({"train": rows(80), "test": Dataset.from_dict(flipped, features=test.features)})
    found = run(real, subgroup_column="region")
    assert one(found, "real").by_group == {"north": 1.0, "south": 0.0} and one(found, "real").gap == 1.0
    assert "| north |" in found.table()
    alone = run(test, subgroup_column="region", holdout=0.5)
    assert set(one(alone, "real").by_group) == {"north", "south"}


def test_a_set_with_one_class_and_a_set_of_one_row_say_so():
    found = run(synthetic={"good": rows(80, first=200).filter(lambda row: row["label"] == 1), "tiny": rows(1)},
                models=[SMALL], seeds=1)  # fmt: skip
    assert any("good has no row of the class neg" in limit for limit in one(found, "good").limits)
    assert one(found, "good").accuracy == 0.5
    assert one(found, "tiny").accuracy is None and "fewer than 2" in one(found, "tiny").limits[1]


def test_rows_without_label_or_text_and_empty_texts_are_handled():
    broken = rows(40).to_dict()
    broken["text"][:3], broken["label"][3] = [None, "", ""], -1
    real = DatasetDict({"train": Dataset.from_dict(broken, features=rows(2).features), "test": rows(30, first=500)})
    row = one(run(real, models=[SMALL]), "real")
    assert row.num_train == 38 and any("2 rows of real have no text or no label" in limit for limit in row.limits)


def test_the_result_is_json_and_a_table_and_holds_no_text():
    found = run(synthetic={"a|b": rows(20, first=200)}, amounts=(1, 3))
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["uses_private_data"] is True
    assert CANARY not in text + found.table() + repr(found)
    lines = found.table().splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len({len(line) for line in table}) == 1 and len({line.count("|") for line in table}) == 1
    assert str(found) == found.table()


def test_language_models_get_a_zero_shot_row_once_and_a_row_for_each_source(tmp_path):
    folder = save_causal(tmp_path / "llm", "llama")
    models = [InContext(model=folder, shots=shots, resamples=3, dtype="float32") for shots in (3, 6)]
    found = run(synthetic={"made": rows(40, first=200), "few": rows(4, first=200)}, models=models, amounts=(1, 3))
    assert [row.source for row in found.rows].count(ZERO_SHOT) == 1
    assert one(found, ZERO_SHOT).fits == 1 and one(found, ZERO_SHOT).num_train == 0
    for source in ("real", "made"):
        assert [row.num_train for row in found.rows if row.source == source] == [3, 6]
        assert [(row.fits, row.amount) for row in found.rows if row.source == source] == [(3, None)] * 2
    assert [row.num_train for row in found.rows if row.source == "few"] == [3, None]
    assert "shots is 6" in one(found, "few", num_train=None).limits[0]


def test_mechanisms_of_this_package_and_all_kinds_of_models_meet_in_one_table(tmp_path):
    encoder = save_encoder(tmp_path / "encoder")
    words = lambda train: train.privatize("madlib", epsilon=9, keep_columns=["label"], vectors=toy_vectors())  # noqa: E731
    evolved = lambda train: train.synthesize(  # noqa: E731
        "aug-pe", epsilon=4.0, delta=1e-4, text_column="text", label_column="label", num_rows=12,
        params={"iterations": 2, "variations": 2}, generator=StubGenerator(), embedder=StubEmbedder(),
    )  # fmt: skip
    models = [SMALL, Classifier(model=encoder, epochs=1, learning_rate=1e-3)]
    found = run(rows(60), {"words": words, "evolved": evolved}, models=models, seeds=1)
    assert one(found, "words", model="word-cnn").guarantee == "metric DP at scale 9 per word"
    assert one(found, "evolved", model="word-cnn").guarantee == "(4, 0.0001)-DP per record"
    assert one(found, "evolved", model="word-cnn").num_train == 12
    assert all(row.accuracy is not None for row in found.rows)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"amounts": ()}, "amounts"),
        ({"amounts": (float("nan"),)}, "amounts"),
        ({"amounts": (0,)}, "amounts"),
        ({"models": []}, "models has 0"),
        ({"models": ["word-cn"]}, "did you mean 'word-cnn'"),
        ({"models": [object()]}, "holds a object"),
        ({"seeds": 0}, "seeds is 0"),
        ({"seeds": "3"}, "seeds is '3'; it is a whole number"),
        ({"seeds": 1.5}, "seeds is 1.5; it is a whole number"),
        ({"seed": "x"}, "seed is 'x'; it is a whole number"),
        ({"confidence": 1}, "confidence"),
        ({"label_column": "labels"}, "does not exist"),
        ({"subgroup_column": "region"}, "does not exist"),
        ({"synthetic": [1]}, "pass a dict"),
        ({"synthetic": {"real": rows(4)}}, "another"),
        ({"synthetic": {"x": 3}}, "is a int"),
        ({"synthetic": {"x": rows(4).rename_column("text", "t")}}, r"synthetic\['x'\]"),
        ({"synthetic": {"x": rows(4, names=("neg", "good"))}}, r"synthetic\['x'\].*none of the 2 classes"),
        ({"synthetic": {"x": rows(4).select([])}}, "no row"),
        ({"synthetic": {"x": lambda train: [1]}}, "is a list"),
        ({"real": DatasetDict({"train": rows(9)})}, "needs 'train' and 'test'"),
        ({"real": [1]}, "real= is a list"),
        ({"real": DatasetDict({"train": rows(9), "test": rows(9).select([])})}, "test split has no row"),
    ],
)
def test_bad_input_is_refused_in_words_without_a_text(wrong, message):
    with pytest.raises(ConfigError, match=message) as caught:
        run(**wrong)
    assert CANARY not in str(caught.value) and not LOG


@pytest.mark.parametrize("rate", [1e8, 1e30])
def test_a_fit_that_diverges_says_so_in_its_line(rate, tmp_path):
    models = [Classifier(model=save_encoder(tmp_path / "encoder"), epochs=2, learning_rate=rate), SMALL]
    found = run(models=models, seeds=1)
    lost, learned = (row for row in found.rows if row.source == "real")
    assert any("1 of 1 fits did not improve" in limit for limit in lost.limits)
    assert learned.accuracy > 0.9 and not any("did not improve" in limit for limit in learned.limits)


def test_models_that_differ_in_their_options_differ_in_their_names():
    found = run(models=[SMALL, replace(SMALL, filters=4), Lookup()], seeds=1)
    first, second, other = (row.model for row in found.rows if row.source == "real")
    assert first != second and "filters=8" in first and "filters=4" in second and other == "lookup"


def test_a_guarantee_in_short_is_never_below_the_claim():
    for value in (1.00049, 3.0, 0.123456789, 1.049e-5):
        for guarantee in (ApproxDP(epsilon=value, delta=1.049e-5), MetricDP(epsilon=value, metric="m")):
            shown = re.findall(r"[0-9.]+(?:e-?[0-9]+)?", in_short(guarantee))
            assert float(shown[0]) == value
    assert in_short(ApproxDP(epsilon=4.0, delta=1.049e-5)) == "(4, 1.049e-05)-DP per record"


def test_one_class_in_the_real_data_is_refused():
    same = Dataset.from_dict({"text": ["a", "b", "c", "d"], "label": [1, 1, 1, 1]})
    with pytest.raises(ConfigError, match="single class"):
        run(same)


def test_a_missing_model_is_told_before_a_mechanism_runs():
    called = []
    with pytest.raises(AssetError):
        run(rows(), {"x": lambda train: called.append(1)}, models=[Classifier(model="no-such-encoder")])
    assert not called


def test_a_ready_set_that_does_not_fit_is_told_before_a_mechanism_runs():
    called = []
    with pytest.raises(ConfigError, match="none of the 2 classes"):
        run(synthetic={"made": lambda train: called.append(1), "ready": rows(4, names=("neg", "good"))})
    assert not called


def test_names_stand_for_models():
    assert isinstance(resolve("word-cnn"), WordCNN) and isinstance(resolve("in-context"), InContext)
    assert resolve("minilm") == Classifier(model="minilm")


@pytest.mark.slow
def test_real_models_on_real_rows():
    movie = data.load("movie")
    train, test = (movie[name].shuffle(seed=0) for name in ("train", "test"))  # the file is sorted by label
    real = DatasetDict({"train": train.select(range(800)), "test": test.select(range(200))})
    models = [WordCNN(batch_size=32, patience=3), Classifier(batch_size=16), InContext(resamples=3)]
    found = study(real=real, synthetic={"half": train.select(range(800, 1200))}, label_column="label",
                  models=models, seeds=1)  # fmt: skip
    for source in ("real", "half"):
        assert one(found, source, model="word-cnn").accuracy > 0.6
        assert one(found, source, model="minilm").accuracy > 0.7
    assert one(found, "real", num_train=6).accuracy > 0.52
