"""Text as a page shows it, and what can be counted of it.

A text is data and never markup: the template escapes it.
"""

from collections.abc import Sequence

from hf_dpsynth.metrics.distinct_n import distinct_share

LONGEST = 600  # characters of a text that a page shows


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
