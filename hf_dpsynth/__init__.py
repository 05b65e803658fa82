"""Private text made usable inside the Hugging Face ecosystem.

Importing this package attaches `.privatize()`, `.synthesize()` and `.privacy` to the classes of `datasets`; set
`HF_DPSYNTH_NO_PATCH=1` to leave them alone. Models load when they are used.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from hf_dpsynth import errors
from hf_dpsynth.attach import register, unregister
from hf_dpsynth.metrics import resolve
from hf_dpsynth.registry import list_mechanisms

if TYPE_CHECKING:
    from hf_dpsynth import audit, compute, data, downstream, metrics, models, privacy
    from hf_dpsynth.dataset import privatize, synthesize
    from hf_dpsynth.mechanisms.planning import plan
    from hf_dpsynth.privacy.budget import PrivacyBudget
    from hf_dpsynth.publish.folder import load_privacy
    from hf_dpsynth.publish.hub import push_to_hub
    from hf_dpsynth.publish.verify import verify

__version__ = "0.1.0"
__all__ = [
    "PrivacyBudget",
    "audit",
    "compute",
    "data",
    "downstream",
    "errors",
    "list_mechanisms",
    "load_privacy",
    "metrics",
    "models",
    "plan",
    "privacy",
    "privatize",
    "push_to_hub",
    "register",
    "synthesize",
    "unregister",
    "verify",
]

_LAZY = {
    "PrivacyBudget": "hf_dpsynth.privacy.budget:PrivacyBudget",
    "audit": "hf_dpsynth.audit:",
    "compute": "hf_dpsynth.compute:",
    "data": "hf_dpsynth.data:",
    "downstream": "hf_dpsynth.downstream:",
    "load_privacy": "hf_dpsynth.publish.folder:load_privacy",
    "metrics": "hf_dpsynth.metrics:",
    "models": "hf_dpsynth.models:",
    "plan": "hf_dpsynth.mechanisms.planning:plan",
    "privacy": "hf_dpsynth.privacy:",
    "privatize": "hf_dpsynth.dataset:privatize",
    "push_to_hub": "hf_dpsynth.publish.hub:push_to_hub",
    "synthesize": "hf_dpsynth.dataset:synthesize",
    "verify": "hf_dpsynth.publish.verify:verify",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _LAZY[name].partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def __dir__() -> list[str]:
    """List the public names, lazy ones included."""
    return sorted({*globals(), *__all__})


if os.environ.get("HF_DPSYNTH_NO_PATCH"):
    resolve.install()  # also where classes are left alone: else the Hub could answer for our metrics
else:
    register()
