"""A run: the four things a mechanism is handed besides its data, and what opens them. Resist a fifth."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from hf_dpsynth.errors import BudgetExceeded, ConfigError
from hf_dpsynth.plans import CLEAR_COLUMNS, Plan
from hf_dpsynth.privacy.budget import PrivacyBudget
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.ledger import Ledger
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.processes import Processes
from hf_dpsynth.store import Store, write_whole

_SHARDED = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_MEGATRON_LM")


@dataclass(frozen=True)
class Run:
    """Ledger, store, keys and devices of one run.

    Args:
        ledger (`Ledger`): the door for private records.
        store (`Store`): the run directory.
        keys (`Key`): secret randomness, fresh at each process start.
        devices (`Processes`): rank, world size and the accelerator; the first process decides and writes.
    """

    ledger: Ledger
    store: Store
    keys: Key
    devices: Processes


@contextmanager
def opened(
    plan: Plan,
    out: str | os.PathLike[str] | None,
    budget: PrivacyBudget | None,
    records: Mapping[str, PrivateRecords],
    *,
    resume: bool = True,
    ready: Callable[[Store], None] | None = None,
) -> Iterator[tuple[Ledger, Store]]:
    """Open the run directory and the ledger, and hold the budget: nothing has been drawn yet.

    Args:
        plan (`Plan`): pinned before the data is committed to.
        out (`str` or path, *optional*): the run directory; in memory when missing.
        budget (`PrivacyBudget`, *optional*): what the plan's events are reserved in.
        records (`Mapping[str, PrivateRecords]`): the private side by split, for the keyed commitment. Sensitive.
        resume (`bool`, defaults to `True`): whether a directory that holds this plan is continued.
        ready (`Callable`, *optional*): raises what is wrong with the public inputs of a new run, before anything is
            written or reserved.
    Yields:
        the ledger and the store.
    Raises:
        ConfigError: the directory cannot be used, or the budget is of another kind.
        ResumeMismatch: the directory holds another plan or other data.
        BudgetExceeded: the plan does not fit into the budget; a new directory is left as it was.
    """
    _check_budget(budget, plan)
    store = Store(out)
    with store.opened():
        fresh = not (store.folder / "ledger.db").exists()
        if not fresh and not resume:
            raise ConfigError(f"out={str(out)!r} holds a run and resume=False. Pass another out=, or resume=True.")
        if fresh and ready is not None:
            ready(store)
        store.pin(plan)
        key = store.commitment_key(fresh=fresh)
        commitment = key.commit(chunk for name in sorted(records) for chunk in records[name].chunks())
        ledger = Ledger(
            store.ledger_path,
            allowance=plan.event,
            guarantee=plan.guarantee,
            pins={"plan": plan.digest(), "data": commitment},
        )
        start, was_finished = time.perf_counter(), ledger.finished
        try:
            _reserve(budget, plan, ledger, store, fresh=fresh)
            yield ledger, store
        finally:
            if not was_finished:
                store.add_time(ledger.run_id, time.perf_counter() - start)
            # a run in memory cannot resume: what it did not spend goes back also after an error
            if budget is not None and (ledger.finished or not store.kept):
                budget.settle(ledger.run_id, ledger.spent())
            ledger.close()


def _check_budget(budget: PrivacyBudget | None, plan: Plan) -> None:
    if budget is None:
        return
    if not isinstance(budget, PrivacyBudget):
        raise ConfigError(f"budget= is of type {type(budget).__name__}; pass a hf_dpsynth.PrivacyBudget.")
    budget.check(unit=getattr(plan.guarantee, "unit", "record"), adjacency=plan.adjacency, delta=plan.delta)
    if plan.unit_column is not None:
        budget.hold_column(plan.unit_column)


def _reserve(budget: PrivacyBudget | None, plan: Plan, ledger: Ledger, store: Store, *, fresh: bool) -> None:
    """Reserve the plan under the ledger's own random id: a new ledger never enters an old reservation."""
    if budget is None:
        return
    try:
        budget.reserve(ledger.run_id, plan.mechanism, plan.event, metric=_metric(plan))
    except BudgetExceeded:
        if fresh:
            store.discard()
        raise


