"""Products of pairs of rows in float64, in a fixed order: the slow path that settles what single precision cannot."""

from collections.abc import Iterator

import numpy as np

CHUNK_ELEMENTS = 1 << 19


def products_of_pairs(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Multiply pairs of rows in float64: element-wise operations only, halves added, so no pair depends on another."""
    terms = np.multiply(left, right, dtype=np.float64)
    width = terms.shape[1]
    while width > 1:
        half = (width + 1) // 2
        terms[:, : width - half] += terms[:, half:width]
        width = half
    return np.asarray(terms[:, 0])


def slices(count: int, width: int) -> Iterator[slice]:
    """Yield slices of `count` rows of a size that stays in cache in float64."""
    step = max(1, CHUNK_ELEMENTS // width)
    for start in range(0, count, step):
        yield slice(start, start + step)


def chunks(vectors: np.ndarray) -> Iterator[np.ndarray]:
    """Yield groups of rows of a size that stays in cache in float64."""
    return (vectors[part] for part in slices(*vectors.shape))
