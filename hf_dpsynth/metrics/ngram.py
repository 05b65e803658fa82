"""N-gram statistics: how far apart words, pairs of words and lengths of two sets of texts are.

The divergence-frontier areas of the histograms of words, of pairs of words and of lengths in characters. Lengths fall
into 30 cells with as many texts of both sets each. Source: Kurakin et al. 2023, arXiv:2306.01684, section 5.3.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import Result, TwoSampleMetric, check_count, check_texts
from hf_dpsynth.metrics.divergence import frontier_area
from hf_dpsynth.metrics.words import ids

NUM_BINS = 30


def ngram_area(first: Iterable[np.ndarray], second: Iterable[np.ndarray], *, scaling: float = 5.0) -> float:
    """Return the divergence-frontier area of two sets of texts given as numbers of their n-grams.

    Args:
        first (`Iterable[np.ndarray]`): for each text the numbers of its n-grams, int64. Sensitive if the texts are.
        second (`Iterable[np.ndarray]`): the other texts, with the same numbers.
        scaling (`float`): c of the divergence frontier.
    Returns:
        `float`: in [0, 1]; 0 where only one set has n-grams at all, 1 where none has.
    """
    left, right = (np.concatenate([np.empty(0, np.int64), *texts]) for texts in (first, second))
    if not (len(left) and len(right)):
        return float(len(left) == len(right))
    size = int(max(left.max(), right.max())) + 1
    return frontier_area(np.bincount(left, minlength=size), np.bincount(right, minlength=size), scaling=scaling)


def length_area(first: np.ndarray, second: np.ndarray, *, num_bins: int = NUM_BINS, scaling: float = 5.0) -> float:
    """Return the divergence-frontier area of two sets of lengths in quantile cells of both together.

    Args:
        first (`np.ndarray`): lengths, shape (m,). Sensitive if they are.
        second (`np.ndarray`): lengths, shape (n,).
        num_bins (`int`): cells, at least 2; equal quantiles fall together.
        scaling (`float`): c of the divergence frontier.
    Returns:
        `float`: in [0, 1].
    """
    edges = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0, 1, num_bins + 1)[1:-1]))
    cells = [np.bincount(np.searchsorted(edges, lengths), minlength=len(edges) + 1) for lengths in (first, second)]
    return frontier_area(cells[0], cells[1], scaling=scaling)


@dataclass(frozen=True, kw_only=True)
class NGram(TwoSampleMetric):
    """Divergence-frontier areas of words, pairs of words and lengths, and their mean.

    Args:
        num_bins (`int`): cells of the lengths.
        scaling (`float`): c of the divergence frontier.
    """

    name: ClassVar[str] = "ngram"
    description: ClassVar[str] = "Divergence-frontier areas of words, pairs of words and lengths of two sets of texts."
    source: ClassVar[str] = "Kurakin et al. 2023, arXiv:2306.01684, section 5.3"
    higher_is_better: ClassVar[bool | None] = True

    num_bins: int = NUM_BINS
    scaling: float = 5.0

    def __post_init__(self) -> None:
        check_count("num_bins", self.num_bins, 2)
        if not 0 < self.scaling < float("inf"):
            raise ConfigError(f"scaling is {self.scaling}; it is a positive number")

    def compute(
        self,
        *,
        predictions: Sequence[str],
        references: Sequence[str],
        holdout: Sequence[str] | None = None,
        equal_size: bool = True,
        num_splits: int = 5,
        seed: int = 0,
        public_references: bool = False,
    ) -> Result:
        """Compare two sets of texts.

        Args:
            predictions (`Sequence[str]`): synthetic texts. Public.
            references (`Sequence[str]`): real texts; the sets may differ in size. Sensitive.
            holdout (`Sequence[str]`, *optional*): further real texts for the floor. Sensitive.
            equal_size (`bool`): score as many rows as the floor has; False scores all.
            num_splits (`int`): public random halves that score and floor are averaged over.
            seed (`int`): the seed of public randomness.
            public_references (`bool`): whether the references are public.
        Returns:
            `dict`: what `compare` returns, with `ngram` (the mean), `ngram_unigram`, `ngram_bigram` and
            `ngram_length`. As sensitive as the references.
        Raises:
            ConfigError: too few texts, or a value that is no text.
        """
        known: tuple[dict[tuple[str, ...], int], ...] = ({}, {})
        return self.compare(
            _rows(check_texts(predictions, "predictions"), known),
            _rows(check_texts(references, "references"), known),
            holdout=None if holdout is None else _rows(check_texts(holdout, "holdout"), known),
            equal_size=equal_size,
            num_splits=num_splits,
            seed=seed,
            public_references=public_references,
        )

    def score(self, predictions: np.ndarray, references: np.ndarray, *, seed: int) -> dict[str, float]:
        """Compare rows of (numbers of words, numbers of pairs, length)."""
        areas = [ngram_area(predictions[:, n], references[:, n], scaling=self.scaling) for n in (0, 1)]
        lengths = [rows[:, 2].astype(float) for rows in (predictions, references)]
        areas.append(length_area(lengths[0], lengths[1], num_bins=self.num_bins, scaling=self.scaling))
        names = ("ngram_unigram", "ngram_bigram", "ngram_length")
        return {self.name: float(np.mean(areas)), **dict(zip(names, areas, strict=True))}


def _rows(texts: list[str], known: tuple[dict[tuple[str, ...], int], ...]) -> np.ndarray:
    rows = np.empty((len(texts), 3), dtype=object)
    for n in (0, 1):
        rows[:, n] = np.fromiter(ids(texts, n + 1, known[n]), dtype=object, count=len(texts))
    rows[:, 2] = [len(text) for text in texts]
    return rows
