"""The library's logger and progress bars, with the switches Hugging Face users know.

`HF_DPSYNTH_VERBOSITY` (debug, info, warning, error) sets the level; progress bars obey
`HF_DATASETS_DISABLE_PROGRESS_BARS` and `datasets.disable_progress_bars()`.
"""

import logging
import os
from typing import Any

HIDDEN = "{desc}: {elapsed}"  # the format of a bar over private rows: neither how many there are nor a share
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def get_logger(name: str = "hf_dpsynth") -> logging.Logger:
    """Return a logger below `hf_dpsynth`."""
    return logging.getLogger(name)


def set_verbosity(level: int) -> None:
    """Set the level of the library's root logger."""
    get_logger().setLevel(level)


def progress_bar(**options: Any) -> Any:
    """Return a `datasets` progress bar, which users switch off with the switches of `datasets`."""
    from datasets.utils import tqdm

    return tqdm(**options)


set_verbosity(_LEVELS.get(os.environ.get("HF_DPSYNTH_VERBOSITY", "warning").lower(), logging.WARNING))
