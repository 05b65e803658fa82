"""Downstream evaluation: train on synthetic, test on real, and never show the test split to a mechanism."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_dpsynth.downstream.classifier import Classifier
    from hf_dpsynth.downstream.examples import Examples, split
    from hf_dpsynth.downstream.experiment import study
    from hf_dpsynth.downstream.in_context import InContext
    from hf_dpsynth.downstream.private_training import DPOnReal
    from hf_dpsynth.downstream.proxies import ProxyCorrelation, proxy_correlation
    from hf_dpsynth.downstream.ranking import Ranking, rank
    from hf_dpsynth.downstream.table import Row, Study
    from hf_dpsynth.downstream.word_cnn import WordCNN

__all__ = [
    "Classifier",
    "DPOnReal",
    "Examples",
    "InContext",
    "ProxyCorrelation",
    "Ranking",
    "Row",
    "Study",
    "WordCNN",
    "proxy_correlation",
    "rank",
    "split",
    "study",
]

_ROOMS = {
    "Classifier": "classifier",
    "DPOnReal": "private_training",
    "Examples": "examples",
    "InContext": "in_context",
    "ProxyCorrelation": "proxies",
    "Ranking": "ranking",
    "Row": "table",
    "Study": "table",
    "WordCNN": "word_cnn",
    "proxy_correlation": "proxies",
    "rank": "ranking",
    "split": "examples",
    "study": "experiment",
}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ROOMS[name]}"), name)
