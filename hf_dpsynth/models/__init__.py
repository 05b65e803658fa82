"""Models: protocols, the catalogue of short names, assets as files, and the local back ends."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_dpsynth.models.catalog import load_embedder, load_generator, pull
    from hf_dpsynth.models.causal_lm import CausalLM
    from hf_dpsynth.models.endpoint import Endpoint
    from hf_dpsynth.models.inverter import PrefixInverter, load_inverter
    from hf_dpsynth.models.inverter_training import train_inverter
    from hf_dpsynth.models.nearest_text import NearestTextInverter
    from hf_dpsynth.models.sentence import SentenceEmbedder

__all__ = [
    "CausalLM",
    "Endpoint",
    "NearestTextInverter",
    "PrefixInverter",
    "SentenceEmbedder",
    "load_embedder",
    "load_generator",
    "load_inverter",
    "pull",
    "train_inverter",
]

_ROOMS = {
    "CausalLM": "causal_lm",
    "Endpoint": "endpoint",
    "NearestTextInverter": "nearest_text",
    "PrefixInverter": "inverter",
    "SentenceEmbedder": "sentence",
    "load_inverter": "inverter",
    "train_inverter": "inverter_training",
}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ROOMS.get(name, 'catalog')}"), name)
