"""Pairs of a row and a candidate that may be among the k nearest of the row, while scores come in tile by tile."""

import numpy as np

_CROWD = 1024


class Pool:
    """Pairs that may be among the k nearest of their row, ordered by row, then column.

    A row that keeps too many pairs within the margin (near-copies everywhere) is `crowded`: measured whole, later.
    """

    def __init__(self, margin: np.ndarray, wild: np.ndarray, k: int) -> None:
        self.k, self.margin = k, margin
        self.crowded = np.isin(np.arange(len(margin)), wild)
        self.threshold = np.where(self.crowded, np.float32(np.inf), np.float32(-np.inf))
        self.row, self.column = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        self.value = np.empty(0, dtype=np.float32)

    def raise_threshold(self, scores: np.ndarray, rows: np.ndarray | slice = slice(None)) -> None:
        """Raise the thresholds of these rows to their k-th largest score less the margin, rounded down."""
        place = scores.shape[1] - self.k
        kth = np.partition(scores, place, axis=1)[:, place].astype(np.float64)
        lower = np.nextafter((kth - self.margin[rows]).astype(np.float32), np.float32(-np.inf))
        self.threshold[rows] = np.maximum(self.threshold[rows], lower)

    def add(self, left: int, scores: np.ndarray) -> None:
        """Take in the scores of a tile that reach their row's threshold."""
        flat = np.flatnonzero(scores >= self.threshold[:, None])
        limit = max(_CROWD, 8 * self.k)
        if len(flat) > limit:
            counts = np.bincount(flat // scores.shape[1], minlength=len(scores))
            full = np.flatnonzero(counts > limit)
            if len(full):
                self.raise_threshold(scores[full], full)
                still = np.count_nonzero(scores[full] >= self.threshold[full, None], axis=1) > limit
                self.crowded[full[still]] = True
                self.threshold[full[still]] = np.inf
                flat = np.flatnonzero(scores >= self.threshold[:, None])
        row, column = np.divmod(flat, scores.shape[1])
        self.row = np.concatenate((self.row, row))
        self.column = np.concatenate((self.column, column + left))
        self.value = np.concatenate((self.value, scores.reshape(-1)[flat]))

    def shrink(self) -> None:
        """Order by row, raise the thresholds by all that was taken in, and drop what no longer reaches them."""
        order = np.argsort(self.row, kind="stable")
        self.row, self.column, self.value = self.row[order], self.column[order], self.value[order]
        (values,) = _by_row(self.row, len(self.margin), self.k, (self.value, -np.inf))
        self.raise_threshold(values)
        kept = self.value >= self.threshold[self.row]
        self.row, self.column, self.value = self.row[kept], self.column[kept], self.value[kept]


def _by_row(row: np.ndarray, count: int, least: int, *columns: tuple[np.ndarray, float]) -> list[np.ndarray]:
    """Lay out sorted pairs as matrices with a line for each row, filled up with the value given beside each."""
    counts = np.bincount(row, minlength=count)
    place = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    width = max(least, int(counts.max(initial=0)))
    out = []
    for values, filling in columns:
        matrix = np.full((count, width), filling, dtype=values.dtype)
        matrix[row, place] = values
        out.append(matrix)
    return out
