"""How much each row may count, so that no secret has more weight in its rows than its allowance.

max sum_i w_i such that sum_{i holds j} w_i <= eta_j for every secret j, 0 <= w_i <= 1: solved once over the rows of
all labels. Vertices of that programme put all weight of a secret on a few of its rows, so the weights are flattened:
the smallest sum of squares among those that keep 99 % of the largest sum. w is a function of the incidence alone, of
which rows hold which secret: neither the values of secrets nor texts nor labels enter, and no failure of a solver is
an error. Everything here is Sensitive and is never published.
Source: Wang et al. 2025, arXiv:2510.10990, Algorithm 1, whose constraint sums over all rows: it is those of j alone.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog, minimize

from hf_dpsynth.privacy.secrets import GRID

OTHER = "other"
WAYS = ("flattened", "closed")
KEPT = 0.99
_AIMED = 0.992
Secret = tuple[str, str]


class Incidence(NamedTuple):
    """Which rows hold which secret. Sensitive.

    Args:
        matrix (`scipy.sparse.csr_array`): shape (secrets, rows), 1.0 where a row holds a secret.
        kinds (`list[tuple[str, ...]]`): the kinds under which each secret is listed.
    """

    matrix: sparse.csr_array
    kinds: list[tuple[str, ...]]


def incidence(rows: Sequence[Sequence[Secret]]) -> Incidence:
    """Return which rows hold which secret.

    Equal values are one secret, also under several kinds. Secrets are ordered by the rows that hold them, so that
    their values leave no trace in anything that is computed from the result.

    Args:
        rows (`Sequence[Sequence[tuple[str, str]]]`): the secrets of each row, as pairs of kind and value. Sensitive.
    """
    found: dict[str, tuple[list[int], set[str]]] = {}
    for row, secrets in enumerate(rows):
        for kind, value in secrets:
            holders, kinds = found.setdefault(value, ([], set()))
            kinds.add(kind)
            if not holders or holders[-1] != row:
                holders.append(row)
    ordered = sorted((tuple(holders), tuple(sorted(kinds))) for holders, kinds in found.values())
    columns = np.fromiter((row for holders, _ in ordered for row in holders), dtype=np.int64)
    starts = np.cumsum([0, *(len(holders) for holders, _ in ordered)])
    matrix = sparse.csr_array((np.ones(len(columns)), columns, starts), shape=(len(ordered), len(rows)))
    return Incidence(matrix, [kinds for _, kinds in ordered])


def secret_weights(held: Incidence, allowances: Mapping[str, float], way: str = "flattened") -> np.ndarray:
    """Return the weight of each row in steps of the grid, so that no secret exceeds its allowance.

    Args:
        held (`Incidence`): which rows hold which secret. Sensitive.
        allowances (`dict[str, float]`): the largest sum of weights by kind, `"other"` for kinds that are not named. A
            secret of several kinds has the smallest one. Public.
        way (`str`, defaults to `"flattened"`): `"flattened"`, or `"closed"`: w_i = min(1, min_j eta_j / |I_j|).
    Returns:
        `np.ndarray`: steps, shape (rows,), int64, from 0 to `GRID`; `GRID` for rows without a secret. Sensitive.
    Guarantee:
        the steps of the rows of each secret sum to at most `GRID` times its allowance, exactly, in whole numbers.
    """
    matrix = held.matrix
    limits = np.asarray([min(allowances.get(kind, allowances[OTHER]) for kind in kinds) for kinds in held.kinds])
    weights = _closed(matrix, limits)
    if way == "flattened" and matrix.nnz:
        weights = np.maximum(0.0, _flattened(matrix, limits, weights))
    steps = np.floor(np.clip(weights, 0, 1) * GRID).astype(np.int64)
    return _exact(matrix, np.floor(limits * GRID).astype(np.int64), steps)


def _least(matrix: sparse.csr_array, of_secrets: np.ndarray, start: float) -> np.ndarray:
    """Return for each row the least value among those of its secrets, and `start` at most."""
    found = np.full(matrix.shape[1], start)
    np.minimum.at(found, matrix.indices, np.repeat(of_secrets, np.diff(matrix.indptr)))
    return found


def _closed(matrix: sparse.csr_array, limits: np.ndarray) -> np.ndarray:
    """Return the closed feasible form."""
    return _least(matrix, limits / np.maximum(np.diff(matrix.indptr), 1), 1.0)


def _flattened(matrix: sparse.csr_array, limits: np.ndarray, closed: np.ndarray) -> np.ndarray:
    """Return weights that keep 99 % of the largest sum and are as even as that allows; rows of equal secrets equal."""
    group, sizes, merged = _merged(matrix)
    best = _largest(merged, limits, sizes)
    if best is None:
        return closed
    flat = _feasible(merged, limits, _smallest_squares(merged, limits, sizes, _AIMED * best.sum()))
    missing = KEPT * best.sum() - flat.sum()
    if missing > 0:  # both are feasible, so every mixture is
        flat = flat + min(1.0, missing / (best.sum() - flat.sum())) * (best - flat)
    weights = np.ones(matrix.shape[1])
    inside = group >= 0
    weights[inside] = (flat / sizes)[group[inside]]
    return weights


def _merged(matrix: sparse.csr_array) -> tuple[np.ndarray, np.ndarray, sparse.csr_array]:
    """Merge rows that hold equal secrets: the group of each row (-1: no secret), sizes, and secrets x groups."""
    rows = matrix.T.tocsr()
    rows.sort_indices()
    group = np.full(rows.shape[0], -1)
    first: list[int] = []
    numbers: dict[bytes, int] = {}
    for row in np.flatnonzero(np.diff(rows.indptr)).tolist():
        held = rows.indices[rows.indptr[row] : rows.indptr[row + 1]].tobytes()
        group[row] = numbers.setdefault(held, len(first))
        if group[row] == len(first):
            first.append(row)
    sizes = np.bincount(group[group >= 0], minlength=len(first)).astype(np.float64)
    return group, sizes, rows[first].T.tocsr()


def _largest(merged: sparse.csr_array, limits: np.ndarray, sizes: np.ndarray) -> np.ndarray | None:
    """Return a vertex of the programme, made feasible; None where the solver fails, which is no error."""
    bounds = np.column_stack([np.zeros(len(sizes)), sizes])
    found = linprog(-np.ones(len(sizes)), A_ub=merged, b_ub=limits, bounds=bounds, method="highs")
    return None if found.x is None else _feasible(merged, limits, np.clip(found.x, 0, sizes))


def _feasible(merged: sparse.csr_array, limits: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Scale groups down until no secret exceeds its allowance."""
    used = merged @ weights
    return np.asarray(weights * _least(merged, np.minimum(1.0, limits / np.maximum(used, 1e-300)), 1.0))


