"""The divergence frontier of two histograms, which MAUVE and the n-gram metric share.

R = lambda P + (1 - lambda) Q runs from Q to P; the points (exp(-c KL(Q|R)), exp(-c KL(P|R))) are a curve from (1, 0)
to (0, 1), and the area below it is 1 where P = Q and 0 where their supports are apart. Source: Pillutla et al. 2021,
arXiv:2102.01454, section 2.
"""

import numpy as np

from hf_dpsynth.errors import ConfigError

NUM_POINTS = 25
_EDGE = 1e-6


def frontier_area(first: np.ndarray, second: np.ndarray, *, scaling: float = 5.0) -> float:
    """Return the area below the divergence frontier, the mean of the trapezoid areas over both axes.

    Args:
        first (`np.ndarray`): counts or weights, shape (k,), not negative. Sensitive if they are.
        second (`np.ndarray`): the other counts, shape (k,).
        scaling (`float`): c, how fast a divergence costs area.
    Returns:
        `float`: in [0, 1]; 1 for equal histograms. As sensitive as the counts.
    Raises:
        ConfigError: the shapes differ, a count is negative or not finite, all counts are 0, or c is not positive.
    """
    if not 0 < scaling < float("inf"):
        raise ConfigError(f"scaling is {scaling}; it is a positive number")
    p, q = _normalised(first), _normalised(second)
    if p.shape != q.shape:
        raise ConfigError(f"the histograms have {len(p)} and {len(q)} cells; both need the same")
    shares = np.linspace(_EDGE, 1 - _EDGE, NUM_POINTS)
    x = [np.exp(-scaling * _divergence(q, share * p + (1 - share) * q)) for share in shares]
    y = [np.exp(-scaling * _divergence(p, share * p + (1 - share) * q)) for share in shares]
    left, right = np.array([1.0, *x, 0.0]), np.array([0.0, *y, 1.0])
    return float((_area(left, right) + _area(right, left)) / 2)


def _normalised(counts: np.ndarray) -> np.ndarray:
    weights = np.asarray(counts, dtype=float)
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
        raise ConfigError("a histogram is a row of counts that are finite, not negative, and not all 0")
    normalised: np.ndarray = weights / weights.sum()
    return normalised


def _divergence(p: np.ndarray, r: np.ndarray) -> float:
    """Return KL(p | r) in nats; r is positive wherever p is."""
    there = p > 0
    return float(max(0.0, (p[there] * np.log(p[there] / r[there])).sum()))


def _area(x: np.ndarray, y: np.ndarray) -> float:
    order = np.lexsort((-y, x))  # at one x the curve comes from above
    return float(np.trapezoid(y[order], x[order]))
