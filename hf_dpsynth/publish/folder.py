"""The record of a release in a folder: README.md, release.json and privacy.json beside the rows.

privacy.json is the claim, README.md its card, release.json the plan, the charges and the digests of the rows. They are
written only beside the rows of that release.
"""

import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hf_dpsynth import guarantees
from hf_dpsynth.errors import ConfigError, HfDpsynthError, PrivacyError
from hf_dpsynth.plans import Plan
from hf_dpsynth.privacy.event_json import event_from_json
from hf_dpsynth.privacy.ledger import Charge
from hf_dpsynth.publish.model_card import card_of
from hf_dpsynth.publish.privacy_json import invalid, to_privacy_json
from hf_dpsynth.publish.reading import after_the_run, from_privacy_json, without_words
from hf_dpsynth.publish.readme import OURS
from hf_dpsynth.release import Release, Rows, rows_of
from hf_dpsynth.store import Store, file_digest, write_whole

PRIVACY, RELEASE, CARD = "privacy.json", "release.json", "README.md"
LARGEST_BYTES, LARGEST_CLAIM = 20_000_000, 2_000_000
_MOST_DIGITS = 300  # a whole number that no float holds is none of ours
_PART = re.compile(r"(.+)-\d{5}-of-\d{5}")


def data_files(folder: Path) -> list[Path]:
    """Return the files of rows below a folder: everything in data/, and Parquet and Arrow files anywhere."""
    found = [path for path in folder.rglob("*") if path.is_file() or path.is_symlink()]
    return sorted(
        path for path in found if path.suffix in (".parquet", ".arrow") or path.relative_to(folder).parts[0] == "data"
    )


def save(release: Release, folder: str | os.PathLike[str]) -> None:
    """Write the record of a release beside its rows, or alone into a folder without rows.

    Args:
        release (`Release`): the record.
        folder (`str` or path): made when missing. Rows lie there as `save_to_disk` or a run wrote them.
    Raises:
        ConfigError: the folder holds other rows, a file of rows that is none of their shards, or a README.md that is
            not ours; nothing was written.
    """
    place = Path(folder)
    card = place / CARD
    if card.exists() and not OURS.search(card.read_text(encoding="utf-8", errors="replace")):
        raise ConfigError(f"{card} exists and is no card of ours. Move it away, or save into another folder.")
    paths = data_files(place) if place.is_dir() else []
    rows = _matching(release, place, paths) if paths else release.rows
    try:
        place.mkdir(parents=True, exist_ok=True)
        write_record(replace(release, rows=rows, files=_digests(place, paths)), place)
    except OSError as error:
        raise ConfigError(f"{place} cannot be written ({error.strerror}). Pass another folder.") from error


def record(release: Release, store: Store, folders: Sequence[str] = ()) -> Release:
    """Write the record of a run into its directory, once; a later opening changes nothing.

    Args:
        release (`Release`): the record.
        store (`Store`): the run directory, with the rows in it; one that is not kept gets no record.
        folders (`Sequence[str]`): folders of it with a model that was released with the rows.
    Returns:
        `Release`: with the digests of its files, and with the software that made it.
    Raises:
        PrivacyError: the rows are not those that were recorded before.
    """
    if not store.kept:
        return release
    folder = store.folder
    # only the files that this run wrote: an unkeyed digest of any other could tell what is in it
    written = [path for path in sorted(store.data_path(rows.split) for rows in release.rows) if path.is_file()]
    models = [folder / name for name in store.files_in(folders) if Path(name).name != CARD]
    release = replace(release, files=_digests(folder, written), models=_digests(folder, models))
    held = _held(folder)
    if held is not None and held.guarantee_id == release.guarantee_id:
        for kind in ("rows", "models"):
            if getattr(held, kind) != getattr(release, kind):
                raise PrivacyError(
                    f"the {kind} in {folder} are not those that were released. Put them back, or pass out=."
                )
        # what came after the run stands in the record alone
        after = {name: getattr(held, name) for name in ("versions", "audits", "contamination", "budget")}
        release = replace(release, **after)
        if held.files == release.files and (folder / PRIVACY).exists() and (folder / CARD).exists():
            return release
    write_record(release, folder)
    return release


