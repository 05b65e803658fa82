"""Plausible deniability of words: how often a word comes out as itself, and as how many different words.

N_w is the share of draws that return the word w, in %, and S_w the number of different words among 100 draws. Both
are measured on draws and prove nothing. Source: Feyisetan et al. 2020, arXiv:1910.08902, section 4; Arnold et al.
2023, arXiv:2306.01471. The arithmetic takes pairs of numbers, a word that went in and a word that came out.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word.text import read
from hf_dpsynth.metrics.base import Metric, Result, check_count, check_texts
from hf_dpsynth.models.lexicon import lexical_tags
from hf_dpsynth.models.tags import TAGS
from hf_dpsynth.models.word_vectors import WordVectors, load_vectors

AMONG = 100
MOST_SELF = 50.0
_BLOCK = 8192


@dataclass(frozen=True, eq=False)
class Substitution:
    """How often each of some words came out as itself, and as how many words. As sensitive as the pairs.

    Args:
        words (`np.ndarray`): the distinct words that went in, ascending, shape (n,).
        draws (`np.ndarray`): how often each did, shape (n,).
        self_substitution (`np.ndarray`): N_w, the draws that returned the word, in %, shape (n,).
        distinct (`np.ndarray`): S_w, the different words that came out, shape (n,).
    """

    words: np.ndarray
    draws: np.ndarray
    self_substitution: np.ndarray
    distinct: np.ndarray


def substitution(inputs: np.ndarray, outputs: np.ndarray, among: int = AMONG) -> Substitution:
    """Count self-substitutions and different substitutes.

    Args:
        inputs (`np.ndarray`): words that went in, whole numbers >= 0, shape (m,). Sensitive if they are.
        outputs (`np.ndarray`): what came out, numbered alike, shape (m,).
        among (`int`): S_w grows with the number of draws, so it is the expected number of different words in so many
            of them, drawn without replacement; of a word that has no more draws, all are counted.
    Examples:
        >>> found = substitution(np.array([3, 3, 3, 7]), np.array([3, 5, 3, 3]))
        >>> found.self_substitution.round(1).tolist(), found.distinct.tolist()
        ([66.7, 0.0], [2.0, 1.0])
    """
    from scipy.special import gammaln

    words, places, draws = np.unique(inputs, return_inverse=True, return_counts=True)
    kept = np.bincount(places, weights=inputs == outputs, minlength=len(words))
    width = int(outputs.max(initial=0)) + 1
    pairs, counts = np.unique(places * width + outputs, return_counts=True)
    place = pairs // width
    rest = draws[place] - counts  # the draws that gave other words: all of a subset of them may be of these
    possible = rest >= among
    missed = np.zeros(len(pairs))
    total, rest = draws[place][possible], rest[possible]
    logarithm = gammaln(rest + 1) - gammaln(rest - among + 1) - gammaln(total + 1) + gammaln(total - among + 1)
    missed[possible] = np.exp(logarithm)
    return Substitution(
        words=words,
        draws=draws,
        self_substitution=100 * kept / draws,
        distinct=np.bincount(place, weights=1 - missed, minlength=len(words)),
    )


def confusion(inputs: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Count pairs of tags, those that went in by rows; shape (11, 11), int64, in the order of `TAGS`.

    Args:
        inputs (`np.ndarray`): places in `TAGS`, shape (m,). Sensitive if they are.
        outputs (`np.ndarray`): likewise of what came out, shape (m,).
    """
    size = len(TAGS)
    pairs = inputs.astype(np.int64) * size + outputs
    return np.bincount(pairs, minlength=size * size).reshape(size, size)


