"""Rows as files of a repository, `FOLDER/split-00000-of-00001.parquet`, of data sets in memory and of streams."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hf_dpsynth.errors import ConfigError

_ROWS_AT_A_TIME = 1000


def limit_of(size: int | str) -> int:
    """Return the largest size of a file of rows in bytes.

    Raises:
        ConfigError: it is no such size.
    """
    from datasets.utils.py_utils import convert_file_size_to_int

    try:
        found = int(convert_file_size_to_int(size))
    except (ValueError, TypeError, AttributeError):
        found = 0
    if found <= 0:
        raise ConfigError(f"max_shard_size is {size!r}; it is a number of bytes, or text such as '500MB'.")
    return found


def write_rows(splits: dict[str, Any], folder: Path, limit: int) -> None:
    """Write the files of rows; a stream is read once.

    Args:
        splits (`dict[str, Dataset | IterableDataset]`): released rows. Public.
        folder (`Path`): where to; made.
        limit (`int`): the largest size of a file, in memory.
    Raises:
        ConfigError: a stream has no rows, or rows that do not fit its features.
    """
    folder.mkdir(parents=True)
    for split, rows in splits.items():
        if hasattr(rows, "__len__"):
            size = rows.data.nbytes * len(rows) / max(1, rows.data.num_rows)
            number = max(1, min(len(rows), math.ceil(size / limit)))
            for at in range(number):
                rows.shard(number, at, contiguous=True).to_parquet(str(folder / _name(split, at, number)))
        else:
            _write_stream(rows, folder, split, limit)


def _name(split: str, at: int, number: int) -> str:
    return f"{split}-{at:05d}-of-{number:05d}.parquet"


def _write_stream(rows: Any, folder: Path, split: str, limit: int) -> None:
    """Write a stream; its files are renamed when their number is known."""
    import pyarrow.parquet as parquet

    paths: list[Path] = []
    writer, size = None, 0
    for table in _tables(rows, split):
        if writer is None or size >= limit:
            if writer is not None:
                writer.close()
            paths.append(folder / f"{split}-{len(paths):05d}.part")
            writer, size = parquet.ParquetWriter(str(paths[-1]), table.schema), 0
        writer.write_table(table)
        size += table.nbytes
    if writer is None:
        raise ConfigError(f"split {split!r} is empty: it has no rows.")
    writer.close()
    for at, path in enumerate(paths):
        path.rename(folder / _name(split, at, len(paths)))


def _tables(rows: Any, split: str) -> Iterator[Any]:
    """Yield the rows of a stream as tables of one schema, with the features that `datasets` reads back.

    Raises:
        ConfigError: rows do not fit the features of the stream, or of its first rows.
    """
    import pyarrow
    from datasets import Features

    features = rows.features
    tables = rows.with_format("arrow").iter(batch_size=_ROWS_AT_A_TIME)
    while True:
        try:
            table = next(tables, None)
            if table is None:
                return
            features = Features.from_arrow_schema(table.schema) if features is None else features
            table = table.select(list(features)).cast(features.arrow_schema)
        except (pyarrow.ArrowException, KeyError) as error:
            raise ConfigError(
                f"rows of split {split!r} do not fit the features of its first ones ({type(error).__name__}). Give "
                "the stream features with .cast(Features(...)) before it is privatized."
            ) from None
        yield table
