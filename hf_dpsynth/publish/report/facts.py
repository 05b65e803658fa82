"""What stands on the publishable page, as plain data: functions of the release and of its rows alone.

Nothing here can hold a real text, a figure computed from one or a run time: no argument of this module is private.
What a page says beyond it is of another type, in `private`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_dpsynth.columns import is_messages, read_rows, read_texts, text_column
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.plans import Cost
from hf_dpsynth.privacy.keys import public_generator
from hf_dpsynth.publish.card import is_synthetic
from hf_dpsynth.publish.privacy_json import to_privacy_json
from hf_dpsynth.publish.report import texts
from hf_dpsynth.publish.report.budget import Spent, spending
from hf_dpsynth.publish.shortened import MOST
from hf_dpsynth.release import Release

_FEW = 30
_MOST_TEXTS = 20_000  # whose n-grams are counted: the memory that they take grows with the text


@dataclass(frozen=True)
class Row:
    """One released row: its text, None where there is none, and its labels as one name.

    The text of a conversation is its turns, written out.
    """

    text: str | None
    label: str | None = None
    is_conversation: bool = False


@dataclass(frozen=True)
class Share:
    """How many rows have a label, and the share that was declared for it, where one was."""

    label: str
    rows: int
    declared: float | None


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """Everything that the publishable page shows. Public.

    Args:
        claim (`dict`): the content of privacy.json.
        spent (`tuple[Spent, ...]`): the budget by charge.
        cost (`Cost`, *optional*): an upper bound on the work, as planned.
        texts (`tuple[str, ...]`): the released texts.
        samples (`tuple[Row, ...]`): rows to show.
        labels (`tuple[Share, ...]`): the declared labels; none without conditioning columns.
        label_columns (`tuple[str, ...]`): the names of the conditioning columns.
        distinct (`tuple[float, ...]`): shares of distinct n-grams, n from 1.
        versions (`dict[str, str]`): the software that made the release.
        limits (`tuple[str, ...]`): what a reader must know about these rows.
    """

    claim: dict[str, Any]
    spent: tuple[Spent, ...]
    cost: Cost | None
    texts: tuple[str, ...]
    samples: tuple[Row, ...]
    labels: tuple[Share, ...]
    label_columns: tuple[str, ...]
    distinct: tuple[float, ...]
    versions: dict[str, str]
    limits: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Return what the rows are called: synthetic, or privatized where each of them was a real one."""
        return "synthetic" if is_synthetic(self.claim) else "privatized"

    @property
    def num_distinct(self) -> int:
        """Return the number of different texts."""
        return len(set(self.texts))


def public_facts(release: Release, rows: Sequence[Row], *, num_samples: int, seed: int) -> PublicFacts:
    """Return what the publishable page shows.

    Args:
        release (`Release`): the record of the run. Public.
        rows (`Sequence[Row]`): its rows. Public.
        num_samples (`int`): how many rows to show.
        seed (`int`): the seed of the public choice of these rows.
    """
    written = tuple(row.text for row in rows if row.text is not None)
    order = public_generator(seed, "report-samples").permutation(len(rows))[:num_samples]
    measured = public_generator(seed, "report-distinct").permutation(len(written))[:_MOST_TEXTS]
    return PublicFacts(
        claim=to_privacy_json(release),
        spent=spending(release),
        cost=release.plan.cost,
        texts=written,
        samples=tuple(rows[at] for at in sorted(order)),
        labels=_shares(release, rows),
        label_columns=release.plan.label_columns,
        distinct=texts.distinct([written[at] for at in measured]),
        versions=release.versions,
        limits=(*_limits_of_rows(rows, written), *_limits_of_columns(release)),
    )


def read(folder: Path, release: Release) -> list[Row]:
    """Return the rows of a release from the files that it lists.

    Args:
        folder (`Path`): the run directory.
        release (`Release`): its record.
    Raises:
        ConfigError: a file is missing or cannot be read, or no column of it is the text.
    """
    if not release.files:
        raise ConfigError(f"{folder} lists no files of rows. Pass a run directory that holds its rows.")
    rows: list[Row] = []
    for name, _ in release.files:
        rows += _read(folder / name, release)
    return rows


