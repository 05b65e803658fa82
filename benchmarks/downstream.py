"""Downstream: is data of `aug-pe` and `madlib` good for training, for prompting and for tuning?

Train on synthetic, test on real: mechanisms see the training rows only. The data sets are public and treated as
private. Everything that bounds the run is printed with the figures.

    python -m benchmarks.downstream [--data movie trec] [--train 600] [--test 200] [--rows 150] [--resamples 3]
                                    [--trials 14] [--seeds 1]
    python -m benchmarks.downstream --prefix 64    (only what reading the shared prefix once saves)
"""

import os

os.environ.pop("OPENBLAS_CORETYPE", None)

import argparse
import datetime
import logging
import platform
import time

import torch
import transformers
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

import hf_dpsynth
from hf_dpsynth import data
from hf_dpsynth.devices import Devices, best_dtype
from hf_dpsynth.downstream import Classifier, Examples, InContext, WordCNN, rank, study

WORDS = {
    "movie": {"negative": "negative", "positive": "positive"},
    "trec": {
        "ABBR": "abbreviation", "DESC": "description", "ENTY": "entity", "HUM": "person", "LOC": "location",
        "NUM": "number",
    },
    "sms-spam": {"ham": "normal", "spam": "spam"},
}  # fmt: skip
SUBJECTS = {"movie": "movie review sentence", "trec": "short factual question", "sms-spam": "text message"}
EVOLUTION = {
    "iterations": 3, "variations": 3, "variation": "paraphrase", "word_count_std": 4.0, "max_new_tokens": 32,
    "temperature": 0.8, "variation_temperature": 0.7,
}  # fmt: skip


def load(name, rows):
    """The first rows of each split in a public random order, with labels that a language model can read."""
    names = list(WORDS[name].values())
    features = Features({"text": Value("string"), "label": ClassLabel(names=names)})
    parts = {}
    for split, found in data.load(name).items():
        chosen = found.shuffle(seed=0).select(range(rows[split]))
        labels = [names.index(WORDS[name][found.features["label"].names[label]]) for label in chosen["label"]]
        parts[split] = Dataset.from_dict({"text": chosen["text"][:], "label": labels}, features=features)
    return DatasetDict(parts)


def synthetic(name, train, rows):
    """Every set is made from the training rows alone."""
    shares = {label: 1 / len(WORDS[name]) for label in WORDS[name].values()} if name == "movie" else None
    sets = {
        "aug-pe": lambda: train.synthesize(
            "aug-pe", epsilon=4, delta=1e-4, text_column="text", label_column="label", label_proportions=shares,
            num_rows=rows, params=EVOLUTION | {"subject": SUBJECTS[name]},
        ),
        "madlib 10": lambda: train.privatize("madlib", epsilon=10, text_column="text", keep_columns=["label"]),
        "madlib 20": lambda: train.privatize("madlib", epsilon=20, text_column="text", keep_columns=["label"]),
    }  # fmt: skip
    made = {}
    for kind, make in sets.items():
        start = time.perf_counter()
        made[kind] = make()
        print(f"{name}: {kind}: {len(made[kind])} rows in {time.perf_counter() - start:.0f} s", flush=True)
    return made


def prefix(texts):
    """Score texts behind a prefix that is read once, and behind one that is read again for each text and label."""
    real = load("movie", {"train": 600, "test": texts})
    train, test = (Examples.of(real[split], label_column="label") for split in ("train", "test"))
    fitted = InContext().fit(train)
    scorer, questions = fitted._scorer, [fitted._pieces.question(text) for text in test.texts]
    taken = {}
    for name, score in {"prefix once": scorer.scores, "whole prompts": scorer.uncached}.items():
        clock, processor = time.perf_counter(), time.process_time()
        score(questions)
        taken[name] = time.process_time() - processor
        print(f"{name}: {time.perf_counter() - clock:.1f} s, processor time {taken[name]:.1f} s", flush=True)
    ratio = taken["whole prompts"] / taken["prefix once"]
    print(f"{texts} texts, 2 labels, prefix of {len(scorer._prefix)} tokens: processor time ratio {ratio:.1f}")


def machine():
    with open("/proc/cpuinfo") as info:
        model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown CPU")
    threads = Devices.current().limit_threads()
    dtype = best_dtype(Devices.current().torch_device())
    return (
        f"{model}, {os.cpu_count()} cores, {threads} threads, {dtype}; Python {platform.python_version()}, "
        f"torch {torch.__version__}, transformers {transformers.__version__}, hf-dpsynth {hf_dpsynth.__version__}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["movie", "trec"], choices=sorted(WORDS))
    parser.add_argument("--train", type=int, default=600, help="real training rows")
    parser.add_argument("--test", type=int, default=200, help="real test rows")
    parser.add_argument("--rows", type=int, default=150, help="rows that aug-pe makes")
    parser.add_argument("--resamples", type=int, default=3, help="sets of demonstrations")
    parser.add_argument("--trials", type=int, default=14, help="trials of the ranking on movie; 0 for none")
    parser.add_argument("--prefix", type=int, default=0, help="only measure the shared prefix on so many texts")
    parser.add_argument("--seeds", type=int, default=1, help="fits a figure")
    options = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers.logging.disable_progress_bar()
    print(f"{datetime.date.today()}  {machine()}  load {os.getloadavg()[0]:.1f}")
    if options.prefix:
        prefix(options.prefix)
        return
    cnn, encoder = WordCNN(batch_size=32, patience=3), Classifier(epochs=3, batch_size=16, patience=3)
    prompted = InContext(resamples=options.resamples)
    print(f"{options}\n{cnn}\n{encoder}\n{prompted}\naug-pe: epsilon 4, delta 1e-4, {EVOLUTION}", flush=True)
    for name in options.data:
        start = time.perf_counter()
        real = load(name, {"train": options.train, "test": options.test})
        sets = synthetic(name, real["train"], options.rows)
        amounts = (options.rows / options.train, 1)
        common = {"real": real, "synthetic": sets, "label_column": "label"}
        found = study(**common, models=[cnn, encoder, prompted], amounts=amounts, seeds=options.seeds)
        print(f"\n## {name}\n\n{found.table()}\n", flush=True)
        if name == "movie" and options.trials:
            print(
                f"### tuning on {name}\n\n{rank(**common, model=cnn, num_trials=options.trials).table()}\n", flush=True
            )
        print(f"{name}: {time.perf_counter() - start:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
