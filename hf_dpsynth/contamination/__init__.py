"""Contamination: what a public corpus shares with the private texts.

A model that was trained on the private texts, as public material, voids the guarantee of what is made with it. Look
before the run, and choose public material in a way that does not depend on the private texts: `remove_sources`.
What `find_overlaps` counts is a statistic of the private texts that no guarantee covers. Source: the removal of common
sequences of 50 tokens before pre-training in Kurakin et al. 2023, arXiv:2306.01684, Appendices C and D.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_dpsynth.contamination.origin import ASSUMPTION
    from hf_dpsynth.contamination.overlaps import Overlaps, Span, find_overlaps
    from hf_dpsynth.contamination.sources import remove_sources

__all__ = ["ASSUMPTION", "Overlaps", "Span", "find_overlaps", "remove_sources"]

_ROOMS = {
    "ASSUMPTION": "origin",
    "Overlaps": "overlaps",
    "Span": "overlaps",
    "find_overlaps": "overlaps",
    "remove_sources": "sources",
}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ROOMS[name]}"), name)
