"""Text as words and what stands between them: the rules that all word mechanisms share.

The one rule: nothing but spaces and ASCII punctuation is ever copied from a private text. Everything else, emoji,
other scripts and control characters included, is a word, and every word is replaced. The rules read the text and the
public vocabulary W only; time and memory are linear in the length.

1. Lower-case; typographic quotes, dashes and dots become ASCII ones; white space becomes one space, none at the ends.
2. A run of other characters, joined by single marks of `.,'&/:-`, is one word when W has it ("o'brien", "1.5", "u.s").
3. What W lacks is cut: numbers stay whole ("19,500.75"), contractions as GloVe has them ("don't" is "do" and "n't",
   "she's" is "she" and "'s"), the rest at its marks.
4. A word W lacks is a number if it begins with a digit 0-9, else unknown.
5. Marks stay where they were (`keep`: they are public) or become spaces (`drop`). Two words never touch.
"""

import re
from collections.abc import Container, Iterator, Sequence

PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_MARK = "[" + re.escape(PUNCTUATION) + "]"
_RUN = r"[^\s" + re.escape(PUNCTUATION) + "]"
_TYPOGRAPHIC = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-", "\u2026": "..."}
)
_PIECES = re.compile(rf"({_RUN}+(?:[.,'&/:-]{_RUN}+)*)|({_MARK})|\s+")
_NEGATION = re.compile(rf"n't(?!{_RUN})")
_CUT = re.compile(rf"([0-9]+(?:[.,][0-9]+)+|n't(?!{_RUN})|'(?:s|re|ve|m|ll|d)(?!{_RUN})|{_RUN}+)|({_MARK})|\s+")


def read(text: str, known: Container[str], *, keep_punctuation: bool = True) -> tuple[list[str], list[str]]:
    """Split a text into words and the gaps around them.

    Args:
        text (`str`): any text. Sensitive.
        known (`Container[str]`): the vocabulary W, lower-case. Public.
        keep_punctuation (`bool`, defaults to `True`): whether gaps hold marks or spaces only.
    Returns:
        `tuple[list[str], list[str]]`: n words (Sensitive), and n + 1 gaps of ASCII punctuation and single spaces
        (public by assumption).
    Examples:
        >>> read("Don't  go, COVIDXQ-19!", {"do", "n't", "go"})
        (['do', "n't", 'go', 'covidxq', '19'], ['', ' ', ' ', ', ', '-', '!'])
    """
    words: list[str] = []
    gaps: list[str] = []
    gap = ""
    for word, mark in _pieces(text.lower().translate(_TYPOGRAPHIC), known):
        if word:
            gaps.append(gap or (" " if words else ""))
            words.append(word)
            gap = ""
        elif mark and keep_punctuation:
            gap += mark
        elif not gap.endswith(" ") and (words or gap):
            gap += " "
    gaps.append(gap.rstrip(" "))
    return words, gaps


def _pieces(text: str, known: Container[str]) -> Iterator[tuple[str | None, str | None]]:
    """Yield (word, None), (None, mark) or, for white space, (None, None)."""
    for match in _PIECES.finditer(text):
        word, mark = match.groups()
        if word is None or word in known or word.isalnum():
            yield word, mark
        else:
            for part in _CUT.finditer(_NEGATION.sub(" n't", word)):
                inner, mark = part.groups()
                if inner or mark:
                    yield inner, mark


def write(words: Sequence[str], gaps: Sequence[str]) -> str:
    """Put words back between the gaps of `read`.

    Args:
        words (`Sequence[str]`): n words that a mechanism released.
        gaps (`Sequence[str]`): n + 1 gaps.
    Returns:
        `str`: a text in which words are always set apart; "" where there is nothing.
    Examples:
        >>> write(["hello", "world"], ["", ", ", "!"])
        'hello, world!'
    """
    parts = [gaps[0]]
    for word, gap in zip(words, gaps[1:], strict=True):
        parts += (word, gap)
    return "".join(parts)


def cased(text: str, words: Sequence[str]) -> list[str]:
    """Return the words of `read` with the capitals that the text has, for a tagger; never to be copied.

    Args:
        text (`str`): what was read. Sensitive.
        words (`Sequence[str]`): its words. Sensitive.
    Returns:
        `list[str]`: one a word, equal to it in lower case; the words as they are where lower-casing changes lengths.
    Examples:
        >>> cased("She didn't see NATO", ["she", "did", "n't", "see", "nato"])
        ['She', 'did', "n't", 'see', 'NATO']
    """
    lower, source = text.lower(), text.translate(_TYPOGRAPHIC)
    if len(lower) != len(text):
        return list(words)
    lower = lower.translate(_TYPOGRAPHIC)
    found = []
    place = 0
    for word in words:
        place = lower.find(word, place) + len(word)
        found.append(source[place - len(word) : place])
    return found


def is_number(word: str) -> bool:
    """Return whether a word outside W counts as a number: it begins with a digit 0-9."""
    return "0" <= word[:1] <= "9"
