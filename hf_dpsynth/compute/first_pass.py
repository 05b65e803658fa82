"""A first pass in bfloat16: which few candidates could be nearest to a row, at half the cost of single precision.

The one rule: the nearest candidate is among the pairs that come back. Which one it is the caller finds in higher
precision, so this pass changes how long an answer takes and never the answer.

The bound, in the terms of `nearest`. Candidates are centred: with c and h the means of y and of |y|^2 / 2, the scores
s = x.(y - c) + (h - |y|^2 / 2) order as before, since x.c and h are the same for every y. Their mean over the
candidates is 0, so the best is not negative, and errors are a share of how far candidates spread, not of their length.
Rounded to bfloat16 are x' of x and y' of y - c; three columns p beside y' hold h - |y|^2 / 2, with ones beside x':

    |x'.y' + p - s| <= A' = |x - x'| |y - c| + |x'| |y - c - y'| + |h - |y|^2 / 2 - p|

with lengths that are measured, not the worst case, and the largest over the candidates. Where all candidates are
equally long the three columns are left out (p = 0). A product of two bfloat16 is exact in single precision; adding
d + 3 of them in any order, rounded or cut off, errs by at most g (|x'| |y'| + |p|), g = n v / (1 - n v), n = d + 4,
v = 2^-23. 2^-40 (|x||y| + |y|^2 / 2) covers the roundings of c, h and the differences in float64 and those of the
float64 scores z that decide (less than 2^-46 of it). Let A be the sum of all, never below 5e-6, which covers underflow
and numbers below 2^-126 that the processor takes as 0.

A score is stored as V, rounded to bfloat16: |V - s| <= A + u |V|, u = 2^-8. Let b be the largest V of a row. The
candidate with the best z has s >= b - u b - A, so V + u |V| >= b - u b - 2 A, so V >= t = (b (1 - u) - 2 A) / (1 + u)
wherever t > 0. Rows with t <= 0, rows longer than 2^40, and rows with so many candidates from t up that single
precision is faster, come back as `left`. Positive bfloat16 are ordered as their bits are, and negative ones are
negative as integers of 16 bits, so integers are compared.
"""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hf_dpsynth.compute.candidates import Table
from hf_dpsynth.compute.pairs import slices

if TYPE_CHECKING:
    import torch

LONGEST = 2.0**40
_TILE_COLUMNS = 4096
_STEP = 2.0**-8
_LEAST = 5e-6
_NONE = 2**15 - 1
_WORTH_IT, _WORTH_LOADING = 1 << 27, 1 << 35
_FORCED: bool | None = None


@dataclass(frozen=True)
class Rough:
    """Centred candidates in bfloat16, tile by tile, and what the bound needs: the largest lengths, and g."""

    tiles: tuple["torch.Tensor", ...]
    width: int
    spread: float
    length: float
    lost: float
    constant: float
    steps: float
    longest: float
    crowd: int


def rough(table: Table, count: int) -> Rough | None:
    """Prepare candidates for the first pass where this machine and this much work gain by it.

    Args:
        table (`Table`): the candidates. Public.
        count (`int`): the number of rows to search.
    Returns:
        `Rough` or None: None where the processor does not multiply bfloat16, where there is too little to do (torch
        takes a second to load), and where candidates are longer than 2^40.
    """
    work = count * table.vectors.size
    enough = work >= (_WORTH_IT if "torch" in sys.modules else _WORTH_LOADING) and _has_bfloat16()
    if not (enough if _FORCED is None else _FORCED) or table.longest >= LONGEST:
        return None
    return _centred(table)


def _has_bfloat16() -> bool:
    """Tell whether the processor multiplies bfloat16, and torch makes it."""
    import torch

    known = torch.cpu.get_capabilities()
    return torch.backends.mkldnn.is_available() and bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def _longest(rows: np.ndarray) -> float:
    return float(np.sqrt(np.einsum("ij,ij->i", rows, rows).max())) * (1 + 1e-6)


