"""A batch of public texts against the index: which parts overlap, and what is left when they are cut out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from hf_dpsynth.contamination.index import PrivateIndex
from hf_dpsynth.contamination.windows import Flat, Windows

TOKEN = re.compile(r"\S+")  # what str.split() gives, with its place

Ranges = list[tuple[int, int]]


@dataclass(frozen=True, repr=False)
class Batch:
    """What a batch of public texts shares with the private ones. Sensitive.

    Args:
        num_texts (`int`): the texts of the batch.
        num_windows (`int`): windows of them that a private text has.
        spans (`list[tuple[int, int, int, int, int]]`): the number of a text, and where an overlap begins and ends, in
            tokens and in characters.
        cuts (`dict[int, list[tuple[int, int]]]`): the characters to cut from a text.
        lengths (`dict[int, int]`): the characters of each text that overlaps.
        entries (`tuple[np.ndarray, ...]`): what each finder found.
    """

    num_texts: int
    num_windows: int
    spans: list[tuple[int, int, int, int, int]]
    cuts: dict[int, Ranges]
    lengths: dict[int, int]
    entries: tuple[np.ndarray, ...]


def scan(index: PrivateIndex, texts: Sequence[str | None], *, cut: bool) -> Batch:
    """Search a batch of public texts.

    Args:
        index (`PrivateIndex`): what the private texts hold. Sensitive.
        texts (`Sequence[str | None]`): the batch. Public.
        cut (`bool`): whether to say what to cut, too.
    Returns:
        `Batch`: what was found. Sensitive.
    """
    flat = index.flat(texts)
    found = [finder.find(flat) for finder in index.finders]
    starts, ends = _merged([(one.starts, one.ends) for one in found])
    numbers, begins = np.searchsorted(flat.ends, starts), flat.begins
    rows = dict.fromkeys(numbers.tolist())
    places = {row: [match.span() for match in TOKEN.finditer(texts[row] or "")] for row in rows}
    spans = [
        (row, start, end, places[row][start][0], places[row][end - 1][1])
        for row, start, end in zip(
            numbers.tolist(), (starts - begins[numbers]).tolist(), (ends - begins[numbers]).tolist(), strict=True
        )
    ]
    runs = _cut_runs(index, flat, starts, ends) if cut and spans else {}
    windows = (isinstance(finder, Windows) for finder in index.finders)
    return Batch(
        num_texts=len(texts),
        num_windows=sum(len(one.starts) for one, counts in zip(found, windows, strict=True) if counts),
        spans=spans,
        cuts={row: _characters(places[row], parts) for row, parts in runs.items()},
        lengths={row: len(texts[row] or "") for row in rows},
        entries=tuple(np.unique(one.entries) for one in found),
    )


def _merged(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts as spans that neither overlap nor touch; a -1 between texts keeps theirs apart."""
    starts, ends = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    first = np.ones(len(starts), bool)
    first[1:] = starts[1:] > ends[:-1]
    last = np.ones(len(starts), bool)
    last[:-1] = first[1:]
    return starts[first], ends[last]


def _covered(starts: np.ndarray, ends: np.ndarray, count: int) -> np.ndarray:
    """Return whether each position lies in one of some merged spans."""
    steps = np.zeros(count + 1, np.int8)
    steps[starts] = 1
    steps[ends] = -1
    return np.cumsum(steps[:-1], dtype=np.int8) > 0


def _cut_runs(index: PrivateIndex, flat: Flat, starts: np.ndarray, ends: np.ndarray) -> dict[int, Ranges]:
    """Return the tokens to cut from each text, as ranges: after it no overlap is left, across the cuts neither."""
    begins, count = flat.begins, len(flat.ids)
    touched = np.unique(np.searchsorted(flat.ends, starts))
    separators = np.zeros(count, bool)
    separators[flat.ends] = True
    kept = _covered(begins[touched], flat.ends[touched], count)
    kept[flat.ends[touched]] = True
    kept &= ~_covered(starts, ends, count)
    while True:
        where = np.flatnonzero(kept)
        rest = Flat(flat.ids[where], np.flatnonzero(separators[where]), _kept_tokens(flat, touched, kept))
        parts = [finder.find(rest) for finder in index.finders]
        if not any(len(one.starts) for one in parts):
            break
        kept[where[_covered(*_merged([(one.starts, one.ends) for one in parts]), len(where))]] = False
    runs = {}
    for row in touched.tolist():
        gone = ~kept[begins[row] : flat.ends[row]]
        edges = np.flatnonzero(np.diff(np.concatenate(([0], gone, [0]))))
        runs[row] = list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
    return runs


def _kept_tokens(flat: Flat, rows: np.ndarray, kept: np.ndarray) -> list[list[str]]:
    """Return the tokens that are left of some texts, for a finder that reads them as they are written."""
    begins, ends, tokens = flat.begins, flat.ends, flat.tokens or []
    return [list(compress(tokens[row], kept[begins[row] : ends[row] + 1].tolist())) for row in rows.tolist() if tokens]


def _characters(places: Ranges, runs: Ranges) -> Ranges:
    """Return ranges of tokens as ranges of characters, with the white space behind them, or before the last one."""
    found = []
    for first, last in runs:
        if last < len(places):
            found.append((places[first][0], places[last][0]))
        else:
            found.append((places[first - 1][1] if first else places[0][0], places[-1][1]))
    return found


def without(text: str, ranges: Ranges) -> str:
    """Return a text without ranges of its characters.

    Examples:
        >>> without("one two three", [(4, 8)])
        'one three'
    """
    at, pieces = 0, []
    for start, end in ranges:
        pieces.append(text[at:start])
        at = end
    return "".join([*pieces, text[at:]])
