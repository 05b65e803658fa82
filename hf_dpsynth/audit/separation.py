"""How well a score tells members from others: the three figures of every membership attack.

The area under the curve says how well on average, the rate of true positives at 1 % false ones whether anybody is
told with certainty, and the empirical epsilon what a differentially private release of a single record would have had
to be for such rates. Members of one run are not independent of each other, so that epsilon refutes no claim; coins for
each canary and `one_run` do. Sources: Carlini et al. 2022, arXiv:2112.03570 (rates at few false positives); Newcombe
2006, Statistics in Medicine 25:559, method 5 (interval of the area).
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm, rankdata

from hf_dpsynth.audit.attacks import AttackResult, Curve
from hf_dpsynth.audit.findings import Finding, check_confidence, check_delta, numbers
from hf_dpsynth.audit.rates import both_ends, direct_epsilon, upper_rate
from hf_dpsynth.audit.repeated import best_threshold
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import check_seed
from hf_dpsynth.privacy.keys import public_generator

AUC, TPR, EMPIRICAL_EPSILON = "auc", "tpr_at_1_fpr", "empirical_epsilon"
LEAST = 10  # scores of a side
_FALSE, _MOST_POINTS = 0.01, 200
_FEW = "{n} others are fewer than 100, so this is the rate at no false positive."
_NOT_A_BOUND = (
    "It takes members and others for independent draws, which records of one run are not, so it refutes no claim."
)


def discrimination(
    members: Sequence[float] | np.ndarray,
    others: Sequence[float] | np.ndarray,
    *,
    attack: str,
    confidence: float = 0.95,
    delta: float = 1e-5,
    limits: tuple[str, ...] = (),
    seed: int = 0,
) -> AttackResult:
    """Say how well a score, larger for members, tells them from others.

    Args:
        members (`Sequence[float]`): scores of records that were used, shape (n,). Sensitive.
        others (`Sequence[float]`): scores of like records that were not, shape (m,). Sensitive.
        attack (`str`): what the attack is called.
        confidence (`float`, defaults to 0.95): that of each interval alone.
        delta (`float`, defaults to 1e-5): the delta of the empirical epsilon.
        limits (`tuple[str, ...]`): sentences that every figure says besides.
        seed (`int`, defaults to 0): of the public halves, of which one chooses a threshold and the other is counted.
    Returns:
        `AttackResult`: `auc` (.5 for an attack that knows nothing), `tpr_at_1_fpr` (.01 for such) with the
        Clopper-Pearson interval at its threshold, and `empirical_epsilon`, a lower bound for independent records.
        Sensitive.
    Raises:
        ConfigError: fewer than 10 scores on a side, scores that are not finite or all equal, or an argument out of
            range.
    Examples:
        >>> from hf_dpsynth.audit import discrimination
        >>> found = discrimination(range(50, 150), range(100), attack="an example")
        >>> found["auc"].value, found["tpr_at_1_fpr"].value
        (0.875, 0.51)
    """
    check_confidence(confidence)
    check_delta(delta)
    check_seed(seed)
    inside, outside = (_scores(name, side) for name, side in (("members", members), ("others", others)))
    if np.ptp(np.concatenate([inside, outside])) == 0:
        raise ConfigError("all scores are equal: they tell nothing of who was used. Pass another score.")
    found = (
        (AUC, *_area(inside, outside, confidence), ()),
        (TPR, *_sure(inside, outside, confidence), _few(len(outside))),
        (EMPIRICAL_EPSILON, *_epsilon(inside, outside, confidence, delta, seed), (_NOT_A_BOUND,)),
    )
    findings = tuple(
        Finding(
            attack=attack,
            metric=metric,
            value=value,
            interval=interval,
            n=len(inside) + len(outside),
            confidence=confidence,
            delta=delta if metric == EMPIRICAL_EPSILON else None,
            limits=(*said, *limits),
            uses_private_data=True,
        )
        for metric, value, interval, said in found
    )
    return AttackResult(name=attack, findings=findings, curve=curve(inside, outside))


def curve(members: np.ndarray, others: np.ndarray) -> Curve:
    """Return at most 200 points of the curve of both rates, from (0, 0) to (1, 1). Sensitive if the scores are.

    Args:
        members (`np.ndarray`): scores, shape (n,).
        others (`np.ndarray`): scores, shape (m,).
    """
    thresholds = np.unique(np.concatenate([members, others]))[::-1]
    if len(thresholds) > _MOST_POINTS:
        last, half = len(thresholds) - 1, _MOST_POINTS // 2  # few false positives are where a curve says most
        places = [np.linspace(0, last, half), np.geomspace(1, last, half)]
        thresholds = thresholds[np.unique(np.concatenate(places).astype(int))]
    rates = [1 - np.searchsorted(np.sort(side), thresholds, side="left") / len(side) for side in (others, members)]
    return ((0.0, 0.0), *((float(false), float(true)) for false, true in zip(*rates, strict=True)))


def _scores(name: str, values: Sequence[float] | np.ndarray) -> np.ndarray:
    found = numbers(name, values)
    if found.ndim != 1 or len(found) < LEAST or not np.isfinite(found).all():
        raise ConfigError(
            f"{name}= has scores of shape {found.shape}; at least {LEAST} finite ones are needed, one a record"
        )
    return found


def _few(others: int) -> tuple[str, ...]:
    return (_FEW.format(n=others),) if others < 1 / _FALSE else ()


def _area(inside: np.ndarray, outside: np.ndarray, confidence: float) -> tuple[float, tuple[float, float]]:
    """Return the probability that a member scores above another, ties for half, with Newcombe's interval."""
    n, m = len(inside), len(outside)
    ranks = rankdata(np.concatenate([inside, outside]))[:n]
    area = float((ranks.sum() - n * (n + 1) / 2) / (n * m))
    z, extra = float(norm.isf((1 - confidence) / 2)), (n + m) / 2 - 1

    def beyond(truth: float) -> float:
        spread = 1 + extra * ((1 - truth) / (2 - truth) + truth / (1 + truth))
        return (area - truth) ** 2 - z**2 * truth * (1 - truth) * spread / (n * m)

    tiny = min(1e-9, 0.25 / (n * m))  # at the ends of the range the area itself solves the equation
    low = 0.0 if area == 0 else float(brentq(beyond, 0.0, area - tiny))
    high = 1.0 if area == 1 else float(brentq(beyond, area + tiny, 1.0))
    return area, (low, high)


