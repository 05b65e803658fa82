"""Whether the facts of a release are those of its mechanism, built again from the published parameters.

It covers the mechanisms of our own table: what they assume, which events they have, which columns they write. Without
it, whoever takes the plan and the ledger away could strike out an assumption or a column that was copied in clear.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hf_dpsynth import registry
from hf_dpsynth.guarantees import ApproxDP, LocalDP, MetricDP, SecretProtection
from hf_dpsynth.mechanisms.base import further_models, input_role
from hf_dpsynth.mechanisms.planning import plan_privatization, privacy_unit, unit_assumptions
from hf_dpsynth.plans import Facts, Plan
from hf_dpsynth.privacy.accounting import extra_delta, leaves, target_mu
from hf_dpsynth.privacy.scales import scales
from hf_dpsynth.publish.accounts import READING, short

_LABELS: tuple[tuple[tuple[str, ...], ...], ...] = (((),), (("one",), ("other",)))  # shares declared, or bought


def check(plan: Plan, files: Iterable[Path], added: Iterable[str] = ()) -> list[str]:
    """Return what the facts lack of what their mechanism implies; empty for a mechanism that others wrote.

    Args:
        plan (`Plan`): what privacy.json alone says of the plan, checked by nobody.
        files (`Iterable[Path]`): the files of rows that it lists, and that are there.
        added (`Iterable[str]`): columns that came by post-processing.
    Returns:
        `list[str]`: a sentence for each fault, which begins with the field.
    """
    try:
        entry = registry.table().get(plan.mechanism)
        if entry is None or entry.kind == "plugin":
            return []
        mechanism = registry.resolve(plan.mechanism, plan.params, entry.kind)
        fields = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in registry.planned(mechanism).items()
        }
        found = [] if fields == plan.params else [f"mechanisms[0].params: not the parameters of {entry.name}"]
        found += _privatized(mechanism, plan) if entry.kind == "privatize" else _synthesized(mechanism, plan)
    except READING as error:
        return [f"mechanisms[0].params: {short(error)}"]
    return [*found, *_columns(plan, files, added)]


def _privatized(mechanism: Any, plan: Plan) -> list[str]:
    """Compare a privatization with its guarantee."""
    held = plan.guarantee
    if not isinstance(held, (MetricDP, LocalDP)):
        return [f"definition: {mechanism.name} has no approximate_dp"]
    # a voided claim has no number, so what it was is read off the events
    epsilon = max(scales(plan.event)) if math.isinf(held.epsilon) else held.epsilon
    implied = plan_privatization(mechanism, epsilon=epsilon, kept_columns=plan.kept_columns)
    promised = implied.guarantee
    kinds = {input_role(mechanism), *further_models(mechanism)}
    found = _missing(promised.assumptions, held.assumptions)
    if replace(held, epsilon=epsilon, assumptions=promised.assumptions) != promised:
        field = "parameters.metric_dp" if isinstance(promised, MetricDP) else "privacy_unit"
        found.append(f"{field}: not that of {mechanism.name}")
    if set(plan.model_ids) != kinds:
        found.append(f"public_inputs: not those of {mechanism.name}: {', '.join(sorted(kinds))}")
    if (plan.unit_column, plan.noise_multiplier, plan.discretisation, plan.num_records) != (None, None, 0.0, None):
        found.append(f"privacy_unit, accounting: {mechanism.name} has no unit column, noise multiplier or interval")
    if set(leaves(implied.event)) != set(leaves(plan.event)):
        found.append(f"accounting.events: not those of {mechanism.name} with these parameters")
    return found


def _synthesized(mechanism: Any, plan: Plan) -> list[str]:
    """Compare a synthesis with its events; privacy.json names no labels, so both of their forms are allowed."""
    held = plan.guarantee
    if hasattr(mechanism, "protection") or isinstance(held, SecretProtection):
        return _protecting(mechanism, plan)
    if not isinstance(held, ApproxDP):
        return [f"definition: {mechanism.name} has approximate_dp"]
    unit, _ = privacy_unit(mechanism, held.unit)
    found = _missing(unit_assumptions(mechanism, plan.adjacency, unit, plan.unit_column), held.assumptions)
    mu = target_mu(held.epsilon, held.delta)
    # a voided claim has no delta, so what parts of it stood for is read off the events
    delta = held.delta or 2 * extra_delta(plan.event) or None
    known: dict[str, Any] = {"adjacency": plan.adjacency, "num_records": plan.num_records, "mu": mu, "delta": delta}
    forms = [Facts(labels=labels, unit=unit, **known) for labels in _LABELS]
    actual = leaves(plan.event)
    fitted = [mechanism.fitted(form) if hasattr(mechanism, "fitted") else mechanism for form in forms]
    pairs = zip(fitted, forms, strict=True)
    if all(leaves(found.event(plan.noise_multiplier, form)) != actual for found, form in pairs):
        found.append(f"accounting.events: not those of {mechanism.name} with these parameters and this noise")
    return found


def _protecting(mechanism: Any, plan: Plan) -> list[str]:
    """Compare a synthesis that protects secrets with its guarantee and its constant noise."""
    held = plan.guarantee
    if not (hasattr(mechanism, "protection") and isinstance(held, SecretProtection)):
        return [f"definition: not that of {mechanism.name}"]
    implied = mechanism.protection()
    found = _missing(implied.assumptions, held.assumptions)
    if replace(held, assumptions=implied.assumptions) != implied:
        found.append(f"parameters.secret_protection: not that of {mechanism.name} with these parameters")
    noise = mechanism.noise_multiplier()
    if plan.noise_multiplier != noise or leaves(mechanism.event(noise, Facts())) != leaves(plan.event):
        found.append(f"accounting.events: not those of {mechanism.name} with these parameters")
    return found


def _missing(implied: Iterable[str], held: Iterable[str]) -> list[str]:
    return [f"accounting.assumptions: without {short(text)!r}" for text in implied if text not in held]


def _columns(plan: Plan, files: Iterable[Path], added: Iterable[str]) -> list[str]:
    """Compare the columns of the rows with the named ones: only the text stands there without being named."""
    named = {*plan.label_columns, *plan.kept_columns, *added}
    for path in files:
        unnamed = [name for name in _names(path) if name not in named]
        if len(unnamed) > 1:
            columns = ", ".join(map(repr, unnamed))
            return [f"scope.unprotected_quantities: without {short(columns)}, of which only one can be the text"]
    return []


def _names(path: Path) -> list[str]:
    """Return the names of the columns of a file of rows; none where it cannot be read, which is found elsewhere."""
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        if path.suffix == ".parquet":
            return list(parquet.read_schema(path).names)
        with pyarrow.memory_map(str(path)) as source:
            return list(pyarrow.ipc.open_stream(source).schema.names)
    except (pyarrow.ArrowException, OSError):
        return []
