"""`verify`: whether a folder bears out what it claims.

The claim is recomputed from its events, the card rendered again, the files hashed. Nothing of it shows that the events
are what ran: `not_checkable` says so, and no result is ever called private.
"""

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import yaml
from dp_accounting import DpEvent

from hf_dpsynth.errors import HfDpsynthError
from hf_dpsynth.plans import Plan
from hf_dpsynth.privacy.accounting import leaves
from hf_dpsynth.privacy.event_json import event_from_json
from hf_dpsynth.publish import accounts, beside, cumulative, mechanism
from hf_dpsynth.publish.accounts import READING, short
from hf_dpsynth.publish.card import claims
from hf_dpsynth.publish.folder import (
    CARD,
    LARGEST_BYTES,
    LARGEST_CLAIM,
    PRIVACY,
    RELEASE,
    data_files,
    existing,
    from_record,
    read_json,
    shards_of,
)
from hf_dpsynth.publish.hub import downloaded, is_repository
from hf_dpsynth.publish.model_card import card_of, front_of
from hf_dpsynth.publish.privacy_json import MOST_FINDINGS, invalid, is_model, to_privacy_json
from hf_dpsynth.publish.reading import from_privacy_json, without_words
from hf_dpsynth.publish.readme import FIELDS, parts, with_kept_text, without_kept_text
from hf_dpsynth.publish.repository import is_rows
from hf_dpsynth.release import Release, software
from hf_dpsynth.store import file_digest