def _sure(inside: np.ndarray, outside: np.ndarray, confidence: float) -> tuple[float, tuple[float, float]]:
    """Return the rate of true positives where at most 1 % of the others score higher, and its interval."""
    allowed = int(_FALSE * len(outside) + 1e-9)
    threshold = np.sort(outside)[len(outside) - 1 - allowed]
    hits, n = int((inside > threshold).sum()), len(inside)
    return hits / n, both_ends(hits, n, confidence)


def _epsilon(
    inside: np.ndarray, outside: np.ndarray, confidence: float, delta: float, seed: int
) -> tuple[float, tuple[float, float]]:
    """Return the epsilon of both rates in one half of the records, at the threshold that the other half chose."""
    rng, miss = public_generator(seed, "audit-halves"), (1 - confidence) / 2
    mixed = [side[rng.permutation(len(side))] for side in (outside, inside)]
    (one, outsiders), (two, insiders) = ((side[::2], side[1::2]) for side in mixed)
    threshold = best_threshold(one, two, miss)
    wrong, missed = int((outsiders > threshold).sum()), int((insiders <= threshold).sum())
    rates = upper_rate(wrong, len(outsiders), miss), upper_rate(missed, len(insiders), miss)
    value = direct_epsilon(*rates, delta)
    return value, (value, math.inf)
