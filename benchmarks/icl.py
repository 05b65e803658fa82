"""In-context learning with private demonstrations: Tables 1 to 3 and Figure 5 of seed 000, in kind.

A causal model labels held-out rows after demonstrations that a mechanism made, that are real, or that are not there;
the prefix of demonstrations is read once for all rows. Then: does a prompt tell whose text stands in it? A member is a
private row; with real demonstrations it is the one in the prompt. Each cell is a command of its own and leaves a JSON
file; a cell that is there is not run again, and rows that were made serve every number of shots. Methods that the
registry does not have are left out. The data are public and treated as private; the public texts that some methods
pick from are the generator's own. Nothing was tuned on these data.

    python -m benchmarks.icl run [--data trec]                     every cell that is missing, one after the other
    python -m benchmarks.icl cell trec aug-pe 8 6                  one cell: data, method, epsilon, shots
    python -m benchmarks.icl membership trec aug-pe 8              one attack: data, source of the prompt, epsilon
    python -m benchmarks.icl table                                 what is there

`--folder` holds files and run directories; benchmarks/icl when missing.
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

import numpy as np

COLUMNS = {"text_column": "text", "label_column": "label"}
DATA = ("trec", "sms-spam")
PUBLIC = 300  # texts of the generator by public prompts, for methods that pick from them
EVOLUTION = {
    "iterations": 5, "variations": 3, "variation": "paraphrase", "word_count_std": 4.0, "max_new_tokens": 32,
    "temperature": 0.8, "variation_temperature": 0.7,
}  # fmt: skip
SYNTHETIC = {
    "aug-pe": EVOLUTION,
    "dp-eda": {"iterations": 5, "offspring": 200, "parents": 10, "samples": 2, "max_new_tokens": 32},
    "dp-lora": {"epochs": 2, "batch_size": 64, "max_tokens": 64, "max_new_tokens": 40, "checkpoint_every": 10},
    "sec-pe": EVOLUTION | {"p": 1e-4, "r": 1e-3, "clusters": 100},
    "dp-icl": {"max_new_tokens": 24, "max_tokens": 40, "subsets": 10, "shots": 2},
    "invisible-ink": {"max_new_tokens": 24, "max_tokens": 40, "batch_size": 16},
    "sentdp-select": {},
}  # fmt: skip
FEW = {"dp-icl": 12}  # rows of a method that is meant for a handful; the others make --rows
SECRETS = ("sec-pe",)  # protects listed secrets, at p and r in place of an epsilon
EPSILONS, SHOTS = (1.0, 8.0), 6
TOLD = ("real", "aug-pe", "sentdp-select", "dp-icl")
ORDER = ("zero-shot", "real", *SYNTHETIC, "custext")


def cells():
    """Every method at 6 shots and both budgets; aug-pe and real rows at 3 and 9 too."""
    for data in DATA:
        yield data, "zero-shot", math.inf, 0
        for shots in (3, 6, 9):
            yield data, "real", math.inf, shots
        for method in known():
            for epsilon in (math.inf,) if method in SECRETS else EPSILONS:
                yield data, method, epsilon, SHOTS
        for shots in (3, 9):
            yield data, "aug-pe", 8.0, shots


def known():
    from hf_dpsynth import registry

    return [name for name in (*SYNTHETIC, "custext") if name in registry.table()]


def public_texts(data, labels, folder, number):
    """Return rows that the generator writes by public prompts; made once."""
    from datasets import ClassLabel, Dataset, Features, Value

    from benchmarks.downstream import SUBJECTS
    from hf_dpsynth import models
    from hf_dpsynth.mechanisms.evolution import prompts
    from hf_dpsynth.privacy.keys import public_generator

    file = folder / f"public-{data}-{number}.json"
    if not file.exists():
        asked = [
            prompts.initial(SUBJECTS[data], f"label: {labels[row % len(labels)]}", public_generator(0, "icl", row), ())
            for row in range(number)
        ]
        made = models.load_generator("smollm2-135m").generate(asked, max_new_tokens=32, temperature=1.0, seed=0)
        file.write_text(json.dumps([prompts.clean(text) or "text" for text in made]))
    texts = json.loads(file.read_text())
    features = Features({"text": Value("string"), "label": ClassLabel(names=labels)})
    return Dataset.from_dict({"text": texts, "label": [row % len(labels) for row in range(number)]}, features=features)


def make(data, method, epsilon, train, options):
    """Return the rows of a method; what a run directory holds is not made again."""
    from benchmarks.downstream import SUBJECTS
    from hf_dpsynth import registry

    out = options.folder / "runs" / f"{data}-{method}-eps{epsilon:g}-{len(train)}"
    if method == "custext":
        return train.privatize("custext", epsilon=epsilon, text_column="text", keep_columns=["label"], out=out)
    labels, cls = train.features["label"].names, registry.table()[method].load()
    params = dict(SYNTHETIC[method]) | ({"subject": SUBJECTS[data]} if "subject" in cls.__dataclass_fields__ else {})
    if method == "dp-eda":
        params |= {"inverter": options.inverter, "perplexity_limit": options.perplexity_limit}
    more = {}
    if "public" in getattr(cls, "takes", ()) and method != "dp-lora":
        more["public"] = public_texts(data, labels, options.folder, options.public)
    if method in SECRETS:
        more["secrets"] = lambda text: [word for word in text.split() if any(sign.isdigit() for sign in word)]
    return train.synthesize(
        method, epsilon=None if method in SECRETS else epsilon, delta=None if method in SECRETS else "1/n", **COLUMNS,
        label_proportions={label: 1 / len(labels) for label in labels}, num_records=len(train),
        num_rows=min(options.rows, FEW.get(method, options.rows)), params=params, out=out, **more,
    )  # fmt: skip


def demonstrations(data, method, epsilon, options):
    """Return real rows in two halves, the rows of a method, its plan, and the seconds that making them took."""
    from benchmarks.downstream import load
    from hf_dpsynth.downstream import Examples

    real = load(data, {"train": options.train, "test": options.test})
    train, test = (Examples.of(real[split], label_column="label") for split in ("train", "test"))
    if method in ("real", "zero-shot"):
        return train, test, train, None, 0.0
    start = time.perf_counter()
    made = make(data, method, epsilon, real["train"], options)
    rows = Examples.of(made, label_column="label", classes=train.classes)
    return train, test, rows, made, time.perf_counter() - start


def cell(data, method, epsilon, shots, options):
    """Return the accuracy over sets of demonstrations."""
    from benchmarks.downstream import machine
    from hf_dpsynth.downstream import InContext

    _, test, rows, made, seconds = demonstrations(data, method, epsilon, options)
    model, start = InContext(shots=shots, resamples=options.resamples), time.perf_counter()
    found = [model.fit(rows, seed=seed).accuracy(test) for seed in range(model.repeats(1))]
    plan = None if made is None else made.privacy.plan
    return {
        "data": data, "method": method, "epsilon": epsilon, "shots": shots, "date": str(datetime.date.today()),
        "machine": machine(), "load": os.getloadavg()[0], "train": options.train, "test": len(test),
        "rows": len(rows), "resamples": len(found), "accuracy": float(np.mean(found)),
        "deviation": float(np.std(found)), "seconds": seconds, "seconds to score": time.perf_counter() - start,
        "noise_multiplier": plan and plan.noise_multiplier, "delta": plan and plan.delta,
        "lm_calls": plan and plan.cost and plan.cost.lm_calls,
        "examples": [] if made is None else [[row["label"], row["text"]] for row in made.select(range(4))],
    }  # fmt: skip


def membership(train, test, rows, *, shown, resamples, others=8, seed=0, model=None):
    """Return how well the likelihood of its label tells a text of the private rows from another (Figure 5).

    Args:
        train (`Examples`): private rows, of which one is the member. Sensitive.
        test (`Examples`): rows that nobody used.
        rows (`Examples`): what demonstrations are drawn from.
        shown (`bool`): whether the member stands in the prompt.
        resamples (`int`): prompts.
        others (`int`): rows of `test` scored behind each prompt.
        seed (`int`): of the public draws.
        model (`InContext`, *optional*): one demonstration and the small model of the catalogue when missing.
    Returns:
        `dict`: the area under the curve, .5 for an attack that knows nothing, and the mean probability of both kinds.
    """
    from hf_dpsynth.audit import audit_prompts
    from hf_dpsynth.downstream import InContext

    found = audit_prompts(
        rows, train, test, model=model or InContext(shots=1), shown=shown, resamples=resamples,
        others_per_prompt=others, seed=seed,
    )  # fmt: skip
    names = {"auc": "auc", "members": "label_probability_of_members", "others": "label_probability_of_others"}
    return {name: found[metric].value for name, metric in names.items()}


def attack(data, source, epsilon, options):
    train, test, rows, _, _ = demonstrations(data, source, epsilon, options)
    found = membership(train, test, rows, shown=source == "real", resamples=options.resamples)
    return {"data": data, "source": source, "epsilon": epsilon, "resamples": options.resamples, **found}


def path(folder, *words):
    return folder / ("-".join(f"{word:g}" if isinstance(word, float) else str(word) for word in words) + ".json")


def run(options):
    """Run the missing cells, each in a process of its own."""
    jobs = [("cell", *words) for words in cells() if words[0] in options.data and words[1] not in options.without]
    attacks = [(data, source) for data in options.data for source in TOLD if source == "real" or source in known()]
    jobs += [("membership", data, source, math.inf if source == "real" else 8.0) for data, source in attacks]
    names = ("train", "test", "rows", "resamples", "public", "folder", "perplexity-limit", "inverter")
    values = {name: getattr(options, name.replace("-", "_")) for name in names}
    passed = [f"--{name}={value}" for name, value in values.items() if value is not None]
    for job in jobs:
        if path(options.folder, *job).exists():
            continue
        print(f"{datetime.datetime.now():%H:%M} {' '.join(map(str, job))}", flush=True)
        subprocess.run([sys.executable, "-m", "benchmarks.icl", *map(str, job), *passed], check=False)


def table(folder):
    """Print the cells that are there."""
    read = [json.loads(file.read_text()) for file in sorted(folder.glob("cell-*.json"))]
    print("| data | method | eps | shots | accuracy | +- | rows | s to make |\n|---|---|---|---|---|---|---|---|")
    for found in sorted(read, key=lambda f: (f["data"], ORDER.index(f["method"]), f["epsilon"], f["shots"])):
        line = [found["data"], found["method"], f"{found['epsilon']:g}", found["shots"], f"{found['accuracy']:.3f}"]
        line += [f"{found['deviation']:.3f}", found["rows"], f"{found['seconds']:.0f}"]
        print("| " + " | ".join(map(str, line)) + " |")
    print("\n| data | demonstration | eps | AUC | members | others |\n|---|---|---|---|---|---|")
    for found in (json.loads(file.read_text()) for file in sorted(folder.glob("membership-*.json"))):
        figures = [f"{found[name]:.3f}" for name in ("auc", "members", "others")]
        print("| " + " | ".join([found["data"], found["source"], f"{found['epsilon']:g}", *figures]) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=("run", "cell", "membership", "table"))
    parser.add_argument("words", nargs="*", help="data, method, epsilon, and for a cell the shots")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--train", type=int, default=3000, help="private rows")
    parser.add_argument("--test", type=int, default=200, help="held-out rows")
    parser.add_argument("--rows", type=int, default=60, help="rows that a method makes")
    parser.add_argument("--public", type=int, default=PUBLIC, help="public texts")
    parser.add_argument("--without", nargs="*", default=[], choices=ORDER, help="methods that run leaves out")
    parser.add_argument("--inverter", help="folder of an inverter for dp-eda")
    parser.add_argument("--perplexity-limit", type=float, help="of dp-eda's filter; off when missing")
    parser.add_argument("--resamples", type=int, default=20, help="sets of demonstrations, and prompts attacked")
    parser.add_argument("--folder", type=Path, default=Path("benchmarks/icl"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    if options.verb == "run":
        run(options)
    elif options.verb == "table":
        table(options.folder)
    else:
        data, method, epsilon, *shots = options.words
        job = [data, method, float(epsilon), *map(int, shots)]
        found = (cell if options.verb == "cell" else attack)(*job, options)
        path(options.folder, options.verb, *job).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
