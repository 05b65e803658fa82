"""Embeddings of public and of private texts, as every mechanism of evolution reads them."""

from collections.abc import Sequence

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.models.base import Embedder
from hf_dpsynth.privacy.selection import distinct


def embedded(embedder: Embedder, texts: Sequence[str]) -> np.ndarray:
    """Return what an embedder makes of texts as float32 rows, shape (n, d). As sensitive as the texts.

    Raises:
        ConfigError: it makes another number of rows, or no rows.
    """
    rows = np.asarray(embedder.embed(texts), dtype=np.float32)
    if rows.ndim != 2 or len(rows) != len(texts):
        raise ConfigError("the embedder must return one vector for each text, shape (n, d)")
    return rows


def embedded_public(embedder: Embedder, texts: Sequence[str], kind: str = "synthetic") -> np.ndarray:
    """Return `embedded` of public texts.

    Raises:
        ConfigError: a vector is not finite; or what `embedded` raises.
    """
    rows = embedded(embedder, texts)
    if not np.isfinite(rows).all():
        raise ConfigError(f"the embedder returned a vector of a {kind} text that is not finite")
    return rows


def embedded_private(embedder: Embedder, texts: Sequence[str], width: int) -> np.ndarray:
    """Return `embedded` of private texts, shape (n, width), without the rows that are not finite. Sensitive.

    Such a record adds nothing: an error would tell that it is there.
    """
    rows = embedded(embedder, texts) if len(texts) else np.zeros((0, width), dtype=np.float32)
    return np.asarray(rows[np.isfinite(rows).all(axis=1)])


def different(texts: Sequence[str], vectors: np.ndarray) -> list[int]:
    """Return the places of the public texts that equal no earlier text or embedding."""
    first = set({text: place for place, text in reversed(list(enumerate(texts)))}.values())
    return [place for place in distinct(vectors).tolist() if place in first]
