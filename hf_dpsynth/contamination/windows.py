"""Windows of tokens: rolling hashes of all of them at once, and an exact search for those of the private texts.

A token is an integer. Texts stand one after the other in one array, each with a -1 behind it; tokens that no private
text has are -1 too. A window with a -1 in it matches nothing, so no window crosses from one text into the next.
"""

from dataclasses import dataclass

import numpy as np

_BLOCK = 1 << 21  # numbers of tokens to compare at a time
_MOST_BITS = 34


@dataclass(frozen=True, repr=False, eq=False)
class Flat:
    """Texts as one array of tokens.

    Args:
        ids (`np.ndarray`): the tokens, int32, -1 for unknown ones and behind each text. Sensitive.
        ends (`np.ndarray`): the position behind each text, where its own -1 stands.
        tokens (`list[list[str]]`, *optional*): the tokens of each text as they are written.
    """

    ids: np.ndarray
    ends: np.ndarray
    tokens: list[list[str]] | None = None

    @property
    def begins(self) -> np.ndarray:
        """The position where each text begins."""
        return np.concatenate(([0], self.ends[:-1] + 1)) if len(self.ends) else self.ends


@dataclass(frozen=True, repr=False, eq=False)
class Found:
    """Parts of texts that a finder knows: where they begin and end, and which of its entries they are. Sensitive."""

    starts: np.ndarray
    ends: np.ndarray
    entries: np.ndarray


def window_starts(ids: np.ndarray, length: int) -> np.ndarray:
    """Return where a window without a -1 begins.

    Examples:
        >>> window_starts(np.array([4, 5, 6, -1, 7, -1, 8, 9, -1]), 2).tolist()
        [0, 1, 6]
    """
    ends = np.flatnonzero(ids < 0)
    begins = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    counts = ends - begins - (length - 1)
    whole = counts > 0
    begins, counts = begins[whole], counts[whole]
    before = np.cumsum(counts) - counts
    return np.repeat(begins - before, counts) + np.arange(counts.sum())


def window_hashes(values: np.ndarray, length: int, factor: int) -> np.ndarray:
    """Return the hash of the window that begins at each position: a polynomial in `factor`, modulo 2**64.

    Args:
        values (`np.ndarray`): a secret random number for each token, uint64. Sensitive.
        length (`int`): the tokens of a window.
        factor (`int`): a secret odd number.
    Returns:
        `np.ndarray`: uint64, for every position at which `length` values are left. Sensitive.
    """
    part, part_length, power = values, 1, np.uint64(factor)
    whole, whole_length = None, 0
    while True:
        if length & part_length:  # the window is put together of parts of 1, 2, 4, ... tokens
            whole = part if whole is None else _joined(whole, whole_length, part, power)
            whole_length += part_length
        if whole_length == length:
            assert whole is not None
            return whole[: max(0, len(values) - length + 1)]
        part = _joined(part, part_length, part, power)
        power = np.multiply(power, power)
        part_length *= 2


def _joined(left: np.ndarray, length: int, right: np.ndarray, power: np.uint64) -> np.ndarray:
    """Return the hashes of the windows on the left, each followed by the one on the right `length` further."""
    count = max(0, min(len(left), len(right) - length))
    made = left[:count] * power
    made += right[length : length + count]
    return made


