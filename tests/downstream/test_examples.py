import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value
from hypothesis import given
from hypothesis import strategies as st

from hf_dpsynth import downstream
from hf_dpsynth.downstream import Examples
from hf_dpsynth.downstream.examples import stratified
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.keys import public_generator
from tests.downstream.tiny_models import CANARY, rows

SECRET = "zqsecret"


def read(dataset, **more):
    return Examples.of(dataset, **({"label_column": "label"} | more))


@given(st.lists(st.integers(0, 3), min_size=2, max_size=60), st.floats(0.01, 0.99), st.integers(0, 5))
def test_a_stratified_share_is_never_empty_never_a_whole_label_and_near_the_share(labels, share, seed):
    labels = np.array(labels)
    chosen = stratified(labels, share, public_generator(seed, "test"))
    assert 1 <= len(chosen) < len(labels) and len(set(chosen.tolist())) == len(chosen)
    for value in set(labels.tolist()):
        of_label = int((labels == value).sum())
        taken = int((labels[chosen] == value).sum())
        assert taken < of_label or of_label == 1
        assert abs(taken - share * of_label) <= 1 or len(chosen) == 1


def test_a_split_is_public_complete_stratified_and_the_same_again():
    ds = rows(200)
    parts = downstream.split(ds, label_column="label", holdout=0.3, seed=4)
    assert sorted(parts["train"]["text"][:] + parts["test"]["text"][:]) == sorted(ds["text"][:])
    assert len(parts["test"]) == 60 and sum(parts["test"]["label"]) == 30
    assert parts["test"].features == ds.features
    again = downstream.split(ds, label_column="label", holdout=0.3, seed=4)
    assert again["test"]["text"][:] == parts["test"]["text"][:]
    other = downstream.split(ds, label_column="label", holdout=0.3, seed=5)
    assert other["test"]["text"][:] != parts["test"]["text"][:]


def test_rows_with_the_same_text_go_to_the_same_side():
    ds = Dataset.from_dict({"text": [f"t{row % 20}" for row in range(100)], "label": [row % 2 for row in range(100)]})
    parts = downstream.split(ds, label_column="label")
    assert not set(parts["train"]["text"]) & set(parts["test"]["text"])
    assert len(parts["train"]) + len(parts["test"]) == 100


def test_a_split_works_without_labels_with_nulls_and_with_rare_labels():
    ds = Dataset.from_dict({"text": ["a", None, None, "b", ""], "label": ["x", "y", None, "x", "z"]})
    for label in ("label", None):
        parts = downstream.split(ds, text_column="text", label_column=label, holdout=0.4)
        assert {len(part) for part in parts.values()} <= {1, 2, 3, 4} and len(parts["train"]) + len(parts["test"]) == 5


@pytest.mark.parametrize("holdout", [0, 1, -0.1, float("nan")])
def test_a_share_that_is_none_is_refused(holdout):
    with pytest.raises(ConfigError, match="holdout"):
        downstream.split(rows(), label_column="label", holdout=holdout)


def test_too_few_texts_to_split_are_refused():
    with pytest.raises(ConfigError, match="fewer than 2"):
        downstream.split(Dataset.from_dict({"text": ["a", "a"], "label": [0, 1]}), label_column="label")


def test_labels_are_compared_by_name_whatever_their_type():
    classes = ("neg", "pos")
    named = Features({"text": Value("string"), "label": ClassLabel(names=["pos", "neg"])})
    swapped = Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}, features=named)
    assert read(swapped, classes=classes).labels.tolist() == [1, 0]
    words = Dataset.from_dict({"text": ["a", "b"], "label": ["pos", "neg"]})
    assert read(words, classes=classes, text_column="text").labels.tolist() == [1, 0]
    numbers = Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]})
    assert read(numbers, classes=classes).labels.tolist() == [1, 0]
    assert read(numbers).classes == ("0", "1")
    flags = Dataset.from_dict({"text": ["a", "b"], "label": [True, False]})
    assert read(flags).classes == ("False", "True") and read(flags).labels.tolist() == [1, 0]


def test_a_number_that_is_no_label_is_not_taken_for_a_place_in_the_list():
    stars = Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]})
    with pytest.raises(ConfigError, match="none of the 3 classes"):
        read(stars, classes=("1", "2", "3"))


def test_rows_without_text_or_label_are_left_out_and_counted():
    features = Features({"text": Value("string"), "label": ClassLabel(names=["n", "p"])})
    ds = Dataset.from_dict({"text": ["a", None, "", "d"], "label": [0, 1, 1, -1]}, features=features)
    found = read(ds)
    assert list(found.texts) == ["a", ""] and found.labels.tolist() == [0, 1] and found.skipped == 2


def test_the_label_is_never_guessed_to_be_the_text():
    ds = Dataset.from_dict({"label": ["x", "y"], "text": ["a", "b"], "who": ["p", "q"]})
    assert list(read(ds, group_column="who").texts) == ["a", "b"]
    with pytest.raises(ConfigError, match="text_column="):
        read(ds)


@pytest.mark.parametrize(
    ("column", "text", "message"),
    [("none", None, "does not exist"), ("score", None, "cannot be a label"), ("text", "text", "cannot be a label")],
)
def test_a_wrong_column_is_named(column, text, message):
    ds = Dataset.from_dict({"text": [SECRET], "label": [0], "score": [0.5]})
    with pytest.raises(ConfigError, match=message) as caught:
        Examples.of(ds, label_column=column, text_column=text)
    assert SECRET not in str(caught.value)


def test_an_unknown_label_and_a_column_of_texts_as_labels_name_no_value():
    ds = Dataset.from_dict({"text": ["a"], "label": [SECRET]})
    with pytest.raises(ConfigError, match="none of the 2 classes") as caught:
        read(ds, classes=("n", "p"), text_column="text")
    many = Dataset.from_dict({"text": ["a"] * 1001, "label": [f"{SECRET}{row}" for row in range(1001)]})
    with pytest.raises(ConfigError, match="too many distinct values") as also:
        read(many, text_column="text")
    assert SECRET not in str(caught.value) + str(also.value)


def test_a_set_aside_part_is_disjoint_and_keeps_groups():
    found = read(
        rows(50).add_column("who", [str(row % 3) for row in range(50)]), text_column="text", group_column="who"
    )
    rest, chosen = found.set_aside(0.2, seed=1)
    assert not set(rest.texts) & set(chosen.texts) and len(rest) + len(chosen) == 50 and len(chosen) == 10
    assert len(chosen.groups) == 10 and CANARY not in repr(chosen)


def test_conversations_are_read_as_they_are_written_out():
    chat = List({"role": Value("string"), "content": Value("string")})
    features = Features({"chat": chat, "label": Value("string")})
    turns = [[{"role": "user", "content": text}] for text in ("good", "bad", "fun", "dull")]
    ds = Dataset.from_dict({"chat": turns, "label": ["pos", "neg"] * 2}, features=features)
    examples = Examples.of(ds, label_column="label", text_column="chat")
    assert list(examples.texts) == ["user 4 good", "user 3 bad", "user 3 fun", "user 4 dull"]
    sides = downstream.split(ds, label_column="label", text_column="chat", holdout=0.5)
    assert len(sides["train"]) == len(sides["test"]) == 2 and sides["test"].features == features
