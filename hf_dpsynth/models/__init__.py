"""Models: protocols, the catalogue of short names, assets as files, and the local back ends."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_dpsynth.models.catalog import load_embedder, load_generator, pull
    from hf_dpsynth.models.causal_lm import CausalLM
    from hf_dpsynth.models.endpoint import Endpoint
    from hf_dpsynth.models.sentence import SentenceEmbedder

__all__ = ["CausalLM", "Endpoint", "SentenceEmbedder", "load_embedder", "load_generator", "pull"]

_ROOMS = {"CausalLM": "causal_lm", "Endpoint": "endpoint", "SentenceEmbedder": "sentence"}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ROOMS.get(name, 'catalog')}"), name)
