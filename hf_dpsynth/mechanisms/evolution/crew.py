"""Several processes that work on one evolution: the first one runs the mechanism, the others do what it asks for.

Each process makes its own share of what is asked, from its own copy of the models and of the records. Public texts
and vectors, and counts of votes that have no noise yet, travel as `processes` says; private texts and their vectors
never do. A process alone asks nobody but itself.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NoReturn, TypeVar

from hf_dpsynth.processes import Processes

T = TypeVar("T")


class Crew:
    """The processes of one run, and what each of them can be asked for.

    Args:
        processes (`Processes`): those that run, already met.
        tasks (`Mapping[str, Callable]`): by name, what a process does of what is asked; the same names in all.
    """

    def __init__(self, processes: Processes, tasks: Mapping[str, Callable[..., Any]]) -> None:
        self.processes, self._tasks, self._over = processes, tasks, False

    def ask(self, name: str, *arguments: Any) -> list[Any]:
        """Let every process do one of its tasks, and return their results by rank. The first process alone asks.

        Args:
            name (`str`): of the task.
            *arguments: what it is called with in every process. Public.
        Returns:
            `list`: what each made of it, as sensitive as that is.
        Raises:
            HfDpsynthError: what the task raised in any process, or one of them stopped.
        """
        try:
            self.processes.lead(lambda: (name, arguments))
            return self.processes.gather(partial(self._tasks[name], *arguments))
        except Exception:  # the others know of it and do not listen any more
            self._over = True
            raise

    def all_do(self, work: Callable[[], Iterable[T]]) -> list[T]:
        """Let the first process do its work and the others what it asks for meanwhile.

        Args:
            work (`Callable[[], Iterable]`): done by the first process alone.
        Returns:
            `list`: what the work yielded in the first process; nothing in the others.
        Raises:
            HfDpsynthError: in the others, what ended the work of the first.
        """
        if not self.processes.is_main:
            while (asked := self.processes.lead(_nothing)) is not None:
                name, arguments = asked
                self.processes.gather(partial(self._tasks[name], *arguments))
            return []
        try:
            made = list(work())
        except Exception as error:
            if not self._over:
                self.processes.lead(partial(_fail, error))
            raise
        self.processes.lead(_nothing)
        return made

    def share(self, number: int) -> slice:
        """Return which of so many things are this process's: one stretch, the shares together are all of them."""
        rank, size = self.processes.rank, self.processes.world_size
        return slice(rank * number // size, (rank + 1) * number // size)


def _nothing() -> tuple[str, tuple[Any, ...]] | None:
    """Ask for nothing: the work is done."""
    return None


def _fail(error: Exception) -> NoReturn:
    raise error
