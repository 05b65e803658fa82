"""Exact votes against numpy's chunked product and argmax: `python -m benchmarks.votes`.

Ours is exact in float64 and independent of the other rows; numpy's is neither. Medians of alternating runs.
"""

import argparse
import os
import statistics
import time

for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)

import numpy as np  # noqa: E402 - after the environment is cleared

from hf_dpsynth.compute import nearest  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--candidates", type=int, default=2000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n, options.width), dtype=np.float32) for n in (options.rows, options.candidates))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y /= np.linalg.norm(y, axis=1, keepdims=True)

    def plain():
        return np.concatenate([(x[i : i + 4096] @ y.T).argmax(1) for i in range(0, len(x), 4096)])

    ways = {
        "numpy": lambda: np.bincount(plain(), minlength=len(y)),
        "hf_dpsynth": lambda: nearest.votes(x, y),
    }
    times, counts = {name: [] for name in ways}, {}
    for way in ways.values():
        way()
    for _ in range(options.pairs):
        for name, way in ways.items():
            start = time.perf_counter()
            counts[name] = way()
            times[name].append(time.perf_counter() - start)
    middle = {name: statistics.median(seconds) for name, seconds in times.items()}
    shape = f"{options.rows} x {options.candidates} x {options.width}"
    print(f"NumPy {np.__version__}, {shape}, load {os.getloadavg()[0]:.1f}")
    for name, seconds in middle.items():
        print(f"{name:12s} {seconds:.3f} s")
    moved = int(np.abs(counts["numpy"] - counts["hf_dpsynth"]).sum() // 2)
    print(f"ratio {middle['hf_dpsynth'] / middle['numpy']:.3f}; numpy miscounts {moved} votes by rounding")


if __name__ == "__main__":
    main()
