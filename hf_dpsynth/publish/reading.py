"""Reading privacy.json: a release from its facts alone, and the facts less their wording."""

import math
from typing import Any

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.guarantees import DECLARED, FALSE, ApproxDP, Guarantee, LocalDP, MetricDP
from hf_dpsynth.plans import Plan
from hf_dpsynth.privacy.event_json import event_from_json
from hf_dpsynth.publish import cumulative, protection
from hf_dpsynth.publish.privacy_json import (
    ADDED,
    BY_WORD,
    CENTRAL,
    CLEAR,
    DOMAIN,
    INSECURE,
    MODEL,
    OS_RANDOMNESS,
    POSTPROCESSED,
    REVIEWED,
    SCHEMA_VERSION,
    UNKNOWN,
)  # fmt: skip
from hf_dpsynth.release import Audit, BudgetState, Contamination, Release, Rows


def without_words(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts less the sentences that another version may phrase otherwise."""
    accounting = ("accountant", "composition", "events", "relation", "extra_deltas")
    names = ("guarantee_id", "created", "claim_status", "definition", "model", "parameters", "adjacency", "source")
    return {
        **{name: facts[name] for name in (*names, "cumulative", "output", "limitations")},
        "privacy_unit": {name: facts["privacy_unit"][name] for name in ("level", "column", "max_contributions")},
        "accounting": {
            **{name: facts["accounting"][name] for name in accounting},
            "interval": facts["accounting"]["discretisation"]["interval"],
            "assumptions": [entry["holds"] for entry in facts["accounting"]["assumptions"]],
        },
        "mechanisms": [{"name": entry["name"], "params": entry["params"]} for entry in facts["mechanisms"]],
        **{name: facts[name] for name in ("randomness", "postprocessing", "evaluation", "audit")},
        "unprotected_quantities": facts["scope"]["unprotected_quantities"],
        "public_inputs": [{"kind": entry["kind"], "id": entry["id"]} for entry in facts["public_inputs"]],
        "contamination": facts.get("contamination", []),
        "not_covered": bool(facts["scope"]["not_covered"]),
    }


def from_privacy_json(data: dict[str, Any]) -> Release:
    """Read a release from its facts alone: without charges, and with the part of the plan that is published.

    Raises:
        ConfigError: the data is no privacy.json of this version.
        PrivacyError: an event is unknown.
    """
    try:
        return _release(data)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"this is no privacy.json of schema {SCHEMA_VERSION} ({type(error).__name__}).") from error


def _release(data: dict[str, Any]) -> Release:
    scope, mechanism, accounting = data["scope"], data["mechanisms"][0], data["accounting"]
    guarantee = _guarantee(data)
    params = dict(mechanism["params"])
    insecure = data["randomness"]["seed_source"] == "user_seed"
    unprotected = scope["unprotected_quantities"]
    drawn, _, drawn_version = mechanism["backend"].partition(" ")
    versions = {"hf_dpsynth": data["tool"]["version"], accounting["library"]: accounting["version"]}
    plan = Plan(
        mechanism=mechanism["name"],
        noise_multiplier=params.pop("noise_multiplier"),
        params=params,
        event=event_from_json(accounting["events"]),
        guarantee=guarantee,
        delta=data["parameters"]["delta"],
        adjacency=data["adjacency"].replace("_", "-"),
        num_records=data["source"]["n_units"],
        num_rows=data["output"]["n_records"] if isinstance(guarantee, CENTRAL) else None,
        model_ids={entry["kind"]: entry["id"] for entry in data["public_inputs"]},
        account=accounting["accountant"],
        discretisation=accounting["discretisation"]["interval"] or 0.0,
        label_columns=tuple(text.removeprefix(DOMAIN) for text in unprotected if text.startswith(DOMAIN)),
        kept_columns=tuple(text.removeprefix(CLEAR) for text in unprotected if text.startswith(CLEAR)),
        unit_column=data["privacy_unit"]["column"],
        insecure_noise=insecure,
    )
    return Release(
        plan=plan,
        guarantee=guarantee,
        charges=(),
        notes=tuple(note for note in data["limitations"] if note != INSECURE),
        guarantee_id=data["guarantee_id"],
        created=data["created"],
        rows=() if data["output"]["n_records"] is None else (Rows("", data["output"]["n_records"]),),
        files=tuple((entry["path"], entry["sha256"]) for entry in data["output"]["files"]),
        commitment=data["source"]["commitment"],
        versions=versions | ({drawn: drawn_version} if drawn_version else {}),
        is_model=scope["released_artifacts"][0] == MODEL,
        **after_the_run(data),
    )


def after_the_run(data: dict[str, Any]) -> dict[str, Any]:
    """Read what a release was given after its rows were made, as privacy.json and release.json hold it.

    Args:
        data (`dict`): with `postprocessing`, `cumulative` and `audit`, and `contamination` where it was declared.
    Returns:
        `dict`: arguments of `Release`.
    """
    after, budget = data["postprocessing"][1:], data["cumulative"]["budget"]
    return {
        "postprocessing": tuple(text for text in after if not text.startswith(ADDED)),
        "added_columns": tuple(text.removeprefix(ADDED) for text in after if text.startswith(ADDED)),
        "earlier": tuple(cumulative.earlier(entry) for entry in data["cumulative"]["prior_releases"]),
        "audits": tuple(
            Audit(**entry | {"ci": None if entry["ci"] is None else tuple(entry["ci"])}) for entry in data["audit"]
        ),
        "contamination": tuple(Contamination(**entry) for entry in data.get("contamination", ())),
        "budget": None if budget is None else BudgetState(**budget),
    }


def _ending(entry: dict[str, Any]) -> str:
    """Return what ends the sentence of an assumption: whether it holds, and by whose word."""
    if entry["holds"] is not True:
        return UNKNOWN if entry["holds"] == "unknown" else FALSE
    return DECLARED if entry["note"] == BY_WORD else ""


def _guarantee(data: dict[str, Any]) -> Guarantee:
    parameters = data["parameters"]
    sentences = tuple(
        entry["name"] + _ending(entry)
        for entry in data["accounting"]["assumptions"]
        if entry["name"] not in (OS_RANDOMNESS, POSTPROCESSED, REVIEWED)
    )
    if data["definition"] == protection.DEFINITION:
        return protection.guarantee_of(parameters[protection.DEFINITION], sentences)
    if data["definition"] == "metric_dp":
        metric = parameters["metric_dp"]
        scale = math.inf if metric["scale"] is None else metric["scale"]
        return MetricDP(epsilon=scale, metric=metric["metric"], unit=metric["unit"], assumptions=sentences)
    epsilon = math.inf if parameters["epsilon"] is None else parameters["epsilon"]
    unit = data["privacy_unit"]["description"].removeprefix("one ")
    if data["definition"] == "local_dp":
        return LocalDP(epsilon=epsilon, unit=unit, assumptions=sentences)
    if data["definition"] != "approximate_dp":
        raise ConfigError(f"definition {data['definition']!r} cannot be read by this version.")
    return ApproxDP(
        epsilon=epsilon,
        delta=parameters["delta"] or 0.0,
        unit=unit,
        neighbours=data["adjacency"].replace("_", "-"),
        assumptions=sentences,
    )
