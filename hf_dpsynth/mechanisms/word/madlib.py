"""Madlib: each word's embedding plus multivariate Laplace noise, then the nearest word.

y = phi(w) + z with density of z proportional to exp(-epsilon |z|); the output is the word of the public vocabulary W
that is nearest to y. The search sees y alone, never w, so it is post-processing of y, and y has metric DP at scale
epsilon. Source: Feyisetan et al. 2020, arXiv:1910.08902, Algorithm 1. Where we leave the paper: words outside W, which
its code copies in clear, are points of the metric (the mean of W, or of W's numbers) and get the same noise.
"""

from dataclasses import dataclass
from typing import ClassVar

from hf_dpsynth.mechanisms.word.base import Vocabulary, WordMechanism
from hf_dpsynth.mechanisms.word.noisy_points import NearestWord
from hf_dpsynth.privacy.words import MultivariateLaplaceDpEvent, checked


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

    def law(self, vocabulary: Vocabulary, epsilon: float) -> NearestWord:
        """Return the law: the nearest word to a noisy point."""
        return NearestWord(vocabulary, epsilon)
