"""Exact votes against numpy's chunked product and argmax, faiss, and the bare products: `python -m benchmarks.votes`.

Ours is exact in float64 and independent of the other rows; the others are neither. Medians of alternating runs, by the
clock and in seconds of the processor: with `OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1` the latter bear a busy machine
(threads that wait for work spin). faiss runs in the environment of `--peer-python` (`pip install faiss-cpu numpy`).
`--sweep` times numbers of rows, once each, in a memory-mapped file, and prints the most memory that was the process's
own.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)

import numpy as np  # noqa: E402 - after the environment is cleared
import torch  # noqa: E402

from hf_dpsynth.compute import first_pass, nearest, threads  # noqa: E402

CHUNK = 4096
PEER = """
import sys, time
import faiss, numpy as np
x, y = np.load(sys.argv[1]), np.load(sys.argv[2])
index = faiss.IndexFlatL2(y.shape[1])
index.add(y)
print(faiss.__version__, flush=True)
for line in sys.stdin:
    start, used = time.perf_counter(), time.process_time()
    np.bincount(index.search(x, 1)[1][:, 0], minlength=len(y))
    print(time.perf_counter() - start, time.process_time() - used, flush=True)
"""


def unit_rows(rng, count, width):
    rows = rng.standard_normal((count, width), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def seconds_of(way):
    """By the clock, and of the processor."""
    start, used = time.perf_counter(), time.process_time()
    way()
    return time.perf_counter() - start, time.process_time() - used


def single(x, y):
    """Ours without the first pass: single precision, then float64."""
    first_pass._FORCED = False
    try:
        return nearest.votes(x, y)
    finally:
        first_pass._FORCED = None


class Peer:
    """faiss in another environment, one search a call."""

    def __init__(self, python, folder, x, y):
        paths = [str(Path(folder) / name) for name in ("x.npy", "y.npy")]
        for path, array in zip(paths, (x, y), strict=True):
            np.save(path, array)
        self.process = subprocess.Popen([python, "-c", PEER, *paths], stdin=-1, stdout=-1, text=True)
        self.version = self.process.stdout.readline().strip()

    def __call__(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return tuple(map(float, self.process.stdout.readline().split()))


def compare(options, folder):
    rng = np.random.default_rng(0)
    x, y = (unit_rows(rng, n, options.width) for n in (options.rows, options.candidates))
    ready, rough = np.ascontiguousarray(y.T), torch.from_numpy(y).bfloat16().t().contiguous()
    parts = [slice(start, start + CHUNK) for start in range(0, len(x), CHUNK)]
    halves = torch.from_numpy(x).bfloat16()
    tile, half_tile = np.empty((CHUNK, len(y)), np.float32), torch.empty((CHUNK, len(y)), dtype=torch.bfloat16)
    counts = {}

    def plain():
        best = np.concatenate([(x[part] @ y.T).argmax(1) for part in parts])
        counts["numpy"] = np.bincount(best, minlength=len(y))

    def ours():
        counts["ours"] = nearest.votes(x, y)

    ways = {
        "numpy": lambda: seconds_of(plain),
        "hf_dpsynth": lambda: seconds_of(ours),
        "hf_dpsynth, single precision first": lambda: seconds_of(lambda: single(x, y)),
        "bare product, float32": lambda: seconds_of(
            lambda: [np.matmul(x[part], ready, out=tile[: len(x[part])]) for part in parts]
        ),
        "bare product, bfloat16": lambda: seconds_of(
            lambda: [torch.mm(halves[part], rough, out=half_tile[: len(halves[part])]) for part in parts]
        ),
    }
    peer = Peer(options.peer_python, folder, x, y) if options.peer_python else None
    if peer:
        ways["faiss flat"] = peer
    for way in ways.values():
        way()
    times = {name: [] for name in ways}
    for _ in range(options.pairs):
        for name, way in ways.items():
            times[name].append(way())
    print(f"NumPy {np.__version__} on {threads.blas()}; torch {torch.__version__}, {torch.get_num_threads()} threads")
    found = f"faiss-cpu {peer.version if peer else 'not run'}, bfloat16 {first_pass._has_bfloat16()}"
    print(f"{found}, load {os.getloadavg()[0]:.1f}")
    print(f"{options.rows} x {options.candidates} x {options.width}, medians of {options.pairs}")
    middle = {name: [statistics.median(one) for one in zip(*spent, strict=True)] for name, spent in times.items()}
    clock, processor = middle["hf_dpsynth"]
    for name, (seconds, used) in middle.items():
        low, high = min(times[name])[0], max(times[name])[0]
        ratios = f"{seconds / clock:.2f} x ours; processor {used:.3f} s, {used / processor:.2f} x ours"
        print(f"{name:36s} {seconds:.3f} s ({low:.3f}-{high:.3f}), {ratios}")
    moved = int(np.abs(counts["numpy"] - counts["ours"]).sum() // 2)
    print(f"numpy miscounts {moved} votes by rounding")
    if peer:
        peer.process.communicate()


class Own(threading.Thread):
    """The most anonymous memory of this process, looked at every 10 ms: pages of a mapped file are not among it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.done = 0, threading.Event()

    def run(self):
        while not self.done.wait(0.01):
            lines = Path("/proc/self/status").read_text().splitlines()
            self.most = max([self.most, *(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))])


def sweep(options, folder):
    rng = np.random.default_rng(1)
    path, block = Path(folder) / "rows.npy", 50_000
    most = max(options.sweep)
    mapped = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(most, options.width))
    for start in range(0, most, block):
        mapped[start : start + block] = unit_rows(rng, min(block, most - start), options.width)
    del mapped
    mapped = np.load(path, mmap_mode="r")
    print(f"width {options.width}, a mapped file of {mapped.nbytes / 2**20:.0f} MiB, load {os.getloadavg()[0]:.1f}")
    for candidates in (500, 2000, 5000):
        y = unit_rows(rng, candidates, options.width)
        nearest.votes(mapped[:10_000], y)
        for rows in options.sweep:
            watch = Own()
            watch.start()
            seconds, used = seconds_of(lambda y=y, rows=rows: nearest.votes(mapped[:rows], y))
            watch.done.set()
            watch.join()
            each, own = used / rows / candidates * 1e9, watch.most / 2**10
            spent = f"{seconds:7.3f} s, processor {used:7.3f} s, {each:.2f} ns a pair, own memory {own:.0f} MiB"
            print(f"{rows:9d} x {candidates:5d} {spent}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--candidates", type=int, default=2000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--peer-python")
    parser.add_argument("--sweep", type=int, nargs="*", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(options, folder)
        if options.sweep:
            sweep(options, folder)


if __name__ == "__main__":
    main()
