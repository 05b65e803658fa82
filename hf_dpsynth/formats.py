"""Formats: a file of records becomes a table of Arrow columns, and rows become a file.

One rule for text, whatever the format: it stays as it is. An empty CSV field, quoted or not, is the text ""; a missing
JSON key and a JSON null are null; "NA", "null" and "None" are words. Messages name a file, a line and a column, and
never a value.

A CSV column becomes numbers or booleans when each value of it is written as Python or JSON writes that type, so that
converting back gives the same characters: "0" and "0.5" are numbers, "007", "1.50", "" and the named text column are
text. The names and types of columns are public; a CSV file has its names in the first line.
"""

import codecs
import csv
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.logging import get_logger

logger = get_logger(__name__)

_INDEX = re.compile(r"__index_level_\d+__")
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LONGEST_NAME = 64
_WORDS = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}


def read_table(path: Path, text_column: str | None) -> pa.Table:
    """Return a file as a table.

    Args:
        path (`Path`): the file; its suffix is its format.
        text_column (`str`, *optional*): a column whose numbers are text; the name of the column of a .txt file.
    Returns:
        `pa.Table`: a row for each record. Sensitive. The columns of a CSV file are text: see `converted`.
    Raises:
        ConfigError: the file cannot be read as its format.
    """
    read = _READERS.get(path.suffix.lower())
    if read is None:
        raise ConfigError(f"{str(path)!r} is of no known format; known are {', '.join(SUFFIXES)}.")
    try:
        table = read(path, text_column)
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be read ({error.strerror}).") from error
    for position, name in enumerate(table.column_names):
        kind = table.schema.field(name).type
        if name == text_column and (pa.types.is_primitive(kind) or pa.types.is_null(kind)):
            table = table.set_column(position, name, table[name].cast(pa.string()))
    return table


def is_written(path: Path) -> bool:
    """Return whether a file's format holds characters alone, so that its columns have no types."""
    return _READERS.get(path.suffix.lower()) is _read_csv


def _text(path: Path) -> str:
    """Return a file's text: by its byte order mark, else UTF-8, else Latin-1 with a note."""
    raw = path.read_bytes()
    for mark, encoding in _BOMS:
        if raw.startswith(mark):
            try:
                return raw[len(mark) :].decode(encoding)
            except UnicodeDecodeError:
                raise ConfigError(f"{str(path)!r} starts as {encoding} and is not. Save it as UTF-8.") from None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        logger.warning("%s is not UTF-8; it was read as Latin-1", path)
        return raw.decode("latin-1")


@contextmanager
def _fields_of_any_length() -> Iterator[None]:
    """Lift the limit on the length of a CSV field, which is one for the whole process, for a while."""
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _read_csv(path: Path, text_column: str | None) -> pa.Table:
    """Read a header and records; a blank line is no record, since writers quote an only field that is empty."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    reader = csv.reader(io.StringIO(_text(path), newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    rows, line = [], 1
    with _fields_of_any_length():
        try:
            for fields in reader:
                if fields and not header:
                    header = fields
                elif fields:
                    if len(fields) != len(header):
                        raise ConfigError(
                            f"{str(path)!r} line {line}: {len(fields)} fields, and the header names {len(header)}."
                        )
                    rows.append(fields)
                line = reader.line_num + 1
        except csv.Error as error:
            raise ConfigError(
                f"{str(path)!r} line {line}: {error}. Quote a field that holds quotes, and double those."
            ) from None
    if not header:
        raise ConfigError(f"{str(path)!r} is empty: it has no header.")
    _check_names(path, header, first_may_be_blank=True)
    columns = zip(*rows, strict=True) if rows else ((),) * len(header)
    # pandas writes its row index as a first column without a name
    return pa.table(
        {name: pa.array(column, pa.string()) for name, column in zip(header, columns, strict=True) if name}
    )


def _check_names(path: Path, names: list[str], *, first_may_be_blank: bool = False) -> None:
    for position, name in enumerate(names):
        if not name and not (first_may_be_blank and position == 0 and len(names) > 1):
            raise ConfigError(f"{str(path)!r}: column {position + 1} has no name.")
        if len(name) > _LONGEST_NAME or not name.isprintable():
            # without a header the first record stands here: it is not shown
            raise ConfigError(
                f"{str(path)!r}: the name of column {position + 1} is longer than {_LONGEST_NAME} characters or not "
                "printable. Is there a header? Give the column a short name."
            )
        if name in names[:position]:
            raise ConfigError(f"{str(path)!r}: the name of column {position + 1} stands twice.")


def converted(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of text as numbers or booleans when that loses no character, else as it is."""
    values = column.to_pylist()
    given = [value for value in values if value is not None]
    for kind, convert in _CONVERSIONS:
        if given and all(convert(value) is not None for value in given):
            made = [None if value is None else convert(value) for value in values]
            return pa.chunked_array([pa.array(made, kind)])
    return column


