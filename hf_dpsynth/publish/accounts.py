"""Recomputing a claim from its events, when neither can be trusted.

The events are bounded before anything is computed, so that a hostile privacy.json costs no more time or memory than an
honest one; whatever cannot be computed is a finding.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent

from hf_dpsynth.contamination.origin import ASSUMPTION
from hf_dpsynth.errors import HfDpsynthError
from hf_dpsynth.guarantees import FALSE
from hf_dpsynth.privacy.accounting import epsilon, extra_delta, leaves, rdp_epsilon
from hf_dpsynth.privacy.event_json import event_from_json
from hf_dpsynth.privacy.limited_domain import LimitedDomainDpEvent
from hf_dpsynth.privacy.noise import DiscreteGaussianDpEvent
from hf_dpsynth.privacy.scales import scales
from hf_dpsynth.privacy.tokens import TokensDpEvent
from hf_dpsynth.privacy.user_votes import ClippedSumDpEvent, least_norm
from hf_dpsynth.privacy.words import TagResponseDpEvent, WordDpEvent
from hf_dpsynth.publish import protection

_TOLERANCE = 1e-6  # transforms of the same version differ in the last digits between machines
_MOST_KINDS, _MOST_CELLS = 32, 1e9  # about half a minute each on one core
_LEAST_NOISE, _MOST_NOISE = 1e-5, 2e6
_LEAST_RHO, _MOST_RHO = 1e-15, 1e12
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.parquet$")
_ADDED: dict[str, tuple[str, tuple[type[DpEvent], ...]]] = {
    "metric_dp": ("metric_dp.scale", (WordDpEvent, TagResponseDpEvent)),
    "local_dp": ("epsilon", (TokensDpEvent,)),
}
READING = (HfDpsynthError, KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)


def check(facts: dict[str, Any]) -> list[str]:
    """Return what is wrong with the claim in the facts of a privacy.json; empty when the events bear it.

    Args:
        facts (`dict`): the content of a privacy.json, checked by nobody.
    Returns:
        `list[str]`: a sentence for each fault, which begins with the field.
    """
    try:
        event = event_from_json(facts["accounting"]["events"])
        counts = leaves(event)
        return [*_claim(facts), *_relation(facts, counts), *_cost(facts, event, counts)]
    except READING as error:
        return [f"accounting: the claim cannot be recomputed ({type(error).__name__}: {short(error)})"]


def short(value: Any) -> str:
    """Return a value as one line of bounded length."""
    text = "".join(sign if sign.isprintable() else " " for sign in str(value))
    return text if len(text) <= 160 else text[:157] + "..."


def _claim(facts: dict[str, Any]) -> list[str]:
    """Compare the status with the numbers: a number that nothing stands behind is no claim."""
    parameters, status = facts["parameters"], facts["claim_status"]
    metric, secret = facts["definition"] == "metric_dp", facts["definition"] == protection.DEFINITION
    field = "parameters.metric_dp.scale" if metric else "parameters.epsilon"
    claimed = parameters["metric_dp"]["scale"] if metric else parameters["epsilon"]
    found = []
    if secret:
        field, claimed = "parameters.secret_protection", parameters["secret_protection"]
        numbers = [name for name in ("epsilon", "delta", "metric_dp") if parameters[name] is not None]
        found += [f"parameters.{name}: {short(parameters[name])} beside secret protection" for name in numbers]
    if secret != (status in (protection.FORMAL, protection.CONDITIONAL)) and status != "none":
        found.append(f"claim_status: {short(status)} is no status of {short(facts['definition'])}")
    if status == "none" and claimed is not None and not secret:
        found.append(f"{field}: {short(claimed)} beside claim_status none, which allows no number")
    if status != "none" and claimed is None:
        found.append(f"{field}: null beside claim_status {short(status)}")
    if status != "none" and facts["randomness"]["seed_source"] != "os_entropy":
        found.append("claim_status: the noise came from a seed, so nothing can be claimed")
    return found + _assuming(status, facts["accounting"]["assumptions"])


def _assuming(status: str, held: Sequence[dict[str, Any]]) -> list[str]:
    """Compare the status with the assumptions: of those that fail, a claim may stand beside one alone."""
    failing = [entry["name"] for entry in held if entry["holds"] is False]
    if status != "none" and set(failing) - {ASSUMPTION.removesuffix(FALSE)}:
        return [f"claim_status: {short(status)} although an assumption fails"]
    doubt = "fails" if failing else "is unknown"
    if status in ("formal_dp", protection.FORMAL) and (failing or "unknown" in [entry["holds"] for entry in held]):
        return [f"claim_status: {status} although an assumption {doubt}; {status}_conditional is right"]
    return []


def _relation(facts: dict[str, Any], counts: Counter[DpEvent]) -> list[str]:
    """Compare the neighbouring relation with the events and with what is published."""
    accounting, adjacency = facts["accounting"], facts["adjacency"]
    found = []
    if accounting["relation"] != adjacency:
        found.append(f"adjacency: {short(adjacency)}, but accounting.relation is {short(accounting['relation'])}")
    moved = [leaf.moves for leaf in counts if isinstance(leaf, LimitedDomainDpEvent)]
    moved += [len(leaf.shifts) for leaf in counts if isinstance(leaf, DiscreteGaussianDpEvent)]
    if adjacency == "replace_one" and any(number < 2 for number in moved):
        found.append("adjacency: replace_one, but in an event one count moves; a replaced record moves two counts")
    norms = [leaf.norm for leaf in counts if isinstance(leaf, ClippedSumDpEvent)]
    if any(norm < least_norm(adjacency) for norm in norms):
        found.append(f"adjacency: {adjacency}, but in an event a sum moves by {min(norms):.6g}, which is too little")
    if adjacency == "add_remove" and facts["source"]["n_units"] is not None:
        found.append("adjacency: add_remove protects the number of records, but source.n_units publishes it")
    if accounting["composition"] == "filter" and accounting["accountant"] != "rdp":
        found.append("accounting.composition: filter needs the accountant rdp")
    return found


def _cost(facts: dict[str, Any], event: DpEvent, counts: Counter[DpEvent]) -> list[str]:
    """Compare the claimed number with the recomputed one."""
    if facts["claim_status"] == "none":
        return []
    if facts["definition"] == protection.DEFINITION:
        return protection.check(facts, event, counts)
    if facts["definition"] in _ADDED:
        return _added(facts, event, counts)
    if facts["definition"] != "approximate_dp":
        return [f"definition: {short(facts['definition'])} cannot be recomputed by this version"]
    claimed, stated = facts["parameters"]["epsilon"], facts["parameters"]["delta"]
    if claimed is None:
        return []
    extra, listed = extra_delta(event), math.fsum(facts["accounting"]["extra_deltas"])
    if not math.isclose(extra, listed, rel_tol=1e-9):
        return [f"accounting.extra_deltas: {listed:.6g} in all, the events have {extra:.6g}"]
    delta = stated - extra
    if not 0 < delta < 1 or not 0 < claimed < math.inf:
        return [f"parameters.delta: {short(stated)} less the extra deltas, with epsilon {short(claimed)}, is no claim"]
    cost = _recomputed(facts, event, counts, stated)
    if isinstance(cost, str):
        return [cost]
    if not claimed * (1 + _TOLERANCE) >= cost:
        return [f"parameters.epsilon: claimed {claimed:.6g}, the events cost {cost:.6g} at delta {stated:.6g}"]
    return []


def _recomputed(facts: dict[str, Any], event: DpEvent, counts: Counter[DpEvent], delta: float) -> float | str:
    """Return the epsilon of the events by the stated accountant, or why there is none."""
    accounting = facts["accounting"]
    adjacency = facts["adjacency"].replace("_", "-")
    if accounting["accountant"] in ("rdp", "zcdp"):
        over = excess(counts, 1.0)
        return over or rdp_epsilon(event, delta, adjacency=adjacency)
    if accounting["accountant"] != "pld":
        return f"accounting.accountant: {short(accounting['accountant'])} cannot be recomputed by this version"
    interval = accounting["discretisation"]["interval"]
    if interval is None:
        return "accounting.discretisation.interval: null; the accountant pld needs a number"
    return excess(counts, interval) or epsilon(event, delta, adjacency=adjacency, discretisation=float(interval))


def excess(counts: Counter[DpEvent], interval: float) -> str:
    """Return why the events are out of the bounds within which they are recomputed, or nothing."""
    cells, total_noise = 0.0, 0.0
    for leaf, count in counts.items():
        inner = leaf.event if isinstance(leaf, PoissonSampledDpEvent) else leaf
        shifts: tuple[int, ...] = (1,)
        if isinstance(inner, DiscreteGaussianDpEvent):
            noise, shifts = inner.sigma, inner.shifts
        elif isinstance(inner, GaussianDpEvent):
            noise = inner.noise_multiplier
        elif not _LEAST_RHO <= getattr(inner, "rho", 1.0) <= _MOST_RHO:
            return f"accounting.events: a cost of {inner.rho:.6g} in zCDP is out of the range of any plan"
        else:
            continue
        if not _LEAST_NOISE <= noise <= _MOST_NOISE:
            return f"accounting.events: noise {noise:.6g} is out of the range of any plan"
        # the loss of one release reaches from its mean by some deviations to both sides
        reach = sum(shift * shift / (2 * noise**2) + 12 * shift / noise for shift in shifts)
        cells += count * reach / interval if interval > 0 else math.inf
        total_noise += noise * len(shifts)
    if len(counts) > _MOST_KINDS or not (cells <= _MOST_CELLS and total_noise <= _MOST_NOISE):
        return "accounting.events: too many or too costly at this discretisation to be recomputed"
    return ""


def _added(facts: dict[str, Any], event: DpEvent, counts: Counter[DpEvent]) -> list[str]:
    """Compare the loss of one release of a word or a text with the events: each split is released once."""
    field, allowed = _ADDED[facts["definition"]]
    group, _, name = field.rpartition(".")
    claimed = facts["parameters"]["metric_dp"][name] if group else facts["parameters"][name]
    wrong = [type(leaf).__name__ for leaf in counts if not isinstance(leaf, allowed)]
    found = scales(event) if not wrong else Counter[float]()
    if not found:
        return [f"accounting.events: {', '.join(wrong) or 'none'} in place of an event of {facts['definition']}"]
    if claimed is None:
        return []
    scale, faults = max(found), list[str]()
    if claimed * (1 + 1e-12) < scale:
        faults.append(f"parameters.{field}: epsilon claimed {claimed:.6g}, the events have {scale:.6g}")
    if claimed > scale * (1 + 1e-12):
        faults.append(f"parameters.{field}: epsilon {claimed:.6g} is no scale of the events ({scale:.6g})")
    # fewer splits are honest: one of several may be saved alone
    times, splits = sum(found.values()), len(_splits(facts))
    if splits > times and len(facts["postprocessing"]) == 1:  # later processing may split what came out
        faults.append(f"accounting.events: {times} releases of the texts, but output.files has {splits} splits")
    return faults


def _splits(facts: dict[str, Any]) -> set[str]:
    """Return the names of the splits: of Parquet files before their shard number, of Arrow files their folder."""
    paths = [entry["path"] for entry in facts["output"]["files"]]
    return {
        path.rsplit("/", 1)[0] if path.endswith(".arrow") and "/" in path else _SHARD.sub("", path) for path in paths
    }
