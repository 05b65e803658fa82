"""Small public models for fast tests; the end-to-end tests run the real ones."""

import os
import pathlib
import subprocess
import sys
import zlib

import numpy as np
from datasets import Dataset

WORDS = "good bad film story actor plot slow bright dull music scene great awful fun script cast".split()
CANARY = "zqprivate"
ROOT = pathlib.Path(__file__).parents[1]


class StubEmbedder:
    """Hashed bag-of-words embeddings, shape (n, 64); may stop the process after some calls."""

    def __init__(self, crash_after=None):
        self.calls, self.crash_after, self.seen = 0, crash_after, []

    def embed(self, texts):
        self.calls += 1
        if self.crash_after is not None and self.calls > self.crash_after:
            os._exit(41)
        out = np.zeros((len(texts), 64), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                code = zlib.crc32(word.encode())
                out[row, code % 64] += 1.0 if (code >> 8) & 1 else -1.0
            out[row, 0] += 1e-3
        return out / np.linalg.norm(out, axis=1, keepdims=True)


class StubGenerator:
    """Public sentences that depend on the seed and on how often it was called; keeps its prompts."""

    def __init__(self, crash_after=None):
        self.calls, self.crash_after, self.prompts = 0, crash_after, []

    def generate(self, prompts, *, max_new_tokens=32, temperature=1.0, seed=0):
        self.calls += 1
        self.prompts += list(prompts)
        if self.crash_after is not None and self.calls > self.crash_after:
            os._exit(41)
        rng = np.random.default_rng([seed, self.calls])
        return [" ".join(rng.choice(WORDS, size=6)) for _ in prompts]


def reviews(n=60, label_type=str):
    """Labelled reviews whose canary words no stub generator knows."""
    rng = np.random.default_rng(7)
    texts, labels = [], []
    for i in range(n):
        words = "great fun bright good".split() if i % 2 else "awful dull slow bad".split()
        texts.append(" ".join([*rng.choice(words, size=5), f"{CANARY}{i}"]))
        labels.append(["neg", "pos"][i % 2] if label_type is str else i % 2)
    return Dataset.from_dict({"text": texts, "label": labels})


def synth(ds=None, out=None, **more):
    """Synthesize with stubs and small settings."""
    settings = {
        "epsilon": 4.0, "delta": 1e-4, "text_column": "text", "label_column": "label", "labels": ["neg", "pos"],
        "num_rows": 12, "params": {"iterations": 3, "variations": 2},
    }  # fmt: skip
    settings |= {"generator": StubGenerator(), "embedder": StubEmbedder(), "out": out} | more
    return (reviews() if ds is None else ds).synthesize("aug-pe", **settings)


def toy_vectors():
    """A vocabulary of four words on a line, as a file in GloVe's text format."""
    path = pathlib.Path("toy.txt")
    path.write_text("good -5.0\nbad 0.0\nfun 1.0\nfilm 6.0\n")
    return str(path)


def files_with(folder, needle):
    """Every file below a folder whose bytes hold the needle."""
    paths = [pathlib.Path(root, name) for root, _, names in os.walk(folder) for name in names]
    return [path for path in paths if needle.encode() in path.read_bytes()]


def race(script, path):
    """Run a script that prints a number in three processes at once, and add the numbers."""
    command = [sys.executable, "-c", script, str(path)]
    racers = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    won = 0
    for racer in racers:
        out, err = racer.communicate()
        assert racer.returncode == 0, err
        won += int(out)
    return won