def _whole(text: str) -> int | None:
    number = int(text) if re.fullmatch(r"0|-?[1-9][0-9]{0,18}", text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _decimal(text: str) -> float | None:
    if not re.fullmatch(r"-?[0-9]+\.[0-9]+(e[-+][0-9]+)?", text):
        return None
    return float(text) if repr(float(text)) == text else None


_CONVERSIONS: tuple[tuple[pa.DataType, Callable[[str], Any]], ...] = (
    (pa.int64(), _whole),
    (pa.float64(), _decimal),
    (pa.bool_(), {"true": True, "false": False}.get),
    (pa.bool_(), {"True": True, "False": False}.get),
)


def _read_lines(path: Path, text_column: str | None) -> pa.Table:
    """Read JSON objects, one a line; blank lines are no records."""
    rows = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line.strip():
            rows.append((f"line {number}", _json(line, f"{str(path)!r} line {number}")))
    return _from_objects(path, rows, text_column)


def _read_json(path: Path, text_column: str | None) -> pa.Table:
    """Read a JSON array of objects, or objects one a line."""
    text = _text(path)
    if not text.lstrip().startswith("["):
        return _read_lines(path, text_column)
    rows = [(f"record {number}", row) for number, row in enumerate(_json(text, repr(str(path))), 1)]
    return _from_objects(path, rows, text_column)


def _json(text: str, where: str) -> Any:
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: no JSON ({error.msg}, character {error.pos + 1}).") from None
    except (RecursionError, ValueError):
        raise ConfigError(f"{where}: no JSON that can be read.") from None
    # a half of a surrogate pair is no character and fits into no file
    return _mended(value) if re.search(r"\\u[dD][89a-fA-F]", text) else value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose keys occur once each: a second one would silently replace the first."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, dict):
        return {_mended(name): _mended(item) for name, item in value.items()}
    return [_mended(item) for item in value] if isinstance(value, list) else value


def _from_objects(path: Path, rows: list[tuple[str, Any]], text_column: str | None) -> pa.Table:
    """Return objects as columns in the order in which their keys are met; a missing key is null."""
    names: dict[str, None] = {}
    for place, row in rows:
        if not isinstance(row, dict):
            raise ConfigError(f'{str(path)!r} {place}: no JSON object; write {{"text": ...}}.')
        names.update(dict.fromkeys(row))
    if not rows:
        raise ConfigError(f"{str(path)!r} is empty: it has no records.")
    _check_names(path, list(names))
    columns = {}
    for name in names:
        values = [row.get(name) for _, row in rows]
        if name == text_column:
            values = [_as_text(value) for value in values]
        _check_kinds(path, name, values, [place for place, _ in rows])
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            raise ConfigError(
                f"{str(path)!r}: column {name!r} holds values of different types, or numbers beyond 64 bits."
            ) from None
    return pa.table(columns)


def _as_text(value: Any) -> Any:
    """Write a number or a boolean as JSON does; other values stay."""
    return json.dumps(value) if isinstance(value, (bool, int, float)) else value


def _check_kinds(path: Path, name: str, values: list[Any], places: list[str]) -> None:
    first = None
    for value, place in zip(values, places, strict=True):
        kind = None if value is None else _WORDS[type(value)]
        first = first or kind
        if kind not in (None, first):
            raise ConfigError(f"{str(path)!r} {place}: column {name!r} is {kind} here and {first} before.")


def _read_parquet(path: Path, text_column: str | None) -> pa.Table:
    """Read the columns, without the row index of pandas."""
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            table = file.read()
    except pa.ArrowException:
        raise ConfigError(f"{str(path)!r} is no Parquet file that can be read.") from None
    _check_names(path, table.column_names)
    table = table.drop_columns([name for name in table.column_names if _INDEX.fullmatch(name)])
    for position, name in enumerate(table.column_names):
        column = table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_string_view(column.type):
            column = column.cast(pa.large_string())
        try:
            column.validate(full=True)
        except pa.ArrowException:
            raise ConfigError(f"{str(path)!r}: column {name!r} holds text that is not UTF-8.") from None
        table = table.set_column(position, name, column)
    return table


def _read_txt(path: Path, text_column: str | None) -> pa.Table:
    """Read one record a line, blank ones too; the end of the last line starts no record."""
    lines = _text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    return pa.table({text_column or "text": pa.array([line.removesuffix("\r") for line in lines], pa.string())})


_READERS: dict[str, Callable[[Path, str | None], pa.Table]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".jsonl": _read_lines,
    ".json": _read_json,
    ".parquet": _read_parquet,
    ".txt": _read_txt,
}
SUFFIXES = tuple(_READERS)


def check_output(path: Path) -> None:
    """Refuse a file that could not be written, before anything is spent.

    Raises:
        ConfigError: another suffix than .csv, .jsonl or .parquet, a file that exists, or a folder that is read-only.
    """
    if path.suffix.lower() not in _WRITERS:
        raise ConfigError(f"output {str(path)!r} is of no known format; known are {', '.join(_WRITERS)}.")
    folder = path.absolute().parent
    if path.exists():
        raise ConfigError(f"output {str(path)!r} exists and is not overwritten. Move it away, or pass another file.")
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"output {str(path)!r} cannot be written there. Pass a file in a folder that is writable.")


