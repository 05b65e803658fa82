"""Which study of plausible deniability may stand on the page of a run: one of what the run did."""

from typing import Any

from hf_dpsynth.audit.deniability import Deniability
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.plans import Plan


def check_measured(found: Any, plan: Plan) -> None:
    """Refuse a study of another mechanism, parameter, scale or vocabulary than those of a run.

    Args:
        found (`Deniability`): the study. Public.
        plan (`Plan`): of the run. Public.
    Raises:
        ConfigError: it is none, or of something else.
    """
    if not isinstance(found, Deniability):
        raise ConfigError(f"deniability= is of type {type(found).__name__}; pass what plausible_deniability returned.")
    pairs = {
        "mechanism": (found.mechanism, plan.mechanism),
        "scale": (found.epsilon, getattr(plan.guarantee, "epsilon", None)),
        "vectors": (found.vectors, plan.model_ids.get("vectors")),
        "parameters": (found.params, plan.params),
    }
    for what, (measured, planned) in pairs.items():
        if measured != planned:
            raise ConfigError(
                f"deniability= was measured with {what} {measured!r}, and the run had {planned!r}. Measure it with "
                "those of the run."
            )