def _metric(plan: Plan) -> str:
    """Return what scales of a plan can be added to; empty where losses have no metric.

    The distance of two texts follows from the metric, the vectors, how many of their words there are, and all that the
    assumptions say of how texts are read, which is what is declared public of them besides.
    """
    metric = getattr(plan.guarantee, "metric", "")
    if not metric:
        return ""
    read = [said for said in plan.guarantee.assumptions if not said.startswith(CLEAR_COLUMNS)]
    return "; ".join((metric, *plan.model_ids.values(), f"max_words {plan.params.get('max_words')}", *read))


def keys(insecure_noise_seed: int | None) -> Key:
    """Return fresh secret randomness, or for tests randomness that anybody can make again."""
    return Key() if insecure_noise_seed is None else Key.from_insecure_seed(insecure_noise_seed)


def devices(mechanism: Any) -> Processes:
    """Return this process, after it met those that a launcher started with it.

    Args:
        mechanism (`Synthesizer`): what will run; its attribute `distributed` says whether several processes may.
    Raises:
        ConfigError: it was started as one of several and the mechanism takes one, models are to be split over
            processes, or the processes do not meet.
    """
    current, distributed = Processes.current(), getattr(mechanism, "distributed", False)
    if current.world_size > 1 and not distributed:
        raise ConfigError(
            f"WORLD_SIZE is {current.world_size}: several processes are not supported by {mechanism.name}. Start one."
        )
    for name in _SHARDED if distributed else ():
        if os.environ.get(name, "").lower() in ("true", "1", "yes", "on"):
            raise ConfigError(
                f"{name} is set, which splits a model over processes: in each process of {mechanism.name} a model "
                "is whole. Launch without it."
            )
    return current.join()


@contextmanager
def opened_by_all(
    processes: Processes,
    plan: Plan,
    out: str | os.PathLike[str] | None,
    budget: PrivacyBudget | None,
    records: Mapping[str, PrivateRecords],
    *,
    resume: bool = True,
    ready: Callable[[Store], None] | None = None,
) -> Iterator[tuple[Ledger, Store]]:
    """Open the run in the first process; the others get an empty directory and ledger of their own, in memory.

    Args:
        processes (`Processes`): those that run, already met; their connection is closed at the end.
        plan (`Plan`): as for `opened`, like all that follows.
        out (`str` or path, *optional*): used by the first process alone.
        budget (`PrivacyBudget`, *optional*): likewise.
        records (`Mapping[str, PrivateRecords]`): the private side by split, in full in every process. Sensitive.
        resume (`bool`, defaults to `True`): whether a directory that holds this plan is continued.
        ready (`Callable`, *optional*): called by the first process.
    Yields:
        the ledger and the store.
    Raises:
        ConfigError: the processes were called with different arguments or data; and what `opened` raises.
    """
    with processes.leaving(), ExitStack() as stack:
        if processes.world_size > 1:
            _check_alike(processes, plan, records)
        out, budget, ready = (out, budget, ready) if processes.is_main else (None, None, None)
        yield processes.together(
            lambda: stack.enter_context(opened(plan, out, budget, records, resume=resume, ready=ready))
        )


def _check_alike(processes: Processes, plan: Plan, records: Mapping[str, PrivateRecords]) -> None:
    """Refuse processes that would not work on the same run: shards are disjoint only in the same order of records."""
    for rank, other in enumerate(processes.gather(lambda: plan)):
        names = plan.differences(other)
        if names:
            raise ConfigError(
                f"processes {processes.rank} and {rank} have different plans (they differ in {', '.join(names)}). "
                "Call synthesize with the same arguments in every process."
            )
    # a key of this moment, held in memory: digests of private records leave their process under it alone
    key = Key(processes.lead(lambda: Key().reveal()))
    digests = processes.gather(lambda: [key.commit(records[name].chunks()) for name in sorted(records)])
    if any(digest != digests[0] for digest in digests):
        raise ConfigError(
            "the processes hold different records, or the same ones in another order. Load the same data in every "
            "process."
        )


def hand_out(store: Store, processes: Processes, folders: Sequence[str]) -> None:
    """Give every process what the first one's run directory releases: no shared file system is assumed.

    Args:
        store (`Store`): the run directory of this process.
        processes (`Processes`): those that run.
        folders (`Sequence[str]`): folders of it. Public.
    """
    if processes.world_size == 1:
        return
    for name in processes.lead(lambda: store.files_in(folders)):
        content = processes.lead((store.folder / name).read_bytes)
        if not processes.is_main:
            (store.folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_whole(store.folder / name, content)
