"""Private texts below the window: found as whole texts, equal or alike. Sensitive."""

from typing import Any

import numpy as np

from hf_dpsynth.contamination.windows import Flat, Found
from hf_dpsynth.extras import need

_PERMUTATIONS = 128


class Whole:
    """Short private texts that a public text equals, token by token.

    Args:
        private (`Flat`): the short private texts. Sensitive.
        rows (`np.ndarray`): the number of the row of each of them.
    """

    def __init__(self, private: Flat, rows: np.ndarray) -> None:
        self._entries: dict[bytes, int] = {}  # looked up by Python's hash, which is keyed, and compared whole
        texts = [private.ids[begin:end] for begin, end in zip(private.begins, private.ends, strict=True)]
        self._entry_of = np.array(
            [self._entries.setdefault(text.tobytes(), len(self._entries)) for text in texts], int
        )
        self._longest = max(map(len, texts), default=0)
        self._row_of = rows

    @property
    def num_entries(self) -> int:
        """How many different texts there are. Sensitive."""
        return len(self._entries)

    def find(self, public: Flat) -> Found:
        """Return the texts that are one of these."""
        begins, ends = public.begins, public.ends
        lengths = ends - begins
        unknown = np.concatenate(([0], np.cumsum(public.ids < 0)))
        maybe = (lengths > 0) & (lengths <= self._longest) & (unknown[ends] == unknown[begins])
        found = [
            (begin, end, entry)
            for begin, end in zip(begins[maybe].tolist(), ends[maybe].tolist(), strict=True)
            if (entry := self._entries.get(public.ids[begin:end].tobytes())) is not None
        ]
        return _found(found)

    def rows_of(self, seen: np.ndarray) -> np.ndarray:
        """Return the rows of the private texts that are marked. Sensitive."""
        return np.unique(self._row_of[seen[self._entry_of]])

    def for_search(self) -> "Whole":
        """Return what another process needs. Sensitive."""
        return self


class Alike:
    """Short private texts that a short public text is like: candidates by MinHash, then the exact similarity.

    The similarity of two texts is that of their sets of tokens: what they share, of what either has.

    Args:
        tokens (`list[list[str]]`): the short private texts. Sensitive.
        rows (`np.ndarray`): the number of the row of each of them.
        shortest (`int`): the number of tokens from which on a public text is not looked at.
        similarity (`float`): the least similarity.
        seed (`int`): a secret seed of the permutations.
    Raises:
        MissingExtra: rensa is not installed.
    """

    def __init__(self, tokens: list[list[str]], rows: np.ndarray, shortest: int, similarity: float, seed: int) -> None:
        self._sets = [frozenset(text) for text in tokens]
        self._shortest, self._similarity, self._seed, self._row_of = shortest, similarity, seed, rows
        rensa = _rensa()
        # so many bands that even the least similarity is missed by chance in few of many thousand pairs
        self._buckets = rensa.RMinHashLSH(similarity, _PERMUTATIONS, _bands(similarity))
        for number, text in enumerate(self._sets):
            self._buckets.insert(number, self._sketch(text))

    @property
    def num_entries(self) -> int:
        """How many texts there are. Sensitive."""
        return len(self._sets)

    def find(self, public: Flat) -> Found:
        """Return the texts that are like one of these; none where their tokens are not at hand."""
        found = []
        for begin, end, text in zip(public.begins, public.ends, public.tokens or (), strict=False):
            if 0 < end - begin < self._shortest:
                words = frozenset(text[: end - begin])
                near = self._buckets.query(self._sketch(words)) if self._sets else ()
                found += [(int(begin), int(end), one) for one in near if self._is_like(words, self._sets[one])]
        return _found(found)

    def rows_of(self, seen: np.ndarray) -> np.ndarray:
        """Return the rows of the private texts that are marked. Sensitive."""
        return np.unique(self._row_of[seen])

    def for_search(self) -> "Alike":
        """Return what another process needs. Sensitive."""
        return self

    def _sketch(self, words: frozenset[str]) -> Any:
        made = _rensa().RMinHash(_PERMUTATIONS, self._seed)
        made.update(sorted(word.encode("utf-8", "surrogatepass") for word in words))
        return made

    def _is_like(self, one: frozenset[str], other: frozenset[str]) -> bool:
        return len(one & other) >= self._similarity * len(one | other) - 1e-9


def _rensa() -> Any:
    return need("rensa", extra="contamination", what='short_texts="minhash"')


def _bands(similarity: float, missed: float = 1e-4) -> int:
    """Return the fewest bands at which a pair of this similarity is missed at most this often."""
    for bands in (4, 8, 16, 32, 64):
        if (1 - similarity ** (_PERMUTATIONS // bands)) ** bands <= missed:
            return bands
    return _PERMUTATIONS


def _found(parts: list[tuple[int, int, int]]) -> Found:
    columns = np.array(parts, np.int64).reshape(-1, 3)
    return Found(columns[:, 0], columns[:, 1], columns[:, 2])
