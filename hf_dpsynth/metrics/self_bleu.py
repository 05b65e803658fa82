"""Self-BLEU: how much of each text the other texts of the same set say too; lower is more diverse.

Each text is scored by sentence BLEU against all others as references. A clipped count needs, for each n-gram, only the
largest count among the other texts, so one pass that keeps the two largest counts gives the exact value in linear
time; the usual definition compares every pair. Source: Zhu et al. 2018, arXiv:1802.01886, section 3.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from typing import ClassVar

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import check_count
from hf_dpsynth.metrics.words import DiversityMetric, ngrams, words

_SMOOTH = 0.1  # matches of an order that has none (Chen & Cherry 2014, method 1)


def self_bleu(texts: Sequence[str], *, max_n: int = 4) -> list[float]:
    """Return the sentence BLEU of each text against all others.

    Orders that are longer than the text are left out, an order without a match counts 0.1 of a match, and the brevity
    penalty reads the other text of the closest length, the shorter of two.

    Args:
        texts (`Sequence[str]`): at least two texts. Sensitive if they are.
        max_n (`int`): the longest n-gram.
    Returns:
        `list[float]`: in [0, 1], one a text; 0 for a text without words.
    Raises:
        ConfigError: fewer than two texts.
    """
    if len(texts) < 2:
        raise ConfigError(f"self-BLEU compares a text with others; there are {len(texts)} texts")
    tokens = [words(text) for text in texts]
    counts = [[Counter(ngrams(row, n)) for row in tokens] for n in range(1, max_n + 1)]
    tops = [_two_largest(order) for order in counts]
    lengths = sorted(map(len, tokens))
    scores = []
    for at, row in enumerate(tokens):
        logs = [
            log(max(_matches(order[at], top, at), _SMOOTH) / order[at].total())
            for order, top in zip(counts, tops, strict=True)
            if order[at]
        ]
        closest = _closest(lengths, len(row))
        penalty = min(0.0, 1 - closest / len(row)) if row else 0.0
        scores.append(exp(penalty + sum(logs) / len(logs)) if logs else 0.0)
    return scores


_Top = dict[tuple[str, ...], tuple[int, int, int]]


def _two_largest(counts: list[Counter[tuple[str, ...]]]) -> _Top:
    """Return for each n-gram its largest count in a text, that text, and the largest count in another text."""
    tops: _Top = {}
    for at, row in enumerate(counts):
        for gram, count in row.items():
            most, where, second = tops.get(gram, (0, -1, 0))
            tops[gram] = (count, at, most) if count > most else (most, where, max(second, count))
    return tops


def _matches(row: Counter[tuple[str, ...]], tops: _Top, at: int) -> int:
    total = 0
    for gram, count in row.items():
        most, where, second = tops[gram]
        total += min(count, second if where == at else most)
    return total


def _closest(lengths: list[int], own: int) -> int:
    """Return the length of another text that is closest to a text's own; `lengths` is sorted and holds it once."""
    at = bisect_left(lengths, own)
    others = [*lengths[max(0, at - 1) : at], *lengths[at + 1 : at + 2]]
    return min(others, key=lambda length: (abs(length - own), length))


@dataclass(frozen=True, kw_only=True)
class SelfBLEU(DiversityMetric):
    """The mean self-BLEU of a set of texts.

    Args:
        max_n (`int`): the longest n-gram.
    """

    name: ClassVar[str] = "self_bleu"
    description: ClassVar[str] = "Mean BLEU of each text against all others of the set; lower is more diverse."
    source: ClassVar[str] = "Zhu et al. 2018, arXiv:1802.01886"
    higher_is_better: ClassVar[bool | None] = False
    least_texts: ClassVar[int] = 2

    max_n: int = 4

    def __post_init__(self) -> None:
        check_count("max_n", self.max_n, 1)

    def figures(self, texts: list[str]) -> dict[str, float]:
        """Return the mean."""
        scores = self_bleu(texts, max_n=self.max_n)
        return {self.name: sum(scores) / len(scores)}