def _smallest_squares(merged: sparse.csr_array, limits: np.ndarray, sizes: np.ndarray, total: float) -> np.ndarray:
    """Minimise the sum of squares at a total by the dual: w = clip(price of weight - prices of secrets, 0, 1)."""
    transposed = merged.T.tocsr()

    def weights(prices: np.ndarray) -> np.ndarray:
        return np.asarray(prices[-1] - transposed @ prices[:-1])

    def dual(prices: np.ndarray) -> tuple[float, np.ndarray]:
        price = weights(prices)
        taken = np.clip(price, 0, 1)
        value = sizes @ (taken * price - taken**2 / 2) + limits @ prices[:-1] - total * prices[-1]
        mass = sizes * taken
        return float(value), np.append(limits - merged @ mass, mass.sum() - total)

    start = np.zeros(merged.shape[0] + 1)
    options = {"maxiter": 2000, "maxfun": 4000, "maxcor": 20, "ftol": 1e-15, "gtol": 1e-7 * limits.min()}
    found = minimize(dual, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(start), options=options)
    return np.asarray(sizes * np.clip(weights(found.x), 0, 1))


def _exact(matrix: sparse.csr_array, caps: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Lower steps until the whole numbers of each secret sum to its cap at most."""
    counts = sparse.csr_array((np.ones(matrix.nnz, dtype=np.int64), matrix.indices, matrix.indptr), shape=matrix.shape)
    used = counts @ steps
    for _ in range(4):
        if not (used > caps).any():
            return steps
        least = _least(matrix, np.where(used > caps, caps / np.maximum(used, 1) * (1 - 1e-12), 1.0), 1.0)
        steps = np.floor(steps * least).astype(np.int64)
        used = counts @ steps
    steps[counts.T @ (used > caps).astype(np.int64) > 0] = 0
    return steps