NOT_CHECKABLE = (
    "that these events are what ran",
    "that noise was drawn, sampling and clipping done, as the events say",
    "that what was declared public is public",
    "that the same records were not released elsewhere, and that parameters were not chosen by looking at them",
    "that later processing used no private data",
    "who wrote these files",
)
REPORT, PICTURES = "report.html", "report"  # what publish.report writes into a run directory
_SHOWN = f"what {REPORT} and {PICTURES}/ show: they are not compared with {PRIVACY}"
_BUDGET = "the budget across runs: its file is with the publisher"
_LONGEST_FRONT = 1_000_000
_LONGEST_VALUE = 500_000_000  # in ledger.db: the votes of a large run
_TABLES = """
SELECT (SELECT count(*) FROM sqlite_master
        WHERE type = 'table' AND name IN ('charges', 'meta') AND sql NOT LIKE 'CREATE VIRTUAL%'),
       (SELECT count(*) FROM pragma_table_xinfo('charges') WHERE hidden)
       + (SELECT count(*) FROM pragma_table_xinfo('meta') WHERE hidden)
"""
_MOST_CHARGES, _MOST_STEPS, _STEP = 100_000, 10_000, 1_000  # of ledger.db: rows, and steps of its engine
_View = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Args:
        ok (`bool`): whether there is no finding.
        schema (`bool`): whether privacy.json is valid against its JSON Schema.
        accounting_recomputed (`bool`): whether the events cost at most the claim.
        files_match (`bool`): whether every file of rows is listed and has its digest.
        findings (`tuple[str, ...]`): what is wrong, a sentence each, which begins with the file or field.
        not_checkable (`tuple[str, ...]`): what nobody can see from these files.
    """

    ok: bool
    schema: bool
    accounting_recomputed: bool
    files_match: bool
    findings: tuple[str, ...]
    not_checkable: tuple[str, ...]


def verify(path: str | os.PathLike[str], *, revision: str | None = None, repo_type: str | None = None) -> Verification:
    """Check a folder's privacy.json against its schema, its own events, its card, its rows and its ledger.

    Args:
        path (`str` or path): a run directory, a folder that `.privacy.save` wrote into, or the id of a repository on
            the Hub, which is downloaded.
        revision (`str`, *optional*): a branch, tag or commit of the repository.
        repo_type (`str`, *optional*): `"dataset"` or `"model"`; the first of them that there is when missing.
    Returns:
        `Verification`: what was found; broken files are findings.
    Raises:
        ConfigError: there is no such folder.
        HubError: the repository cannot be read.
    Examples:
        >>> import tempfile, hf_dpsynth
        >>> from datasets import Dataset
        >>> private = Dataset.from_dict({"text": ["a good film"]}).privatize("madlib", epsilon=10)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     private.save_to_disk(folder)
        ...     private.privacy.save(folder)
        ...     hf_dpsynth.verify(folder).ok
        True
    """
    if is_repository(path):
        with downloaded(str(path), revision, repo_type) as place:
            return _verified(place)
    return _verified(existing(path))


def _verified(folder: Path) -> Verification:
    try:
        facts = read_json(folder / PRIVACY, LARGEST_CLAIM)
        broken = invalid(facts)
        accounting = accounts.check(facts)
        files, silent = _files(folder, facts)
        others, unseen = _others(folder, facts)
    except HfDpsynthError as error:
        return Verification(False, False, False, False, (f"{PRIVACY}: {short(error)}",), NOT_CHECKABLE)
    except RecursionError:
        return Verification(False, False, False, False, (f"{PRIVACY}: nested too deeply",), NOT_CHECKABLE)
    findings = tuple(dict.fromkeys((*broken, *accounting, *files, *others)))
    return Verification(
        ok=not findings,
        schema=not broken,
        accounting_recomputed=not accounting,
        files_match=not files,
        findings=findings,
        not_checkable=(*NOT_CHECKABLE, *silent, *unseen),
    )


def _files(folder: Path, facts: Any) -> tuple[list[str], list[str]]:
    """Return what is wrong with the files of rows, and what cannot be seen."""
    try:
        own = {str(entry["path"]): entry["sha256"] for entry in facts["output"]["files"]}
        earlier = [entry for held in facts["cumulative"]["prior_releases"] for entry in held["files"]]
        listed = {str(entry["path"]): entry["sha256"] for entry in earlier} | own
        number, model = facts["output"]["n_records"], is_model(facts)
    except READING:
        return ["output.files: cannot be read"], []
    present = _present(folder, "model" if model else "dataset")
    found = [f"{short(name)}: not listed in output.files" for name in present if name not in listed]
    found += _states(folder, listed)
    rows: Counter[str] = Counter()
    for name, digest in listed.items():
        path = folder / name
        if not _is_inside(name) or path.is_symlink():
            found.append(f"output.files: {short(name)!r} leads out of the folder")
        elif not path.is_file():
            found.append(f"{short(name)}: missing")
        elif file_digest(path) != digest:
            found.append(f"{short(name)}: sha256 differs")
        else:
            rows[path.suffix] += _rows_in(path) if name in own and not model else 0
    if not found and not model and any(count != number for count in rows.values()):
        found.append(f"output.n_records: {short(number)}, the files hold {', '.join(map(str, rows.values()))} rows")
    return found, [] if listed else ["the rows: output.files lists none"]


def _states(folder: Path, listed: dict[str, str]) -> list[str]:
    """Return which files a saved dataset would load that are not listed."""
    found = []
    for state in sorted(folder.rglob("state.json")):
        place = short(state.relative_to(folder).as_posix())
        try:
            names = [path.relative_to(folder).as_posix() for path in shards_of(state.parent)]
        except (HfDpsynthError, ValueError) as error:
            found.append(f"{place}: cannot be read ({short(error)})")
            continue
        found += [f"{place}: {short(name)} is not listed in output.files" for name in names if name not in listed]
    return found


def _present(folder: Path, kind: str) -> list[str]:
    """Return the files that may hold rows; a run directory and a saved data set have texts and JSON of their own."""
    own = any(
        (folder / name).exists()
        for name in ("ledger.db", "plan.json", "populations", "state.json", "dataset_dict.json")
    )
    found = [path for path in folder.rglob("*") if path.is_file() or path.is_symlink()]
    names = sorted(path.relative_to(folder).as_posix() for path in found)
    if own:
        return [path.relative_to(folder).as_posix() for path in data_files(folder)]
    return [name for name in names if is_rows(name, kind) and not name.startswith(".cache/")]


def _is_inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not PurePosixPath(name).is_absolute() and not {"..", "\\", ":"} & {*parts, *name}


def _rows_in(path: Path) -> int:
    """Return the number of rows of a file; -1 when it is none of the formats that we write."""
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        if path.suffix == ".parquet":
            return int(parquet.read_metadata(path).num_rows)
        with pyarrow.memory_map(str(path)) as source:
            return sum(batch.num_rows for batch in pyarrow.ipc.open_stream(source))
    except (pyarrow.ArrowException, OSError):
        return -1


def _others(folder: Path, facts: Any) -> tuple[list[str], list[str]]:
    """Return what contradicts the facts: themselves, the card, release.json, plan.json, the ledger.

    Another version may phrase the same facts in other words; then they are compared without their words.
    """
    try:
        base = from_privacy_json(facts)
        same = facts["tool"]["version"] == software()["hf_dpsynth"]
        view = _as_it_is if same else without_words
        found = _contradictions("", view(to_privacy_json(base)), view(facts))
        found += mechanism.check(base.plan, _listed(folder, base), base.added_columns)
        found += [*cumulative.refuted(facts), *beside.budget(facts)]
        before, unseen = beside.earlier(folder, facts)
        card = _card(folder, facts, same=same)
    except READING as error:
        return [f"{PRIVACY}: {short(error)}"], []
    unseen += [_SHOWN] if (folder / REPORT).exists() else []
    unseen += [_BUDGET] if base.budget is not None else []
    if not same:
        made = f"made by version {short(facts['tool']['version'])}"
        unseen.append(f"the wording of {PRIVACY} and {CARD}, pictures, recipe and script: {made}")
    release, broken = _release(folder, facts, view)
    recipe, unread = beside.recipe(folder, release) if same else ([], [])
    unseen += unread
    found += [*before, *card, *broken, *recipe, *beside.models(folder, release)]
    found += beside.drawn(folder, facts) if same else []
    found += [*_plan(folder, facts, base, view), *_ledger(folder, base)]
    if release is not None:
        found += _charges(RELEASE, leaves(base.plan.event), [(row.event, 1) for row in release.charges])
    return found, unseen


def _listed(folder: Path, base: Release) -> list[Path]:
    """Return the files of rows that are listed, there, and in the folder."""
    paths = [folder / name for name, _ in base.files if _is_inside(name)]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def _as_it_is(facts: dict[str, Any]) -> dict[str, Any]:
    return facts


def _contradictions(start: str, expected: Any, actual: Any) -> list[str]:
    """Return a sentence for each of the first differences."""
    return [start + short(line) for line in islice(_differences("", expected, actual), MOST_FINDINGS)]


def _differences(field: str, expected: Any, actual: Any) -> Iterator[str]:
    """Name the fields in which two JSON values differ."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in [*expected, *(name for name in actual if name not in expected)]:
            place = f"{field}.{name}".removeprefix(".")
            if name not in actual:
                yield f"{place}: missing"
            elif name not in expected:
                yield f"{place}: unexpected"
            else:
                yield from _differences(place, expected[name], actual[name])
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield f"{field}: {len(actual)} entries, {len(expected)} follow from the rest"
        for number, (first, second) in enumerate(zip(expected, actual, strict=False)):
            yield from _differences(f"{field}[{number}]", first, second)
    elif expected != actual or isinstance(expected, bool) != isinstance(actual, bool):
        yield f"{field}: {short(repr(actual))}, but {short(repr(expected))} follows from the rest"


