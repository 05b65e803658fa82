"""Geometry of public word vectors: fewer dimensions without a loss of privacy, and how far apart words are.

The one rule: the projection never stretches a distance, so what holds at epsilon times the distance of two reduced
vectors holds at epsilon times the distance of the full ones. Its axes are orthonormal; nothing is whitened or
normalised after it.
"""

from dataclasses import dataclass

import numpy as np

from hf_dpsynth.compute import nearest
from hf_dpsynth.privacy.keys import public_generator

# Rounding to float32 moves a row by up to 2^-24 of its length. With L the length of the longest full vector a reduced
# row is at most 2 L long (it is centred), and a mean of rows, rounded before and after, is off by less than 5 L 2^-24.
# So two points move apart by less than 2^-20 L, which the shrinking by 2^-12 of their distance outweighs from L / 256.
SHRINKING = 2.0**-12
_BLOCK_ROWS = 4096
_WORDS = 1000
_PAIRS = 10_000


@dataclass(frozen=True)
class Scales:
    """How far apart words are, in the unit of the metric. Public.

    Args:
        nearest (`float`): median distance of a word to the nearest other word.
        pair (`float`): median distance of two words.
    """

    nearest: float
    pair: float


def project(vectors: np.ndarray, dimensions: int) -> np.ndarray:
    """Project vectors, less their mean, on their leading principal axes and shrink them by a 4096th.

    Two points at least a 256th of the longest vector apart, among them the means that stand for unknown words and
    numbers, never come to lie further apart; nearer ones do by less than 2^-20 of that vector. The last bits of the
    result may depend on the processor and on NumPy's build.

    Args:
        vectors (`np.ndarray`): shape (V, d), finite float32. Public.
        dimensions (`int`): how many axes, 1 <= dimensions <= d.
    Returns:
        `np.ndarray`: shape (V, dimensions), float32. Public.
    """
    mean = vectors.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((vectors.shape[1], vectors.shape[1]))
    for start in range(0, len(vectors), _BLOCK_ROWS):
        part = vectors[start : start + _BLOCK_ROWS] - mean
        covariance += part.T @ part
    axes = np.linalg.eigh(covariance).eigenvectors[:, ::-1][:, :dimensions]
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(dimensions)]
    axes = axes * (np.sign(largest) * (1 - SHRINKING))
    out = np.empty((len(vectors), dimensions), dtype=np.float32)
    for start in range(0, len(vectors), _BLOCK_ROWS):
        out[start : start + _BLOCK_ROWS] = (vectors[start : start + _BLOCK_ROWS] - mean) @ axes
    return out


def scales(vectors: np.ndarray) -> Scales:
    """Measure the median distances over a fixed sample: 1,000 words spread evenly over the ranks, 10,000 pairs.

    Args:
        vectors (`np.ndarray`): shape (V, d), finite float32, V >= 2. Public.
    """
    places = np.unique(np.linspace(0, len(vectors) - 1, min(_WORDS, len(vectors))).astype(np.int64))
    _, squares = nearest.top_k(vectors[places], vectors, 2)
    generator = public_generator(0, "word vectors", "pairs")
    first = generator.integers(len(vectors), size=_PAIRS)
    second = (first + generator.integers(1, len(vectors), size=_PAIRS)) % len(vectors)
    gaps = vectors[first].astype(np.float64) - vectors[second]
    return Scales(
        nearest=float(np.median(np.sqrt(squares[:, 1].astype(np.float64)))),
        pair=float(np.median(np.linalg.norm(gaps, axis=1))),
    )
