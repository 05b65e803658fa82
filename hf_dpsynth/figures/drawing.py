"""Figures: each drawn for a light and a dark page, with words and a table that say what it shows.

Drawn with the objects of matplotlib, so that no global state of a notebook is touched. Equal input gives equal bytes;
a file holds no date, no path and no name of a machine.
"""

import base64
import io
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from hf_dpsynth.extras import need
from hf_dpsynth.figures.palette import DARK, LIGHT, Palette
from hf_dpsynth.figures.signs import visible

MARK = "hf-dpsynth report"  # in every picture, so that none of somebody else's is replaced
_DOTS = 200  # of a PNG, for each inch
_PIXELS = 96  # of a page, for each inch
_COLOR = re.compile(r"(?<=: )#[0-9a-f]{6}\b")
_DARKENED = {color: getattr(DARK, name) for name, color in asdict(LIGHT).items()}
_FONT = re.compile(r"font-family: [^;\"]*")
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": MARK,
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "axes.unicode_minus": False,
    "path.simplify": False,
}
Cell = str


@dataclass(frozen=True)
class Table:
    """A table: what it says, its columns and its rows, all as text. As sensitive as what it was made from.

    Args:
        caption (`str`): what the table says.
        columns (`tuple[str, ...]`): the heads of the columns; the first one names the rows.
        rows (`tuple[tuple[str, ...], ...]`): the cells.
        numbers (`frozenset[int]`): the columns that hold numbers, which are set to the right.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True, repr=False)
class Figure:
    """A figure as a page embeds it. As sensitive as what it was made from.

    Args:
        name (`str`): the name of its file, without the ending.
        title (`str`): what it is about.
        alt (`str`): what it shows, in words.
        table (`Table`): the numbers behind it.
        light (`str`): the SVG for a light page, as a data URI.
        dark (`str`): the SVG for a dark page.
        png (`bytes`): the picture as a file, on a light ground.
        width (`int`): in pixels of a page.
        height (`int`): in pixels of a page.
    """

    name: str
    title: str
    alt: str
    table: Table
    light: str
    dark: str
    png: bytes = field(repr=False)
    width: int
    height: int

    def __repr__(self) -> str:
        return f"Figure({self.name!r})"


Paint = Callable[[Any, Palette], None]


def draw(name: str, title: str, alt: str, table: Table, size: tuple[float, float], paint: Paint) -> Figure:
    """Draw a figure, exchange its colours for the dark theme, and make a file of it.

    Args:
        name (`str`): the name of its file, without the ending.
        title (`str`): what it is about.
        alt (`str`): what it shows, in words.
        table (`Table`): the numbers behind it.
        size (`tuple[float, float]`): width and height in inches.
        paint (`Callable`): draws onto an empty figure of matplotlib, in the colours of the palette that it is given.
    Raises:
        MissingExtra: matplotlib is not installed.
    """
    svg, png = _drawn(size, paint)
    light = _FONT.sub("font-family: system-ui, sans-serif", svg)
    return Figure(
        name=name,
        title=title,
        alt=alt,
        table=table,
        light=_uri(light),
        dark=_uri(_COLOR.sub(lambda found: _DARKENED.get(found[0], found[0]), light)),
        png=png,
        width=round(size[0] * _PIXELS),
        height=round(size[1] * _PIXELS),
    )


def _uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode("utf-8")).decode("ascii")


def _drawn(size: tuple[float, float], paint: Paint) -> tuple[str, bytes]:
    """Return a figure in the light theme: as SVG without a ground, and as PNG on the ground of a panel."""
    style = need("matplotlib.style", extra="metrics", what="a figure")
    canvas = need("matplotlib.figure", extra="metrics", what="a figure")
    svg, png = io.BytesIO(), io.BytesIO()
    with style.context(["default", _STYLE]):
        figure = canvas.Figure(figsize=size, layout="constrained", facecolor=LIGHT.panel)
        paint(figure, LIGHT)
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": MARK}, transparent=True)
        figure.set_layout_engine("none")  # everything is at its place now
        figure.savefig(png, format="png", metadata={"Software": MARK}, dpi=_DOTS)
    return svg.getvalue().decode("utf-8"), png.getvalue()


def axes(figure: Any, palette: Palette, *, at: tuple[int, int, int] = (1, 1, 1), grid: str = "y") -> Any:
    """Return calm axes: thin lines, quiet labels, a grid along one axis only."""
    plot = figure.add_subplot(*at)
    for side in ("top", "right", "left" if grid == "y" else "bottom"):
        plot.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        plot.spines[side].set_color(palette.line)
    plot.tick_params(colors=palette.muted, length=0, pad=5)
    plot.grid(axis=grid, color=palette.line, linewidth=0.8)
    plot.set_axisbelow(True)
    plot.xaxis.label.set_color(palette.muted)
    plot.yaxis.label.set_color(palette.muted)
    plot.margins(x=0.02)
    return plot


def legend(canvas: Any, plot: Any, palette: Palette) -> None:
    """Put the legend of axes above all axes of a figure, in one row."""
    look = {
        "frameon": False,
        "labelcolor": palette.ink,
        "handlelength": 1.6,
        "columnspacing": 1.4,
        "borderaxespad": 0.0,
    }
    canvas.legend(*plot.get_legend_handles_labels(), loc="outside upper left", ncols=3, **look)


def label(text: str, longest: int = 22) -> str:
    """Return a text that a figure can show: short, on one line, in signs that its font has."""
    line = " ".join(visible(text).split())
    known = _signs()
    line = "".join(sign if ord(sign) in known else "?" for sign in line)
    return line if len(line) <= longest else line[: longest - 1] + "…"


@lru_cache(maxsize=1)
def _signs() -> frozenset[int]:
    manager = need("matplotlib.font_manager", extra="metrics", what="a figure")
    path = manager.findfont("DejaVu Sans")
    return frozenset(manager.get_font(path).get_charmap())
