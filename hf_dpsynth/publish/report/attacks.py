"""What attacks found, as tables and a figure: published figures on one page, those of real texts on the other."""

from collections.abc import Mapping, Sequence
from typing import Any

from hf_dpsynth.audit.attacks import AttackResult
from hf_dpsynth.figures.drawing import Figure, Table, axes, draw, label, legend
from hf_dpsynth.figures.palette import Palette
from hf_dpsynth.publish.report.numerals import NONE, figure, percent, span

_SIZE = (4.2, 3.6)
_MOST_CURVES = 4
_LEAST_RATE = 1e-3
_LINES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
_READ = (0.001, 0.01, 0.1)  # the false positive rates that a table reads a curve at


def published_table(audits: Sequence[Mapping[str, Any]]) -> Table:
    """Return the audits of a record. Public.

    Args:
        audits (`Sequence[Mapping]`): `audit` of a claim.
    """
    rows = tuple(
        (
            one["attack"],
            one["metric"],
            figure(one["value"]),
            span(one["ci"]),
            "no guarantee covers it" if one["uses_private_data"] else "no private data",
        )
        for one in audits
    )
    return Table("What attacks found", ("attack", "metric", "value", "interval", "reads"), rows, frozenset((2, 3)))


def attacks_table(results: Sequence[AttackResult]) -> Table:
    """Return the figures of attacks. Sensitive."""
    rows = tuple(
        (one.attack, one.metric, figure(one.value), span(one.interval), f"{one.n:,}", _verdict(one))
        for result in results
        for one in result.findings
    )
    columns = ("attack", "metric", "value", "interval", "n", "claim")
    return Table("Every attack with its figures", columns, rows, frozenset((2, 3, 4)))


def _verdict(finding: Any) -> str:
    if finding.claimed is None:
        return NONE
    return f"{figure(finding.claimed)}, {'refuted' if finding.violated else 'not refuted'}"


def sentences(results: Sequence[AttackResult]) -> tuple[str, ...]:
    """Return what the attacks say on their limits, each sentence once. Sensitive."""
    return tuple(dict.fromkeys(line for result in results for one in result.findings for line in one.limits))


def curves(results: Sequence[AttackResult]) -> Figure | None:
    """Draw the curves of membership attacks on logarithmic axes, or return None where there is none.

    Args:
        results (`Sequence[AttackResult]`): of which at most 4 with a curve are drawn. Sensitive.
    """
    shown = [one for one in results if one.curve][:_MOST_CURVES]
    if not shown:
        return None

    def paint(canvas: Any, palette: Palette) -> None:
        plot = axes(canvas, palette)
        plot.plot([_LEAST_RATE, 1], [_LEAST_RATE, 1], color=palette.muted, linewidth=1, label="knows nothing")
        colors = (palette.synthetic, palette.real, palette.ink, palette.muted)
        for one, color, line in zip(shown, colors, _LINES, strict=False):
            false, true = zip(*((max(a, _LEAST_RATE), max(b, _LEAST_RATE)) for a, b in one.curve), strict=True)
            plot.step(false, true, where="post", color=color, linestyle=line, linewidth=2, label=label(one.name, 28))
        plot.set(xscale="log", yscale="log", xlim=(_LEAST_RATE, 1), ylim=(_LEAST_RATE, 1))
        plot.set(xlabel="false positive rate", ylabel="true positive rate")
        legend(canvas, plot, palette)

    rows = tuple((one.name, *(percent(_at(one, rate)) for rate in _READ)) for one in shown)
    said = "; ".join(f"{name}: {', '.join(rates)}" for name, *rates in rows)
    at = ", ".join(percent(rate) for rate in _READ)
    alt = f"Rates of true positives at {at} false positives; an attack that knows nothing has the same rate. {said}."
    columns = ("attack", *(f"at {percent(rate)} false" for rate in _READ))
    table = Table("True positive rates", columns, rows, frozenset(range(1, 1 + len(_READ))))
    return draw("attacks", "Who was among the records", alt, table, _SIZE, paint)


def _at(result: AttackResult, rate: float) -> float:
    """Return the rate of true positives at no more than so many false ones."""
    return max(true for false, true in result.curve if false <= rate)
