"""Processes: several that work on one run, and what they tell each other.

The first process decides and writes, the others follow it. Every method is a collective: each process calls the same
ones in the same order, whether it holds records or not, and an error of one is an error of all. Errors travel as our
own messages, which hold no private text, or as the name of a type. A process alone sends nothing and loads no library.

What travels is not encrypted, and sums travel before their noise: the machines and the network between them are
trusted as the process is that holds the records.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hf_dpsynth import errors
from hf_dpsynth.devices import Devices
from hf_dpsynth.errors import ConfigError, HfDpsynthError
from hf_dpsynth.extras import need

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

_WHAT = "a run of several processes"
_MEETING = timedelta(minutes=30)  # as torch.distributed gives the processes to meet
_PATIENCE = timedelta(hours=24)  # for a process that works; one that dies closes its connection, which shows at once


@dataclass(frozen=True)
class Processes(Devices):
    """One process, and its connection to the others that work on the same run.

    Args:
        groups (`list`): the connection, from `join` to the end of `leaving`; empty for a process alone.
    """

    groups: list[Any] = field(default_factory=list, repr=False, compare=False)

    def join(self) -> "Processes":
        """Meet the other processes; a process alone meets nobody.

        The connection is one of our own, over gloo: it carries words between processes whose tensors go over nccl,
        and closing it releases the others that wait for words. It cannot release one that waits for tensors over
        nccl: see `leaving`.

        Every process must come here. Where a script calls `synthesize` in the first one alone, as under
        `if is_main_process:`, that one waits for the others for half an hour.

        Raises:
            ConfigError: the processes do not meet.
        """
        if self.world_size == 1:
            return self
        dist = need("torch.distributed", extra="models", what=_WHAT)
        try:
            self.torch_device()
            meeting = dist.new_group(backend="gloo", timeout=_MEETING)
            self.groups.append(dist.new_group(backend="gloo", timeout=_PATIENCE))
            weakref.finalize(self, _close, self.groups).atexit = False  # an error before `leaving`
            dist.destroy_process_group(meeting)
        except (RuntimeError, ValueError) as error:
            raise ConfigError(
                f"WORLD_SIZE is {self.world_size} and the processes do not meet ({error}). Start them with torchrun, "
                "or on GPUs with accelerate launch, and let all of them make the call, not the main process alone."
            ) from error
        if (dist.get_rank(), dist.get_world_size()) != (self.rank, self.world_size):
            raise ConfigError(
                f"RANK and WORLD_SIZE say process {self.rank} of {self.world_size}, torch.distributed says "
                f"{dist.get_rank()} of {dist.get_world_size()}. Start the processes with torchrun."
            )
        return self

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Close the connection at the end, and at once on an error: nobody waits for words of one that gave up.

        Nor for its tensors, where they go over gloo. Over nccl they go over a connection that is not ours and stays
        open: an error outside `fill` and `finish` of `summed`, such as an interruption, leaves the others waiting in
        their next `summed` until the process ends and the launcher, torchrun or accelerate launch, ends them, or until
        nccl's own timeout does. What they had charged stays charged.
        """
        try:
            yield
            if self.groups:
                self._last_word()
        finally:
            _close(self.groups)

    def _last_word(self) -> None:
        """Wait until all are done; who left already needs nothing any more."""
        try:
            need("torch.distributed", extra="models", what=_WHAT).barrier(group=self.groups[0])
        except RuntimeError:
            return

    def lead(self, work: Callable[[], T]) -> T:
        """Let the first process do something, and return its result in all of them, or raise its error.

        Args:
            work (`Callable[[], T]`): done by the first process alone.
        """
        if self.world_size == 1:
            return work()
        answer, error = _tried(work) if self.is_main else (None, None)
        told: list[Any] = [(answer, self._words(error))]
        with self._talking() as dist:
            dist.broadcast_object_list(told, src=0, group=self.groups[0])
        if error is not None:
            raise error
        sent, words = told[0]
        if words is not None:
            raise _rebuilt(words)
        return cast(T, answer if self.is_main else sent)

    def gather(self, work: Callable[[], T]) -> list[T]:
        """Let every process do something, and return the results of all by rank, or raise the first one's error.

        Args:
            work (`Callable[[], T]`): done by every process; its result is sent to the others.
        """
        if self.world_size == 1:
            return [work()]
        found, error = _tried(work)
        told: list[Any] = [None] * self.world_size
        with self._talking() as dist:
            dist.all_gather_object(told, (found, self._words(error)), group=self.groups[0])
        if error is not None:
            raise error
        for _, words in told:
            if words is not None:
                raise _rebuilt(words)
        return [answer for answer, _ in told]

    def together(self, work: Callable[[], T]) -> T:
        """Let every process do something, and return its own result, or raise an error of any.

        Args:
            work (`Callable[[], T]`): done by every process; its result stays where it is.
        """
        found: list[T] = []
        self.gather(lambda: found.append(work()))
        return found[0]

    def summed(
        self, sums: Sequence["torch.Tensor"], fill: Callable[[], None], finish: Callable[[], Iterable["torch.Tensor"]]
    ) -> list["torch.Tensor"]:
        """Fill tensors in every process, add them up in the first, and return in all what the first makes of the sums.

        Two messages, whatever happens: a process with nothing to add adds zeros, and the last place of each message
        tells whether anybody failed. What comes back is bit for bit the same in every process.

        Args:
            sums (`Sequence[torch.Tensor]`): zeros, float32; hold the sums over all processes in the first one when
                `finish` is called. Sensitive.
            fill (`Callable[[], None]`): adds this process's share to them.
            finish (`Callable[[], Iterable[torch.Tensor]]`): what the first process makes of the sums, e.g. adds noise.
        Returns:
            `list[torch.Tensor]`: of the shapes of `sums`.
        """
        if self.world_size == 1:
            fill()
            return list(finish())
        _, error = _tried(fill)
        message = _flat(sums, failed=error is not None)
        self._send(message, back=False)
        if self.is_main:
            if not message[-1]:
                _, error = _tried(partial(_replace, message, sums, finish))
            if error is not None or message[-1]:  # a sum without noise goes nowhere
                message.zero_()[-1] = 1
        self._send(message, back=True)
        if message[-1]:
            self.gather(partial(_raise, error))
        return _parts(message, sums)

    def _send(self, message: "torch.Tensor", *, back: bool) -> None:
        """Add a message up in the first process, or send the first one's back to all.

        Over nccl a process that is gone shows late, as `leaving` says; over gloo at once.
        """
        # gloo takes tensors of a CPU; others go from device to device
        backend = need("torch.distributed", extra="models", what=_WHAT).get_backend()
        direct = message.device.type != "cpu" and backend != "gloo"
        near, group = (message, None) if direct else (message.cpu(), self.groups[0])
        with self._talking() as dist:
            if back:
                dist.broadcast(near, src=0, group=group)
            else:
                dist.reduce(near, dst=0, group=group)
        if near is not message:
            message.copy_(near)

    @contextmanager
    def _talking(self) -> Iterator[Any]:
        """Yield torch.distributed, whose errors here mean that a process is gone."""
        try:
            yield need("torch.distributed", extra="models", what=_WHAT)
        except RuntimeError as error:
            raise HfDpsynthError(
                f"another process of this run stopped, and so does process {self.rank} of {self.world_size}. What was "
                "charged stays charged; start again with the same out= to go on, with any number of processes."
            ) from error.with_traceback(None)  # its frames would hold the connection open

    def _words(self, error: Exception | None) -> tuple[str, str] | None:
        """Return what the other processes are told of an error."""
        if error is None:
            return None
        if isinstance(error, HfDpsynthError):
            return type(error).__name__, f"{error} (process {self.rank} of {self.world_size})"
        return "", f"process {self.rank} of {self.world_size} stopped: {type(error).__name__}; its output says why."


