"""Noise on embeddings: the noisy point of each word, scaled so that single precision can hold it, and what is near."""

from dataclasses import dataclass

import numpy as np

from hf_dpsynth.compute import nearest
from hf_dpsynth.mechanisms.word.base import Drawn, Vocabulary, is_noiseless
from hf_dpsynth.privacy.words import multivariate_laplace

_LONGEST = 1e30


def noisy_points(
    codes: np.ndarray,
    vocabulary: Vocabulary,
    epsilon: float,
    generator: np.random.Generator,
    root: np.ndarray | None = None,
) -> np.ndarray:
    """Return y = phi(w) + z for each word: metric DP at scale epsilon, and all that a search may see of the word.

    Args:
        codes (`np.ndarray`): rows of `vocabulary.points`, shape (n,). Sensitive.
        vocabulary (`Vocabulary`): public.
        epsilon (`float`): the scale; infinite adds no noise.
        generator (`np.random.Generator`): the secret stream of the text.
        root (`np.ndarray`, *optional*): a matrix R: the norm is |R^-1 z| instead of |z|. Public.
    Returns:
        `np.ndarray`: shape (n, d), float32. Sensitive until a search has rounded it to a word.
    """
    points = vocabulary.points
    noisy = points[codes].astype(np.float64)
    if not is_noiseless(epsilon):
        noisy += multivariate_laplace(generator, epsilon, len(noisy), points.shape[1], root)
    # Beyond this length only the direction decides; float32 ends at 3e38.
    noisy /= np.maximum(np.abs(noisy).max(axis=1, keepdims=True, initial=0) / _LONGEST, 1)
    return np.asarray(noisy, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class NearestWord:
    """The law of the word nearest to a noisy point; the search sees that point alone.

    Args:
        vocabulary (`Vocabulary`): public.
        epsilon (`float`): the scale.
        root (`np.ndarray`, *optional*): the root of the norm, as in `noisy_points`. Public.
    """

    vocabulary: Vocabulary
    epsilon: float
    root: np.ndarray | None = None

    def draw(self, codes: np.ndarray, marks: np.ndarray | None, generator: np.random.Generator) -> Drawn:
        """Draw the noisy points of one text. Sensitive."""
        return (noisy_points(codes, self.vocabulary, self.epsilon, generator, self.root),)

    def choose(self, *drawn: np.ndarray) -> np.ndarray:
        """Return the words nearest to noisy points."""
        return nearest.top_k_indices(drawn[0], self.vocabulary.candidates, 1)[:, 0]
