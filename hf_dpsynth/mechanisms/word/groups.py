"""Groups of near words: a greedy partition of a public vocabulary, in the order of its frequencies.

The first word without a group takes the k - 1 nearest words without one. Where products could
round differently from process to process, distances are sums of squares in float64: all find the same groups.
"""

from weakref import WeakKeyDictionary

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.models.word_vectors import WordVectors

_AHEAD = 64
_ROUNDING = 1e-11

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
    """Return the groups of a vocabulary of at least k words, filled up with -1.

    The distances of several words that may come first are estimated at once by a product; what its rounding cannot
    tell from the k nearest is measured again.
    """
    count = len(vectors) // k
    members = np.full((count, k + len(vectors) % k), -1, dtype=np.int64)
    # distances do not change with the origin, and rounding is smallest around the mean
    left, table = np.arange(len(vectors)), vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    group = 0
    while group < count - 1:
        squares = np.square(table).sum(axis=1)
        estimates = squares - 2 * (table[:_AHEAD] @ table.T)  # |y|^2 - 2 x.y
        margin = _ROUNDING * squares.max()
        free = np.ones(len(left), dtype=bool)
        for first, row in enumerate(estimates):
            if free[first] and group < count - 1:
                row[~free] = np.inf
                near = np.flatnonzero(row <= np.partition(row, k - 1)[k - 1] + margin)
                away = np.square(table[near] - table[first]).sum(axis=1)
                taken = near[np.argsort(away, kind="stable")[:k]]
                free[taken] = False
                members[group, :k] = left[taken]
                group += 1
        left, table = left[free], table[free]
    members[-1] = left
    return members
