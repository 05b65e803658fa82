"""What a release claims and leaves open, in sentences that every exporter says alike.

Numbers of differential privacy are given for a formal guarantee of that kind alone. Metric DP, local DP and secret
protection are told in their own words, and a release without a guarantee has none.
"""

import json
import unicodedata
from typing import Any

from hf_dpsynth.publish import cumulative
from hf_dpsynth.publish.card import adjacency, number, sentence

_OF_DATA_SETS = ("pure_dp", "approximate_dp", "zcdp", "rdp", "gdp")
_HOLDS = {"True": "holds", "False": "does not hold", "unknown": "unknown whether it holds"}
_NO_CLAIM = "No formal guarantee is claimed"
_ON_PRIVATE = "computed on private data, not covered by the guarantee"


def line(text: Any) -> str:
    """Return a text on one line, without signs that control a terminal or a page."""
    return " ".join("".join(" " if unicodedata.category(sign)[0] in "CZ" else sign for sign in str(text)).split())


def is_claimed(facts: dict[str, Any]) -> bool:
    """Return whether the facts claim a formal guarantee of any kind."""
    return str(facts["claim_status"]).startswith("formal_")


def is_differential_privacy(facts: dict[str, Any]) -> bool:
    """Return whether the facts claim differential privacy of a data set, with numbers."""
    numbers = facts["parameters"]["epsilon"] is not None or facts["parameters"]["rho"] is not None
    return is_claimed(facts) and facts["definition"] in _OF_DATA_SETS and numbers


def claim(facts: dict[str, Any]) -> str:
    """Return the claim as one sentence."""
    parameters, unit = facts["parameters"], facts["privacy_unit"]
    if not is_claimed(facts):
        return sentence(facts) if facts["claim_status"] == "none" else f"{_NO_CLAIM}: {line(facts['claim_status'])}."
    if facts["definition"] == "local_dp":
        return (
            f"Local DP with a loss of at most {number(parameters['epsilon'])} between any two values of "
            f"{line(unit['description'])}, under {facts['adjacency'].replace('_', '-')} adjacency. It is no guarantee "
            "of a data set, and protects no person with several texts as a whole."
        )
    return line(sentence(facts))


def unit(facts: dict[str, Any]) -> list[str]:
    """Return what the unit is, which data sets are neighbours, and how contributions are bounded."""
    stated = facts["privacy_unit"]
    found = [f"the unit is {stated['description']} ({stated['level']})", adjacency(facts)]
    if stated["column"] is not None:
        found.append(f"a unit is a value of the column {stated['column']}")
    found.append(f"contributions: {stated['contribution_bounding']}")
    if stated["max_contributions"] is not None:
        found.append(f"most contributions of a unit: {stated['max_contributions']}")
    return [line(one) for one in found]


def assumptions(facts: dict[str, Any]) -> list[str]:
    """Return every assumption, and whether it holds; those that nobody has checked come first."""
    stated = sorted(facts["accounting"]["assumptions"], key=lambda one: one["holds"] is True)
    return [line(f"{_HOLDS[str(one['holds'])]}: {one['name']} ({one['note']})") for one in stated]


def releases(facts: dict[str, Any]) -> str:
    """Return which releases were counted, and their total where it is one of differential privacy."""
    total = facts["cumulative"]
    prior = len(total["prior_releases"])
    counted = f"{cumulative.releases(prior)} and this one" if prior else "this release alone; no other was counted"
    if not is_differential_privacy(facts) or total["epsilon"] is None:
        return counted
    return f"{counted}; total epsilon {number(total['epsilon'])} at delta {number(total['delta'])}"


def mechanisms(facts: dict[str, Any]) -> list[str]:
    """Return what ran, with which parameters, and where its randomness came from."""
    found = []
    for one in facts["mechanisms"]:
        made = f"{one['name']} of {one['library']} {one['version']}, noise drawn by {one['backend']}"
        found += [made, *(f"parameter {name}: {_value(value)}" for name, value in one["params"].items())]
    drawn = facts["randomness"]
    found.append(
        f"randomness: {drawn['prng']}; cryptographic: {_yes(drawn['cryptographic'])}; seed: {drawn['seed_source']}; "
        f"safe against attacks on floating point: {_yes(drawn['float_safe'])}"
    )
    return [line(one) for one in found]


def accounting(facts: dict[str, Any]) -> list[str]:
    """Return what was read of the private data, and how the loss was accounted."""
    stated = facts["accounting"]
    used = f"accountant {stated['accountant']} of {stated['library']} {stated['version']}"
    found = [f"covered: {read}" for read in facts["scope"]["data_accesses_covered"]]
    found.append(f"{used}, {stated['composition']} composition, relation {stated['relation']}")
    found += [f"added to delta: {number(delta)}" for delta in stated["extra_deltas"]]
    grid, sampling = stated["discretisation"], stated["sampling"]
    found.append(f"interval of losses: {number(grid['interval'])}; {grid['rounding']}")
    found.append(f"sampling assumed: {sampling['assumed']}; actual: {sampling['actual']}")
    return [line(one) for one in found]


def public_inputs(facts: dict[str, Any]) -> list[str]:
    """Return the models and other inputs that were taken for public."""
    return [
        line(
            f"{one['kind']} {one['id']}, revision {one['revision'] or 'not pinned'}; "
            f"overlap with the private data: {one['overlap_with_private']}"
        )
        for one in facts["public_inputs"]
    ]


def tuning(facts: dict[str, Any]) -> str:
    """Return how hyper-parameters were searched for."""
    scope = facts["scope"]
    runs = "" if scope["n_tuning_runs"] is None else f" ({scope['n_tuning_runs']} runs)"
    return f"search for hyper-parameters: {scope['hyperparameter_tuning']}{runs}"


def measured(facts: dict[str, Any]) -> list[str]:
    """Return the figures of evaluations and audits, and whether the guarantee covers them."""
    found = [(f"{one['metric']}: {one['value']}", one) for one in facts["evaluation"]]
    found += [
        (f"{one['attack']}, {one['metric']}: {one['value']} (an audit is not a proof)", one) for one in facts["audit"]
    ]
    uncovered = [(text, one["uses_private_data"] and not one["accounted"]) for text, one in found]
    return [line(f"{text}; {_ON_PRIVATE}" if private else text) for text, private in uncovered]


def _value(value: Any) -> str:
    if value == "":
        return '""'
    return number(value) if value is None or isinstance(value, (bool, int, float, str)) else json.dumps(value)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
