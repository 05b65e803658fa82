"""Rounds of `dp-eda`: how far texts are from the private ones, how flat the votes are, how many parents there are.

The figures of the source in kind: Wasserstein distance by round with and without the perplexity filter, variance of
the votes, and size of the parent set. The rows of the training split are treated as private, those of the test split
are the public texts (with `--zero-shot` the generator's own). Every figure but the parents' number is computed here
from the private rows after the run: the mechanism knows none of them, and they are not covered by its guarantee.

    python -m benchmarks.eda run [--data trec]                          every cell that is missing
    python -m benchmarks.eda cell trec gaussian-top-k filter 5 0        one cell
    python -m benchmarks.eda table                                      what is there

`--folder` holds the JSON files and run directories; benchmarks/eda when missing. `--inverter FOLDER` decodes with a
trained inverter, `--samples` texts an embedding. `--rows`, `--offspring`, `--initial`, `--parents`, `--domain`,
`--iterations` make cells smaller.
"""

import argparse
import datetime
import json
import logging
import math
import platform
import time
from itertools import product
from pathlib import Path

import numpy as np

import hf_dpsynth
from hf_dpsynth import data, models
from hf_dpsynth.compute import nearest
from hf_dpsynth.compute.unit_rows import unit_rows
from hf_dpsynth.metrics.wasserstein import sliced_wasserstein

SUBJECTS = {"movie": "movie review sentence", "trec": "short factual question"}
LIMITS = {"trec": 2900.0, "movie": 1000.0}  # nine tenths of 150 texts of the public split are below it
FILTERS = ("filter", "no-filter")
CELLS = [
    *product(("trec", "movie"), ("gaussian-top-k",), FILTERS, (5.0,), (0,)),
    *product(("trec", "movie"), ("limited-domain",), ("filter",), (5.0,), (0,)),
    *product(("trec",), ("gaussian-top-k",), ("filter",), (1.0, math.inf), (0,)),
    *product(("trec",), ("gaussian-top-k",), FILTERS, (5.0,), (1,)),
]


def path(folder, name, selection, kept, epsilon, seed):
    return folder / f"{name}-{selection}-{kept}-eps{epsilon:g}-seed{seed}.json"


def lines(folder, name):
    file = folder / "populations" / f"{name}.jsonl"
    return [json.loads(line)["text"] for line in file.read_text().splitlines()] if file.exists() else None


def rounds(folder, labels, iterations):
    """Yield the population that each round voted on and the parents that it kept, both by label."""
    population = [lines(folder, f"population-000-{label:02d}") for label in range(labels)]
    for step in range(1, iterations + 1):
        kept = [lines(folder, f"kept-{step:03d}-{label:02d}") for label in range(labels)]
        yield population, [json.loads(one[0]) if one else [] for one in kept]
        following = [lines(folder, f"population-{step:03d}-{label:02d}") for label in range(labels)]
        population = [new or old for new, old in zip(following, population, strict=True)]


def measured(embedder, private, population, parents):
    """Return the figures of a round. As sensitive as the private rows: they are public here."""
    vectors = [unit_rows(embedder.embed(texts)) for texts in population]
    votes = [nearest.votes(rows, near) for rows, near in zip(private, vectors, strict=True)]
    chosen = [unit_rows(embedder.embed(texts)) for texts in parents if texts]
    everything = np.concatenate(private)
    return {
        "wasserstein_population": sliced_wasserstein(np.concatenate(vectors), everything),
        "wasserstein_parents": sliced_wasserstein(np.concatenate(chosen), everything) if chosen else None,
        "vote_variance": float(np.mean([one.var() for one in votes])),
        "most_votes": int(max(one.max() for one in votes)),
        "parents": [len(texts) for texts in parents],
        "population": [len(texts) for texts in population],
    }


