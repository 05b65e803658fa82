"""Many runs with a record and many without it: the classical audit, which holds for any mechanism and any score."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import beta, norm

from hf_dpsynth.audit.findings import check_confidence, check_delta, numbers
from hf_dpsynth.audit.rates import RatesFinding, rates_finding
from hf_dpsynth.errors import ConfigError

_LEAST_RUNS = 10
_THRESHOLDS = 200
_HALVES = "The threshold was chosen on the first half of the runs, and the second half was counted."


def multi_run(
    without: Sequence[float] | np.ndarray,
    present: Sequence[float] | np.ndarray,
    delta: float,
    confidence: float,
    *,
    threshold: float | None = None,
    claimed_epsilon: float | None = None,
    uses_private_data: bool = True,
) -> RatesFinding:
    """Bound epsilon from scores of runs without and with a record, where a larger score says that it was there.

    Clopper-Pearson on both error rates, each at half of 1 - confidence. `value` is the direct bound, which assumes
    nothing; `epsilon_gaussian` is the larger one that holds where the trade-off is that of a Gaussian.

    Power: the direct bound cannot exceed ln(n / ln(2 / (1 - confidence))) or so with n runs counted on each side,
    whatever the mechanism does: 1000 show an epsilon of 5.2 at most at confidence 0.99.

    Args:
        without (`Sequence[float]`): a score for each run without the record, shape (n,).
        present (`Sequence[float]`): likewise with it, shape (m,).
        delta (`float`): the delta; > 0.
        confidence (`float`): that of both rates together.
        threshold (`float`, *optional*): one that was fixed before any of these scores was seen. When missing, the
            first half of the runs chooses it and only the second half is counted.
        claimed_epsilon (`float`, *optional*): the claim at delta.
        uses_private_data (`bool`, defaults to `True`): whether the scores come from private records.
    Returns:
        `RatesFinding`: both bounds.
    Raises:
        ConfigError: too few runs, scores that are not finite or all equal, or an argument out of range.
    Examples:
        >>> from hf_dpsynth.audit import multi_run
        >>> found = multi_run(without=range(100), present=range(500, 600), delta=1e-5, confidence=0.95, threshold=300)
        >>> round(found.epsilon_lower, 2), round(found.epsilon_gaussian, 2)
        (3.28, 21.12)
    """
    check_delta(delta, least=1e-300)
    check_confidence(confidence)
    sides = [_scores(name, values) for name, values in (("without", without), ("present", present))]
    limits: tuple[str, ...] = ()
    if threshold is None:
        if np.ptp(np.concatenate(sides)) == 0:
            raise ConfigError("all scores are equal: they tell nothing. Pass scores that differ between runs.")
        halves = [(side[: len(side) // 2], side[len(side) // 2 :]) for side in sides]
        threshold = best_threshold(halves[0][0], halves[1][0], (1 - confidence) / 2)
        sides, limits = [half[1] for half in halves], (_HALVES,)
    elif not np.isfinite(threshold):
        raise ConfigError(f"threshold is {threshold}; it is a finite number")
    return rates_finding(
        sides[0],
        sides[1],
        threshold,
        attack="runs with and without a record",
        delta=delta,
        confidence=confidence,
        gaussian=False,
        claimed=claimed_epsilon,
        limits=limits,
        uses_private_data=uses_private_data,
    )


def _scores(name: str, values: Sequence[float] | np.ndarray) -> np.ndarray:
    found = numbers(name, values)
    if found.ndim != 1 or len(found) < _LEAST_RUNS or not np.isfinite(found).all():
        raise ConfigError(f"{name}= has shape {found.shape}; it holds at least {_LEAST_RUNS} finite scores, one a run")
    return found


def best_threshold(without: np.ndarray, present: np.ndarray, miss: float) -> float:
    """Return the threshold that shows most among quantiles of both sides."""
    tried = np.unique(np.quantile(np.concatenate([without, present]), np.linspace(0, 1, _THRESHOLDS)))
    wrong = len(without) - np.searchsorted(np.sort(without), tried, side="right")
    missed = np.searchsorted(np.sort(present), tried, side="right")
    shown = norm.isf(_upper(wrong, len(without), miss)) + norm.isf(_upper(missed, len(present), miss))
    return float(tried[np.argmax(shown)])


def _upper(errors: np.ndarray, trials: int, miss: float) -> np.ndarray:
    """Return `upper_rate` of many counts at once."""
    return np.where(errors >= trials, 1.0, beta.isf(miss, errors + 1, np.maximum(trials - errors, 1)))
