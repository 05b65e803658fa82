"""Metric DP of words: the loss for each unit of distance, from the matrix of a law or from draws of it.

For every two inputs w, w' and every output v, |ln P(v | w) - ln P(v | w')| <= epsilon d(w, w'). A law whose
probabilities can be written down is checked in full; another one is drawn from, where intervals for all probabilities
together give a lower bound.
"""

import math
from collections.abc import Callable

import numpy as np

from hf_dpsynth.audit.findings import EPSILON_LOWER, Finding, check_confidence
from hf_dpsynth.audit.rates import lower_rate, upper_rate
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import check_count, check_seed
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.keys import public_generator

Draw = Callable[[int, int, np.random.Generator], np.ndarray]
_PER_UNIT = "Epsilon is the loss for each unit of distance: metric DP, not (epsilon, delta)-DP."


def line() -> WordVectors:
    """Return four words on a line, at -5, 0, 1 and 6: every probability on it is a short integral.

    Examples:
        >>> from hf_dpsynth.audit.matrices import line
        >>> line().words, line().vectors[:, 0].tolist()
        (('a', 'b', 'c', 'd'), [-5.0, 0.0, 1.0, 6.0])
    """
    return WordVectors(tuple("abcd"), np.array([[-5.0], [0.0], [1.0], [6.0]]), "line")


def losses(law: np.ndarray) -> np.ndarray:
    """Return the largest |log ratio| between any two rows of a law, shape (k, k); what both never return counts 0.

    Args:
        law (`np.ndarray`): probabilities, a row for each input, shape (k, m).
    """
    with np.errstate(divide="ignore"):
        logs = np.log(np.asarray(law, dtype=np.float64))
    with np.errstate(invalid="ignore"):
        gaps = np.abs(logs[:, None] - logs[None])
    gaps[np.isneginf(logs[:, None]) & np.isneginf(logs[None])] = 0.0
    return np.asarray(gaps.max(axis=2))


def audit_matrix(law: np.ndarray, distances: np.ndarray, epsilon: float, tolerance: float = 1e-9) -> Finding:
    """Check all pairs of inputs and all outputs of a law against exp(epsilon d). Exact: nothing is drawn.

    Args:
        law (`np.ndarray`): probabilities, a row for each input, shape (k, m).
        distances (`np.ndarray`): between inputs, shape (k, k); all ones are pure DP.
        epsilon (`float`): the claimed loss for each unit of distance.
        tolerance (`float`, defaults to 1e-9): rounding that a log ratio may have.
    Returns:
        `Finding`: the largest loss for each unit of distance.
    Raises:
        ConfigError: rows do not sum to 1, or the shapes do not belong together.
    Examples:
        >>> import numpy as np
        >>> from hf_dpsynth.audit import audit_matrix
        >>> law = np.array([[0.75, 0.25], [0.25, 0.75]])
        >>> found = audit_matrix(law, np.ones((2, 2)), epsilon=1.0)
        >>> round(found.value, 4), found.violated
        (1.0986, True)
    """
    rows, apart = np.asarray(law, dtype=np.float64), _apart(distances)
    if rows.ndim != 2 or apart.shape != (len(rows), len(rows)):
        raise ConfigError(f"the law has shape {rows.shape}, distances {apart.shape}; (k, m) and (k, k) are needed")
    if not (rows >= 0).all() or not np.allclose(rows.sum(axis=1), 1, atol=1e-6):
        raise ConfigError("a row of the law is no distribution: its probabilities must be >= 0 and sum to 1")
    gaps = np.maximum(0.0, losses(rows) - tolerance)
    off = ~np.eye(len(rows), dtype=bool)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(gaps == 0, 0.0, gaps / apart)[off]
    value = float(each.max(initial=0.0))
    return Finding(
        attack="all log ratios of a law",
        metric="loss_per_distance",
        value=value,
        interval=(value, value),
        n=len(rows),
        confidence=1.0,
        delta=0.0,
        claimed=float(epsilon),
        limits=(_PER_UNIT,),
    )


def audit_words(
    draw: Draw,
    distances: np.ndarray,
    epsilon: float,
    *,
    draws: int = 200_000,
    confidence: float = 0.99,
    seed: int = 0,
) -> Finding:
    """Draw outputs for every input, and bound the loss for each unit of distance from below.

    Clopper-Pearson at both ends of every probability, which share 1 - confidence (Bonferroni).

    Power: on the words of `line()` at epsilon 1 and 200,000 draws each, noise of the right scale reads 0.97 to 0.99,
    and noise of half the scale 1.6 to 1.75.

    Args:
        draw (`Callable`): `draw(input, size, generator)` returns `size` outputs, as places 0, 1, ..
        distances (`np.ndarray`): between inputs, shape (k, k).
        epsilon (`float`): the claimed loss for each unit of distance.
        draws (`int`, defaults to 200,000): for each input.
        confidence (`float`, defaults to 0.99): the probability with which a right law is not accused, at least.
        seed (`int`, defaults to 0): of the generators that `draw` gets. Public.
    Returns:
        `Finding`: `value` is the bound.
    Raises:
        ConfigError: an argument is out of range, or `draw` returns something else than `size` places.
    """
    check_count("draws", draws, 1)
    check_confidence(confidence)
    check_seed(seed)
    apart = _apart(distances)
    size = len(apart)
    outputs = [_places(draw(word, draws, public_generator(seed, "audit-words", word)), draws) for word in range(size)]
    width = 1 + max(int(found.max()) for found in outputs)
    counts = [np.bincount(found, minlength=width) for found in outputs]
    miss = (1 - confidence) / (2 * size * width)
    low = np.array([[lower_rate(int(one), draws, miss) for one in row] for row in counts])
    high = np.array([[upper_rate(int(one), draws, miss) for one in row] for row in counts])
    value = 0.0
    for one in range(size):
        for other in range(size):
            gap = float((np.log(np.maximum(low[one], 1e-300)) - np.log(high[other])).max())
            if one != other and gap > 0:
                value = max(value, gap / float(apart[one, other]) if apart[one, other] else math.inf)
    return Finding(
        attack="draws of all words",
        metric=EPSILON_LOWER,
        value=value,
        interval=(value, math.inf),
        n=size * draws,
        confidence=confidence,
        delta=0.0,
        claimed=float(epsilon),
        limits=(_PER_UNIT,),
    )


def _apart(distances: np.ndarray) -> np.ndarray:
    """Return distances, at least 2 x 2 of them; a NaN or a negative one would hide any loss."""
    found = np.asarray(distances, dtype=np.float64)
    if found.ndim != 2 or found.shape[0] != found.shape[1] or len(found) < 2 or not (found >= 0).all():
        raise ConfigError(
            f"distances have shape {found.shape}; at least 2 inputs are compared with a law each, by numbers >= 0"
        )
    return found


def _places(drawn: np.ndarray, draws: int) -> np.ndarray:
    found = np.asarray(drawn)
    if found.shape != (draws,) or not np.issubdtype(found.dtype, np.integer) or not (found >= 0).all():
        raise ConfigError(f"draw= returned shape {found.shape}, type {found.dtype}; pass {draws} places 0, 1, ..")
    return found
