"""Small pictures written as SVG text by hand: equal input gives equal bytes, whatever libraries are installed.

They load nothing, run nothing and hold no date, path or name of a machine. Places are rounded to a tenth of a pixel,
so that the last digits of a computation, which differ between machines, do not show.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from hf_dpsynth.figures.palette import LIGHT

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 480, 70, 24, 52, 48
_HEIGHT = 312
_BAR, _NAMES, _VALUES = 30, 240, 62  # the height of a bar's row, the width of the names and of the values beside it


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis: its name, its ends, and what stands at which places. Public.

    Args:
        name (`str`): what it shows.
        low (`float`): the value at its start.
        high (`float`): the value at its end.
        ticks (`tuple[tuple[float, str], ...]`): places and what stands there.
    """

    name: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def share(self, value: float) -> float:
        """Return how far a value is along the axis, from 0 to 1."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


def curve(
    title: str,
    alt: str,
    across: Axis,
    up: Axis,
    points: Sequence[tuple[float, float]],
    mark: tuple[float, float, str] | None = None,
) -> bytes:
    """Draw a line through points, and one marked place of it.

    Args:
        title (`str`): what it is about.
        alt (`str`): what it shows, in words.
        across (`Axis`): the horizontal axis.
        up (`Axis`): the vertical axis.
        points (`Sequence[tuple[float, float]]`): at least two.
        mark (`tuple[float, float, str]`, *optional*): a place and its name.
    """
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + width * across.share(x), _TOP + height * (1 - up.share(y))

    parts = []
    for value, name in up.ticks:
        _, y = place(across.low, value)
        parts += [_line(_LEFT, y, _LEFT + width, y), _text(_LEFT - 8, y + 4, name, "end")]
    for value, name in across.ticks:
        x, y = place(value, up.low)
        parts += [_line(x, y, x, y + 4), _text(x, y + 19, name, "middle")]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
    parts.append(f'<polyline points="{path}" fill="none" stroke="{LIGHT.synthetic}" stroke-width="2"/>')
    if mark is not None:
        x, y = place(*mark[:2])
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{LIGHT.real}"/>')
        parts.append(_text(x + 9, y - 8 if points[0][1] > points[-1][1] else y + 17, mark[2], "start", LIGHT.ink))
    parts.append(_text(_LEFT + width / 2, _HEIGHT - 10, across.name, "middle"))
    parts.append(_text(_LEFT, _TOP - 9, up.name, "start"))
    return _svg(_HEIGHT, title, alt, parts)


def bars(title: str, alt: str, unit: str, rows: Sequence[tuple[str, float, str]]) -> bytes:
    """Draw horizontal bars that begin at 0; the last one stands for all others.

    Args:
        title (`str`): what it is about.
        alt (`str`): what it shows, in words.
        unit (`str`): what the lengths are.
        rows (`Sequence[tuple[str, float, str]]`): name, length and what stands at the end of each bar.
    """
    width = _WIDTH - _NAMES - _VALUES
    most = max(value for _, value, _ in rows) or 1.0
    parts = [_text(_NAMES, _TOP - 9, unit, "start")]
    for at, (name, value, shown) in enumerate(rows):
        y, length = _TOP + at * _BAR, width * value / most
        color = LIGHT.muted if at == len(rows) - 1 else LIGHT.synthetic
        parts.append(_text(_NAMES - 10, y + 19, name, "end", LIGHT.ink))
        parts.append(f'<rect x="{_NAMES}" y="{y + 5}" width="{length:.1f}" height="{_BAR - 12}" fill="{color}"/>')
        parts.append(_text(_NAMES + length + 7, y + 19, shown, "start", LIGHT.ink))
    return _svg(_TOP + len(rows) * _BAR + 14, title, alt, parts)


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<path d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" stroke="{LIGHT.line}"/>'


def _text(x: float, y: float, text: str, anchor: str, color: str = LIGHT.muted) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}"'
    return f"<text {place}>{html.escape(text)}</text>"


def _svg(height: int, title: str, alt: str, parts: Sequence[str]) -> bytes:
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif" font-size="12">'
    words = f"<title>{html.escape(title)}</title>\n<desc>{html.escape(alt)}</desc>"
    ground = f'<rect width="{_WIDTH}" height="{height}" fill="{LIGHT.panel}"/>'
    shown = f'<text x="12" y="18" font-size="13" font-weight="bold" fill="{LIGHT.ink}">{html.escape(title)}</text>'
    return "\n".join([head, words, ground, shown, *parts, "</svg>", ""]).encode("utf-8")
