"""Several processes on this machine, as a launcher starts them; a timeout ends them all."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

from tests.stubs import ROOT


def torchrun(folder, module, *arguments, world_size=2, seconds=150):
    """Run a module under torchrun in a folder; return what it printed, or fail with it."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(world_size), "-m", module]
    (run,) = _ended([_started(folder, [*command, *arguments], {})], seconds)
    assert run[0] == 0, run[1][-6000:]
    return run[1]


def unwatched(folder, module, *arguments, world_size=2, seconds=100):
    """Run a module in several processes, none of which is ended when another ends; return exit codes and output."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = [
        _started(folder, ["-m", module, *arguments], {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(world_size)
    ]
    return _ended(started, seconds)


def play(rank, scenes, names, reset):
    """Play scenes in this process, each after `reset`, and keep what each gave or raised in a file of this rank."""
    found = {}
    for name in names:
        reset()
        try:
            found[name] = scenes[f"scene_{name}"]()
        except Exception as error:
            found[name] = {"error": type(error).__name__, "text": str(error)}
        pathlib.Path(f"{rank}.json").write_text(json.dumps(found))


def _started(folder, command, environment):
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def _ended(started, seconds):
    try:
        printed = [one.communicate(timeout=seconds)[0] for one in started]
        return [(one.returncode, output) for one, output in zip(started, printed, strict=True)]
    finally:
        for one in started:
            if one.poll() is None:
                one.terminate()  # torchrun ends its processes, which are in groups of their own
                try:
                    one.communicate(timeout=40)
                except subprocess.TimeoutExpired:
                    os.killpg(one.pid, signal.SIGKILL)
                    one.communicate()
