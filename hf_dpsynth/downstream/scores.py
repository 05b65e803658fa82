"""From predictions to figures: accuracy with its interval and spread, macro-F1, subgroups and their gap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hf_dpsynth.downstream.examples import Examples
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.extras import need

_FEW_ROWS = 30


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The figures of one model. Sensitive where the test rows are.

    Args:
        accuracy (`float`): mean over the fits.
        interval (`tuple[float, float]`): Wilson's interval for the mean accuracy, for the draw of the test rows.
        spread (`float`, *optional*): standard deviation over the fits; None for a single fit.
        macro_f1 (`float`): mean over the fits of the mean F1 of the classes that occur in the test rows.
        by_group (`Mapping[str, float]`): mean accuracy by subgroup.
        gap (`float`, *optional*): highest less lowest accuracy of a subgroup; None with fewer than two.
        limits (`tuple[str, ...]`): what a reader must know.
    """

    accuracy: float
    interval: tuple[float, float]
    spread: float | None
    macro_f1: float
    by_group: Mapping[str, float] = field(default_factory=dict)
    gap: float | None = None
    limits: tuple[str, ...] = ()


def score(predictions: Sequence[np.ndarray], test: Examples, confidence: float) -> Scores:
    """Score the predictions of one or several fits.

    Args:
        predictions (`Sequence[np.ndarray]`): numbers of classes by fit, each of shape (n,). Sensitive if the rows are.
        test (`Examples`): the test rows. Sensitive if they are.
        confidence (`float`): of the interval, between 0 and 1.
    Raises:
        ConfigError: there are no test rows or no predictions, or `confidence` is out of range.
    """
    if not len(test) or not len(predictions):
        raise ConfigError("there is nothing to score: test rows and predictions need at least one each")
    right = np.array([predicted == test.labels for predicted in predictions], dtype=float)
    accuracies = right.mean(axis=1)
    by_group = _by_group(right.mean(axis=0), test)
    return Scores(
        accuracy=float(accuracies.mean()),
        interval=wilson(float(accuracies.mean()), len(test), confidence),
        spread=float(accuracies.std(ddof=1)) if len(accuracies) > 1 else None,
        macro_f1=float(np.mean([_macro_f1(predicted, test.labels) for predicted in predictions])),
        by_group=by_group,
        gap=max(by_group.values()) - min(by_group.values()) if len(by_group) > 1 else None,
        limits=_limits(test),
    )


def wilson(share: float, number: int, confidence: float) -> tuple[float, float]:
    """Return Wilson's interval for a share of a number of rows.

    Raises:
        ConfigError: `confidence` is not between 0 and 1.
    Examples:
        >>> [round(bound, 3) for bound in wilson(0.5, 100, 0.95)]
        [0.404, 0.596]
    """
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence is {confidence}; it lies between 0 and 1")
    from scipy.stats import binomtest

    found = binomtest(round(share * number), number).proportion_ci(confidence, method="wilson")
    return float(found.low), float(found.high)


def _macro_f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean F1 of the classes that occur among the labels; a class never predicted scores 0."""
    metrics = need("sklearn.metrics", extra="metrics", what="macro-F1")
    return float(metrics.f1_score(labels, predicted, labels=np.unique(labels), average="macro", zero_division=0))


def _by_group(right: np.ndarray, test: Examples) -> dict[str, float]:
    groups = np.array(test.groups, dtype=object)
    return {name: float(right[groups == name].mean()) for name in sorted(set(test.groups))}


def _limits(test: Examples) -> tuple[str, ...]:
    """Say which subgroups are too small to compare."""
    if not test.groups:
        return ()
    groups = np.array(test.groups, dtype=object)
    small = sum(int((groups == name).sum() < _FEW_ROWS) for name in set(test.groups))
    said = [f"{small} subgroups have fewer than {_FEW_ROWS} test rows: their gap is mostly chance"] if small else []
    return (*said, "a single subgroup has no gap") if len(set(test.groups)) == 1 else tuple(said)
