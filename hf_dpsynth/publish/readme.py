"""A card in a repository that has a README.md: its text is kept below the card, its front matter beside ours."""

import re
from typing import Any

import yaml

KEPT = "<!-- hf_dpsynth: what stands below is not part of the card -->"
FIELDS = (
    "annotations_creators", "language", "language_creators", "license", "license_link", "license_name",
    "multilinguality", "paperswithcode_id", "source_datasets", "task_categories", "task_ids", "thumbnail", "viewer",
)  # fmt: skip
"""Fields of a dataset card that say nothing of privacy."""
OURS = re.compile(r"^(differential_privacy|secret_protection):$", re.MULTILINE)
_FENCE = "---\n"
_LONGEST = 1_000_000
_SAID = "*What stands below is the publisher's own text; nothing of it is checked.*"


def parts(text: str) -> tuple[str | None, str]:
    """Return the front matter of a README.md, without its fences, None where there is none, and the rest."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    held = text.split(_FENCE, 2)
    return (held[1], held[2]) if len(held) == 3 and not held[0] else (None, text)


def with_kept_text(card: str, there: str) -> str:
    """Return a card with the text of the README.md that it replaces below it, and its front matter.

    Args:
        card (`str`): our card.
        there (`str`): the README.md of the repository; of a card of ours only what stands below it is kept.
    """
    (front, body), (ours, shown) = parts(there), parts(card)
    front = front or ""
    if OURS.search(front):
        body = body.partition(KEPT)[2].replace(_SAID, "", 1)
    fields = kept_fields(front)
    added = yaml.safe_dump(fields, sort_keys=False, allow_unicode=False) if fields else ""
    below = f"\n{KEPT}\n\n{_SAID}\n\n{body.strip()}\n" if body.strip() else ""
    return f"{_FENCE}{ours}{added}{_FENCE}{shown}{below}"


def kept_fields(front: str) -> dict[str, Any]:
    """Return the fields of a front matter that say nothing of privacy; none where it is no YAML of that kind."""
    if len(front) >= _LONGEST:
        return {}
    try:
        aliases = any(isinstance(at, yaml.AliasEvent) for at in yaml.parse(front, Loader=yaml.SafeLoader))
        held = None if aliases else yaml.safe_load(front)
    except (yaml.YAMLError, ValueError, RecursionError):
        held = None
    return {name: held[name] for name in FIELDS if name in held} if isinstance(held, dict) else {}


def without_kept_text(text: str) -> str:
    """Return a README.md less what stands below the card."""
    return text.partition(f"\n{KEPT}")[0]
