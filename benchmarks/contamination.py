"""Overlaps of 50 MB of public text with 5 MB of private text: `python -m benchmarks.contamination`.

Words are drawn from a Zipf law over made-up words, of which the private texts know all or a part; one public text in
`--planted` holds 50 to 150 tokens of a private one. End to end: from lists of texts to counts and spans, or to a cut
corpus. The same windows are counted by a set of tuples (`--naive`), which is exact and slow.
"""

import argparse
import os
import platform
import sys
import time

import numpy as np

import hf_dpsynth
from hf_dpsynth.contamination.overlaps import find_overlaps
from hf_dpsynth.contamination.rules import Rules

MEGABYTE = 10**6


def corpora(options):
    rng = np.random.default_rng(options.seed)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = np.array(["".join(rng.choice(letters, size)) for size in rng.integers(2, 10, options.words)])
    odds = 1 / np.arange(10, options.words + 10)
    odds /= odds.sum()

    def texts(megabytes, length):
        made, size = [], 0
        while size < megabytes * MEGABYTE:
            drawn = rng.choice(words, (1000, length), p=odds)
            made += [list(row) for row in drawn]
            size += int(np.char.str_len(drawn).sum()) + drawn.size
        return made

    private, public = texts(options.private, 150), texts(options.public, 300)
    for at in range(0, len(public), options.planted):
        source, size = private[int(rng.integers(len(private)))], int(rng.integers(50, 151))
        start, place = int(rng.integers(len(source) - size + 1)), int(rng.integers(200))
        public[at][place:place] = source[start : start + size]
    return [" ".join(text) for text in private], [" ".join(text) for text in public]


def processor_time():
    """Seconds of this process and of workers that ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def naive(private, public, window):
    """Windows of public texts that are in a set of tuples of the private ones."""
    known, found = set(), 0
    for text in private:
        tokens = text.split()
        known.update(tuple(tokens[at : at + window]) for at in range(len(tokens) - window + 1))
    for text in public:
        tokens = text.split()
        found += sum(tuple(tokens[at : at + window]) in known for at in range(len(tokens) - window + 1))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--public", type=float, default=50, help="megabytes")
    parser.add_argument("--private", type=float, default=5, help="megabytes")
    parser.add_argument("--words", type=int, default=50_000)
    parser.add_argument("--planted", type=int, default=100)
    parser.add_argument("--window", type=int, default=Rules().window)
    parser.add_argument("--num-proc", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--naive", action="store_true")
    options = parser.parse_args()
    private, public = corpora(options)
    size = sum(len(text.encode()) for text in public) / MEGABYTE
    given = sum(len(text.encode()) for text in private) / MEGABYTE
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, hf-dpsynth {hf_dpsynth.__version__}"
    print(f"{platform.machine()}, {os.cpu_count()} cores, {versions}, load {os.getloadavg()[0]:.1f}")
    print(f"{size:.1f} MB public, {given:.1f} MB private, {options.num_proc} process(es)")
    for mode in ("report", "cut"):
        for _ in range(options.repeat):
            start, used = time.perf_counter(), processor_time()
            found = find_overlaps(private, public, window=options.window, mode=mode, num_proc=options.num_proc)
            clock, processor = time.perf_counter() - start, processor_time() - used
            print(
                f"{mode}: {clock:.2f} s, {size / clock:.1f} MB/s; processor {processor:.2f} s, "
                f"{size / processor:.1f} MB/s; {found.num_windows} windows, {found.num_documents} texts"
            )
    if options.naive:
        start = time.perf_counter()
        count = naive(private, public, options.window)
        print(f"a set of tuples: {time.perf_counter() - start:.2f} s, {count} windows")


if __name__ == "__main__":
    sys.exit(main())
