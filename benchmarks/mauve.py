"""MAUVE against mauve-text at its defaults: `python -m benchmarks.mauve --peer-python ENV/bin/python`.

5000 + 5000 rows of 384 columns as arrays, 500 buckets, alternating runs, the ratio of medians. mauve-text is GPLv3 and
never a dependency: it lives in an environment of its own, and is left out without --peer-python. Its time depends on
the version of faiss-cpu: since 1.15 k-means stops by itself, before it runs 5 x 500 iterations.
The bare products are our own iterations without anything else, the limit of the processor.
--study shows what stopping k-means early costs: inertia and score by tolerance, over several seeds.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)

import numpy as np  # noqa: E402 - after the environment is cleared

from hf_dpsynth.compute import kmeans  # noqa: E402
from hf_dpsynth.metrics import mauve  # noqa: E402
from hf_dpsynth.metrics.divergence import frontier_area  # noqa: E402
from hf_dpsynth.privacy.keys import public_generator  # noqa: E402

PEER = """
import json, sys, time
import faiss, mauve, numpy
sets = numpy.load(sys.argv[1])
p, q = sets["p"], sets["q"]
start, busy = time.perf_counter(), time.process_time()
found = mauve.compute_mauve(p_features=p, q_features=q, num_buckets=500, seed=int(sys.argv[2]), verbose=False)
spent = [time.perf_counter() - start, time.process_time() - busy]
print(json.dumps([spent, float(found.mauve), faiss.__version__]))
"""


def sets(kind, rows, width, features):
    rng = np.random.default_rng(0)
    if features:
        found = np.load(features)
        found = found[rng.permutation(len(found))]
        half = min(rows, len(found) // 2)
        return found[:half].astype(np.float32), found[half : 2 * half].astype(np.float32)
    p, q = (rng.standard_normal((rows, width), dtype=np.float32) for _ in range(2))
    if kind == "gaussian":
        return p, q + np.float32(0.05)
    if kind == "decaying":
        scale = np.arange(1, width + 1, dtype=np.float32) ** -0.25
        return p * scale, q * scale + np.float32(0.02)
    centres = rng.standard_normal((200, width), dtype=np.float32)
    return 0.7 * p + centres[rng.integers(0, 200, rows)], 0.7 * q + centres[rng.integers(0, 150, rows)]


def timed(way):
    """Return seconds by the clock and of the processor, and what came back."""
    start, busy = time.perf_counter(), time.process_time()
    found = way()
    return (time.perf_counter() - start, time.process_time() - busy), found


def count_products(p, q):
    """Run once with the k-means step counted."""
    calls, step = [], kmeans._nearest

    def counted(*arguments):
        calls.append(arguments[0].shape)
        return step(*arguments)

    kmeans._nearest = counted
    mauve.mauve(p, q, num_buckets=500)
    kmeans._nearest = step
    return len(calls), calls[0]


def bare(products, shape):
    left, right = np.ones(shape, np.float32), np.ones((shape[1], 500), np.float32)
    out = np.empty((shape[0], 500), np.float32)
    return timed(lambda: [np.matmul(left, right, out=out) for _ in range(products)])[0]


def study(p, q, seeds):
    rows, is_first = mauve._ordered(p, q)
    ready = mauve._main_directions(rows, 0.9)
    for tolerance in (0, 0.01, 0.02, 0.05):
        scores, inertias = [], []
        for seed in range(seeds):
            labels = kmeans.kmeans(ready, 500, public_generator(seed, "study"), tolerance=tolerance)
            counts = [np.bincount(part, minlength=500) for part in (labels[is_first], labels[~is_first])]
            scores.append(frontier_area(*counts))
            inertias.append(kmeans.inertia(ready, labels))
        spread = statistics.stdev(scores)
        print(
            f"tolerance {tolerance:<5} inertia {np.mean(inertias):9.1f}  mauve {np.mean(scores):.4f} +- {spread:.4f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--kind", choices=("gaussian", "decaying", "mixture"), default="gaussian")
    parser.add_argument("--features", help="an .npy file of embeddings, whose random halves are compared")
    parser.add_argument("--peer-python", help="an interpreter that has mauve-text")
    parser.add_argument("--study", type=int, default=0, metavar="SEEDS")
    options = parser.parse_args()
    p, q = sets(options.kind, options.rows, options.width, options.features)
    load = os.getloadavg()[0]
    if options.study:
        return study(p, q, options.study)
    products, shape = count_products(p, q)
    times, scores = {"hf_dpsynth": [], "bare products": [], "mauve-text": []}, {}
    faiss = "not run"
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "sets.npz")
        np.savez(path, p=p, q=q)
        for pair in range(options.pairs):
            seconds, found = timed(lambda seed=pair: mauve.mauve(p, q, num_buckets=500, seed=seed))
            times["hf_dpsynth"].append(seconds)
            scores.setdefault("hf_dpsynth", []).append(found.mauve)
            times["bare products"].append(bare(products, shape))
            if options.peer_python:
                command = [options.peer_python, "-W", "ignore", "-c", PEER, str(path), str(pair)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                seconds, score, faiss = json.loads(done.stdout.splitlines()[-1])
                times["mauve-text"].append(seconds)
                scores.setdefault("mauve-text", []).append(score)
    what = pathlib.Path(options.features).name if options.features else options.kind
    print(f"NumPy {np.__version__}, faiss-cpu {faiss}, {what}, {len(p)} + {len(q)} x {p.shape[1]}, load {load:.1f}")
    print(f"our k-means: {products} products over 3 seeds, {shape[1] - 1} directions, 500 buckets")
    middle = {name: np.median(seconds, axis=0) for name, seconds in times.items() if seconds}
    for name, (clock, processor) in middle.items():
        shown = f"  mauve {np.mean(scores[name]):.4f}" if name in scores else ""
        print(f"{name:14s} {clock:7.3f} s by the clock, {processor:7.3f} s of the processor{shown}")
    for name in ("bare products", "mauve-text"):
        if name in middle:
            clock, processor = middle[name] / middle["hf_dpsynth"]
            print(f"{name} / ours: {clock:.2f} by the clock, {processor:.2f} by processor time")


if __name__ == "__main__":
    main()
