"""Do draws have the law that is claimed? Tests of noise, of counts, of independence and of sampling.

A test refutes a law where its p-value is below 1 - confidence. The confidence is high by default, as these run in test
suites: a right sampler fails once in a million.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy import stats

from hf_dpsynth.audit.findings import P_VALUE, Fit, check_confidence
from hf_dpsynth.errors import ConfigError

_SURE = 1 - 1e-6
_LEAST_EXPECTED = 5


def audit_noise(draws: np.ndarray, cdf: Callable[[np.ndarray], np.ndarray], confidence: float = _SURE) -> Fit:
    """Compare continuous draws with a distribution function (Kolmogorov-Smirnov).

    Power: with 40,000 draws of a normal law, or of the radius of Laplace noise in any dimension, a scale that is 10 %
    off is refuted with probability above .999 at the default confidence.

    Args:
        draws (`np.ndarray`): numbers, shape (n,).
        cdf (`Callable`): the claimed distribution function, e.g. `scipy.stats.gamma(50, scale=2.0).cdf`.
        confidence (`float`, defaults to 1 - 1e-6): a right law is refuted with probability 1 - confidence.
    Returns:
        `Fit`: the p-value.
    Examples:
        >>> from scipy.stats import norm
        >>> from hf_dpsynth.audit import audit_noise
        >>> from hf_dpsynth.privacy.keys import public_generator
        >>> draws = public_generator(0, "doc").standard_normal(40_000)
        >>> audit_noise(draws, norm.cdf).violated, audit_noise(1.1 * draws, norm.cdf).violated
        (False, True)
    """
    found = np.asarray(draws, dtype=np.float64)
    if found.ndim != 1 or not len(found):
        raise ConfigError(f"draws have shape {found.shape}; pass a row of numbers")
    return _fit("noise against its law (Kolmogorov-Smirnov)", stats.kstest(found, cdf).pvalue, len(found), confidence)


def audit_counts(counts: np.ndarray, probabilities: np.ndarray, confidence: float = _SURE) -> Fit:
    """Compare how often each outcome came with its probability (Pearson's chi-square).

    Outcomes that are expected fewer than 5 times are pooled; where one came that has no probability, or one of a pool
    that is expected less than once in 1000 came more than once, the law is refuted.

    Args:
        counts (`np.ndarray`): of each outcome, shape (k,).
        probabilities (`np.ndarray`): of the same outcomes, shape (k,), summing to 1.
        confidence (`float`, defaults to 1 - 1e-6): a right law is refuted with probability 1 - confidence or so.
    Returns:
        `Fit`: the p-value.
    Examples:
        >>> import numpy as np
        >>> from hf_dpsynth.audit import audit_counts
        >>> audit_counts(np.array([520, 480]), np.array([0.5, 0.5])).violated
        False
    """
    observed, claimed = np.asarray(counts), np.asarray(probabilities, dtype=np.float64)
    if observed.shape != claimed.shape or observed.ndim != 1 or not (claimed >= 0).all() or not observed.sum() > 0:
        raise ConfigError(
            f"counts have shape {observed.shape}, probabilities {claimed.shape}; each outcome has both, and there are "
            "draws"
        )
    expected, n = observed.sum() * claimed / claimed.sum(), int(observed.sum())
    what = "counts against their law (chi-square)"
    if observed[claimed == 0].any():
        return _fit(what, 0.0, n, confidence)
    observed, expected = observed[claimed > 0], expected[claimed > 0]
    rare = expected < _LEAST_EXPECTED
    if rare.any():
        observed = np.append(observed[~rare], observed[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        if expected[-1] < 1e-3:  # a single draw of these has a chance of 0.1 %: none is due
            if observed[-1] > 1:
                return _fit(what, 0.0, n, confidence)
            observed, expected = observed[:-1], expected[:-1]
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return _fit(what, float(stats.chi2.sf(statistic, max(1, len(observed) - 1))), n, confidence)


def audit_independence(rows: np.ndarray, confidence: float = _SURE) -> Fit:
    """Ask whether normal noise of several steps, workers or process starts was drawn apart: all pairs of rows.

    Noise that two of them share subtracts to a clean difference. The correlation of two rows without their means has a
    t distribution; the smallest p-value counts as often as there are pairs.

    Power: two equal rows, or one row and its multiple, are always refuted; with n numbers a row a correlation above
    (7 + sqrt(2 ln(pairs))) / sqrt(n) nearly always.

    Args:
        rows (`np.ndarray`): noise of mean 0, shape (k, n), k >= 2, n >= 3.
        confidence (`float`, defaults to 1 - 1e-6): independent noise is refuted with probability 1 - confidence.
    Returns:
        `Fit`: the p-value.
    Examples:
        >>> import numpy as np
        >>> from hf_dpsynth.audit import audit_independence
        >>> from hf_dpsynth.privacy.keys import public_generator
        >>> rows = public_generator(0, "doc").standard_normal((3, 100))
        >>> audit_independence(rows).violated, audit_independence(rows[[0, 1, 0]]).violated
        (False, True)
    """
    found = np.asarray(rows, dtype=np.float64)
    if found.ndim != 2 or found.shape[0] < 2 or found.shape[1] < 3:
        raise ConfigError(f"rows have shape {found.shape}; pass 2 rows of 3 numbers at least")
    count, n = found.shape
    norms = np.linalg.norm(found, axis=1, keepdims=True)
    what = "noise shared between rows (correlations of all pairs)"
    if not (norms > 0).all():  # a row without noise is no noise of its own
        return _fit(what, 0.0, found.size, confidence)
    largest = 0.0
    unit = found / norms
    for row in range(count - 1):
        largest = max(largest, float(np.abs(unit[row + 1 :] @ unit[row]).max()))
    share = min(1.0, largest)
    p = 0.0 if share > 1 - 1e-12 else 2 * float(stats.t.sf(share * math.sqrt((n - 1) / (1 - share**2)), n - 1))
    return _fit(what, min(1.0, p * count * (count - 1) / 2), found.size, confidence)


def audit_sampling(drawn: np.ndarray, probability: float, confidence: float = 0.999) -> Fit:
    """Ask whether records enter batches alone with the probability that is accounted (Poisson sampling).

    Three tests share 1 - confidence: the rate, the spread of batch sizes, and pairs of neighbouring records.

    Power: at 4,000 steps of 60 records and a probability of .2, a rate 10 % off, batches of a fixed size and batches
    that take neighbours together are each refuted with probability above .999.

    Args:
        drawn (`np.ndarray`): who was in which batch, shape (steps, records), bool.
        probability (`float`): `sampling_probability` of the event.
        confidence (`float`, defaults to 0.999): a right sampler is refuted with probability 1 - confidence.
    Returns:
        `Fit`: the p-value.
    Examples:
        >>> from hf_dpsynth.audit import audit_sampling
        >>> from hf_dpsynth.privacy.keys import public_generator
        >>> draws = public_generator(0, "doc").random((4000, 60))
        >>> audit_sampling(draws < 0.2, 0.2).violated, audit_sampling(draws < 0.22, 0.2).violated
        (False, True)
    """
    found = np.asarray(drawn)
    if found.ndim != 2 or found.dtype != np.bool_ or found.shape[1] < 2 or not 0 < probability < 1:
        raise ConfigError(
            f"drawn has shape {found.shape} and type {found.dtype}, probability is {probability}; pass steps x "
            "records of bool, and a number between 0 and 1"
        )
    steps, present = found.shape
    rate = stats.binomtest(int(found.sum()), found.size, probability).pvalue
    spread = found.sum(axis=1).var() * steps / (present * probability * (1 - probability))
    spread_p = 2 * min(stats.chi2.cdf(spread, steps), stats.chi2.sf(spread, steps))
    together = int((found[:, 1:] & found[:, :-1]).sum())
    pairs = stats.binomtest(together, steps * (present - 1), probability**2).pvalue
    p = min(1.0, 3 * min(rate, spread_p, pairs))
    return _fit("batches against Poisson sampling", p, found.size, confidence)


def _fit(attack: str, p: float, n: int, confidence: float) -> Fit:
    check_confidence(confidence)
    return Fit(
        attack=attack,
        metric=P_VALUE,
        value=float(p),
        interval=None,
        n=n,
        confidence=confidence,
        delta=None,
    )
