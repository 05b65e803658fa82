"""Plausible deniability of a word mechanism: each of some public words is drawn many times, and the draws counted.

The one rule: only words of the public vocabulary are read, never a private text, so what is found, and an epsilon that
is chosen by it, tell nothing of private data. Draws go through the mechanism's own law. Source: Feyisetan et al. 2020,
arXiv:1910.08902, section 4; Arnold et al. 2023, arXiv:2306.01471.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_dpsynth import registry
from hf_dpsynth.audit.deniability import Deniability
from hf_dpsynth.audit.pairs import is_read
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word.base import WordMechanism
from hf_dpsynth.metrics.base import check_count, check_seed
from hf_dpsynth.metrics.plausible_deniability import confusion, distances, substitution
from hf_dpsynth.models.lexicon import lexical_tags
from hf_dpsynth.models.word_vectors import WordVectors, load_vectors
from hf_dpsynth.privacy.keys import Key, public_generator
from hf_dpsynth.privacy.words import checked

Source = str | os.PathLike[str] | WordVectors
_PUBLIC_ONLY = (
    "words= is a number of words, drawn from the vocabulary in public, or a list of words of the vocabulary. This "
    "study reads public words only: a figure or an epsilon that was chosen by private texts would tell of them"
)


def plausible_deniability(
    mechanism: str | WordMechanism,
    epsilon: float,
    words: int | Sequence[str] = 250,
    draws: int = 100,
    params: Mapping[str, Any] | None = None,
    *,
    vectors: Source | None = None,
    seed: int = 0,
    key: Key | None = None,
) -> Deniability:
    """Measure how often public words come out as themselves, and as how many others.

    Args:
        mechanism (`str` or an instance): a word mechanism.
        epsilon (`float`): its scale.
        words (`int` or `Sequence[str]`, defaults to 250): how many words to draw from the vocabulary in public, each
            with the same probability; or which. Public.
        draws (`int`, defaults to 100): substitutes to draw for each word.
        params (`Mapping`, *optional*): fields of the mechanism, with its name.
        vectors (`str`, path or `WordVectors`, *optional*): the word vectors; `"glove-50d"` when missing. Public.
        seed (`int`, defaults to 0): the seed of the public choice of words; never of noise.
        key (`Key`, *optional*): of the noise; a fresh one when missing. The same key draws the same noise again, at
            another epsilon scaled.
    Returns:
        `Deniability`: N_w, S_w, tags and distances. Public.
    Raises:
        ConfigError: the mechanism replaces no words, `words` is neither a number nor words of the vocabulary, or an
            argument is out of range.
        MissingExtra: the vocabulary holds words without a lexical tag, and spaCy is not installed.
    Examples:
        >>> from hf_dpsynth.audit import plausible_deniability
        >>> found = plausible_deniability("madlib", 10.0, words=["doctor", "london"], draws=20)
        >>> found.self_substitution.shape, found.confusion.sum()
        ((2,), np.int64(40))
    """
    return prepare(mechanism, words, draws, params, vectors=vectors, seed=seed, key=key).at(epsilon)


def prepare(
    mechanism: str | WordMechanism,
    words: int | Sequence[str],
    draws: int,
    params: Mapping[str, Any] | None,
    *,
    vectors: Source | None,
    seed: int,
    key: Key | None,
) -> "Study":
    """Return a study that can be made at several scales with the same words and noise; the arguments are as above."""
    found = registry.resolve(mechanism, None if params is None else dict(params), "privatize")
    if not isinstance(found, WordMechanism):
        raise ConfigError(
            f"{getattr(found, 'name', type(found).__name__)} is no mechanism that replaces words one by one, so it "
            "has no N_w and S_w. Pass one of those that hf_dpsynth.list_mechanisms() calls metric DP per word."
        )
    check_count("draws", draws, 1)
    check_seed(seed)
    whole = load_vectors("glove-50d" if vectors is None else vectors)
    loaded = whole.most_frequent(found.max_words)
    rows = _rows(words, loaded, seed)
    return Study(found, loaded, whole.public_id, rows, int(draws), Key() if key is None else key)


@dataclass(frozen=True, eq=False)
class Study:
    """Words and noise that stay the same at every scale.

    Args:
        mechanism (`WordMechanism`): what is studied.
        vectors (`WordVectors`): W. Public.
        name (`str`): what a plan calls the vectors that W was cut from.
        rows (`np.ndarray`): the words, as rows of W, shape (n,).
        draws (`int`): draws for each word.
        key (`Key`): of the noise: one stream for each word, whatever the scale.
    """

    mechanism: WordMechanism
    vectors: WordVectors
    name: str
    rows: np.ndarray
    draws: int
    key: Key

    @property
    def words(self) -> tuple[str, ...]:
        """The words."""
        return tuple(self.vectors.words[row] for row in self.rows)

    def outputs(self, epsilon: float) -> np.ndarray:
        """Draw the substitutes of all words; rows of W, shape (n, draws), int64."""

        def stream(place: int) -> np.random.Generator:
            return self.key.generator("deniability", int(self.rows[place]))

        return self.mechanism.substitutes(self.words, self.draws, self.vectors, checked(epsilon), stream)

    def at(self, epsilon: float, outputs: np.ndarray | None = None) -> Deniability:
        """Return what the study finds at a scale, from draws that are there already or fresh ones."""
        drawn = self.outputs(epsilon) if outputs is None else outputs
        inputs, flat = np.repeat(self.rows, self.draws), drawn.ravel()
        own, distinct = figures(self.rows, drawn)
        tags = lexical_tags(self.vectors.words)
        return Deniability(
            mechanism=self.mechanism.name,
            params=registry.planned(self.mechanism),
            epsilon=float(epsilon),
            vectors=self.name,
            vocabulary_size=len(self.vectors),
            draws=self.draws,
            words=self.words,
            ranks=self.rows + 1,
            self_substitution=own,
            distinct=distinct,
            tags_kept_by_word=(tags[drawn] == tags[self.rows][:, None]).mean(axis=1),
            confusion=confusion(tags[inputs], tags[flat]),
            distances=distances(self.vectors.vectors, inputs, flat),
        )


def figures(rows: np.ndarray, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return N_w and S_w of each word, in the order of `rows`.

    Args:
        rows (`np.ndarray`): the words, shape (n,), distinct. Public.
        outputs (`np.ndarray`): their substitutes, shape (n, draws). Public.
    """
    found = substitution(np.repeat(rows, outputs.shape[1]), outputs.ravel())
    order = np.searchsorted(found.words, rows)
    return found.self_substitution[order], found.distinct[order]


