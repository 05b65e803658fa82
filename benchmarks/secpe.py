"""Secret protection against differential privacy at an equal bound on guesses: sec-pe and aug-pe at equal r/p.

A guess of prior p = 1e-4 is right with probability r at most after a mu-Gaussian-DP release, mu = `secret_allowance`:
aug-pe gets the epsilon of that mu at delta = 1e-5, so every record has the bound, sec-pe gives it to listed secrets.
Without a bound (inf) aug-pe adds no noise and sec-pe is told of no secret. Public rows are other rows of the training
split. Train on synthetic, test on real. Each cell is a command of its own and leaves a JSON file; a cell that is there
is not run again, and a run that was killed goes on.

    python -m benchmarks.secpe run [--data movie]             every cell that is missing, one after the other
    python -m benchmarks.secpe cell sms-spam sec-pe 10        one cell
    python -m benchmarks.secpe votes                          time of a vote: records against clusters
    python -m benchmarks.secpe table                          what is there

`--folder` holds files and run directories; benchmarks/secpe when missing.
"""

import argparse
import datetime
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

P, DELTA = 1e-4, 1e-5
RATIOS = (2.0, 10.0, 50.0, math.inf)
SECRETS = {"spam-assassin": "regex", "sms-spam": "regex", "movie": "spacy"}
SUBJECTS = {"spam-assassin": "e-mail", "sms-spam": "text message", "movie": "movie review sentence"}
COLUMNS = {"text_column": "text", "label_column": "label"}
SIZES = {"private": 2000, "public": 1000, "rows": 300, "test": 500, "clusters": 100}
EVOLUTION = {
    "iterations": 4, "variations": 3, "variation": "paraphrase", "word_count_std": 4.0, "max_new_tokens": 40,
    "temperature": 0.8, "variation_temperature": 0.7,
}  # fmt: skip
CELLS = [
    (data, source, ratio) for data in SECRETS for ratio in RATIOS for source in ("real", "sec-pe", "aug-pe")
    if source != "real" or ratio == math.inf
]  # fmt: skip


