"""Lengths of texts, in characters and words, and how far those of two sets are apart.

The distance is the first Wasserstein distance between the two distributions: by how many characters a text of one set
must grow or shrink on average to match the other. Source: Kurakin et al. 2023, arXiv:2306.01684, appendix L.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import Result, TwoSampleMetric, check_texts

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def length_distance(first: np.ndarray, second: np.ndarray) -> float:
    """Return the first Wasserstein distance between two sets of lengths, in their unit.

    Args:
        first (`np.ndarray`): lengths, shape (m,), not empty. Sensitive if they are.
        second (`np.ndarray`): lengths, shape (n,), not empty.
    """
    from scipy.stats import wasserstein_distance

    return float(wasserstein_distance(first, second))


@dataclass(frozen=True, kw_only=True)
class Length(TwoSampleMetric):
    """Mean length and quantiles; with references, the distance between both distributions under `length`."""

    name: ClassVar[str] = "length"
    description: ClassVar[str] = "Distance between the lengths of two sets of texts, in characters and in words."
    source: ClassVar[str] = "Kurakin et al. 2023, arXiv:2306.01684, appendix L"
    higher_is_better: ClassVar[bool | None] = False
    needs_references: ClassVar[bool] = False

    def compute(
        self,
        *,
        predictions: Sequence[str],
        references: Sequence[str] | None = None,
        holdout: Sequence[str] | None = None,
        equal_size: bool = True,
        num_splits: int = 5,
        seed: int = 0,
        public_references: bool = False,
    ) -> Result:
        """Measure lengths, and compare them with those of the references where there are any.

        Args:
            predictions (`Sequence[str]`): synthetic texts. Public.
            references (`Sequence[str]`, *optional*): real texts. Sensitive.
            holdout (`Sequence[str]`, *optional*): further real texts for the floor. Sensitive.
            equal_size (`bool`): score as many rows as the floor has; False scores all.
            num_splits (`int`): public random halves that score and floor are averaged over.
            seed (`int`): the seed of public randomness.
            public_references (`bool`): whether the references are public.
        Returns:
            `dict`: `length_mean`, `length_words_mean` and `length_quantiles` (5, 25, 50, 75, 95 %, in characters)
            of the predictions; with references also what `compare` returns, with `length` in characters and
            `length_words` in words. As sensitive as the references.
        Raises:
            ConfigError: no or too few texts, or a value that is no text.
        """
        rows = _lengths(check_texts(predictions, "predictions"))
        if not len(rows):
            raise ConfigError("predictions= is empty; pass at least one text")
        found: Result = {
            "length_mean": float(rows[:, 0].mean()),
            "length_words_mean": float(rows[:, 1].mean()),
            "length_quantiles": [float(value) for value in np.quantile(rows[:, 0], _QUANTILES)],
        }
        if references is None:
            return {**found, "num_rows": len(rows), "limits": [], "uses_private_data": False}
        return found | self.compare(
            rows,
            _lengths(check_texts(references, "references")),
            holdout=None if holdout is None else _lengths(check_texts(holdout, "holdout")),
            equal_size=equal_size,
            num_splits=num_splits,
            seed=seed,
            public_references=public_references,
        )

    def score(self, predictions: np.ndarray, references: np.ndarray, *, seed: int) -> dict[str, float]:
        """Compare rows of (characters, words)."""
        return {
            self.name: length_distance(predictions[:, 0], references[:, 0]),
            "length_words": length_distance(predictions[:, 1], references[:, 1]),
        }


def _lengths(texts: list[str]) -> np.ndarray:
    return np.array([(len(text), len(text.split())) for text in texts], dtype=float).reshape(-1, 2)
