"""Error rates of a test that tells two neighbouring data sets apart, and the epsilon that they prove.

Every (epsilon, delta)-DP mechanism keeps e^epsilon a + b >= 1 - delta and a + e^epsilon b >= 1 - delta, for the false
positive rate a and the false negative rate b of any test. Where the trade-off between them is that of a Gaussian
(Gaussian DP), the same two rates give mu, and mu a larger epsilon. The second way assumes more than the first.
Sources: Kairouz, Oh & Viswanath 2015, arXiv:1311.0776; Dong, Roth & Su 2019, arXiv:1905.02383; Nasr et al. 2023,
arXiv:2302.07956.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import beta, norm

from hf_dpsynth.audit.findings import EPSILON_LOWER, Finding

_FEW = (
    "{n} runs on a side are too few for any claim at this delta and confidence: without a single error, the bound "
    "would still be 0."
)

_NONE = "There was none to be found."


@dataclass(frozen=True, kw_only=True)
class RatesFinding(Finding):
    """A lower bound on epsilon from the two error rates of a test. `value` is one of the two epsilons below.

    Args:
        threshold (`float`): a score above it means that the record was there.
        false_positives (`float`): the rate of that without the record, as counted.
        false_negatives (`float`): the rate of the opposite with it, as counted.
        epsilon_direct (`float`): the bound from the definition of (epsilon, delta)-DP; it assumes nothing more.
        mu_lower (`float`): the bound on mu of Gaussian DP.
        epsilon_gaussian (`float`): the epsilon at delta of that mu; right where the trade-off is a Gaussian one.
    """

    threshold: float
    false_positives: float
    false_negatives: float
    epsilon_direct: float
    mu_lower: float
    epsilon_gaussian: float

    @property
    def epsilon_lower(self) -> float:
        """The bound on epsilon that `value` holds."""
        return self.value


def upper_rate(errors: int, trials: int, miss: float) -> float:
    """Return the upper end of a one-sided Clopper-Pearson interval, which is too low with probability `miss`.

    Args:
        errors (`int`): how often it happened.
        trials (`int`): of how many.
        miss (`float`): the probability of being wrong.
    """
    return 1.0 if errors >= trials else float(beta.isf(miss, errors + 1, trials - errors))


def lower_rate(errors: int, trials: int, miss: float) -> float:
    """Return the lower end of a one-sided Clopper-Pearson interval; see `upper_rate`."""
    return 1.0 - upper_rate(trials - errors, trials, miss)


def both_ends(hits: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a rate, whose ends share 1 - confidence."""
    miss = (1 - confidence) / 2
    return lower_rate(hits, trials, miss), upper_rate(hits, trials, miss)


def share(attack: str, metric: str, hits: int, trials: int, confidence: float, limits: Sequence[str] = ()) -> Finding:
    """Return a share of private things with its Clopper-Pearson interval.

    Args:
        attack (`str`): what was tried.
        metric (`str`): what was counted.
        hits (`int`): how often it was found. Sensitive.
        trials (`int`): of how many; a share of none is 0, with nothing known. Sensitive.
        confidence (`float`): that of the interval.
        limits (`Sequence[str]`): sentences on what it cannot show.
    Examples:
        >>> share("an example", "words_recovered", 5, 100, 0.95).interval[0].__round__(4)
        0.0164
    """
    return Finding(
        attack=attack,
        metric=metric,
        value=hits / trials if trials else 0.0,
        interval=both_ends(hits, trials, confidence) if trials else (0.0, 1.0),
        n=trials,
        confidence=confidence,
        delta=None,
        limits=tuple(limits) if trials else (_NONE, *limits),
        uses_private_data=True,
    )


def direct_epsilon(false_positives: float, false_negatives: float, delta: float) -> float:
    """Return the least epsilon that two error rates leave possible, by the definition of (epsilon, delta)-DP.

    Args:
        false_positives (`float`): an upper bound on the rate.
        false_negatives (`float`): likewise.
        delta (`float`): the delta.
    """
    found = 0.0
    for one, other in ((false_positives, false_negatives), (false_negatives, false_positives)):
        if 1 - delta - other > one:
            found = max(found, math.log((1 - delta - other) / one))
    return found


def gaussian_mu(false_positives: float, false_negatives: float) -> float:
    """Return the least mu of Gaussian DP that two error rates leave possible."""
    return max(0.0, float(norm.isf(false_positives) + norm.isf(false_negatives)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon at delta > 0 of mu-Gaussian DP.

    Args:
        mu (`float`): the distance of the two Gaussians in standard deviations.
        delta (`float`): the delta.
    Examples:
        >>> round(gaussian_epsilon(1.0, 1e-5), 3)
        4.377
    """

    def excess(epsilon: float) -> float:
        first = norm.cdf(mu / 2 - epsilon / mu)
        return float(first - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu)) - delta)

    if mu <= 0 or excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, mu**2 / 2 + mu * float(norm.isf(delta)) + 1.0, xtol=1e-10))


def rates_finding(
    without: np.ndarray,
    present: np.ndarray,
    threshold: float,
    *,
    attack: str,
    delta: float,
    confidence: float,
    gaussian: bool,
    claimed: float | None,
    stretch: float = 1.0,
    limits: tuple[str, ...] = (),
    uses_private_data: bool = False,
) -> RatesFinding:
    """Count both errors of a threshold that no score here had a part in, and bound epsilon.

    Args:
        without (`np.ndarray`): scores of runs without the record, shape (n,).
        present (`np.ndarray`): scores of runs with it, shape (m,).
        threshold (`float`): a score above it says that the record was there.
        attack (`str`): what the finding is called.
        delta (`float`): the delta.
        confidence (`float`): that of both rates together.
        gaussian (`bool`): whether `value` is the epsilon by Gaussian DP, and not the direct one.
        claimed (`float`, *optional*): the epsilon that is claimed at delta.
        stretch (`float`, defaults to 1): by how much mu is divided, where draws are whole numbers.
        limits (`tuple[str, ...]`): sentences that the finding says besides.
        uses_private_data (`bool`): whether the scores are private.
    """
    miss = (1 - confidence) / 2
    wrong, missed = int((without > threshold).sum()), int((present <= threshold).sum())
    high = upper_rate(wrong, len(without), miss), upper_rate(missed, len(present), miss)
    mu, direct = gaussian_mu(*high) / stretch, direct_epsilon(*high, delta)
    by_mu = gaussian_epsilon(mu, delta)
    value = by_mu if gaussian else direct
    if direct_epsilon(upper_rate(0, len(without), miss), upper_rate(0, len(present), miss), delta) == 0:
        limits = (*limits, _FEW.format(n=min(len(without), len(present))))
    return RatesFinding(
        attack=attack,
        metric=EPSILON_LOWER,
        value=value,
        interval=(value, math.inf),
        n=len(without) + len(present),
        confidence=confidence,
        delta=delta,
        claimed=claimed,
        limits=limits,
        uses_private_data=uses_private_data,
        threshold=float(threshold),
        false_positives=wrong / len(without),
        false_negatives=missed / len(present),
        epsilon_direct=direct,
        mu_lower=mu,
        epsilon_gaussian=by_mu,
    )
