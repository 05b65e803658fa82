"""Files of word vectors and of word frequencies: which file of a folder is meant, and how each format is read.

The one rule: a file is read as a whole and as one thing, or it is refused with its name and the line, word or row. No
word of it stands in a message, because a path may lead to a private file by mistake. Formats: GloVe text (Pennington
et al. 2014), word2vec text and binary (Mikolov et al. 2013), these texts packed by gzip, and a NumPy matrix beside a
list of words. A text without a first line of count and width that ends after a whole line, or within its last number,
cannot be told from a whole one.
"""

import gzip
import mmap
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from hf_dpsynth.errors import ConfigError

SUFFIXES = (".txt", ".vec", ".bin", ".npy", ".parquet", ".gz", ".zip")
HUB_FILES = ("*.txt", "*.vec", "*.bin", "*.npy", "*.parquet", "*.gz")
_WHAT_COUNTS = (
    "What counts, directly in the folder: a .npy matrix (its words in a .parquet or .txt list beside it); a .txt or "
    ".vec text, also as .gz, whose first line is a word and its numbers or a count and a width; a .bin of word2vec"
)
_NUMBER = rb"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_IS_NUMBER = re.compile(_NUMBER)
_COUNTED = re.compile(r"(.*\S)[ \t]+([0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)")
_BLOCK_ROWS = 4096
_Payload = TypeVar("_Payload")


@dataclass(frozen=True)
class MappedFile:
    """A `.npy` file that vectors are mapped from, and what tells whether it is still the same. Public."""

    path: str
    size: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> "MappedFile":
        """Note a file as it is now."""
        stat = path.stat()
        return cls(os.path.abspath(path), stat.st_size, stat.st_mtime_ns)

    def is_unchanged(self) -> bool:
        """Return whether size and time of the last change are as they were."""
        try:
            return MappedFile.of(Path(self.path)) == self
        except OSError:
            return False

    def rows(self, count: int) -> np.ndarray:
        """Map the first rows, without reading them.

        Raises:
            ConfigError: the file is gone or was changed.
        """
        if not self.is_unchanged():
            raise ConfigError(f"{Path(self.path).name} was changed or removed since it was loaded. Load it again.")
        return np.asarray(np.lib.format.open_memmap(self.path, mode="r"))[:count]


@dataclass(frozen=True)
class WordRows:
    """Words in order of frequency and their rows; `mapped` where the rows lie in a file, not in memory. Public."""

    words: tuple[str, ...]
    rows: np.ndarray
    mapped: MappedFile | None = None


def read_vectors(path: Path, max_words: int, ranks: Mapping[str, int]) -> WordRows:
    """Read the most frequent words of a file.

    Args:
        path (`Path`): a file, by its suffix: `.npy`, `.bin`, else text. Public.
        max_words (`int`): how many distinct lower-case words to keep.
        ranks (`Mapping[str, int]`): ranks of `read_ranks`; without any, the file's own order counts. Public.
    Raises:
        ConfigError: the file is empty, cut short or malformed, has fewer than 2 words, or none that `ranks` has.
    """
    if path.suffix == ".npy":
        found = _read_matrix(path, max_words, ranks)
    else:
        entries = _binary_entries(path) if path.suffix == ".bin" else _text_entries(path)
        chosen = _chosen(entries, path, max_words, ranks)
        found = WordRows(tuple(word for word, _ in chosen), np.stack([row for _, row in chosen]))
    if ranks and found.words[0] not in ranks:
        raise ConfigError(
            f"the frequencies name none of the words of {path.name}. Pass a list of the same language, one word or "
            "'word count' a line."
        )
    return found


def vector_file(folder: Path, name: str) -> Path:
    """Return the only file of vectors in a folder.

    Args:
        folder (`Path`): its own files count, not those of folders in it. A snapshot without files is no folder yet.
        name (`str`): what to call it in a message.
    Raises:
        ConfigError: there is none, or more than one.
    """
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [file for file in files if file.is_file() and _is_candidate(file)]
    if len(found) != 1:
        names = f" ({', '.join(file.name for file in found[:5])})" if found else ""
        raise ConfigError(
            f"{name} holds {len(found)} files of vectors{names}; it must be one. {_WHAT_COUNTS}. Pass the path of one "
            "file."
        )
    return found[0]


