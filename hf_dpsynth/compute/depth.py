"""Tukey depth along given directions: how deep a public point lies among private ones.

The one rule: a point's projections are a function of that point alone, summed in float64 in an order that no other
point changes, so that one more point moves a depth by 0 or 1 and never by a rounding. Source: Tukey 1975.
"""

import numpy as np

from hf_dpsynth.compute.pairs import CHUNK_ELEMENTS
from hf_dpsynth.errors import ConfigError


def tukey_depths(private: np.ndarray, candidates: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Count, for each candidate, the private points on its emptier side, in the direction where these are fewest.

    Args:
        private (`np.ndarray`): embeddings, shape (n, d), finite. Sensitive.
        candidates (`np.ndarray`): embeddings, shape (m, d), finite. Public.
        directions (`np.ndarray`): shape (p, d), p >= 1. Public.
    Returns:
        `np.ndarray`: shape (m,), int64, from 0 to n. Sensitive.
    Sensitivity:
        each depth grows by 0 or 1 when a point is added, all in one direction; <= 1 either way under replace.
    Raises:
        ConfigError: the widths differ, or there is no direction.
    """
    if not len(directions) or len({rows.shape[1] for rows in (private, candidates, directions)}) != 1:
        raise ConfigError("private points, candidates and at least one direction must have the same width")
    depths = np.full(len(candidates), len(private), dtype=np.int64)
    lines = zip(_projections(private, directions), _projections(candidates, directions), strict=True)
    for points, places in lines:
        points = np.sort(points)
        below = np.searchsorted(points, places, side="right")
        above = len(points) - np.searchsorted(points, places, side="left")
        depths = np.minimum(depths, np.minimum(below, above))
    return depths


def _projections(rows: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return the products of rows and directions, shape (p, n), float64; element by element, then summed."""
    found = np.empty((len(directions), len(rows)))
    step = max(1, CHUNK_ELEMENTS // rows.shape[1])
    for number, direction in enumerate(directions.astype(np.float64)):
        for start in range(0, len(rows), step):
            # the sum runs over the last axis of a fresh array: row by row, whatever their number
            found[number, start : start + step] = (rows[start : start + step].astype(np.float64) * direction).sum(1)
    return found
