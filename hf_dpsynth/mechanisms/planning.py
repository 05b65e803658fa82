"""Planning: from an epsilon and declared facts to the noise, the guarantee and the cost. Reads no data.

A plan parameter that depends on the number of records makes that number public: the relation becomes zero-out and the
guarantee says so.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from dp_accounting import SelfComposedDpEvent

from hf_dpsynth import registry
from hf_dpsynth.columns import label_domain
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.guarantees import NEIGHBOURS, ApproxDP
from hf_dpsynth.logging import get_logger
from hf_dpsynth.mechanisms.base import PUBLIC_ROWS, Privatizer, Synthesizer, check_protected
from hf_dpsynth.mechanisms.protection import UNIT, plan_protection
from hf_dpsynth.plans import CLEAR_COLUMNS, Facts, Plan, default_delta
from hf_dpsynth.privacy.accounting import calibrate, interval, target_mu

logger = get_logger(__name__)


def plan(
    mechanism: Any,
    *,
    epsilon: float | None,
    delta: float | str | None = None,
    num_records: int | None = None,
    num_rows: int | None = None,
    labels: Sequence[Any] | Mapping[str, Any] | None = None,
    label_proportions: Mapping[Any, Any] | None = None,
    unit: str | None = None,
    adjacency: str | None = None,
    params: dict[str, Any] | None = None,
) -> Plan:
    """Plan a mechanism without any data: how much noise, which guarantee, what it costs.

    Args:
        mechanism (`str` or a mechanism): a name of `list_mechanisms()`, or an instance.
        epsilon (`float`, *optional*): the epsilon to plan for; `float("inf")` for no privacy, None where the
            guarantee has none (`sec-pe`).
        delta (`float`, *optional*): its delta; min(1e-5, 1/(n ln n)) rounded down to a power of ten when missing;
            `"1/n"` is the choice of many papers.
        num_records (`int`, *optional*): the number of records, declared public; of users at a user unit.
        num_rows (`int`, *optional*): rows to make.
        labels (`Sequence` or `dict`, *optional*): the label domain, declared public.
        label_proportions (`dict`, *optional*): shares of the labels, declared public; bought from the budget when
            missing.
        unit (`str`, *optional*): the privacy unit, `"record"`; where the mechanism offers it, the name of the column
            whose values are the users, also when that is `"user"`.
        adjacency (`str`, *optional*): `"add-remove"`, `"zero-out"` or `"replace-one"`; what the plan implies when
            missing.
        params (`dict`, *optional*): fields of the mechanism, only with a name.
    Returns:
        `Plan`: noise multiplier, event tree, guarantee and cost.
    Raises:
        ConfigError: a value is out of range or contradicts another.
    Examples:
        >>> from hf_dpsynth import plan
        >>> plan("aug-pe", epsilon=1.0, delta=1e-6, num_rows=500).noise_multiplier
        13.367
    """
    kind = "privatize" if isinstance(mechanism, str) and _kind(mechanism) == "privatize" else "synthesize"
    found = registry.resolve(mechanism, params, getattr(mechanism, "kind", kind))
    if found.kind == "privatize":
        given = {"delta": delta, "num_records": num_records, "num_rows": num_rows, "labels": labels}
        given |= {"label_proportions": label_proportions}
        _check_private_arguments(found, unit, adjacency, given)
        return plan_privatization(found, epsilon=check_epsilon(epsilon))
    columns = tuple(labels) if isinstance(labels, Mapping) else ()
    domain, proportions = label_domain(None, columns, labels, label_proportions)
    made = plan_synthesis(
        found,
        epsilon=epsilon,
        delta=delta,
        num_records=num_records,
        num_rows=num_rows,
        labels=domain,
        proportions=proportions,
        adjacency=adjacency,
        unit=unit,
    )
    for warning in made.warnings:
        logger.warning("%s", warning)
    return made


def _check_private_arguments(mechanism: Privatizer, unit: str | None, adjacency: str | None, given: Any) -> None:
    """Refuse what says nothing of a privatization.

    Raises:
        ConfigError: such an argument was passed.
    """
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise ConfigError(f"{mechanism.name} privatizes each text; it takes no {wrong[0]}=. Leave it out.")
    protected = check_protected(mechanism, unit)
    if adjacency not in (None, "replace-one"):
        raise ConfigError(
            f"adjacency={adjacency!r} is not offered by {mechanism.name}: a {protected} is replaced by another one "
            "('replace-one')."
        )


def _kind(name: str) -> str | None:
    entry = registry.table().get(name)
    return None if entry is None else entry.kind


def plan_privatization(
    mechanism: Privatizer, *, epsilon: float, splits: int = 1, kept_columns: tuple[str, ...] = (), **public: Any
) -> Plan:
    """Make the plan of a privatization: one release of each split.

    Args:
        mechanism (`Privatizer`): the hyper-parameters.
        epsilon (`float`): the loss for each unit of distance.
        splits (`int`, defaults to `1`): how many splits are released, each once.
        kept_columns (`tuple[str, ...]`): columns copied in clear; the guarantee names them.
        **public (`Any`): further public fields of `Plan`.
    Returns:
        `Plan`: fixed; equal for equal arguments.
    Raises:
        ConfigError: epsilon is out of range.
    """
    epsilon = check_epsilon(epsilon)
    guarantee = mechanism.guarantee(epsilon)
    if kept_columns:
        clear = CLEAR_COLUMNS + ", ".join(kept_columns)
        guarantee = replace(guarantee, assumptions=(*guarantee.assumptions, clear))
    return Plan(
        mechanism=mechanism.name,
        params=registry.planned(mechanism),
        event=SelfComposedDpEvent(mechanism.event(epsilon), splits),
        noise_multiplier=None,
        guarantee=guarantee,
        kept_columns=kept_columns,
        delta=None,
        adjacency="replace-one",
        discretisation=0.0,
        account="closed_form",
        **public,
    )


def check_epsilon(epsilon: Any) -> float:
    """Return epsilon as a float.

    Raises:
        ConfigError: it is no number > 0.
    """
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float, np.integer, np.floating)):
        raise ConfigError(f"epsilon is {epsilon!r}; it must be a number > 0, or float('inf') for no privacy")
    if not epsilon > 0:
        raise ConfigError(f"epsilon is {epsilon}; it must be a number > 0, or float('inf') for no privacy")
    return float(epsilon)


def _whole(name: str, number: Any) -> int | None:
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or not number >= 1:
        raise ConfigError(f"{name} is {number!r}; it must be a whole number >= 1")
    return int(number)


def check_seed(seed: Any) -> int:
    """Return the seed of public randomness as an int.

    Raises:
        ConfigError: it is no whole number >= 0.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not seed >= 0:
        raise ConfigError(f"seed is {seed!r}; it must be a whole number >= 0")
    return int(seed)