def _rows(words: Any, vectors: WordVectors, seed: int) -> np.ndarray:
    """Return the rows of the words of a study."""
    if isinstance(words, bool) or not isinstance(words, (int, np.integer, list, tuple)):
        raise ConfigError(f"words= is of type {type(words).__name__}. {_PUBLIC_ONLY}.")
    if isinstance(words, (list, tuple)):
        return _named(words, vectors)
    order = public_generator(seed, "deniability-words").permutation(len(vectors))
    found = [row for row in order if is_read(vectors.words[row], vectors.known)] if words > 0 else []
    if not 0 < words <= len(found):
        raise ConfigError(f"words is {words}; {vectors.id} has {len(found)} words to draw from")
    return np.array(found[:words], dtype=np.int64)


def _named(words: Sequence[Any], vectors: WordVectors) -> np.ndarray:
    """Return the rows of words that were named. A message has the place of a word, never the word."""
    for place, word in enumerate(words):
        if not isinstance(word, str) or word not in vectors.known or not is_read(word, vectors.known):
            raise ConfigError(f"words[{place}] is no word of {vectors.id} in lower case. {_PUBLIC_ONLY}.")
    if not words or len(set(words)) < len(words):
        raise ConfigError(f"words= has {len(words)} words, {len(set(words))} of them different. Name each word once.")
    return np.array([vectors.known[word] for word in words], dtype=np.int64)
