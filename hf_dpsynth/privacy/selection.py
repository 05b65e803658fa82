"""Noisy votes and noisy label counts.

Which candidates are private records closest to, and how common is a label?

Each record adds one vote to one coordinate of ONE vector that concatenates all labels, and one count to one label, so
adding, removing or zeroing a record moves either by 1 in one coordinate, and replacing a record moves two coordinates
by 1. Everything after the noise is post-processing. Source: Xie et al. 2024, arXiv:2403.01749, Algorithm 1; the paper
accounts each label's histogram alone and reads the label counts for free, which protects neither.
"""

from collections.abc import Sequence

import numpy as np
from dp_accounting import DpEvent, NonPrivateDpEvent

from hf_dpsynth.compute import nearest
from hf_dpsynth.privacy.noise import DiscreteGaussianDpEvent, discrete_gaussian

_NEAR = 1e-6


def count_event(sigma: float, adjacency: str) -> DpEvent:
    """Return the event of one release of votes or label counts at noise `sigma` (0: no privacy)."""
    if sigma == 0:
        return NonPrivateDpEvent()
    return DiscreteGaussianDpEvent(float(sigma), (1, 1) if adjacency == "replace-one" else (1,))


def noisy_votes(private: Sequence[np.ndarray], candidates: Sequence[np.ndarray], sigma: float) -> list[np.ndarray]:
    """Count, label by label, the private rows nearest to each candidate, and add noise; the event is `count_event`.

    Args:
        private (`Sequence[np.ndarray]`): embeddings by label, each of shape (n_l, d), float32. Sensitive.
        candidates (`Sequence[np.ndarray]`): embeddings by label, each of shape (m_l, d), float32. Public.
        sigma (`float`): the noise parameter, in votes.
    Returns:
        `list[np.ndarray]`: noisy votes by label, each of shape (m_l,), int64.
    Sensitivity:
        of the concatenated clean vector: L2 <= 1 under add-remove and zero-out, <= sqrt(2) under replace-one, also
        when the replaced record changes its label.
    Raises:
        ConfigError: embeddings of different widths, or with a value that is not finite.
    """
    return noisy_counts(vote_counts(private, candidates), sigma)


def vote_counts(private: Sequence[np.ndarray], candidates: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Count, label by label, the private rows nearest to each candidate.

    The counts of parts of the rows add up to those of all rows, exactly.

    Args:
        private (`Sequence[np.ndarray]`): as for `noisy_votes`. Sensitive.
        candidates (`Sequence[np.ndarray]`): as for `noisy_votes`. Public.
    Returns:
        `list[np.ndarray]`: votes by label, each of shape (m_l,), int64. Still sensitive: add noise before use.
    Sensitivity:
        of the concatenated vector: that of `noisy_votes`.
    Raises:
        ConfigError: embeddings of different widths, or with a value that is not finite.
    """
    return [
        nearest.votes(rows, group) if len(group) else np.zeros(0, dtype=np.int64)
        for rows, group in zip(private, candidates, strict=True)
    ]


def noisy_counts(counts: Sequence[np.ndarray], sigma: float) -> list[np.ndarray]:
    """Add noise to the votes of all labels, as one vector; the event is `count_event`.

    Args:
        counts (`Sequence[np.ndarray]`): what `vote_counts` returns, of all private rows. Sensitive.
        sigma (`float`): the noise parameter, in votes.
    Returns:
        `list[np.ndarray]`: noisy votes by label, of the same shapes.
    Sensitivity:
        that of `noisy_votes`.
    """
    noisy = discrete_gaussian(np.concatenate(counts), sigma)
    return np.split(noisy, np.cumsum([len(group) for group in counts])[:-1])


def noisy_label_counts(sizes: Sequence[int], sigma: float) -> np.ndarray:
    """Add noise to the number of records of each declared label; the event is `count_event`.

    Args:
        sizes (`Sequence[int]`): records by declared label. Sensitive.
        sigma (`float`): the noise parameter, in records.
    Returns:
        `np.ndarray`: noisy counts, shape (labels,), int64.
    Sensitivity:
        L2 <= 1 under add-remove and zero-out, <= sqrt(2) under replace-one.
    """
    return discrete_gaussian(np.asarray(sizes, dtype=np.int64), sigma)


def distinct(candidates: np.ndarray) -> np.ndarray:
    """Return the rows that are not within 1e-6 of an earlier row, in order.

    Near-duplicate candidates would let a rounding error of one record's score move another record's vote.

    Args:
        candidates (`np.ndarray`): embeddings, shape (m, d), float32. Public.
    Returns:
        `np.ndarray`: kept row numbers, shape (kept,), int64.
    """
    exact = candidates.astype(np.float64)
    squared = np.einsum("ij,ij->i", exact, exact)
    dropped = np.zeros(len(exact), dtype=bool)
    for start in range(0, len(exact), 512):
        block = slice(start, start + 512)
        gap = squared[block, None] + squared[None, :] - 2 * exact[block] @ exact.T
        rows, earlier = np.nonzero(gap < 1e-9)
        rows += start
        close = (earlier < rows) & (np.linalg.norm(exact[rows] - exact[earlier], axis=1) <= _NEAR)
        for row, other in sorted(zip(rows[close].tolist(), earlier[close].tolist(), strict=True)):
            dropped[row] |= not dropped[other]
    return np.flatnonzero(~dropped)
