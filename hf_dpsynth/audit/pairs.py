"""Privatized texts beside their originals, word by word: what attacks on word mechanisms share.

A word mechanism keeps the number of words and what stands between them, so the words of a row lie between the gaps of
its original. A row where they do not, of a mechanism that writes texts anew, is left out and counted. Sensitive.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word.text import read

_LONGEST = 64
_DEPENDENT = "The interval takes words for independent draws, which words of one text are not."


@dataclass(frozen=True, eq=False, repr=False)
class Pair:
    """The words of one row, before and after. Sensitive."""

    words: list[str]
    released: list[str]
    gaps: list[str]


@dataclass(frozen=True, eq=False, repr=False)
class Pairs:
    """The rows whose words could be laid beside each other, and how many rows could not. Sensitive."""

    rows: list[Pair]
    left_out: int

    @property
    def limits(self) -> tuple[str, ...]:
        """What every figure says of the rows."""
        if not self.left_out:
            return (_DEPENDENT,)
        return (
            _DEPENDENT,
            f"{self.left_out} of {self.left_out + len(self.rows)} rows are left out: their words do not lie between "
            "the marks of the original.",
        )


def beside(privatized: Sequence[str | None], originals: Sequence[str | None], known: Mapping[str, int]) -> Pairs:
    """Lay the words of each row beside those of its original.

    Args:
        privatized (`Sequence[str | None]`): released texts. Public.
        originals (`Sequence[str | None]`): the texts that they were made from, at the same places; a pair with None on
            either side, or without a word, is passed over. Sensitive.
        known (`Mapping[str, int]`): the vocabulary W, lower-case, with the row of each word. Public.
    Raises:
        ConfigError: the lengths differ, something is no text, or no row can be laid beside its original.
    Examples:
        >>> found = beside(["go now, dog!", None], ["come here, cat!", "x"], {"go": 0, "now": 1, "dog": 2})
        >>> found.rows[0].words, found.rows[0].released
        (['come', 'here', 'cat'], ['go', 'now', 'dog'])
    """
    _check(privatized, originals)
    rows, left_out = [], 0
    for made, text in zip(privatized, originals, strict=True):
        if made is None or text is None:
            continue
        found = _pair(made, text, known)
        if found is None:
            left_out += 1
        elif found.words:
            rows.append(found)
    if not rows:
        raise ConfigError(
            "no released row has its words between the marks of its original, so no word has a place to be guessed "
            "at. This attack is for word mechanisms; pass texts and originals at the same places, and the vectors= of "
            "the run."
        )
    return Pairs(rows, left_out)


def is_read(word: str, known: Container[str]) -> bool:
    """Return whether a text can hold an entry of the vocabulary as one word: marks and the like are none."""
    return read(word, known)[0] == [word]


def _check(privatized: Any, originals: Any) -> None:
    for name, texts in (("privatized", privatized), ("originals", originals)):
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence):
            raise ConfigError(f"{name}= is a {type(texts).__name__}; it is a list of texts, one a row")
        place = next((row for row, text in enumerate(texts) if not isinstance(text, str | None)), None)
        if place is not None:
            raise ConfigError(f"{name}[{place}] is a {type(texts[place]).__name__}; it is a text or None")
    if len(privatized) != len(originals):
        raise ConfigError(
            f"privatized= has {len(privatized)} rows and originals= {len(originals)}; a row and its original stand at "
            "the same place"
        )


def _pair(made: str, text: str, known: Mapping[str, int]) -> Pair | None:
    """Return the words of a row, read with its marks or, where the mechanism drops them, without."""
    for keep in (True, False):
        words, gaps = read(text, known, keep_punctuation=keep)
        released = _released(made, words, gaps, known)
        if released is not None:
            return Pair(words, released, gaps)
    return None


def _released(made: str, words: list[str], gaps: list[str], known: Container[str]) -> list[str] | None:
    """Return the words of a released text, which lie between the gaps of the original; None where they do not."""
    found, between = read(made, known)
    if between == gaps:
        return found
    return _fitted(made.lower().strip(), words, gaps, known)


def _fitted(made: str, words: list[str], gaps: list[str], known: Container[str]) -> list[str] | None:
    """Lay words of W, which may hold marks themselves, between the gaps: all ends that each word can have."""
    if not made.startswith(gaps[0]):
        return None
    reached: list[dict[int, tuple[int, int]]] = [{len(gaps[0]): (0, 0)}]
    for word, gap in zip(words, gaps[1:], strict=True):
        step: dict[int, tuple[int, int]] = {}
        for start in reached[-1]:
            for end in range(start + 1, min(len(made), start + _LONGEST) + 1):
                if made.startswith(gap, end) and (made[start:end] in known or made[start:end] == word):
                    step.setdefault(end + len(gap), (start, end))
        if not step:
            return None
        reached.append(step)
    place, found = len(made), []
    for step in reversed(reached[1:]):
        if place not in step:
            return None
        start, end = step[place]
        found.append(made[start:end])
        place = start
    return found[::-1] if place == len(gaps[0]) else None
