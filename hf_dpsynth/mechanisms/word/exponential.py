"""The exponential mechanism over words: P(v) proportional to exp(-epsilon / 2 times the distance), capped or not.

The score of v is min(d(w, v), cap), which differs between two inputs by at most their distance: metric DP at scale
epsilon. The probabilities of a word over all of W are computed once for all its places in a chunk of texts, in blocks
of a fixed number of words: with the rows of zeros that fill up the last block, a row does not depend on the others.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hf_dpsynth.mechanisms.word.base import Drawn, Vocabulary, is_noiseless
from hf_dpsynth.privacy.words import at_places, uniforms

BLOCK_WORDS = 64
_NEAR = 1e-3


class Distances:
    """Distances from points to all words of W, in float64.

    |x - y|^2 is computed as |x|^2 + |y|^2 - 2 x.y. Where it is small beside |x|^2 + |y|^2, rounding would matter: such
    pairs, a word and itself among them, are measured coordinate by coordinate. The rest is right to 1e-11 of itself.

    Args:
        vocabulary (`Vocabulary`): W and its points. Public.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        # distances do not change with the origin, and rounding is smallest around the mean
        points = vocabulary.points.astype(np.float64) - vocabulary.vectors.unk.astype(np.float64)
        self.points, self.words = points, points[: vocabulary.size]
        self.squares = np.square(points).sum(axis=1)

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        """Return the distances of at most `BLOCK_WORDS` codes to W, shape (n, V). As sensitive as the codes."""
        block = np.zeros((BLOCK_WORDS, self.points.shape[1]))
        block[: len(codes)] = self.points[codes]
        out = (block @ self.words.T)[: len(codes)]
        out *= -2
        for row, code in zip(out, codes, strict=True):
            sums = self.squares[: len(row)] + self.squares[code]
            row += sums
            sums *= _NEAR
            near = np.flatnonzero(row <= sums)
            row[near] = np.square(self.words[near] - self.points[code]).sum(axis=1)
        return np.asarray(np.sqrt(out, out=out))


@dataclass(frozen=True, eq=False)
class ExponentialWord:
    """The law with P(v) proportional to exp(-min(epsilon d(w, v) / 2, cap)).

    Args:
        vocabulary (`Vocabulary`): public.
        epsilon (`float`): the scale; infinite is the limit, the nearest word, of lowest index in a tie.
        cap (`float`, defaults to infinity): the largest exponent, >= 0.
    """

    vocabulary: Vocabulary
    epsilon: float
    cap: float = math.inf

    @cached_property
    def distances(self) -> Distances:
        """The distances to W, with their tables."""
        return Distances(self.vocabulary)

    def draw(self, codes: np.ndarray, marks: np.ndarray | None, generator: np.random.Generator) -> Drawn:
        """Draw a place for each word of one text. Sensitive."""
        return codes, uniforms(generator, len(codes))

    def choose(self, *drawn: np.ndarray) -> np.ndarray:
        """Return the words at these places of the laws of these codes."""
        codes, places = drawn
        return choose_by_code(codes, places, self.weights)

    def weights(self, codes: np.ndarray) -> np.ndarray:
        """Return the law of at most `BLOCK_WORDS` words over W, up to a factor for each.

        Args:
            codes (`np.ndarray`): rows of `vocabulary.points`, shape (n,). As sensitive as the words.
        Returns:
            `np.ndarray`: shape (n, V), float64; the largest of a row is 1.
        """
        away = self.distances(codes)
        least = away.min(axis=1)
        away -= least[:, None]
        if is_noiseless(self.epsilon):
            first = np.zeros_like(away)
            first[np.arange(len(away)), away.argmin(axis=1)] = 1
            return first
        with np.errstate(over="ignore"):  # an infinite exponent is a probability of 0
            away *= self.epsilon / 2
            if math.isfinite(self.cap):
                np.minimum(away, np.maximum(self.cap - least * (self.epsilon / 2), 0)[:, None], out=away)
        np.negative(away, out=away)
        return np.asarray(np.exp(away, out=away))


def choose_by_code(codes: np.ndarray, places: np.ndarray, weights: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Draw from the law of each code at its uniform place; the law of a code is computed once for all its places.

    Args:
        codes (`np.ndarray`): shape (n,), int64. Sensitive.
        places (`np.ndarray`): of `uniforms`, shape (n,). Sensitive.
        weights (`Callable[[np.ndarray], np.ndarray]`): the laws of at most `BLOCK_WORDS` codes, a row for each.
    Returns:
        `np.ndarray`: columns of `weights`, shape (n,), int64.
    """
    chosen = np.empty(len(codes), dtype=np.int64)
    order = np.argsort(codes, kind="stable")
    distinct, starts = np.unique(codes[order], return_index=True)
    groups = np.split(order, starts[1:])
    for first in range(0, len(distinct), BLOCK_WORDS):
        rows = weights(distinct[first : first + BLOCK_WORDS])
        for row, group in zip(rows, groups[first : first + BLOCK_WORDS], strict=True):
            chosen[group] = at_places(row, places[group])
    return chosen
