"""One release of a split by a privatizing mechanism: keyed noise, batches and workers that do not change the result.

The noise of a row is keyed by the release's key, the mechanism, the split, the row's number and its content, so it
does not depend on `batch_size` or `num_proc` and never repeats. Workers get their slice and a key over a pipe; nothing
private touches a disk or a cache.
"""

import contextlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.logging import progress_bar
from hf_dpsynth.mechanisms.base import Privatizer
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.ledger import Ledger
from hf_dpsynth.privacy.records import PrivateRecords


@dataclass(frozen=True)
class Job:
    """How a split is privatized."""

    mechanism: Privatizer
    public: Any
    epsilon: float
    key: Key
    batch_size: int
    num_proc: int


def release_split(
    ledger: Ledger,
    split: str,
    records: PrivateRecords,
    job: Job,
    write: Callable[[list[str | None]], None],
    *,
    written: bool,
) -> None:
    """Charge the ledger for a split, privatize it, write its rows whole, and commit.

    Args:
        ledger (`Ledger`): the run's ledger.
        split (`str`): the split's name.
        records (`PrivateRecords`): its texts. Sensitive.
        job (`Job`): how to privatize.
        write (`Callable[[list[str | None]], None]`): puts the privatized texts where they stay.
        written (`bool`): whether rows of this split are there already, from an earlier start.
    Raises:
        PrivacyError: an earlier process was stopped between charge and write; that release is lost.
    """
    key = f"privatize/{split}"
    state = ledger.state(key)
    if state is not None and not written:
        ledger.finish()
        raise PrivacyError(f"{key} was charged and its rows are gone with the key of their noise. Pass another out=.")
    if state is None:
        texts = records.texts()
        workers = min(job.num_proc, len(texts))
        if workers > 1:
            _check_sendable(job)
        make_ready(job)
        ledger.charge(key, job.mechanism.event(job.epsilon))
        rows = row_key(job, split)
        try:
            write(
                _in_workers(job, rows, texts, workers)
                if workers > 1
                else privatize_batch(job, rows, 0, texts, silent=False)
            )
        finally:
            forget(job)
    if state != "committed":
        # rows that were written before a stop are the draw of this charge: they are committed, not drawn again
        ledger.commit(key, "released")


def make_ready(job: Job) -> None:
    """Privatize no texts: a package or a table that the mechanism lacks is missed before anything is charged."""
    job.mechanism.privatize([], job.public, job.epsilon, job.key.generator)


def forget(job: Job) -> None:
    """Let a mechanism go of what it kept from batch to batch: it may tell what the texts held."""
    if hasattr(job.mechanism, "forget"):
        job.mechanism.forget(job.public)


def row_key(job: Job, split: str) -> Key:
    """Return the key that the noise of the rows of a split is drawn from."""
    fields = json.dumps(asdict(job.mechanism), sort_keys=True)  # type: ignore[call-overload]
    return job.key.derive(job.mechanism.name, fields, split)


def privatize_batch(
    job: Job, key: Key, first: int, texts: Sequence[str | None], *, silent: bool = True
) -> list[str | None]:
    """Privatize some rows of a split that was charged before.

    Args:
        job (`Job`): how to privatize.
        key (`Key`): the key of their noise. Sensitive.
        first (`int`): the number of the first row.
        texts (`Sequence[str | None]`): one text a row. Sensitive.
        silent (`bool`, defaults to `True`): whether no progress is shown.
    """
    return _privatized(job.mechanism, job.public, job.epsilon, key, first, texts, job.batch_size, silent=silent)


def _privatized(
    mechanism: Privatizer,
    public: Any,
    epsilon: float,
    key: Key,
    offset: int,
    texts: Sequence[str | None],
    batch_size: int,
    *,
    silent: bool = False,
) -> list[str | None]:
    """Privatize a slice whose first row has the number `offset`."""
    made: list[str | None] = []
    bar = progress_bar(total=len(texts), desc=mechanism.name, unit="row", disable=True if silent else None)
    for start in range(0, len(texts), batch_size):
        batch = texts[start : start + batch_size]
        first = offset + start

        def stream(i: int, batch: Sequence[str | None] = batch, first: int = first) -> np.random.Generator:
            return key.generator(first + i, (batch[i] or "").encode("utf-8", "surrogatepass"))

        made += mechanism.privatize(batch, public, epsilon, stream)
        bar.update(len(batch))
    bar.close()
    return made


def _in_workers(job: Job, key: Key, texts: list[str | None], workers: int) -> list[str | None]:
    """Run slices in fresh interpreters: no fork, so no inherited stream, lock or thread pool."""
    bounds = np.linspace(0, len(texts), workers + 1).astype(int).tolist()
    threads = str(max(1, (os.cpu_count() or 1) // workers))
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    processes = []
    try:
        for start, stop in pairwise(bounds):
            order = (job.mechanism, job.public, job.epsilon, key.reveal(), start, texts[start:stop], job.batch_size)
            process = subprocess.Popen(
                [sys.executable, "-m", "hf_dpsynth.mechanisms.keyed_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            processes.append(process)
            _send(process, order)
        made: list[str | None] = []
        for process in processes:
            answer, _ = process.communicate()
            if process.returncode != 0:
                raise PrivacyError(f"a worker stopped with exit code {process.returncode}. Try num_proc=1 to see why.")
            made += pickle.loads(answer)
        return made
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _check_sendable(job: Job) -> None:
    """Refuse, before anything is charged, what a fresh interpreter could not load."""
    try:
        pickle.dumps((job.mechanism, job.public))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError("this mechanism or its public input cannot be sent to workers. Use num_proc=1.") from error
    if "__main__" in (type(job.mechanism).__module__, type(job.public).__module__):
        raise ConfigError("a mechanism or a public input of __main__ cannot be sent to workers. Use num_proc=1.")


def _send(process: "subprocess.Popen[bytes]", order: tuple[Any, ...]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # a worker that died at once is reported by its exit code
        process.stdin.write(pickle.dumps(order))
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdin = None
