"""Estimation of distribution: where parents lie, a Gaussian is fitted, moved towards the best of them, and drawn from.

All of it is post-processing of parents that were selected under privacy.
Source: Gao et al., "Generate Synthetic Text Approximating the Private Distribution with Differential Privacy",
Algorithm 2, a continuous form of population-based incremental learning. Where we leave it: a spread has a floor, so
that one parent has offspring other than itself, and several Gaussians may stand for parents that lie apart.
"""

import numpy as np

from hf_dpsynth.compute.unit_rows import unit_rows

_LEAST_SPREAD = 0.1  # the expected length of a step from the mean to an offspring, where the mean has length 1
_STEPS = 20


class Gaussians:
    """A mixture of Gaussians with diagonal covariance around parents.

    Args:
        parents (`np.ndarray`): unit rows, shape (n, d), best first, n >= 1. Public or privatized.
        smoothing (`float`): from 0 to 1: how far the law moves from that of all parents to that of the best.
        components (`int`): Gaussians; fewer where there are fewer different parents.
    """

    def __init__(self, parents: np.ndarray, smoothing: float, components: int = 1) -> None:
        rows = parents.astype(np.float64)
        groups = [rows[members] for members in clusters(rows, components)]
        self.means = np.stack([_mean(group, smoothing) for group in groups])
        self.spreads = np.stack([_spread(group, smoothing) for group in groups])
        self.weights = np.asarray([len(group) for group in groups]) / len(rows)

    def draw(self, number: int, generator: np.random.Generator) -> np.ndarray:
        """Return offspring.

        Args:
            number (`int`): how many.
            generator (`np.random.Generator`): a public stream.
        Returns:
            `np.ndarray`: unit rows, shape (number, d), float32.
        """
        chosen = generator.choice(len(self.weights), size=number, p=self.weights)
        noise = generator.standard_normal((number, self.means.shape[1]))
        return unit_rows(self.means[chosen] + self.spreads[chosen] * noise)


def clusters(rows: np.ndarray, most: int) -> list[list[int]]:
    """Split rows into groups of near ones by k-means that starts from rows far apart.

    Args:
        rows (`np.ndarray`): shape (n, d), n >= 1. Public or privatized.
        most (`int`): the largest number of groups.
    Returns:
        `list[list[int]]`: row numbers in ascending order, no group empty.
    """
    centres = rows[:1]
    for _ in range(most - 1):
        gaps = _squared_gaps(rows, centres).min(axis=1)
        if not gaps.max() > 0:
            break
        centres = np.concatenate([centres, rows[[int(gaps.argmax())]]])
    nearest = _squared_gaps(rows, centres).argmin(axis=1)
    for _ in range(_STEPS):
        centres = np.stack([rows[nearest == number].mean(axis=0) for number in np.unique(nearest)])
        before, nearest = nearest, _squared_gaps(rows, centres).argmin(axis=1)
        if np.array_equal(before, nearest):
            break
    return [np.flatnonzero(nearest == number).tolist() for number in np.unique(nearest)]


def _squared_gaps(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    gaps: np.ndarray = ((rows[:, None] - centres[None]) ** 2).sum(axis=2)
    return gaps


def _mean(parents: np.ndarray, smoothing: float) -> np.ndarray:
    second = parents[min(1, len(parents) - 1)]
    towards = parents[0] + second - parents[-1]
    mean: np.ndarray = (1 - smoothing) * parents.mean(axis=0) + smoothing * towards
    return mean


def _spread(parents: np.ndarray, smoothing: float) -> np.ndarray:
    top = parents[: max(2, len(parents) // 2)]
    spread = (1 - smoothing) * parents.std(axis=0) + smoothing * top.std(axis=0)
    floored: np.ndarray = np.maximum(spread, _LEAST_SPREAD / np.sqrt(parents.shape[1]))
    return floored
