"""Vocabularies, streams and draws that tests of word mechanisms share."""

from collections import Counter

import numpy as np

from hf_dpsynth.audit import audit_counts
from hf_dpsynth.audit.matrices import line
from hf_dpsynth.mechanisms.word.base import prepared
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.keys import Key

DRAWS = 100_000
LINE = line()
PLANE = WordVectors(
    ("river", "bank", "money", "7", "film", "good", "fine", "12"),
    np.array([[0, 0], [1, 0.3], [2, 0.5], [-3, 1], [0.5, -1.4], [0.2, 1.9], [0.25, 1.9], [-2.5, 2]]),
    "plane",
)


def generators(seed=0):
    return lambda row: Key.from_insecure_seed(seed).derive("row", row).generator("noise")


def counts(mechanism, vectors, word, epsilon, draws=DRAWS, seed=0):
    """One long text of one word, all draws from one stream: how often each word of W comes out."""
    (text,) = mechanism.privatize([f"{word} " * draws], vectors, epsilon, generators(seed))
    found = Counter(text.split())
    assert found.total() == draws
    return np.array([found[word] for word in vectors.words])


def differs(observed, probabilities):
    """Pearson's chi-square at level 1e-6; outcomes expected fewer than 5 times are pooled."""
    return audit_counts(observed, probabilities).violated


def points(vectors):
    """W, then the points of words and of numbers outside W, in float64."""
    return np.concatenate([vectors.vectors, vectors.unk[None], vectors.number[None]]).astype(np.float64)


def distances(vectors):
    """From each point to each word of W."""
    return np.linalg.norm(points(vectors)[:, None] - vectors.vectors[None].astype(np.float64), axis=2)


def law_of(mechanism, vectors, epsilon):
    """The probabilities by which the sampler draws: a row for each point, a column for each word of W."""
    vocabulary, law = prepared(mechanism, vectors, epsilon)
    codes = range(len(vocabulary.points))
    if hasattr(law, "outputs"):
        rows = np.zeros((len(codes), vocabulary.size))
        for code in codes:
            real = law.outputs[code] >= 0
            rows[code, law.outputs[code][real]] = law.rows[code][real]
    else:
        parts = range(len(law.distances.parts))
        rows = np.array([np.concatenate([law.weights(code, part) for part in parts]) for code in codes])
    return rows / rows.sum(axis=1, keepdims=True)
