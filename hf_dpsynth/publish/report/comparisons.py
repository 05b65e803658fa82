"""The figures of the private page, which set synthetic beside real texts. Each of them is sensitive."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hf_dpsynth.figures.drawing import Figure, Table, axes, draw, label, legend
from hf_dpsynth.figures.palette import Palette
from hf_dpsynth.publish.report import attacks, texts
from hf_dpsynth.publish.report.charts import lengths
from hf_dpsynth.publish.report.facts import PublicFacts
from hf_dpsynth.publish.report.numerals import NONE, figure, percent, span
from hf_dpsynth.publish.report.private import PrivateFacts, Score, Term

_WIDTH = 4.2
_MOST_STRIPS = 12
_MOST_BARS = 6  # of each sign
_NGRAMS = {1: "words", 2: "pairs of words"}


def private_figures(public: PublicFacts, private: PrivateFacts) -> dict[str, Figure]:
    """Draw the comparisons by name; one that has nothing to show is left out.

    Args:
        public (`PublicFacts`): what the publishable page shows. Public.
        private (`PrivateFacts`): what the private page shows besides. Sensitive.
    """
    found = []
    strips = [score for score in private.scores if score.main and score.floor is not None and _is_finite(score)]
    if strips:
        found.append(scores(strips, public.kind))
    if private.real and public.texts:
        for unit, count in (("words", texts.word_counts), ("characters", texts.characters)):
            found.append(lengths(unit, {public.kind: count(public.texts), "real": count(private.real)}))
    found += [divergences(n, terms, public.kind) for n, terms in private.terms.items() if terms]
    measured = [row for row in private.study if isinstance(row.get("accuracy"), float)]
    if measured:
        found.append(study(measured))
    found += [drawn for drawn in [attacks.curves(private.audits)] if drawn is not None]
    if private.points is not None:
        found.append(plane(*private.points, private.explained, public.kind))
    return {one.name: one for one in found}


def _is_finite(score: Score) -> bool:
    ends = (score.value, score.floor or 0.0, *(score.interval or ()), *(score.floor_interval or ()))
    return all(map(math.isfinite, ends))


def scores_table(scores: Sequence[Score]) -> Table:
    """Return the metrics beside their floors."""
    rows = tuple(
        (
            score.name,
            figure(score.value),
            span(score.interval),
            NONE if score.floor is None else figure(score.floor),
            span(score.floor_interval),
            score.direction,
            NONE if score.rows is None else f"{score.rows:,}",
            NONE if score.floor_rows is None else f"{score.floor_rows:,}",
        )
        for score in scores
    )
    columns = (
        "metric", "score", "smallest to largest", "floor: real texts", "smallest to largest", "better is",
        "rows per side", "rows of the floor",
    )  # fmt: skip
    return Table("Metrics on real texts, each beside its floor", columns, rows, frozenset((1, 2, 3, 4, 6, 7)))


def scores(shown: Sequence[Score], kind: str) -> Figure:
    """Draw each score and its floor on an axis of its own.

    Args:
        shown (`Sequence[Score]`): finite scores that have a floor, at least one. Sensitive.
        kind (`str`): what the released rows are called.
    """
    strips = shown[:_MOST_STRIPS]

    def paint(canvas: Any, palette: Palette) -> None:
        for at, score in enumerate(strips):
            plot = axes(canvas, palette, at=(len(strips), 1, at + 1), grid="x")
            _strip(plot, palette, score, kind)
            if not at:
                legend(canvas, plot, palette)

    alt = "; ".join(
        f"{score.name} {figure(score.value)}, floor {figure(score.floor or 0.0)}"
        + (f", {score.direction} is better" if score.direction != NONE else "")
        for score in strips
    )
    more = f" {len(shown) - len(strips)} more stand in the table." if len(shown) > len(strips) else ""
    alt = f"Scores of {kind} against real, beside the floor of other real texts: {alt}.{more}"
    size = (_WIDTH, 0.45 + 0.62 * len(strips))
    return draw("metrics", "Scores and their floors", alt, scores_table(shown), size, paint)


def _strip(plot: Any, palette: Palette, score: Score, kind: str) -> None:
    """Draw one score and its floor as points with intervals."""
    floor = score.floor or 0.0
    for height, value, interval, color, sign, name in (
        (0.32, score.value, score.interval, palette.synthetic, "o", kind),
        (-0.32, floor, score.floor_interval, palette.real, "D", "the floor: real texts"),
    ):
        low, high = interval or (value, value)
        plot.plot([low, high], [height, height], color=color, linewidth=3, solid_capstyle="round", alpha=0.45)
        plot.plot([value], [height], sign, color=color, markersize=6, label=name)
    ends = [score.value, floor, *(score.interval or ()), *(score.floor_interval or ())]
    room = (max(ends) - min(ends)) * 0.12 or abs(floor) * 0.1 or 1.0
    plot.set(xlim=(min(ends) - room, max(ends) + room), ylim=(-0.9, 0.9))
    plot.set_yticks([0], [""])
    better = {"higher": " ↑", "lower": " ↓"}.get(score.direction, "")
    plot.set_yticklabels([label(score.name, 18) + better], parse_math=False, color=palette.ink)
    plot.xaxis.get_major_locator().set_params(nbins=5)


def divergences(n: int, terms: Sequence[Term], kind: str) -> Figure:
    """Draw the n-grams that are too frequent, and those that are too rare, among the released texts.

    Args:
        n (`int`): words in an n-gram.
        terms (`Sequence[Term]`): the n-grams, at least one. Sensitive.
        kind (`str`): what the released rows are called.
    """
    name = _NGRAMS.get(n, f"{n}-grams")
    over = [term for term in terms if term.synthetic > term.real][:_MOST_BARS]
    under = [term for term in terms if term.synthetic < term.real][:_MOST_BARS]
    shown = [*over, *under[::-1]]

    def paint(canvas: Any, palette: Palette) -> None:
        plot = axes(canvas, palette, grid="x")
        places = range(len(shown))
        for start, group, color, name in (
            (0, over, palette.synthetic, f"more among {kind}"),
            (len(over), under[::-1], palette.real, "more among real"),
        ):
            differences = [term.synthetic - term.real for term in group]
            plot.barh(range(start, start + len(group)), differences, height=0.62, color=color, label=name)
        plot.axvline(0, color=palette.muted, linewidth=1)
        plot.set_yticks(places, [""] * len(shown))
        plot.set_yticklabels([label(term.text) for term in shown], parse_math=False, color=palette.ink)
        plot.set_ylim(len(shown) - 0.4, -0.6)
        plot.set_xlabel("difference per 1,000")
        legend(canvas, plot, palette)

    parts = [
        f"most {word} among the {kind} texts: "
        + ", ".join(f"{term.text} ({figure(term.synthetic)} against {figure(term.real)})" for term in group[:3])
        for word, group in (("over-represented", over), ("under-represented", under))
        if group
    ]
    alt = f"{name.capitalize()}, per 1,000 of each set, {'; '.join(parts)}."
    rows = tuple((term.text, figure(term.synthetic), figure(term.real)) for term in terms)
    columns = (name, kind, "real")
    table = Table(f"{name.capitalize()} that part the sets most, per 1,000 of each", columns, rows, frozenset((1, 2)))
    size = (_WIDTH, 0.95 + 0.245 * len(shown))
    return draw(f"ngrams-{n}", f"{name.capitalize()} that part the sets", alt, table, size, paint)


def plane(synthetic: np.ndarray, real: np.ndarray, explained: float, kind: str) -> Figure:
    """Draw the embeddings of both sets in two dimensions.

    Args:
        synthetic (`np.ndarray`): points, shape (m, 2). Sensitive: their axes come from both sets.
        real (`np.ndarray`): points, shape (n, 2). Sensitive.
        explained (`float`): the share of the variance that two dimensions show.
        kind (`str`): what the released rows are called.
    """

    def paint(canvas: Any, palette: Palette) -> None:
        plot = axes(canvas, palette)
        plot.spines["left"].set_visible(True)
        plot.grid(visible=False)
        look = {"linewidths": 1.1, "alpha": 0.75, "s": 17}
        plot.scatter(*real.T, marker="x", color=palette.real, label="real", **look)
        filled = {"facecolor": palette.synthetic, "edgecolor": palette.panel, **look, "linewidths": 0.5}
        plot.scatter(*synthetic.T, marker="o", label=kind, **filled)
        plot.margins(0.05)
        plot.set(xlabel="first principal direction", ylabel="second", xticks=[], yticks=[])
        legend(canvas, plot, palette)

    apart = float(np.linalg.norm(synthetic.mean(axis=0) - real.mean(axis=0)))
    spread = float(np.sqrt(((real - real.mean(axis=0)) ** 2).sum(axis=1).mean()))
    ratio = NONE if not spread else figure(apart / spread)
    alt = (
        f"{len(synthetic):,} {kind} and {len(real):,} real texts in the two directions that show "
        f"{percent(explained)} of their variance. The centres lie {ratio} times the spread of the real texts apart."
    )
    rows = tuple(
        (name, f"{len(points):,}", *(figure(float(value)) for value in (*points.mean(axis=0), *points.std(axis=0))))
        for name, points in ((kind, synthetic), ("real", real))
    )
    columns = ("set", "points", "mean, first", "mean, second", "deviation, first", "deviation, second")
    table = Table("Where the points of both sets lie", columns, rows, frozenset(range(1, 6)))
    return draw("map", "Map of the embeddings", alt, table, (_WIDTH, 3.9), paint)


def study(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the accuracy of each model of a downstream study on real test rows.

    Args:
        rows (`Sequence[Mapping]`): rows that have an accuracy, at least one. Sensitive.
    """
    shown = rows[:_MOST_STRIPS]
    names = [_named(row) for row in shown]

    def paint(canvas: Any, palette: Palette) -> None:
        plot = axes(canvas, palette, grid="x")
        for at, row in enumerate(shown):
            real = "real" in row.values()
            color, sign = (palette.real, "D") if real else (palette.synthetic, "o")
            low, high = row.get("interval") or (row["accuracy"], row["accuracy"])
            plot.plot([100 * low, 100 * high], [at, at], color=color, linewidth=3, solid_capstyle="round", alpha=0.45)
            plot.plot([100 * row["accuracy"]], [at], sign, color=color, markersize=6)
        plot.set_yticks(range(len(shown)), [""] * len(shown))
        plot.set_yticklabels([label(name, 28) for name in names], parse_math=False, color=palette.ink)
        plot.set(xlabel="% of real test rows that are right", ylim=(len(shown) - 0.4, -0.6))
        plot.margins(x=0.06)

    said = [f"{name} {percent(row['accuracy'])}" for name, row in zip(names, shown, strict=True)]
    more = f" {len(rows) - len(shown)} more stand in the table." if len(rows) > len(shown) else ""
    alt = f"Accuracy on real test rows by what the model was trained on: {'; '.join(said)}.{more}"
    cells = tuple(
        (name, percent(row["accuracy"]), span(row.get("interval"))) for name, row in zip(names, shown, strict=True)
    )
    table = Table("Accuracy on real test rows", ("trained on", "accuracy", "interval"), cells, frozenset((1, 2)))
    return draw("study", "Accuracy on real rows", alt, table, (_WIDTH, 0.8 + 0.34 * len(shown)), paint)


def _named(row: Mapping[str, Any]) -> str:
    """Return what a row of a study is about: its first two words, and how many times the real rows it read."""
    first = [value for value in row.values() if isinstance(value, str)][:2]
    amount = row.get("amount")
    return ", ".join([*first, *([f"{figure(amount)}x"] if isinstance(amount, (int, float)) else [])])
