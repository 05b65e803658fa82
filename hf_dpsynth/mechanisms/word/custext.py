"""CusText: each word becomes a word of its group, drawn by the exponential mechanism over scaled similarities.

W is parted into groups of k near words (`groups`). Within a group, the score of v for the input w is the similarity
-d(w, v), scaled for each w so that the most similar word of the group has 1 and the least similar 0, and P(v) is
proportional to exp(epsilon score / 2). A score differs between two inputs by at most 1: local DP at epsilon within a
group, and none across, since the output shows the group. Source: Chen et al. 2023, arXiv:2207.01193, Algorithms 1 and
2, with the partition into sets of equal size. Where we leave the paper: what remains after the last full group joins
it, so that no word has a smaller output set.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hf_dpsynth.compute import nearest
from hf_dpsynth.mechanisms.base import check_whole
from hf_dpsynth.mechanisms.word.base import Drawn, Vocabulary, WordMechanism, is_noiseless
from hf_dpsynth.mechanisms.word.exponential import choose_by_code
from hf_dpsynth.mechanisms.word.groups import groups
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.words import ExponentialWordDpEvent, checked, uniforms

_ROWS = 4096
_GROUP = "which group each word is in is public: the output shows it"


@dataclass(frozen=True, kw_only=True)
class CusText(WordMechanism):
    """Replaces each word by a word of its group; the group is not protected.

    Args:
        k (`int`, defaults to 20): how many words a group has, the output set of each of its words; at least 2.
        oov, numbers, punctuation, stop_words, max_words: as in every word mechanism (`WordMechanism`). Words and
            numbers outside W belong to the group of the word nearest to their point.
    Examples:
        >>> CusText().guarantee(3).metric
        'a distance that is 1 within public groups of k=20 near words and infinite across them'
    """

    name: ClassVar[str] = "custext"

    k: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.name, "k", self.k, 2)

    def metric(self, epsilon: float) -> str:
        """Return in words the distance that the scale multiplies."""
        return f"a distance that is 1 within public groups of k={self.k} near words and infinite across them"

    def assumptions(self) -> tuple[str, ...]:
        """Return what the output shows."""
        return (_GROUP,)

    def advice(self, public: WordVectors, epsilon: float) -> tuple[str, ...]:
        """Return nothing: the loss is the scale itself inside a group."""
        return ()

    def in_clear(self) -> tuple[str, ...]:
        """Return what comes out without noise: the group of each word."""
        return ("the group of near words that each word is in", *super().in_clear())

    def event(self, epsilon: float) -> ExponentialWordDpEvent:
        """Return the event of one release of a data set: one draw a word."""
        return ExponentialWordDpEvent(checked(epsilon))

    def law(self, vocabulary: Vocabulary, epsilon: float) -> "WithinGroup":
        """Return the law: the exponential mechanism within a word's group.

        Raises:
            ConfigError: k is larger than W.
        """
        members, of_word = groups(vocabulary.vectors, self.k)
        near = nearest.top_k_indices(vocabulary.points[vocabulary.size :], vocabulary.candidates, 1)
        outputs = np.concatenate([members[of_word], members[of_word[near[:, 0]]]])
        return WithinGroup(outputs, within_group_weights(vocabulary.points, outputs, epsilon))


@dataclass(frozen=True, kw_only=True)
class CusTextPlus(CusText):
    """CusText that copies stop words, unless told otherwise.

    Args:
        k (`int`, defaults to 20): how many words a group has.
        stop_words (`str`, defaults to `"keep"`): English function words of W are copied, which voids the claim for
            them (`"keep"`), or are words as all others (`"privatize"`).
        oov, numbers, punctuation, max_words: as in every word mechanism (`WordMechanism`).
    """

    name: ClassVar[str] = "custext+"

    stop_words: str = "keep"


@dataclass(frozen=True, eq=False)
class WithinGroup:
    """The law over the output set of each word.

    Args:
        outputs (`np.ndarray`): the output set of each point of the vocabulary, filled up with -1. Public.
        rows (`np.ndarray`): its law, up to a factor; 0 where it is filled up. Public.
    """

    outputs: np.ndarray
    rows: np.ndarray

    def draw(self, codes: np.ndarray, marks: np.ndarray | None, generator: np.random.Generator) -> Drawn:
        """Draw a place for each word of one text. Sensitive."""
        return codes, uniforms(generator, len(codes))

    def choose(self, *drawn: np.ndarray) -> np.ndarray:
        """Return the words at these places of the laws of these codes."""
        codes, places = drawn
        return np.asarray(self.outputs[codes, choose_by_code(codes, places, self.rows.__getitem__)])


def within_group_weights(points: np.ndarray, outputs: np.ndarray, epsilon: float) -> np.ndarray:
    """Return exp(epsilon (score - 1) / 2) for each point and each word of its output set.

    Args:
        points (`np.ndarray`): the inputs, shape (n, d); the first ones are W. Public.
        outputs (`np.ndarray`): rows of W, or -1, shape (n, width). Public.
        epsilon (`float`): infinite is the limit: the nearest word, of lowest index in a tie.
    Returns:
        `np.ndarray`: shape (n, width), float64; 0 where `outputs` is -1.
    """
    out = np.zeros(outputs.shape)
    for start in range(0, len(points), _ROWS):
        part = slice(start, start + _ROWS)
        gaps = points[outputs[part]].astype(np.float64) - points[part, None]
        away = np.sqrt(np.square(gaps).sum(axis=2))
        filled = outputs[part] < 0
        away[filled] = np.inf
        least = away.min(axis=1, keepdims=True)
        spread = away.max(axis=1, keepdims=True, where=~filled, initial=0) - least
        lost = np.divide(away - least, spread, out=np.zeros_like(away), where=spread > 0)  # 1 - score
        if is_noiseless(epsilon):
            ties = np.where(lost == 0, outputs[part], len(points))
            ties[filled] = len(points)
            out[np.arange(start, start + len(ties)), ties.argmin(axis=1)] = 1
        else:
            with np.errstate(over="ignore"):
                out[part] = np.where(filled, 0, np.exp(-lost * (epsilon / 2)))
    return out
