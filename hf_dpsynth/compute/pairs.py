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


def chunks(vectors: np.ndarray) -> Iterator[np.ndarray]:
    """Yield groups of rows of a size that stays in cache in float64."""
    step = max(1, CHUNK_ELEMENTS // vectors.shape[1])
    for start in range(0, len(vectors), step):
        yield vectors[start : start + step]
