"""Madlib: each word's embedding plus multivariate Laplace noise, then the nearest word.

y = phi(w) + z with density of z proportional to exp(-epsilon |z|); the output is the word of the public vocabulary W
that is nearest to y. The search sees y alone, never w, so it is post-processing of y, and y has metric DP at scale
epsilon. Source: Feyisetan et al. 2020, arXiv:1910.08902, Algorithm 1. Where we leave the paper: words outside W, which
its code copies in clear, are points of the metric (the mean of W, or of W's numbers) and get the same noise.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hf_dpsynth.compute import nearest
from hf_dpsynth.mechanisms.word.base import Drawn, Vocabulary, WordMechanism, checked
from hf_dpsynth.mechanisms.word.noisy_points import noisy_points
from hf_dpsynth.privacy.words import MultivariateLaplaceDpEvent


@dataclass(frozen=True, kw_only=True)
class Madlib(WordMechanism):
    """Replaces each word by a word near a noisy copy of its embedding; metric DP per word.

    Args:
        oov, numbers, punctuation, stop_words, max_words: as in every word mechanism (`WordMechanism`).
    Examples:
        >>> Madlib(punctuation="drop").guarantee(10).metric
        'Euclidean distance of word embeddings'
    """

    name: ClassVar[str] = "madlib"

    def event(self, epsilon: float) -> MultivariateLaplaceDpEvent:
        """Return the event of one release of a data set: one draw a word."""
        return MultivariateLaplaceDpEvent(checked(epsilon))

    def law(self, vocabulary: Vocabulary, epsilon: float) -> "_Nearest":
        """Return the law: the nearest word to a noisy point."""
        return _Nearest(vocabulary, epsilon)


@dataclass(frozen=True, eq=False)
class _Nearest:
    vocabulary: Vocabulary
    epsilon: float

    def draw(self, codes: np.ndarray, marks: np.ndarray | None, generator: np.random.Generator) -> Drawn:
        return (noisy_points(codes, self.vocabulary, self.epsilon, generator),)

    def choose(self, *drawn: np.ndarray) -> np.ndarray:
        indices, _ = nearest.top_k(drawn[0], self.vocabulary.vectors.vectors, 1)
        return np.asarray(indices[:, 0])
