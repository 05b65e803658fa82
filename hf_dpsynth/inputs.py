"""Inputs: a name of the catalogue, a Hub id, a file or a folder becomes a `datasets` object in memory.

One row in the file is one row here, and text stays as it is (`formats`). Nothing is written to a cache. Messages name
a file, a line and a column, never a value.
"""

import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from hf_dpsynth import registry
from hf_dpsynth.errors import ConfigError, HubError
from hf_dpsynth.formats import SUFFIXES, converted, is_written, read_table
from hf_dpsynth.models import catalog

_SPLIT = re.compile(r"(train|validation|test)([-_.].*)?")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def load_input(
    source: str | os.PathLike[str],
    *,
    name: str | None = None,
    split: str | None = None,
    text_column: str | None = None,
    label_columns: Sequence[str] = (),
) -> Any:
    r"""Load private data into memory.

    Args:
        source (`str` or path): a name of the catalogue, a .csv, .tsv, .jsonl, .json, .parquet or .txt file, a folder
            of such files, or a Hub id. In a folder, files that are all named after splits (train, validation, test)
            are these splits; other files are one data set, in the order of their names.
        name (`str`, *optional*): the configuration of a data set of the Hub.
        split (`str`, *optional*): the split to return.
        text_column (`str`, *optional*): a column whose values are text also where they look like numbers.
        label_columns (`Sequence[str]`): columns of CSV and TSV files that stay as they are written: a type that
            depended on all private values would tell whether an odd one is there.
    Returns:
        `Dataset` or `DatasetDict`: a Dataset for a file, or where `split` is given. Sensitive.
    Raises:
        ConfigError: there is no such source or split, or a file cannot be read as its format.
        HubError: the Hub refused, or is out of reach.
    Examples:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "reviews.csv")
        ...     with open(path, "w") as handle:
        ...         _ = handle.write("text,stars\nNA,5\n,1\n")
        ...     load_input(path).to_dict()
        {'text': ['NA', ''], 'stars': [5, 1]}
    """
    path = Path(source)
    text = os.fspath(source)
    if path.exists():
        found = _local(path, text_column, frozenset(label_columns))
    elif text in (known := [asset.name for asset in catalog.datasets()]):
        from hf_dpsynth import data

        found = data.load(text)
    elif path.suffix.lower() not in SUFFIXES and _HUB_ID.fullmatch(text):
        return _from_hub(text, name, split)
    elif path.suffix.lower() in SUFFIXES or os.sep in text:
        raise ConfigError(f"input {text!r} does not exist. Pass a file, a folder, a Hub id or a catalogue name.")
    else:
        raise ConfigError(f"input {text!r} is no file, folder or Hub id{registry.closest(text, known)}")
    if name is not None:
        raise ConfigError(f"name={name!r} is for data sets of the Hub; {text!r} has no configurations.")
    return found if split is None else _split(found, split, text)


def _split(found: Any, split: str, source: str) -> Any:
    splits = dict(found.items()) if isinstance(found, dict) else {"train": found}
    if split not in splits:
        raise ConfigError(f"split {split!r} does not exist in {source!r}; it has {', '.join(splits)}.")
    return splits[split]


def _from_hub(repo_id: str, name: str | None, split: str | None) -> Any:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return load_dataset(repo_id, name, split=split)
    except (DatasetsError, HfHubHTTPError, OSError, ValueError) as error:
        raise HubError(
            f"could not load {repo_id!r} from the Hub: {type(error).__name__}. Check the id, name=, split=, the "
            "network and the token (hf auth login)."
        ) from None


