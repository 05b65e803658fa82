"""Quality metrics: pure array functions, a plain class each, and a module of `evaluate` each.

`load("mauve").compute(predictions=synthetic, references=real)` and `evaluate.load("hf_dpsynth/mauve")` give the same
figures. A metric that read private references says `uses_private_data=True`: no guarantee covers its figures.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.registry import closest

_TABLE = {
    "mauve": "Mauve",
    "fid": "FID",
    "ngram": "NGram",
    "perplexity": "Perplexity",
    "wasserstein": "Wasserstein",
    "mmd": "MMD",
    "prdc": "PRDC",
    "vendi": "Vendi",
    "self_bleu": "SelfBLEU",
    "distinct_n": "DistinctN",
    "length": "Length",
    "rank_agreement": "RankAgreement",
    "plausible_deniability": "PlausibleDeniability",
}
__all__ = ["list_metrics", "load", "path"]


def list_metrics() -> list[str]:
    """List the metrics by name."""
    return list(_TABLE)


def _known(name: str) -> str:
    bare = name.removeprefix("hf_dpsynth/")
    if bare not in _TABLE:
        raise ConfigError(f"metric {name!r} is unknown{closest(bare, list(_TABLE))}")
    return bare


def load(name: str, *, params: Mapping[str, Any] | None = None) -> Any:
    """Return a metric.

    Args:
        name (`str`): e.g. `"mauve"`.
        params (`Mapping`, *optional*): fields of the metric, e.g. `{"num_buckets": 100}`.
    Returns:
        an object with `.compute(...)`.
    Raises:
        ConfigError: there is no such metric or option; the closest one is named.
    Examples:
        >>> from hf_dpsynth import metrics
        >>> metrics.load("distinct_n").compute(predictions=["a b", "a c"])["distinct_n_1"]
        0.75
    """
    bare = _known(name)
    metric = getattr(importlib.import_module(f"{__name__}.{bare}"), _TABLE[bare])
    return metric().with_params(params or {})


def path(name: str) -> str:
    """Return the folder of a metric's module for `evaluate.load`.

    Args:
        name (`str`): e.g. `"mauve"`.
    Raises:
        ConfigError: there is no such metric; the closest one is named.
    """
    return str(Path(__file__).parent / "evaluate_modules" / _known(name))


def __getattr__(name: str) -> Any:
    """Import the module of a metric at its first use."""
    if name in _TABLE:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
