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
_ALONE = 0.1  # of 1 - confidence, for outcomes one by one
_OFF = 1e-6
_LEAST_DEGREES = 100


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
    """Compare how often each outcome came with its probability (Pearson's chi-square, and each outcome alone).

    Outcomes that are too rare for the chi-square law at this confidence are pooled with the next ones. Each is also
    tested alone by its binomial law, which is exact however rare it is: these tests share a tenth of 1 - confidence.
    Where one came that has no probability, the law is refuted.

    Args:
        counts (`np.ndarray`): of each outcome, shape (k,).
        probabilities (`np.ndarray`): of the same outcomes, shape (k,), summing to 1.
        confidence (`float`, defaults to 1 - 1e-6): a right law is refuted with probability 1 - confidence or so.
    Returns:
        `Fit`: the p-value.
    Raises:
        ConfigError: counts are none, or the probabilities do not sum to 1, as when an outcome was left out.
    Examples:
        >>> import numpy as np
        >>> from hf_dpsynth.audit import audit_counts
        >>> audit_counts(np.array([520, 480]), np.array([0.5, 0.5])).violated
        False
    """
    observed, claimed = np.asarray(counts), np.asarray(probabilities, dtype=np.float64)
    check_confidence(confidence)
    if observed.shape != claimed.shape or observed.ndim != 1 or not (observed >= 0).all() or not observed.sum() > 0:
        raise ConfigError(
            f"counts have shape {observed.shape}, probabilities {claimed.shape}; each outcome has both, none came "
            "less than 0 times, and there are draws"
        )
    if not (claimed >= 0).all() or not abs(claimed.sum() - 1) < _OFF:
        raise ConfigError(f"probabilities sum to {claimed.sum():.9g}; they are >= 0, of every outcome, and sum to 1")
    p, kept = 0.0, claimed > 0
    if not observed[~kept].any():
        both = observed[kept], claimed[kept]
        p = min(1.0, _together(*both, 1 - confidence) / (1 - _ALONE), _alone(*both) / _ALONE)
    return _fit("counts against their law (chi-square)", p, int(observed.sum()), confidence)


def _together(observed: np.ndarray, claimed: np.ndarray, miss: float) -> float:
    """Return Pearson's p-value of blocks of outcomes, the rarest first, none of which is rare."""
    # the tail of a few counts is heavier than that of a normal law, and the more so the further out one looks
    least = _LEAST_EXPECTED * max(1.0, math.log10(miss) ** 2)
    order = np.argsort(claimed, kind="stable")
    expected, begins, held = observed.sum() * claimed[order], [0], 0.0
    for place, one in enumerate(expected):
        held += one
        if held >= least and expected[place + 1 :].sum() >= least:
            begins.append(place + 1)
            held = 0.0
    came, due = np.add.reduceat(observed[order], begins), np.add.reduceat(expected, begins)
    return float(stats.chi2.sf(((came - due) ** 2 / due).sum(), max(1, len(due) - 1)))


def _alone(observed: np.ndarray, claimed: np.ndarray) -> float:
    """Return the p-value of the outcome that is least as its binomial law has it, times the number of outcomes."""
    n = observed.sum()
    sides = np.minimum(stats.binom.cdf(observed, n, claimed), stats.binom.sf(observed - 1, n, claimed))
    return min(1.0, 2 * len(observed) * float(sides.min()))


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

    Four tests share 1 - confidence: the rate, the spread of batch sizes, and pairs of neighbouring records, those that
    begin at even places and at odd ones apart, as pairs that share a record are not independent. The spread is not
    judged below a hundred steps, or more where hardly anybody is in a batch.

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
    rate = stats.binomtest(int(found.sum()), found.size, probability).pvalue
    pairs = [_pairs(found[:, first:], probability) for first in (0, 1)]
    p = min(1.0, 4 * min(rate, _spread(found.sum(axis=1), found.shape[1], probability), *pairs))
    return _fit("batches against Poisson sampling", p, found.size, confidence)


def _spread(sizes: np.ndarray, records: int, probability: float) -> float:
    """Return the p-value that batch sizes spread as binomial ones: 1 where there are too few to say."""
    variance = records * probability * (1 - probability)
    fourth = variance * (1 + 3 * probability * (1 - probability) * (records - 2))
    squares = float(((sizes - records * probability) ** 2).sum())
    # a chi-square law with the mean and the variance that this sum has: steps degrees, fewer where batches are small
    degrees = 2 * len(sizes) * variance**2 / (fourth - variance**2)
    if degrees < _LEAST_DEGREES:
        return 1.0
    scaled = squares / variance * degrees / len(sizes)
    return 2 * float(min(stats.chi2.cdf(scaled, degrees), stats.chi2.sf(scaled, degrees)))


def _pairs(drawn: np.ndarray, probability: float) -> float:
    """Return the p-value that neighbours are drawn together as often as apart: 0 and 1, 2 and 3, and so on."""
    count = drawn.shape[1] // 2
    if not count:
        return 1.0
    together = int((drawn[:, : 2 * count : 2] & drawn[:, 1 : 2 * count : 2]).sum())
    return float(stats.binomtest(together, len(drawn) * count, probability**2).pvalue)


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
