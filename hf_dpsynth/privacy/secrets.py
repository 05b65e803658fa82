"""(p, r)-secret protection: the allowance of a secret, and weighted sums whose noise keeps it.

Row i adds a vector of norm at most w_i c to a sum, and w is a function of which rows hold which secret alone (see
`secret_weights.py`). With all rows of secret j zeroed the sum moves by at most c rho_j, rho_j = the sum of their
weights. T sums with noise sigma = sqrt(T) c are then mu-Gaussian DP with mu = rho_j against that one data set,
whichever value the secret has. Guesses of an attacker are disjoint events and the trade-off is concave, so by Jensen
who guesses right with probability p beforehand does so with r = Phi(Phi^-1(p) + mu) at most. The noise is a constant.

The noise is discrete, on a grid. Let y = x + N(0, s^2 - 4) in grid steps, and draw a discrete Gaussian of parameter 2
around y. By Poisson summation its normaliser is constant within a factor 1 +- 2.1 exp(-8 pi^2), so the law of what
comes out is the discrete Gaussian of parameter s around x, within a factor that `_RATIO` bounds for 10^20 coordinates.
Discrete noise is thus post-processing of continuous noise of variance s^2 - 4: the margin that `strength` adds.
Sources: Wang et al. 2025, arXiv:2510.10990; Ganesh et al. 2025 (secret protection); Peikert 2010 (convolution).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent, SelfComposedDpEvent
from scipy import sparse
from scipy.stats import norm

from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.privacy.noise import discrete_gaussian

GRID = 2**20  # steps of a weight of 1: a secret in a thousand rows still leaves each of them hundreds of steps
LEAST_GRID = 64
_SMOOTH = 2.0
_RATIO = 1 + 1e-12
_SHRINK = 1 - 1e-9  # covers rounding of everything that is computed in float64
_BLOCK = 4096


@dataclass(frozen=True)
class SecretGaussianDpEvent(DpEvent):  # type: ignore[misc]
    """Adds discrete Gaussian noise to a sum of weighted rows on a grid.

    A row of weight w adds a vector of norm at most w `norm`, truncated toward zero to steps of 1 / `grid`; the noise
    has the parameter `sigma`, in rows. It has no privacy loss between data sets that differ in a record, and no
    epsilon: what it says is said of secrets whose rows have a bounded sum of weights.

    Args:
        sigma (`float`): the parameter of the noise, in rows of weight 1.
        norm (`float`): the norm of what a row of weight 1 adds at most.
        grid (`int`): steps of a unit.
        allowances (`tuple[float, ...]`): how much weight the rows of a secret have together at most, by kind in the
            order of the guarantee, that of all other kinds first. Public.
    """

    sigma: float
    norm: float
    grid: int
    allowances: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not (self.sigma > 0 and self.norm > 0 and self.grid >= LEAST_GRID and self.sigma * self.grid > _SMOOTH):
            raise ConfigError(
                f"sigma is {self.sigma}, norm {self.norm} and grid {self.grid}; they must be positive, and the grid "
                f"has at least {LEAST_GRID} steps"
            )
        if not all(0 < weight < math.inf for weight in self.allowances):
            raise ConfigError(f"allowances are {self.allowances}; they must be positive")


def secret_allowance(p: float, r: float) -> float:
    """Return eta = Phi^-1(1 - p) - Phi^-1(1 - r): how much weight the rows of a secret may have together.

    Args:
        p (`float`): the largest probability with which an attacker guesses the secret beforehand. Public.
        r (`float`): the bound on that probability after the release. Public.
    Raises:
        ConfigError: not 0 < p < r < 1.
    Examples:
        >>> round(secret_allowance(1e-4, 1e-3), 4)
        0.6288
    """
    for name, value in (("p", p), ("r", r)):
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise ConfigError(f"{name} is {value!r}; it must be a probability between 0 and 1")
    if r == 1:
        raise ConfigError("r is 1, which promises nothing. Pass r below 1, or another mechanism.")
    if not 0 < p < r < 1:
        raise ConfigError(f"p is {p} and r is {r}; they must satisfy 0 < p < r < 1")
    return float(norm.isf(p) - norm.isf(r))


def strength(event: DpEvent) -> float:
    """Return mu of Gaussian DP per unit of weight of the sums in a tree of events, with the margin of their grid.

    Raises:
        PrivacyError: the tree holds an event that is no sum of weighted rows.
    """
    return math.sqrt(_squared(event))


def _squared(event: DpEvent) -> float:
    if isinstance(event, SelfComposedDpEvent):
        return float(event.count * _squared(event.event))
    if isinstance(event, ComposedDpEvent):
        return sum(map(_squared, event.events))
    if not isinstance(event, SecretGaussianDpEvent):
        raise PrivacyError(f"{type(event).__name__} protects no secret.")
    return (event.norm / event.sigma) ** 2 / (1 - (_SMOOTH / (event.sigma * event.grid)) ** 2)


def reached(p: float, allowance: float, event: DpEvent) -> float:
    """Return r for secrets of prior p whose rows have at most a weight together, after all sums of a tree of events.

    Args:
        p (`float`): the largest prior probability. Public.
        allowance (`float`): the largest sum of weights. Public.
        event (`DpEvent`): the tree.
    Returns:
        `float`: the largest probability of a right guess; pessimistic.
    """
    return float(_RATIO * norm.sf(norm.isf(min(1.0, _RATIO * p)) - allowance * strength(event)))


def usable(p: float, r: float, event: DpEvent) -> float:
    """Return the largest sum of weights, rounded down, that keeps (p, r) after all sums of a tree of events.

    Args:
        p (`float`): the largest prior probability. Public.
        r (`float`): the bound to keep. Public.
        event (`DpEvent`): the tree.
    Returns:
        `float`: an allowance; `reached` of it is at most r.
    Raises:
        ConfigError: not 0 < p < r < 1, or r is so close to p that no weight is left.
    """
    secret_allowance(p, r)
    found = _SHRINK * (norm.isf(_RATIO * p) - norm.isf(r / _RATIO)) / strength(event)
    if not found * GRID >= LEAST_GRID:
        raise ConfigError(f"r is {r} beside p {p}: so little more leaves rows with a secret no weight. Raise r.")
    return float(found)


def usable_by_kind(pairs: Mapping[str, tuple[float, float]], event: DpEvent) -> dict[str, float]:
    """Return `usable` for each kind of secret. Public."""
    return {kind: usable(p, r, event) for kind, (p, r) in pairs.items()}


def noisy_sums(
    steps: np.ndarray, places: np.ndarray, size: int, event: SecretGaussianDpEvent, vectors: np.ndarray | None = None
) -> np.ndarray:
    """Add up weighted rows by place, and add noise; the event is `SecretGaussianDpEvent`. There is always noise.

    Args:
        steps (`np.ndarray`): weights in steps of the grid, shape (n,), int64, between 0 and `event.grid`. Sensitive.
        places (`np.ndarray`): the place of each row, shape (n,), int64. Sensitive.
        size (`int`): the number of places. Public.
        event (`SecretGaussianDpEvent`): the noise; its norm is 1 for counts, sqrt(2) with vectors.
        vectors (`np.ndarray`, *optional*): rows of norm at most 1, shape (n, d), which are added up too. Sensitive.
    Returns:
        `np.ndarray`: noisy sums in rows, float64: shape (size,), or (size, 1 + d) with the counts first. Public once
            it is committed to the ledger.
    Sensitivity:
        L2 <= norm x the sum of the weights of the rows that are zeroed, whatever they hold.
    Raises:
        PrivacyError: weights are no steps of the grid, or the event is that of another sum.
    """
    needed = 1.0 if vectors is None else math.sqrt(2)
    if not event.norm >= needed:
        raise PrivacyError(f"the event has norm {event.norm}; these sums have {needed}.")
    if steps.dtype != np.int64 or (len(steps) and not 0 <= steps.min() <= steps.max() <= event.grid):
        raise PrivacyError("weights must be whole steps of the grid, from 0 to 1.")
    clean = np.zeros((size, 1 if vectors is None else 1 + vectors.shape[1]), dtype=np.int64)
    for start in range(0, len(steps), _BLOCK):
        part = slice(start, start + _BLOCK)
        added = steps[part, None]
        if vectors is not None:
            rows = vectors[part].astype(np.float64)
            rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
            added = np.hstack([added, np.trunc(added * rows).astype(np.int64)])
        where = (np.ones(len(added), dtype=np.int64), (places[part], np.arange(len(added))))
        clean += sparse.csr_array(where, shape=(size, len(added))) @ added
    noisy = discrete_gaussian(clean.reshape(-1), event.sigma * event.grid) / event.grid
    return noisy if vectors is None else noisy.reshape(clean.shape)
