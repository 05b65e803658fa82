"""Plans of mechanisms that protect secrets: (p, r) in their fields instead of an epsilon. Reads no data."""

import math
from collections.abc import Sequence
from typing import Any

from hf_dpsynth import registry
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.plans import Facts, Plan

ADJACENCY = "custom"
UNIT = "secret"
_PUBLIC = "the number of records is public, not protected"


def plan_protection(
    mechanism: Any,
    *,
    refused: dict[str, Any],
    budget: bool,
    unit: str | None,
    num_records: int | None,
    num_rows: int | None,
    labels: Sequence[tuple[Any, ...]],
    proportions: Sequence[float] | None,
    assumptions: tuple[str, ...],
    **public: Any,
) -> Plan:
    """Make the plan of a mechanism that protects secrets.

    Args:
        mechanism (`Synthesizer`): the hyper-parameters, among them p and r.
        refused (`dict`): arguments that speak of differential privacy; each must be None.
        budget (`bool`): whether a budget across runs is to be charged, which is refused.
        unit (`str`, *optional*): `"secret"`.
        num_records (`int`, *optional*): the declared number of records, which a plan publishes.
        num_rows (`int`, *optional*): rows to make; `num_records` when missing.
        labels (`Sequence[tuple]`): the declared label domain.
        proportions (`Sequence[float]`, *optional*): declared shares of the labels; from the noisy sums when missing.
        assumptions (`tuple[str, ...]`): sentences that the guarantee must name.
        **public (`Any`): further public fields of `Plan`.
    Raises:
        ConfigError: an argument speaks of another guarantee.
    """
    for name, value in {"budget": budget or None, **refused}.items():
        if value is not None:
            leave = "Pass epsilon=None" if name == "epsilon" else "Leave it out"
            raise ConfigError(f"{mechanism.name} takes no {name}=: {_WHY[name]}. {leave}.")
    if unit not in (None, UNIT):
        raise ConfigError(f"unit={unit!r} is not offered by {mechanism.name}; it protects each {UNIT}.")
    num_rows = num_rows or num_records
    facts = Facts(
        num_records=num_records,
        num_rows=num_rows,
        labels=tuple(labels),
        proportions=None if proportions is None else tuple(proportions),
        adjacency=ADJACENCY,
        unit=UNIT,
    )
    published = () if num_records is None else (_PUBLIC,)
    multiplier = mechanism.noise_multiplier()
    return Plan(
        mechanism=mechanism.name,
        params=registry.planned(mechanism),
        event=mechanism.event(multiplier, facts),
        noise_multiplier=multiplier,
        guarantee=mechanism.protection((*published, *assumptions)),
        delta=None,
        adjacency=ADJACENCY,
        labels=facts.labels,
        proportions=facts.proportions,
        num_records=num_records,
        num_rows=num_rows,
        cost=None if num_rows is None else mechanism.cost(facts),
        account="closed_form",
        discretisation=0.0,
        warnings=mechanism.warnings(multiplier, math.nan, None, facts),
        **public,
    )


_WHY = {
    "epsilon": "its guarantee is (p, r)-secret protection, which has none; p and r stand in params",
    "delta": "its guarantee is (p, r)-secret protection, which has none",
    "adjacency": "it protects the values of secrets, not records of neighbouring data sets",
    "budget": "a budget adds up losses of differential privacy, and one for secrets does not exist yet",
}
