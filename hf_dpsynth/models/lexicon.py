"""Lexical tags: one part of speech for each word of a public vocabulary, whatever sentence it stands in.

The one rule: a word's tag is a function of the word alone, read from a table that ships with the package (the first
50,000 words of glove-50d) or, for a word that the table lacks, given by the tagger that made the table. Numbers are
NUM and marks X by rule. The tagger sees each word in the fixed sentence `a word : " w "`: small pipelines know a lone
lower-case word by its ending only. Against the most frequent tag of 3,193 words that occur at least 10 times in the
embedded data sets, 90.1 % agree; a word without a sentence gets 86.8 %. The table is made again, and compared, by
`python -m benchmarks.lexical_tags`.
"""

import gzip
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.resources import files

import numpy as np

from hf_dpsynth.errors import MissingExtra
from hf_dpsynth.models.tags import TAGS
from hf_dpsynth.models.word_vectors import NUMBER

TABLE = "lexical_tags.txt.gz"
_BEFORE, _AFTER = ("a", "word", ":", '"'), ('"',)
_BATCH = 256


def lexical_tags(words: Sequence[str]) -> np.ndarray:
    """Return the lexical tag of each word of a public vocabulary.

    The result is kept for the vocabularies that were asked for last. Words that the table lacks take about
    half a millisecond each.

    Args:
        words (`Sequence[str]`): lower-case words of a vocabulary, never those of a text. Public.
    Returns:
        `np.ndarray`: places in `TAGS`, shape (n,), int8, read-only. Public.
    Raises:
        MissingExtra: the table lacks a word and spaCy is not installed.
    Examples:
        >>> [TAGS[code] for code in lexical_tags(["london", "gotta", "quickly", "1979", "!"])]
        ['NOUN', 'VERB', 'ADV', 'NUM', 'X']
    """
    return _tags_of(tuple(words))


@lru_cache(maxsize=8)
def _tags_of(words: tuple[str, ...]) -> np.ndarray:
    table = _table()
    codes = np.array([table.get(word, -1) for word in words], dtype=np.int8)
    missing = np.flatnonzero(codes < 0)
    if len(missing):
        try:
            codes[missing] = tag_alone([words[place] for place in missing])
        except MissingExtra as error:
            raise MissingExtra(
                f"the table of lexical tags has {len(table)} words and lacks {len(missing)} of the {len(words)} of "
                "this vocabulary; a tagger has to give them: pip install 'hf-dpsynth[tagger]'"
            ) from error
    codes.flags.writeable = False
    return codes


def tag_alone(words: Sequence[str]) -> np.ndarray:
    """Tag public words as the table was made: by rule, else by the default tagger in the fixed sentence.

    Args:
        words (`Sequence[str]`): words of a vocabulary. Public.
    Returns:
        `np.ndarray`: places in `TAGS`, shape (n,), int8. Public.
    Raises:
        MissingExtra: spaCy is not installed.
    """
    from hf_dpsynth.models.tagger import SpacyTagger

    sentences = [(*_BEFORE, word, *_AFTER) for word in words]
    tagged = SpacyTagger().tag_words(sentences, batch_size=_BATCH)
    codes = np.array([sentence[len(_BEFORE)] for sentence in tagged], dtype=np.int8)
    for place, word in enumerate(words):
        if NUMBER.fullmatch(word):
            codes[place] = TAGS.index("NUM")
        elif word.isascii() and not any(character.isalnum() for character in word):
            codes[place] = TAGS.index("X")
    return codes


@cache
def _table() -> dict[str, int]:
    """Read the shipped table: a line for each tag, its name and then its words, most frequent first."""
    packed = files("hf_dpsynth.models").joinpath(TABLE).read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").split("\n")
    return {word: TAGS.index(name) for name, *words in (line.split(" ") for line in lines) for word in words}
