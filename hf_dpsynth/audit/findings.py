"""What an audit found: one figure, how sure it is, and what it does not say.

The one rule: an audit can show that a claim is wrong, never that it is right. So every statement ends in the same
words, and a lower bound has no upper end.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.release import Audit

EPSILON_LOWER = "epsilon_lower"
P_VALUE = "p_value"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one audit found.

    Args:
        attack (`str`): what was tried.
        metric (`str`): what was measured; `"epsilon_lower"` is a lower bound on epsilon at `delta`.
        value (`float`): the figure.
        interval (`tuple[float, float]`, *optional*): where the truth lies at this confidence; a lower bound has no
            upper end.
        n (`int`): how many trials, canaries or draws it rests on.
        confidence (`float`): the probability with which a right mechanism is not accused; 1 where nothing was drawn.
        delta (`float`, *optional*): the delta that an epsilon belongs to.
        claimed (`float`, *optional*): the claim that the figure is held against.
        limits (`tuple[str, ...]`): sentences on what it cannot show.
        uses_private_data (`bool`): whether it was computed from private records.
    """

    attack: str
    metric: str
    value: float
    interval: tuple[float, float] | None
    n: int
    confidence: float
    delta: float | None
    claimed: float | None = None
    limits: tuple[str, ...] = ()
    uses_private_data: bool = False

    def __post_init__(self) -> None:
        if self.claimed is not None and not self.claimed >= 0:
            raise ConfigError(f"the claim is {self.claimed}; it is a number >= 0, or nothing is held against it")

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted; False where there is none."""
        return self.claimed is not None and not self.value <= self.claimed

    def statement(self) -> str:
        """Return the figure in words, with its method, its confidence and its limits."""
        parts = [f"{self.attack}: {self.metric} is {self.value:.4g}"]
        if self.interval is not None:
            parts.append(f"interval [{self.interval[0]:.4g}, {self.interval[1]:.4g}]")
        parts.append(f"n = {self.n}, confidence {self.confidence:.8g}")
        if self.delta is not None:
            parts.append(f"delta {self.delta:g}")
        said = ", ".join(parts) + "."
        if self.claimed is not None or self.metric == P_VALUE:
            said += f" {self._verdict()}"
        return " ".join([said, *self.limits, "This is an audit, not a proof"])

    def _verdict(self) -> str:
        verdict = "refuted" if self.violated else "not refuted"
        return f"The claim of {self.claimed:.4g} is {verdict}."

    def as_audit(self, *, uses_private_data: bool | None = None) -> Audit:
        """Return the entry of a release's `audits`.

        A release whose entry of metric `"epsilon_lower"` exceeds its claim is refused by `push_to_hub`. Audit at the
        delta of the claim.

        Args:
            uses_private_data (`bool`, *optional*): whether private records were read; as the audit says when missing.
        """
        bounded = self.interval is not None and all(map(math.isfinite, self.interval))
        private = self.uses_private_data if uses_private_data is None else uses_private_data
        return Audit(
            attack=self.attack,
            metric=self.metric,
            value=_published(self.value),
            ci=(_published(self.interval[0]), _published(self.interval[1])) if self.interval and bounded else None,
            uses_private_data=private,
        )


def _published(value: float) -> float:
    """Return a figure with 4 digits, rounded toward 0: a lower bound stays one."""
    if not value or not math.isfinite(value):
        return float(value)
    unit = 10.0 ** (3 - math.floor(math.log10(abs(value))))
    return float(f"{math.trunc(value * unit) / unit:.4g}")


@dataclass(frozen=True, kw_only=True)
class Fit(Finding):
    """Whether draws have the law that is claimed: `value` is the p-value of the test, and a small one refutes it."""

    @property
    def violated(self) -> bool:
        """Whether the law is refuted at this confidence."""
        return not self.value >= 1 - self.confidence

    def _verdict(self) -> str:
        return f"The claimed law is {'refuted' if self.violated else 'not refuted'}."


def numbers(name: str, values: Any) -> np.ndarray:
    """Return values as float64.

    Raises:
        ConfigError: one is no number; the message does not show it, as it may be a private text.
    """
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{name}= holds something else than numbers, or rows of different lengths") from None


def check_confidence(confidence: float) -> None:
    """Refuse a confidence that is none.

    Raises:
        ConfigError: it is not strictly between 0 and 1.
    """
    _check_share("confidence", confidence, "0.95 or 0.99 are usual")


def check_delta(delta: float, *, least: float = 0.0) -> None:
    """Refuse a delta that is none.

    Args:
        delta (`float`): the value.
        least (`float`, defaults to 0): the smallest that is accepted; where it is 0, that too is accepted.
    Raises:
        ConfigError: it is out of range.
    """
    if delta == 0 and least == 0 and not isinstance(delta, bool):
        return
    _check_share("delta", delta, "take that of the claim")
    if not delta >= least:
        raise ConfigError(f"delta is {delta}; it is at least {least}")


def _check_share(name: str, value: float, way_out: str) -> None:
    try:
        fine = not isinstance(value, bool) and 0 < value < 1
    except (TypeError, ValueError):
        fine = False
    if not fine:
        raise ConfigError(f"{name} is {value!r}; it is a number between 0 and 1: {way_out}")
