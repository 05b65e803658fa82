"""Mahalanobis: madlib with noise that is longer in the directions in which the public vectors spread.

z = M^(1/2) r u, u uniform on the sphere, r ~ Gamma(d, 1/epsilon), M = lam S + (1 - lam) I, S the covariance of the
vectors of W over its mean variance, so that the trace of M is d. The density of z is proportional to
exp(-epsilon |M^(-1/2) z|): metric DP in that norm. Nothing is scaled again after the root, as published code does:
the noise would then have another scale than the one that is claimed. Source: Xu et al. 2020, arXiv:2010.11947,
Algorithm 1.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.guarantees import digits
from hf_dpsynth.mechanisms.word.base import EUCLIDEAN, Vocabulary, WordMechanism, check_share
from hf_dpsynth.mechanisms.word.noisy_points import NearestWord
from hf_dpsynth.models.vector_geometry import Scales, scales
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.words import MultivariateLaplaceDpEvent, checked

_LEAST_EIGENVALUE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Mahalanobis(WordMechanism):
    """Replaces each word by a word near a copy of its embedding with elliptical noise; metric DP per word.

    Args:
        lam (`float`, defaults to 0.2): how much the noise follows the spread of W's vectors, from 0 (as madlib) to 1.
        oov, numbers, punctuation, stop_words, max_words: as in every word mechanism (`WordMechanism`).
    Examples:
        >>> Mahalanobis(lam=0.5).metric(10)[:80]
        'norm |M^(-1/2) z| of differences of word embeddings, M = lam S + (1 - lam) I, la'
        >>> Mahalanobis(lam=0).metric(10)
        'Euclidean distance of word embeddings'
    """

    name: ClassVar[str] = "mahalanobis"

    lam: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.name, "lam", self.lam)

    def metric(self, epsilon: float) -> str:
        """Return in words the distance that the scale multiplies."""
        if not self.lam:
            return EUCLIDEAN
        matrix = f"M = lam S + (1 - lam) I, lam = {digits(self.lam)}, S the covariance of W over its mean variance"
        return f"norm |M^(-1/2) z| of differences of word embeddings, {matrix}"

    def distances(self, vectors: WordVectors) -> Scales:
        """Return typical distances in the norm of the noise."""
        if not self.lam:
            return vectors.scales()
        return scales((vectors.vectors @ np.linalg.inv(root(vectors.vectors, self.lam))).astype(np.float32))

    def event(self, epsilon: float) -> MultivariateLaplaceDpEvent:
        """Return the event of one release of a data set: one draw a word."""
        return MultivariateLaplaceDpEvent(checked(epsilon))

    def law(self, vocabulary: Vocabulary, epsilon: float) -> NearestWord:
        """Return the law: the nearest word, in Euclidean distance, to a noisy point.

        Raises:
            ConfigError: the vectors do not spread, or not in all directions and `lam` is 1.
        """
        found = root(vocabulary.vectors.vectors, self.lam) if self.lam else None
        return NearestWord(vocabulary, epsilon, found)


def root(vectors: np.ndarray, lam: float) -> np.ndarray:
    """Return the symmetric root of M = lam S + (1 - lam) I, shape (d, d), float64.

    Args:
        vectors (`np.ndarray`): of W, shape (V, d). Public.
        lam (`float`): in [0, 1].
    Raises:
        ConfigError: the vectors are all equal, or M has no inverse, so that its norm is infinite.
    """
    covariance = np.atleast_2d(np.cov(vectors.astype(np.float64), rowvar=False, bias=True))
    mean = np.trace(covariance) / len(covariance)
    if not mean > 0:
        raise ConfigError("mahalanobis: the word vectors are all equal, so nothing spreads. Use madlib.")
    values, axes = np.linalg.eigh(lam * covariance / mean + (1 - lam) * np.eye(len(covariance)))
    if not values[0] >= _LEAST_EIGENVALUE:
        raise ConfigError(
            f"mahalanobis: with lam={lam} there is next to no noise in a direction in which the word vectors do not "
            f"spread (eigenvalue {values[0]:.3g}, at least {_LEAST_EIGENVALUE}). Lower lam."
        )
    return np.asarray((axes * np.sqrt(values)) @ axes.T)
