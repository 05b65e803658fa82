"""Which cheap metric foretells downstream accuracy: correlations over several synthetic sets.

A metric whose lower scores are better is turned around first, so that a positive figure always means that the metric
and the accuracy agree. Source: Kurakin et al. 2023, arXiv:2306.01684, section 5.3, Table 4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from hf_dpsynth import metrics
from hf_dpsynth.downstream.table import markdown, shown
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics import rank_agreement

_FEWEST_SETS, _FEW_SETS = 2, 5


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """One metric beside the accuracy.

    Args:
        metric (`str`): its name.
        higher_is_better (`bool`): its direction; scores of a metric that should be low were turned around.
        spearman (`float`, *optional*): rank correlation; None where all scores or all accuracies are equal.
        kendall (`float`, *optional*): tau-b; None likewise.
        pearson (`float`, *optional*): linear correlation; None likewise.
    """

    metric: str
    higher_is_better: bool
    spearman: float | None
    kendall: float | None
    pearson: float | None


@dataclass(frozen=True, kw_only=True)
class ProxyCorrelation:
    """The correlation of each metric with downstream accuracy.

    Args:
        rows (`tuple[Proxy, ...]`): one a metric, in the order in which they were given.
        sets (`tuple[str, ...]`): the names of the synthetic sets.
        limits (`tuple[str, ...]`): what a reader must know.

    No guarantee covers these figures: accuracy and most metrics read real rows.
    """

    rows: tuple[Proxy, ...]
    sets: tuple[str, ...]
    limits: tuple[str, ...] = ()

    uses_private_data: ClassVar[bool] = True

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values. Sensitive."""
        return {
            "uses_private_data": self.uses_private_data,
            "rows": [asdict(row) for row in self.rows],
            "sets": list(self.sets),
            "limits": list(self.limits),
        }

    def table(self) -> str:
        """Return the lines as aligned Markdown, with the limits below. Sensitive."""
        lines = [
            [
                row.metric,
                "higher" if row.higher_is_better else "lower",
                *(shown(value) for value in (row.spearman, row.kendall, row.pearson)),
            ]
            for row in self.rows
        ]
        heads = ["metric", "better", "Spearman", "Kendall", "Pearson"]
        said = f"{len(self.sets)} synthetic sets; positive: the metric agrees with the accuracy."
        return "\n".join([markdown(heads, lines), "", said, *(f"- {limit}." for limit in self.limits)])

    def __str__(self) -> str:
        return self.table()


def proxy_correlation(
    *,
    scores: Mapping[str, Mapping[str, float]],
    accuracy: Mapping[str, float],
    higher_is_better: Mapping[str, bool] | None = None,
) -> ProxyCorrelation:
    """Correlate metrics with downstream accuracy over several synthetic sets.

    Args:
        scores (`Mapping[str, Mapping[str, float]]`): for each metric, its score of each set by the set's name.
        accuracy (`Mapping[str, float]`): the accuracy on real test rows of a model trained on each set. Sensitive.
        higher_is_better (`Mapping[str, bool]`, *optional*): the direction of metrics that this library does not know,
            or whose direction depends on the text: the perplexity of test texts under the generator is better when
            it is lower.
    Returns:
        `ProxyCorrelation`: `.rows`, `.to_dict()` and `.table()`. Sensitive.
    Raises:
        ConfigError: there are fewer than two sets, a metric lacks one or has another, a score is not finite, or a
            direction is unknown.
    Examples:
        >>> from hf_dpsynth import downstream
        >>> found = downstream.proxy_correlation(
        ...     scores={"fid": {"a": 9.0, "b": 4.0, "c": 1.0}}, accuracy={"a": 0.6, "b": 0.7, "c": 0.9}
        ... )
        >>> round(found.rows[0].spearman, 6), found.limits
        (1.0, ('3 synthetic sets: a correlation over fewer than 5 is mostly chance',))
    """
    sets = tuple(accuracy)
    if len(sets) < _FEWEST_SETS or not scores:
        raise ConfigError(f"accuracy= has {len(sets)} sets and scores= {len(scores)} metrics; at least 2 and 1 needed")
    known = dict(higher_is_better or {})
    rows = tuple(_proxy(name, by_set, accuracy, known.get(name)) for name, by_set in scores.items())
    limits = []
    if len(sets) < _FEW_SETS:
        limits.append(f"{len(sets)} synthetic sets: a correlation over fewer than {_FEW_SETS} is mostly chance")
    limits += [f"{row.metric}: all values of one side are equal" for row in rows if row.pearson is None]
    return ProxyCorrelation(rows=rows, sets=sets, limits=tuple(limits))


def _proxy(name: str, by_set: Mapping[str, float], accuracy: Mapping[str, float], stated: bool | None) -> Proxy:
    """Correlate one metric."""
    if set(by_set) != set(accuracy):
        raise ConfigError(
            f"scores[{name!r}] and accuracy= differ in the sets {sorted(set(by_set) ^ set(accuracy))}; both need the "
            "same ones"
        )
    higher = _direction(name) if stated is None else stated
    if higher is None:
        raise ConfigError(f"{name} has no direction of its own; state it: higher_is_better={{{name!r}: False}}")
    signed = [by_set[key] if higher else -by_set[key] for key in accuracy]
    accuracies = list(accuracy.values())
    return Proxy(
        metric=name,
        higher_is_better=higher,
        spearman=rank_agreement.spearman(signed, accuracies),
        kendall=rank_agreement.kendall(signed, accuracies),
        pearson=_pearson(signed, accuracies),
    )


def _direction(name: str) -> bool | None:
    """Return the direction that the metric of this name states."""
    direction: bool | None = metrics.load(name).higher_is_better if name in metrics.list_metrics() else None
    return direction


def _pearson(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the linear correlation, or None where one side is constant."""
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(first, second)[0, 1])
