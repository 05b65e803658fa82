"""Vickrey: madlib that releases the nearest or the second nearest word to the noisy point, by a coin.

With distances d1 <= d2 from the noisy point y to the two words nearest to it, the first is released with probability
(1 - t) d2 / (t d1 + (1 - t) d2). Both words and both distances depend on y alone: this is post-processing of y, which
has metric DP at scale epsilon. Published code leaves the input word out of the search, which looks at the word again
and voids the guarantee (no word could ever stay itself), and takes squared distances. Source: Xu et al. 2021,
arXiv:2104.11838, section 4.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hf_dpsynth.compute import nearest
from hf_dpsynth.mechanisms.word.base import Drawn, Vocabulary, WordMechanism, check_share
from hf_dpsynth.mechanisms.word.noisy_points import noisy_points
from hf_dpsynth.privacy.words import MultivariateLaplaceDpEvent, checked, uniforms


@dataclass(frozen=True, kw_only=True)
class Vickrey(WordMechanism):
    """Replaces each word by one of the two words nearest to a noisy copy of its embedding; metric DP per word.

    Args:
        t (`float`, defaults to 0.5): how much the second word is favoured: 0 always releases the first (madlib), 1 the
            second unless the first is met exactly.
        oov, numbers, punctuation, stop_words, max_words: as in every word mechanism (`WordMechanism`).
    Examples:
        >>> Vickrey(t=0.25).guarantee(10).metric
        'Euclidean distance of word embeddings'
    """

    name: ClassVar[str] = "vickrey"

    t: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.name, "t", self.t)

    def event(self, epsilon: float) -> MultivariateLaplaceDpEvent:
        """Return the event of one release of a data set: one draw a word."""
        return MultivariateLaplaceDpEvent(checked(epsilon))

    def law(self, vocabulary: Vocabulary, epsilon: float) -> "_NearestTwo":
        """Return the law: a coin between the two words nearest to a noisy point."""
        return _NearestTwo(vocabulary, epsilon, self.t)


@dataclass(frozen=True, eq=False)
class _NearestTwo:
    vocabulary: Vocabulary
    epsilon: float
    t: float

    def draw(self, codes: np.ndarray, marks: np.ndarray | None, generator: np.random.Generator) -> Drawn:
        points = noisy_points(codes, self.vocabulary, self.epsilon, generator)
        return points, uniforms(generator, len(codes))

    def choose(self, *drawn: np.ndarray) -> np.ndarray:
        points, coins = drawn
        vectors = self.vocabulary.vectors.vectors
        indices = nearest.top_k_indices(points, self.vocabulary.candidates, 2)
        # in float64: the squares of a far point overflow float32
        first, second = (
            np.sqrt(np.square(points.astype(np.float64) - vectors[column]).sum(axis=1)) for column in indices.T
        )
        stays = coins < first_probability(first, second, self.t)
        return np.where(stays, indices[:, 0], indices[:, 1])


def first_probability(first: np.ndarray, second: np.ndarray, t: float) -> np.ndarray:
    """Return with which probability the first of two words is released, (1 - t) d2 / (t d1 + (1 - t) d2).

    Args:
        first (`np.ndarray`): distances d1 from the noisy points to the nearest words, not squared, shape (n,).
        second (`np.ndarray`): distances d2 >= d1 to the second nearest words, shape (n,).
        t (`float`): in [0, 1].
    Returns:
        `np.ndarray`: shape (n,); 1 where the fraction is 0 / 0.
    Examples:
        >>> first_probability(np.array([1.0, 0.0]), np.array([3.0, 0.0]), 0.5).tolist()
        [0.75, 1.0]
    """
    share, total = (1 - t) * second, t * first + (1 - t) * second
    return np.divide(share, total, out=np.ones(len(total)), where=total > 0)
