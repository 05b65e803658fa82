"""Bayes' guess at a word's original, from rehearsals of the mechanism on public words; all of it is public.

P(w | v) is prior(w) P(v | w). The prior is that of public texts, and falls as 1 / rank where they say nothing.
P(v | w) is what rehearsals gave: each count less one draw, and what was taken off shared out by a smooth law
q(v) h(d(w, v)), where q is how often v comes out at all and h how much more often than that it comes out at a
distance. Without the smooth law one draw of a frequent word would outweigh all others, and most pairs of words would
have none. Absolute discounting: Ney, Essen & Kneser 1994, Computer Speech & Language 8:1; its use here, the smooth
law and the prior are ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from hf_dpsynth.audit.pairs import is_read
from hf_dpsynth.mechanisms.word.base import WordMechanism
from hf_dpsynth.mechanisms.word.text import read
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.keys import public_generator

_BINS, _BLOCK = 64, 64


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What a mechanism made of some public words.

    Args:
        vectors (`WordVectors`): W. Public.
        words (`np.ndarray`): the words as rows of W, ascending, shape (r,).
        outputs (`np.ndarray`): what came out, rows of W, shape (r, draws).
        prior (`np.ndarray`): how frequent each word of W is in public texts, shape (V,).
    """

    vectors: WordVectors
    words: np.ndarray
    outputs: np.ndarray
    prior: np.ndarray

    def guesses(self, seen: np.ndarray, near: np.ndarray) -> np.ndarray:
        """Return the likeliest originals of released words; behind them, where they are too few, the nearest words.

        Args:
            seen (`np.ndarray`): distinct released words as rows of W, shape (n,).
            near (`np.ndarray`): the words nearest to each, shape (n, k).
        Returns:
            `np.ndarray`: rows of W, shape (n, k).
        """
        counts = self._counts()
        smooth = self._smooth(counts)
        found = near.copy()
        for start in range(0, len(seen), _BLOCK):
            part = slice(start, start + _BLOCK)
            scores = self.prior[self.words, None] * self._likelihood(seen[part], counts, *smooth)
            scores = np.concatenate([scores, self._alone(seen[part])[None]])
            best = np.argsort(-scores, axis=0, kind="stable")[: near.shape[1]]
            for place, released in enumerate(seen[part]):
                column = best[:, place]
                likely = np.append(self.words, released)[column[scores[column, place] > 0]]
                rest = near[start + place][~np.isin(near[start + place], likely)]
                found[start + place] = np.concatenate([likely, rest])[: near.shape[1]]
        return found

    def _alone(self, seen: np.ndarray) -> np.ndarray:
        """Return prior times likelihood of a released word that was not rehearsed, as its own original."""
        own = float((self.outputs == self.words[:, None]).mean())
        return np.asarray(np.where(np.isin(seen, self.words), 0.0, own * self.prior[seen]))

    def _counts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return each pair that occurred: the place of the word in `words`, what came out, and how often."""
        places = np.arange(len(self.words))[:, None]
        pairs, counts = np.unique(self.outputs * np.int64(len(self.words)) + places, return_counts=True)
        became, word = np.divmod(pairs, len(self.words))
        return word, became, counts

    def _smooth(self, counts: tuple[np.ndarray, np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return q, shape (V,), and h by distance, the first entry for a word that stays as it is."""
        word, became, often = counts
        share = np.bincount(self.outputs.ravel(), minlength=len(self.vectors)) / self.outputs.size
        occurred = np.flatnonzero(share)
        expected, seen = np.zeros(_BINS + 1), np.zeros(_BINS + 1)
        for start in range(0, len(self.words), _BLOCK):
            part = slice(start, start + _BLOCK)
            bins = self._bins(self.words[part], occurred)
            weights = np.broadcast_to(share[occurred] * self.outputs.shape[1], bins.shape)
            expected += np.bincount(bins.ravel(), weights.ravel(), minlength=_BINS + 1)
            here = (word >= start) & (word < start + _BLOCK)
            columns = np.searchsorted(occurred, became[here])
            seen += np.bincount(bins[word[here] - start, columns], often[here], minlength=_BINS + 1)
        return np.maximum(share, 0.5 / self.outputs.size), (seen + 0.5) / (expected + 0.5)

    def _likelihood(
        self,
        seen: np.ndarray,
        counts: tuple[np.ndarray, np.ndarray, np.ndarray],
        share: np.ndarray,
        ratio: np.ndarray,
    ) -> np.ndarray:
        """Return P(v | w) of each released word, a row for each rehearsed word, shape (r, len(seen))."""
        word, became, often = counts
        taken = np.bincount(word, minlength=len(self.words)).astype(np.float64)
        scores = taken[:, None] * share[seen] * ratio[self._bins(self.words, seen)]
        first = np.searchsorted(became, seen, side="left")
        last = np.searchsorted(became, seen, side="right")
        for column, (start, end) in enumerate(zip(first, last, strict=True)):
            scores[word[start:end], column] += often[start:end] - 1.0
        return np.asarray(scores / self.outputs.shape[1])

    def _bins(self, words: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return the bin of the distance of each pair of words; 0 for a word and itself."""
        points = self.vectors.vectors
        gaps = cdist(points[words], points[others]) / self._reach
        found = 1 + np.minimum((gaps * _BINS).astype(np.int64), _BINS - 1)
        found[words[:, None] == others[None]] = 0
        return np.asarray(found)

    @property
    def _reach(self) -> float:
        """Return a length that no two points are further apart than."""
        return float(2 * np.linalg.norm(self.vectors.vectors, axis=1).max()) or 1.0


def frequencies(vectors: WordVectors, public: Sequence[str] = ()) -> np.ndarray:
    """Return how frequent each word of W is: as in public texts, and as 1 / rank for as many words as a tenth of them.

    Args:
        vectors (`WordVectors`): W, most frequent word first. Public.
        public (`Sequence[str]`): texts like those that are attacked; without any, by rank alone. Public.
    Returns:
        `np.ndarray`: shape (V,), adding up to 1; 0 for entries that no text holds as one word.
    """
    held = np.array([is_read(word, vectors.known) for word in vectors.words], dtype=np.float64)
    by_rank = held / np.arange(1, len(vectors) + 1)
    by_rank /= by_rank.sum() or 1.0
    rows = [vectors.known[word] for text in public for word in read(text, vectors.known)[0] if word in vectors.known]
    counts = np.bincount(rows, minlength=len(vectors)).astype(np.float64) if rows else np.zeros(len(vectors))
    found = counts + max(1.0, counts.sum() / 10) * by_rank
    return np.asarray(found / found.sum())


def rehearse(
    seen: np.ndarray,
    times: np.ndarray,
    vectors: WordVectors,
    law: WordMechanism,
    epsilon: float,
    prior: np.ndarray,
    *,
    candidates: int,
    draws: int,
    seed: int,
) -> Rehearsal:
    """Run the mechanism on the words that are most frequent, and on those that were released most often.

    Args:
        seen (`np.ndarray`): distinct released words as rows of W, shape (n,). Public.
        times (`np.ndarray`): how often each was released, shape (n,). Public.
        vectors (`WordVectors`): W. Public.
        law (`WordMechanism`): the mechanism.
        epsilon (`float`): its scale.
        prior (`np.ndarray`): how frequent each word of W is, shape (V,). Public.
        candidates (`int`): how many words of each kind.
        draws (`int`): rehearsals of each.
        seed (`int`): of the noise of rehearsals, which hides nothing. Public.
    """
    frequent = np.argsort(-prior, kind="stable")[:candidates]
    released = seen[np.argsort(-times, kind="stable")][:candidates]
    words = np.union1d(frequent[prior[frequent] > 0], released).astype(np.int64)
    outputs = law.substitutes(
        [vectors.words[row] for row in words],
        draws,
        vectors,
        epsilon,
        lambda place: public_generator(seed, "audit-inversion", int(words[place])),
    )
    return Rehearsal(vectors, words, outputs, prior)
