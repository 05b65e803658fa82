"""Sources are removed by name, from every kind of corpus, and a name that does not exist is refused."""

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, IterableDataset, Value

from hf_dpsynth.contamination import remove_sources
from hf_dpsynth.errors import ConfigError

ROWS = {"text": list("abcd"), "site": ["news", "reviews", None, "forum"]}


def test_rows_of_a_source_go_and_rows_without_one_stay():
    corpus = Dataset.from_dict(ROWS)
    assert remove_sources(corpus, "site", ["news", "forum"]).to_dict() == {
        "text": ["b", "c"],
        "site": ["reviews", None],
    }
    splits = remove_sources(DatasetDict(x=corpus, y=corpus.select([1])), "site", ["news"])
    assert isinstance(splits, DatasetDict) and splits["x"]["text"][:] == ["b", "c", "d"]
    assert splits["y"]["text"][:] == ["b"]


def test_a_stream_is_filtered_when_it_is_read():
    stream = Dataset.from_dict(ROWS).to_iterable_dataset()
    assert [row["text"] for row in remove_sources(stream, "site", ["reviews"])] == ["a", "c", "d"]
    untyped = IterableDataset.from_generator(lambda: iter([{"site": 1}, {"site": 2}]))
    assert list(remove_sources(untyped, "site", [1])) == [{"site": 2}]


def test_the_names_of_a_class_label_are_its_names():
    features = Features({"site": ClassLabel(names=["news", "forum"]), "n": Value("int64")})
    corpus = Dataset.from_dict({"site": ["forum", "news", None], "n": [1, 2, 3]}, features=features)
    assert remove_sources(corpus, "site", ["news"])["n"][:] == [1, 3]
    assert [row["n"] for row in remove_sources(corpus.to_iterable_dataset(), "site", ["news"])] == [1, 3]
    with pytest.raises(ConfigError, match="did you mean 'news'"):
        remove_sources(corpus.to_iterable_dataset(), "site", ["new"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"names": ["new"]}, "did you mean 'news'"),
        ({"names": []}, "at least one"),
        ({"names": "news"}, "a list of sources"),
        ({"column": "sit"}, "did you mean 'site'"),
        ({"public": ["a"]}, "public= is list"),
    ],
)
def test_a_slip_of_the_pen_is_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        remove_sources(**{"public": Dataset.from_dict(ROWS), "column": "site", "names": ["news"], **given})