def _centred(table: Table) -> Rough:
    import torch

    count, width = table.vectors.shape
    deep = width if len(table.products) == width else width + 3
    columns = torch.empty((count, deep), dtype=torch.bfloat16, device="cpu")
    middle = table.vectors.mean(axis=0, dtype=np.float64)
    spread = length = lost = 0.0
    for part in slices(count, width):
        whole = table.vectors[part] - middle
        columns[part, :width] = torch.from_numpy(whole)
        near = columns[part, :width].double().numpy()
        spread, length, lost = map(max, (spread, length, lost), map(_longest, (whole, near, whole - near)))
    rest, added = table.halves.mean() - table.halves, np.zeros(count)
    for place in range(width, deep):
        columns[:, place] = torch.from_numpy(rest)
        near = columns[:, place].double().numpy()
        rest, added = rest - near, added + np.abs(near)
    terms = (width + 4) * 2.0**-23
    steps = terms / (1 - terms)
    return Rough(
        tiles=tuple(part.t().contiguous() for part in columns.split(_TILE_COLUMNS)),
        width=width,
        spread=spread,
        length=length,
        lost=lost,
        constant=float(np.abs(rest).max() + steps * added.max()) * (1 + 1e-6) + 2.0**-41 * table.longest**2,
        steps=steps,
        longest=table.longest,
        crowd=max(8, count // 32),
    )


class FirstPass:
    """The buffers of one thread: rows in bfloat16, and one tile of scores."""

    def __init__(self, rough: Rough, block_rows: int) -> None:
        import torch

        self.rough = rough
        deep, wide = rough.tiles[0].shape
        self.rows = torch.ones((block_rows, deep), dtype=torch.bfloat16, device="cpu")
        self.single = torch.empty((block_rows, rough.width), dtype=torch.float32, device="cpu")
        self.scores = torch.empty((block_rows * wide,), dtype=torch.bfloat16, device="cpu")

    def pairs(self, rows: np.ndarray, norms: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the pairs of a row and a candidate that could be nearest, and the rows that are left to others.

        Args:
            rows (`np.ndarray`): shape (count, d), float32, at most the rows of the block. Sensitive.
            norms (`np.ndarray`): their lengths, not below the true ones, shape (count,). Sensitive.
        Returns:
            `tuple[np.ndarray, np.ndarray, np.ndarray]`: row numbers in ascending order, the candidates beside them,
            and row numbers that no pair stands for. Sensitive.
        """
        error = self._errors(rows, norms)
        best = np.full(len(rows), -(2**15), dtype=np.int16)
        missed = best.copy()
        found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for number, tile in enumerate(self.rough.tiles):
            bits = self._scores(tile)[: len(rows)]
            largest = bits.max(axis=1)
            np.maximum(best, largest, out=best)
            least = _least_bits(best, error)
            row, column = np.divmod(np.flatnonzero(bits >= least[:, None]), bits.shape[1])
            full = (least == _NONE) | (np.bincount(row, minlength=len(rows)) > self.rough.crowd)
            np.maximum(missed, np.where(full, largest, missed), out=missed)
            row, column = row[~full[row]], column[~full[row]]
            found.append((row, column + number * _TILE_COLUMNS, bits[row, column]))
        row, column, value = (np.concatenate(parts) for parts in zip(*found, strict=True))
        least = _least_bits(best, error)
        kept = (value >= least[row]) & (missed < least)[row]
        row, column = row[kept], column[kept]
        if len(found) > 1:
            order = np.argsort(row, kind="stable")
            row, column = row[order], column[order]
        return row, column, np.flatnonzero(np.bincount(row, minlength=len(rows)) == 0)

    def _errors(self, rows: np.ndarray, norms: np.ndarray) -> np.ndarray:
        """Round the rows into the buffer; return A of the bound for each, infinite for rows that are too long."""
        count, width = rows.shape
        single, near = self.single[:count], self.rows[:count, :width]
        single.numpy()[...] = rows
        single.numpy()[norms >= LONGEST] = 0
        near.copy_(single)
        lost = single.sub_(near).numpy()
        lengths = np.sqrt(np.einsum("ij,ij->i", lost, lost).astype(np.float64)) * (1 + width * 2.0**-23) + 1e-16
        of, sizes = self.rough, np.minimum(norms, LONGEST)
        error = lengths * of.spread + (sizes + lengths) * (of.lost + of.steps * of.length) + of.constant
        error += 2.0**-40 * sizes * of.longest
        return np.where(norms < LONGEST, np.maximum(error, _LEAST), np.inf)

    def _scores(self, tile: "torch.Tensor") -> np.ndarray:
        """Multiply the block by a tile; return the bits of the scores, in a buffer that is used again."""
        import torch

        out = self.scores[: len(self.rows) * tile.shape[1]].view(len(self.rows), -1)
        torch.mm(self.rows, tile, out=out)
        return np.asarray(out.view(torch.int16).numpy())


def _least_bits(best: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Return t of the bound as bits, rounded up to what is stored; `_NONE`, which no score has, where t <= 0."""
    value = (best.astype(np.int32) << 16).view(np.float32).astype(np.float64)
    least = (value * (1 - _STEP) - 2 * error) / (1 + _STEP)
    single = np.nextafter(least.astype(np.float32), np.float32(-np.inf))
    up = (single.view(np.int32) + 0xFFFF) >> 16
    return np.where((least > 0) & (single > 0), up, _NONE).astype(np.int16)
