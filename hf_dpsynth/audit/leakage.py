"""Copies of private texts in released ones, whole, near or in part, beside the same figures for a hold-out."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from hf_dpsynth.audit.attacks import AttackResult
from hf_dpsynth.audit.findings import check_confidence
from hf_dpsynth.audit.shared_text import alike, as_words, runs, same
from hf_dpsynth.audit.sides import Sides, both, compared, kept, left_on_both, normal
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import check_count, check_seed

ATTACK = "copies of private texts"
_CHANCE = "Short texts and set phrases occur by chance; the hold-out shows how often."


def audit_leakage(
    synthetic: Sequence[str],
    members: Sequence[str],
    others: Sequence[str],
    *,
    similarity: float = 0.8,
    shingle: int = 2,
    run: int = 10,
    confidence: float = 0.95,
    seed: int = 0,
) -> AttackResult:
    """Count the released rows that copy a private text, and beside them those that copy one of a hold-out.

    Texts are compared less differences in case, spaces and Unicode forms; words are letters and digits. As many rows
    of both private sides are drawn. Texts that are on both sides, or in the rows that were not drawn, are left out.

    Power: a p-value is below .05 from 5 texts on that were copied of the members and none of the hold-out; where
    nothing leaks, that happens in at most 5 % of audits.

    Args:
        synthetic (`Sequence[str]`): released texts. Public.
        members (`Sequence[str]`): texts that the run read; missing and blank ones are left out. Sensitive.
        others (`Sequence[str]`): texts of the same kind that it did not read. Sensitive.
        similarity (`float`, defaults to 0.8): the least similarity of near copies: windows that both texts have, of
            those that either has. At 0.8, one other word within a text of 17 words is a near copy, and one of 16
            words is none.
        shingle (`int`, defaults to 2): the words of a window; 1 compares sets of words.
        run (`int`, defaults to 10): the words in a row that make a long run.
        confidence (`float`, defaults to 0.95): that of each interval.
        seed (`int`, defaults to 0): of the rows that are drawn. Public.
    Returns:
        `AttackResult`: `exact_copies`, `near_copies` (exact ones that have a word among them) and `long_runs` as
        shares of the released rows; each with `_holdout` (the hold-out's), `_p_value` (of as many more texts by
        chance) and `_of_all` (any member's, without a baseline). Sensitive.
    Raises:
        ConfigError: a list is missing or without a text, no text is left on a side, or an argument is out of range.
    Examples:
        >>> from hf_dpsynth.audit import audit_leakage
        >>> found = audit_leakage(["Call Ann.", "ok"], ["call ann.", "Ok"], ["call bob.", "ok"])
        >>> found["exact_copies"].value, found["exact_copies_holdout"].value, found["exact_copies_of_all"].value
        (0.5, 0.0, 1.0)
    """
    check_confidence(confidence)
    check_seed(seed)
    check_count("shingle", shingle, 1)
    check_count("run", run, 1)
    if isinstance(similarity, bool) or not isinstance(similarity, (int, float)) or not 0 < similarity <= 1:
        raise ConfigError(f"similarity is {similarity!r}; it is above 0 and at most 1, and 0.8 is usual")
    released = Counter(map(normal, kept(synthetic, "synthetic")))
    sides = Sides(*([(normal(text),) for text in rows] for rows in both(members, others)))
    texts, weights = list(released), np.array(list(released.values()))
    marks, limits = left_on_both(sides.marks(seed)), (_CHANCE, *sides.limits("text"))
    public, private = as_words(texts, sides.items)
    matches = {
        "exact_copies": same(texts, sides.items, marks),
        "near_copies": alike(public, private, marks, shingle, similarity),
        "long_runs": runs(public, private, marks, run),
    }
    findings = [
        one
        for metric, match in matches.items()
        for one in compared(
            ATTACK, metric, "text", marks, match.found, confidence, rows=match.rows, weights=weights, limits=limits
        )
    ]
    return AttackResult(name=ATTACK, findings=tuple(findings))
