"""What a unit audit is: a question to the code that a mechanism runs, and faults that it must not pass.

`audit` runs the mechanism's own code and holds what leaves it against what the code charges for it. A fault is planted
in the one place that draws, or in the law, and the same audit must refute it. A right mechanism is accused in one of a
million audits at most, which `SURE` says where draws cannot be repeated; where keys are fixed the verdict is fixed.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from hf_dpsynth.audit import Finding
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.processes import Processes

SURE = 1 - 1e-6
DELTA = 1e-5


@dataclass(frozen=True)
class Unit:
    """The audit of one mechanism, and the faults by name, each of which plants itself."""

    audit: Callable[[], Iterable[Finding]]
    faults: dict[str, Callable[[pytest.MonkeyPatch], None]]

    def refuted(self):
        """The findings that refute a claim."""
        return [one.statement() for one in self.audit() if one.violated]

    def caught(self, fault, patch):
        """Whether any finding refutes a claim once a fault is planted."""
        self.faults[fault](patch)
        return any(one.violated for one in self.audit())


def planted(units):
    """All faults as parameters of a test."""
    return [pytest.param(unit, fault, id=f"{name}: {fault}") for name, unit in units.items() for fault in unit.faults]


def noise_over(place, factor, patch):
    """Draw the discrete Gaussian of a module at a fraction of its scale, or none of it where the factor is 0."""

    def wrong(counts, sigma, real=place.discrete_gaussian):
        return real(counts, sigma / factor if factor else 0.0)

    patch.setattr(place, "discrete_gaussian", wrong)


def shared_by_rounds(place, patch):
    """Add the noise of the first round to all rounds of as many counts."""
    kept = []

    def wrong(counts, sigma, real=place.discrete_gaussian):
        if not kept or len(kept[0]) != len(counts):
            kept[:] = [real(np.zeros_like(counts), sigma)]
        return counts + kept[0]

    patch.setattr(place, "discrete_gaussian", wrong)


class OpenLedger:
    """Draws at once and keeps each release with the event that is charged for it."""

    def __init__(self):
        self.released = []

    def state(self, key):
        return None

    def release(self, key, event, draw, *, about=None):
        value = json.loads(json.dumps(draw()))
        self.released.append((key, event, value))
        return value


def open_run(seed=0):
    """A run whose ledger can be read, with a key that anybody can make again."""
    return SimpleNamespace(
        ledger=OpenLedger(),
        store=SimpleNamespace(digest=lambda name: ""),
        keys=Key.from_insecure_seed(seed),
        devices=Processes(),
    )
