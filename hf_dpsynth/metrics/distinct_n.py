"""Distinct n-grams: the share of n-grams that occur for the first time, and of texts that occur once.

Source: Li et al. 2016, arXiv:1510.03055, section 5 (distinct-1, distinct-2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hf_dpsynth.metrics.base import check_count
from hf_dpsynth.metrics.words import DiversityMetric, ngrams, words


def distinct_share(texts: Sequence[str], n: int) -> float:
    """Return the number of different n-grams over the number of all n-grams; 0 where there are none.

    Args:
        texts (`Sequence[str]`): texts. Sensitive if they are.
        n (`int`): words in an n-gram, at least 1.
    """
    grams = [gram for text in texts for gram in ngrams(words(text), n)]
    return len(set(grams)) / len(grams) if grams else 0.0


@dataclass(frozen=True, kw_only=True)
class DistinctN(DiversityMetric):
    """Shares of distinct n-grams for n from 1 to `max_n`, their mean, and the shares of distinct and empty texts.

    Args:
        max_n (`int`): the longest n-gram.
    """

    name: ClassVar[str] = "distinct_n"
    description: ClassVar[str] = "Shares of distinct n-grams and of distinct texts in a set."
    source: ClassVar[str] = "Li et al. 2016, arXiv:1510.03055"
    higher_is_better: ClassVar[bool | None] = True

    max_n: int = 3

    def __post_init__(self) -> None:
        check_count("max_n", self.max_n, 1)

    def figures(self, texts: list[str]) -> dict[str, float]:
        """Return the shares."""
        shares = {f"distinct_n_{n}": distinct_share(texts, n) for n in range(1, self.max_n + 1)}
        return {
            self.name: sum(shares.values()) / len(shares),
            **shares,
            "distinct_texts": len(set(texts)) / len(texts),
            "empty_texts": sum(not text.strip() for text in texts) / len(texts),
        }