def _card(folder: Path, facts: dict[str, Any], *, same: bool) -> list[str]:
    """Compare the card with what the facts render to; one of another version must state the same claim.

    What a README.md said before the card came stands below it, and fields that say nothing of privacy beside ours.
    """
    path = folder / CARD
    if not path.is_file():
        return [f"{CARD}: missing"]
    if path.stat().st_size > LARGEST_BYTES:
        return [f"{CARD}: more than {LARGEST_BYTES} bytes"]
    text = path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
    expected = card_of(facts, pictures=beside.has_pictures(folder))
    if text == expected or text.rstrip() == with_kept_text(expected, text).rstrip():
        return []
    text = without_kept_text(text)
    found = _front(text, facts)
    if not same:
        return found if claims(text, facts) else [*found, f"{CARD} text: does not state the claim of {PRIVACY}"]
    lines = zip([*text.split("\n"), ""], [*expected.split("\n"), ""], strict=False)
    at = next((number for number, (first, second) in enumerate(lines, 1) if first != second), 1)
    return [*found, f"{CARD} text: not what {PRIVACY} renders to, first at line {at}"]


def _front(text: str, facts: dict[str, Any]) -> list[str]:
    """Compare the summary in the front matter with the facts."""
    start = f"{CARD} front matter: "
    front, _ = parts(text)
    if front is None:
        return [f"{start}missing"]
    try:
        if len(front) > _LONGEST_FRONT or any(isinstance(at, yaml.AliasEvent) for at in yaml.parse(front)):
            return [f"{start}no YAML that we write"]
        actual = yaml.safe_load(front)
        if isinstance(actual, dict):
            actual = {name: value for name, value in actual.items() if name not in FIELDS}
    except (yaml.YAMLError, ValueError, RecursionError):
        return [f"{start}no YAML"]
    return _contradictions(start, front_of(facts), actual)


