"""Samplers of the word mechanisms, each beside its event. Metric DP, not (epsilon, delta)-DP.

The loss between two words is a scale times their distance; which distance it is, the plan's guarantee says. Releasing
the same text again adds the scales. Noise is drawn in double precision: what has a probability below 2^-53 may never
occur.
"""

from dataclasses import dataclass

import numpy as np
from dp_accounting import DpEvent

from hf_dpsynth.errors import ConfigError

LEAST_EPSILON = 1e-100
_FARTHEST = 2**53  # whole numbers up to here are exact in double precision


@dataclass(frozen=True)
class WordDpEvent(DpEvent):  # type: ignore[misc]
    """One release of each word of each text at a scale of a metric.

    Args:
        epsilon (`float`): the loss for each unit of distance.
    """

    epsilon: float


@dataclass(frozen=True)
class MultivariateLaplaceDpEvent(WordDpEvent):
    """Adds noise with density proportional to exp(-epsilon |z|), in the norm of the metric, to each embedding."""


@dataclass(frozen=True)
class ExponentialWordDpEvent(WordDpEvent):
    """Draws v with probability proportional to exp(-epsilon u(w, v) / 2), where |u(w, v) - u(w', v)| <= d(w, w')."""


@dataclass(frozen=True)
class TwoSidedGeometricDpEvent(WordDpEvent):
    """Adds noise with P(z) proportional to exp(-epsilon |z|) on the whole numbers to each word's place in a list."""


@dataclass(frozen=True)
class TagResponseDpEvent(DpEvent):  # type: ignore[misc]
    """Keeps each word's tag with probability e^epsilon / (e^epsilon + T - 1), else draws another of the T tags.

    It stands beside an event of the word itself, in whose metric it is counted.

    Args:
        epsilon (`float`): the loss where the tags of two words differ.
    """

    epsilon: float


def checked(epsilon: float) -> float:
    """Return a scale as a float.

    Raises:
        ConfigError: it is NaN or below 1e-100.
    """
    if not epsilon >= LEAST_EPSILON:
        raise ConfigError(f"epsilon is {epsilon}; it must be a number >= {LEAST_EPSILON}, or infinite for no privacy")
    return float(epsilon)


def multivariate_laplace(
    generator: np.random.Generator, epsilon: float, count: int, dimension: int, root: np.ndarray | None = None
) -> np.ndarray:
    """Draw noise with density proportional to exp(-epsilon |z|); epsilon-metric-DP for the distance of that norm.

    Direction uniform on the sphere, radius ~ Gamma(dimension, 1/epsilon); then, where a root R is given, z = R times
    that, whose density is proportional to exp(-epsilon |R^-1 z|): metric DP in the norm |R^-1 z|.

    Args:
        generator (`np.random.Generator`): a secret stream of `keys.Key`.
        epsilon (`float`): privacy per unit of distance.
        count (`int`): the number of draws.
        dimension (`int`): the width of the embedding.
        root (`np.ndarray`, *optional*): an invertible matrix R, shape (dimension, dimension). Public.
    Returns:
        `np.ndarray`: shape (count, dimension), float64. Sensitive.
    """
    direction = generator.standard_normal((count, dimension))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    noise = direction * generator.gamma(dimension, 1.0 / epsilon, size=(count, 1))
    return noise if root is None else np.einsum("ij,kj->ki", root, noise)


def two_sided_geometric(generator: np.random.Generator, epsilon: float, count: int) -> np.ndarray:
    """Draw whole numbers with P(z) = tanh(epsilon / 2) exp(-epsilon |z|): the difference of two geometric numbers.

    Args:
        generator (`np.random.Generator`): a secret stream of `keys.Key`.
        epsilon (`float`): the loss for each step.
        count (`int`): the number of draws.
    Returns:
        `np.ndarray`: shape (count,), int64, within +-2^53. Sensitive.
    """
    steps = np.floor(generator.standard_exponential((2, count)) / epsilon)
    # cut after the difference: two waits that were cut alike would cancel and leave no noise
    return np.asarray(np.clip(steps[0] - steps[1], -_FARTHEST, _FARTHEST), dtype=np.int64)


def uniforms(generator: np.random.Generator, count: int) -> np.ndarray:
    """Draw the secret places in [0, 1) that `at_places` turns into draws; shape (count,), float64. Sensitive."""
    return generator.random(count)


def at_places(weights: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the draws of a discrete distribution at uniform places, by its cumulative sum.

    Args:
        weights (`np.ndarray`): shape (m,), float64, >= 0, not all 0; proportional to the probabilities.
        places (`np.ndarray`): of `uniforms`, shape (n,). Sensitive.
    Returns:
        `np.ndarray`: indices, shape (n,), int64; an index of weight 0 never occurs.
    """
    total = np.cumsum(weights)
    found = np.searchsorted(total, places * total[-1], side="right")
    return np.asarray(np.minimum(found, np.flatnonzero(weights)[-1]))


def part_places(sums: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Turn uniform places in a whole into parts and uniform places within these, for a draw in two steps.

    Args:
        sums (`np.ndarray`): the weight of each part, shape (m,), float64, >= 0, not all 0.
        places (`np.ndarray`): of `uniforms`, shape (n,). Sensitive.
    Returns:
        `tuple[np.ndarray, np.ndarray]`: parts, int64, and the places that `at_places` takes within them, in [0, 1)
        but for rounding; shape (n,). Sensitive.
    """
    parts = at_places(sums, places)
    total = np.cumsum(sums)
    before = np.concatenate(([0.0], total[:-1]))
    return parts, (places * total[-1] - before[parts]) / sums[parts]


def randomized_response(
    generator: np.random.Generator, values: np.ndarray, epsilon: float, categories: int
) -> np.ndarray:
    """Keep each value with probability e^epsilon / (e^epsilon + T - 1), else draw one of the other T - 1 uniformly.

    Args:
        generator (`np.random.Generator`): a secret stream of `keys.Key`.
        values (`np.ndarray`): whole numbers in [0, T), shape (n,). Sensitive.
        epsilon (`float`): the loss between two values; infinite keeps all.
        categories (`int`): T >= 2.
    Returns:
        `np.ndarray`: shape (n,), as `values`. Its event is `TagResponseDpEvent`.
    Raises:
        ConfigError: epsilon is no number > 0, or T < 2.
    """
    if not (epsilon > 0 and categories >= 2):
        raise ConfigError(f"epsilon is {epsilon} for {categories} categories; it must be > 0, for at least 2")
    leave = generator.random(len(values)) * (1 + (categories - 1) * np.exp(-epsilon)) >= 1
    shift = 1 + generator.integers(categories - 1, size=len(values))
    return np.asarray(np.where(leave, (values + shift) % categories, values))
