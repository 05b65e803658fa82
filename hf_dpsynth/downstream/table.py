"""The results of a study as data, as JSON values and as a table. Test accuracy on private rows is itself private."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

_NOT_RUN = "-"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: a model that was trained on one source and tested on the real test rows.

    Args:
        source (`str`): "real", the name of a synthetic set, or what takes the place of training data.
        guarantee (`str`): what the source promises, in short; "unknown" where no release is remembered.
        model (`str`): the model's public name.
        amount (`float`, *optional*): training rows as a multiple of the real ones; None where it does not matter.
        num_train (`int`, *optional*): rows that a fit has read, validation included.
        accuracy (`float`, *optional*): mean over the fits; None where the row says under `limits` why it was not run.
        interval (`tuple[float, float]`, *optional*): Wilson's interval for the draw of the test rows.
        spread (`float`, *optional*): standard deviation over the fits.
        fits (`int`): fits that the figures are averaged over.
        macro_f1 (`float`, *optional*): mean F1 of the classes in the test rows.
        by_group (`Mapping[str, float]`): accuracy by subgroup.
        gap (`float`, *optional*): highest less lowest accuracy of a subgroup.
        test_copies (`int`, *optional*): rows of the source whose text is exactly a test text.
        seconds (`float`): time of all fits and predictions.
        limits (`tuple[str, ...]`): what a reader must know about this line.
    """

    source: str
    model: str
    guarantee: str = ""
    amount: float | None = None
    num_train: int | None = None
    accuracy: float | None = None
    interval: tuple[float, float] | None = None
    spread: float | None = None
    fits: int = 0
    macro_f1: float | None = None
    by_group: Mapping[str, float] = field(default_factory=dict)
    gap: float | None = None
    test_copies: int | None = None
    seconds: float = 0.0
    limits: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Study:
    """The table of a study: train on each source, test on real rows that no mechanism has seen.

    Args:
        rows (`tuple[Row, ...]`): the lines, the baseline first.
        classes (`tuple[str, ...]`): the names of the classes.
        num_test (`int`): real test rows.
        majority (`float`): accuracy of always naming the commonest class of the real training rows.
        confidence (`float`): of the intervals.
        notes (`tuple[str, ...]`): what a reader must know about the data.

    No guarantee covers these figures: they read real test rows. A study is saved nowhere by itself.
    """

    rows: tuple[Row, ...]
    classes: tuple[str, ...]
    num_test: int
    majority: float
    confidence: float
    notes: tuple[str, ...] = ()

    uses_private_data: ClassVar[bool] = True

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values. Sensitive."""
        return {
            "uses_private_data": self.uses_private_data,
            "classes": list(self.classes),
            "num_test": self.num_test,
            "majority": self.majority,
            "confidence": self.confidence,
            "notes": list(self.notes),
            "rows": [
                {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(row).items()}
                for row in self.rows
            ],
        }

    def table(self) -> str:
        """Return the lines as aligned Markdown, with accuracy by subgroup and the limits below. Sensitive."""
        title = f"interval ({self.confidence:.0%})"
        heads = ["training data", "guarantee", "model", "amount", "rows", "accuracy", title, "spread", "macro-F1"]
        heads += ["test copies", "seconds", "see"]
        notes = list(dict.fromkeys((*self.notes, *(limit for row in self.rows for limit in row.limits))))
        lines = [[*_cells(row), ", ".join(str(notes.index(limit) + 1) for limit in row.limits)] for row in self.rows]
        parts = [markdown(heads, lines)]
        groups = sorted({name for row in self.rows for name in row.by_group})
        if groups:
            named = [row for row in self.rows if row.by_group]
            parts.append(
                markdown(["training data", "model", "amount", *groups, "gap"], [_of(r, groups) for r in named])
            )
        said = [f"{number}. {note}." for number, note in enumerate(notes, start=1)]
        parts.append("\n".join([f"{self.num_test} real test rows; majority class {self.majority:.3f}.", *said]))
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.table()


def shown(value: float | None, digits: int = 3) -> str:
    """Return a figure as text, a dash where there is none."""
    return _NOT_RUN if value is None else f"{value:.{digits}f}"


def markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns are aligned in plain text too.

    Examples:
        >>> print(markdown(["a", "long"], [["x", "1"]]))
        | a | long |
        |---|------|
        | x | 1    |
    """
    clean = [[cell.replace("|", "/") for cell in line] for line in (heads, *lines)]
    widths = [max(len(cell) for cell in column) for column in zip(*clean, strict=True)]
    rows = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in clean]
    return "\n".join([rows[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *rows[1:]])


def _amount(row: Row) -> str:
    return _NOT_RUN if row.amount is None else f"{row.amount:g}x"


def _cells(row: Row) -> list[str]:
    interval = _NOT_RUN if row.interval is None else f"{row.interval[0]:.3f}-{row.interval[1]:.3f}"
    spread = _NOT_RUN if row.spread is None else f"{row.spread:.3f} over {row.fits}"
    counts = [_NOT_RUN if count is None else str(count) for count in (row.num_train, row.test_copies)]
    figures = [shown(row.accuracy), interval, spread, shown(row.macro_f1), counts[1], shown(row.seconds, 0)]
    return [row.source, row.guarantee or _NOT_RUN, row.model, _amount(row), counts[0], *figures]


def _of(row: Row, groups: list[str]) -> list[str]:
    """Return a line of the table by subgroup."""
    figures = [shown(row.by_group.get(name)) for name in groups]
    return [row.source, row.model, _amount(row), *figures, shown(row.gap)]
