"""Numbers as a reader sees them: short, and where they are a privacy loss never below the true one."""

import math
from collections.abc import Sequence
from typing import Any

from hf_dpsynth.privacy.accounting import round_up
from hf_dpsynth.publish.card import number

NONE = "—"  # in a cell that has no value


def loss(value: float | None, digits: int = 4) -> str:
    """Return a privacy loss, rounded up.

    Examples:
        >>> loss(1.23401), loss(4.0), loss(0.0), loss(None), loss(float("inf"))
        ('1.235', '4', '0', 'none', 'infinite')
    """
    if value is None:
        return "none"
    if math.isinf(value):
        return "infinite"
    return number(round_up(value, digits)) if value > 0 else "0"


def figure(value: float) -> str:
    """Return a measured value.

    Examples:
        >>> figure(0.123456), figure(4321.7), figure(float("nan"))
        ('0.1235', '4,322', 'not a number')
    """
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "infinite" if value > 0 else "minus infinite"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def percent(share: float) -> str:
    """Return a share; what is not all is never shown as 100 %, and what is something never as 0 %.

    Examples:
        >>> percent(0.5), percent(1.0), percent(0.9999), percent(0.0001)
        ('50 %', '100 %', '> 99.9 %', '< 0.1 %')
    """
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{share * 100:.1f}".removesuffix(".0") + " %"


def span(pair: Sequence[float] | None) -> str:
    """Return an interval, or a dash where there is none."""
    return NONE if pair is None else f"{figure(pair[0])} to {figure(pair[1])}"


def anything(value: Any) -> str:
    """Return a value of a table whose columns are not known beforehand."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return figure(value)
    if isinstance(value, (list, tuple)):
        pair = len(value) == 2 and all(isinstance(part, (int, float)) for part in value)
        return span(value) if pair else ", ".join(anything(part) for part in value)
    return str(value)
