"""Diffractor: words stand in a public line, and each moves by a two-sided geometric number of places.

The line is that of the projections of the public vectors on their first principal component. Noise with P(z)
proportional to exp(-epsilon |z|) on a word's place has metric DP at scale epsilon in the number of places; places
beyond an end are the end, which is post-processing. Source: Meisenbacher et al. 2024, arXiv:2405.01678, section 3.
Where we leave the paper: one line, not a random one of several, so that the metric is one; geometric noise without
truncation, which the guarantee needs.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hf_dpsynth.compute import nearest
from hf_dpsynth.mechanisms.word.base import Drawn, Vocabulary, WordMechanism, is_noiseless
from hf_dpsynth.models.vector_geometry import Scales
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.words import TwoSidedGeometricDpEvent, checked, two_sided_geometric


@dataclass(frozen=True, kw_only=True)
class Diffractor(WordMechanism):
    """Replaces each word by one a few places away in a public line of words; metric DP per word.

    Args:
        oov, numbers, punctuation, stop_words, max_words: as in every word mechanism (`WordMechanism`). Words and
            numbers outside W stand at the place of the word nearest to their point.
    Examples:
        >>> Diffractor().guarantee(0.1).metric
        'number of places between two words in a public line of W by first principal component'
    """

    name: ClassVar[str] = "diffractor"

    def metric(self, epsilon: float) -> str:
        """Return in words the distance that the scale multiplies."""
        return "number of places between two words in a public line of W by first principal component"

    def distances(self, vectors: WordVectors) -> Scales:
        """Return typical distances: the next place, and the median of two places drawn alike."""
        return Scales(nearest=1.0, pair=(1 - math.sqrt(0.5)) * len(vectors))

    def event(self, epsilon: float) -> TwoSidedGeometricDpEvent:
        """Return the event of one release of a data set: one draw a word."""
        return TwoSidedGeometricDpEvent(checked(epsilon))

    def law(self, vocabulary: Vocabulary, epsilon: float) -> "_Moved":
        """Return the law: the word at a noisy place of the line."""
        line = principal_line(vocabulary.vectors.vectors)
        places = np.empty(len(vocabulary.points), dtype=np.int64)
        places[line] = np.arange(vocabulary.size)
        near = nearest.top_k_indices(vocabulary.points[vocabulary.size :], vocabulary.candidates, 1)
        places[vocabulary.size :] = places[near[:, 0]]
        return _Moved(line, places, epsilon)


def principal_line(vectors: np.ndarray) -> np.ndarray:
    """Order words by their projection on the first principal component; ties by index.

    Args:
        vectors (`np.ndarray`): of W, shape (V, d). Public.
    Returns:
        `np.ndarray`: rows of W in the order of the line, shape (V,), int64.
    """
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    axis = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    axis *= np.sign(axis[np.abs(axis).argmax()])
    return np.argsort((centred * axis).sum(axis=1), kind="stable")


@dataclass(frozen=True, eq=False)
class _Moved:
    line: np.ndarray
    places: np.ndarray
    epsilon: float

    def draw(self, codes: np.ndarray, marks: np.ndarray | None, generator: np.random.Generator) -> Drawn:
        places = self.places[codes]
        if is_noiseless(self.epsilon):
            return (places,)
        return (places + two_sided_geometric(generator, self.epsilon, len(codes)),)

    def choose(self, *drawn: np.ndarray) -> np.ndarray:
        return np.asarray(self.line[np.clip(drawn[0], 0, len(self.line) - 1)])
