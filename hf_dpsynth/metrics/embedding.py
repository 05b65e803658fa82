"""Texts as vectors for a metric: in blocks, with a cache for public and synthetic text alone.

An embedding can be turned back into much of its text. So vectors of private texts live in memory, or in an unnamed
temporary file where memory is short, and are gone with the process; only what the caller calls public is ever cached.
"""

import hashlib
import os
import sqlite3
import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from hf_dpsynth.devices import free_memory
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.logging import HIDDEN, progress_bar
from hf_dpsynth.metrics.base import Result, TwoSampleMetric, check_texts
from hf_dpsynth.models import load_embedder
from hf_dpsynth.models.base import Embedder

_BLOCK = 1024
_SHARE = 8  # a private set may take this part of the memory that is free


@dataclass(frozen=True, kw_only=True)
class EmbeddingMetric(TwoSampleMetric):
    """A two-sample metric on sentence embeddings: `score` gets rows of shape (n, d), float32."""

    needs_embedder: ClassVar[bool] = True

    @abstractmethod
    def score(self, predictions: np.ndarray, references: np.ndarray, *, seed: int) -> float | dict[str, float]:
        """Compare embeddings of shape (m, d) and (n, d)."""

    def compute(
        self,
        *,
        predictions: Sequence[str],
        references: Sequence[str],
        embedder: str | Embedder = "minilm",
        holdout: Sequence[str] | None = None,
        equal_size: bool = True,
        num_splits: int = 5,
        seed: int = 0,
        public_references: bool = False,
        cache: str | os.PathLike[str] | None = None,
    ) -> Result:
        """Embed both sets of texts and compare them.

        Args:
            predictions (`Sequence[str]`): synthetic texts. Public.
            references (`Sequence[str]`): real texts; the sets may differ in size. Sensitive.
            embedder (`str` or object with `.embed`): the model; the choice moves the score more than any option.
            holdout (`Sequence[str]`, *optional*): further real texts for the floor. Sensitive.
            equal_size (`bool`): score as many rows as the floor has; False scores all.
            num_splits (`int`): public random halves that score and floor are averaged over.
            seed (`int`): the seed of public randomness.
            public_references (`bool`): whether the references are public.
            cache (`str` or path, *optional*): a file that keeps the vectors of `predictions` for the next call, so
                that an interrupted one goes on. Pass it only if they are public.
        Returns:
            `dict`: what `compare` returns. As sensitive as the references.
        Raises:
            ConfigError: too few texts, a value that is not text, or embeddings that are not finite.
        """
        model = load_embedder(embedder)
        synthetic = embed(predictions, model, what="predictions", public=True, cache=cache)
        real = embed(references, model, what="references", public=public_references)
        rest = None if holdout is None else embed(holdout, model, what="holdout", public=public_references)
        return self.compare(
            synthetic,
            real,
            holdout=rest,
            equal_size=equal_size,
            num_splits=num_splits,
            seed=seed,
            public_references=public_references,
        )


def embed(
    texts: Sequence[str],
    embedder: Embedder,
    *,
    what: str,
    public: bool,
    cache: str | os.PathLike[str] | None = None,
) -> np.ndarray:
    """Embed texts block by block.

    Args:
        texts (`Sequence[str]`): texts. Sensitive unless `public`.
        embedder (`Embedder`): the model.
        what (`str`): the name of the argument, for messages and the progress bar.
        public (`bool`): whether the texts are public or synthetic. The bar counts rows then, and only time otherwise.
        cache (`str` or path, *optional*): a file of vectors that is read and filled. Only for public texts, and
            for embedders that have a public `.id`.
    Returns:
        `np.ndarray`: shape (n, d), float32. As sensitive as the texts.
    Raises:
        ConfigError: a value is no text, an embedding is not finite or of another width, or a cache is asked for
            private texts.
    """
    rows = check_texts(texts, what)
    if not rows:
        raise ConfigError(f"{what}= is empty; pass at least one text")
    if cache is not None and not public:
        raise ConfigError("vectors of private texts are never cached; drop cache=")
    kept = None if cache is None or not hasattr(embedder, "id") else _Cache(Path(cache), embedder)
    vectors: np.ndarray | None = None
    with _bar(rows, what, public=public) as bar:
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            made = _checked(embedder.embed(block) if kept is None else kept.embed(block), len(block), what)
            if vectors is None:
                vectors = _room(len(rows), made.shape[1], public=public)
            elif made.shape[1] != vectors.shape[1]:
                raise ConfigError(f"the embedder gave vectors of width {vectors.shape[1]}, then {made.shape[1]}")
            vectors[start : start + len(block)] = made
            bar.update(len(block))
    return vectors if vectors is not None else np.empty((0, 0), np.float32)