def _close(groups: list[Any]) -> None:
    while groups:  # a connection ends with the last reference to it
        need("torch.distributed", extra="models", what=_WHAT).destroy_process_group(groups.pop())


def _tried(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return work(), None
    except Exception as error:  # raised again once the others know
        return None, error


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error


def _rebuilt(words: tuple[str, str]) -> HfDpsynthError:
    name, message = words
    found = getattr(errors, name, HfDpsynthError)(message)
    assert isinstance(found, HfDpsynthError)
    return found


def _flat(tensors: Iterable["torch.Tensor"], *, failed: bool) -> "torch.Tensor":
    """Return tensors as one message, in whose last place an error is counted."""
    parts = [tensor.flatten() for tensor in tensors]
    parts.append(parts[0].new_full((1,), float(failed)))
    message: torch.Tensor = need("torch", extra="models", what=_WHAT).cat(parts)
    return message


def _parts(message: "torch.Tensor", like: Sequence["torch.Tensor"]) -> list["torch.Tensor"]:
    sizes = [tensor.numel() for tensor in like]
    return [part.view_as(tensor) for part, tensor in zip(message[:-1].split(sizes), like, strict=True)]


def _replace(
    message: "torch.Tensor", sums: Sequence["torch.Tensor"], finish: Callable[[], Iterable["torch.Tensor"]]
) -> None:
    """Put the sums in place, and what is made of them into the message."""
    for total, part in zip(sums, _parts(message, sums), strict=True):
        total.copy_(part)
    for part, made in zip(_parts(message, sums), finish(), strict=True):
        part.copy_(made)
