"""Doctor: what this machine has, what is missing, and what to do about it. Touches no network unless asked."""

import importlib
import importlib.util
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

_PACKAGES = (
    ("hf-dpsynth", ""),
    ("datasets", ""),
    ("huggingface_hub", ""),
    ("pyarrow", ""),
    ("numpy", ""),
    ("dp-accounting", ""),
    ("opendp", ""),
    ("torch", "models"),
    ("transformers", "models"),
    ("sentence-transformers", "models"),
    ("accelerate", "models"),
    ("spacy", "tagger"),
    ("peft", "finetune"),
    ("opacus", "finetune"),
    ("evaluate", "metrics"),
    ("scikit-learn", "metrics"),
    ("pot", "metrics"),
    ("matplotlib", "metrics"),
    ("tensorboard", "reporting"),
)
_HUB_SECONDS = 5.0


class Finding(NamedTuple):
    """One line: what was looked at, what was found, and what to do; `todo` is empty when all is well."""

    what: str
    found: str
    todo: str = ""


def examine(*, network: bool = False) -> list[Finding]:
    """Look at versions, processor, models, data, cache and, when asked, the Hub.

    Args:
        network (`bool`, defaults to `False`): whether to ask the Hub for an answer.
    Returns:
        `list[Finding]`: in the order to print them.
    """
    found = [Finding("python", f"{platform.python_version()} at {sys.executable}"), *_packages(), *_processor()]
    return [*found, *_assets(), *_hub(network=network)]


def _packages() -> Iterator[Finding]:
    for name, extra in _PACKAGES:
        try:
            yield Finding(name, version(name))
        except PackageNotFoundError:
            wanted = f"hf-dpsynth[{extra}]" if extra else "hf-dpsynth"
            yield Finding(name, "not installed", f"pip install '{wanted}'")


def _processor() -> Iterator[Finding]:
    from hf_dpsynth.devices import Devices, best_dtype

    threads = Devices.current().threads()
    yield Finding("threads", f"{threads} (OMP_NUM_THREADS lowers it)")
    yield Finding("BLAS", ", ".join(_blas()) or "unknown: threadpoolctl is not installed")
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    kind = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = best_dtype(torch.device(kind))
    slow = "" if dtype == "bfloat16" else "generation runs in float32, which is slower; another machine would help"
    yield Finding("device", kind)
    yield Finding("bfloat16", "in hardware" if dtype == "bfloat16" else "not in hardware", slow)


def _blas() -> list[str]:
    if importlib.util.find_spec("threadpoolctl") is None:
        return []
    import numpy as np

    threadpoolctl = importlib.import_module("threadpoolctl")

    np.ones((2, 2)) @ np.ones((2, 2))  # the library is found once it is loaded
    pools: list[dict[str, Any]] = threadpoolctl.threadpool_info()
    return sorted(
        {f"{pool['internal_api']} {pool['version']} ({pool['num_threads']} threads)" for pool in pools
         if pool["user_api"] == "blas"}
    )  # fmt: skip


def _assets() -> Iterator[Finding]:
    from huggingface_hub import constants

    from hf_dpsynth.models import catalog
    from hf_dpsynth.models.assets import is_offline

    yield Finding("cache", str(catalog.cache_folder()))
    yield Finding("cache of the Hub", constants.HF_HUB_CACHE)
    yield Finding("offline switch", "on" if is_offline() else "off")
    for asset in (*catalog.models(), *catalog.datasets()):
        verb = "data" if asset.kind == "data" else "models pull"
        todo = "" if asset.is_cached else f"hf-dpsynth {verb} {asset.name} ({asset.size / 1e6:.0f} MB)"
        yield Finding(asset.name, "cached" if asset.is_cached else "not cached", todo)


def _hub(*, network: bool) -> Iterator[Finding]:
    if not network:
        yield Finding("Hub", "not asked", "hf-dpsynth doctor --network")
        return
    import httpx2
    from huggingface_hub import constants

    try:
        httpx2.head(constants.ENDPOINT, timeout=_HUB_SECONDS)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        todo = "check the network, HTTPS_PROXY and HF_ENDPOINT; the names of `hf-dpsynth models` need no Hub"
        yield Finding("Hub", f"out of reach ({type(error).__name__})", todo)
    else:
        yield Finding("Hub", "reachable")