def load_privacy(
    path: str | os.PathLike[str], *, revision: str | None = None, repo_type: str | None = None
) -> Release:
    """Read the release that lies in a folder or a repository: guarantee, statement, plan and charges.

    Args:
        path (`str` or path): a run directory, a folder that `.privacy.save` wrote into, or the id of a repository on
            the Hub, which is downloaded, and whose files must have their digests.
        revision (`str`, *optional*): a branch, tag or commit of the repository.
        repo_type (`str`, *optional*): `"dataset"` or `"model"`; the first of them that there is when missing.
    Returns:
        `Release`: without charges, and with the published part of the plan, where only privacy.json is there. Call
            `verify` to check it.
    Raises:
        ConfigError: no such folder, or its files are not what we write.
        PrivacyError: a file of rows of a repository is missing, or is not the one that was published.
        HubError: the repository cannot be read.
    Examples:
        >>> import tempfile, hf_dpsynth
        >>> from datasets import Dataset
        >>> private = Dataset.from_dict({"text": ["a good film"]}).privatize("madlib", epsilon=10)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     private.save_to_disk(folder)
        ...     private.privacy.save(folder)
        ...     hf_dpsynth.load_privacy(folder).guarantee.epsilon
        10.0
    """
    from hf_dpsynth.publish.hub import downloaded, is_repository

    if not is_repository(path):
        return _loaded(existing(path))
    with downloaded(str(path), revision, repo_type) as folder:
        release = _loaded(folder)
        for name, digest in (*release.files, *(file for one in release.earlier for file in one.files)):
            found = folder / name
            if not found.is_file() or found.is_symlink() or file_digest(found) != digest:
                raise PrivacyError(
                    f"{name} of {path} is not the file that was published with its guarantee. Run hf-dpsynth verify."
                )
    return release


def _loaded(folder: Path) -> Release:
    facts = read_json(folder / PRIVACY, LARGEST_CLAIM)
    wrong = invalid(facts)
    if wrong:
        raise ConfigError(
            f"{PRIVACY} of {folder} is none that we write: {wrong[0]}. Run hf-dpsynth verify to see all."
        )
    release = from_privacy_json(facts)
    if not (folder / RELEASE).exists():
        return release
    kept = from_record(read_json(folder / RELEASE))
    if _shared(kept) != without_words(facts):
        raise ConfigError(f"{RELEASE} and {PRIVACY} of {folder} do not agree. Run hf-dpsynth verify to see where.")
    return kept


def _shared(release: Release) -> dict[str, Any]:
    """Return what a record implies, apart from its wording.

    Raises:
        ConfigError: a value is none that we write.
    """
    try:
        return without_words(to_privacy_json(release))
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"this is no {RELEASE} of this version ({type(error).__name__}).") from error


