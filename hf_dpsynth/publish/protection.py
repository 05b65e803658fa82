"""What privacy.json says of secret protection, and whether its events bear it out: no epsilon, no tag, no "DP"."""

from collections import Counter
from typing import Any

from dp_accounting import DpEvent

from hf_dpsynth.guarantees import SecretProtection, digits
from hf_dpsynth.privacy.secrets import SecretGaussianDpEvent, reached

DEFINITION = "secret_protection"
FORMAL = "formal_secret_protection"
CONDITIONAL = "formal_secret_protection_conditional"
UNIT = {
    "level": "secret",
    "column": None,
    "max_contributions": None,
    "contribution_bounding": "the weights of all rows that hold a secret sum to at most its allowance",
    "description": "the value of one listed secret",
}
NOT_COVERED = (
    "rows with no listed secret: they get no protection from this mechanism",
    "secrets that were not listed, a detector's misses among them",
    "the presence of secrets, their number, which rows hold them and which of them occur together",
    "several secrets jointly: the bound holds for each one alone, for guesses by those who know all others",
    "another spelling of a secret: it is another secret, with an allowance of its own",
)
ADJACENCY = "two data sets differ in the value of one listed secret, in all rows that hold it"
_MOST_NAMED = 10  # kinds of secrets in one sentence
_TOLERANCE = 1e-9


def parameters(guarantee: SecretProtection) -> dict[str, Any]:
    """Return p and r as JSON values."""
    kinds = [{"kind": kind, "p": float(p), "r": float(r)} for kind, p, r in guarantee.kinds]
    return {"p": float(guarantee.p), "r": float(guarantee.r), "kinds": kinds}


def guarantee_of(stated: dict[str, Any], sentences: tuple[str, ...]) -> SecretProtection:
    """Read the guarantee of a privacy.json."""
    kinds = tuple((one["kind"], one["p"], one["r"]) for one in stated["kinds"])
    return SecretProtection(p=stated["p"], r=stated["r"], kinds=kinds, assumptions=sentences)


def fails(facts: dict[str, Any]) -> bool:
    """Return whether an assumption of a claim is known to be false."""
    return any(entry["holds"] is False for entry in facts["accounting"]["assumptions"])


def pairs(stated: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Return kind, p and r of each claim; the first one is of all kinds that are not named."""
    return [("", stated["p"], stated["r"]), *((one["kind"], one["p"], one["r"]) for one in stated["kinds"])]


def sentence(facts: dict[str, Any]) -> str:
    """Return the one sentence that states the claim."""
    stated = facts["parameters"][DEFINITION]
    if facts["claim_status"] == "none":
        return "No secret is protected: the noise was drawn from a seed that anybody can use again."
    named = pairs(stated)[1:]
    own = "".join(f"; of kind {kind}: ({digits(p)}, {digits(r)})" for kind, p, r in named)
    if len(named) > _MOST_NAMED:
        largest = digits(max(p for _, p, _ in named)), digits(max(r for *_, r in named))
        own = f"; of {len(named):,} kinds with bounds of their own, each at most ({', '.join(largest)})"
    so_far = "" if facts["claim_status"] == FORMAL else " This holds if the unknown assumptions below do."
    if so_far and fails(facts):
        so_far = " This is said under the assumptions below, of which at least one is false."
    return (
        f"({digits(stated['p'])}, {digits(stated['r'])})-secret protection, not differential privacy: whoever guesses "
        f"the value of a listed secret with probability at most {digits(stated['p'])} beforehand, all other secrets "
        f"and rows known, guesses it with probability at most {digits(stated['r'])} after the release{own}. It holds "
        f"for each secret alone; rows with no listed secret get no protection.{so_far}"
    )


def check(facts: dict[str, Any], event: DpEvent, counts: Counter[DpEvent]) -> list[str]:
    """Return what is wrong with the claimed p and r: the noise, or the guess at the allowance of the events.

    Args:
        facts (`dict`): the content of a privacy.json, checked by nobody.
        event (`DpEvent`): its tree of events.
        counts (`Counter`): the single events of the tree.
    """
    wrong = [type(leaf).__name__ for leaf in counts if not isinstance(leaf, SecretGaussianDpEvent)]
    if wrong or not counts:
        return [f"accounting.events: {', '.join(wrong) or 'none'} in place of weighted sums with noise"]
    strongest = sum(count * (leaf.norm / leaf.sigma) ** 2 for leaf, count in counts.items())
    if not strongest <= 1 + _TOLERANCE:
        return ["accounting.events: less noise than sqrt(T) times the norm of a row"]
    claims, found = pairs(facts["parameters"][DEFINITION]), []
    if any(len(leaf.allowances) != len(claims) for leaf in counts):
        return [f"accounting.events: not one allowance for each of {len(claims)} kinds of secrets"]
    for number, (kind, p, r) in enumerate(claims):
        after = reached(p, max(leaf.allowances[number] for leaf in counts), event)
        if not after <= r * (1 + _TOLERANCE):
            found.append(f"parameters.secret_protection: r{kind and ' of ' + kind} is {r:.6g}, the events {after:.6g}")
    return found
