"""Devices: which process this is, where tensors live, in which precision and on how many threads.

The only module that imports accelerate. Reading ranks and thread counts imports neither torch nor accelerate.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.logging import get_logger

DtypeName = Literal["float32", "bfloat16"]

logger = get_logger(__name__)


@dataclass(frozen=True)
class Devices:
    """One process among those that work on a run.

    Args:
        rank (`int`): number of this process, 0 .. world_size - 1.
        world_size (`int`): number of processes.
        local_world_size (`int`): number of processes on this machine, which share its cores.
    """

    rank: int = 0
    world_size: int = 1
    local_world_size: int = 1

    def __post_init__(self) -> None:
        if not (0 <= self.rank < self.world_size and 1 <= self.local_world_size <= self.world_size):
            raise ConfigError(
                f"rank {self.rank}, world size {self.world_size}, local world size {self.local_world_size} do not "
                "fit; start processes with torchrun or accelerate launch, or unset RANK and WORLD_SIZE"
            )

    @classmethod
    def current(cls) -> Self:
        """Return this process as the launcher's RANK, WORLD_SIZE and LOCAL_WORLD_SIZE describe it."""
        world_size = _environment_number("WORLD_SIZE", 1)
        return cls(_environment_number("RANK", 0), world_size, _environment_number("LOCAL_WORLD_SIZE", world_size))

    @property
    def is_main(self) -> bool:
        """Return whether this process writes the ledger and the store."""
        return self.rank == 0

    def torch_device(self) -> Any:
        """Return this process's `torch.device`."""
        need("torch", extra="models", what="running a model")
        return need("accelerate", extra="models", what="running a model").PartialState().device

    def threads(self) -> int:
        """Return how many threads this process may use: its share of the cores, or `OMP_NUM_THREADS`.

        More threads than cores make generation several times slower, so the affinity mask and a container's quota
        both count.
        """
        stated = os.environ.get("OMP_NUM_THREADS", "")
        if stated.isdigit() and int(stated) > 0:
            return int(stated)
        return max(1, _cores() // self.local_world_size)

    def limit_threads(self) -> int:
        """Lower torch's thread count to this process's share, never raise it, and return the count in force."""
        torch = need("torch", extra="models", what="running a model")
        share = self.threads()
        if torch.get_num_threads() > share:
            torch.set_num_threads(share)
            logger.info("torch uses %d threads", share)
        return int(torch.get_num_threads())


def best_dtype(device: Any) -> DtypeName:
    """Return the precision in which a model generates fastest on a device: bfloat16 where the hardware has it.

    Args:
        device (`torch.device`): where the model runs.
    Returns:
        `str`: "bfloat16" or "float32".
    """
    torch = need("torch", extra="models", what="running a model")
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    if device.type == "cpu":
        return "bfloat16" if _cpu_has_bfloat16() else "float32"
    return "float32"


def free_memory(device: Any = None) -> int:
    """Return the bytes of memory that are free.

    Args:
        device (`torch.device`, *optional*): whose memory; this machine's when missing or on the CPU.
    """
    if device is not None and device.type == "cuda":
        torch = need("torch", extra="models", what="running a model")
        return int(torch.cuda.mem_get_info(device)[0])
    psutil = need("psutil", extra="metrics", what="choosing batch sizes")
    return int(psutil.virtual_memory().available)


def rows_that_fit(bytes_per_row: int, most: int, device: Any = None) -> int:
    """Return how many rows may be computed together in an eighth of the memory that is free: 1 to `most`.

    Args:
        bytes_per_row (`int`): the memory of a row at its peak.
        most (`int`): rows above which nothing is gained.
        device (`torch.device`, *optional*): where they are computed.
    """
    return max(1, min(most, free_memory(device) // (8 * max(1, bytes_per_row))))


def _cpu_has_bfloat16() -> bool:
    """Return whether the processor multiplies bfloat16 in hardware."""
    torch = need("torch", extra="models", what="running a model")
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        supported = getattr(torch.cpu, name, None)
        if supported is not None and supported():
            return True
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text(errors="replace").split() if cpuinfo.is_file() else []
    return "avx512_bf16" in flags or "amx_bf16" in flags


def _cores() -> int:
    """Return the cores this process may use, by its affinity mask and its container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = Path("/sys/fs/cgroup/cpu.max")
    if quota.is_file():
        limit, _, period = quota.read_text().partition(" ")
        if limit.isdigit() and period.strip().isdigit():
            cores = min(cores, max(1, int(limit) // int(period)))
    return cores


def _environment_number(name: str, default: int) -> int:
    """Read a whole number that a launcher sets."""
    text = os.environ.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name} is {text!r}; a launcher sets it to a whole number") from None