def write_rows(dataset: Any, path: Path) -> None:
    """Write rows to a file, whole or not at all. CSV and JSON Lines get the names of a ClassLabel.

    Conversations, and other lists and structs, are JSON in a field of a CSV file.

    Args:
        dataset (`Dataset`): released rows. Public.
        path (`Path`): a file whose suffix is .csv, .jsonl or .parquet.
    """
    partial = path.with_name(f".{path.name}.partial")
    _WRITERS[path.suffix.lower()](dataset.with_format(None), partial)
    os.replace(partial, path)


def _named_rows(dataset: Any) -> Iterator[dict[str, Any]]:
    labels = {name: feature.names for name, feature in dataset.features.items() if hasattr(feature, "names")}
    for row in dataset:
        for name, names in labels.items():
            if row[name] is not None and 0 <= row[name] < len(names):
                row[name] = names[row[name]]
        yield row


def _write_csv(dataset: Any, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, dataset.column_names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _field(value) for name, value in row.items()} for row in _named_rows(dataset))


def _field(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (list, dict)) else value


def _write_lines(dataset: Any, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as handle:
        for row in _named_rows(dataset):
            handle.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


def _write_parquet(dataset: Any, path: Path) -> None:
    pyarrow.parquet.write_table(dataset.data.table, path)


_WRITERS: dict[str, Callable[[Any, Path], None]] = {
    ".csv": _write_csv,
    ".jsonl": _write_lines,
    ".parquet": _write_parquet,
}
