"""Rows of length 1, each a function of itself alone."""

import numpy as np

_BLOCK = 8192  # rows whose double precision is held at once


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Return rows of length 1, shape (n, d), float32; rows of zeros stay. As sensitive as the rows."""
    unit = np.empty(rows.shape, dtype=np.float32)
    for start in range(0, len(rows), _BLOCK):
        exact = np.ascontiguousarray(rows[start : start + _BLOCK], dtype=np.float64)
        lengths = np.sqrt(np.einsum("ij,ij->i", exact, exact))
        unit[start : start + _BLOCK] = exact / np.where(lengths > 0, lengths, 1.0)[:, None]
    return unit
