"""Two sets of rows, checked before a metric reads them: real matrices of one width, finite, enough of them.

A message names the set that is wrong and never how many private rows there are.
"""

from collections.abc import Iterator

import numpy as np

from hf_dpsynth.errors import ConfigError

_BLOCK = 4096
_LARGEST = 1e15  # squares of larger values leave single precision


def check_pair(p: np.ndarray, q: np.ndarray, *, what: str, least: int) -> None:
    """Refuse two sets that cannot be compared.

    Args:
        p (`np.ndarray`): rows of the synthetic set, shape (m, d). Public.
        q (`np.ndarray`): rows of the real set, shape (n, d). Sensitive.
        what (`str`): the name of the metric, for the message.
        least (`int`): the fewest rows that each set may have.
    Raises:
        ConfigError: a set is no real matrix, has too few rows or holds a value that is not finite or above 1e15, or
            the widths differ.
    """
    check_rows(p, "the first set (synthetic)", what=what, least=least)
    check_rows(q, "the second set (real)", what=what, least=least)
    if p.shape[1] != q.shape[1]:
        raise ConfigError(f"{what}: the two sets are {p.shape[1]} and {q.shape[1]} wide. Embed both with one model.")


def check_rows(rows: np.ndarray, name: str, *, what: str, least: int) -> None:
    """Refuse one set that is no finite real matrix with enough rows."""
    if rows.ndim != 2 or rows.dtype.kind not in "fiu" or not rows.shape[1]:
        raise ConfigError(f"{what}: {name} has {rows.ndim} axes and type {rows.dtype}; it must be a real matrix")
    if len(rows) < least:
        raise ConfigError(f"{what} needs at least {least} rows in each set; {name} has fewer. Pass more texts.")
    if not all(np.abs(block).max() <= _LARGEST for block in blocks(rows)):  # NaN is never below it
        raise ConfigError(f"{what}: {name} holds NaN, infinite or huge values. Check the embedder.")


def blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield groups of rows that fit into memory where all of them may not."""
    for start in range(0, len(rows), _BLOCK):
        yield rows[start : start + _BLOCK]
