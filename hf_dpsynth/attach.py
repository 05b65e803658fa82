"""What importing the package attaches: methods on the classes of `datasets`, and the names of our metrics.

`.privatize()`, `.synthesize()` and `.privacy`, and `evaluate.load("hf_dpsynth/...")`.
"""

from typing import TYPE_CHECKING, Any

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics import resolve

if TYPE_CHECKING:
    from hf_dpsynth.release import Release

_MARK = "_hf_dpsynth"


def privacy(dataset: Any) -> "Release | None":
    """Return the release that made exactly this dataset, or None. Derived datasets inherit nothing."""
    from hf_dpsynth.release import release_of

    return release_of(dataset)


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
    """Attach `.privatize()`, `.synthesize()` and `.privacy` to the four dataset classes, our metrics to `evaluate`.

    Idempotent.

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
    resolve.install()


def unregister() -> None:
    """Take our attributes off the dataset classes, and our metrics off `evaluate`, again. Idempotent."""
    resolve.uninstall()
    for cls in _classes():
        for name in ("privatize", "synthesize", "privacy"):
            if name in vars(cls) and _is_ours(vars(cls)[name]):
                delattr(cls, name)
