"""Both sides of a search: private texts in memory, a public corpus as a stream, and a corpus without what overlaps."""

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from hf_dpsynth import columns, inputs, tables
from hf_dpsynth.contamination.scanning import Ranges, without
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.records import PrivateTexts

_ROWS = 256
_CHARACTERS = 1 << 20

Edit = tuple[int, Ranges | None]  # the characters that a row had, and which to cut; None drops the row


def private_texts(source: Any, column: str | None) -> PrivateTexts:
    """Return the texts of a private side: those of all splits, of a list, or of a file. Sensitive.

    Raises:
        ConfigError: it is of another type, or the column of text is not clear.
    """
    from datasets import Dataset, DatasetDict

    loaded = _loaded(source, column)
    if isinstance(loaded, DatasetDict):
        return PrivateTexts(text for split in loaded.values() for text in private_texts(split, column))
    if isinstance(loaded, Dataset):
        return PrivateTexts(columns.read_texts(loaded, columns.text_column(loaded.features, column)))
    return PrivateTexts(Corpus(loaded, column, side="private").texts())


def _loaded(source: Any, column: str | None) -> Any:
    """Return a file, folder or name as a data set in memory, anything else as it is."""
    if isinstance(source, (str, os.PathLike)):
        inputs.check_headed(source, column)
        return inputs.load_input(source, text_column=column)
    return source


class Corpus:
    """A public corpus, read batch by batch.

    Args:
        source (`Dataset`, `IterableDataset`, list, iterable or path): its rows or texts.
        column (`str`, *optional*): the column of text.
        side (`str`, defaults to `"public"`): how messages call it.
    Raises:
        ConfigError: it is of another type, has several splits, or the column of text is not clear.
    """

    def __init__(self, source: Any, column: str | None, *, side: str = "public") -> None:
        from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict

        self._side, loaded = side, _loaded(source, column)
        if isinstance(loaded, (DatasetDict, IterableDatasetDict)):
            if len(loaded) != 1:
                raise ConfigError(f"the {side} texts have the splits {', '.join(loaded)}; pass one of them.")
            loaded = next(iter(loaded.values()))
        if not isinstance(loaded, Iterable) or isinstance(loaded, (bytes, Mapping)):
            raise ConfigError(f"the {side} texts are a {type(source).__name__}; pass a data set, texts or a path.")
        features = getattr(loaded, "features", None)
        self.column = column or "text" if features is None else columns.text_column(features, column)
        self._rows: Any = loaded
        self._is_dataset = isinstance(loaded, Dataset)
        self._is_stream = isinstance(loaded, IterableDataset)

    @property
    def is_numbers(self) -> bool:
        """Whether its column is declared to hold numbers, of which no part can be cut."""
        declared = (getattr(self._rows, "features", None) or {}).get(self.column)
        return declared is not None and "string" not in str(getattr(declared, "dtype", "string"))

    @property
    def is_read_once(self) -> bool:
        """Whether it is an iterator, which gives its texts only once."""
        return isinstance(self._rows, Iterator)

    def texts(self) -> Iterator[str | None]:
        """Yield its texts; null stays null, numbers are written out.

        Raises:
            ConfigError: a row has no such column, or holds neither a text, a number nor null.
        """
        if self._is_dataset:
            part = self._rows.select_columns([self.column]).with_format("arrow")
            for table in part.iter(batch_size=_ROWS):
                yield from map(self._text, table[self.column].to_pylist())
        else:
            for row in self._rows:
                yield self._text(self._cell(row) if isinstance(row, Mapping) else row)

    def batches(self) -> Iterator[list[str | None]]:
        """Yield its texts in batches of about a million characters; a longer text is a batch of its own."""
        batch: list[str | None] = []
        size = 0
        for text in self.texts():
            length = 1 + len(text or "")
            if batch and size + length > _CHARACTERS:
                yield batch
                batch, size = [], 0
            batch.append(text)
            size += length
        if batch:
            yield batch

    def edited(self, edits: Mapping[int, Edit]) -> Any:
        """Return the corpus without what the edits take away, under a fingerprint that follows from no content.

        Args:
            edits (`Mapping[int, Edit]`): what to do with the rows of these numbers. Sensitive.
        Returns:
            `Dataset` or `IterableDataset`: a stream stays one and is edited when it is read.
        """
        if self._is_stream:
            return self._edited_stream(edits)
        if self._is_dataset:
            table = self._rows.with_format("arrow")[:]
            table = table.replace_schema_metadata(self._rows.features.arrow_schema.metadata)
        else:
            table = pa.table({self.column: _column(list(self.texts()))})
        return tables.fresh(_edited_table(table, self.column, edits))

    def _edited_stream(self, edits: Mapping[int, Edit]) -> Any:
        from datasets import DatasetInfo, IterableDataset
        from datasets.iterable_dataset import ExamplesIterable

        rows, column = self._rows, self.column

        def made() -> Iterator[tuple[str, dict[str, Any]]]:
            for number, row in enumerate(rows):
                if number not in edits:
                    yield str(number), row
                    continue
                length, ranges = edits[number]
                text = self._text(self._cell(row)) or ""
                if len(text) != length:
                    raise ConfigError(f"row {number} of the public stream is another than before; read it in order.")
                if ranges is not None:
                    yield str(number), {**row, column: without(text, ranges)}

        found = IterableDataset(ExamplesIterable(made, {}), info=DatasetInfo(features=rows.features))
        found._fingerprint = secrets.token_hex(8)
        return found

    def _cell(self, row: Mapping[str, Any]) -> Any:
        if self.column not in row:
            raise ConfigError(
                f"a row of the {self._side} texts has no column {self.column!r}. Name the column of text."
            )
        return row[self.column]

    def _text(self, value: Any) -> str | None:
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
        raise ConfigError(f"the {self._side} texts hold a {type(value).__name__}; each is a text, a number or null.")


def _column(texts: list[str | None]) -> pa.Array:
    try:
        return pa.array(texts, pa.large_string())
    except UnicodeEncodeError:
        raise ConfigError(
            "a public text holds half of a surrogate pair, which no data set can hold. Encode it with "
            "errors='replace' and decode it again."
        ) from None


def _edited_table(table: pa.Table, column: str, edits: Mapping[int, Edit]) -> pa.Table:
    """Return a table without dropped rows, with what is left of the texts that are cut."""
    position, chunks, first = table.column_names.index(column), [], 0
    for chunk in table[column].chunks:
        cut = [row for row in range(first, first + len(chunk)) if edits.get(row, (0, None))[1] is not None]
        if cut:
            values = chunk.to_pylist()
            for row in cut:
                values[row - first] = without(values[row - first], edits[row][1] or [])
            chunk = pa.array(values, chunk.type)
        chunks.append(chunk)
        first += len(chunk)
    kind = table.schema.field(column)
    table = table.set_column(position, kind, pa.chunked_array(chunks, kind.type))
    dropped = {row for row, (_, ranges) in edits.items() if ranges is None}
    return table.filter(pa.array([row not in dropped for row in range(len(table))], pa.bool_())) if dropped else table
