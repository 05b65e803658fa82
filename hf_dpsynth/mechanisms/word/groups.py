"""Groups of near words: a greedy partition of a public vocabulary, in the order of its frequencies.

The first word without a group takes the k - 1 nearest words without one. Distances are sums of squares in float64,
coordinate by coordinate, so that every process finds the same groups.
"""

from weakref import WeakKeyDictionary

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.models.word_vectors import WordVectors

_COLUMNS = 4096
_BETWEEN_CUTS = 64

_KNOWN: "WeakKeyDictionary[WordVectors, dict[int, tuple[np.ndarray, np.ndarray]]]" = WeakKeyDictionary()


def groups(vectors: WordVectors, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Part W in groups of k near words; the last one also takes what remains, so it has up to 2 k - 1.

    Args:
        vectors (`WordVectors`): W and its embedding, kept with its groups as long as it lives. Public.
        k (`int`): the size of a group, 1 <= k <= |W|.
    Returns:
        `tuple[np.ndarray, np.ndarray]`: the rows of each group, nearest to its first word first, filled up with -1,
        shape (groups, width), and the group of each word, shape (V,); int64.
    Raises:
        ConfigError: k is larger than W.
    """
    size = len(vectors)
    if not 1 <= k <= size:
        raise ConfigError(f"a group of k={k} words needs as many in W, which has {size}. Lower k or raise max_words.")
    known = _KNOWN.setdefault(vectors, {})
    if k not in known:
        members = _partition(vectors.vectors, k)
        of_word = np.empty(size, dtype=np.int64)
        rows, columns = np.nonzero(members >= 0)
        of_word[members[rows, columns]] = rows
        known[k] = members, of_word
    return known[k]


def _partition(vectors: np.ndarray, k: int) -> np.ndarray:
    """Return the groups of a vocabulary of at least k words, filled up with -1."""
    count = len(vectors) // k
    members = np.full((count, k + len(vectors) % k), -1, dtype=np.int64)
    table = np.ascontiguousarray(vectors.T, dtype=np.float64)
    left = np.arange(len(vectors))  # the words of the table
    free = np.ones(len(vectors), dtype=bool)
    first = 0
    for group in range(count - 1):
        if group % _BETWEEN_CUTS == 0:
            table, left, free, first = np.ascontiguousarray(table[:, free]), left[free], free[free], 0
        first += int(free[first:].argmax())
        near = squared_distances(table[:, first], table)
        near[~free] = np.inf
        within = np.flatnonzero(near <= np.partition(near, k - 1)[k - 1])
        taken = within[np.argsort(near[within], kind="stable")[:k]]
        free[taken] = False
        members[group, :k] = left[taken]
    members[-1] = left[free]
    return members


def squared_distances(point: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return |point - y|^2 for each column y, coordinates added one after the other.

    Args:
        point (`np.ndarray`): shape (d,), float64. Public.
        table (`np.ndarray`): shape (d, m), float64. Public.
    Returns:
        `np.ndarray`: shape (m,), float64.
    """
    out = np.empty(table.shape[1])
    for start in range(0, len(out), _COLUMNS):
        gaps = table[:, start : start + _COLUMNS] - point[:, None]
        np.square(gaps, out=gaps)
        np.add.reduce(gaps, axis=0, out=out[start : start + _COLUMNS])
    return out
