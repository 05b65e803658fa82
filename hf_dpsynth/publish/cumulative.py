"""What all releases of a repository cost together, by the sum of their losses.

Whoever publishes again has seen what was published before, and losses that are chosen so still add up: epsilons and
deltas are summed. A tighter account would need the parameters of all releases to be fixed before the first one.
Source: Rogers, Roth, Ullman, Vadhan 2016, Privacy odometers and filters (basic composition).
"""

import math
from collections.abc import Iterable
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from hf_dpsynth.errors import PrivacyError
from hf_dpsynth.publish import protection
from hf_dpsynth.publish.accounts import short
from hf_dpsynth.release import Earlier, Release

LOWER_BOUND = "epsilon_lower"
_TOGETHER = {"add_remove", "zero_out"}  # the first implies the second at the same loss


def stated(release: Release, *, epsilon: float | None, delta: float | None) -> dict[str, Any]:
    """Return `cumulative` of privacy.json.

    Args:
        release (`Release`): with what was published before.
        epsilon (`float`, *optional*): of this release alone; None where it claims none.
        delta (`float`, *optional*): likewise.
    """
    epsilons = [epsilon, *(one.epsilon for one in release.earlier)]
    deltas = [delta, *(one.delta for one in release.earlier)]
    whole = None not in epsilons and None not in deltas and _sum(deltas) < 1
    return {
        "epsilon": _sum(epsilons) if whole else None,
        "delta": _sum(deltas) if whole else None,
        "prior_releases": [_entry(one) for one in release.earlier],
        "budget": None if release.budget is None else asdict(release.budget),
    }


def _sum(numbers: Iterable[float | None]) -> float:
    """Return a sum that is rounded up where no float is equal to it."""
    exact = sum((Fraction(number) for number in numbers if number is not None), Fraction())
    total = float(exact)
    return total if total >= exact else math.nextafter(total, math.inf)


def _entry(one: Earlier) -> dict[str, Any]:
    return {**asdict(one), "files": [{"path": path, "sha256": digest} for path, digest in one.files]}


def earlier(entry: dict[str, Any]) -> Earlier:
    """Read an entry of `prior_releases`."""
    return Earlier(**entry | {"files": tuple((file["path"], file["sha256"]) for file in entry["files"])})


def as_earlier(facts: dict[str, Any]) -> Earlier:
    """Return what the facts of a release are to one that is published after it."""
    parameters = facts["parameters"]
    metric = parameters["metric_dp"]
    return Earlier(
        guarantee_id=facts["guarantee_id"],
        created=facts["created"],
        mechanism=facts["mechanisms"][0]["name"],
        claim_status=facts["claim_status"],
        adjacency=facts["adjacency"],
        epsilon=parameters["epsilon"],
        delta=parameters["delta"],
        scale=None if metric is None else metric["scale"],
        files=tuple((file["path"], file["sha256"]) for file in facts["output"]["files"]),
    )


def before(held: dict[str, Any], facts: dict[str, Any], replaced: Iterable[str]) -> tuple[Earlier, ...]:
    """Return what was published before a release, oldest first, with the files of rows that stay.

    Args:
        held (`dict`): privacy.json of the repository, valid by its schema.
        facts (`dict`): privacy.json of the release that comes.
        replaced (`Iterable[str]`): paths of files of rows that the release takes away or replaces.
    Raises:
        PrivacyError: the losses of the two do not add up.
    """
    gone, found = set(replaced), []
    for one in (*(earlier(entry) for entry in held["cumulative"]["prior_releases"]), as_earlier(held)):
        if one.guarantee_id != facts["guarantee_id"]:
            kept = tuple(file for file in one.files if file[0] not in gone)
            found.append(Earlier(**{**vars(one), "files": kept}))
    for line in clashes(held, facts) if found else ():
        raise PrivacyError(
            f"the repository holds another release, and {line}: losses of different kinds do not add up to a claim. "
            "Push to another repository."
        )
    return tuple(found)


def clashes(held: dict[str, Any], facts: dict[str, Any]) -> list[str]:
    """Return why the losses of two releases are not of one kind."""
    found = []
    for field in ("definition", "privacy_unit", "adjacency", "parameters"):
        first, second = _kind(held, field), _kind(facts, field)
        if first != second and not (field == "adjacency" and {first, second} <= _TOGETHER):
            name = field.replace("parameters", "metric")
            found.append(f"its {name} is {short(first)}, that of this one {short(second)}")
    return found


def _kind(facts: dict[str, Any], field: str) -> Any:
    if field == "privacy_unit":
        column = facts[field]["column"]
        return facts[field]["description"] + ("" if column is None else f" of column {column}")
    if field == "parameters":
        metric = facts[field]["metric_dp"]
        return None if metric is None else metric["metric"]
    return facts[field]


def adjacency(facts: dict[str, Any]) -> str:
    """Return the relation under which the sum of all releases holds."""
    named = {facts["adjacency"], *(entry["adjacency"] for entry in facts["cumulative"]["prior_releases"])}
    return "zero_out" if len(named) > 1 else str(facts["adjacency"])


