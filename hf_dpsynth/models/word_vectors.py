"""Word vectors: a public vocabulary W and a point for each of its words.

The one rule: vocabulary, points and the stand-ins for what W lacks come from a public file alone, never from private
text. Files list words by frequency, so the first `max_words` are the most frequent ones. Formats: GloVe text
(Pennington et al. 2014), word2vec text and binary (Mikolov et al. 2013), and a NumPy matrix beside a list of words.
"""

import hashlib
import mmap
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hf_dpsynth.errors import ConfigError

NUMBER = re.compile(r"[0-9]+(?:[.,:/-][0-9]+)*")


@dataclass(frozen=True, eq=False)
class WordVectors:
    """A public vocabulary with its embedding.

    Args:
        words (`tuple[str, ...]`): lower-case, distinct, most frequent first. Public.
        vectors (`np.ndarray`): shape (V, d), float32. Public.
        id (`str`): what a plan and a card call these vectors.
    """

    words: tuple[str, ...] = field(repr=False)
    vectors: np.ndarray = field(repr=False)
    id: str

    def __post_init__(self) -> None:
        vectors = np.ascontiguousarray(self.vectors, dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != len(self.words) or not vectors.shape[1]:
            raise ConfigError(f"{self.id}: {len(self.words)} words need as many vectors; the shape is {vectors.shape}")
        if len(self.words) < 2:
            raise ConfigError(f"{self.id} has {len(self.words)} words; a vocabulary needs at least 2")
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(bad):
            raise ConfigError(f"{self.id}: row {bad[0] + 1} holds a NaN or infinite number")
        object.__setattr__(self, "words", tuple(self.words))
        object.__setattr__(self, "vectors", vectors)
        if len(self.known) != len(self.words):
            raise ConfigError(f"{self.id} has a word more than once; each word needs one vector")

    def __reduce__(self) -> tuple[Any, ...]:
        return WordVectors, (self.words, self.vectors, self.id)

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def known(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    @cached_property
    def unk(self) -> np.ndarray:
        """The point of words outside W: the mean of W's vectors, shape (d,), float32. Public."""
        return _mean(self.vectors)

    @cached_property
    def number(self) -> np.ndarray:
        """The point of numbers outside W: the mean of W's numbers, else `unk`; shape (d,), float32. Public."""
        rows = [row for row, word in enumerate(self.words) if NUMBER.fullmatch(word)]
        return _mean(self.vectors[rows]) if rows else self.unk

    def index(self, word: str) -> int | None:
        """Return the row of a lower-case word, or None when W lacks it."""
        return self.known.get(word)

    def most_frequent(self, count: int) -> "WordVectors":
        """Return the first `count` words; the same object when there are no more than that."""
        if count >= len(self.words):
            return self
        return WordVectors(self.words[:count], self.vectors[:count], f"{self.id}[:{count}]")


def _mean(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(vectors.mean(axis=0, dtype=np.float64), dtype=np.float32)


def load_vectors(source: "str | os.PathLike[str] | WordVectors", *, max_words: int = 50_000) -> WordVectors:
    """Load the most frequent words of a public embedding.

    Args:
        source (`str`, `os.PathLike` or `WordVectors`): a short name of the catalogue (`"glove-50d"`); a GloVe text
            file; a word2vec `.vec` or `.bin` file; a `.npy` matrix with a `.parquet` or `.txt` list of words of the
            same name beside it, or a folder that holds one matrix and one `.parquet` list; or the object itself.
        max_words (`int`, defaults to 50000): size of the vocabulary; the first words are kept. Words that are equal in
            lower case count once, by the first of them.
    Returns:
        `WordVectors`: public.
    Raises:
        ConfigError: no such file or name, or the file is truncated or malformed; the message has the line's number.
        AssetError: a short name could not be fetched.
    """
    if not max_words >= 2:
        raise ConfigError(f"max_words is {max_words}; a vocabulary needs at least 2")
    if isinstance(source, WordVectors):
        return source.most_frequent(max_words)
    path = Path(source).expanduser()
    if path.exists():
        return _from_path(path, max_words, None)
    if isinstance(source, str) and re.fullmatch(r"[\w-]+(\.\w+-[\w.-]+)?", source):
        from hf_dpsynth.models import pull

        return _from_path(Path(pull(source)), max_words, source)
    raise ConfigError(
        f"vectors={path.name!r} is no file, folder or short name. Use 'glove-50d' or a path that exists."
    )


def _from_path(path: Path, max_words: int, name: str | None) -> WordVectors:
    """Read a file or folder; without a name the id is the file's name and a digest of the content."""
    if path.is_dir():
        path = _only(path, "*.npy", "a matrix")
    if path.suffix == ".npy":
        entries = _matrix_entries(path)
    elif path.suffix == ".bin":
        entries = _binary_entries(path)
    else:
        entries = _text_entries(path)
    words, rows = [], []
    seen: set[str] = set()
    for word, vector in entries:
        lower = word.lower()
        if lower not in seen:
            seen.add(lower)
            words.append(lower)
            rows.append(vector)
            if len(words) == max_words:
                break
    if len(words) < 2:
        raise ConfigError(f"{path.name} has {len(words)} words; a vocabulary needs at least 2")
    vectors = np.stack(rows).astype(np.float32, copy=False)
    if name is None:
        digest = hashlib.blake2b("\n".join(words).encode("utf-8", "surrogatepass"), digest_size=8)
        digest.update(vectors.tobytes())
        name = f"{path.name}-{digest.hexdigest()}"
    return WordVectors(tuple(words), vectors, name)


def _only(folder: Path, pattern: str, what: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise ConfigError(f"folder {folder.name!r} holds {len(found)} files {pattern}; {what} is one. Name the file.")
    return found[0]


def _matrix_entries(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Pair the rows of a memory-mapped matrix with the words of the list beside it."""
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ConfigError(f"{path.name} is no complete .npy matrix") from error
    if matrix.ndim != 2 or matrix.dtype.kind != "f":
        raise ConfigError(f"{path.name} has shape {matrix.shape} and type {matrix.dtype}; it must be a float matrix")
    beside = [path.with_suffix(suffix) for suffix in (".parquet", ".txt")]
    listed = next((file for file in beside if file.is_file()), None) or _only(path.parent, "*.parquet", "a word list")
    words = _listed_words(listed)
    if len(words) != len(matrix):
        raise ConfigError(f"{path.name} has {len(matrix)} rows and {listed.name} {len(words)} words; one is cut short")
    return zip(words, matrix, strict=True)


def _listed_words(path: Path) -> list[str]:
    """Read one word a line, or the only string column of a Parquet file."""
    if path.suffix == ".txt":
        try:
            return path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path.name} is not UTF-8 text") from error
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise ConfigError(f"{path.name} is no complete Parquet file") from error
    columns = [column for column in table.columns if pa.types.is_string(column.type)]
    if len(columns) != 1 or columns[0].null_count:
        raise ConfigError(f"{path.name} has {len(columns)} string columns; a list of words is one, without nulls")
    words: list[str] = columns[0].to_pylist()
    return words


def _text_entries(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Read GloVe or word2vec text: a word and its numbers a line; the latter has a first line of count and width."""
    width = promised = None
    number = done = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            parts = raw.rstrip().split(b" ")
            if number == 1 and len(parts) == 2 and (path.suffix == ".vec" or parts[1] not in (b"0", b"1")):
                if all(part.isdigit() for part in parts):
                    promised, width = int(parts[0]), int(parts[1])
                    continue
            if width is None:
                width = len(parts) - 1
            if len(parts) <= width or width < 1:
                raise ConfigError(f"{path.name}, line {number}: {len(parts) - 1} numbers, not {width}")
            try:
                word = b" ".join(parts[:-width]).decode("utf-8")
                vector = np.array(parts[-width:], dtype=np.float32)
            except (ValueError, OverflowError) as error:
                raise ConfigError(f"{path.name}, line {number}: no UTF-8 word with {width} numbers") from error
            if not np.isfinite(vector).all():
                raise ConfigError(f"{path.name}, line {number}: a NaN or infinite number")
            done += 1
            yield word, vector
    if promised is not None and done < promised:
        raise ConfigError(f"{path.name} promises {promised} words and ends after {done}: it is cut short")


def _binary_entries(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Read word2vec binary: a line of count and width, then words, each with a space and float32 numbers."""
    if not path.stat().st_size:
        raise ConfigError(f"{path.name} is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        header = view[: view.find(b"\n") + 1].split()
        if len(header) != 2 or not all(part.isdigit() for part in header) or not int(header[1]):
            raise ConfigError(f"{path.name} does not begin with the count and width of a word2vec file")
        count, width = int(header[0]), int(header[1])
        place = view.find(b"\n") + 1
        for number in range(1, count + 1):
            space = view.find(b" ", place)
            stop = space + 1 + 4 * width
            if space < 0 or stop > len(view):
                raise ConfigError(f"{path.name} promises {count} words and ends in word {number}: it is cut short")
            vector = np.frombuffer(view[space + 1 : stop], dtype="<f4")
            if not np.isfinite(vector).all():
                raise ConfigError(f"{path.name}, word {number}: a NaN or infinite number")
            try:
                word = view[place:space].decode("utf-8").lstrip("\n")
            except UnicodeDecodeError as error:
                raise ConfigError(f"{path.name}, word {number}: not UTF-8") from error
            place = stop
            yield word, vector
