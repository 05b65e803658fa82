"""The universal tag set of 11 classes, and how spaCy's universal tags fall into it.

Punctuation stands apart from words; where a vocabulary holds marks they count as X. Source: Petrov, Das & McDonald
2012 (LREC), "A universal part-of-speech tagset"; spaCy's tags are those of Universal Dependencies.
"""

from collections.abc import Sequence

import numpy as np

TAGS = ("NOUN", "VERB", "ADJ", "ADV", "PRON", "DET", "ADP", "NUM", "CONJ", "PRT", "X")
_MERGED = {"PROPN": "NOUN", "AUX": "VERB", "CCONJ": "CONJ", "SCONJ": "CONJ", "PART": "PRT"}
_CODES = {name: TAGS.index(_MERGED.get(name, name)) for name in (*TAGS, *_MERGED)}


def tag_codes(names: Sequence[str]) -> np.ndarray:
    """Return the place in `TAGS` of each universal tag; whatever is not named there or merged is X.

    Args:
        names (`Sequence[str]`): tags of Universal Dependencies. Sensitive if they are.
    Returns:
        `np.ndarray`: shape (n,), int8. As sensitive as the names.
    Examples:
        >>> [TAGS[code] for code in tag_codes(["PROPN", "AUX", "SCONJ", "PART", "INTJ", "SYM", "PUNCT", "SPACE", ""])]
        ['NOUN', 'VERB', 'CONJ', 'PRT', 'X', 'X', 'X', 'X', 'X']
    """
    return np.array([_CODES.get(name, _CODES["X"]) for name in names], dtype=np.int8)
