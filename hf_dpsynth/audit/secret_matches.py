"""Secrets of private texts in released ones, beside those of a hold-out: an invented address can be somebody's too."""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from hf_dpsynth.audit.attacks import AttackResult
from hf_dpsynth.audit.findings import check_confidence
from hf_dpsynth.audit.sides import Sides, both, compared, kept, normal
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import check_seed
from hf_dpsynth.privacy.records import PrivateTexts
from hf_dpsynth.secrets import SecretDetector, found_secrets, listed_secrets

ATTACK = "secrets in released texts"
Detector = str | SecretDetector | Callable[[str], Iterable[Any]]
_BLOCK = 1024
_WORD = re.compile(r"\w+")
_MISSED = "What the detector does not find, in private or in released texts, is not counted."
_ROWS = "Secrets of one row come together, so the interval and the p-value, which take them apart, are too sure there."


def audit_secret_matches(
    synthetic: Sequence[str],
    members: Sequence[str],
    others: Sequence[str],
    *,
    secrets: Detector = "regex",
    listed: tuple[Sequence[Any], Sequence[Any]] | None = None,
    public: Sequence[str] = (),
    confidence: float = 0.95,
    seed: int = 0,
) -> AttackResult:
    """Count the secrets of private texts that stand in released ones, and beside them those of a hold-out.

    A secret is equal less differences in case, spaces and Unicode forms. A detector reads private and released texts
    alike; a listed secret is found where its words stand in a row. As many rows of both sides are drawn; secrets of
    both sides, of the rows that were not drawn and of public texts are left out.

    Args:
        synthetic (`Sequence[str]`): released texts. Public.
        members (`Sequence[str]`): texts that the run read; missing and blank ones are left out. Sensitive.
        others (`Sequence[str]`): texts of the same kind that it did not read. Sensitive.
        secrets (`str`, `Callable` or `SecretDetector`, defaults to `"regex"`): a detector's name, a function from a
            text to its secrets, or a detector, as for a mechanism that protects secrets.
        listed (`tuple[Sequence, Sequence]`, *optional*): in place of a detector the secrets of each row, a list a row
            of all `members` and of all `others`. Sensitive.
        public (`Sequence[str]`): prompts and other public texts that the run read. Public.
        confidence (`float`, defaults to 0.95): that of each interval.
        seed (`int`, defaults to 0): of the rows that are drawn. Public.
    Returns:
        `AttackResult`: `secrets_found`, the share of the drawn members' distinct secrets that occur, where `n` is how
        many there are; `secrets_found_holdout`; `secrets_found_p_value`, of as many more by chance; and
        `secrets_found_of_all` members. No secret. Sensitive.
    Raises:
        ConfigError: a list is missing or without a text, or no detector of that name.
    Examples:
        >>> from hf_dpsynth.audit import audit_secret_matches
        >>> released = ["Write to ann@example.org or bob@example.org"]
        >>> found = audit_secret_matches(released, ["I am Ann, ANN@example.org"], ["eve@example.org here"])
        >>> found["secrets_found"].value, found["secrets_found_holdout"].value
        (1.0, 0.0)
    """
    check_confidence(confidence)
    check_seed(seed)
    texts = kept(synthetic, "synthetic")
    known = [one for one in public if one]
    if listed is None:
        held = [_values(found_secrets(secrets, rows)) for rows in both(members, others)]
        occurring, left_out = (_occurring(secrets, rows) for rows in (texts, known))
    else:
        both(members, others)  # checked; blank ones have a list too
        named = zip(listed, (members, others), ("members", "others"), strict=True)
        held = [_of_list(*one) for one in named]
        every = set(chain.from_iterable(chain.from_iterable(held)))
        occurring, left_out = (_in_words(every, rows) for rows in (texts, known))
    sides = Sides(*([[one for one in row if one not in left_out] for row in rows] for rows in held))
    found = np.fromiter((one in occurring for one in sides.items), bool, len(sides.items))
    said = (_ROWS, *sides.limits("secret"))
    findings = compared(
        ATTACK,
        "secrets_found",
        "secret",
        sides.marks(seed),
        found,
        confidence,
        limits=said if listed is not None else (_MISSED, *said),
    )
    return AttackResult(name=ATTACK, findings=findings)


def _values(rows: Iterable[Iterable[tuple[str, str]]]) -> PrivateTexts:
    """Return the distinct values of each row, in order; one that is blank is none."""
    return PrivateTexts(PrivateTexts(dict.fromkeys(filter(None, (normal(one) for _, one in row)))) for row in rows)


def _of_list(rows: Sequence[Any], texts: Sequence[str], what: str) -> PrivateTexts:
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        raise ConfigError(f"listed= holds a {type(rows).__name__} for {what}=; pass a list of secrets for each row")
    found = _values(listed_secrets(rows))
    if len(found) != len(texts):
        raise ConfigError(f"listed= has {len(found)} rows for {what}=, which has {len(texts)}; pass one for each")
    return found


def _occurring(secrets: Detector, texts: Sequence[str]) -> set[str]:
    """Return what a detector finds in texts, block by block."""
    found: set[str] = set()
    for start in range(0, len(texts), _BLOCK):
        found.update(*_values(found_secrets(secrets, texts[start : start + _BLOCK])))
    return found


def _in_words(values: set[str], texts: Iterable[str]) -> set[str]:
    """Return the values whose words stand in a row in some text; those without a word where they stand at all."""
    by_first: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    wordless = []
    for value in values:
        words = tuple(_WORD.findall(value))
        if words:
            by_first.setdefault(words[0], []).append((words, value))
        else:
            wordless.append(value)
    found: set[str] = set()
    for text in map(normal, texts):
        found.update(value for value in wordless if value in text)
        said = _WORD.findall(text)
        for place in range(len(said)):
            for words, value in by_first.get(said[place], ()):
                if tuple(said[place : place + len(words)]) == words:
                    found.add(value)
    return found