def read_ranks(path: Path) -> dict[str, int]:
    """Read a public list of words: 'word count' a line, or one word a line, most frequent first.

    The first line decides which of the two it is. Counts of words that are equal in lower case are added up; of a
    list without counts the first such line counts. Equal counts keep the order of the list.

    Returns:
        `dict[str, int]`: the rank of each lower-case word, from 0. Public.
    Raises:
        ConfigError: no such file, not UTF-8, no word in it, or a line without a count among lines with counts.
    """
    counts: dict[str, float] = {}
    counted = False
    for number, raw in _lines(path):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise _refusal(path, f"line {number}", "not UTF-8") from error
        match = _COUNTED.fullmatch(line)
        if number == 1:
            counted = match is not None
        if not line:
            continue
        if not counted:
            counts.setdefault(line.lower(), 0.0)
        elif match is None:
            raise _refusal(path, f"line {number}", "no 'word count', which line 1 is")
        else:
            word = match[1].lower()
            counts[word] = counts.get(word, 0.0) + float(match[2])
    if not counts:
        raise ConfigError(f"{path.name} holds no word. Pass a list of one word or 'word count' a line.")
    return {word: rank for rank, word in enumerate(sorted(counts, key=lambda word: -counts[word]))}


def first_bad_row(rows: np.ndarray) -> int | None:
    """Return the first row that holds a NaN or infinite number, or None; reads block by block."""
    for start in range(0, len(rows), _BLOCK_ROWS):
        bad = np.flatnonzero(~np.isfinite(rows[start : start + _BLOCK_ROWS]).all(axis=1))
        if len(bad):
            return start + int(bad[0])
    return None


def _refusal(path: Path, place: str, what: str) -> ConfigError:
    return ConfigError(f"{path.name}, {place}: {what}. Repair the file or fetch it again.")


def _chosen(
    entries: Iterable[tuple[str, _Payload]], path: Path, most: int, ranks: Mapping[str, int]
) -> list[tuple[str, _Payload]]:
    """Keep the first `most` distinct lower-case words, in the order of their ranks; words without one come last."""
    kept: list[tuple[int, str, _Payload]] = []
    seen: set[str] = set()
    for number, (word, payload) in enumerate(entries, 1):
        if not word:
            raise _refusal(path, f"word {number}", "it is empty")
        lower = word.lower()
        if lower in seen:
            continue
        seen.add(lower)
        kept.append((ranks.get(lower, len(ranks)), lower, payload))
        if len(kept) == most and not ranks:
            break
        if len(kept) >= 2 * most:
            kept = sorted(kept, key=lambda entry: entry[0])[:most]
    if len(kept) < 2:
        raise ConfigError(f"{path.name} has {len(kept)} words; a vocabulary needs at least 2. Pass a whole file.")
    return [(word, payload) for _, word, payload in sorted(kept, key=lambda entry: entry[0])[:most]]