def check_delta(delta: Any, epsilon: float, num_records: int | None) -> float | None:
    """Return the delta to plan with; None only when epsilon is infinite.

    Raises:
        ConfigError: it is out of range, or its default is asked for fewer than 1000 declared records.
    """
    if delta == "1/n":
        if num_records is None or num_records < 2:
            raise ConfigError("delta='1/n' needs a declared num_records of at least 2. Pass num_records=.")
        return 1 / num_records
    if delta is None:
        if math.isinf(epsilon):
            return None
        if num_records is None or num_records < 1000:
            raise ConfigError(
                "delta= must be given: its default is a function of a declared num_records of at least 1000"
                + ("." if num_records is None else f", and {num_records} is declared.")
            )
        return default_delta(num_records)
    if isinstance(delta, bool) or not isinstance(delta, (int, float, np.floating)) or not 0 < delta < 1:
        raise ConfigError(f"delta is {delta!r}; it must be a number between 0 and 1")
    return float(delta)


def _adjacency(asked: str | None, uses_num_records: str) -> str:
    """Return the relation that a plan implies, or check the relation that was asked for."""
    if asked is None:
        return "zero-out" if uses_num_records else "add-remove"
    if asked not in NEIGHBOURS:
        raise ConfigError(f"adjacency {asked!r} is unknown; use one of {', '.join(NEIGHBOURS)}")
    if asked == "add-remove" and uses_num_records:
        raise ConfigError(
            f"adjacency='add-remove' protects the number of records, but {uses_num_records} depends on it. "
            f"Pass {uses_num_records}= yourself, or adjacency='zero-out'."
        )
    return asked


