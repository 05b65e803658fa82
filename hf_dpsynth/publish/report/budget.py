"""The budget by charge: what each release cost alone, and what all up to it cost together, by the accountant.

Losses of single releases do not add up: together they cost less than their sum. So both are stated.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dp_accounting import ComposedDpEvent, DpEvent

from hf_dpsynth.guarantees import ApproxDP, LocalDP, MetricDP
from hf_dpsynth.privacy.accounting import epsilon, leaves, rdp_epsilon
from hf_dpsynth.privacy.ledger import Charge
from hf_dpsynth.privacy.scales import metric_scale
from hf_dpsynth.publish.accesses import access
from hf_dpsynth.release import Release

_ADDED = (MetricDP, LocalDP)
_MOST_ROWS = 20  # of the table: each costs the accountant up to a second. More charges are taken together


@dataclass(frozen=True, kw_only=True)
class Spent:
    """One charge of the ledger, or several in a row.

    Args:
        name (`str`): the key of the charge, or the first and the last.
        count (`int`): how many charges of the ledger these are. A charge may stand for many steps of training.
        dates (`str`): the UTC date, or the first and the last.
        reads (`str`): what was read and how it was noised, in words.
        own (`float`, *optional*): epsilon of these charges alone, or their metric scale; None when nothing holds.
        total (`float`, *optional*): epsilon of all charges up to this one; None for a metric scale or local DP, whose
            loss is one for each word or each text and is not added up over texts.
        num_lost (`int`): for how many of them a process stopped before the value was kept. They count as spent.
    """

    name: str
    count: int
    dates: str
    reads: str
    own: float | None
    total: float | None
    num_lost: int


def spending(release: Release) -> tuple[Spent, ...]:
    """Return what the charges of a release cost, in their order.

    Args:
        release (`Release`): the record; one without charges, as privacy.json alone gives it, has none.
    """
    size = max(1, math.ceil(len(release.charges) / _MOST_ROWS))
    groups = [release.charges[start : start + size] for start in range(0, len(release.charges), size)]
    named = {word for note in release.notes for word in note.split()}
    rows, so_far = [], list[DpEvent]()
    for group in groups:
        events = [charge.event for charge in group]
        so_far += events
        rows.append(
            Spent(
                name=_range([charge.key for charge in group]),
                count=len(group),
                dates=_range([charge.when for charge in group]),
                reads=_reads(group, getattr(release.guarantee, "unit", "record")),
                own=_cost(release, events),
                total=None if isinstance(release.guarantee, _ADDED) else _cost(release, so_far),
                num_lost=sum(charge.key in named for charge in group),
            )
        )
    return tuple(rows)


def _range(names: Sequence[str]) -> str:
    return names[0] if names[0] == names[-1] else f"{names[0]} to {names[-1]}"


def _reads(group: Sequence[Charge], unit: str) -> str:
    counts = leaves(ComposedDpEvent([charge.event for charge in group]))
    return "; ".join(access(leaf, count, unit) for leaf, count in counts.items()) or "nothing"


def _cost(release: Release, events: Sequence[DpEvent]) -> float | None:
    """Return the loss of events by the accountant of the plan, or None when no loss holds."""
    plan, guarantee = release.plan, release.guarantee
    if plan.insecure_noise:
        return None
    total = ComposedDpEvent(list(events))
    if isinstance(guarantee, _ADDED):
        return math.inf if math.isinf(guarantee.epsilon) else metric_scale(total)
    if not isinstance(guarantee, ApproxDP):
        return None
    if math.isinf(guarantee.epsilon):
        return math.inf
    if plan.account in ("rdp", "zcdp"):
        return rdp_epsilon(total, guarantee.delta, adjacency=plan.adjacency)
    return epsilon(total, guarantee.delta, adjacency=plan.adjacency, discretisation=plan.discretisation)
