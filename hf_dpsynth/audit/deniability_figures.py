"""The figures of a study of plausible deniability: tags in and out, N_w, S_w, distances, and bands of frequency.

They are those of Arnold et al. 2023, arXiv:2306.01471, Figures 2, 4 and 5, for one mechanism at one scale. Public.
"""

from typing import Any

import numpy as np

from hf_dpsynth.audit.deniability import Deniability
from hf_dpsynth.figures.drawing import Figure, Table, axes, draw
from hf_dpsynth.figures.palette import Palette
from hf_dpsynth.metrics.plausible_deniability import AMONG, MOST_SELF

_SIZE = (4.2, 2.7)
_SQUARE = (5.4, 4.4)
_CELLS = 20
_FAINTEST = 0.04
_DEEPEST = 0.6  # of a colour under text, which must stay readable on a light and on a dark page


def deniability_figures(found: Deniability) -> dict[str, Figure]:
    """Draw the figures of a study by name.

    Args:
        found (`Deniability`): public.
    Raises:
        MissingExtra: matplotlib is not installed.
    """
    drawn = [
        _confusion(found),
        _histogram(
            "self-substitution",
            "N_w: draws that return the word",
            "% of draws that return the word",
            found.self_substitution,
            np.linspace(0, 100, _CELLS + 1),
            "words",
            limit=MOST_SELF,
        ),
        _histogram(
            "distinct",
            f"S_w: different words in {min(found.draws, AMONG)} draws",
            f"different words in {min(found.draws, AMONG)} draws",
            found.distinct,
            np.linspace(0, min(found.draws, AMONG), min(_CELLS, found.draws) + 1),
            "words",
        ),
        _bands(found),
    ]
    if len(found.distances):
        edges = np.linspace(0, float(found.distances.max()), _CELLS + 1)
        title = "Distance of substitutes that differ"
        drawn.append(_histogram("distances", title, "Euclidean distance", found.distances, edges, "substitutes"))
    return {one.name: one for one in drawn}


def _confusion(found: Deniability) -> Figure:
    """Draw which share of the draws of words of each tag got which tag."""
    totals = found.confusion.sum(axis=1)
    seen = np.flatnonzero(totals)
    shares = found.confusion[seen] / totals[seen, None]
    names = [found.tags[row] for row in seen]

    def paint(canvas: Any, palette: Palette) -> None:
        plot = axes(canvas, palette)
        for side in ("left", "bottom"):
            plot.spines[side].set_visible(False)
        plot.grid(visible=False)
        for row, line in enumerate(shares):
            for column, share in enumerate(line):
                look = {
                    "facecolor": palette.synthetic,
                    "alpha": _FAINTEST + (_DEEPEST - _FAINTEST) * share,
                    "linewidth": 0,
                }
                plot.bar(column, 0.94, width=0.94, bottom=row - 0.47, **look)
                if round(100 * share):
                    text = {"ha": "center", "va": "center", "fontsize": 8, "color": palette.ink}
                    plot.text(column, row, f"{100 * share:.0f}", **text)
        plot.set(xlim=(-0.5, len(found.tags) - 0.5), ylim=(len(names) - 0.5, -0.5))
        plot.set_xticks(range(len(found.tags)), found.tags, rotation=45, ha="right", rotation_mode="anchor")
        plot.set_yticks(range(len(names)), names)
        plot.set(xlabel="tag of the substitute", ylabel="tag of the word")

    diagonal = found.tags_kept
    alt = (
        f"{100 * diagonal:.1f} % of all draws keep the lexical tag of their word. By tag: "
        + ", ".join(
            f"{name} {100 * shares[at, row]:.0f} %" for at, (row, name) in enumerate(zip(seen, names, strict=True))
        )
        + "."
    )
    rows = tuple(
        (f"{name} ({total:,} draws)", *(f"{100 * share:.1f}" for share in line))
        for name, total, line in zip(names, totals[seen].tolist(), shares, strict=True)
    )
    heads = ("tag of the word", *found.tags)
    table = Table("Tags of substitutes, in % of the draws", heads, rows, frozenset(range(1, len(heads))))
    return draw("tag-confusion", "Tags in and out, % of draws", alt, table, _SQUARE, paint)


def _histogram(
    name: str,
    title: str,
    what: str,
    values: np.ndarray,
    edges: np.ndarray,
    unit: str,
    limit: float | None = None,
) -> Figure:
    """Draw how values are spread, with a dashed limit where there is one."""
    shares = 100 * np.histogram(values, edges)[0] / len(values)

    def paint(canvas: Any, palette: Palette) -> None:
        plot = axes(canvas, palette)
        width = edges[1] - edges[0]
        plot.bar(edges[:-1], shares, width=width * 0.92, align="edge", color=palette.synthetic)
        if limit is not None:
            plot.axvline(limit, color=palette.muted, linewidth=1.2, linestyle=(0, (4, 3)))
        plot.set(xlabel=what, ylabel=f"% of {unit}", xlim=(edges[0], edges[-1]))

    low, middle, high = (f"{value:.3g}" for value in np.quantile(values, [0.1, 0.5, 0.9]))
    alt = f"{title}: the median is {middle}; eight of ten {unit} lie between {low} and {high}."
    if limit is not None:
        alt += f" {100 * float((values <= limit).mean()):.0f} % of {unit} are at or below {limit:g}."
    rows = tuple(
        (f"{first:.3g} to {after:.3g}", f"{share:.1f}")
        for first, after, share in zip(edges[:-1], edges[1:], shares, strict=True)
    )
    table = Table(title, (what, f"% of {unit}"), rows, frozenset({1}))
    return draw(name, title, alt, table, _SIZE, paint)


def _bands(found: Deniability) -> Figure:
    """Draw mean N_w by frequency, most frequent words first."""
    bands = found.bands
    names = [f"{band.first:,}\nto {band.last:,}" for band in bands]
    own = [band.self_substitution for band in bands]

    def paint(canvas: Any, palette: Palette) -> None:
        plot = axes(canvas, palette)
        plot.bar(range(len(bands)), own, width=0.62, color=palette.synthetic)
        plot.axhline(MOST_SELF, color=palette.muted, linewidth=1.2, linestyle=(0, (4, 3)))
        plot.set_xticks(range(len(bands)), names, fontsize=7.5)
        plot.set(xlabel="frequency rank of the word", ylabel="mean N_w, %", ylim=(0, 104))

    alt = (
        f"Mean self-substitution by frequency: {own[0]:.1f} % for the words of ranks {bands[0].first:,} to "
        f"{bands[0].last:,}, {own[-1]:.1f} % for those of ranks {bands[-1].first:,} to {bands[-1].last:,}."
    )
    rows = tuple(
        (
            f"{band.first:,} to {band.last:,}",
            f"{band.num_words:,}",
            f"{band.self_substitution:.1f}",
            f"{band.distinct:.1f}",
            f"{100 * band.tags_kept:.1f}",
        )
        for band in bands
    )
    heads = ("frequency rank", "words", "mean N_w, %", "mean S_w", "tags kept, %")
    table = Table("By frequency of the word", heads, rows, frozenset(range(1, len(heads))))
    return draw("bands", "N_w by frequency of the word", alt, table, _SIZE, paint)
