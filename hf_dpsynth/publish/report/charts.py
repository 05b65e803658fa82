"""The figures of the publishable page: budget, lengths and labels, from public facts alone.

`lengths` also draws the private page's comparison; what it is given decides how sensitive its figure is.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from hf_dpsynth.figures.drawing import Figure, Table, axes, draw, label, legend
from hf_dpsynth.figures.palette import Palette
from hf_dpsynth.publish.card import number
from hf_dpsynth.publish.report import texts
from hf_dpsynth.publish.report.budget import Spent
from hf_dpsynth.publish.report.facts import PublicFacts, Share
from hf_dpsynth.publish.report.numerals import NONE, figure, loss, percent
from hf_dpsynth.publish.shortened import MOST

_SIZE = (4.2, 2.7)
_MOST_CELLS, _FEWEST_CELLS = 24, 7
_MOST_BARS = 12
_NICE = (1, 2, 5)


def public_figures(facts: PublicFacts) -> dict[str, Figure]:
    """Draw the figures of the publishable page by name; one that has nothing to show is left out.

    Args:
        facts (`PublicFacts`): what the page shows. Public.
    """
    found = []
    epsilon = facts.claim["parameters"]["epsilon"]
    if epsilon is not None and any(row.total for row in facts.spent):
        found.append(budget(facts, epsilon))
    if facts.texts:
        found += [
            lengths("words", {facts.kind: texts.word_counts(facts.texts)}),
            lengths("characters", {facts.kind: texts.characters(facts.texts)}),
        ]
    if facts.labels:
        found.append(labels(facts.labels))
    return {one.name: one for one in found}


def budget(facts: PublicFacts, epsilon: float) -> Figure:
    """Draw what each charge cost alone, and what all up to it cost together.

    Args:
        facts (`PublicFacts`): with charges that have a loss.
        epsilon (`float`): the claim.
    """
    own = [row.own or 0.0 for row in facts.spent]
    total = [row.total or 0.0 for row in facts.spent]
    ends = list(accumulate(row.count for row in facts.spent))
    count, grouped = ends[-1], ends[-1] > len(ends)
    alone = "these charges alone" if grouped else "this charge alone"
    bars = f", taken together in {len(own)} bars" if grouped else ""
    middles = [end - (row.count - 1) / 2 for end, row in zip(ends, facts.spent, strict=True)]
    widths = [row.count * min(0.62, 0.2 + 0.05 * len(own)) for row in facts.spent]
    room = 0.7 * facts.spent[0].count

    def paint(canvas: Any, palette: Palette) -> None:
        plot = axes(canvas, palette)
        plot.axhline(epsilon, color=palette.muted, linewidth=1.2, linestyle=(0, (4, 3)), label="the claim")
        plot.bar(middles, own, width=widths, color=palette.quiet, label=alone)
        marks = {"marker": "o", "markersize": 5.5, "markeredgecolor": palette.panel, "markeredgewidth": 1}
        plot.plot(ends, total, color=palette.synthetic, linewidth=2, label="all charges so far", **marks)
        plot.set(xlabel="charge, in order", ylabel="DP epsilon", xlim=(0.3, count + room), ylim=(0, epsilon * 1.12))
        plot.xaxis.get_major_locator().set_params(integer=True)
        legend(canvas, plot, palette)

    claim = facts.claim["parameters"]
    alt = (
        f"{count:,} charge{'s' * (count > 1)}{bars}. The cumulative DP epsilon rises from {loss(total[0])} to "
        f"{loss(total[-1])} at delta = {number(claim['delta'])}; the claim is {number(epsilon)}."
    )
    title = "Budget: cumulative DP epsilon by charge"
    return draw("budget", title, alt, budget_table(facts), _SIZE, paint)


def budget_table(facts: PublicFacts) -> Table:
    """Return the charges with their costs."""
    metric = facts.claim["parameters"]["metric_dp"] is not None
    secret = facts.claim["parameters"]["secret_protection"] is not None
    costs = () if secret else ("scale per word",) if metric else ("DP epsilon alone", "DP epsilon so far")
    rows = []
    for row in facts.spent:
        held = (loss(row.own), loss(row.total))[: len(costs)]
        rows.append((row.name, *held, _state(row), row.reads, row.dates))
    most = max((row.count for row in facts.spent), default=1)
    return Table(
        "Every charge of the ledger, in order" + (f", up to {most:,} in a row of this table" if most > 1 else ""),
        ("charge" if most == 1 else "charges", *costs, "state", "what was read", "date (UTC)"),
        tuple(rows),
        frozenset(range(1, 1 + len(costs))),
    )


def _state(row: Spent) -> str:
    """Return in words what became of charges."""
    if not row.num_lost:
        return "released"
    return ("lost" if row.count == 1 else f"{row.num_lost:,} of {row.count:,} lost") + ", and spent all the same"


def cells(*sets: Sequence[int]) -> np.ndarray:
    """Return the edges of at most 24 equal cells, of a round width, that hold all whole numbers of some sets.

    Examples:
        >>> cells([3, 4, 4, 7])
        array([3, 4, 5, 6, 7, 8])
    """
    low = min(min(values) for values in sets if values)
    high = max(max(values) for values in sets if values)
    widths = (step * 10**power for power in range(16) for step in _NICE)
    width = next(step for step in widths if high // step - low // step < _MOST_CELLS)
    edges: np.ndarray = np.arange(low // width, high // width + 2) * width
    return edges


def lengths(unit: str, sets: Mapping[str, Sequence[int]]) -> Figure:
    """Draw how long texts are.

    Args:
        unit (`str`): what is counted: words or characters.
        sets (`Mapping[str, Sequence[int]]`): the lengths of the released texts by what they are called, and after
            them those of the real texts under `"real"`, if at all. With these, lengths and figure are sensitive.
    """
    edges = cells(*sets.values())
    ours, *others = sets
    shares = {name: np.histogram(values, edges)[0] / len(values) for name, values in sets.items()}

    def paint(canvas: Any, palette: Palette) -> None:
        plot = axes(canvas, palette)
        width, ends = edges[1] - edges[0], edges - 0.5  # a cell is as wide as the whole numbers that it holds
        look = {"width": width * 0.92, "align": "edge", "color": palette.synthetic}
        plot.bar(ends[:-1], shares[ours] * 100, label=ours, **look)
        for name in others:
            plot.stairs(shares[name] * 100, ends, color=palette.real, linewidth=2, label=name)
            legend(canvas, plot, palette)
        room = max(0, _FEWEST_CELLS + 1 - len(edges)) * width / 2
        plot.set(xlabel=f"{unit} in a text", ylabel="% of texts", xlim=(max(-0.5, ends[0] - room), ends[-1] + room))
        plot.xaxis.get_major_locator().set_params(integer=True)

    alt = " ".join(_middle(name, values, unit) for name, values in sets.items())
    rows = tuple(
        (_place(int(first), int(after) - 1), *(percent(shares[name][at]) for name in sets))
        for at, (first, after) in enumerate(pairwise(edges))
    )
    columns = (unit, *sets)
    table = Table(f"Share of texts by their number of {unit}", columns, rows, frozenset(range(1, len(columns))))
    return draw(f"length-{unit}", f"Length in {unit}", alt, table, _SIZE, paint)


def _middle(name: str, values: Sequence[int], unit: str) -> str:
    """Return in words where the lengths of a set lie."""
    low, middle, high = (figure(float(end)) for end in np.quantile(values, [0.05, 0.5, 0.95]))
    if low == high:
        return f"Nearly all {name} texts have {middle} {unit}."
    return f"The median {name} text has {middle} {unit}; nine of ten have {low} to {high}."


def _place(first: int, last: int) -> str:
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def labels(shares: Sequence[Share]) -> Figure:
    """Draw which share of the rows each label has.

    Args:
        shares (`Sequence[Share]`): the labels, at least one. Public.
    """
    total = sum(share.rows for share in shares) or 1
    largest = sorted(shares, key=lambda share: -share.rows)[:_MOST_BARS]
    bars = [(label(share.label), share.rows / total) for share in largest]
    if len(shares) > len(largest):
        bars.append(("all others", 1 - sum(share for _, share in bars)))
    declared = [(share.declared, at) for at, share in enumerate(largest) if share.declared is not None]

    def paint(canvas: Any, palette: Palette) -> None:
        plot = axes(canvas, palette, grid="x")
        plot.barh(range(len(bars)), [100 * share for _, share in bars], height=0.55, color=palette.synthetic)
        for at, (_, share) in enumerate(bars):
            place = {"xytext": (9, 0), "textcoords": "offset points", "va": "center", "color": palette.ink}
            plot.annotate(percent(share), (100 * max(share, *(d for d, to in declared if to == at), 0), at), **place)
        if declared:
            ends, places = zip(*((100 * share, at) for share, at in declared), strict=True)
            look = {"markersize": 15, "markeredgewidth": 2, "color": palette.ink}
            plot.plot(ends, places, "|", label="declared share", **look)
            legend(canvas, plot, palette)
        plot.set_yticks(range(len(bars)), [""] * len(bars))
        plot.set_yticklabels([name for name, _ in bars], parse_math=False, color=palette.ink)
        widest = max(share for share in (*(share for _, share in bars), *(share for share, _ in declared)))
        plot.set(xlabel="% of rows", xlim=(0, 118 * widest or 1), ylim=(len(bars) - 0.5, -0.5))

    title, height = "Labels", max(1.6, 0.95 + 0.33 * len(bars))
    return draw("labels", title, _shares(largest, len(shares), total), labels_table(shares), (_SIZE[0], height), paint)


def _shares(largest: Sequence[Share], count: int, total: int) -> str:
    """Return in words which labels are the largest."""
    parts = [f"{share.label} {percent(share.rows / total)}" for share in largest]
    more = f", and {count - len(largest)} more" if count > len(largest) else ""
    return f"Shares of the rows by label: {', '.join(parts)}{more}."


def labels_table(shares: Sequence[Share]) -> Table:
    """Return the labels with their rows; of more than 50, those with the most rows, and all others as one."""
    total = sum(share.rows for share in shares) or 1
    if len(shares) > MOST:
        order = sorted(shares, key=lambda share: -share.rows)
        rest = order[MOST:]
        declared = [share.declared for share in rest if share.declared is not None]
        others = Share(f"{len(rest):,} more labels", sum(one.rows for one in rest), math.fsum(declared) or None)
        shares = [*order[:MOST], others]
    rows = tuple(
        (
            share.label,
            f"{share.rows:,}",
            percent(share.rows / total),
            NONE if share.declared is None else percent(share.declared),
        )
        for share in shares
    )
    return Table("Rows by label", ("label", "rows", "share", "declared share"), rows, frozenset((1, 2, 3)))
