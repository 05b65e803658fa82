import subprocess
import sys

import pytest
import torch

from hf_dpsynth import devices as hf_devices
from hf_dpsynth.devices import Devices, best_dtype
from hf_dpsynth.errors import ConfigError

LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in LAUNCHER:
        monkeypatch.delenv(name, raising=False)


def test_a_process_alone_is_the_main_process():
    devices = Devices.current()
    assert (devices.rank, devices.world_size, devices.is_main) == (0, 1, True)


def test_a_launched_process_knows_its_rank(monkeypatch):
    for name, value in zip(LAUNCHER, ("3", "4", "2"), strict=False):
        monkeypatch.setenv(name, value)
    devices = Devices.current()
    assert (devices.rank, devices.world_size, devices.local_world_size, devices.is_main) == (3, 4, 2, False)


@pytest.mark.parametrize(("rank", "world_size"), [("2", "2"), ("-1", "2"), ("one", "2")])
def test_ranks_that_do_not_fit_are_refused(monkeypatch, rank, world_size):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world_size)
    with pytest.raises(ConfigError):
        Devices.current()


def test_processes_on_one_machine_share_its_cores():
    alone = Devices().threads()
    assert alone >= 1
    assert Devices(0, 2, 2).threads() == max(1, alone // 2)
    assert Devices(0, 1000, 1000).threads() == 1


def test_a_stated_thread_count_wins(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert Devices(0, 4, 4).threads() == 7


def test_limiting_never_raises_the_thread_count(monkeypatch):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        monkeypatch.setenv("OMP_NUM_THREADS", "64")
        assert Devices().limit_threads() == 1
        torch.set_num_threads(2)
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        assert Devices().limit_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_the_device_is_a_torch_device_and_its_precision_a_name():
    device = Devices.current().torch_device()
    assert isinstance(device, torch.device)
    assert best_dtype(device) in ("float32", "bfloat16")
    assert best_dtype(torch.device("meta")) == "float32"


def test_reading_ranks_imports_no_torch():
    code = (
        "import sys; from hf_dpsynth import devices as d; d.Devices.current().threads(); print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "False", run.stderr


def test_rows_are_chosen_to_fit_an_eighth_of_the_free_memory(monkeypatch):
    monkeypatch.setattr(hf_devices, "free_memory", lambda device=None: 8_000)
    assert hf_devices.rows_that_fit(100, 64) == 10
    assert hf_devices.rows_that_fit(1, 64) == 64 and hf_devices.rows_that_fit(10**9, 64) == 1
    monkeypatch.undo()
    assert hf_devices.free_memory() > 2**20
