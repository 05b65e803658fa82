"""Membership of records, guessed from released texts alone: those that a run read against like ones that it did not.

No canaries and no model are needed. What it cannot give is a bound: records of one run are no independent draws, so
its epsilon refutes no claim; `audit_canaries` does. Source: Meeus et al. 2025, arXiv:2502.14921.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hf_dpsynth.audit.attacks import AttackResult
from hf_dpsynth.audit.findings import Finding
from hf_dpsynth.audit.separation import LEAST, discrimination
from hf_dpsynth.audit.signals import NGRAM, Reading, named, released, scores_of
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import check_texts
from hf_dpsynth.models.base import Embedder

_HOLDOUT = "It presumes that members and others are of one distribution; others of another time are told apart."
_WEAK = "A model that was trained on the members may tell more than the released texts do."


def audit_membership(
    synthetic: Sequence[str],
    members: Sequence[str],
    others: Sequence[str],
    *,
    signal: str = NGRAM,
    embedder: str | Embedder = "minilm",
    n: int = 2,
    neighbours: int = 25,
    confidence: float = 0.95,
    delta: float = 1e-5,
    seed: int = 0,
) -> AttackResult:
    """Say how well released texts tell the texts that were read from like ones that were not.

    Args:
        synthetic (`Sequence[str]`): released texts. Public.
        members (`Sequence[str]`): texts that the run read. Sensitive.
        others (`Sequence[str]`): texts of the same distribution that it did not read. Sensitive.
        signal (`str`, defaults to `"ngram"`): the score: `"ngram"` (likelihood under an n-gram model of the released
            texts, less that of single words), `"nearest"` (mean cosine to the nearest released texts), `"jaccard"`
            (likewise by sets of words, without a model) or `"all"`.
        embedder (`str` or object with `.embed`, defaults to `"minilm"`): for `"nearest"`.
        n (`int`, defaults to 2): words in an n-gram.
        neighbours (`int`, defaults to 25): how many nearest texts are averaged; 1 is sharper where rows are copied.
        confidence (`float`, defaults to 0.95): that of each interval alone.
        delta (`float`, defaults to 1e-5): the delta of the empirical epsilon.
        seed (`int`, defaults to 0): of the halves behind the empirical epsilon. Public.
    Returns:
        `AttackResult`: `auc`, `tpr_at_1_fpr` and `empirical_epsilon`, with `signal="all"` of each signal under
        `"ngram_auc"` and the like, and the curve of the first. Sensitive.
    Raises:
        ConfigError: a list is empty, holds something else than text, or has fewer than 10 texts that are left; no
            signal tells any text from another; or an argument is out of range.
    Examples:
        >>> from hf_dpsynth.audit import audit_membership
        >>> members, others = ([f"{kind} number {n} of {n * n}" for n in range(20)] for kind in ("call", "mail"))
        >>> audit_membership(members, members, others)["auc"].value
        1.0
    """
    rows = released(synthetic)
    inside, outside, said = apart(members, others)
    reading, signals = Reading(n=n, neighbours=neighbours), named(signal)
    scored = {one: scores_of(one, rows, [*inside, *outside], reading=reading, embedder=embedder) for one in signals}
    told = {one: scores for one, scores in scored.items() if np.ptp(scores) > 0}
    if not told:
        raise ConfigError(f"{' and '.join(signals)} scores all texts alike: they tell nothing. Pass another signal=.")
    silent = tuple(f"{one} scores all texts alike." for one in signals if one not in told)
    found = [
        discrimination(
            scores[: len(inside)],
            scores[len(inside) :],
            attack=f"membership by {one}",
            confidence=confidence,
            delta=delta,
            limits=(*said, *silent, _HOLDOUT, _WEAK),
            seed=seed,
        )
        for one, scores in told.items()
    ]
    if len(signals) == 1:
        return found[0]
    findings = [one for name, result in zip(told, found, strict=True) for one in prefixed(name, result)]
    return AttackResult(name="membership", findings=tuple(findings), curve=found[0].curve)


def prefixed(signal: str, result: AttackResult) -> list[Finding]:
    """Return the figures of a signal under metrics that name it."""
    return [replace(one, metric=f"{signal}_{one.metric}") for one in result.findings]


def apart(members: Sequence[str], others: Sequence[str]) -> tuple[list[str], list[str], tuple[str, ...]]:
    """Return the texts that occur once in both lists together, and a sentence on what was left out.

    A text in both lists is no member more than it is another. One that is twice in one list is left out as well: the
    longer list has more of such, so that they would tell the lists apart where the run told nothing.

    Args:
        members (`Sequence[str]`): texts that the run read. Sensitive.
        others (`Sequence[str]`): texts that it did not read. Sensitive.
    Raises:
        ConfigError: a list is missing, is empty, holds something else than text, or has too few that are left.
    """
    if others is None:
        raise ConfigError("others= is missing; pass texts of the same distribution that the run did not read")
    sides = check_texts(members, "members"), check_texts(others, "others")
    counts = Counter(text for side in sides for text in side)
    kept = [[text for text in side if counts[text] == 1] for side in sides]
    for name, before, after in zip(("members", "others"), sides, kept, strict=True):
        if len(after) < LEAST:
            more = "" if len(before) < LEAST else " that occur once in both lists together"
            raise ConfigError(f"{name}= has fewer than {LEAST} texts{more}; pass more texts of people, each once")
    repeated = sum(count > 1 for count in counts.values())
    said = (f"{repeated} kinds of texts that occur more than once were left out on both sides.",) if repeated else ()
    return kept[0], kept[1], said
