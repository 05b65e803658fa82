"""Models: protocols, the catalogue of short names, assets as files, and the local back ends."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_dpsynth.models.catalog import load_embedder, load_generator, pull

__all__ = ["load_embedder", "load_generator", "pull"]


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hf_dpsynth.models import catalog

    return getattr(catalog, name)
