"""A run: the four things a mechanism is handed besides its data, and what opens them. Resist a fifth."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from hf_dpsynth.devices import Devices
from hf_dpsynth.errors import BudgetExceeded, ConfigError
from hf_dpsynth.plans import Plan
from hf_dpsynth.privacy.budget import PrivacyBudget
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.ledger import Ledger
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.store import Store


@dataclass(frozen=True)
class Run:
    """Ledger, store, keys and devices of one run.

    Args:
        ledger (`Ledger`): the door for private records.
        store (`Store`): the run directory.
        keys (`Key`): secret randomness, fresh at each process start.
        devices (`Devices`): rank, world size and the accelerator.
    """

    ledger: Ledger
    store: Store
    keys: Key
    devices: Devices


@contextmanager
def opened(
    plan: Plan,
    out: str | os.PathLike[str] | None,
    budget: PrivacyBudget | None,
    records: Mapping[str, PrivateRecords],
    *,
    resume: bool = True,
) -> Iterator[tuple[Ledger, Store]]:
    """Open the run directory and the ledger, and hold the budget: nothing has been drawn yet.

    Args:
        plan (`Plan`): pinned before the data is committed to.
        out (`str` or path, *optional*): the run directory; in memory when missing.
        budget (`PrivacyBudget`, *optional*): what the plan's events are reserved in.
        records (`Mapping[str, PrivateRecords]`): the private side by split, for the keyed commitment. Sensitive.
        resume (`bool`, defaults to `True`): whether a directory that holds this plan is continued.
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


def _reserve(budget: PrivacyBudget | None, plan: Plan, ledger: Ledger, store: Store, *, fresh: bool) -> None:
    """Reserve the plan under the ledger's own random id: a new ledger never enters an old reservation."""
    if budget is None:
        return
    try:
        budget.reserve(ledger.run_id, plan.mechanism, plan.event, metric=plan.model_ids.get("vectors", ""))
    except BudgetExceeded:
        if fresh:
            store.discard()
        raise


def keys(insecure_noise_seed: int | None) -> Key:
    """Return fresh secret randomness, or for tests randomness that anybody can make again."""
    return Key() if insecure_noise_seed is None else Key.from_insecure_seed(insecure_noise_seed)


def devices() -> Devices:
    """Return this process.

    Raises:
        ConfigError: it was started as one of several, which no mechanism supports yet.
    """
    current = Devices.current()
    if current.world_size > 1:
        raise ConfigError(f"WORLD_SIZE is {current.world_size}: several processes are not supported. Start one.")
    return current