def beside(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the earlier releases whose rows still lie beside those of this one."""
    return [entry for entry in facts["cumulative"]["prior_releases"] if entry["files"]]


def status(facts: dict[str, Any]) -> str:
    """Return the claim status of all rows: that of the weakest release whose rows are there."""
    held = [str(facts["claim_status"]), *(entry["claim_status"] for entry in beside(facts))]
    weaker = (name for name in held if name == "none" or name.endswith("_conditional"))
    return "none" if "none" in held else next(weaker, held[0])


def whole(facts: dict[str, Any], digits: Any) -> str:
    """Return the sentence on a data set that holds rows of several releases; empty where it holds those of one."""
    total, number = facts["cumulative"], len(beside(facts)) + 1
    if number == 1:
        return ""
    start = f"This data set holds rows of {number} releases"
    if status(facts) == "none":
        return f"{start}, and no guarantee holds for all of it: at least one of them claims none."
    if facts["definition"] == protection.DEFINITION:
        return f"{start}, and guesses of a secret get better with each of them."
    unit = facts["privacy_unit"]["level"]
    so_far = _condition([facts, *total["prior_releases"]])
    if facts["definition"] == "metric_dp":
        return f"{start}; together they are metric DP at scale {digits(_scale(facts))} per {unit}{so_far}."
    if total["epsilon"] is None:
        return f"{start}, and no total epsilon holds for all that was published here."
    under = f"per {unit} under {adjacency(facts).replace('_', '-')} adjacency{so_far}"
    loss = f"DP epsilon = {digits(total['epsilon'])} and delta = {digits(total['delta'])}"
    if facts["definition"] == "local_dp":
        return f"{start}; together they are local DP with {loss} {under}."
    return f"{start}; together they are differentially private with {loss} (approximate DP) {under}."


def _condition(held: Iterable[dict[str, Any]]) -> str:
    conditional = any(one["claim_status"].endswith("_conditional") for one in held)
    return ", if the assumptions of each hold" if conditional else ""


def _scale(facts: dict[str, Any]) -> float:
    """Return the sum of scales of metric DP, for releases of the same texts."""
    prior = facts["cumulative"]["prior_releases"]
    return _sum([facts["parameters"]["metric_dp"]["scale"], *(entry["scale"] for entry in prior)])


def sentence(facts: dict[str, Any], digits: Any) -> str:
    """Return the sentence on all releases together.

    Args:
        facts (`dict`): of a privacy.json.
        digits (`Callable[[float], str]`): how numbers are written.
    """
    total, prior = facts["cumulative"], facts["cumulative"]["prior_releases"]
    counted = f"{releases(len(prior))} and this one" if prior else "This release alone; no other was counted"
    if facts["definition"] == protection.DEFINITION:
        return f"{counted}. Guesses get better with every further release of the same secrets."
    so_far = _condition([facts, *prior]) if prior else ""
    if facts["definition"] == "metric_dp" and prior and "none" not in [e["claim_status"] for e in (facts, *prior)]:
        return f"{counted}: scale {digits(_scale(facts))} where all are of the same texts{so_far}."
    if total["epsilon"] is None:
        return f"{counted}: no total epsilon."
    under = f" under {adjacency(facts).replace('_', '-')} adjacency" if prior else ""
    return f"{counted}: DP epsilon = {digits(total['epsilon'])} at delta = {digits(total['delta'])}{under}{so_far}."


def releases(number: int) -> str:
    """Return how many earlier releases there are."""
    return "1 earlier release" if number == 1 else f"{number} earlier releases"


def budget_sentence(facts: dict[str, Any], digits: Any) -> str:
    """Return the sentence on the budget across runs; empty without one."""
    held = facts["cumulative"]["budget"]
    if held is None:
        return ""
    at = f" at delta = {digits(held['delta'])}" if held["delta"] else ""
    runs = "1 run" if held["runs"] == 1 else f"{held['runs']} runs"
    name = "scale" if facts["definition"] == "metric_dp" else "DP epsilon"
    return (
        f"Runs that are charged to the budget of this one stay within {name} = {digits(held['epsilon'])}{at} "
        f"together; when this release was recorded, {runs} had reserved or spent {name} = {digits(held['spent'])}. "
        "The file of the budget is with the publisher."
    )


def refuted(facts: dict[str, Any]) -> list[str]:
    """Return which audits found more than is claimed, a sentence each, which begins with the field."""
    metric = facts["parameters"]["metric_dp"]
    claimed, bound = facts["parameters"]["epsilon"], "an epsilon"
    if metric is not None:
        claimed, bound = metric["scale"], "a loss for each unit of distance"
    if claimed is None:
        return []
    return [
        f"audit[{at}]: {one['attack']} shows {bound} of at least {one['value']:g}, {claimed:g} is claimed"
        for at, one in enumerate(facts["audit"])
        if one["metric"] == LOWER_BOUND and one["value"] > claimed
    ]
