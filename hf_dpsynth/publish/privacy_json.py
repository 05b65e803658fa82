"""privacy.json: the facts of a release for machines, and the source of its card.

Every value is a function of the `Release` alone, so that reading the file and writing it again gives the same file;
`verify` relies on it. It holds no private text, no number of records that is not public, no noise seed and no time
finer than a day.
"""

import json
import math
import re
from dataclasses import asdict
from importlib import resources
from itertools import islice
from typing import Any

from hf_dpsynth import registry
from hf_dpsynth.errors import PrivacyError
from hf_dpsynth.guarantees import DECLARED, FALSE, ApproxDP, Guarantee, LocalDP, MetricDP, SecretProtection
from hf_dpsynth.models import catalog
from hf_dpsynth.plans import Plan
from hf_dpsynth.privacy.accounting import extra_delta, leaves
from hf_dpsynth.privacy.event_json import event_to_json
from hf_dpsynth.publish import cumulative, protection
from hf_dpsynth.publish.accesses import access, backend, contribution, sampling, sums_may_travel
from hf_dpsynth.publish.accounts import READING, short
from hf_dpsynth.release import Contamination, Release

SCHEMA_VERSION = "1.0"
Stated = ApproxDP | MetricDP | LocalDP | SecretProtection
ROUNDING = "every rounding goes against the claim: losses, epsilon and the noise multiplier are rounded up"
POSTPROCESSED = "post-processing used no private data"
REVIEWED = "the code of the mechanism, which is not part of hf_dpsynth, does what its events say"
OS_RANDOMNESS = "the noise comes from the randomness of the operating system"
MOST_FINDINGS = 8  # of one kind: what follows from the first ones helps nobody
UNKNOWN = ": unknown"
DEPENDS = "the claim holds for the mechanism, and not for what was chosen by the private data before it"
BY_WORD = "declared by the publisher; nothing checks it"
CLEAR = "column copied in clear: "
DOMAIN = "declared label domain of column: "
_AFTER = "what follows the noise uses the released noisy values and public inputs only"
_COPIED = ", and what comes out without noise (scope.unprotected_quantities)"
INSECURE = "The noise was drawn from a seed that anybody can use again, so this release is not private."
_NOT_PUBLISHED = "not published"
ADDED = "column added after the mechanism: "
MODEL = "a tuned model"
_SYNTHETIC, _PRIVATIZED = "synthetic rows", "privatized rows"
_ALWAYS = (
    "other releases from the same records: each adds its own loss",
    "public models: what they learned before this release, which may include the private texts",
    "parameters chosen by looking at private data or at results computed from it",
    "later processing or evaluation that reads private data",
    "timing, memory, core dumps, caches of the private data, and copied or restored ledger and budget files",
)
_RECORD = (
    "persons behind several records, near-duplicates of one text, records of several owners: the unit is one record",
)
_USER = "persons behind several users, near-duplicates of one text, records of several owners: the unit is one user"
_SOME = "a change of only some records of a user: its loss is that of leaving the user out and adding the user again"
_SENT = "what several processes of one run send each other, sums before their noise among it: it is not encrypted"
_WORD = (
    "persons and whole texts: the losses of all words of a text add up",
    "the number of words of each text, and whatever the assumptions call public",
    "words as such: at a large scale most of them stay what they were",
)
_TEXT = (
    "persons behind several texts, near-duplicates of one text: the unit is one text, each released once",
    "the number of texts, and whatever the assumptions call public",
)
_LOCAL: dict[type[Guarantee], tuple[str, ...]] = {
    MetricDP: _WORD, LocalDP: _TEXT, SecretProtection: protection.NOT_COVERED
}  # fmt: skip
_LEVELS = {"word": "token", "text": "record"}
CENTRAL = (ApproxDP, SecretProtection)
_DEFINITIONS: dict[type[Guarantee], str] = {
    ApproxDP: "approximate_dp", MetricDP: "metric_dp", LocalDP: "local_dp", SecretProtection: protection.DEFINITION
}  # fmt: skip
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w-]*(\.[\w-]+)*/[A-Za-z0-9][\w-]*(\.[\w-]+)*", re.ASCII)
_NOTHING_HOLDS = ("everything: nothing here protects the records",)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of privacy.json."""
    text = resources.files("hf_dpsynth.publish").joinpath("privacy.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def invalid(facts: Any) -> list[str]:
    """Return the first places where facts break the JSON Schema."""
    import jsonschema

    errors = jsonschema.Draft202012Validator(schema()).iter_errors(facts)
    first = islice(errors, MOST_FINDINGS)
    return [f"{error.json_path.removeprefix('$.')}: {short(error.message)} (schema)" for error in first]


def to_privacy_json(release: Release) -> dict[str, Any]:
    """Return the facts of a release as JSON values.

    Raises:
        PrivacyError: the guarantee or the events have no place in privacy.json.
    """
    plan, guarantee = release.plan, release.guarantee
    if isinstance(guarantee, SecretProtection) != (plan.adjacency == "custom"):
        raise PrivacyError(f"privacy.json has no form for {type(guarantee).__name__} of {plan.mechanism}.")
    return {
        "schema_version": SCHEMA_VERSION,
        "guarantee_id": release.guarantee_id,
        "created": release.created,
        "tool": {"name": "hf_dpsynth", "version": release.versions.get("hf_dpsynth", "unknown"), "git_commit": None},
        "claim_status": _claim_status(release),
        "definition": _DEFINITIONS[type(guarantee)],
        "model": "central" if isinstance(guarantee, CENTRAL) else "local",
        "parameters": _parameters(plan, guarantee),
        "privacy_unit": _unit(plan, guarantee),
        "adjacency": plan.adjacency.replace("-", "_"),
        "scope": _scope(release),
        "source": {
            "name": _NOT_PUBLISHED,
            "revision": None,
            "commitment": release.commitment,
            "n_units": plan.num_records,
            "n_units_protected": None,
        },
        "mechanisms": [_mechanism(release)],
        "accounting": _accounting(release),
        "randomness": _randomness(plan),
        "public_inputs": [_public_input(kind, name) for kind, name in plan.model_ids.items()],
        "postprocessing": [
            _AFTER + (_COPIED if _in_clear(plan) else ""),
            *release.postprocessing,
            *(ADDED + name for name in release.added_columns),
        ],
        "cumulative": cumulative.stated(release, **_epsilon_delta(plan, guarantee)),
        **_results(release),
    }


def is_model(facts: dict[str, Any]) -> bool:
    """Return whether the facts are those of a tuned model, and not of rows."""
    return bool(facts["scope"]["released_artifacts"][0] == MODEL)


def base_of(facts: dict[str, Any]) -> str | None:
    """Return the repository of the model that was tuned; None where it is not known to be one."""
    sources = {asset.name: asset.source.removeprefix("https://huggingface.co/") for asset in catalog.models()}
    names = [entry["id"] for entry in facts["public_inputs"] if entry["kind"] == "generator"]
    found = (sources.get(name, name) for name in names)
    return next((name for name in found if _REPOSITORY.fullmatch(name)), None)


def _results(release: Release) -> dict[str, Any]:
    """Return what came out, and what a reader should know besides."""
    plan = release.plan
    return {
        "output": {
            "n_records": sum(rows.number for rows in release.rows) if release.rows and not release.is_model else None,
            "files": [{"path": path, "sha256": digest} for path, digest in release.files],
        },
        "evaluation": [],
        **({"contamination": list(map(asdict, release.contamination))} if release.contamination else {}),
        "audit": [asdict(audit) | {"ci": None if audit.ci is None else list(audit.ci)} for audit in release.audits],
        "limitations": [*([INSECURE] if plan.insecure_noise else []), *release.notes, *plan.warnings],
        "contact": None,
        "references": [row.source for name, row in registry.table().items() if name == plan.mechanism],
    }


def _voided(plan: Plan, guarantee: Stated) -> bool:
    return plan.insecure_noise or math.isinf(getattr(guarantee, "epsilon", 0.0))


def _claim_status(release: Release) -> str:
    guarantee = release.guarantee
    if _voided(release.plan, guarantee):
        return "none"
    conditional = any(sentence.endswith((UNKNOWN, FALSE)) for sentence in _sentences(release))
    if isinstance(guarantee, SecretProtection):
        return protection.CONDITIONAL if conditional else protection.FORMAL
    return "formal_dp_conditional" if conditional else "formal_dp"


def _epsilon_delta(plan: Plan, guarantee: Stated) -> dict[str, Any]:
    if isinstance(guarantee, (MetricDP, SecretProtection)) or _voided(plan, guarantee):
        return {"epsilon": None, "delta": None}
    return {"epsilon": float(guarantee.epsilon), "delta": float(getattr(guarantee, "delta", 0.0))}


def _parameters(plan: Plan, guarantee: Stated) -> dict[str, Any]:
    metric = None
    if isinstance(guarantee, MetricDP):
        scale = None if _voided(plan, guarantee) else float(guarantee.epsilon)
        metric = {"metric": guarantee.metric, "unit": guarantee.unit, "scale": scale}
    secret = protection.parameters(guarantee) if isinstance(guarantee, SecretProtection) else None
    nothing = {"rho": None, "mu": None, "privacy_profile": None, "secret_protection": secret}
    return {**_epsilon_delta(plan, guarantee), **nothing, "metric_dp": metric}


def _unit(plan: Plan, guarantee: Stated) -> dict[str, Any]:
    if isinstance(guarantee, SecretProtection):
        return dict(protection.UNIT)
    local, user = not isinstance(guarantee, ApproxDP), guarantee.unit == "user"
    most = plan.params.get("max_contributions") if user else 1
    bounding = f"each {guarantee.unit} is drawn alone" if local else contribution(plan, guarantee.unit, most)
    return {
        "level": _LEVELS.get(guarantee.unit, guarantee.unit),
        "column": plan.unit_column,
        "max_contributions": most,
        "contribution_bounding": bounding,
        "description": f"one {guarantee.unit}",
    }


def _measured(one: Contamination) -> str:
    """Return what was measured of a public corpus, as a sentence on what is not covered."""
    return (
        f"the measured overlap of a public corpus ({one.corpus}) with the private texts, mode {one.mode}, window "
        f"{one.window}: of {one.num_scanned} public texts {one.num_documents} overlap, in {one.num_windows} windows; "
        f"of the private texts {one.num_private} were found, and {one.num_short} have fewer tokens than the window. "
        "These numbers are computed from private texts, and no guarantee covers them"
    )


def _scope(release: Release) -> dict[str, Any]:
    plan, guarantee = release.plan, release.guarantee
    void = _NOTHING_HOLDS if _voided(plan, guarantee) else ()
    private, user = not isinstance(guarantee, CENTRAL), guarantee.unit == "user"
    units = (_USER, *(() if plan.adjacency == "replace-one" else (_SOME,))) if user else _RECORD
    sent = (_SENT,) if sums_may_travel(plan) and not private else ()
    counted = guarantee.unit if isinstance(guarantee, ApproxDP) else "record"
    unprotected = [f"the number of {counted}s"] if plan.num_records is not None else []
    unprotected += [DOMAIN + name for name in plan.label_columns]
    unprotected += [CLEAR + name for name in plan.kept_columns]
    unprotected += _in_clear(plan)
    reads = [access(leaf, count, guarantee.unit, plan.mechanism) for leaf, count in leaves(plan.event).items()]
    return {
        "data_accesses_covered": [] if void else reads,
        "not_covered": [
            *void,
            *_LOCAL.get(type(guarantee), units),
            *_ALWAYS,
            *sent,
            *map(_measured, release.contamination),
        ],
        "released_artifacts": [
            MODEL if release.is_model else _PRIVATIZED if private else _SYNTHETIC,
            "noisy values in the ledger, and the plan",
        ],
        "unprotected_quantities": unprotected,
        "hyperparameter_tuning": "none",
        "n_tuning_runs": None,
    }


def _mechanism(release: Release) -> dict[str, Any]:
    plan = release.plan
    drawn = backend(plan.event)
    version = release.versions.get(drawn)
    return {
        "name": plan.mechanism,
        "backend": f"{drawn} {version}" if version else drawn,
        "library": "hf_dpsynth",
        "version": release.versions.get("hf_dpsynth", "unknown"),
        "params": {"noise_multiplier": plan.noise_multiplier, **plan.params},
        "epsilon": None,
        "delta": None,
    }


def _in_clear(plan: Plan) -> tuple[str, ...]:
    """Return what a mechanism of ours copies besides columns; what one of others does, its own assumptions say."""
    row = registry.table().get(plan.mechanism)
    if row is None or row.kind != "privatize":
        return ()
    try:
        mechanism = registry.resolve(plan.mechanism, plan.params, row.kind)
    except READING:  # a plan that was read and not checked: publish/mechanism.py says what is wrong with it
        return ()
    found: tuple[str, ...] = mechanism.in_clear() if hasattr(mechanism, "in_clear") else ()
    return found


def _accounting(release: Release) -> dict[str, Any]:
    plan = release.plan
    ours = plan.account == "closed_form"
    library = "hf_dpsynth" if ours else "dp_accounting"
    drawn = sampling(plan.event, release.guarantee.unit if isinstance(release.guarantee, ApproxDP) else "record")
    assumptions = [_assumption(sentence) for sentence in _sentences(release)]
    if plan.insecure_noise:
        assumptions.append({"name": OS_RANDOMNESS, "holds": False, "note": "a seed was passed"})
    return {
        "accountant": plan.account,
        "library": library,
        "version": release.versions.get(library, "unknown"),
        "composition": "filter" if plan.account == "rdp" else "fixed",
        "events": event_to_json(plan.event),
        "relation": plan.adjacency.replace("-", "_"),
        "extra_deltas": [extra] if (extra := extra_delta(plan.event)) else [],
        "discretisation": {"interval": plan.discretisation or None, "rounding": ROUNDING},
        "assumptions": assumptions,
        "sampling": {"assumed": drawn, "actual": drawn},
    }


def _sentences(release: Release) -> tuple[str, ...]:
    """Return the assumptions of the guarantee, and of a mechanism that others wrote."""
    row = registry.table().get(release.plan.mechanism)
    foreign = row is None or row.kind == "plugin"
    return (
        *release.guarantee.assumptions,
        *((REVIEWED + UNKNOWN,) if foreign else ()),
        *((POSTPROCESSED + UNKNOWN,) if release.postprocessing else ()),
    )


def _assumption(sentence: str) -> dict[str, Any]:
    if sentence.endswith(UNKNOWN):
        note = "nobody has checked this; where it fails, so does the claim"
        return {"name": sentence.removesuffix(UNKNOWN), "holds": "unknown", "note": note}
    if sentence.endswith(FALSE):
        return {"name": sentence.removesuffix(FALSE), "holds": False, "note": DEPENDS}
    if sentence.endswith(DECLARED):
        return {"name": sentence.removesuffix(DECLARED), "holds": True, "note": BY_WORD}
    return {"name": sentence, "holds": True, "note": "by construction"}


def _randomness(plan: Plan) -> dict[str, Any]:
    source = backend(plan.event)
    prng = {
        "opendp": "exact discrete Gaussian sampler of OpenDP",
        "randomgen": "AES-128 in counter mode, keyed by BLAKE2b",
        "none": "no noise was drawn",
    }[source]
    return {
        "prng": prng,
        "cryptographic": source != "none" and not plan.insecure_noise,
        "seed_source": "user_seed" if plan.insecure_noise else "os_entropy",
        "float_safe": source == "opendp",
    }


def _public_input(kind: str, name: str) -> dict[str, Any]:
    """Describe a public model. Models of the catalogue were trained on public web text, others we do not know."""
    pins = {asset.name: asset.sha256 for asset in catalog.models()}
    overlap = "possible" if name in pins else "unknown"
    return {"kind": kind, "id": name, "revision": pins.get(name), "overlap_with_private": overlap}
