"""Optional packages: imported where they are used, named when they are missing."""

import importlib
from types import ModuleType

from hf_dpsynth.errors import MissingExtra


def need(module: str, *, extra: str, what: str) -> ModuleType:
    """Import an optional package or say which extra brings it.

    Args:
        module (`str`): the module to import, e.g. `"torch"`.
        extra (`str`): the extra of this package that installs it.
        what (`str`): the feature that asks, for the message.
    Returns:
        `ModuleType`: the imported module.
    Raises:
        MissingExtra: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0]:
            raise
        raise MissingExtra(f"{what} needs {module}: pip install 'hf-dpsynth[{extra}]'") from error
