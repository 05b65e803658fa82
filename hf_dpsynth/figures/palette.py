"""The colours of a report, for its pages and its figures alike, in a light and a dark theme.

Blue is synthetic and orange is real everywhere: a pair that colour-blind readers tell apart, and figures never tell
them apart by colour alone. Text has a contrast of 4.5 and more on every ground that it stands on.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Palette:
    """One theme: colours as `#rrggbb`, named by what they are for."""

    page: str
    panel: str
    ink: str
    muted: str
    line: str
    accent: str
    synthetic: str
    real: str
    quiet: str
    good: str
    good_ground: str
    warn: str
    warn_ground: str
    bad: str
    bad_ground: str


LIGHT = Palette(
    page="#f6f6f3",
    panel="#ffffff",
    ink="#1a1b1e",
    muted="#5b5d63",
    line="#e2e2dc",
    accent="#1c5fb8",
    synthetic="#2a78d6",
    real="#cf4f14",
    quiet="#c9d3df",
    good="#0a5a2c",
    good_ground="#e2f3e7",
    warn="#744600",
    warn_ground="#fcefd6",
    bad="#8f1414",
    bad_ground="#fce4e1",
)
DARK = Palette(
    page="#121315",
    panel="#1b1d20",
    ink="#f1f1ee",
    muted="#a6a9af",
    line="#33363b",
    accent="#82b5f7",
    synthetic="#4f98ee",
    real="#ee7d45",
    quiet="#475464",
    good="#8edcaa",
    good_ground="#14331f",
    warn="#f2c879",
    warn_ground="#382a0e",
    bad="#ffb3aa",
    bad_ground="#471614",
)
