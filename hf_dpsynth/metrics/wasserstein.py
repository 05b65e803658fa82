"""Wasserstein distance between embeddings: how far the rows of one set must travel to become the other.

Sliced W1 is the mean, over public random directions, of W1 between the projections, which sorting gives exactly; it
costs n log n and is the score. Exact W1 stands beside it where the sets are small. Both are in units of the rows, and
both are above 0 for two samples of one law, the exact one by far where the rows have many dimensions.
Source: Rabin et al. 2011 (SSVM) and Bonneel et al. 2015 (J. Math. Imaging Vis. 51) for slices; Flamary et al. 2021
(JMLR 22), whose package POT solves the exact problem.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.metrics.base import check_count
from hf_dpsynth.metrics.embedding import EmbeddingMetric
from hf_dpsynth.metrics.rows import check_pair
from hf_dpsynth.privacy.keys import public_generator

MOST_EXACT_ROWS = 2000
_DIRECTIONS_AT_ONCE = 64
_MOST_STEPS = 10_000_000


def sliced_wasserstein(
    p: np.ndarray, q: np.ndarray, *, num_projections: int = 500, order: float = 1.0, seed: int = 0
) -> float:
    """Average the distances between projections onto random directions.

    Args:
        p (`np.ndarray`): embeddings, shape (m, d). Public.
        q (`np.ndarray`): embeddings, shape (n, d); the sets may differ in size. Sensitive.
        num_projections (`int`): random directions, uniform on the sphere.
        order (`float`): 1 for W1; for another r the r-th root of the mean of the r-th powers.
        seed (`int`): the seed of the public directions.
    Returns:
        `float`: the sliced distance, in units of the rows. As sensitive as `q`.
    Raises:
        ConfigError: an option is out of range, or the rows cannot be compared.
    Examples:
        >>> import numpy as np
        >>> line = np.array([[0.0], [1.0]])
        >>> round(sliced_wasserstein(line, line + 3.0), 6)
        3.0
    """
    _check_options(num_projections, order)
    check_pair(p, q, what="wasserstein", least=1)
    directions = public_generator(seed, "sliced-wasserstein").standard_normal((num_projections, p.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    left, right, widths = _coupling(len(p), len(q))
    total = 0.0
    for start in range(0, num_projections, _DIRECTIONS_AT_ONCE):
        part = directions[start : start + _DIRECTIONS_AT_ONCE].T
        first, second = np.sort(p @ part, axis=0), np.sort(q @ part, axis=0)
        total += float((widths @ np.abs(first[left] - second[right]) ** order).sum())
    return float((total / num_projections) ** (1 / order))


def exact_wasserstein(p: np.ndarray, q: np.ndarray) -> float:
    """Solve the transport problem of Euclidean distances: W1.

    Args:
        p (`np.ndarray`): embeddings, shape (m, d), at most 2000 rows. Public.
        q (`np.ndarray`): embeddings, shape (n, d), at most 2000 rows; the sets may differ in size. Sensitive.
    Returns:
        `float`: W1, in units of the rows. As sensitive as `q`.
    Raises:
        ConfigError: more than 2000 rows, no solution within the steps allowed, or rows that cannot be compared.
        MissingExtra: POT is not installed.
    """
    check_pair(p, q, what="wasserstein", least=1)
    if max(len(p), len(q)) > MOST_EXACT_ROWS:
        raise ConfigError(
            f"exact W1 takes at most {MOST_EXACT_ROWS} rows in each set. Pass fewer, or use sliced_wasserstein."
        )
    transport = need("ot", extra="metrics", what="exact W1")
    distance = need("scipy.spatial.distance", extra="metrics", what="exact W1")
    costs = distance.cdist(p.astype(np.float64), q.astype(np.float64))
    value, log = transport.emd2([], [], costs, numItermax=_MOST_STEPS, log=True)
    if log["warning"] is not None:
        raise ConfigError("exact W1 found no solution within its steps. Pass fewer rows, or use sliced_wasserstein.")
    return float(value)


@dataclass(frozen=True, kw_only=True)
class Wasserstein(EmbeddingMetric):
    """Sliced W1 with its floor, and exact W1 beside it for sets of at most 2000 rows.

    Args:
        num_projections (`int`): random directions.
        order (`float`): 1 for sliced W1, 2 for sliced W2.
        exact_rows (`int`): exact W1 is added where each side has at most so many rows; 0 leaves it out.
    """

    name: ClassVar[str] = "wasserstein"
    description: ClassVar[str] = "sliced Wasserstein distance of two sets of texts, with its floor; lower is better"
    source: ClassVar[str] = "Bonneel et al. 2015 (J. Math. Imaging Vis. 51); Flamary et al. 2021 (JMLR 22)"
    higher_is_better: ClassVar[bool | None] = False
    num_projections: int = 500
    order: float = 1.0
    exact_rows: int = MOST_EXACT_ROWS

    def __post_init__(self) -> None:
        _check_options(self.num_projections, self.order)
        check_count("exact_rows", self.exact_rows, 0)
        if not self.exact_rows <= MOST_EXACT_ROWS:
            raise ConfigError(f"exact_rows is {self.exact_rows}; it is from 0 to {MOST_EXACT_ROWS}")

    def score(self, predictions: np.ndarray, references: np.ndarray, *, seed: int) -> float | dict[str, float]:
        """Return the sliced distance, and the exact one where the sets are small enough."""
        sliced = sliced_wasserstein(
            predictions, references, num_projections=self.num_projections, order=self.order, seed=seed
        )
        if max(len(predictions), len(references)) > self.exact_rows:
            return sliced
        return {"wasserstein": sliced, "wasserstein_exact": exact_wasserstein(predictions, references)}

    def limits(self, size: int) -> list[str]:
        """Say where the exact distance is missing."""
        if size > self.exact_rows > 0:
            return [f"wasserstein_exact is left out: {size} rows on each side, and it takes at most {self.exact_rows}"]
        return []


def _check_options(num_projections: int, order: float) -> None:
    check_count("num_projections", num_projections, 1)
    if not 1 <= order < float("inf"):
        raise ConfigError(f"order is {order}; it is at least 1")


def _coupling(count: int, other: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the optimal coupling of two sorted samples: pairs of places, and the mass that each pair moves.

    Mass is counted in units of 1 / (count * other), so that the steps of both distributions are whole numbers.
    """
    levels = np.union1d(np.arange(1, count + 1) * other, np.arange(1, other + 1) * count)
    widths = np.diff(levels, prepend=0) / (count * other)
    return (levels - 1) // other, (levels - 1) // count, widths
