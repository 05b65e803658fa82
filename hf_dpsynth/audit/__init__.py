"""Audits: what mechanisms do, measured. Empirical: an audit can show that a claim is wrong, never that it is right."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_dpsynth.audit.calibration import Calibration, calibrate
    from hf_dpsynth.audit.deniability import Deniability
    from hf_dpsynth.audit.words import plausible_deniability

__all__ = ["Calibration", "Deniability", "calibrate", "plausible_deniability"]

_ROOMS = {
    "Calibration": "calibration",
    "calibrate": "calibration",
    "Deniability": "deniability",
    "plausible_deniability": "words",
}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ROOMS[name]}"), name)
