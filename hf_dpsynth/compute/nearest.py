"""Exact nearest neighbours and votes by matrix products.

The one rule: a row's answer is a function of that row and of the candidates alone. Matrix products round differently
with the number and place of the rows, so every candidate that single precision cannot tell from the best is scored
again in float64, element by element in a fixed order; the best score wins, then the lowest index. Blocks have a fixed
shape besides, padded with rows of zeros that are never counted. Votes of many rows look at candidates in bfloat16
first, where the processor has it (`first_pass`): the few pairs that it cannot tell apart are scored in single
precision, those that this cannot tell apart in float64, so the answers are the same.

The bound. The nearest y has the largest s = x.y - |y|^2 / 2, as |x - y|^2 = |x|^2 - 2 s. Let u = 2^-24 and
g(n) = n u / (1 - n u). A sum of d + 1 products in single precision, in any order, fused or not, differs from the exact
one by at most g(d + 1) times the sum of the absolute products (Higham 2002, section 3.1), which Cauchy-Schwarz bounds
by |x||y| + |y|^2 / 2. Rounding |y|^2 / 2, the norms and the threshold, and the errors of the float64 score z (2^-29
of this), add less than 4 steps: |S - z| <= E = g(d + 5) (|x||y| + |y|^2 / 2), with |y| the largest norm. Let t be the
k-th largest S of a row. Then k candidates have z >= t - E, so the k best z are >= t - E, and those have S >= t - 2 E:
all candidates with that are scored again. The margin 2 E is never taken below 1e-5, which covers underflow. Rows so
long that single precision could overflow are scored against every candidate in float64.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np

from hf_dpsynth.compute.candidates import OVERFLOW, Candidates, Table
from hf_dpsynth.compute.first_pass import FirstPass, Rough, rough
from hf_dpsynth.compute.pairs import CHUNK_ELEMENTS, chunks, products_of_pairs, slices
from hf_dpsynth.compute.pool import Pool
from hf_dpsynth.compute.threads import in_threads, one_torch_thread
from hf_dpsynth.errors import ConfigError

LEAST_MARGIN = 1e-5
_TILE_COLUMNS = 4096
_HEAD_COLUMNS = 512


@dataclass(frozen=True)
class _Block:
    """A fixed number of rows, ready for `Table.products`; `count` are real; `wild` ones are zeros here."""

    start: int
    count: int
    rows: np.ndarray
    norms: np.ndarray
    margin: np.ndarray
    wild: np.ndarray
    wild_rows: np.ndarray


def votes(private: np.ndarray, candidates: np.ndarray, *, block_rows: int = 2048) -> np.ndarray:
    """Count, for each candidate, the private rows nearest to it.

    Nearest in Euclidean distance, which is the largest cosine where rows are normalised; the lowest index wins ties.
    Memory: two copies of the candidates and a tile of `block_rows` x 4096 scores for each thread of the BLAS; a
    memory-mapped file is read in blocks. Counts of parts of the rows (slices of one file in several processes) add up
    to the counts of all rows, exactly.

    Args:
        private (`np.ndarray`): embeddings, shape (n, d); computed in float32. Sensitive.
        candidates (`np.ndarray`): embeddings, shape (m, d); computed in float32. Public.
        block_rows (`int`): rows in a block. The counts do not depend on it.
    Returns:
        `np.ndarray`: counts, shape (m,), int64, summing to n. Still sensitive: add noise before use.
    Sensitivity:
        L2 <= 1 under add-remove, exactly one count of one; L2 <= sqrt(2) under replace.
    Raises:
        ConfigError: the two widths differ, m is 0, or an argument is not a finite real matrix.
    """
    return np.bincount(assign(private, candidates, block_rows=block_rows), minlength=len(candidates))


def assign(private: np.ndarray, candidates: np.ndarray, *, block_rows: int = 2048) -> np.ndarray:
    """Find the candidate nearest to each private row; `votes` counts these.

    Args:
        private (`np.ndarray`): embeddings, shape (n, d); computed in float32. Sensitive.
        candidates (`np.ndarray`): embeddings, shape (m, d); computed in float32. Public.
        block_rows (`int`): rows in a block. The result does not depend on it.
    Returns:
        `np.ndarray`: indices into `candidates`, shape (n,), int64. Sensitive.
    Raises:
        ConfigError: the two widths differ, m is 0, or an argument is not a finite real matrix.
    """
    _check_shapes(private, candidates, "private", "candidates", block_rows)
    held = Candidates(candidates, "candidates")
    return _assign(private, "private", held, block_rows, rough(held.distinct[1], len(private)))


def top_k(
    queries: np.ndarray, vectors: np.ndarray | Candidates, k: int, *, block_rows: int = 1024
) -> tuple[np.ndarray, np.ndarray]:
    """Find the k vectors nearest to each query, exactly, in ascending distance; the lowest index comes first in a tie.

    Memory: a copy of `vectors`, a tile of `block_rows` x 4096 scores for each thread of the BLAS, and the result; no
    n x m matrix is ever held.

    Args:
        queries (`np.ndarray`): shape (n, d); computed in float32. Sensitive where noise-free.
        vectors (`np.ndarray` or `Candidates`): shape (m, d); computed in float32. `Candidates` are made ready once
            and searched many times. Public.
        k (`int`): how many, 1 <= k <= m.
        block_rows (`int`): queries in a block, fewer for few queries. The result does not depend on it.
    Returns:
        `tuple[np.ndarray, np.ndarray]`: indices, shape (n, k), int64, and squared distances, shape (n, k), float32.
        As sensitive as the queries.
    Raises:
        ConfigError: the two widths differ, m is 0, k is out of range, or an argument is not a finite real matrix.
    """
    held = vectors if isinstance(vectors, Candidates) else Candidates(vectors)
    indices = top_k_indices(queries, held, k, block_rows=block_rows)
    return indices, _squared_distances(queries, held.vectors, indices)


def top_k_indices(
    queries: np.ndarray, vectors: np.ndarray | Candidates, k: int, *, block_rows: int = 1024
) -> np.ndarray:
    """Find the k vectors nearest to each query, as `top_k` does, without measuring how far they are.

    Args:
        queries (`np.ndarray`): as for `top_k`.
        vectors (`np.ndarray` or `Candidates`): as for `top_k`.
        k (`int`): as for `top_k`.
        block_rows (`int`): as for `top_k`.
    Returns:
        `np.ndarray`: indices, shape (n, k), int64. As sensitive as the queries.
    Raises:
        ConfigError: as for `top_k`.
    """
    held = vectors if isinstance(vectors, Candidates) else Candidates(vectors)
    _check_shapes(queries, held.vectors, "queries", "vectors", block_rows)
    if not 1 <= k <= len(held.vectors):
        raise ConfigError(f"k is {k}; it must be at least 1 and at most the number of vectors, {len(held.vectors)}")
    block_rows = min(block_rows, 1 << max(6, (len(queries) - 1).bit_length()))
    if k == 1:
        return _assign(queries, "queries", held, block_rows, None)[:, None]
    table = held.table
    indices = np.empty((len(queries), k), dtype=np.int64)

    def search(part: slice) -> None:
        scratch, out = _scratch(block_rows, table, least_columns=k), indices[part]
        for block in _blocks(queries[part], "queries", table, block_rows):
            out[block.start : block.start + block.count] = _nearest_many(block, table, k, scratch)

    in_threads(search, len(queries), block_rows)
    return indices


def _check_shapes(rows: np.ndarray, table: np.ndarray, rows_name: str, table_name: str, block_rows: int) -> None:
    """Refuse what is not two real matrices of one width; values are not read here."""
    for name, array in ((rows_name, rows), (table_name, table)):
        if array.ndim != 2 or array.dtype.kind not in "fiu":
            raise ConfigError(f"{name} has {array.ndim} axes and type {array.dtype}; it must be a real matrix")
    if rows.shape[1] != table.shape[1] or not table.shape[1]:
        raise ConfigError(
            f"{rows_name} is {rows.shape[1]} wide and {table_name} {table.shape[1]}; both need the same width, not 0"
        )
    if not len(table):
        raise ConfigError(f"{table_name} has no rows; at least one is needed")
    if not block_rows >= 1:
        raise ConfigError(f"block_rows is {block_rows}; it must be at least 1")


def _scratch(block_rows: int, table: Table, least_columns: int = 1) -> np.ndarray:
    """Reserve one tile of scores, used again for every block so that its pages stay warm."""
    return np.empty((block_rows, min(max(_TILE_COLUMNS, least_columns), len(table.vectors))), dtype=np.float32)


def _blocks(array: np.ndarray, name: str, table: Table, block_rows: int) -> Iterator[_Block]:
    """Read rows block by block into one padded buffer, with the margin of each row."""
    width = array.shape[1]
    buffer = np.ones((block_rows, len(table.products)), dtype=np.float32)
    in_place = len(table.products) == width and array.dtype == np.float32 and array.flags.c_contiguous
    for start in range(0, len(array), block_rows):
        count = min(block_rows, len(array) - start)
        rows = array[start : start + count]
        with np.errstate(over="ignore"):
            if not in_place or count < block_rows:
                buffer[:count, :width] = rows
                buffer[count:] = 0
                rows = buffer
            real = rows[:count, :width]
            norms = np.sqrt(np.einsum("ij,ij->i", real, real).astype(np.float64))
        if not np.isfinite(norms).all() and not np.isfinite(real).all():
            raise ConfigError(f"{name} holds NaN or infinite values (as float32)")
        norms = norms * (1 + width * 2.0**-23) + 1e-16
        margin, wild = _margins(norms, table, width)
        wild_rows = real[wild]
        if len(wild):
            rows = rows.copy()
            rows[wild] = 0
        yield _Block(start, count, rows, norms, margin, wild, wild_rows)


def _margins(norms: np.ndarray, table: Table, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 2 E of the module's bound for each row, and the rows that single precision could overflow on."""
    terms = (width + 5) * 2.0**-24
    size = norms * table.longest + table.longest**2 / 2
    calm = size < OVERFLOW
    margin = np.maximum(2 * (terms / (1 - terms) * size + table.uneven), LEAST_MARGIN)
    return np.where(calm, margin, LEAST_MARGIN), np.flatnonzero(~calm)


