"""A run: the four things a mechanism is handed besides its data. Resist a fifth."""

from dataclasses import dataclass

from hf_dpsynth.devices import Devices
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.ledger import Ledger
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