def _release(folder: Path, facts: dict[str, Any], view: _View) -> tuple[Release | None, list[str]]:
    """Read release.json, if it is there, and compare it with the facts."""
    path = folder / RELEASE
    if not path.exists():
        return None, []
    try:
        release = from_record(read_json(path))
        implied = to_privacy_json(release)
    except READING as error:
        return None, [f"{RELEASE}: {short(error)}"]
    return release, _contradictions(f"{RELEASE} contradicts ", view(implied), view(facts))


def _plan(folder: Path, facts: dict[str, Any], base: Release, view: _View) -> list[str]:
    """Compare plan.json, if it is there, with the facts."""
    path = folder / "plan.json"
    if not path.exists():
        return []
    try:
        plan = Plan.from_json(read_json(path))
        implied = to_privacy_json(replace(base, plan=plan, guarantee=plan.guarantee))
    except READING as error:
        return [f"plan.json: {short(error)}"]
    implied["limitations"] = facts["limitations"]  # holds what happened after the plan
    return _contradictions("plan.json contradicts ", view(implied), view(facts))


def _ledger(folder: Path, base: Release) -> list[str]:
    """Compare the charges in ledger.db, if it is there, with the events."""
    path = folder / "ledger.db"
    if not path.exists():
        return []
    try:
        rows, run = _rows(path)
        charges = [(event_from_json(json.loads(event)), int(count)) for _, event, count, _ in rows]
    except (sqlite3.Error, *READING) as error:
        return [f"ledger.db: cannot be read ({short(error)})"]
    found = _charges("ledger.db", leaves(base.plan.event), charges)
    named = {word for note in base.notes for word in note.split()}
    lost = [short(key) for key, _, _, state in rows if state != "committed" and key not in named]
    found += [f"limitations: ledger.db lost {key}, which none names" for key in lost[:MOST_FINDINGS]]
    if run != base.guarantee_id:
        found.append("guarantee_id: ledger.db is of another run")
    return found


def _rows(path: Path) -> tuple[list[tuple[Any, ...]], Any]:
    """Return key, event, count and state of each charge, and the run, in bounded time and memory.

    Raises:
        sqlite3.Error: the file is no ledger, or reading it takes too long.
        ValueError: it is none of ours.
    """
    steps, rows, length = count(), [], 0
    with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as database:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        database.set_progress_handler(lambda: next(steps) >= _MOST_STEPS, _STEP)
        if database.execute(_TABLES).fetchone() != (2, 0):
            raise ValueError("charges and meta are no tables of ours")
        for row in database.execute("SELECT key, event, count, state FROM charges LIMIT ?", (_MOST_CHARGES + 1,)):
            length += sum(len(str(value)) for value in row)
            rows.append(row)
            if len(rows) > _MOST_CHARGES or length > LARGEST_BYTES:
                raise ValueError(f"more than {_MOST_CHARGES} charges, or too long ones")
        run = database.execute("SELECT value FROM meta WHERE name = 'run'").fetchone()
    return rows, None if run is None else run[0]


def _charges(file: str, allowed: Counter[DpEvent], charges: list[tuple[DpEvent, int]]) -> list[str]:
    """Return which events were charged more often than accounting.events has them."""
    spent: Counter[DpEvent] = Counter()
    for event, times in charges:
        spent.update({leaf: count * times for leaf, count in leaves(event).items()})
    over = [leaf for leaf, count in spent.items() if count > allowed[leaf]]
    return [f"{file}: {spent[leaf]} x {short(leaf)} charged, accounting.events has {allowed[leaf]}" for leaf in over]