def _tiles(block: _Block, table: Table, scratch: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the scores of the whole padded block, tile by tile: the first column, and a view used again."""
    height, columns = scratch.shape
    flat = scratch.reshape(-1)
    for left in range(0, len(table.vectors), columns):
        part = table.products[:, left : left + columns]
        scores = flat[: height * part.shape[1]].reshape(height, -1)
        np.matmul(block.rows, part, out=scores)
        yield left, scores[: block.count]


def _scores_of_pairs(block: _Block, table: Table, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Score pairs of a row of the block and a candidate in chunks of bounded memory; float64, shape (pairs,)."""
    width = table.vectors.shape[1]
    out = np.empty(len(row), dtype=np.float64)
    for part in slices(len(row), width):
        out[part] = (
            products_of_pairs(block.rows[row[part], :width], table.vectors[column[part]]) - table.halves[column[part]]
        )
    return out


def _scores_of_all(row: np.ndarray, table: Table) -> np.ndarray:
    """Score one row against every candidate in float64, shape (m,)."""
    return np.asarray(
        np.concatenate([products_of_pairs(row[None], part) for part in chunks(table.vectors)]) - table.halves
    )


def _squared_distances(queries: np.ndarray, vectors: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Measure each query's distances to the vectors found for it, ascending as they are; float32, shape (n, k)."""
    count, k = columns.shape
    out = np.empty((count, k), dtype=np.float32)
    step = max(1, CHUNK_ELEMENTS // (k * vectors.shape[1]))
    for start in range(0, count, step):
        part = slice(start, start + step)
        with np.errstate(over="ignore"):
            rows = np.repeat(queries[part].astype(np.float32), k, axis=0)
            gaps = np.subtract(rows, vectors[columns[part].reshape(-1)], dtype=np.float64)
            out[part] = products_of_pairs(gaps, gaps).reshape(-1, k)
    return np.asarray(np.maximum.accumulate(out, axis=1))


def _assign(array: np.ndarray, name: str, candidates: Candidates, block_rows: int, rough: Rough | None) -> np.ndarray:
    """Find the nearest candidate of each row, after a first pass in bfloat16 where there is one."""
    kept, table = candidates.distinct
    nearest = np.empty(len(array), dtype=np.int64)

    def search(part: slice) -> None:
        scratch, out = _scratch(block_rows, table), nearest[part]
        first = FirstPass(rough, block_rows) if rough else None
        for block in _blocks(array[part], name, table, block_rows):
            if first:
                found, left = _nearest_after(first, block, table, scratch)
                first = first if 2 * left <= block.count else None  # a pass that settles little only costs
            else:
                found = _nearest_one(block, table, scratch)
            for place, wild in zip(block.wild, block.wild_rows, strict=True):
                found[place] = _scores_of_all(wild, table).argmax()
            out[block.start : block.start + block.count] = found

    with one_torch_thread() if rough else nullcontext():  # blocks have threads of their own
        in_threads(search, len(array), block_rows)
    return np.asarray(kept[nearest])


def _nearest_after(first: FirstPass, block: _Block, table: Table, scratch: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the nearest candidates as `_nearest_one` does, and how many rows the first pass left to it."""
    width = table.vectors.shape[1]
    row, column, left = first.pairs(block.rows[: block.count, :width], block.norms)
    winner = _settle_one(block, table, *_narrowed(block, table, row, column))
    if len(left):
        rows = np.zeros_like(block.rows)
        rows[: len(left)] = block.rows[left]
        rest = replace(block, count=len(left), rows=rows, norms=block.norms[left], margin=block.margin[left])
        winner[left] = _nearest_one(rest, table, scratch)
    return winner, len(left)


def _narrowed(block: _Block, table: Table, row: np.ndarray, column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keep the pairs, in ascending rows, that single precision cannot tell from the best of their row."""
    width = table.vectors.shape[1]
    first = np.flatnonzero(np.diff(row, prepend=-1))
    sizes = np.diff(np.append(first, len(row)))
    several = np.flatnonzero(np.repeat(sizes > 1, sizes))
    if not len(several):
        return row, column
    value = np.full(len(row), np.inf)
    for pairs in slices(len(several), width):
        part = several[pairs]
        value[part] = np.einsum("ij,ij->i", block.rows[row[part], :width], table.vectors[column[part]])
    value -= table.halves[column]
    best = np.repeat(np.maximum.reduceat(value, first), sizes)
    kept = value >= best - block.margin[row]
    return row[kept], column[kept]


def _nearest_one(block: _Block, table: Table, scratch: np.ndarray) -> np.ndarray:
    """Return the index of the nearest candidate of each real row of the block, shape (count,)."""
    every = np.arange(block.count)
    best = np.full(block.count, -np.inf)
    pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for left, scores in _tiles(block, table, scratch):
        column = scores.argmax(axis=1)
        value = scores[every, column].astype(np.float64)
        scores[every, column] = -np.inf
        np.maximum(best, value, out=best)
        threshold = best - block.margin
        hit = np.flatnonzero(value >= threshold)
        pairs.append((hit, column[hit] + left, value[hit]))
        runner_up = scores[every, scores.argmax(axis=1)]  # twice as fast as max(axis=1)
        close = np.flatnonzero(runner_up >= threshold)
        if len(close):
            near, other = np.nonzero(scores[close] >= threshold[close, None])
            pairs.append((close[near], other + left, scores[close[near], other].astype(np.float64)))
    row, column, value = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    kept = value >= (best - block.margin)[row]
    return _settle_one(block, table, row[kept], column[kept])


def _settle_one(block: _Block, table: Table, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Choose among the pairs of each row: the only one, or the best float64 score, then the lowest index."""
    winner = np.empty(block.count, dtype=np.int64)
    winner[row] = column
    several = np.bincount(row, minlength=block.count)[row] > 1
    row, column = row[several], column[several]
    if len(row):
        order = np.lexsort((column, -_scores_of_pairs(block, table, row, column), row))
        first = order[np.flatnonzero(np.diff(row[order], prepend=-1))]
        winner[row[first]] = column[first]
    return winner


def _nearest_many(block: _Block, table: Table, k: int, scratch: np.ndarray) -> np.ndarray:
    """Return the indices of the k nearest vectors of each real row, shape (count, k)."""
    pool = Pool(block.margin, block.wild, k)
    for number, (left, scores) in enumerate(_tiles(block, table, scratch)):
        if number == 0:
            pool.raise_threshold(scores[:, : max(k, _HEAD_COLUMNS)])
        pool.add(left, scores)
        if number & (number + 1) == 0:
            pool.shrink()
    pool.shrink()
    row, column = _settle_many(block, table, pool)
    first = np.searchsorted(row, np.arange(block.count))
    kept = np.flatnonzero(np.arange(len(row)) - first[row] < k)
    columns = np.zeros((block.count, k), dtype=np.int64)
    columns[row[kept], kept - first[row[kept]]] = column[kept]
    whole = dict(zip(block.wild.tolist(), block.wild_rows, strict=True))
    for place in np.flatnonzero(pool.crowded).tolist():
        values = whole.get(place, block.rows[place, : table.vectors.shape[1]])
        columns[place] = np.argsort(-_scores_of_all(values, table), kind="stable")[:k]
    return columns


def _settle_many(block: _Block, table: Table, pool: Pool) -> tuple[np.ndarray, np.ndarray]:
    """Order the pairs of each row, best first: scores that lie further apart than the margin are as they are.

    Between two such gaps stand pairs that single precision cannot tell apart; their float64 scores decide, then the
    lowest index.
    """
    order = np.lexsort((-pool.value, pool.row))
    row, column, value = pool.row[order], pool.column[order], pool.value[order].astype(np.float64)
    close = (row[1:] == row[:-1]) & (value[:-1] - value[1:] <= block.margin[row[1:]])
    alike = np.flatnonzero(np.append(close, False) | np.append(False, close))
    if len(alike):
        run = np.cumsum(np.append(True, ~close))[alike]
        exact = _scores_of_pairs(block, table, row[alike], column[alike])
        column[alike] = column[alike[np.lexsort((column[alike], -exact, run))]]
    return row, column
