"""SanText: the exponential mechanism over words; SanText+ leaves frequent words as they are, most of the time.

P(v) is proportional to exp(-(epsilon / 2) d(w, v)), d the Euclidean distance: metric DP at scale epsilon. SanText+
keeps a word that is not sensitive with probability 1 - p and else draws from the same law, which protects sensitive
words alone. Which words are sensitive is read off the public ranks of W; published code counts words in the private
data, so that its choice of sensitive words tells of the data. Source: Yue et al. 2021, arXiv:2106.01221, Algorithms 1
and 2.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hf_dpsynth.guarantees import digits
from hf_dpsynth.mechanisms.word.base import EUCLIDEAN, Drawn, Law, Vocabulary, WordMechanism, check_share
from hf_dpsynth.mechanisms.word.exponential import ExponentialWord
from hf_dpsynth.privacy.words import ExponentialWordDpEvent, checked, uniforms


@dataclass(frozen=True, kw_only=True)
class SanText(WordMechanism):
    """Draws a word with a probability that falls with its distance; metric DP per word.

    Args:
        oov, numbers, punctuation, stop_words, max_words: as in every word mechanism (`WordMechanism`).
    Examples:
        >>> SanText().guarantee(10).metric
        'Euclidean distance of word embeddings'
    """

    name: ClassVar[str] = "santext"

    def event(self, epsilon: float) -> ExponentialWordDpEvent:
        """Return the event of one release of a data set: one draw a word."""
        return ExponentialWordDpEvent(checked(epsilon))

    def law(self, vocabulary: Vocabulary, epsilon: float) -> Law:
        """Return the law: the exponential mechanism over distances."""
        return ExponentialWord(vocabulary, epsilon)


@dataclass(frozen=True, kw_only=True)
class SanTextPlus(SanText):
    """SanText that copies most frequent words: metric DP for the other words, none for these.

    Args:
        p (`float`, defaults to 0.2): the probability with which a word that is not sensitive is privatized.
        sensitive (`float`, defaults to 0.9): the share of W, its least frequent words by public rank, that is always
            privatized; rounded up to whole words. Words and numbers outside W always are, too.
        oov, numbers, punctuation, stop_words, max_words: as in every word mechanism (`WordMechanism`).
    Examples:
        >>> SanTextPlus().guarantee(10).metric
        'Euclidean distance of word embeddings for all but frequent words of W (sensitive 0.9), infinite to those'
    """

    name: ClassVar[str] = "santext+"

    p: float = 0.2
    sensitive: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.name, "p", self.p)
        check_share(self.name, "sensitive", self.sensitive)

    def metric(self, epsilon: float) -> str:
        """Return in words the distance that the scale multiplies."""
        return f"{EUCLIDEAN} for all but frequent words of W (sensitive {digits(self.sensitive)}), infinite to those"

    def assumptions(self) -> tuple[str, ...]:
        """Return which words are exposed."""
        return (
            f"only the least frequent {digits(self.sensitive)} of W is sensitive: each other word is copied, except "
            f"with probability {digits(self.p)}, exposed where it is copied, which shows; the claim is void for it",
        )

    def in_clear(self) -> tuple[str, ...]:
        """Return what comes out without noise: frequent words."""
        return (
            f"the most frequent {1 - self.sensitive:.6g} of words, most of which are copied",
            *super().in_clear(),
        )

    def law(self, vocabulary: Vocabulary, epsilon: float) -> Law:
        """Return the law: SanText's, or a copy of the word."""
        return _Kept(ExponentialWord(vocabulary, epsilon), ordinary(vocabulary.size, self.sensitive), self.p)


def ordinary(size: int, sensitive: float) -> int:
    """Return how many words of W, the first ones, are not sensitive.

    Examples:
        >>> ordinary(50_000, 0.9)
        5000
    """
    return size - math.ceil(sensitive * size)


@dataclass(frozen=True, eq=False)
class _Kept:
    privatized: ExponentialWord
    ordinary: int
    p: float

    def draw(self, codes: np.ndarray, marks: np.ndarray | None, generator: np.random.Generator) -> Drawn:
        coins = uniforms(generator, len(codes))
        return (*self.privatized.draw(codes, marks, generator), coins)

    def choose(self, *drawn: np.ndarray) -> np.ndarray:
        codes, places, coins = drawn
        chosen = codes.copy()
        drawn_anew = (codes >= self.ordinary) | (coins < self.p)
        chosen[drawn_anew] = self.privatized.choose(codes[drawn_anew], places[drawn_anew])
        return chosen