def _read(path: Path, release: Release) -> list[Row]:
    from datasets import Dataset
    from datasets.table import InMemoryTable

    table = Dataset(InMemoryTable(_table(path)))
    plan = release.plan
    others = (*plan.label_columns, *plan.kept_columns)
    candidates = {name: kind for name, kind in table.features.items() if name not in others}
    talks = [name for name, kind in candidates.items() if is_messages(kind)]
    known = plan.text_column if plan.text_column in table.features else next(iter(talks), None)
    column = text_column(candidates, known, messages=True)
    columns = [name for name in plan.label_columns if name in table.features]
    labels = read_rows(table, columns)
    return [
        Row(text, _name(label) if columns else None, column in talks)
        for text, label in zip(read_texts(table, column), labels, strict=True)
    ]


def _table(path: Path) -> Any:
    """Read a Parquet or Arrow file whole."""
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        if path.suffix == ".parquet":
            return parquet.read_table(path)
        with pyarrow.OSFile(str(path)) as source:
            return pyarrow.ipc.open_stream(source).read_all()
    except FileNotFoundError as error:
        raise ConfigError(f"{path} is missing. Put the rows back; a report is never made without them.") from error
    except (pyarrow.ArrowException, OSError) as error:
        raise ConfigError(f"{path} cannot be read as rows ({type(error).__name__}).") from error


def _name(label: Sequence[Any]) -> str:
    return " / ".join("none" if part is None else str(part) for part in label)


def _shares(release: Release, rows: Sequence[Row]) -> tuple[Share, ...]:
    """Count the rows of each declared label; of those that occur, where the record names no domain."""
    plan = release.plan
    if not plan.label_columns:
        return ()
    counts = Counter(row.label for row in rows if row.label is not None)
    domain = [_name(label) for label in plan.labels if label]
    shares = dict(zip(domain, plan.proportions or (), strict=False))
    names = list(dict.fromkeys([*domain, *sorted(counts)]))
    return tuple(Share(name, counts[name], shares.get(name)) for name in names)


def _limits_of_rows(rows: Sequence[Row], written: Sequence[str]) -> list[str]:
    """Return what a reader must know about the rows."""
    found, number = [], len(rows)
    if not number:
        found.append("There are no rows, so there is nothing to describe.")
    if any(row.is_conversation for row in rows):
        turns = "each turn is its role, the number of its characters and its content"
        found.append(f"The rows are conversations, which are read and shown as one text: {turns}.")
    if number == 1:
        found.append("There is one row: no share or distribution says anything.")
    elif 0 < number < _FEW:
        found.append(f"There are only {number} rows: one row moves every share by {100 / number:.1f} points.")
    if len(written) > 1 and len(set(written)) == 1:
        found.append("All rows are the same text.")
    blank = sum(not text.strip() for text in written)
    if blank:
        found.append(f"{blank:,} of {number:,} rows are empty or white space.")
    if len(written) < number:
        found.append(f"{number - len(written):,} of {number:,} rows hold no text; figures of texts leave them out.")
    if len(written) > _MOST_TEXTS:
        found.append(f"Shares of distinct n-grams are those of {_MOST_TEXTS:,} rows, by a public choice.")
    return found


def _limits_of_columns(release: Release) -> list[str]:
    """Return what a reader must know about the columns beside the text."""
    found = []
    if not release.plan.label_columns:
        found.append("The rows carry no label that the mechanism conditioned on.")
    elif len(release.plan.labels) == 1 and release.plan.labels[0]:
        found.append("There is a single label.")
    if release.plan.kept_columns:
        kept = release.plan.kept_columns
        more = f" and {len(kept) - MOST:,} more" if len(kept) > MOST else ""
        names = ", ".join(kept[:MOST]) + more
        found.append(f"Columns that were copied in clear are not protected, and not shown on this page: {names}.")
    return found
