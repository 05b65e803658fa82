"""The methods on `datasets` classes: `.privatize()`, `.synthesize()` and `.privacy`.

A release is remembered beside a dataset, not in it: a table by id() with a finaliser and the fingerprint of each split.
A derived dataset inherits nothing, because its fingerprint differs.
"""

import weakref
from typing import TYPE_CHECKING, Any

from hf_dpsynth.errors import ConfigError

if TYPE_CHECKING:
    from hf_dpsynth.release import Release

_MARK = "_hf_dpsynth"
_releases: "dict[int, tuple[Release, Any]]" = {}


def _fingerprint(dataset: Any) -> Any:
    if isinstance(dataset, dict):
        return {name: split._fingerprint for name, split in dataset.items()}
    return getattr(dataset, "_fingerprint", None)


def remember(dataset: Any, release: "Release") -> None:
    """Attach a release to a dataset, and to each split of a DatasetDict."""
    if isinstance(dataset, dict):
        for split in dataset.values():
            remember(split, release)
    _releases[id(dataset)] = (release, _fingerprint(dataset))
    weakref.finalize(dataset, _releases.pop, id(dataset), None)


def privacy(dataset: Any) -> "Release | None":
    """Return the release that made exactly this dataset, or None."""
    release, fingerprint = _releases.get(id(dataset), (None, None))
    return release if release is not None and fingerprint == _fingerprint(dataset) else None


def _classes() -> tuple[Any, ...]:
    from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict

    return Dataset, DatasetDict, IterableDataset, IterableDatasetDict


def _methods() -> dict[str, Any]:
    from hf_dpsynth import dataset

    methods = {"privatize": dataset.privatize, "synthesize": dataset.synthesize, "privacy": property(privacy)}
    for method in methods.values():
        target = method.fget if isinstance(method, property) else method
        setattr(target, _MARK, True)
    return methods


def _is_ours(attribute: Any) -> bool:
    return bool(getattr(getattr(attribute, "fget", attribute), _MARK, False))


def register() -> None:
    """Attach `.privatize()`, `.synthesize()` and `.privacy` to the four dataset classes. Idempotent.

    Raises:
        ConfigError: a class has an attribute of that name that is not ours.
    """
    methods = _methods()
    for cls in _classes():
        for name in methods:
            if hasattr(cls, name) and not _is_ours(getattr(cls, name)):
                raise ConfigError(
                    f"datasets.{cls.__name__}.{name} exists and is not ours. Set HF_DPSYNTH_NO_PATCH=1 and call "
                    "hf_dpsynth.privatize(ds, ...) and hf_dpsynth.synthesize(ds, ...)."
                )
    for cls in _classes():
        for name, method in methods.items():
            setattr(cls, name, method)


def unregister() -> None:
    """Take our attributes off the dataset classes again. Idempotent."""
    for cls in _classes():
        for name in ("privatize", "synthesize", "privacy"):
            if name in vars(cls) and _is_ours(vars(cls)[name]):
                delattr(cls, name)
