"""Words: madlib against the bare matrix product that its search needs, side by side, alternating, in one run.

Both sides are measured at the same vocabulary and width. The product writes into a buffer that stays warm; "fresh"
lets NumPy allocate each result, as a first attempt would.

    python -m benchmarks.words [--pairs 5] [--texts 1000] [--random]
"""

import os

os.environ.pop("OPENBLAS_CORETYPE", None)

import argparse
import datetime
import platform
import statistics
import time

import numpy as np

from hf_dpsynth.compute import nearest
from hf_dpsynth.mechanisms.word.madlib import Madlib
from hf_dpsynth.models.word_vectors import WordVectors, load_vectors
from hf_dpsynth.privacy.keys import Key

_TEXT = "the doctor said that the movie was good and the people of london were happy about it"
_BLOCK = 512


def random_vectors(size=50_000, width=50):
    rows = np.random.default_rng(0).standard_normal((size, width), dtype=np.float32)
    words = dict.fromkeys((*_TEXT.split(), *(f"word{row}" for row in range(size))))
    return WordVectors(tuple(words)[:size], rows, "random")


def machine():
    with open("/proc/cpuinfo") as info:
        model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown CPU")
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    software = f"Python {platform.python_version()}, NumPy {np.__version__}, {blas['name']} {blas['version']}"
    return f"{model}, {os.cpu_count()} cores; {software}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--random", action="store_true", help="random vectors instead of glove-50d")
    options = parser.parse_args()
    vectors = random_vectors() if options.random else load_vectors("glove-50d")
    words = options.texts * len(_TEXT.split())
    key, texts = Key(), [_TEXT] * options.texts
    queries = np.random.default_rng(1).standard_normal((words, vectors.vectors.shape[1]), dtype=np.float32)
    table = np.ascontiguousarray(vectors.vectors.T)
    warm = np.empty((_BLOCK, len(vectors)), dtype=np.float32)

    def product():
        for start in range(0, words, _BLOCK):
            part = queries[start : start + _BLOCK]
            np.matmul(part, table, out=warm[: len(part)])

    def fresh():
        for start in range(0, words, 4 * _BLOCK):
            queries[start : start + 4 * _BLOCK] @ table

    ways = {
        "bare product": product,
        "bare product, fresh": fresh,
        "madlib": lambda: Madlib().privatize(texts, vectors, 10.0, lambda row: key.generator("row", row)),
        "top_k k=1": lambda: nearest.top_k(queries, vectors.vectors, 1),
        "top_k k=20": lambda: nearest.top_k(queries, vectors.vectors, 20),
    }
    seconds = {name: [] for name in ways}
    for turn in range(options.pairs + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    base = statistics.median(seconds["bare product"])
    print(f"{datetime.date.today()}  {machine()}  load {os.getloadavg()[0]:.1f}")
    shape = f"{len(vectors)} x {vectors.vectors.shape[1]}"
    print(f"{words} words, vocabulary {shape} ({vectors.id}), medians of {options.pairs}")
    for name, taken in seconds.items():
        middle = statistics.median(taken)
        times = f"{words / middle:8.0f} words/s  {middle / base:5.2f} x the bare product"
        print(f"{name:20s} {times}  ({min(taken):.2f}-{max(taken):.2f} s)")


if __name__ == "__main__":
    main()
