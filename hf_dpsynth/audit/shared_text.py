"""What released texts share with private ones: whole texts, most of their pairs of words, or many words in a row.

All searches are exact, but for equal 64-bit hashes of different words, which millions of windows meet less often than
once in 10^5 audits. Similar texts: two sets of which the smaller share is at least s have a common element among the
rarest |x| - ceil(s |x|) + 1 of each, so that only texts which share one of those are compared; of them, those of which
enough is left from there on. Sources: Bayardo, Ma & Srikant 2007, "Scaling up all pairs similarity search" (rarest
first); Xiao et al. 2008, "Efficient similarity joins for near duplicate detection" (what is left).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from scipy import sparse

from hf_dpsynth.privacy.keys import public_generator

_WORD = re.compile(r"\w+")
_PAIRS = 1 << 19  # of texts compared at a time
_EDGE = 0  # stands before and behind a text, so that one word has pairs too
_ROUNDING = 1e-9


class Matches(NamedTuple):
    """What was found. Sensitive.

    Args:
        rows (`np.ndarray`): for each released text the marks of the private texts that it matches, uint8.
        found (`np.ndarray`): for each private text whether a released one matches it, bool.
    """

    rows: np.ndarray
    found: np.ndarray


@dataclass(frozen=True, repr=False, eq=False)
class Words:
    """Texts as one array of hashes of words, an edge before and behind each text. Sensitive if the texts are.

    Args:
        values (`np.ndarray`): uint64, all texts one after the other.
        lengths (`np.ndarray`): how many of them are each text's.
    """

    values: np.ndarray
    lengths: np.ndarray

    def windows(self, length: int, *, edges: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the text of each window of so many words, and its hash.

        Args:
            length (`int`): words of a window.
            edges (`bool`): whether a window may hold the edge of its text.
        """
        inner = 0 if edges else 1
        begins = np.cumsum(self.lengths) - self.lengths + inner
        counts = np.maximum(self.lengths - 2 * inner - length + 1, 0)
        places = np.repeat(begins - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        hashes = np.zeros(len(places), np.uint64)
        for step in range(length):
            hashes *= _FACTOR
            hashes += self.values[places + step]
        return np.repeat(np.arange(len(counts)), counts), hashes


_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # any odd number: positions differ in weight


def as_words(*sets: Sequence[str]) -> tuple[Words, ...]:
    """Return several lists of texts as words with the same hashes.

    Args:
        sets (`Sequence[str]`): normal texts. Sensitive if they are.
    """
    numbers: dict[str, int] = {}
    flat = [_numbers(texts, numbers) for texts in sets]
    values = public_generator(0, "shared-text").integers(0, 2**64, size=len(numbers) + 1, dtype=np.uint64)
    return tuple(Words(values[ids], lengths) for ids, lengths in flat)


def _numbers(texts: Sequence[str], numbers: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.empty(len(texts), np.int64)

    def each() -> Iterator[list[int]]:
        for row, text in enumerate(texts):
            ids = [numbers.setdefault(word, len(numbers) + 1) for word in _WORD.findall(text)]
            framed = [_EDGE, *ids, _EDGE] if ids else []
            lengths[row] = len(framed)
            yield framed

    return np.fromiter(chain.from_iterable(each()), np.int32), lengths


def same(synthetic: Sequence[str], private: Sequence[str], marks: np.ndarray) -> Matches:
    """Find the private texts that released ones equal.

    Args:
        synthetic (`Sequence[str]`): normal texts. Public.
        private (`Sequence[str]`): normal texts, each once. Sensitive.
        marks (`np.ndarray`): the sides of each private text, uint8. Sensitive.
    """
    places = {text: place for place, text in enumerate(private)}
    hits = np.fromiter((places.get(text, -1) for text in synthetic), np.int64, len(synthetic))
    return _of_pairs(np.flatnonzero(hits >= 0), hits[hits >= 0], marks, len(synthetic))


def runs(synthetic: Words, private: Words, marks: np.ndarray, length: int) -> Matches:
    """Find the private texts that share so many words in a row with released ones.

    Args:
        synthetic (`Words`): released texts. Public.
        private (`Words`): private texts. Sensitive.
        marks (`np.ndarray`): the sides of each private text, uint8. Sensitive.
        length (`int`): words in a row.
    """
    rows, found = np.zeros(len(synthetic.lengths), np.uint8), np.zeros(len(private.lengths), bool)
    texts, hashes = private.windows(length, edges=False)
    public, sought = synthetic.windows(length, edges=False)
    if not len(hashes) or not len(sought):
        return Matches(rows, found)
    order = np.argsort(hashes, kind="stable")
    texts, hashes = texts[order], hashes[order]
    first = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    kinds, sides = hashes[first], np.bitwise_or.reduceat(marks[texts], first)
    at = np.minimum(np.searchsorted(kinds, sought), len(kinds) - 1)
    hit = kinds[at] == sought
    np.bitwise_or.at(rows, public[hit], sides[at[hit]])
    seen = np.zeros(len(kinds), bool)
    seen[at[hit]] = True
    found[texts[np.repeat(seen, np.diff(np.append(first, len(hashes))))]] = True
    return Matches(rows, found)


def alike(synthetic: Words, private: Words, marks: np.ndarray, length: int, similarity: float) -> Matches:
    """Find the private texts whose windows are like those of released ones: what both have of what either has.

    Args:
        synthetic (`Words`): released texts. Public.
        private (`Words`): private texts. Sensitive.
        marks (`np.ndarray`): the sides of each private text, uint8. Sensitive.
        length (`int`): words of a window; from 2 on, the edges of a text are part of windows.
        similarity (`float`): the least similarity, above 0.
    """
    left, right = _sets(synthetic, private, length)
    rows, found = np.zeros(len(synthetic.lengths), np.uint8), np.zeros(len(private.lengths), bool)
    sizes = [np.diff(one.indptr) for one in (left, right)]
    for row, column in _candidates(left, right, similarity):
        shared = np.asarray(left[row].multiply(right[column]).sum(axis=1)).reshape(-1)
        either = sizes[0][row] + sizes[1][column] - shared
        hit = shared >= similarity * either - _ROUNDING
        made = _of_pairs(row[hit], column[hit], marks, len(rows))
        rows, found = rows | made.rows, found | made.found
    return Matches(rows, found)


def _of_pairs(rows: np.ndarray, texts: np.ndarray, marks: np.ndarray, count: int) -> Matches:
    sides, found = np.zeros(count, np.uint8), np.zeros(len(marks), bool)
    np.bitwise_or.at(sides, rows, marks[texts])
    found[texts] = True
    return Matches(sides, found)


def _sets(synthetic: Words, private: Words, length: int) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Return the windows of each text as a row of ones, the rarest first."""
    made = [one.windows(length, edges=length > 1) for one in (synthetic, private)]
    split = len(made[0][1])
    _, kinds, counts = np.unique(np.concatenate([one[1] for one in made]), return_inverse=True, return_counts=True)
    rank = np.empty(len(counts), np.int32)
    rank[np.argsort(counts, kind="stable")] = np.arange(len(counts))
    columns = rank[kinds]
    parts = ((made[0][0], columns[:split], synthetic), (made[1][0], columns[split:], private))
    return tuple(_matrix(texts, part, len(one.lengths), len(counts)) for texts, part, one in parts)


def _matrix(texts: np.ndarray, columns: np.ndarray, height: int, width: int) -> sparse.csr_array:
    order = np.lexsort((columns, texts))
    texts, columns = texts[order], columns[order]
    fresh = np.append(True, (texts[1:] != texts[:-1]) | (columns[1:] != columns[:-1]))[: len(texts)]
    texts, columns = texts[fresh], columns[fresh]
    starts = np.searchsorted(texts, np.arange(height + 1))
    return sparse.csr_array((np.ones(len(columns), np.int32), columns, starts), shape=(height, width))


def _rarest(sets: sparse.csr_array, similarity: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return text and window of what each text must share one of, and how many windows it has from there on."""
    sizes = np.diff(sets.indptr).astype(np.int64)
    counts = np.where(sizes > 0, sizes - np.ceil(similarity * sizes - _ROUNDING).astype(np.int64) + 1, 0)
    texts = np.repeat(np.arange(len(sizes)), counts)
    places = np.repeat(sets.indptr[:-1] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    return texts, sets.indices[places], sets.indptr[1:][texts] - places


def _candidates(
    left: sparse.csr_array, right: sparse.csr_array, similarity: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs of texts that may be alike: by a rare window that both have, and by what comes behind it in each."""
    rows, windows, after = _rarest(left, similarity)
    texts, held, behind = _rarest(right, similarity)
    sizes = [np.diff(one.indptr).astype(np.int64) for one in (left, right)]
    order = np.argsort(held, kind="stable")
    texts, held, behind = texts[order], held[order], behind[order]
    low, high = (np.searchsorted(held, windows, side=side) for side in ("left", "right"))
    ends = np.cumsum(high - low)
    start = 0
    while start < len(rows):
        before = ends[start - 1] if start else 0
        part = slice(start, max(start + 1, int(np.searchsorted(ends, before + _PAIRS, side="right"))))
        counts = (high - low)[part]
        places = np.repeat(low[part] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        row, text = np.repeat(rows[part], counts), texts[places]
        needed = similarity / (1 + similarity) * (sizes[0][row] + sizes[1][text])
        near = np.minimum(np.repeat(after[part], counts), behind[places]) >= needed - _ROUNDING
        pairs = np.unique(row[near] * right.shape[0] + text[near])
        yield pairs // right.shape[0], pairs % right.shape[0]
        start = part.stop