def _bar(rows: Sequence[str], what: str, *, public: bool) -> Any:
    # a share of private rows would tell how many there are: each block is a known number of them
    hidden = {} if public else {"bar_format": HIDDEN}
    return progress_bar(total=len(rows), desc=f"Embedding {what}", unit=" texts", **hidden)


def _checked(vectors: Any, count: int, what: str) -> np.ndarray:
    """Return vectors as float32 rows, or refuse them."""
    found = np.asarray(vectors)
    if found.ndim != 2 or len(found) != count or found.dtype.kind not in "fiu" or not found.shape[1]:
        raise ConfigError(
            f"the embedder returned an array of shape {found.shape} and type {found.dtype} for {what}; it must return "
            "one row of numbers a text"
        )
    found = found.astype(np.float32, copy=False)
    if not np.isfinite(found).all():
        raise ConfigError(f"the embedder returned NaN or infinite values for {what}. Check the model.")
    return found


def _room(rows: int, width: int, *, public: bool) -> np.ndarray:
    """Return an array in memory, or in an unnamed file that the system removes with the process."""
    if public or rows * width * 4 <= free_memory() // _SHARE:
        return np.empty((rows, width), dtype=np.float32)
    with tempfile.TemporaryFile(prefix="hf_dpsynth-") as handle:
        return np.memmap(handle, dtype=np.float32, mode="w+", shape=(rows, width))


class _Cache:
    """Vectors of public texts in one SQLite file, by the digest of model and text."""

    def __init__(self, path: Path, embedder: Embedder) -> None:
        self._path, self._embedder = path, embedder
        options = [getattr(embedder, name, None) for name in ("id", "batch_size", "max_tokens")]
        self._model = repr((type(embedder).__name__, *options)).encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(self._open()) as database, database:
                database.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL)")
        except sqlite3.DatabaseError as error:
            raise ConfigError(
                f"cache={str(path)!r} is no cache of vectors. Pass another file, or remove it."
            ) from error

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=60)

    def embed(self, texts: list[str]) -> np.ndarray:
        """Return the vectors of texts: those that the file has are read, the rest is made and kept."""
        keys = [hashlib.sha256(self._model + b"\0" + text.encode("utf-8", "surrogatepass")).digest() for text in texts]
        with closing(self._open()) as database:
            found = {key: vector for part in _parts(keys) for key, vector in self._read(database, part)}
            missing = [row for row, key in enumerate(keys) if key not in found]
            if missing:
                made = _checked(self._embedder.embed([texts[row] for row in missing]), len(missing), "predictions")
                fresh = {keys[row]: made[at].tobytes() for at, row in enumerate(missing)}
                with database:
                    database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", fresh.items())
                found |= fresh
        return np.stack([np.frombuffer(found[key], dtype=np.float32) for key in keys])

    @staticmethod
    def _read(database: sqlite3.Connection, keys: list[bytes]) -> list[tuple[bytes, bytes]]:
        marks = ",".join("?" * len(keys))
        return database.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", keys).fetchall()


def _parts(keys: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(keys), 500):
        yield keys[start : start + 500]
