"""Word vectors: a public vocabulary W and a point for each of its words.

The one rule: vocabulary, points and the stand-ins for what W lacks come from a public file alone, never from private
text. Files list words by frequency, so the first `max_words` are the most frequent ones.
"""

import hashlib
import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.models import vector_geometry
from hf_dpsynth.models.vector_files import (
    HUB_FILES,
    SUFFIXES,
    MappedFile,
    first_bad_row,
    read_ranks,
    read_vectors,
    vector_file,
)
from hf_dpsynth.models.vector_geometry import Scales

_REDUCED = re.compile(r"(.+)\|pca([0-9]{1,6})")
NUMBER = re.compile(r"[0-9]+(?:[.,:/-][0-9]+)*")
MAX_WORDS = 50_000


@dataclass(frozen=True, eq=False)
class WordVectors:
    """A public vocabulary with its embedding.

    Args:
        words (`tuple[str, ...]`): lower-case, distinct, most frequent first. Public.
        vectors (`np.ndarray`): shape (V, d), float32. Public.
        id (`str`): what a plan and a card call these vectors.
        mapped (`MappedFile`, *optional*): the file whose first rows `vectors` are, where `load_vectors` has mapped it
            instead of reading it. The file must stay as it is meanwhile.
        is_named (`bool`): whether `load_vectors` made them, so that the id stands for their content.
    """

    words: tuple[str, ...] = field(repr=False)
    vectors: np.ndarray = field(repr=False)
    id: str
    mapped: MappedFile | None = field(default=None, repr=False, kw_only=True)
    is_named: bool = field(default=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        with np.errstate(over="ignore"):
            vectors = np.ascontiguousarray(self.vectors, dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != len(self.words) or not vectors.shape[1]:
            raise ConfigError(f"{self.id}: {len(self.words)} words need as many vectors; the shape is {vectors.shape}")
        if len(self.words) < 2:
            raise ConfigError(f"{self.id} has {len(self.words)} words; a vocabulary needs at least 2")
        bad = first_bad_row(vectors)
        if bad is not None:
            raise ConfigError(f"{self.id}: row {bad + 1} holds a NaN or infinite number (as float32)")
        object.__setattr__(self, "words", tuple(self.words))
        object.__setattr__(self, "vectors", vectors)
        if len(self.known) != len(self.words):
            raise ConfigError(f"{self.id} has a word more than once; each word needs one vector")
        place = next((place for place, word in enumerate(self.words) if word != word.lower()), None)
        if place is not None:
            raise ConfigError(f"{self.id}: word {place + 1} is not in lower case, as all words that are read are")

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker maps the file too. One that was changed or removed since is sent as this process sees it.
        if self.mapped is not None and self.mapped.is_unchanged():
            return _again, (self.words, None, self.id, self.mapped, self.is_named)
        return _again, (self.words, self.vectors, self.id, None, self.is_named)

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

    @cached_property
    def public_id(self) -> str:
        """The id that a plan holds: that of a file or a name, else with a digest of the content. Public."""
        return self.id if self.is_named else f"{self.id}@{_digest(self.words, self.vectors)}"

    def index(self, word: str) -> int | None:
        """Return the row of a lower-case word, or None when W lacks it."""
        return self.known.get(word)

    def most_frequent(self, count: int) -> "WordVectors":
        """Return the first `count` words; the same object when there are no more than that."""
        if count >= len(self.words):
            return self
        return WordVectors(
            self.words[:count],
            self.vectors[:count],
            f"{self.id}[:{count}]",
            mapped=self.mapped,
            is_named=self.is_named,
        )

    def reduced(self, dimensions: int) -> "WordVectors":
        """Return these words with their vectors projected on the leading principal axes.

        The search for the nearest word takes less work and the noise is shorter, and what a mechanism promises at
        epsilon times the distance of the reduced vectors holds at epsilon times the distance of the full ones,
        because no two points move apart: the axes are orthonormal and a 4096th is taken off every distance, which
        outweighs rounding for points at least a 256th of the longest vector apart. Nearer points may move apart by
        less than 2^-20 of that vector.

        Args:
            dimensions (`int`): how many axes, at most the width. They are fitted on these vectors, which are public.
        Returns:
            `WordVectors`: in memory; the id has the suffix "|pca" and the number. Public.
        Raises:
            ConfigError: `dimensions` is below 1 or above the width.
        Examples:
            >>> WordVectors(("a", "b"), np.array([[0.0, 0.0], [3.0, 4.0]]), "two").reduced(1).id
            'two|pca1'
        """
        width = self.vectors.shape[1]
        if isinstance(dimensions, bool) or not isinstance(dimensions, int) or not 1 <= dimensions <= width:
            raise ConfigError(f"dimensions is {dimensions!r}; {self.id} can be reduced to 1 to {width} dimensions")
        projected = vector_geometry.project(self.vectors, dimensions)
        return WordVectors(self.words, projected, f"{self.id}|pca{dimensions}", is_named=self.is_named)

    def scales(self) -> Scales:
        """Return the median distances of a word to its nearest other word and of two words; measured once. Public.

        Epsilon times these says how large a bound is: at epsilon 10 and a distance of 5.1 it is e^51, which is
        nominally vacuous.
        """
        return self._scales

    @cached_property
    def _scales(self) -> Scales:
        return vector_geometry.scales(self.vectors)


def _mean(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(vectors.mean(axis=0, dtype=np.float64), dtype=np.float32)


def _again(
    words: tuple[str, ...], rows: np.ndarray | None, name: str, mapped: MappedFile | None, is_named: bool
) -> WordVectors:
    held = mapped.rows(len(words)) if mapped is not None else rows
    return WordVectors(words, held, name, mapped=mapped, is_named=is_named)  # type: ignore[arg-type]


def load_vectors(
    source: "str | os.PathLike[str] | WordVectors",
    *,
    max_words: int = MAX_WORDS,
    frequencies: "str | os.PathLike[str] | None" = None,
) -> WordVectors:
    """Load the most frequent words of a public embedding.

    A `.npy` matrix of float32 in C order stays in its file where its first rows are the ones to keep.

    Args:
        source (`str`, `os.PathLike` or `WordVectors`): a short name of the catalogue (`"glove-50d"`); a Hub id
            (`"org/name"`); a GloVe text file; a word2vec `.vec` or `.bin` file; such a text as `.gz`; a `.npy` matrix
            with a `.parquet` or `.txt` list of words of the same name beside it; a folder; or the object itself. A
            folder, as a Hub repo, holds exactly one file of vectors, not in a folder of its own: a `.npy` matrix, a
            `.txt`, `.vec` or `.gz` text whose first line is a word and its numbers or a count and a width, or a
            word2vec `.bin`. The words of its matrix may also be its only `.parquet` list. A text that ends in
            `"|pca50"` gives the vectors before it, reduced to 50 dimensions.
        max_words (`int`, defaults to 50000): size of the vocabulary; the first words are kept. Words that are equal in
            lower case count once, by the first of them.
        frequencies (`str` or `os.PathLike`, *optional*): for a file that is not in order of frequency: a public text
            of 'word count' or one word a line, most frequent first. Words that it lacks come last, in the order of
            the file of vectors.
    Returns:
        `WordVectors`: public.
    Raises:
        ConfigError: no such file or name; the file is cut short or malformed (the message has the line, word or row);
            or what was passed is no name of a public file, such as texts, counts, an array or a trained model.
        AssetError: a short name or a Hub id could not be fetched.
    """
    if not isinstance(max_words, int) or not max_words >= 2:
        raise ConfigError(f"max_words is {max_words!r}; a vocabulary needs at least 2, as a whole number")
    if isinstance(source, WordVectors):
        if frequencies is not None:
            raise ConfigError("frequencies= orders a file before it is cut; pass the file instead of loaded vectors")
        return source.most_frequent(max_words)
    if isinstance(source, str) and (reduced := _REDUCED.fullmatch(source)) and not Path(source).exists():
        return load_vectors(reduced[1], max_words=max_words, frequencies=frequencies).reduced(int(reduced[2]))
    path, name = _located(source)
    ranks = {} if frequencies is None else read_ranks(Path(_name_of_file(frequencies, "frequencies")).expanduser())
    if not path.is_file():
        path = vector_file(path, name or f"folder {path.name!r}")
    found = read_vectors(path, max_words, ranks)
    if name is None:
        name = f"{path.name}-{_digest(found.words, found.rows)}"
    elif ranks:
        name = f"{name}|ordered-{_digest(found.words)}"
    elif max_words != MAX_WORDS and len(found.words) == max_words:
        name = f"{name}[:{max_words}]"
    return WordVectors(found.words, found.rows, name, mapped=found.mapped, is_named=True)


def _located(source: "str | os.PathLike[str]") -> tuple[Path, str | None]:
    """Return the file or folder of a source, and its name where it is not known by its content."""
    from hf_dpsynth.models import catalog

    text = _name_of_file(source, "vectors")
    path = Path(text).expanduser()
    try:
        exists = path.exists()
    except OSError:  # a text too long for the name of a file
        exists = False
    if exists:
        return path, None
    if isinstance(source, str) and re.fullmatch(r"[\w-]+(\.\w+-[\w.-]+)?", source):
        return Path(catalog.pull(source)), source
    if isinstance(source, str) and catalog.HUB_ID.fullmatch(source) and path.suffix not in SUFFIXES:
        folder = Path(catalog.pull_from_hub(source, wanted=HUB_FILES))
        return folder, f"{source}@{folder.name[:12]}"
    shown = repr(path.name) if len(path.name) <= 80 else f"a text of {len(text)} characters"
    raise ConfigError(
        f"vectors={shown} is no file, folder or short name. Use 'glove-50d', a Hub id such as org/name, or a path "
        "that exists."
    )


def _name_of_file(source: object, what: str) -> str:
    """Refuse what could have been made from private texts: a vocabulary of those would be a release of its own."""
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    raise ConfigError(
        f"{what} is a {type(source).__name__}; vectors and vocabulary must come from a public file, because a "
        f"vocabulary, counts or a model of private texts would be a release of its own. Pass the file's path, as in "
        f"{what}='{'glove.6B.300d.txt' if what == 'vectors' else 'counts.txt'}'"
        f"{', a short name (glove-50d) or a Hub id (org/name)' if what == 'vectors' else ''}."
    )


def _digest(words: tuple[str, ...], rows: np.ndarray | None = None) -> str:
    digest = hashlib.blake2b("\n".join(words).encode("utf-8", "surrogatepass"), digest_size=8)
    if rows is not None:
        digest.update(rows.reshape(-1).data)
    return digest.hexdigest()
