"""Releases: what a run gave away, under which guarantee, by which charges. Data only, all of it public.

A release is remembered beside a dataset, not in it: a table by id() with a finaliser and the fingerprint of each
split. A derived dataset inherits nothing, because it is another object with another fingerprint.
"""

import weakref
from dataclasses import dataclass
from typing import Any

from hf_dpsynth import guarantees
from hf_dpsynth.guarantees import Guarantee
from hf_dpsynth.plans import Plan
from hf_dpsynth.privacy.accounting import event_to_json
from hf_dpsynth.privacy.ledger import Charge

_releases: dict[int, tuple["Release", Any]] = {}


@dataclass(frozen=True, kw_only=True)
class Release:
    """The record of one privatization or synthesis.

    Args:
        plan (`Plan`): what was planned before data was touched.
        guarantee (`Guarantee`): what holds; as planned, also when the run stopped early.
        charges (`tuple[Charge, ...]`): every entry of the ledger: key, event, UTC date.
        notes (`tuple[str, ...]`): what a reader should know besides, e.g. a round that was lost.
    """

    plan: Plan
    guarantee: Guarantee
    charges: tuple[Charge, ...]
    notes: tuple[str, ...] = ()

    def statement(self) -> str:
        """Return the guarantee in words, with what voids it."""
        text = self.guarantee.statement()
        if self.plan.insecure_noise:
            text = "NOT PRIVATE: the noise was drawn from a seed that anybody can use again. " + text
        return " ".join((text, *self.notes))

    def to_json(self) -> dict[str, Any]:
        """Return the release as JSON values."""
        return {
            "plan": self.plan.to_json(),
            "guarantee": guarantees.to_json(self.guarantee),
            "statement": self.statement(),
            "charges": [
                {"key": charge.key, "event": event_to_json(charge.event), "when": charge.when}
                for charge in self.charges
            ],
            "notes": list(self.notes),
        }


def remember(dataset: Any, release: Release) -> None:
    """Remember the release of a dataset, and of each split of a DatasetDict."""
    if isinstance(dataset, dict):
        for split in dataset.values():
            remember(split, release)
    _releases[id(dataset)] = (release, _fingerprint(dataset))
    weakref.finalize(dataset, _releases.pop, id(dataset), None)


def release_of(dataset: Any) -> Release | None:
    """Return the release that made exactly this dataset, or None once a split was replaced."""
    release, fingerprint = _releases.get(id(dataset), (None, None))
    return release if release is not None and fingerprint == _fingerprint(dataset) else None


def _fingerprint(dataset: Any) -> Any:
    if isinstance(dataset, dict):
        return {name: split._fingerprint for name, split in dataset.items()}
    return getattr(dataset, "_fingerprint", None)