def existing(path: str | os.PathLike[str]) -> Path:
    """Return a folder that is there.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigError(f"the path is of type {type(path).__name__}; it must be a folder")
    folder = Path(path)
    if not folder.is_dir():
        raise ConfigError(f"{os.fspath(path)!r} is no folder here. Pass a run directory or a folder with a {PRIVACY}.")
    return folder


def read_json(path: Path, largest: int = LARGEST_BYTES) -> Any:
    """Read a JSON file strictly: no key twice, no NaN, no endless size.

    Raises:
        ConfigError: it is missing or is no such JSON.
    """
    try:
        if path.stat().st_size > largest:
            raise ConfigError(f"{path} has more than {largest} bytes; it is none of our files.")
        return json.loads(
            path.read_bytes(),
            object_pairs_hook=_once,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}).") from error
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply.") from error
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path} is no JSON that we write ({type(error).__name__}: {error}).") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{text[:20]} is too large")
    return float(text)


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"{text[:20]}... is too large")
    return int(text)


def to_record(release: Release) -> dict[str, Any]:
    """Return release.json: what privacy.json has no place for, and what came after the run."""
    facts = to_privacy_json(release)
    return {
        **release.to_json(),
        "guarantee_id": release.guarantee_id,
        "created": release.created,
        "rows": [asdict(rows) for rows in release.rows],
        "files": [list(entry) for entry in release.files],
        "commitment": release.commitment,
        "versions": release.versions,
        "models": [list(entry) for entry in release.models],
        **{name: facts[name] for name in ("postprocessing", "cumulative", "audit", "contamination") if name in facts},
        "is_model": release.is_model,
    }


def from_record(data: Any) -> Release:
    """Read a release that `to_record` wrote.

    Raises:
        ConfigError: the data is no release.json of this version.
        PrivacyError: an event is unknown.
    """
    try:
        return Release(
            plan=Plan.from_json(data["plan"]),
            guarantee=guarantees.from_json(data["guarantee"]),
            charges=tuple(Charge(row["key"], event_from_json(row["event"]), row["when"]) for row in data["charges"]),
            notes=tuple(data["notes"]),
            guarantee_id=data["guarantee_id"],
            created=data["created"],
            rows=tuple(Rows(**rows) for rows in data["rows"]),
            files=tuple((path, digest) for path, digest in data["files"]),
            commitment=data["commitment"],
            versions=dict(data["versions"]),
            models=tuple((path, digest) for path, digest in data["models"]),
            is_model=data["is_model"],
            **after_the_run(data),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(f"this is no {RELEASE} of this version ({type(error).__name__}).") from error


def _held(folder: Path) -> Release | None:
    """Return the record that a folder holds, or None when there is none that can be read."""
    try:
        return from_record(read_json(folder / RELEASE))
    except HfDpsynthError:
        return None


def write_record(release: Release, folder: Path) -> None:
    """Write card, claim and record as they are: the files that the release lists are not looked at.

    The card is written first and the claim last: a claim that stands has its card. Equal files are left alone.
    """
    facts = to_privacy_json(release)
    claim = _bytes(facts)
    files = {RELEASE: _bytes(to_record(release)), PRIVACY: claim}
    if not ((folder / CARD).exists() and _same(folder / PRIVACY, claim)):
        files = {CARD: card_of(facts).encode("utf-8"), **files}
    for name, data in files.items():
        if not _same(folder / name, data):
            write_whole(folder / name, data)


def _same(path: Path, data: bytes) -> bool:
    return path.exists() and path.read_bytes() == data


def _bytes(value: Any) -> bytes:
    try:
        return json.dumps(value, indent=1, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise PrivacyError(f"the plan holds a value that JSON has no form for ({error}).") from error


def _digests(folder: Path, paths: list[Path]) -> tuple[tuple[str, str], ...]:
    return tuple((path.relative_to(folder).as_posix(), file_digest(path)) for path in paths)


def _matching(release: Release, folder: Path, paths: list[Path]) -> tuple[Rows, ...]:
    """Return the released rows that a folder holds.

    Raises:
        ConfigError: it holds other rows, or files of rows that are no part of them.
    """
    if not release.rows:
        raise ConfigError(
            f"{folder} holds rows, and the release of a stream has no digests to match them with. Save it into a "
            "folder without rows, or privatize a Dataset, whose release has them."
        )
    known = {rows.sha256: rows for rows in release.rows if rows.sha256}
    splits, shards = _splits(folder)
    found = [known.get(rows.sha256) for rows in rows_of(splits)]
    strangers = sorted(shards.symmetric_difference(paths))
    if strangers:
        raise ConfigError(
            f"{strangers[0]} is no file of the rows that this release made. Move it away, or save into another folder."
        )
    if None in found:
        raise ConfigError(
            f"{folder} holds rows that this release did not make. Save the dataset that has this .privacy, unchanged."
        )
    return tuple(rows for rows in found if rows is not None)


def rows_in(path: str | os.PathLike[str]) -> Any:
    """Return the rows that lie in a folder as a DatasetDict.

    Raises:
        ConfigError: no such folder, or none in it.
    """
    from datasets import DatasetDict

    splits = splits_in(existing(path))
    if not splits:
        raise ConfigError(f"{os.fspath(path)!r} holds no rows. Pass a run directory.")
    return DatasetDict(splits)


def splits_in(folder: Path) -> dict[str, Any]:
    """Return the rows that lie in a folder by split."""
    return _splits(folder)[0]


def _splits(folder: Path) -> tuple[dict[str, Any], set[Path]]:
    """Return the datasets that lie in a folder, as `save_to_disk` or a run wrote them, and the files they are in."""
    from datasets import Dataset, DatasetDict, concatenate_datasets, load_from_disk

    if (folder / "state.json").exists() or (folder / "dataset_dict.json").exists():
        loaded = load_from_disk(str(folder))
        splits = dict(loaded) if isinstance(loaded, DatasetDict) else {"": loaded}
        return splits, {path for name in splits for path in shards_of(folder / name)}
    parts: dict[str, list[Any]] = {}
    paths = data_files(folder)
    for path in paths:
        match = _PART.fullmatch(path.stem)
        parts.setdefault(match[1] if match else path.stem, []).append(_parquet(path, Dataset))
    return {name: concatenate_datasets(shards) for name, shards in parts.items()}, set(paths)


def shards_of(folder: Path) -> list[Path]:
    """Return the files that the state.json of a saved dataset names.

    Raises:
        ConfigError: it is no state.json.
    """
    try:
        return [folder / str(entry["filename"]) for entry in read_json(folder / "state.json")["_data_files"]]
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{folder / 'state.json'} is none that save_to_disk writes.") from error


def _parquet(path: Path, kind: Any) -> Any:
    import pyarrow
    import pyarrow.parquet as parquet
    from datasets.table import InMemoryTable

    try:
        return kind(InMemoryTable(parquet.read_table(path)))
    except (pyarrow.ArrowException, OSError) as error:
        raise ConfigError(f"{path} is no Parquet file.") from error
