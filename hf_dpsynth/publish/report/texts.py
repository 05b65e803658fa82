"""Text as a page shows it, and what can be counted of it.

A text is data and never markup: the template escapes it, and what would steer a terminal, the direction of a line or a
parser is shown as a sign in its place.
"""

import unicodedata
from collections.abc import Sequence

from hf_dpsynth.metrics.distinct_n import distinct_share

LONGEST = 600  # characters of a text that a page shows
_KEPT = "\n\t\u200c\u200d"  # joiners: without them, some scripts and signs fall apart
_REPLACED = "\ufffd"


def visible(text: str) -> str:
    r"""Return a text whose control, direction and unpaired signs are shown as a sign.

    Args:
        text (`str`): a text. Sensitive if it is.
    Examples:
        >>> visible("a\x00b\u202ec") == "a\ufffdb\ufffdc"
        True
    """
    return "".join(
        sign if sign in _KEPT or unicodedata.category(sign) not in ("Cc", "Cf", "Cs") else _REPLACED for sign in text
    )


def cut(text: str, longest: int = LONGEST) -> str:
    """Return a text of at most `longest` characters, and what was cut in words."""
    if len(text) <= longest:
        return text
    return f"{text[:longest].rstrip()} … ({len(text):,} characters in all)"


def characters(texts: Sequence[str]) -> tuple[int, ...]:
    """Return the number of characters of each text. Sensitive if the texts are."""
    return tuple(len(text) for text in texts)


def word_counts(texts: Sequence[str]) -> tuple[int, ...]:
    """Return the number of words of each text, split at white space. Sensitive if the texts are."""
    return tuple(len(text.split()) for text in texts)


def distinct(texts: Sequence[str], longest: int = 3) -> tuple[float, ...]:
    """Return the share of distinct n-grams for n from 1 to `longest`. Sensitive if the texts are."""
    return tuple(distinct_share(texts, n) for n in range(1, longest + 1))
