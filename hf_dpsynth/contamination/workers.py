"""Batches of public texts in several processes: fresh interpreters that get the index over a pipe, and no file."""

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hf_dpsynth.contamination.index import PrivateIndex
from hf_dpsynth.contamination.scanning import Batch, scan
from hf_dpsynth.errors import PrivacyError

Texts = Sequence[str | None]


def scanned(index: PrivateIndex, batches: Iterable[Texts], *, cut: bool, num_proc: int) -> Iterator[Batch]:
    """Yield what each batch shares with the private texts, in order, whatever the number of processes.

    Args:
        index (`PrivateIndex`): what the private texts hold. Sensitive.
        batches (`Iterable[Sequence[str | None]]`): the public texts; no more batches are read than are worked on.
        cut (`bool`): whether to say what to cut, too.
        num_proc (`int`): processes that search, each with an index of its own; 1 is this one.
    Raises:
        PrivacyError: a process stopped.
    """
    if num_proc == 1:
        yield from (scan(index, batch, cut=cut) for batch in batches)
        return
    processes: list[Any] = []
    try:
        for _ in range(num_proc):
            processes.append(_start())  # all start before the first has the index
        for process in processes:
            _send(process, (*index.for_workers(), cut))
        free, busy = deque(processes), deque[Any]()
        for batch in batches:
            if not free:  # a process has one batch at a time, so that neither end waits for a full pipe
                free.append(busy[0])
                yield _answer(busy.popleft())
            _send(free[0], list(batch))
            busy.append(free.popleft())
        yield from (_answer(process) for process in busy)
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdout.close()
            try:
                process.stdin.close()
            except BrokenPipeError:  # what was not sent any more
                pass


def _start() -> Any:
    return subprocess.Popen(
        [sys.executable, "-m", "hf_dpsynth.contamination.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HF_DPSYNTH_NO_PATCH": "1"},
    )


def _send(process: Any, what: Any) -> None:
    try:
        pickle.dump(what, process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
        process.stdin.flush()
    except BrokenPipeError:
        raise _stopped(process) from None


def _answer(process: Any) -> Batch:
    try:
        found: Batch = pickle.load(process.stdout)
    except (EOFError, pickle.UnpicklingError):
        raise _stopped(process) from None
    return found


def _stopped(process: Any) -> PrivacyError:
    return PrivacyError(f"a worker stopped with exit code {process.wait()}. Try num_proc=1 to see why.")
