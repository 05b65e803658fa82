"""The library's logger and progress bars, with the switches Hugging Face users know.

`HF_DPSYNTH_VERBOSITY` (debug, info, warning, error) sets the level; progress bars obey
`HF_DATASETS_DISABLE_PROGRESS_BARS` and `datasets.disable_progress_bars()`. Of several processes the first one shows
bars and warnings; the others say no more than errors unless the switch is set.
"""

import logging
import os
from typing import Any

HIDDEN = "{desc}: {elapsed}"  # the format of a bar over private rows: neither how many there are nor a share
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def _follows() -> bool:
    """Return whether a launcher made this process another than the first."""
    return os.environ.get("RANK", "0") not in ("", "0")


def get_logger(name: str = "hf_dpsynth") -> logging.Logger:
    """Return a logger below `hf_dpsynth`."""
    return logging.getLogger(name)


def set_verbosity(level: int) -> None:
    """Set the level of the library's root logger."""
    get_logger().setLevel(level)


def progress_bar(**options: Any) -> Any:
    """Return a `datasets` progress bar, which users switch off with the switches of `datasets`."""
    from datasets.utils import tqdm

    return tqdm(**{**options, "disable": True} if _follows() else options)


set_verbosity(
    _LEVELS.get(os.environ.get("HF_DPSYNTH_VERBOSITY", "error" if _follows() else "warning").lower(), logging.WARNING)
)
