"""TEM: the exponential mechanism over words, with distances cut at gamma.

P(v) is proportional to exp(-(epsilon / 2) min(d(w, v), gamma)), gamma = (2 / epsilon) ln((1 - beta)(|W| - 1) / beta).
The paper draws among the words within gamma and a bottom symbol that stands for the m words beyond, of weight
m exp(-epsilon gamma / 2), and for the symbol a uniform one of these: the same law. A cut distance differs between two
inputs by at most their distance, so it has metric DP at scale epsilon. Published code gives the bottom symbol another
weight, and copies the input where a draw fails; here a draw cannot fail, and an error stays an error. Source: Carvalho
et al. 2021, arXiv:2107.07928, Algorithm 1.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.base import check_one
from hf_dpsynth.mechanisms.word.base import Vocabulary, WordMechanism
from hf_dpsynth.mechanisms.word.exponential import ExponentialWord
from hf_dpsynth.privacy.words import ExponentialWordDpEvent, checked


@dataclass(frozen=True, kw_only=True)
class TEM(WordMechanism):
    """Draws a word with a probability that falls with its distance, up to a cut; metric DP per word.

    In a vocabulary so small that (1 - beta)(|W| - 1) <= beta gamma is 0, and each word becomes a uniform one.

    Args:
        beta (`float`, defaults to 0.001): a word stays within gamma of itself with probability at least 1 - beta; in
            (0, 1).
        oov, numbers, punctuation, stop_words, max_words: as in every word mechanism (`WordMechanism`).
    Examples:
        >>> TEM(beta=0.01).guarantee(10).metric
        'Euclidean distance of word embeddings'
    """

    name: ClassVar[str] = "tem"

    beta: float = 0.001

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one(self.name, "beta", self.beta)
        if isinstance(self.beta, bool) or not isinstance(self.beta, (int, float)) or not 0 < self.beta < 1:
            raise ConfigError(f"tem: beta is {self.beta!r}; it must be a number in (0, 1)")

    def event(self, epsilon: float) -> ExponentialWordDpEvent:
        """Return the event of one release of a data set: one draw a word."""
        return ExponentialWordDpEvent(checked(epsilon))

    def law(self, vocabulary: Vocabulary, epsilon: float) -> ExponentialWord:
        """Return the law: the exponential mechanism over cut distances."""
        return ExponentialWord(vocabulary, epsilon, cap(vocabulary.size, self.beta))


def cap(size: int, beta: float) -> float:
    """Return epsilon gamma / 2, which does not depend on epsilon, for |W| = `size`; never below 0.

    Examples:
        >>> round(2 * cap(4, 0.5), 3)
        2.197
        >>> cap(2, 0.9)
        0.0
    """
    return max(0.0, math.log1p(-beta) + math.log(size - 1) - math.log(beta))