def cell(options, name, selection, kept, epsilon, seed):
    """Run one cell and write its figures."""
    splits, embedder = data.load(name), models.load_embedder("minilm")
    private = splits["train"].shuffle(seed=0).select(range(min(options.rows, len(splits["train"]))))
    names = private.features["label"].names
    params = {
        "iterations": options.iterations, "parents": options.parents, "offspring": options.offspring,
        "domain": options.domain, "num_initial": options.initial, "selection": selection,
        "perplexity_limit": LIMITS[name] if kept == "filter" else None, "subject": SUBJECTS[name],
        "inverter": options.inverter, "samples": options.samples,
    }  # fmt: skip
    file = path(options.folder, name, selection, kept, epsilon, seed)
    folder, started = file.with_suffix(""), time.perf_counter()
    made = private.synthesize(
        "dp-eda", epsilon=epsilon, delta=None if math.isinf(epsilon) else 1 / len(private), text_column="text",
        label_column="label", num_rows=options.made, public=None if options.zero_shot else splits["test"],
        params=params, seed=seed,
        embedder=embedder, out=folder,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    by_label = [private.filter(lambda row, label=label: row["label"] == label) for label in range(len(names))]
    own = [embedder.embed(part["text"][:]) for part in by_label]
    found = [measured(embedder, own, *one) for one in rounds(folder, len(names), options.iterations)]
    rows = unit_rows(embedder.embed(made["text"][:]))
    halves = np.array_split(np.concatenate(own)[np.random.default_rng(0).permutation(sum(map(len, own)))], 2)
    result = {
        "data": name, "selection": selection, "filter": kept, "epsilon": str(epsilon), "seed": seed,
        "private_rows": len(private), "zero_shot": options.zero_shot, "params": params,
        "noise_multiplier": made.privacy.plan.noise_multiplier,
        "charges": [charge.key for charge in made.privacy.charges], "rounds": found,
        "wasserstein_rows": sliced_wasserstein(rows, np.concatenate(own)),
        "wasserstein_floor": sliced_wasserstein(*halves), "rows": made["text"][:][:20],
        "seconds": round(seconds, 1), "date": datetime.date.today().isoformat(), "machine": platform.processor(),
        "version": hf_dpsynth.__version__,
    }  # fmt: skip
    file.write_text(json.dumps(result, indent=1))


def table(folder):
    """Print what is there, a line a round."""
    for file in sorted(folder.glob("*.json")):
        held = json.loads(file.read_text())
        print(f"\n{file.stem}: rows {held['wasserstein_rows']:.4f}, floor {held['wasserstein_floor']:.4f}")
        for number, one in enumerate(held["rounds"], 1):
            parents = "-" if one["wasserstein_parents"] is None else f"{one['wasserstein_parents']:.4f}"
            print(
                f"  {number:2d}  population {one['wasserstein_population']:.4f}  parents {parents}  "
                f"variance {one['vote_variance']:9.2f}  parents {sum(one['parents'])}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("run", "cell", "table"))
    parser.add_argument("cell", nargs="*", help="data, selection, filter or no-filter, epsilon, seed")
    parser.add_argument("--data", nargs="*", default=list(SUBJECTS))
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "eda")
    parser.add_argument("--zero-shot", action="store_true", help="start from texts that the generator is asked for")
    parser.add_argument("--inverter", help="the folder of a trained inverter; nearest texts, paraphrased, without")
    for name, value in (
        ("rows", 3000), ("offspring", 300), ("initial", 300), ("parents", 10), ("domain", 40), ("iterations", 7),
        ("made", 200), ("samples", 2),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.verb == "table":
        table(options.folder)
    elif options.verb == "cell":
        name, selection, kept, epsilon, seed = options.cell
        cell(options, name, selection, kept, float(epsilon), int(seed))
    else:
        for one in CELLS:
            if one[0] in options.data and not path(options.folder, *one).exists():
                cell(options, *one)


if __name__ == "__main__":
    main()
