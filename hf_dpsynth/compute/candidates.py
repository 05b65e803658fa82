"""Candidates of a search, made ready for products once and searched many times."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hf_dpsynth.compute.pairs import chunks, products_of_pairs
from hf_dpsynth.errors import ConfigError

OVERFLOW = 1e37
_LEVEL = 1e-6


@dataclass(frozen=True)
class Table:
    """The candidates, ready for products: `products` is the transpose with the row -|y|^2 / 2 below.

    Where all are equally long (`uneven`, the spread of |y|^2 / 2, is next to nothing) that row is left out and the
    margin widened instead: blocks are then read where they lie, without a copy. `halves` are |y|^2 / 2 in float64.
    """

    vectors: np.ndarray
    products: np.ndarray
    halves: np.ndarray
    longest: float
    uneven: float


class Candidates:
    """Vectors that are searched more than once: what a search needs of them is made at the first one and kept.

    Args:
        vectors (`np.ndarray`): shape (m, d), m >= 1; computed in float32. Public.
        name (`str`): what an error calls them.
    Raises:
        ConfigError: not a finite real matrix, or empty.
    """

    def __init__(self, vectors: np.ndarray, name: str = "vectors") -> None:
        if vectors.ndim != 2 or vectors.dtype.kind not in "fiu":
            raise ConfigError(f"{name} has {vectors.ndim} axes and type {vectors.dtype}; it must be a real matrix")
        if not len(vectors):
            raise ConfigError(f"{name} has no rows; at least one is needed")
        self.vectors = as_float32(vectors, name)

    @cached_property
    def table(self) -> Table:
        """All of them."""
        return table(self.vectors)

    @cached_property
    def distinct(self) -> tuple[np.ndarray, Table]:
        """The first of each that occurs more than once: the rows, and their table. An exact repeat never wins."""
        kept = np.arange(len(self.vectors))
        if len(np.unique(self.table.halves)) < len(self.vectors):
            first: dict[bytes, int] = {}
            kept = np.array([j for j, row in enumerate(self.vectors) if first.setdefault(row.tobytes(), j) == j])
            if len(kept) < len(self.vectors):
                return kept, table(self.vectors[kept])
        return kept, self.table


def as_float32(array: np.ndarray, name: str) -> np.ndarray:
    """Return finite float32 rows, C-contiguous, without a copy where none is needed."""
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(converted).all():
        raise ConfigError(f"{name} holds NaN or infinite values (as float32)")
    return converted


def table(vectors: np.ndarray) -> Table:
    """Prepare finite float32 candidates."""
    count, width = vectors.shape
    halves = np.concatenate([products_of_pairs(part, part) for part in chunks(vectors)]) / 2
    longest = float(np.sqrt(2 * halves.max())) * (1 + 1e-6)
    uneven = float(halves.max() - halves.min()) * (1 + 1e-6)
    if uneven <= _LEVEL:
        return Table(vectors, np.ascontiguousarray(vectors.T), halves, longest, uneven)
    products = np.empty((width + 1, count), dtype=np.float32)
    products[:width] = vectors.T
    products[width] = np.maximum(-halves, -OVERFLOW)
    return Table(vectors, products, halves, longest, 0.0)
