"""The exponential mechanism over words: P(v) proportional to exp(-epsilon / 2 times the distance), capped or not.

The score of v is min(d(w, v), cap), which differs between two inputs by at most their distance: metric DP at scale
epsilon. W is cut in parts of fixed size. For each word that occurs, the sums of its weights over the parts are kept; a
draw finds a part by these sums, then a word of it by the weights, which are computed again. One word is computed at a
time, with operations of fixed shapes, so that what is drawn for it does not depend on other words.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hf_dpsynth.compute import nearest
from hf_dpsynth.mechanisms.word.base import Drawn, Vocabulary, is_noiseless
from hf_dpsynth.privacy.words import at_places, part_places, uniforms

PART_WORDS = 1024
_NEAR = 1e-3


class Distances:
    """Distances from points to the words of W, part by part, in float64.

    |x - y|^2 is computed as |x|^2 + |y|^2 - 2 x.y. Where it is small beside |x|^2 + |y|^2, rounding would matter: such
    pairs, a word and itself among them, are measured coordinate by coordinate. The rest is right to 1e-11 of itself.

    Args:
        vocabulary (`Vocabulary`): W and its points. Public.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        # distances do not change with the origin, and rounding is smallest around the mean
        points = vocabulary.points.astype(np.float64) - vocabulary.vectors.unk.astype(np.float64)
        self.points, self.squares = points, np.square(points).sum(axis=1)
        starts = range(0, vocabulary.size, PART_WORDS)
        parts = [slice(start, min(start + PART_WORDS, vocabulary.size)) for start in starts]
        self.parts = [(np.ascontiguousarray(points[part].T), self.squares[part]) for part in parts]

    def __call__(self, code: int, part: int) -> np.ndarray:
        """Return the distances of one code to the words of a part. As sensitive as the code."""
        words, squares = self.parts[part]
        point, sums = self.points[code], squares + self.squares[code]
        # element by element over words, coordinates added in order: no other word plays a part
        out = np.einsum("i,ij->j", point, words)
        out *= -2
        out += sums
        near = np.flatnonzero(out <= _NEAR * sums)
        if len(near):
            out[near] = np.square(words[:, near] - point[:, None]).sum(axis=0)
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

    def draw(self, codes: np.ndarray, marks: np.ndarray | None, generator: np.random.Generator) -> Drawn:
        """Draw a place for each word of one text. Sensitive."""
        return codes, uniforms(generator, len(codes))

    def choose(self, *drawn: np.ndarray) -> np.ndarray:
        """Return the words at these places of the laws of these codes."""
        codes, places = drawn
        if is_noiseless(self.epsilon):
            return nearest.top_k_indices(self.vocabulary.points[codes], self.vocabulary.candidates, 1)[:, 0]
        parts, rest = np.empty(len(codes), dtype=np.int64), np.empty(len(codes))
        for code, rows in grouped(codes):
            parts[rows], rest[rows] = part_places(self._sums_of(code), places[rows])
        count = len(self.distances.parts)
        chosen = choose_by_code(codes * count + parts, rest, lambda pair: self.weights(*divmod(pair, count)))
        return chosen + parts * PART_WORDS

    def weights(self, code: int, part: int) -> np.ndarray:
        """Return the law of one word over a part of W, up to a factor of the word; epsilon is finite.

        Args:
            code (`int`): a row of `vocabulary.points`. Sensitive.
            part (`int`): which `PART_WORDS` words of W.
        Returns:
            `np.ndarray`: float64; the largest of all parts is 1. As sensitive as the code.
        """
        least = self._least[code]
        away = self.distances(code, part)
        away -= least
        with np.errstate(over="ignore"):  # an infinite exponent is a probability of 0
            away *= self.epsilon / 2
            if math.isfinite(self.cap):
                np.minimum(away, max(self.cap - least * (self.epsilon / 2), 0), out=away)
        np.negative(away, out=away)
        return np.asarray(np.exp(away, out=away))

    @cached_property
    def distances(self) -> Distances:
        """The distances to W, with their tables."""
        return Distances(self.vocabulary)

    @cached_property
    def _least(self) -> np.ndarray:
        """How far from W each point is: a word is in W, which leaves those of words and numbers outside."""
        least = np.zeros(len(self.vocabulary.points))
        for code in range(self.vocabulary.size, len(least)):
            least[code] = min(self.distances(code, part).min() for part in range(len(self.distances.parts)))
        return least

    @cached_property
    def _sums(self) -> dict[int, np.ndarray]:
        return {}

    def _sums_of(self, code: int) -> np.ndarray:
        """Return the sum of a word's weights over each part; 8 bytes a part are kept of each word that occurred."""
        if code not in self._sums:
            self._sums[code] = np.array([self.weights(code, part).sum() for part in range(len(self.distances.parts))])
        return self._sums[code]


def grouped(codes: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Return each distinct code with the places where it stands, both ascending. As sensitive as the codes."""
    order = np.argsort(codes, kind="stable")
    distinct, starts = np.unique(codes[order], return_index=True)
    return list(zip(distinct.tolist(), np.split(order, starts[1:]), strict=True)) if len(codes) else []


def choose_by_code(codes: np.ndarray, places: np.ndarray, weights: Callable[[int], np.ndarray]) -> np.ndarray:
    """Draw from the law of each code at its uniform place; the law of a code is computed once for all its places.

    Args:
        codes (`np.ndarray`): shape (n,), int64. Sensitive.
        places (`np.ndarray`): of `uniforms`, shape (n,). Sensitive.
        weights (`Callable[[int], np.ndarray]`): the law of a code, up to a factor.
    Returns:
        `np.ndarray`: columns of `weights`, shape (n,), int64.
    """
    chosen = np.empty(len(codes), dtype=np.int64)
    for code, rows in grouped(codes):
        chosen[rows] = at_places(weights(code), places[rows])
    return chosen
