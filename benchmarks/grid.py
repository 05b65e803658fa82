"""DP fine-tuning against training on real rows: the grid of Kurakin et al. 2023, on data and models for two cores.

Train on synthetic, test on real. Each cell is a command of its own and leaves a JSON file; a cell that is there is not
run again, and a run that was killed goes on from its last checkpoint. Nothing was tuned on these data: learning
rates, clipping and ranks are the defaults of the mechanisms, and the templates were written down once.

    python -m benchmarks.grid run [--data trec]      every cell that is missing, one after the other
    python -m benchmarks.grid cell trec dp-lora 3    one cell
    python -m benchmarks.grid table                  what is there

`--folder` holds files and run directories; benchmarks/grid when missing.
"""

import argparse
import datetime
import json
import logging
import math
import os
import subprocess
import sys
import time
from pathlib import Path

ROWS = 3000
COLUMNS = {"text_column": "text", "label_column": "label"}
TUNING = {"epochs": 2, "batch_size": 64, "max_tokens": 64, "max_new_tokens": 40, "checkpoint_every": 10}
TEMPLATES = {"trec": "A question that asks for a {label}:", "movie": "A {label} sentence from a movie review:"}
PRIVATE_TRAINING = {"steps": 300, "batch_size": 256}
CELLS = [
    *[("trec", source, epsilon) for source, epsilon in (
        ("real", math.inf), ("dp-on-real", 1), ("dp-on-real", 3), ("dp-on-real", 10), ("dp-on-real", math.inf),
        ("dp-lora", 3), ("dp-lora", math.inf), ("dp-lora", 1), ("dp-lora", 10), ("dp-prompt-tuning", 3),
    )],
    *[("movie", source, epsilon) for source, epsilon in (
        ("real", math.inf), ("dp-on-real", 3), ("dp-on-real", math.inf), ("dp-lora", 3), ("dp-lora", math.inf),
    )],
    ("trec", "dp-full", 3),
    *[(data, source, epsilon) for data in ("trec", "movie") for source in ("dp-prompt-tuning", "dp-full")
      for epsilon in (1, 10, math.inf)],
    *[("movie", source, epsilon) for source, epsilon in (
        ("dp-lora", 1), ("dp-lora", 10), ("dp-on-real", 1), ("dp-on-real", 10), ("dp-prompt-tuning", 3),
        ("dp-full", 3),
    )],
]  # fmt: skip


def models():
    from hf_dpsynth.downstream import Classifier, WordCNN

    return WordCNN(batch_size=32, patience=3), Classifier(epochs=3, batch_size=16, patience=3)


def make(data, source, epsilon, train, folder):
    """Return the training rows of a cell as a Dataset, and the seconds that making them took."""
    start = time.perf_counter()
    shares = {"negative": 0.5, "positive": 0.5} if data == "movie" else None
    rows = train.synthesize(
        source, epsilon=epsilon, **COLUMNS, label_proportions=shares, num_records=ROWS, num_rows=ROWS,
        params=TUNING | {"prompt_template": TEMPLATES[data]}, out=folder / f"{data}-{source}-eps{epsilon:g}",
    )  # fmt: skip
    return rows, time.perf_counter() - start


def cell(data, source, epsilon, folder):
    """Make the rows of a cell, train both classifiers and return the figures."""
    from benchmarks.downstream import load, machine
    from hf_dpsynth.downstream import DPOnReal, Examples

    real = load(data, {"train": ROWS, "test": 500 if data == "trec" else 900})
    train, test = (Examples.of(real[split], label_column="label") for split in ("train", "test"))
    found = {"data": data, "source": source, "epsilon": epsilon, "date": str(datetime.date.today())}
    found |= {"machine": machine(), "load": os.getloadavg()[0], "test": len(test)}
    if source not in ("real", "dp-on-real"):
        made, found["seconds"] = make(data, source, epsilon, real["train"], folder)
        plan = made.privacy.plan
        found |= {"noise_multiplier": plan.noise_multiplier, "delta": plan.delta, "params": plan.params}
        found["examples"] = [[row["label"], row["text"]] for row in made.select(range(8))]
        train = Examples.of(made, label_column="label")
    for model in models():
        start = time.perf_counter()
        if source == "dp-on-real":
            options = DPOnReal(epsilon=epsilon, **PRIVATE_TRAINING)
            fitted = options.fit(model, train)
            found["noise_multiplier"] = options.schedule(ROWS).noise_multiplier
        else:
            fitted = model.fit(train, seed=0)
        found[model.name] = fitted.accuracy(test)
        found[f"{model.name} seconds"] = time.perf_counter() - start
    return found


def path(folder, data, source, epsilon):
    return folder / f"{data}-{source}-eps{epsilon:g}.json"


def run(folder, chosen):
    """Run the missing cells, each in a process of its own."""
    for data, source, epsilon in CELLS:
        if data not in chosen or path(folder, data, source, epsilon).exists():
            continue
        print(f"{datetime.datetime.now():%H:%M} {data} {source} eps {epsilon:g}", flush=True)
        command = [sys.executable, "-m", "benchmarks.grid", "cell", data, source, str(epsilon)]
        subprocess.run([*command, "--folder", str(folder)], check=False)


def table(folder):
    """Print the cells that are there."""
    print("| data | source | eps | sigma | word CNN | MiniLM | s to make |\n|---|---|---|---|---|---|---|")
    for data, source, epsilon in CELLS:
        file = path(folder, data, source, epsilon)
        if not file.exists():
            continue
        found = json.loads(file.read_text())
        sigma, seconds = (found.get(name) for name in ("noise_multiplier", "seconds"))
        cells = [data, source, f"{epsilon:g}", f"{sigma:.3f}" if sigma else "", f"{found['word-cnn']:.3f}"]
        cells += [f"{found['minilm']:.3f}", f"{seconds:.0f}" if seconds else ""]
        print("| " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=("run", "cell", "table"))
    parser.add_argument("cell", nargs="*", help="data, source, epsilon")
    parser.add_argument("--data", nargs="+", default=["trec", "movie"])
    parser.add_argument("--folder", type=Path, default=Path("benchmarks/grid"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    if options.verb == "run":
        run(options.folder, options.data)
    elif options.verb == "table":
        table(options.folder)
    else:
        data, source, epsilon = options.cell
        found = cell(data, source, float(epsilon), options.folder)
        path(options.folder, data, source, float(epsilon)).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
