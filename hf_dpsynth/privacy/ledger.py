"""The ledger: the one door through which private records become output. Charge, draw, commit.

A release is charged in one transaction before its noise is drawn, and its value and state are committed in another. A
crash between the two costs that release and never privacy: the charge stays, the value is lost, the round is skipped.
The ledger accepts only charges that fit into the planned events, counts included.
"""

import json
import sqlite3
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from dp_accounting import DpEvent

from hf_dpsynth.errors import BudgetExceeded, PrivacyError, ResumeMismatch
from hf_dpsynth.guarantees import Guarantee
from hf_dpsynth.privacy.accounting import compose, leaves
from hf_dpsynth.privacy.event_json import event_from_json, event_to_json

_VERSION = "1"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS charges (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    event TEXT NOT NULL,
    count INTEGER NOT NULL CHECK (count > 0),
    about TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('charged', 'committed')),
    value TEXT,
    day TEXT NOT NULL
);
"""


class Charge(NamedTuple):
    """One entry of the ledger: what was released, the event it is accounted by, and the UTC date."""

    key: str
    event: DpEvent
    when: str


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the write lock of a database from the first read on; commit, or roll back on any error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextmanager
def closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    """Close a connection when what follows fails."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


def connect(path: Path | None) -> sqlite3.Connection:
    """Open a database whose commits reach the disk before they return.

    Raises:
        sqlite3.DatabaseError: the file is no database, or cannot be opened.
    """
    connection = sqlite3.connect(path or ":memory:", timeout=60.0, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = EXTRA")
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


class Ledger:
    """The charges of one run.

    Args:
        path (`Path`, *optional*): the database file; None keeps the ledger in memory, without resume.
        allowance (`DpEvent`): the planned events: no charge outside of them is accepted.
        guarantee (`Guarantee`): what the planned events add up to.
        pins (`dict[str, str]`): what must be equal at every opening: the plan's digest, the commitment of the data.
    Raises:
        ResumeMismatch: the file was opened with other pins, or by a newer version.
    """

    def __init__(self, path: Path | None, *, allowance: DpEvent, guarantee: Guarantee, pins: dict[str, str]) -> None:
        self._allowance = leaves(allowance)
        self._guarantee = guarantee
        try:
            self._database = connect(path)
            with closed_on_error(self._database):
                self._database.executescript(_SCHEMA)
                with transaction(self._database):
                    self._pin({"version": _VERSION, **pins})
                    self._database.execute("INSERT OR IGNORE INTO meta VALUES ('run', ?)", (str(uuid.uuid4()),))
        except sqlite3.DatabaseError as error:
            raise ResumeMismatch(f"{path} is not a ledger ({error}). Move it away or pass another path.") from error

    def _pin(self, pins: dict[str, str]) -> None:
        stored = dict(self._database.execute("SELECT name, value FROM meta"))
        for name, value in pins.items():
            if stored.setdefault(name, value) != value:
                raise ResumeMismatch(
                    f"the ledger was opened with another {name}. Pass what the first call passed, or another out=."
                )
            self._database.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, value))

    @property
    def run_id(self) -> str:
        """The random name of this ledger, under which a budget holds its reservation."""
        return str(self._database.execute("SELECT value FROM meta WHERE name = 'run'").fetchone()[0])

    def state(self, key: str) -> str | None:
        """Return `"charged"`, `"committed"`, or None when the key was never charged."""
        row = self._row(key)
        return None if row is None else str(row["state"])

    def charge(self, key: str, event: DpEvent, *, count: int = 1, about: dict[str, Any] | None = None) -> None:
        """Spend `count` runs of an event before anything is drawn.

        Args:
            key (`str`): a name that is charged once.
            event (`DpEvent`): what the release is accounted by.
            count (`int`, defaults to `1`): how often the event happens under this key.
            about (`dict`, *optional*): public facts pinned with the charge, e.g. a population's digest.
        Raises:
            BudgetExceeded: the charge does not fit into the planned events; nothing was spent.
            PrivacyError: the key was charged before, or the run is finished.
        """
        with transaction(self._database):
            if self._row(key) is not None:
                raise PrivacyError(f"{key} was charged before; a value that was lost stays lost.")
            if self.finished:
                raise PrivacyError(f"{key} comes after the end of the run; a finished run spends nothing.")
            asked = Counter({leaf: number * count for leaf, number in leaves(event).items()})
            left = self._left()
            for leaf, number in asked.items():
                if number > left[leaf]:
                    raise BudgetExceeded(
                        f"{key} asks for {number} x {leaf}; the plan has {left[leaf]} left. "
                        "A run cannot spend more than it planned; plan more iterations or a larger epsilon=."
                    )
            self._database.execute(
                "INSERT INTO charges (key, event, count, about, state, day) VALUES (?, ?, ?, ?, 'charged', ?)",
                (key, _text(event_to_json(event)), count, _text(about or {}), datetime.now(UTC).date().isoformat()),
            )

    def commit(self, key: str, value: Any) -> None:
        """Store the noisy value of a charge: value and state in one transaction.

        Raises:
            PrivacyError: the key was not charged, or was committed before.
        """
        with transaction(self._database):
            row = self._row(key)
            if row is None or row["state"] != "charged":
                raise PrivacyError(f"{key} is {'not charged' if row is None else 'committed already'}.")
            self._database.execute(
                "UPDATE charges SET value = ?, state = 'committed' WHERE key = ?", (_text(value), key)
            )

    def release(
        self, key: str, event: DpEvent, draw: Callable[[], Any], *, about: dict[str, Any] | None = None
    ) -> Any | None:
        """Charge, draw, commit; or return what was committed before, for free.

        Args:
            key (`str`): the name of the release.
            event (`DpEvent`): what it is accounted by.
            draw (`Callable[[], Any]`): makes the noisy value, as JSON values. Called once, after the charge.
            about (`dict`, *optional*): public facts that must match at a resume.
        Returns:
            the value, or None when an earlier process was stopped between charge and commit: it is lost.
        Raises:
            BudgetExceeded: the charge does not fit into the planned events.
            ResumeMismatch: the key was released before with another event or other facts.
        """
        row = self._row(key)
        if row is None:
            self.charge(key, event, about=about)
            self.commit(key, draw())
            row = self._row(key)
        assert row is not None
        if row["event"] != _text(event_to_json(event)) or row["about"] != _text(about or {}):
            raise ResumeMismatch(f"{key} was released with another event or population. Pass another out=.")
        return None if row["state"] == "charged" else json.loads(row["value"])

    def value(self, key: str) -> Any:
        """Return the committed value of a key.

        Raises:
            PrivacyError: it was not committed.
        """
        row = self._row(key)
        if row is None or row["state"] != "committed":
            raise PrivacyError(f"{key} is not committed.")
        return json.loads(row["value"])

    def steps(self, key: str, event: DpEvent, n: int) -> None:
        """Spend `n` steps of an iterative mechanism in one charge, before the first of them runs."""
        self.charge(key, event, count=n)

    def finish(self) -> None:
        """Close the run for charges."""
        with transaction(self._database):
            self._database.execute("INSERT OR IGNORE INTO meta VALUES ('finished', 'yes')")

    @property
    def finished(self) -> bool:
        """Whether the run was closed for charges."""
        return self._database.execute("SELECT 1 FROM meta WHERE name = 'finished'").fetchone() is not None

    @property
    def lost(self) -> tuple[str, ...]:
        """The keys that were charged and never committed."""
        return tuple(key for (key,) in self._database.execute("SELECT key FROM charges WHERE state = 'charged'"))

    def charges(self) -> tuple[Charge, ...]:
        """Return every charge in order, lost ones included."""
        rows = self._database.execute("SELECT key, event, count, day FROM charges ORDER BY number").fetchall()
        return tuple(Charge(key, _event(event, count), day) for key, event, count, day in rows)

    def spent(self) -> DpEvent:
        """Return the composition of all charges."""
        total: Counter[DpEvent] = Counter()
        for charge in self.charges():
            total.update(leaves(charge.event))
        return compose(total)

    def guarantee(self) -> Guarantee:
        """Return the planned guarantee, which holds because no charge outside of the plan is accepted."""
        return self._guarantee

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _left(self) -> Counter[DpEvent]:
        left = self._allowance.copy()
        left.subtract(leaves(self.spent()))
        return left

    def _row(self, key: str) -> dict[str, Any] | None:
        row = self._database.execute("SELECT event, about, state, value FROM charges WHERE key = ?", (key,)).fetchone()
        return None if row is None else dict(zip(("event", "about", "state", "value"), row, strict=True))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _event(text: str, count: int) -> DpEvent:
    event = event_from_json(json.loads(text))
    return event if count == 1 else compose(Counter({event: count}))
