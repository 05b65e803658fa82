"""`evaluate.load("hf_dpsynth/mauve")` finds our module on this machine, before anybody asks a network.

Otherwise the Hub is asked first, and whoever owns that namespace there would run code here. The function that resolves
names is wrapped when `evaluate` is imported, whichever of the two packages comes first; importing us imports nothing.
"""

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from hf_dpsynth.metrics import path as folder_of

PREFIX = "hf_dpsynth/"
_MODULE = "evaluate.loading"
_NAME = "evaluation_module_factory"


def install() -> None:
    """Wrap the resolver of `evaluate`, now or when it is imported. Idempotent."""
    loaded = sys.modules.get(_MODULE)
    if loaded is not None:
        _wrap(loaded)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def uninstall() -> None:
    """Give `evaluate` its own resolver back. Idempotent."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    loaded = sys.modules.get(_MODULE)
    wrapped = getattr(getattr(loaded, _NAME, None), "__wrapped_by_hf_dpsynth__", None)
    if wrapped is not None:
        setattr(loaded, _NAME, wrapped)


def _wrap(module: ModuleType) -> None:
    resolver = getattr(module, _NAME)
    if hasattr(resolver, "__wrapped_by_hf_dpsynth__"):
        return

    @functools.wraps(resolver)
    def resolve(path: str, *args: Any, **options: Any) -> Any:
        ours = isinstance(path, str) and path.startswith(PREFIX)
        return resolver(folder_of(path) if ours else path, *args, **options)

    resolve.__wrapped_by_hf_dpsynth__ = resolver  # type: ignore[attr-defined]
    setattr(module, _NAME, resolve)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds `evaluate.loading` as the others do, and wraps the resolver once the module has run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of `evaluate.loading` with our loader around its own; None for every other module."""
        if fullname != _MODULE:
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Runs a module by its own loader, then wraps its resolver."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Create the module as its own loader does."""
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then wrap."""
        self._loader.exec_module(module)
        _wrap(module)
