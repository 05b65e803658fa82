"""Lloyd's k-means: one matrix product an iteration, and a stop when few rows still move.

The scores x.c - |c|^2 / 2 of a block of rows come from one product in single precision; a column of ones in the rows
carries the last term, and counts rows where they are summed. A bucket that lost its rows is moved to the row that is
worst served. On one core the products are over 90 % of the time, so only fewer iterations would be faster.
Source: Lloyd 1982 (IEEE Transactions on Information Theory 28), with random rows as the first centres.
"""

import numpy as np
from scipy import sparse

_BLOCK = 2048


def with_ones(rows: np.ndarray) -> np.ndarray:
    """Return rows of shape (n, d) as float32 of shape (n, d + 1) whose last column is 1, ready for `kmeans`."""
    out = np.ones((len(rows), rows.shape[1] + 1), dtype=np.float32)
    out[:, :-1] = rows
    return out


def kmeans(
    rows: np.ndarray, k: int, rng: np.random.Generator, *, max_iterations: int = 100, tolerance: float = 0.02
) -> np.ndarray:
    """Cluster rows.

    Args:
        rows (`np.ndarray`): what `with_ones` returns, shape (n, d + 1), float32, best centred. Sensitive if they are.
        k (`int`): buckets, at most n.
        rng (`np.random.Generator`): draws the rows that are the first centres. Public.
        max_iterations (`int`): most products.
        tolerance (`float`): stop once at most this share of the rows changes its bucket; 0 runs to the end. At the
            default, inertia is within 1 % of that at the end (`benchmarks/LOG.md`).
    Returns:
        `np.ndarray`: the bucket of each row, shape (n,), int64. As sensitive as the rows.
    """
    centres = rows[rng.choice(len(rows), size=k, replace=False), :-1]
    labels = np.full(len(rows), -1)
    scratch = np.empty((min(_BLOCK, len(rows)), k), dtype=np.float32)
    for _ in range(max_iterations):
        found, scores = _nearest(rows, centres, scratch)
        changed = np.count_nonzero(found != labels)
        labels = found
        if changed <= tolerance * len(rows):
            break
        centres = _means(rows, labels, scores, centres)
    return labels


def inertia(rows: np.ndarray, labels: np.ndarray) -> float:
    """Return the sum of squared distances of rows (of `with_ones`) to the means of their buckets."""
    points = rows[:, :-1].astype(np.float64)
    counts = np.bincount(labels)
    sums = np.zeros((len(counts), points.shape[1]))
    np.add.at(sums, labels, points)
    return float(np.square(points - (sums / np.maximum(counts, 1)[:, None])[labels]).sum())


def _nearest(rows: np.ndarray, centres: np.ndarray, scratch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the best centre of each row and its score x.c - |c|^2 / 2."""
    table = np.empty((rows.shape[1], len(centres)), dtype=np.float32)
    table[:-1] = centres.T
    table[-1] = np.einsum("ij,ij->i", centres, centres) / -2
    labels, best = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.float32)
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        scores = np.matmul(block, table, out=scratch[: len(block)])
        found = scores.argmax(axis=1)
        labels[start : start + _BLOCK] = found
        best[start : start + _BLOCK] = scores[np.arange(len(block)), found]
    return labels, best


def _means(rows: np.ndarray, labels: np.ndarray, scores: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return the mean of each bucket's rows; an empty bucket gets one of the rows farthest from their centres."""
    one_hot = sparse.csc_array(
        (np.ones(len(rows), np.float32), labels, np.arange(len(rows) + 1)), shape=(len(centres), len(rows))
    )
    sums = one_hot @ rows
    full, empty = np.flatnonzero(sums[:, -1]), np.flatnonzero(sums[:, -1] == 0)
    moved = np.empty_like(centres)
    moved[full] = sums[full, :-1] / sums[full, -1:]
    if len(empty):
        distances = np.einsum("ij,ij->i", rows, rows) - 2 * scores
        farthest = np.argpartition(distances, len(rows) - len(empty))[len(rows) - len(empty) :]
        moved[empty] = rows[farthest, :-1]
    return moved
