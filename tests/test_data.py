from collections import Counter

import pytest

from hf_dpsynth import data
from hf_dpsynth.errors import AssetError


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("movie", {"positive": 4598, "negative": 4575}),
        ("trec", {"ENTY": 1250, "HUM": 1223, "DESC": 1162, "NUM": 896, "LOC": 835, "ABBR": 86}),
        ("sms-spam", {"ham": 4199, "spam": 638}),
        ("fine-foods", {"great": 3258, "other": 1742}),
        ("spam-assassin", {"ham": 4150, "spam": 1896}),
    ],
)
def test_a_data_set_has_its_published_size_and_a_split_without_overlap(name, counts):
    dataset = data.load(name)
    assert set(dataset) == {"train", "test"}
    feature = dataset["train"].features["label"]
    labels = Counter(feature.int2str(label) for split in dataset.values() for label in split["label"])
    assert labels == counts
    assert 0.08 < dataset["test"].num_rows / sum(counts.values()) < 0.12
    assert not set(dataset["train"]["text"]) & set(dataset["test"]["text"])
    assert all(text.strip() and "\r" not in text for split in dataset.values() for text in split["text"])
    assert dataset["train"].column_names == ["text", "label"]


def test_a_split_is_the_same_each_time():
    first, second = data.load("trec"), data.load("trec")
    assert first["test"]["text"][:] == second["test"]["text"][:]
    assert first["test"][0]["text"] == "What is the date of Boxing Day ?"


def test_letters_with_accents_are_read_right():
    assert any("Münch" in text for split in data.load("movie").values() for text in split["text"])


def test_an_unknown_data_set_lists_the_known_ones_and_the_closest():
    with pytest.raises(AssetError, match=r"Did you mean 'movie'\? Known: movie, trec, sms-spam"):
        data.load("movies")