def privacy_unit(mechanism: Any, unit: str | None) -> tuple[str, str | None]:
    """Return the privacy unit that is asked for, `"record"` or `"user"`, and the column whose values are the users.

    Raises:
        ConfigError: the mechanism does not offer it.
    """
    if unit in (None, "record") or (unit == UNIT and hasattr(mechanism, "protection")):
        return "record", None
    if not isinstance(unit, str) or "user" not in getattr(mechanism, "units", ()):
        raise ConfigError(
            f"unit={unit!r} is not offered by {mechanism.name}; it protects each record (unit='record')."
        )
    return "user", unit


def declared_units(
    mechanism: Any, num_records: int | None, present: int, level: str, *, needed: bool = False
) -> int | None:
    """Return the number of privacy units that a plan may use: the declared one, or where it needs one, the true one.

    Args:
        mechanism (`Synthesizer`): the hyper-parameters.
        num_records (`int`, *optional*): the declared number.
        present (`int`): the true one; public where the plan uses it.
        level (`str`): `"record"` or `"user"`.
        needed (`bool`, defaults to `False`): whether the call leaves out something that follows from the number.
    Raises:
        ConfigError: batches are shuffled and fewer units are declared than there are, so that some had no batch.
    """
    needed = needed or getattr(mechanism, "uses_num_records", False)
    declared = _whole("num_records", num_records)
    if declared is not None and declared < present and getattr(mechanism, "sampling", "") == "shuffle":
        raise ConfigError(
            f"num_records is {declared} and there are {present} {level}s: shuffled batches have a place for each "
            f"declared one alone. Declare num_records={present}, or leave it out."
        )
    return present if declared is None and needed else declared


def unit_assumptions(mechanism: Any, adjacency: str, unit: str, column: str | None) -> tuple[str, ...]:
    """Return the sentences that a relation, a privacy unit and public rows imply for a guarantee."""
    found = () if adjacency == "add-remove" else (f"the number of {unit}s is public, not protected",)
    found = (*found, PUBLIC_ROWS) if getattr(mechanism, "needs_public", False) else found
    if unit == "record":
        return found
    most = getattr(mechanism, "of_a_user", "")
    most = most or f"at most {mechanism.max_contributions} records of a user are read in a step, drawn in secret"
    return (*found, f"a user is a value of the column {column!r}", most)


def _account(mechanism: Any, level: str, account: str) -> str:
    """Return the accountant of a plan: that of a budget, else one that the events of the unit need."""
    own = getattr(mechanism, "account", None) or (level == "user" and getattr(mechanism, "user_account", None))
    return (own or account) if account == "pld" else account


