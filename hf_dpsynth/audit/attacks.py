"""What one attack on released rows found: its figures, and the curve of a membership attack.

As sensitive as the private texts that it read, so it stays beside the run and is shown to its owner. It holds figures
alone: no text, and no score of a single record.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hf_dpsynth.audit.findings import Finding
from hf_dpsynth.errors import ConfigError

Curve = tuple[tuple[float, float], ...]
COLUMNS = ("attack", "metric", "value", "interval", "n")
_OPEN = "inf"


@dataclass(frozen=True, kw_only=True)
class AttackResult:
    """The figures of one attack.

    Args:
        name (`str`): what was tried.
        findings (`tuple[Finding, ...]`): its figures, each with a metric of its own.
        curve (`tuple[tuple[float, float], ...]`): rates of false and of true positives at falling thresholds, from
            (0, 0) to (1, 1); empty where nobody guessed membership.
    """

    name: str
    findings: tuple[Finding, ...]
    curve: Curve = ()

    def __getitem__(self, metric: str) -> Finding:
        """Return the figure of a metric.

        Raises:
            KeyError: there is none.
        """
        for found in self.findings:
            if found.metric == metric:
                return found
        raise KeyError(f"{self.name} has no {metric!r}; it has {', '.join(one.metric for one in self.findings)}")

    def rows(self) -> list[tuple[str, ...]]:
        """Return a line of text for each figure: attack, metric, value, interval, n."""
        return [
            (one.attack, one.metric, f"{one.value:.4g}", span(one.interval), f"{one.n:,}") for one in self.findings
        ]

    def statements(self) -> list[str]:
        """Return each figure in words, with its confidence and its limits."""
        return [one.statement() for one in self.findings]

    def to_json(self) -> dict[str, Any]:
        """Return the attack as plain values. As sensitive as what it read."""
        found = [
            asdict(one) | {"interval": None if one.interval is None else [_plain(end) for end in one.interval]}
            for one in self.findings
        ]
        return {"name": self.name, "findings": found, "curve": [list(point) for point in self.curve]}

    @classmethod
    def from_json(cls, held: Mapping[str, Any]) -> "AttackResult":
        """Return what `to_json` wrote, each figure as a plain `Finding`.

        Raises:
            ConfigError: it wrote something else.
        """
        try:
            findings = tuple(_finding(one) for one in held["findings"])
            curve = tuple((float(false), float(true)) for false, true in held["curve"])
            return cls(name=str(held["name"]), findings=findings, curve=curve)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                "an audit that is kept is none of this version. Remove the file, and audit again."
            ) from error


def _finding(held: Mapping[str, Any]) -> Finding:
    names = Finding.__dataclass_fields__
    fields = {name: value for name, value in held.items() if name in names}
    interval = fields["interval"]
    fields["interval"] = None if interval is None else (float(interval[0]), float(interval[1]))
    return Finding(**{**fields, "value": float(fields["value"]), "limits": tuple(fields["limits"])})


def _plain(end: float) -> float | str:
    """Return an end of an interval as JSON can hold it."""
    return end if math.isfinite(end) else f"{'-' * (end < 0)}{_OPEN}"


def span(interval: Sequence[float] | None) -> str:
    """Return an interval as text, a dash where there is none."""
    return "-" if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}"
