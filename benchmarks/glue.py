"""Word mechanisms downstream: table 1 of the paper on syntax-guided privatization, on data and a model for two cores.

Privatize the training rows alone, fine-tune MiniLM with `transformers.Trainer` on them, test on clean rows. Each
mechanism runs at its own scale, at which a quantile of public words is plausibly deniable (self-substituted in at most
50 of 100 draws). Each cell is a command of its own and leaves a JSON file; a cell that is there is not run again.

    python -m benchmarks.glue calibrate              the scales, on public words
    python -m benchmarks.glue run [--data trec]      every cell that is missing, one after the other
    python -m benchmarks.glue cell trec guided 0.9 0 one cell: data, source, quantile, seed
    python -m benchmarks.glue table                  what is there
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROWS, TEST = 3000, {"trec": 500, "movie": 900}
VECTORS = "glove-300d"
SOURCES = {
    "clean": None,
    "madlib": ("madlib", {}),
    "guided": ("syntax-guided", {"k": 20, "tag_privacy": "public"}),
    "guided-rr": ("syntax-guided", {"k": 20}),
}
ORDER = [("trec", source, quantile, 0) for quantile in (0.9, 0.5) for source in ("madlib", "guided")]
CELLS = [
    ("trec", "clean", 0.9, 0), *ORDER,
    *(("trec", "guided-rr", 0.9, 0),),
    ("movie", "clean", 0.9, 0), *(("movie", *cell[1:]) for cell in ORDER), ("movie", "guided-rr", 0.9, 0),
    *(("trec", source, 0.9, seed) for seed in (1, 2) for source in ("madlib", "guided", "clean")),
]  # fmt: skip


def calibrated(folder):
    """Return the scale of each mechanism and quantile, measured once."""
    from hf_dpsynth.audit import calibrate

    file = folder / "calibration.json"
    held = json.loads(file.read_text()) if file.exists() else {}
    for source, given in SOURCES.items():
        for quantile in (0.9, 0.5):
            name = f"{source} {quantile}"
            if given and name not in held:
                found = calibrate(given[0], quantile=quantile, params=given[1], vectors=VECTORS)
                held[name] = found.epsilon
                print(name, found.epsilon, flush=True)
                file.write_text(json.dumps(held, indent=1))
    return held


def cell(data, source, quantile, seed, folder):
    from benchmarks.downstream import load, machine
    from hf_dpsynth.downstream import Classifier, Examples

    real = load(data, {"train": ROWS, "test": TEST[data]})
    train, test = real["train"], Examples.of(real["test"], label_column="label")
    found = {"data": data, "source": source, "quantile": quantile, "seed": seed, "machine": machine()}
    found |= {"date": str(datetime.date.today()), "load": os.getloadavg()[0], "test": len(test)}
    if SOURCES[source]:
        mechanism, params = SOURCES[source]
        epsilon, start = calibrated(folder)[f"{source} {quantile}"], time.perf_counter()
        train = train.privatize(
            mechanism, epsilon=epsilon, text_column="text", keep_columns=["label"], params=params, vectors=VECTORS
        )
        found |= {"epsilon": epsilon, "seconds to privatize": time.perf_counter() - start}
        found["examples"] = train["text"][:5]
    start = time.perf_counter()
    fitted = Classifier(epochs=3, patience=3).fit(Examples.of(train, label_column="label"), seed=seed)
    return found | {"accuracy": fitted.accuracy(test), "seconds to train": time.perf_counter() - start}


def path(folder, data, source, quantile, seed):
    return folder / f"{data}-{source}-{quantile:g}-seed{seed}.json"


def run(folder, chosen):
    """Run the missing cells, each in a process of its own."""
    for parts in CELLS:
        if parts[0] in chosen and not path(folder, *parts).exists():
            print(f"{datetime.datetime.now():%H:%M}", *parts, flush=True)
            command = [sys.executable, "-m", "benchmarks.glue", "cell", *map(str, parts), "--folder", str(folder)]
            subprocess.run(command, check=False)


def table(folder):
    print("| data | training rows | quantile | scale | seed | accuracy |\n|---|---|---|---|---|---|")
    for parts in CELLS:
        if path(folder, *parts).exists():
            found = json.loads(path(folder, *parts).read_text())
            scale = f"{found['epsilon']:.2f}" if "epsilon" in found else ""
            quantile = f"{parts[2]:.2f}" if scale else ""
            print(f"| {parts[0]} | {parts[1]} | {quantile} | {scale} | {parts[3]} | {found['accuracy']:.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=("calibrate", "run", "cell", "table"))
    parser.add_argument("parts", nargs="*", help="of a cell: data, source, quantile, seed")
    parser.add_argument("--data", default="trec,movie")
    parser.add_argument("--folder", type=Path, default=Path("benchmarks/glue"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.verb == "cell":
        data, source, quantile, seed = options.parts
        found = cell(data, source, float(quantile), int(seed), options.folder)
        path(options.folder, data, source, float(quantile), int(seed)).write_text(json.dumps(found, indent=1))
    elif options.verb == "run":
        run(options.folder, options.data.split(","))
    else:
        {"calibrate": calibrated, "table": table}[options.verb](options.folder)


if __name__ == "__main__":
    main()