def plan_synthesis(
    mechanism: Synthesizer,
    *,
    epsilon: float | None,
    delta: float | str | None = None,
    num_records: int | None = None,
    num_rows: int | None = None,
    labels: Sequence[tuple[Any, ...]] = ((),),
    proportions: Sequence[float] | None = None,
    adjacency: str | None = None,
    unit: str | None = None,
    account: str = "pld",
    assumptions: tuple[str, ...] = (),
    **public: Any,
) -> Plan:
    """Make the plan of a synthesis: relation, delta, noise, guarantee and cost. Reads no data.

    Args:
        mechanism (`Synthesizer`): the hyper-parameters.
        epsilon (`float`, *optional*): the epsilon to plan for; None where the guarantee has none.
        delta (`float`, *optional*): its delta; a function of `num_records` when missing.
        num_records (`int`, *optional*): the declared number of privacy units, which a plan publishes; an explicit
            `"add-remove"` leaves it unused.
        num_rows (`int`, *optional*): rows to make; at a record unit `num_records` when missing and declared.
        labels (`Sequence[tuple]`): the declared label domain.
        proportions (`Sequence[float]`, *optional*): declared shares of the labels; bought when missing.
        adjacency (`str`, *optional*): the relation; what the plan implies when missing.
        unit (`str`, *optional*): `"record"`, `"user"`, or the column whose values are the users.
        account (`str`, defaults to `"pld"`): `"rdp"` under a budget across runs.
        assumptions (`tuple[str, ...]`): sentences that the guarantee must name.
        **public (`Any`): further public fields of `Plan`.
    Returns:
        `Plan`: fixed; equal for equal arguments.
    Raises:
        ConfigError: a value is out of range or contradicts another.
    """
    num_records, num_rows = _whole("num_records", num_records), _whole("num_rows", num_rows)
    if hasattr(mechanism, "protection"):
        return plan_protection(
            mechanism,
            refused={"epsilon": epsilon, "delta": delta, "adjacency": adjacency},
            budget=account == "rdp",
            unit=unit,
            num_records=num_records,
            num_rows=num_rows,
            labels=labels,
            proportions=proportions,
            assumptions=assumptions,
            **public,
        )
    epsilon = check_epsilon(epsilon)
    level, unit_column = privacy_unit(mechanism, unit)
    uses = "delta" if delta in (None, "1/n") and not math.isinf(epsilon) else ""
    if getattr(mechanism, "uses_num_records", False):
        _check_sampled(mechanism, num_records, adjacency)
    if num_records is not None and adjacency != "add-remove":
        # a number that is declared is published with the plan, so it is not protected
        uses = uses or "num_records"
        num_rows = num_rows or (num_records if level == "record" else None)
    relation = _adjacency(adjacency, uses)
    delta = check_delta(delta, epsilon, num_records)
    account = _account(mechanism, level, account)
    facts = Facts(
        num_records=num_records if uses else None,
        num_rows=num_rows,
        labels=tuple(labels),
        proportions=None if proportions is None else tuple(proportions),
        adjacency=relation,
        unit=level,
        mu=target_mu(epsilon, delta),
        delta=delta,
    )
    if hasattr(mechanism, "fitted"):
        mechanism = mechanism.fitted(facts)
    multiplier = _multiplier(mechanism, facts, epsilon, delta, account)
    return Plan(
        mechanism=mechanism.name,
        params=registry.planned(mechanism),
        event=mechanism.event(multiplier, facts),
        noise_multiplier=multiplier,
        guarantee=ApproxDP(
            epsilon=epsilon,
            delta=delta or 0.0,
            unit=level,
            neighbours=relation,
            assumptions=unit_assumptions(mechanism, relation, level, unit_column) + assumptions,
        ),
        delta=delta,
        adjacency=relation,
        labels=facts.labels,
        proportions=facts.proportions,
        num_records=facts.num_records,
        num_rows=num_rows,
        unit_column=unit_column,
        cost=None if num_rows is None else mechanism.cost(facts),
        account=account,
        discretisation=interval(epsilon) if math.isfinite(epsilon) else 0.0,
        warnings=mechanism.warnings(multiplier, epsilon, delta, facts),
        **public,
    )


def _check_sampled(mechanism: Synthesizer, num_records: int | None, adjacency: str | None) -> None:
    """Refuse to sample records with a probability that nobody declared."""
    if num_records is None:
        raise ConfigError(f"{mechanism.name} reads a public share of num_records units. Declare num_records=.")
    if adjacency == "add-remove":
        raise ConfigError(
            f"adjacency='add-remove' protects the number of records, but {mechanism.name} reads a public share of "
            "them. Leave adjacency out: it is 'zero-out'."
        )


def _multiplier(mechanism: Synthesizer, facts: Facts, epsilon: float, delta: float | None, account: str) -> float:
    if math.isinf(epsilon) or delta is None:
        return 0.0
    return calibrate(
        lambda multiplier: mechanism.event(multiplier, facts),
        epsilon,
        delta,
        adjacency=facts.adjacency,
        account=account,
    )