def splits(data, sizes):
    """Private, public and test rows, disjoint, in a public random order."""
    import hf_dpsynth

    found = hf_dpsynth.data.load(data)
    train = found["train"].shuffle(seed=0)
    wanted = sizes["private"] + sizes["public"]
    if "test" not in found:
        found = train.train_test_split(test_size=sizes["test"], seed=0)
        train = found["train"]
    if wanted > len(train):
        sizes = sizes | {name: sizes[name] * len(train) // wanted for name in ("private", "public")}
    private = train.select(range(sizes["private"]))
    public = train.select(range(sizes["private"], sizes["private"] + sizes["public"]))
    test = found["test"].shuffle(seed=0)
    return private, public, test.select(range(min(sizes["test"], len(test))))


def make(data, source, ratio, private, public, sizes, folder):
    """Return the synthetic rows of a cell."""
    from hf_dpsynth.privacy.accounting import gaussian_epsilon, secret_allowance

    params = EVOLUTION | {"subject": SUBJECTS[data], "iterations": sizes.get("iterations", EVOLUTION["iterations"])}
    shares = {name: 1 / len(private.features["label"].names) for name in private.features["label"].names}
    common = {"num_rows": sizes["rows"], "label_proportions": shares, "out": folder / f"{data}-{source}-{ratio:g}"}
    if source == "aug-pe":
        epsilon = math.inf if ratio == math.inf else gaussian_epsilon(secret_allowance(P, ratio * P), DELTA)
        delta = None if ratio == math.inf else DELTA
        return private.synthesize(
            source, epsilon=epsilon, delta=delta, adjacency="add-remove", params=params, **COLUMNS, **common
        )
    secrets = SECRETS[data] if ratio < math.inf else "none"
    if secrets == "none":
        from datasets import Dataset, Features, List, Value

        values = {name: private[name][:] for name in ("text", "label")} | {"none": [[]] * len(private)}
        features = {name: private.features[name] for name in ("text", "label")} | {"none": List(Value("string"))}
        private = Dataset.from_dict(values, features=Features(features))
    params |= {"p": P, "r": 10 * P if ratio == math.inf else ratio * P, "clusters": sizes["clusters"]}
    return private.synthesize(source, epsilon=None, secrets=secrets, public=public, params=params, **COLUMNS, **common)


def cell(data, source, ratio, folder, sizes):
    """Make the rows of a cell, score them and return the figures. They are computed from real rows: Sensitive."""
    from benchmarks.downstream import machine
    from hf_dpsynth import metrics
    from hf_dpsynth.downstream import Classifier, Examples, WordCNN

    private, public, test = splits(data, sizes)
    found = {"data": data, "source": source, "ratio": ratio, "date": str(datetime.date.today()), "sizes": sizes}
    found |= {"machine": machine(), "load": os.getloadavg()[0], "private": len(private), "test": len(test)}
    train, start = private, time.perf_counter()
    if source != "real":
        train = make(data, source, ratio, private, public, sizes, folder)
        plan = train.privacy.plan
        found |= {"seconds": time.perf_counter() - start, "noise_multiplier": plan.noise_multiplier}
        found |= {"guarantee": train.privacy.guarantee.statement(), "params": plan.params}
    texts = {"predictions": train["text"][:], "references": test["text"][:]}
    found |= {"fid": metrics.load("fid").compute(**texts, embedder="minilm")}
    examples, real = (Examples.of(rows, label_column="label") for rows in (train, test))
    for model in (WordCNN(batch_size=32, patience=3), Classifier(epochs=3, batch_size=16, patience=3)):
        if model.name in sizes.get("skip", ()):
            continue
        start = time.perf_counter()
        found[model.name] = model.fit(examples, seed=0).accuracy(real)
        found[f"{model.name} seconds"] = time.perf_counter() - start
    return found


def votes(records=(10_000, 100_000, 1_000_000), clusters=1000, candidates=2000, width=384):
    """Print the seconds of one vote by records and by clusters, on random directions."""
    import numpy as np

    from hf_dpsynth.compute import nearest

    rng = np.random.default_rng(0)
    texts, centres = (rng.standard_normal((n, width), dtype=np.float32) for n in (candidates, clusters))
    start = time.perf_counter()
    nearest.assign(centres, texts)
    fast = time.perf_counter() - start
    print(f"| records | s by record | s by {clusters} clusters | s to count once |\n|---|---|---|---|")
    for number in records:
        rows = rng.standard_normal((number, width), dtype=np.float32)
        start = time.perf_counter()
        nearest.votes(rows, texts)
        slow = time.perf_counter() - start
        start = time.perf_counter()
        nearest.assign(rows, centres)
        print(f"| {number} | {slow:.3f} | {fast:.3f} | {time.perf_counter() - start:.3f} |", flush=True)


def path(folder, data, source, ratio):
    return folder / f"{data}-{source}-{ratio:g}.json"


def run(folder, chosen):
    """Run the missing cells, each in a process of its own."""
    for data, source, ratio in CELLS:
        if data not in chosen or path(folder, data, source, ratio).exists():
            continue
        print(f"{datetime.datetime.now():%H:%M} {data} {source} r/p {ratio:g}", flush=True)
        command = [sys.executable, "-m", "benchmarks.secpe", "cell", data, source, str(ratio)]
        subprocess.run([*command, "--folder", str(folder)], check=False)


def table(folder):
    """Print the cells that are there."""
    print("| data | source | r/p | sigma | FID | floor | word CNN | MiniLM | s to make |\n|" + "---|" * 9)
    for data, source, ratio in CELLS:
        file = path(folder, data, source, ratio)
        if not file.exists():
            continue
        found = json.loads(file.read_text())
        numbers = [found.get("noise_multiplier"), found["fid"]["fid"], found["fid"]["fid_floor"]]
        numbers += [found.get("word-cnn"), found.get("minilm")]
        cells = [data, source, f"{ratio:g}", *("" if number is None else f"{number:.3f}" for number in numbers)]
        print("| " + " | ".join([*cells, f"{found['seconds']:.0f}" if "seconds" in found else ""]) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=("run", "cell", "votes", "table"))
    parser.add_argument("cell", nargs="*", help="data, source, ratio")
    parser.add_argument("--data", nargs="+", default=list(SECRETS))
    parser.add_argument("--folder", type=Path, default=Path("benchmarks/secpe"))
    parser.add_argument("--sizes", type=json.loads, default={}, help="JSON that overrides sizes, for a trial run")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.verb == "run":
        run(options.folder, options.data)
    elif options.verb == "table":
        table(options.folder)
    elif options.verb == "votes":
        votes()
    else:
        data, source, ratio = options.cell
        found = cell(data, source, float(ratio), options.folder, SIZES | options.sizes)
        path(options.folder, data, source, float(ratio)).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
