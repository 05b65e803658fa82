"""Selection of candidates by their noisy votes: post-processing. Source: Xie et al. 2024, arXiv:2403.01749."""

import numpy as np


def select(
    scores: np.ndarray, number: int, selection: str, threshold: float, generator: np.random.Generator
) -> np.ndarray:
    """Return the positions of the candidates to keep, best first: post-processing of noisy votes.

    Args:
        scores (`np.ndarray`): noisy votes, shape (m,); -inf marks a duplicate, which comes last.
        number (`int`): how many to keep.
        selection (`str`): `"rank"` or `"proportional"` (drawn with replacement).
        threshold (`float`): votes are clipped at it from below, then lowered by it.
        generator (`np.random.Generator`): a public stream.
    Returns:
        `np.ndarray`: positions, shape (min(number, m),), int64.
    """
    if not len(scores):
        return np.zeros(0, dtype=np.int64)
    votes = np.maximum(scores, threshold) - threshold
    if selection == "proportional" and votes.sum() > 0:
        return generator.choice(len(votes), size=number, p=votes / votes.sum())
    # ties are broken by a public stream: the order of generation must not decide
    ranked = np.where(np.isneginf(scores), -1.0, votes)
    return np.lexsort((generator.random(len(scores)), -ranked))[:number]