class Windows:
    """All windows of `length` tokens of the private texts: sorted hashes, and where one of each lies. Sensitive.

    A bitmap of the hashes' first bits tells at once of most windows that they are none of these. Each hit is then
    compared token by token, so that a collision of hashes is no overlap.

    Args:
        private (`Flat`): the private texts. Sensitive.
        rows (`np.ndarray`): the number of the row of each of them.
        length (`int`): the tokens of a window.
        values (`np.ndarray`): a secret random number for each token, uint64.
        factor (`int`): a secret odd number.
    """

    def __init__(self, private: Flat, rows: np.ndarray, length: int, values: np.ndarray, factor: int) -> None:
        self._ids, self._length, self._values, self._factor = private.ids, length, values, factor
        starts = window_starts(private.ids, length)
        hashes = self._hashes(private.ids)[starts]
        order = np.argsort(hashes, kind="stable")
        hashes, places = hashes[order], starts[order]
        first = np.ones(len(places), bool)
        first[1:] = hashes[1:] != hashes[:-1]
        again = np.flatnonzero(~first)
        first[again] = ~self._equal(private.ids, places[again], places[again - 1])
        self._sorted, self._places = hashes[first], places[first]
        # which entry each window of a private text is, and of which row: what was found is told in rows
        self._entry_of, self._row_of = np.cumsum(first) - 1, rows[np.searchsorted(private.ends, places)]
        self._most_equal = _longest_run(self._sorted)
        bits = min(_MOST_BITS, max(6, (16 * len(self._sorted)).bit_length()))
        self._shift = np.uint64(64 - bits)
        flags = np.zeros(1 << bits, bool)
        flags[self._sorted >> self._shift] = True
        self._bitmap = np.packbits(flags, bitorder="little")

    @property
    def num_entries(self) -> int:
        """How many different windows there are. Sensitive."""
        return len(self._sorted)

    def find(self, public: Flat) -> Found:
        """Return the windows of texts that are among these, in the order of their places."""
        starts = window_starts(public.ids, self._length)
        if not len(starts) or not self.num_entries:
            return Found(*(np.empty(0, np.int64),) * 3)
        hashes = self._hashes(public.ids)[starts]
        slots = hashes >> self._shift
        near = (self._bitmap[slots >> np.uint64(3)] >> (slots & np.uint64(7)).astype(np.uint8)) & 1
        maybe = np.flatnonzero(near)
        starts, hashes = starts[maybe], hashes[maybe]
        entries = self._search(public.ids, starts, hashes)
        known = entries >= 0
        return Found(starts[known], starts[known] + self._length, entries[known])

    def rows_of(self, seen: np.ndarray) -> np.ndarray:
        """Return the rows of the private texts that hold one of the entries that are marked. Sensitive."""
        return np.unique(self._row_of[seen[self._entry_of]])

    def for_search(self) -> "Windows":
        """Return the same windows without what only `rows_of` needs, for another process. Sensitive."""
        made = object.__new__(Windows)
        made.__dict__.update(self.__dict__)
        made._entry_of = made._row_of = np.empty(0, np.int64)
        return made

    def _hashes(self, ids: np.ndarray) -> np.ndarray:
        return window_hashes(self._values[ids], self._length, self._factor)

    def _search(self, ids: np.ndarray, starts: np.ndarray, hashes: np.ndarray) -> np.ndarray:
        """Return the entry that each window equals, or -1; different entries of one hash stand side by side."""
        entries = np.full(len(starts), -1)
        places = np.searchsorted(self._sorted, hashes)
        for step in range(self._most_equal):
            at = np.minimum(places + step, self.num_entries - 1)
            alike = np.flatnonzero((entries < 0) & (self._sorted[at] == hashes))
            same = alike[self._equal(ids, starts[alike], self._places[at[alike]])]
            entries[same] = at[same]
        return entries

    def _equal(self, ids: np.ndarray, starts: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return whether the windows of texts and of private texts are the same, token by token."""
        same = np.empty(len(starts), bool)
        if not len(starts):  # a window may be longer than memory
            return same
        step, within = max(1, _BLOCK // self._length), np.arange(self._length)
        for start in range(0, len(starts), step):
            part = slice(start, start + step)
            same[part] = (ids[starts[part, None] + within] == self._ids[places[part, None] + within]).all(1)
        return same


def _longest_run(values: np.ndarray) -> int:
    """Return how often the commonest of sorted values occurs."""
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    return int(np.diff(np.concatenate(([0], changes, [len(values)]))).max()) if len(values) else 0