def _local(path: Path, text_column: str | None, labels: frozenset[str]) -> Any:
    """Return a file as a Dataset, a folder as a Dataset or as a DatasetDict."""
    from datasets import DatasetDict

    if not path.is_dir():
        return _dataset({path: read_table(path, text_column)}, labels | {text_column})
    if any(one.is_dir() and not one.name.startswith(".") for one in path.iterdir()):
        raise ConfigError(f"folder {str(path)!r} holds folders; pass one of them, or move the files up.")
    files = sorted(one for one in path.iterdir() if one.is_file() and one.suffix.lower() in SUFFIXES)
    files = [one for one in files if not one.name.startswith(".")]
    if not files:
        raise ConfigError(f"folder {str(path)!r} holds no file of {', '.join(SUFFIXES)}.")
    kinds = {one.suffix.lower() == ".txt" for one in files}
    if len(kinds) > 1:
        raise ConfigError(f"folder {str(path)!r} holds .txt beside other files; pass one file, or move them apart.")
    names = [_SPLIT.fullmatch(one.stem) for one in files]
    if not all(names):
        return _dataset({one: read_table(one, text_column) for one in files}, labels | {text_column})
    splits: dict[str, dict[Path, pa.Table]] = {}
    for found, one in zip(names, files, strict=True):
        splits.setdefault(found[1] if found else "", {})[one] = read_table(one, text_column)
    return DatasetDict({split: _dataset(tables, labels | {text_column}) for split, tables in splits.items()})


def is_written_as_text(source: str | os.PathLike[str]) -> bool:
    """Return whether a file, or a file of a folder, is CSV or TSV, where every value is text."""
    path = Path(source)
    files = list(path.iterdir()) if path.is_dir() else [path]
    return any(one.is_file() and one.suffix.lower() in (".csv", ".tsv") for one in files)


def check_headed(source: str | os.PathLike[str], text_column: str | None) -> None:
    """Refuse to guess the text column of files that take their column names from a line.

    A file without a header would give its first record as the names of columns, which a result shows.

    Raises:
        ConfigError: a CSV or TSV file, or a folder of them, and no text column.
    """
    if text_column is None and is_written_as_text(source):
        raise ConfigError(
            f"text_column must name the column of text of {str(source)!r}: it is not guessed in CSV and TSV."
        )


def _dataset(tables: Mapping[Path, pa.Table], as_text: frozenset[str | None]) -> Any:
    """Return a Dataset in memory of tables that stand under each other; a column that one lacks is null there."""
    from datasets import Dataset, DatasetInfo, Features
    from datasets.table import InMemoryTable

    features = _union(tables)
    whole = pa.concat_tables([_fitted(path, table, features) for path, table in tables.items()])
    for position, name in enumerate(whole.column_names):
        holders = [path for path, table in tables.items() if name in table.column_names]
        if name not in as_text and all(is_written(path) for path in holders):
            whole = whole.set_column(position, name, converted(whole[name]))
            features[name] = Features.from_arrow_schema(whole.select([name]).schema)[name]
    return Dataset(InMemoryTable(whole), info=DatasetInfo(features=features), fingerprint=secrets.token_hex(8))


def _union(tables: Mapping[Path, pa.Table]) -> Any:
    """Return the features of all columns, in the order in which they are met."""
    from datasets import Features

    union: dict[str, Any] = {}
    for path, table in tables.items():
        for name, feature in Features.from_arrow_schema(table.schema).items():
            known = union.get(name)
            if known is None or _is_null(known):
                union[name] = feature
            elif known != feature and not _is_null(feature):
                union[name] = _wider(known, feature, path, name)
    return Features(union)


def _is_null(feature: Any) -> bool:
    return getattr(feature, "dtype", None) == "null"


def _wider(known: Any, feature: Any, path: Path, name: str) -> Any:
    """Return the type that holds both, e.g. of int32 and int64; text and numbers have none."""
    from datasets import Features

    if hasattr(known, "names") or hasattr(feature, "names"):
        raise _differs(path, name)
    schemas = [Features({name: one}).arrow_schema.remove_metadata() for one in (known, feature)]
    try:
        return Features.from_arrow_schema(pa.unify_schemas(schemas, promote_options="permissive"))[name]
    except pa.ArrowException:
        raise _differs(path, name) from None


def _differs(path: Path, name: str) -> ConfigError:
    return ConfigError(
        f"{str(path)!r}: column {name!r} has another type than in the files before. Make the files equal."
    )


def _fitted(path: Path, table: pa.Table, features: Any) -> pa.Table:
    """Return a file's table with all columns in their common types."""
    schema = features.arrow_schema.remove_metadata()
    columns = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        try:
            held = table[name].cast(kind) if name in table.column_names else pa.nulls(len(table), kind)
        except pa.ArrowException:
            raise _differs(path, name) from None
        columns.append(held)
    return pa.table(columns, schema=schema)
