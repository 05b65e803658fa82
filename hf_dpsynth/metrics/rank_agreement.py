"""Agreement of two rankings of the same trials, e.g. of hyper-parameters by synthetic and by real data.

Spearman and Kendall weigh all trials alike; rank-biased overlap weighs the top, which is where one chooses. The seed
gives 85 % of its weight to the first 25 % of the ranking. Source: Webber, Moffat & Zobel 2010; Kurakin et al. 2023,
arXiv:2306.01684, Table 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import Metric, Result


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation, or None where one side has all scores equal and so no order.

    Args:
        first (`Sequence[float]`): scores of the trials, higher is better, length n.
        second (`Sequence[float]`): other scores of the same trials, length n.
    Raises:
        ConfigError: the lengths differ, there are fewer than two trials, or a score is not finite.
    """
    left, right = _scores(first, second)
    if np.ptp(left) == 0 or np.ptp(right) == 0:
        return None
    from scipy.stats import spearmanr

    return float(spearmanr(left, right).statistic)


def kendall(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Kendall's tau-b, or None where one side has all scores equal and so no order.

    Args:
        first (`Sequence[float]`): scores of the trials, higher is better, length n.
        second (`Sequence[float]`): other scores of the same trials, length n.
    Raises:
        ConfigError: the lengths differ, there are fewer than two trials, or a score is not finite.
    """
    left, right = _scores(first, second)
    if np.ptp(left) == 0 or np.ptp(right) == 0:
        return None
    from scipy.stats import kendalltau

    return float(kendalltau(left, right).statistic)


def rbo(first: Sequence[float], second: Sequence[float], p: float) -> float:
    """Return the extrapolated rank-biased overlap of two rankings by score, highest first.

    Trials with equal scores share the best rank among them and enter the overlap together (Webber et al. section
    4.4), so that the result does not depend on the order of the trials.

    Args:
        first (`Sequence[float]`): scores of the trials, higher is better, length n.
        second (`Sequence[float]`): other scores of the same trials, length n.
        p (`float`): persistence, 0 < p < 1; the smaller, the more the top weighs.
    Returns:
        `float`: in [0, 1].
    Raises:
        ConfigError: the lengths differ, there are fewer than two trials, a score is not finite, or p is out of range.
    """
    left, right = _scores(first, second)
    if not 0 < p < 1:
        raise ConfigError(f"p is {p}; it lies between 0 and 1")
    depths = np.arange(1, len(left) + 1)
    inside = [ranks(scores)[:, None] <= depths for scores in (left, right)]
    both = (inside[0] & inside[1]).sum(axis=0)
    agreement = 2 * both / (inside[0].sum(axis=0) + inside[1].sum(axis=0))
    weights = (1 - p) / p * p**depths
    return float(agreement[-1] * p ** depths[-1] + (agreement * weights).sum())


def ranks(scores: np.ndarray) -> np.ndarray:
    """Return the ranks of scores, 1 for the highest, shape (n,); equal scores share the best rank."""
    from scipy.stats import rankdata

    found: np.ndarray = rankdata(-np.asarray(scores, dtype=float), method="min")
    return found


def prefix_weight(p: float, depth: int) -> float:
    """Return the share of rank-biased overlap's weight that the first ranks have (Webber et al., equation 21).

    Args:
        p (`float`): persistence, 0 < p < 1.
        depth (`int`): the number of first ranks, at least 1.
    """
    terms = np.arange(1, depth)
    tail = np.log(1 / (1 - p)) - (p**terms / terms).sum()
    return float(1 - p ** (depth - 1) + (1 - p) / p * depth * tail)


def persistence(num_trials: int, top_fraction: float = 0.25, weight: float = 0.85) -> float:
    """Return the persistence that gives the top of a ranking its weight.

    Args:
        num_trials (`int`): trials in the ranking.
        top_fraction (`float`): the top, as a share of the trials.
        weight (`float`): the weight of the top.
    Returns:
        `float`: p, to be passed to `rbo`.
    Raises:
        ConfigError: no top is left, or weight is out of range.
    Examples:
        >>> round(persistence(28), 3)
        0.862
    """
    depth = round(num_trials * top_fraction) if 0 < top_fraction <= 1 else 0
    if not depth >= 1:
        raise ConfigError(f"top_fraction {top_fraction} of {num_trials} trials is no trial; at least one is needed")
    if not 0 < weight < 1:
        raise ConfigError(f"weight is {weight}; it lies between 0 and 1")
    from scipy.optimize import brentq

    return float(brentq(lambda p: prefix_weight(p, depth) - weight, 1e-9, 1 - 1e-9))


def _scores(first: Sequence[float], second: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    try:
        left, right = (np.asarray(list(scores), dtype=float) for scores in (first, second))
    except (TypeError, ValueError):
        raise ConfigError("scores of trials are numbers; a value is none") from None  # the cause quotes the value
    if left.ndim != 1 or left.shape != right.shape or len(left) < 2:
        raise ConfigError(f"rankings have {len(left)} and {len(right)} trials; both need the same, at least 2")
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise ConfigError("a score is NaN or infinite. Leave that trial out of both rankings.")
    return left, right


@dataclass(frozen=True, kw_only=True)
class RankAgreement(Metric):
    """Spearman, Kendall and rank-biased overlap of two lists of scores.

    Args:
        top_fraction (`float`): the top of the ranking.
        weight (`float`): the weight of the top in rank-biased overlap.
    """

    name: ClassVar[str] = "rank_agreement"
    description: ClassVar[str] = (
        "Agreement of two rankings of the same trials: Spearman, Kendall, rank-biased overlap."
    )
    source: ClassVar[str] = "Webber, Moffat & Zobel 2010; Kurakin et al. 2023, arXiv:2306.01684"
    higher_is_better: ClassVar[bool | None] = True

    top_fraction: float = 0.25
    weight: float = 0.85

    def compute(
        self, *, predictions: Sequence[float], references: Sequence[float], public_references: bool = False
    ) -> Result:
        """Compare two rankings.

        Args:
            predictions (`Sequence[float]`): scores of the trials on synthetic data, length n.
            references (`Sequence[float]`): scores of the same trials on real data, length n. Sensitive.
            public_references (`bool`): whether the references are public.
        Returns:
            `dict`: `rank_agreement` (the rank-biased overlap), `spearman` and `kendall` (None without an order),
            `persistence`, `num_trials`, `limits`, `uses_private_data`.
        Raises:
            ConfigError: the lengths differ, there are fewer than two trials, or a score is not finite.
        """
        p = persistence(len(predictions), self.top_fraction, self.weight)
        overlap = rbo(predictions, references, p)
        correlation = spearman(predictions, references)
        return {
            self.name: overlap,
            "spearman": correlation,
            "kendall": kendall(predictions, references),
            "persistence": p,
            "num_trials": len(predictions),
            "limits": [] if correlation is not None else ["all scores on one side are equal: there is no ranking"],
            "uses_private_data": not public_references,
        }
