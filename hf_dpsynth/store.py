"""The run directory: plan, populations and rows, each written whole or not at all.

It holds public and privatized material only, so that all of it may be published. What must stay with the owner, the
key of the data's commitment for one, lies beside it in RUN.private/, readable by the owner alone.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from hf_dpsynth.errors import ConfigError, ResumeMismatch
from hf_dpsynth.plans import Plan
from hf_dpsynth.privacy.keys import Key

_LOCK_SECONDS = 1.0


class Store:
    """The files of one run.

    Args:
        folder (`str` or `Path`, *optional*): the run directory; None keeps the files in a temporary folder.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        if not (folder is None or isinstance(folder, (str, os.PathLike))):
            raise ConfigError(f"out= is of type {type(folder).__name__}; it must be a path or None")
        self.kept = folder is not None
        self._temporary = None if self.kept else tempfile.TemporaryDirectory(prefix="hf_dpsynth-")
        self.folder = Path(os.path.abspath(f"{self._temporary.name}/run" if folder is None else folder))  # type: ignore[union-attr]

    @property
    def ledger_path(self) -> Path | None:
        """Where the ledger's database lies, or None for a ledger in memory."""
        return self.folder / "ledger.db" if self.kept else None

    def private_folder(self) -> Path:
        """Return the sibling folder for what must never be published, made with mode 0700."""
        self.beside.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.beside

    @property
    def beside(self) -> Path:
        """Where the sibling folder lies, whether it is there or not."""
        return self.folder.with_name(self.folder.name + ".private")

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the run directory for this process; a temporary one goes away at the end.

        Raises:
            ConfigError: the folder cannot be written, or another run holds it.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.private_folder() / "run.lock", timeout=_LOCK_SECONDS)
            lock.acquire()
        except Timeout as error:
            raise ConfigError(
                f"out={str(self.folder)!r} is in use by another run. Wait for it, or pass another out=."
            ) from error
        except OSError as error:
            raise ConfigError(
                f"out={str(self.folder)!r} cannot be written ({error.strerror}). Pass another out=."
            ) from error
        try:
            yield
        finally:
            lock.release()
            if self._temporary is not None:
                self._temporary.cleanup()

    def pin(self, plan: Plan) -> None:
        """Write the plan, or compare it with the plan that the directory holds.

        Raises:
            ResumeMismatch: the directory holds another plan.
            ConfigError: the directory holds something else.
        """
        path = self.folder / "plan.json"
        if path.exists():
            try:
                held = Plan.from_json(json.loads(path.read_text(encoding="utf-8")))
            except (ValueError, KeyError, TypeError) as error:
                raise ResumeMismatch(f"{path} is not a plan of this version. Pass another out=.") from error
            names = plan.differences(held)
            if names:
                raise ResumeMismatch(
                    f"{self.folder} holds a run with another plan (it differs in {', '.join(names)}). "
                    "Pass what the first call passed, or another out=."
                )
            return
        strangers = sorted(entry.name for entry in self.folder.iterdir() if entry.name != "plan.json.partial")
        if strangers:
            raise ConfigError(f"out={str(self.folder)!r} is not empty and holds no plan. Pass a new folder.")
        write_whole(path, json.dumps(plan.to_json(), indent=1).encode())

    def commitment_key(self, *, fresh: bool) -> Key:
        """Return the key of the data's commitment, which stays with the owner.

        Args:
            fresh (`bool`): whether this is the run's first start.
        Raises:
            ResumeMismatch: the key of an earlier start is gone, so equal data cannot be recognised.
        """
        path = self.private_folder() / "commitment.key"
        if path.exists():
            return Key(bytes.fromhex(path.read_text(encoding="ascii")))
        if not fresh:
            raise ResumeMismatch(f"{path} is gone; without it this run cannot resume. Pass another out=.")
        key = Key()
        write_whole(path, key.reveal().hex().encode(), mode=0o600)
        return key

    def grow(self, name: str, total: int, block: int, make: Callable[[int, int], list[str]]) -> list[str]:
        """Return the texts of a population: what is on disk is read, only the rest is made.

        Generators are not bit-stable, so a text that was written once is never made again.

        Args:
            name (`str`): the population's name.
            total (`int`): the number of texts.
            block (`int`): how many texts to make and sync at a time.
            make (`Callable[[int, int], list[str]]`): makes the texts from a start to a stop.
        Returns:
            `list[str]`: the texts, synced to disk.
        """
        path = self._population(name)
        path.parent.mkdir(exist_ok=True)
        texts = self._read_texts(path)
        with path.open("ab") as handle:
            handle.truncate(sum(len(_line(text)) for text in texts))
            while len(texts) < total:
                made = make(len(texts), min(total, len(texts) + block))
                handle.write(b"".join(_line(text) for text in made))
                handle.flush()
                os.fsync(handle.fileno())
                texts.extend(made)
        _sync(path.parent)
        return texts

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a population's file. Public."""
        return hashlib.sha256(self._population(name).read_bytes()).hexdigest()

    def _population(self, name: str) -> Path:
        return self.folder / "populations" / f"{name}.jsonl"

    @staticmethod
    def _read_texts(path: Path) -> list[str]:
        """Return the whole lines of a file; a line that a crash cut is dropped."""
        if not path.exists():
            return []
        lines = path.read_bytes().split(b"\n")[:-1]
        return [json.loads(line)["text"] for line in lines]

    def data_path(self, split: str) -> Path:
        """Return where the rows of a split lie."""
        return self.folder / "data" / f"{split}-00000-of-00001.parquet"

    def write_data(self, split: str, write: Callable[[Path], Any]) -> None:
        """Let `write` fill a file, then put it at its place in one step."""
        path = self.data_path(split)
        path.parent.mkdir(exist_ok=True)
        partial = path.with_suffix(".partial")
        write(partial)
        _sync(partial)
        partial.replace(path)
        _sync(path.parent)

    def write_folder(self, name: str, write: Callable[[Path], Any]) -> None:
        """Let `write` fill a folder of the run, then put it at its place in one step."""
        partial, place = self.folder / f"{name}.partial", self.folder / name
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        write(partial)
        for path in partial.rglob("*"):
            if path.is_file():
                _sync(path)
        partial.replace(place)
        _sync(self.folder)

    def files_in(self, folders: Sequence[str]) -> list[str]:
        """Return the files of some folders of the run, as paths below it."""
        found = (path for name in folders for path in (self.folder / name).rglob("*") if path.is_file())
        return sorted(path.relative_to(self.folder).as_posix() for path in found)

    def add_time(self, run: str, seconds: float) -> None:
        """Note how long a start of a run took, in RUN.private/: run time follows the number of private records."""
        if self.kept:
            with (self.private_folder() / "times.jsonl").open("a", encoding="ascii") as handle:
                handle.write(json.dumps({"run": run, "seconds": round(seconds, 3)}) + "\n")

    def discard(self) -> None:
        """Take back what a first start wrote, when it was refused before anything was charged."""
        for name in ("plan.json", "ledger.db"):
            (self.folder / name).unlink(missing_ok=True)


def check_private_output(path: Path) -> None:
    """Refuse a file for private figures that cannot be written, or lies where it would be published.

    Raises:
        ConfigError: its folder does not exist, or is a run directory or lies in one.
    """
    folder = Path(os.path.abspath(path)).parent
    if not folder.is_dir():
        raise ConfigError(f"{str(path)!r} cannot be written: {folder} is no folder. Make it, or pass another file.")
    run = next((one for one in (folder, *folder.parents) if (one / "plan.json").exists()), None)
    if run is not None:
        raise ConfigError(f"{str(path)!r} lies in the run {run}, which may be published. Pass a file elsewhere.")


def write_whole(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file so that at any moment its old or its new content is there, whole and synced.

    Args:
        path (`Path`): where the file lies.
        data (`bytes`): its new content.
        mode (`int`, defaults to `0o644`): its permissions.
    """
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    partial.replace(path)
    _sync(path.parent)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _line(text: str) -> bytes:
    return json.dumps({"text": text}, ensure_ascii=True).encode("ascii") + b"\n"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