def distances(vectors: np.ndarray, inputs: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Return the Euclidean distance of each pair of different words, shape (pairs,), float64.

    Args:
        vectors (`np.ndarray`): a point for each word, shape (V, d). Public.
        inputs (`np.ndarray`): rows of `vectors`, shape (m,). Sensitive if they are.
        outputs (`np.ndarray`): rows of what came out, shape (m,).
    """
    moved = inputs != outputs
    pairs = np.stack([inputs[moved], outputs[moved]], axis=1)
    found = [
        np.linalg.norm(vectors[block[:, 0]].astype(np.float64) - vectors[block[:, 1]], axis=1)
        for block in (pairs[start : start + _BLOCK] for start in range(0, len(pairs), _BLOCK))
    ]
    return np.concatenate(found) if found else np.zeros(0)


@dataclass(frozen=True, kw_only=True)
class PlausibleDeniability(Metric):
    """Self-substitution, different substitutes, tags and distances of the words of privatized texts.

    Args:
        draws (`int`): words that occur at least so often are counted for N_w and S_w, and S_w is the number of
            different words that are expected among so many of their substitutes.
        quantile (`float`): the quantile of N_w to report besides its mean.
    """

    name: ClassVar[str] = "plausible_deniability"
    description: ClassVar[str] = (
        "Share of words that come out of a word-level mechanism as themselves at most half the time."
    )
    source: ClassVar[str] = "Feyisetan et al. 2020, arXiv:1910.08902; Arnold et al. 2023, arXiv:2306.01471"
    higher_is_better: ClassVar[bool | None] = True

    draws: int = 20
    quantile: float = 0.9

    def __post_init__(self) -> None:
        check_count("draws", self.draws, 1)
        if not 0 <= self.quantile <= 1:
            raise ConfigError(f"quantile is {self.quantile}; it lies between 0 and 1")

    def compute(
        self,
        *,
        predictions: Sequence[str],
        references: Sequence[str],
        vectors: "str | os.PathLike[str] | WordVectors" = "glove-50d",
        public_references: bool = False,
    ) -> Result:
        """Measure the words of texts against those that went in, place by place.

        Where a text's number of words changed, no word of it can be paired, and it is left out. The same word in two
        texts counts as two draws: what a mechanism reads besides the word (its tag in the sentence) is averaged over.

        Args:
            predictions (`Sequence[str]`): privatized texts. Public.
            references (`Sequence[str]`): the text that each was made of. Sensitive.
            vectors (`str`, path or `WordVectors`): the vectors of the mechanism: they say what a word is, which
                lexical tag it has, and how far two words are apart. Public.
            public_references (`bool`): whether the references are public.
        Returns:
            `dict`: `plausible_deniability` (the share of different words with N_w <= 50), `self_substitution_mean`,
            `self_substitution_quantile`, `distinct_mean` (N_w and S_w over words), `unchanged` (the share of all
            words of the texts that came out as they went in), `tags_kept`, `distance_mean` (of substitutes that
            differ), `num_words`, `num_pairs`, `limits`, `uses_private_data`. None where nothing can be measured. As
            sensitive as the references.
        Raises:
            ConfigError: not one prediction for each reference, no texts, or a value that is no text.
        """
        made, real = check_texts(predictions, "predictions"), check_texts(references, "references")
        if len(made) != len(real) or not made:
            raise ConfigError(f"{self.name} takes pairs: pass one privatized text for each text that went in")
        loaded = load_vectors(vectors)
        inputs, outputs, unpaired = _pairs(made, real, loaded)
        known = (inputs < len(loaded)) & (outputs < len(loaded))
        return {
            **self._words(inputs, outputs),
            **_tags_and_distances(inputs[known], outputs[known], loaded),
            "num_pairs": len(inputs),
            "limits": _limits(len(inputs), unpaired, int((~known).sum())),
            "uses_private_data": not public_references,
        }

    def _words(self, inputs: np.ndarray, outputs: np.ndarray) -> Result:
        found = substitution(inputs, outputs, self.draws)
        often = found.draws >= self.draws
        own, distinct = found.self_substitution[often], found.distinct[often]
        return {
            self.name: _mean(own <= MOST_SELF),
            "self_substitution_mean": _mean(own),
            "self_substitution_quantile": float(np.quantile(own, self.quantile)) if len(own) else None,
            "distinct_mean": _mean(distinct),
            "unchanged": _mean(inputs == outputs),
            "num_words": len(own),
        }


def _pairs(made: list[str], real: list[str], vectors: WordVectors) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the numbers of words in and out, and how many texts cannot be paired; words outside W come after W."""
    numbers = dict(vectors.known)
    sides: tuple[list[int], list[int]] = [], []
    unpaired = 0
    for texts in zip(real, made, strict=True):
        words = [read(text, vectors.known)[0] for text in texts]
        if len(words[0]) != len(words[1]):
            unpaired += 1
            continue
        for side, found in zip(sides, words, strict=True):
            side += [numbers.setdefault(word, len(numbers)) for word in found]
    return np.array(sides[0], dtype=np.int64), np.array(sides[1], dtype=np.int64), unpaired


def _tags_and_distances(inputs: np.ndarray, outputs: np.ndarray, vectors: WordVectors) -> Result:
    tags = lexical_tags(vectors.words)
    return {
        "tags_kept": _mean(tags[inputs] == tags[outputs]),
        "distance_mean": _mean(distances(vectors.vectors, inputs, outputs)),
    }


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _limits(pairs: int, unpaired: int, unknown: int) -> list[str]:
    """Return what a reader must know. As sensitive as the references."""
    found = ["measured on one release: empirical, not a proof"]
    if unpaired:
        found.append(f"{unpaired} texts have another number of words than went in, and are left out")
    if unknown:
        found.append(f"{unknown} of {pairs} pairs hold a word outside the vocabulary: no tag and no distance")
    return found