def _is_candidate(path: Path) -> bool:
    """Return whether a file in a folder is one of vectors, by its suffix and its first line."""
    if path.suffix == ".npy":
        return True
    is_list = path.suffix == ".txt" and path.with_suffix(".npy").exists()
    if is_list or path.suffix not in (".bin", ".gz", ".txt", ".vec"):
        return False
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            parts = file.readline(1 << 20).split()
    except (OSError, EOFError, zlib.error):
        return path.suffix == ".gz"
    if path.suffix == ".bin":
        return len(parts) == 2 and all(part.isdigit() for part in parts)
    return len(parts) > 1 and all(_IS_NUMBER.fullmatch(part) for part in parts[1:])


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines of a text file or of one that gzip has packed."""
    inner = Path(path.stem).suffix if path.suffix == ".gz" else ""
    if path.suffix == ".zip" or inner in (".bin", ".npy", ".parquet", ".tar"):
        raise ConfigError(f"{path.name} is packed; only texts are read as .gz. Unpack it and pass one file's path.")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from enumerate(file, 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ConfigError(f"{path.name} is no whole .gz file. Fetch it again.") from error
    except OSError as error:
        raise ConfigError(f"{path.name} cannot be read: {error.strerror}. Pass the path of a public file.") from error


def _read_matrix(path: Path, max_words: int, ranks: Mapping[str, int]) -> WordRows:
    """Map a matrix and pair its rows with the words of the list beside it."""
    mapped = MappedFile.of(path)
    try:
        matrix = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError, OSError) as error:
        raise ConfigError(f"{path.name} is no complete .npy matrix. Fetch it again.") from error
    if matrix.ndim != 2 or matrix.dtype.kind != "f" or not matrix.shape[1]:
        raise ConfigError(f"{path.name} has shape {matrix.shape} and type {matrix.dtype}; it must be a float matrix")
    listed = _word_list(path)
    words = _listed_words(listed)
    if len(words) != len(matrix):
        raise ConfigError(
            f"{path.name} has {len(matrix)} rows and {listed.name} {len(words)} words; one is cut short. Fetch both "
            "again."
        )
    chosen = _chosen(zip(words, range(len(words)), strict=True), listed, max_words, ranks)
    places = np.array([place for _, place in chosen])
    is_head = bool((places == np.arange(len(places))).all())
    rows = np.asarray(matrix)[: len(places)] if is_head else np.asarray(matrix)[places]
    stays = is_head and rows.dtype == np.float32 and rows.flags.c_contiguous
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(rows, dtype=np.float32)
    bad = first_bad_row(rows)
    if bad is not None:
        raise _refusal(path, f"row {places[bad] + 1}", "a NaN or infinite number")
    return WordRows(tuple(word for word, _ in chosen), rows, mapped if stays else None)


def _word_list(path: Path) -> Path:
    """Return the list of words beside a matrix: of the same name, or the only Parquet file of the folder."""
    for suffix in (".parquet", ".txt"):
        if path.with_suffix(suffix).is_file():
            return path.with_suffix(suffix)
    lists = sorted(path.parent.glob("*.parquet"))
    if len(lists) != 1:
        raise ConfigError(
            f"{path.name} has no list of words: no {path.stem}.parquet or {path.stem}.txt, and {len(lists)} other "
            ".parquet files beside it. Put one word a line, row by row, into the .txt."
        )
    return lists[0]


def _listed_words(path: Path) -> list[str]:
    """Read one word a line, or the only string column of a Parquet file."""
    if path.suffix == ".txt":
        try:
            text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise _refusal(path, f"line {line}", "not UTF-8") from error
        return text.removesuffix("\n").split("\n") if text else []
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise ConfigError(f"{path.name} is no complete Parquet file. Fetch it again.") from error
    columns = [c for c in table.columns if pa.types.is_string(c.type) or pa.types.is_large_string(c.type)]
    if len(columns) != 1 or columns[0].null_count:
        raise ConfigError(f"{path.name} has {len(columns)} string columns; a list of words is one, without nulls")
    words: list[str] = columns[0].to_pylist()
    return words


def _text_entries(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Read GloVe or word2vec text: a word and its numbers a line; the latter has a first line of count and width."""
    width = promised = None
    number = done = 0
    is_vec = ".vec" in path.suffixes[-2:]
    for number, raw in _lines(path):
        parts = raw.rstrip().split(b" ")
        if number == 1 and len(parts) == 2 and (is_vec or parts[1] not in (b"0", b"1")):
            if all(part.isdigit() for part in parts):
                promised, width = int(parts[0]), int(parts[1])
                continue
        if width is None:
            width = len(parts) - 1
        done += 1
        yield _text_entry(path, number, parts, width)
    if not number:
        raise ConfigError(f"{path.name} is empty. Fetch it again.")
    if promised is not None and done != promised:
        raise ConfigError(f"{path.name} promises {promised} words and ends after {done}. Fetch it again.")


def _text_entry(path: Path, number: int, parts: list[bytes], width: int) -> tuple[str, np.ndarray]:
    """Read one line; a word may hold spaces, as some of GloVe 840B do, but none before a number."""
    place = f"line {number}"
    if len(parts) <= width or width < 1:
        raise _refusal(path, place, f"{len(parts) - 1} numbers, not {width or 'a word and its numbers'}")
    if len(parts) > width + 1 and _IS_NUMBER.fullmatch(parts[-width - 1]):
        raise _refusal(path, place, f"more than {width} numbers")
    try:
        word = b" ".join(parts[:-width]).decode("utf-8")
        with np.errstate(over="ignore"):
            vector = np.array(parts[-width:], dtype=np.float32)
    except (ValueError, OverflowError) as error:
        raise _refusal(path, place, f"no UTF-8 word with {width} numbers") from error
    if not np.isfinite(vector).all():
        raise _refusal(path, place, "a NaN or infinite number")
    return word, vector


def _binary_entries(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Read word2vec binary: a line of count and width, then words, each with a space and float32 numbers."""
    if not path.stat().st_size:
        raise ConfigError(f"{path.name} is empty. Fetch it again.")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        place = view.find(b"\n") + 1
        header = view[:place].split()
        if len(header) != 2 or not all(part.isdigit() for part in header) or not int(header[1]):
            raise ConfigError(f"{path.name} does not begin with the count and width of a word2vec file")
        count, width = int(header[0]), int(header[1])
        for number in range(1, count + 1):
            space = view.find(b" ", place)
            stop = space + 1 + 4 * width
            if space < 0 or stop > len(view):
                raise _refusal(path, f"word {number}", f"the file promises {count} words and ends in this one")
            vector = np.frombuffer(view[space + 1 : stop], dtype="<f4")
            if not np.isfinite(vector).all():
                raise _refusal(path, f"word {number}", "a NaN or infinite number")
            try:
                word = view[place:space].decode("utf-8").lstrip("\n")
            except UnicodeDecodeError as error:
                raise _refusal(path, f"word {number}", "not UTF-8") from error
            place = stop
            yield word, vector
        if len(view) - place > 1:
            raise ConfigError(f"{path.name} promises {count} words of width {width} and goes on. Fetch it again.")
