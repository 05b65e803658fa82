"""Votes and label counts of users: each user is one vector, scaled to norm 1, whatever it wrote.

A user with counts v of its records over all candidates of all labels adds floor(g v_i / |v|) steps to place i, with g
steps a unit. Whole numbers alone are computed with, so that the squares of these steps sum to at most g^2 exactly, and
a user with one record adds g steps to one place: one vote. Adding, removing or zeroing a user moves the sum by at most
1; replacing one by at most sqrt(2), as no entry is negative: |a - b|^2 <= |a|^2 + |b|^2. Noise of parameter sigma g on
the integers then costs rho = c^2 / (2 sigma^2) in zCDP for a move of norm c. Places of different labels are places of
one vector: a user may have records of all labels, so that labels never cost as if they were of different people.
Source: Canonne, Kamath & Steinke 2020, Theorem 4 and its extension to vectors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from dp_accounting import DpEvent, NonPrivateDpEvent

from hf_dpsynth.compute import nearest
from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.privacy.noise import discrete_gaussian

GRID = 2**16
LEAST_GRID = 64


@dataclass(frozen=True)
class ClippedSumDpEvent(DpEvent):  # type: ignore[misc]
    """Adds discrete Gaussian noise to a sum of vectors of bounded norm on a grid.

    The release is h(D) + Z / g for a vector h(D) of multiples of 1 / g, with independent Z_i on the integers and
    P(Z_i = z) proportional to exp(-z^2 / (2 (sigma g)^2)). Between neighbours h moves by at most `norm` in L2, in any
    direction.

    Args:
        sigma (`float`): the parameter of the noise, in units.
        norm (`float`): how far the sum moves at most, in units.
        grid (`int`): g, steps of a unit.
    """

    sigma: float
    norm: float = 1.0
    grid: int = GRID

    def __post_init__(self) -> None:
        if not (0 < self.sigma < math.inf and 0 < self.norm < math.inf and self.grid >= LEAST_GRID):
            raise ConfigError(
                f"sigma is {self.sigma}, norm {self.norm} and grid {self.grid}; they must be positive and finite, and "
                f"the grid has at least {LEAST_GRID} steps"
            )

    @property
    def rho(self) -> float:
        """The zCDP cost norm^2 / (2 sigma^2)."""
        return (self.norm / self.sigma) ** 2 / 2


def least_norm(adjacency: str) -> float:
    """Return how far the vectors of users move a sum between neighbours: 1, or sqrt(2) where a user is replaced."""
    return math.sqrt(2) if adjacency in ("replace-one", "replace_one") else 1.0


def user_count_event(sigma: float, adjacency: str) -> DpEvent:
    """Return the event of one release of votes or label counts of users at noise `sigma` (0: no privacy)."""
    return NonPrivateDpEvent() if sigma == 0 else ClippedSumDpEvent(float(sigma), least_norm(adjacency), GRID)


def clipped_steps(owners: np.ndarray, places: np.ndarray, size: int, grid: int = GRID) -> np.ndarray:
    """Add up the vectors of users, each scaled to norm 1 and truncated to steps of a grid.

    Args:
        owners (`np.ndarray`): the number of the user of each record, shape (n,), int64, >= 0. Sensitive.
        places (`np.ndarray`): the place that each record counts for, shape (n,), int64, below `size`. Sensitive.
        size (`int`): the number of places. Public.
        grid (`int`, defaults to `65536`): steps of a unit. Public.
    Returns:
        `np.ndarray`: sums in steps, shape (size,), int64. Still sensitive: add noise before use.
    Sensitivity:
        L2 <= grid under add-remove and zero-out of a user with any number of records, exactly; <= sqrt(2) grid under
        replace-one.
    Raises:
        PrivacyError: there are not as many owners as places, or a place is out of range.
    Examples:
        >>> clipped_steps(np.array([0, 0, 1]), np.array([0, 1, 1]), 2, grid=64).tolist()
        [45, 109]
    """
    if owners.shape != places.shape or (len(places) and not 0 <= places.min() <= places.max() < size):
        raise PrivacyError("each record needs one user and one place within the vector.")
    total = np.zeros(size, dtype=np.int64)
    if not len(places):
        return total
    pairs, counts = np.unique(owners * size + places, return_counts=True)
    _, users = np.unique(pairs // size, return_inverse=True)
    squares = np.zeros(int(users.max()) + 1, dtype=np.int64)
    np.add.at(squares, users, counts * counts)
    of_pairs = zip(counts.tolist(), squares[users].tolist(), strict=True)
    steps = [math.isqrt((count * grid) ** 2 // square) for count, square in of_pairs]  # floor of grid count / norm
    np.add.at(total, pairs % size, np.asarray(steps, dtype=np.int64))
    return total


def noisy_steps(steps: np.ndarray, sigma: float, grid: int = GRID) -> np.ndarray:
    """Add noise to sums in steps, and return them in units; the event is `user_count_event`.

    Args:
        steps (`np.ndarray`): sums, shape (size,), int64. Sensitive.
        sigma (`float`): the noise parameter, in units; 0 adds none (epsilon infinite).
        grid (`int`, defaults to `65536`): steps of a unit.
    Returns:
        `np.ndarray`: noisy sums, shape (size,), float64. Public once it is committed to the ledger.
    Sensitivity:
        that of the sums; the noise does not depend on it.
    """
    return discrete_gaussian(steps, sigma * grid) / grid


def noisy_user_votes(
    private: Sequence[np.ndarray], owners: Sequence[np.ndarray], candidates: Sequence[np.ndarray], sigma: float
) -> list[np.ndarray]:
    """Let each user vote once, with all of its records, for the nearest candidates; the event is `user_count_event`.

    Args:
        private (`Sequence[np.ndarray]`): embeddings by label, each of shape (n_l, d), float32. Sensitive.
        owners (`Sequence[np.ndarray]`): the number of the user of each row, by label, shape (n_l,), int64. Sensitive.
        candidates (`Sequence[np.ndarray]`): embeddings by label, each of shape (m_l, d), float32. Public.
        sigma (`float`): the noise parameter, in votes.
    Returns:
        `list[np.ndarray]`: noisy votes by label, each of shape (m_l,), float64.
    Sensitivity:
        of the concatenated clean vector: L2 <= 1 under add-remove and zero-out of a user, <= sqrt(2) under
        replace-one.
    Raises:
        ConfigError: embeddings of different widths, or with a value that is not finite.
    """
    ends = np.cumsum([len(group) for group in candidates])
    held, chosen = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for rows, own, group, end in zip(private, owners, candidates, ends, strict=True):
        if len(group) and len(rows):
            held.append(own)
            chosen.append(end - len(group) + nearest.assign(rows, group))
    steps = clipped_steps(np.concatenate(held), np.concatenate(chosen), int(ends[-1]))
    return np.split(noisy_steps(steps, sigma), ends[:-1])


def noisy_user_labels(units: Sequence[Sequence[tuple[int, str]]], labels: int, sigma: float) -> np.ndarray:
    """Count the labels of users' records, each user as one vector of norm 1; the event is `user_count_event`.

    Args:
        units (`Sequence[Sequence[tuple]]`): the records of each user, as pairs of the number of the label and the
            text. Sensitive.
        labels (`int`): the number of declared labels.
        sigma (`float`): the noise parameter, in users.
    Returns:
        `np.ndarray`: noisy counts, shape (labels,), float64.
    Sensitivity:
        L2 <= 1 under add-remove and zero-out of a user, <= sqrt(2) under replace-one.
    """
    held = [(owner, label) for owner, records in enumerate(units) for label, _ in records]
    owners, places = np.asarray(held, dtype=np.int64).reshape(-1, 2).T
    return noisy_steps(clipped_steps(owners, places, labels), sigma)
