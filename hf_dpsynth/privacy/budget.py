"""A budget that spans runs and processes: what all releases of one source may cost together.

Runs are chosen after earlier outputs were seen, so the budget is a Renyi filter (Lecuyer 2021): a run's planned events
are reserved in one transaction before anything else happens, and what it did not spend is given back when it ends.
Charges of different data sets are added, which is safe for a person who is in all of them. Copying the file, or
restoring an older one, is outside the guarantee.
"""

import json
import math
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from dp_accounting import DpEvent

from hf_dpsynth.errors import BudgetExceeded, ConfigError
from hf_dpsynth.guarantees import NEIGHBOURS
from hf_dpsynth.privacy.accounting import compose, leaves, rdp_epsilon
from hf_dpsynth.privacy.event_json import event_from_json, event_to_json
from hf_dpsynth.privacy.ledger import connect, transaction
from hf_dpsynth.privacy.scales import metric_scale

_UNITS = ("record", "user", "word", "text")
_ADDED = ("word", "text")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS budget (
    only INTEGER PRIMARY KEY CHECK (only = 1), epsilon TEXT, delta TEXT, unit TEXT, adjacency TEXT
);
CREATE TABLE IF NOT EXISTS runs (
    run TEXT PRIMARY KEY, mechanism TEXT NOT NULL, event TEXT NOT NULL,
    metric TEXT NOT NULL, state TEXT NOT NULL CHECK (state IN ('reserved', 'settled')), day TEXT NOT NULL
);
"""
_COLUMN = "CREATE TABLE IF NOT EXISTS unit_column (only INTEGER PRIMARY KEY CHECK (only = 1), name TEXT NOT NULL)"


class PrivacyBudget:
    """A privacy budget in a SQLite file, shared by runs and processes.

    Args:
        path (`str` or `Path`): the file; made when missing, with these limits fixed for ever.
        epsilon (`float`): the total that all runs may spend.
        delta (`float`): the delta of the total; 0 for `unit="word"` and `unit="text"`.
        unit (`str`, defaults to `"record"`): the privacy unit; `"user"` adds runs over the users of one column, that
            of its first run; `"word"` makes a budget of metric scales, `"text"` one of local DP.
        adjacency (`str`, defaults to `"zero-out"`): the neighbouring relation.
    Raises:
        ConfigError: a limit out of range, or the file holds other limits.
    Examples:
        >>> import tempfile, os
        >>> folder = tempfile.TemporaryDirectory()
        >>> budget = PrivacyBudget(os.path.join(folder.name, "reviews.db"), epsilon=8, delta=1e-6)
        >>> budget.spent(), budget.remaining()
        (0.0, 8.0)
        >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        epsilon: float,
        delta: float,
        unit: str = "record",
        adjacency: str = "zero-out",
    ) -> None:
        for name, number in (("epsilon", epsilon), ("delta", delta)):
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                raise ConfigError(f"the budget's {name} is {number!r}; it must be a number")
        self.path, self.epsilon, self.delta = Path(path), float(epsilon), float(delta)
        self.unit, self.adjacency = unit, adjacency
        if unit not in _UNITS:
            raise ConfigError(
                f"the budget's unit is {unit!r}; it must be one of {', '.join(_UNITS)}. The users of a column are "
                "unit='user'."
            )
        if not 0 < self.epsilon < math.inf:
            raise ConfigError(f"the budget's epsilon is {epsilon}; it must be a finite number > 0")
        if not (self.delta == 0 if self.metric else 0 < self.delta < 1):
            raise ConfigError(f"the budget's delta is {delta}; it must be in (0, 1), or 0 for unit='word' or 'text'")
        if adjacency not in NEIGHBOURS:
            raise ConfigError(f"adjacency {adjacency!r} is unknown; use one of {', '.join(NEIGHBOURS)}")
        limits = (self.epsilon.hex(), self.delta.hex(), unit, adjacency)
        try:
            with closing(connect(self.path)) as database:
                held = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                if held and "budget" not in held:
                    raise ConfigError(f"{self.path} is not a budget: it holds other tables. Pass another path.")
                database.executescript(_SCHEMA)
                with transaction(database):
                    database.execute("INSERT OR IGNORE INTO budget VALUES (1, ?, ?, ?, ?)", limits)
                    stored = database.execute("SELECT epsilon, delta, unit, adjacency FROM budget").fetchone()
        except sqlite3.DatabaseError as error:
            raise ConfigError(f"{self.path} is not a budget ({error}). Pass another path.") from error
        if stored != limits:
            raise ConfigError(
                f"{self.path} holds epsilon={float.fromhex(stored[0]):.6g}, delta={float.fromhex(stored[1]):.3g}, "
                f"unit={stored[2]!r}, adjacency={stored[3]!r}, fixed when it was made. Pass these, or another path."
            )

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "PrivacyBudget":
        """Return the budget that a file holds, with the limits it was made with. A pure read.

        Raises:
            ConfigError: there is no such file, or it is no budget.
        """
        path = Path(path)
        if not path.is_file():
            raise ConfigError(f"{path} does not exist. Pass the file of a PrivacyBudget.")
        try:
            with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as database:
                stored = database.execute("SELECT epsilon, delta, unit, adjacency FROM budget").fetchone()
        except sqlite3.DatabaseError as error:
            raise ConfigError(f"{path} is not a budget ({error}). Pass the file of a PrivacyBudget.") from error
        if stored is None:
            raise ConfigError(f"{path} is not a budget: it has no limits. Pass the file of a PrivacyBudget.")
        made = cls.__new__(cls)  # the constructor would write
        made.path, made.epsilon, made.delta = path, float.fromhex(stored[0]), float.fromhex(stored[1])
        made.unit, made.adjacency = stored[2], stored[3]
        return made

    @property
    def metric(self) -> bool:
        """Whether this budget adds up scales of metric DP, or epsilons of local DP, which have no delta."""
        return self.unit in _ADDED

    def spent(self) -> float:
        """Return the epsilon of everything reserved and settled, at the budget's delta. A pure read."""
        try:
            with closing(sqlite3.connect(f"file:{quote(str(self.path.absolute()))}?mode=ro", uri=True)) as database:
                return self._cost(self._reserved(database))
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error

    def remaining(self) -> float:
        """Return the budget's epsilon less what is spent. A pure read.

        Epsilons of Renyi DP add up to less than their sum, so a run that costs a little more alone may still fit.
        """
        return max(0.0, self.epsilon - self.spent())

    def runs(self) -> tuple[tuple[str, str, str, DpEvent], ...]:
        """Return each run's mechanism, state (`reserved` or `settled`), UTC day and events. A pure read."""
        query = "SELECT mechanism, state, day, event FROM runs ORDER BY rowid"
        try:
            with closing(sqlite3.connect(f"file:{quote(str(self.path.absolute()))}?mode=ro", uri=True)) as database:
                rows = database.execute(query).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error
        return tuple((name, state, day, event_from_json(json.loads(text))) for name, state, day, text in rows)

    def check(self, *, unit: str, adjacency: str, delta: float | None) -> None:
        """Refuse a run whose guarantee is of another kind.

        A charge per user is no charge per record either: it bounds what leaving a whole user out can change, and a
        change of one of its records can turn what the user contributes around, which is twice as much.

        Raises:
            ConfigError: another unit or delta, or an adjacency that this budget's does not follow from.
        """
        if unit != self.unit:
            raise ConfigError(f"the run's unit is {unit!r}, the budget's is {self.unit!r}. Use a budget of that unit.")
        if self.metric:
            return
        if adjacency != self.adjacency and (adjacency, self.adjacency) != ("add-remove", "zero-out"):
            raise ConfigError(f"the run is under {adjacency} adjacency, the budget under {self.adjacency}.")
        if delta != self.delta:
            raise ConfigError(f"the run's delta is {delta}, the budget's is {self.delta}. Pass delta={self.delta}.")

    def hold_column(self, column: str) -> None:
        """Hold the column whose values are the users, before the first reservation of a run over users.

        Losses over the users of two columns add up for nobody: leaving out one of each is no change of one user. The
        column is kept although nothing comes to be reserved, so that of two first runs at a time one is refused.

        Args:
            column (`str`): the column of the run. Public.
        Raises:
            ConfigError: the budget is held for another column.
        """
        with self._writing() as database:
            database.execute(_COLUMN)
            database.execute("INSERT OR IGNORE INTO unit_column VALUES (1, ?)", (column,))
            (held,) = database.execute("SELECT name FROM unit_column").fetchone()
            if held != column:
                raise ConfigError(
                    f"{self.path.name} is held for the users of the column {held!r}; the run protects those of "
                    f"{column!r}, and losses over both add up for nobody. Use a budget for each column."
                )

    def reserve(self, run: str, mechanism: str, event: DpEvent, *, metric: str = "") -> None:
        """Reserve a run's planned events; a run that resumes keeps its reservation.

        Args:
            run (`str`): the random id of the run's ledger.
            mechanism (`str`): the mechanism's name, for messages.
            event (`DpEvent`): the planned events.
            metric (`str`): the metric of a metric budget: scales of one metric add up, of several they do not.
        Raises:
            BudgetExceeded: the events do not fit; nothing was reserved.
            ConfigError: the run was reserved with other events, or the budget holds scales of another metric.
        """
        text = json.dumps(event_to_json(event), sort_keys=True)
        with self._writing() as database:
            held = database.execute("SELECT event, state FROM runs WHERE run = ?", (run,)).fetchone()
            if held is not None:
                if held[1] == "reserved" and held[0] != text:
                    raise ConfigError("this run holds a reservation for another plan. Pass another out=.")
                return
            others = {name for (name,) in database.execute("SELECT metric FROM runs")} - {metric}
            if others:
                raise ConfigError(
                    f"{self.path.name} holds scales over {min(others)!r}; scales over {metric!r} do not add to them. "
                    "Use a budget for each metric."
                )
            total = self._reserved(database)
            total.update(leaves(event))
            cost = self._cost(total)
            if not cost <= self.epsilon:
                raise BudgetExceeded(
                    f"{mechanism} would bring {self.path.name} to epsilon={cost:.4g}; the budget is "
                    f"{self.epsilon:.6g}. Lower epsilon= of the run, or use what is released already."
                )
            day = datetime.now(UTC).date().isoformat()
            row = (run, mechanism, text, metric, day)
            database.execute("INSERT INTO runs VALUES (?, ?, ?, ?, 'reserved', ?)", row)

    def settle(self, run: str, event: DpEvent) -> None:
        """Replace a reservation by what the run spent; idempotent."""
        with self._writing() as database:
            database.execute(
                "UPDATE runs SET event = ?, state = 'settled' WHERE run = ? AND state = 'reserved'",
                (json.dumps(event_to_json(event), sort_keys=True), run),
            )

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock of the file, which must be there: a budget that vanished must not start anew."""
        if not self.path.exists():
            raise ConfigError(f"{self.path} is gone. Put it back, or make a PrivacyBudget with another path.")
        try:
            with closing(connect(self.path)) as database, transaction(database):
                yield database
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: sqlite3.DatabaseError) -> ConfigError:
        return ConfigError(f"{self.path} cannot be read as a budget ({error}). Put it back, or pass another path.")

    def _cost(self, total: Counter[DpEvent]) -> float:
        event = compose(total)
        return metric_scale(event) if self.metric else rdp_epsilon(event, self.delta, adjacency=self.adjacency)

    def _reserved(self, database: sqlite3.Connection) -> Counter[DpEvent]:
        total: Counter[DpEvent] = Counter()
        for (text,) in database.execute("SELECT event FROM runs"):
            total.update(leaves(event_from_json(json.loads(text))))
        return total
