"""What a card shows of facts that are long: the first of them, and how many more privacy.json has.

A card is read by people, and its front matter by sites that refuse a long one. Nothing that weakens the claim is left
out without a word: of assumptions, those that do not hold come first.
"""

from collections.abc import Sequence
from typing import Any

MOST = 50  # entries of one list
LONGEST = 2_000  # characters of one value
_UNCOVERED = {"uses_private_data": True, "accounted": False}
_METRIC: dict[str, Any] = {"metric": "unnamed", "value": None, **_UNCOVERED}  # what lacks a field claims nothing
_AUDIT: dict[str, Any] = {"attack": "unnamed", "ci": None, **_METRIC}
_WHERE = "which privacy.json lists"


def shortened(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts with at most 50 entries in each list that a card shows.

    Args:
        facts (`dict`): the content of a privacy.json; it is not changed.
    """
    scope, accounting, parameters = facts["scope"], facts["accounting"], facts["parameters"]
    secret = parameters["secret_protection"]
    lists = ("not_covered", "unprotected_quantities", "data_accesses_covered")
    return {
        **facts,
        "scope": {**scope, **{name: _texts(scope[name]) for name in lists}},
        "limitations": _texts(facts["limitations"]),
        "references": _texts(facts["references"]),
        "accounting": {**accounting, "assumptions": _assumptions(accounting["assumptions"])},
        "mechanisms": [{**one, "params": _params(one["params"])} for one in facts["mechanisms"]],
        "parameters": {**parameters, "secret_protection": secret and {**secret, "kinds": kinds(secret["kinds"])}},
        "public_inputs": _entries(facts["public_inputs"], "id", kind="models", overlap_with_private="unknown"),
        "evaluation": _entries([{**_METRIC, **one} for one in facts["evaluation"]], "metric", **_UNCOVERED),
        "audit": _entries([{**_AUDIT, **one} for one in facts["audit"]], "attack", metric="", **_UNCOVERED),
    }


def _texts(held: Sequence[str]) -> list[str]:
    return [*held[:MOST], *([_more(len(held) - MOST)] if len(held) > MOST else [])]


def _entries(held: Sequence[dict[str, Any]], name: str, **rest: Any) -> list[dict[str, Any]]:
    """Return the first entries, and one that stands for all others and claims nothing for them."""
    if len(held) <= MOST:
        return list(held)
    return [*held[:MOST], {**dict.fromkeys(held[0]), **rest, name: _more(len(held) - MOST)}]


def _more(number: int) -> str:
    return f"{number:,} more, {_WHERE}"


def _assumptions(held: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(held) <= MOST:
        return list(held)
    order = [False, "unknown", True]
    worst = sorted(held, key=lambda one: order.index(one["holds"]))
    rest = worst[MOST:]
    return [*worst[:MOST], {"name": _more(len(rest)), "holds": rest[0]["holds"], "note": "by construction"}]


def _params(held: dict[str, Any]) -> dict[str, Any]:
    shown = dict(list(held.items())[:MOST])
    return shown if len(held) <= MOST else {**shown, "further parameters": _more(len(held) - MOST)}


def kinds(held: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the bounds of the first kinds of secrets, and the largest ones of all others."""
    rest = held[MOST:]
    if not rest:
        return list(held)
    largest = {name: max(one[name] for one in rest) for name in ("p", "r")}
    return [*held[:MOST], {"kind": f"{_more(len(rest))}: at most", **largest}]
