"""What attackers see: every mechanism on `sms-spam` at epsilon 1, 8 and without privacy, with canaries.

100 private messages and about 100 of 200 canaries are read; 400 messages that nobody reads are the hold-out. From the
released rows alone: the bound on epsilon that canaries give (`audit_canaries`, against the claim), and how well they
tell canaries and messages that were read from others. Mechanisms that keep rows at their place are attacked by
inversion of their words instead: canaries would be found at their place. The parameters of a mechanism are the same at
each epsilon, so noise alone differs. So few messages are read, each about ten times by fine-tuning, for the attack to
find something without noise: a trial with 400 messages, read 2.6 times, left no trace of canaries.

    python -m benchmarks.audits run [--only dp-lora]        every cell that is missing, one after the other
    python -m benchmarks.audits cell dp-lora inf            one cell: mechanism, epsilon
    python -m benchmarks.audits table                       what is there

`--folder` holds the files; benchmarks/audits when missing.
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

EPSILONS = (1.0, 8.0, math.inf)
DELTA, RECORDS, HOLDOUT, CANARIES, GUESSES, ROWS = 1e-5, 100, 400, 200, 20, 300
TUNING = {
    "steps": 120, "batch_size": 16, "max_tokens": 40, "max_new_tokens": 32, "learning_rate": 5e-3,
    "checkpoint_every": 40,
}  # fmt: skip
EVOLUTION = {
    "iterations": 3, "variations": 2, "variation": "paraphrase", "word_count_std": 4.0, "max_new_tokens": 32,
    "subject": "text message",
}  # fmt: skip
SYNTHETIC = {
    "dp-lora": TUNING | {"rank": 16},
    "dp-prompt-tuning": TUNING | {"learning_rate": 5e-2},
    "dp-full": TUNING | {"steps": 60, "learning_rate": 5e-4},
    "aug-pe": EVOLUTION,
    "sec-pe": EVOLUTION | {"p": 1e-4, "r": 1e-3, "clusters": 100},
    "dp-eda": {"iterations": 3, "offspring": 100, "parents": 10, "samples": 2, "max_new_tokens": 32},
    "sentdp-select": {},
    "dp-icl": {"max_new_tokens": 12, "max_tokens": 40, "subsets": 10, "shots": 2},
    "invisible-ink": {"max_new_tokens": 20, "max_tokens": 40, "batch_size": 16},
}  # fmt: skip
FEWER = {"aug-pe": 60, "sec-pe": 60, "dp-eda": 60, "sentdp-select": 60, "dp-icl": 6, "invisible-ink": 20}
ICL = Path(__file__).parent / "icl"  # holds texts of the generator by public prompts
PUBLIC, SECRETS = ("sec-pe", "dp-eda", "sentdp-select"), ("sec-pe",)
WORDS = (
    "syntax-guided", "madlib", "mahalanobis", "vickrey", "tem", "santext", "santext+", "custext", "custext+",
    "diffractor",
)  # fmt: skip
CLASSES = ("normal", "spam")


def cells():
    """Yield every mechanism with every epsilon; one that has none runs once."""
    for mechanism in (*SYNTHETIC, *WORDS):
        for epsilon in (math.inf,) if mechanism in SECRETS else reversed(EPSILONS):
            yield mechanism, epsilon


def messages():
    """Return private messages with labels, a hold-out, and further ones that canaries begin like; all different."""
    from benchmarks.downstream import load

    rows = load("sms-spam", {"train": 3000, "test": 1})["train"]
    first = {text: place for place, text in reversed(list(enumerate(rows["text"]))) if 30 < len(text) < 160}
    chosen = rows.select(sorted(first.values()))
    parts = [
        chosen.select(range(start, start + size)) for start, size in ((0, RECORDS), (400, HOLDOUT), (800, CANARIES))
    ]
    return parts[0], parts[1], parts[2]


def released(mechanism, epsilon, planted):
    """Return the rows that a mechanism makes of planted data."""
    from benchmarks.icl import public_texts

    more = {"public": public_texts("sms-spam", list(CLASSES), ICL, 300)} if mechanism in PUBLIC else {}
    if mechanism in SECRETS:
        more["secrets"] = lambda text: [word for word in text.split() if any(sign.isdigit() for sign in word)]
    none = mechanism in SECRETS
    return planted.synthesize(
        mechanism, epsilon=None if none else epsilon, delta=None if none or math.isinf(epsilon) else DELTA,
        text_column="text", label_column="label", label_proportions={"normal": 0.5, "spam": 0.5},
        num_records=RECORDS + CANARIES // 2, num_rows=FEWER.get(mechanism, ROWS), params=SYNTHETIC[mechanism], **more,
    )  # fmt: skip


def synthesized(mechanism, epsilon):
    """Return what the attacks on a synthesized set found."""
    from hf_dpsynth.audit import audit_canaries, audit_membership, make_canaries

    private, holdout, public = messages()
    labels = [CLASSES[label] for label in public["label"]]
    canaries = make_canaries(public["text"][:], CANARIES, labels=labels, prefix_words=4, suffix_words=6)
    start = time.perf_counter()
    made = released(mechanism, epsilon, canaries.plant(private, "text", "label"))
    seconds, texts = time.perf_counter() - start, made["text"][:]
    claim = None if mechanism in SECRETS or math.isinf(epsilon) else epsilon
    results = {
        "canaries": audit_canaries(texts, canaries, delta=DELTA, claimed_epsilon=claim, guesses=GUESSES),
        "membership": audit_membership(texts, private["text"][:], holdout["text"][:], delta=DELTA),
        "nearest": audit_membership(
            texts, private["text"][:], holdout["text"][:], signal="nearest", neighbours=1, delta=DELTA
        ),
    }
    return results, {"seconds": seconds, "rows": len(texts)}


def privatized(mechanism, epsilon):
    """Return what an attack on words that kept their place found."""
    from hf_dpsynth.audit import audit_inversion

    private, holdout, _ = messages()
    start = time.perf_counter()
    made = private.privatize(mechanism, epsilon=epsilon, text_column="text")
    seconds = time.perf_counter() - start
    law = {} if math.isinf(epsilon) else {"mechanism": mechanism, "epsilon": epsilon, "public": holdout["text"][:]}
    results = {"inversion": audit_inversion(made["text"][:], private["text"][:], **law)}
    return results, {"seconds": seconds, "rows": len(made)}


def cell(mechanism, epsilon):
    """Return one cell."""
    from benchmarks.downstream import machine

    results, more = privatized(mechanism, epsilon) if mechanism in WORDS else synthesized(mechanism, epsilon)
    found = {name: {one.metric: [one.value, one.interval, one.n] for one in r.findings} for name, r in results.items()}
    refuted = any(one.violated for result in results.values() for one in result.findings)
    return {
        "mechanism": mechanism, "epsilon": epsilon, "date": str(datetime.date.today()), "machine": machine(),
        "load": os.getloadavg()[0], "refuted": refuted, **more, "found": found,
    }  # fmt: skip


def path(folder, mechanism, epsilon):
    return folder / f"{mechanism}-{epsilon:g}.json"


def run(options):
    """Run the missing cells, each in a process of its own."""
    for mechanism, epsilon in cells():
        if (options.only and mechanism not in options.only) or path(options.folder, mechanism, epsilon).exists():
            continue
        print(f"{datetime.datetime.now():%H:%M} {mechanism} {epsilon:g}", flush=True)
        words = ["cell", mechanism, str(epsilon), "--folder", str(options.folder)]
        subprocess.run([sys.executable, "-m", "benchmarks.audits", *words], check=False)


def table(folder):
    """Print the cells that are there."""
    files = [file for file in folder.glob("*.json") if not file.name.startswith("public")]
    held = {
        (found["mechanism"], found["epsilon"]): found for found in (json.loads(file.read_text()) for file in files)
    }
    heads = ("mechanism", "epsilon", "bound", "canaries: area", "tpr", "messages: area", "tpr", "epsilon", "nearest")
    print(f"| {' | '.join(heads)} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for mechanism, epsilon in cells():
        found = held.get((mechanism, epsilon), {}).get("found", {})
        if "canaries" not in found:
            continue

        def of(attack, metric, found=found):
            return f"{found[attack][metric][0]:.3f}" if metric in found[attack] else "-"

        figures = [of("canaries", name) for name in ("epsilon_lower", "auc", "tpr_at_1_fpr")]
        figures += [of("membership", name) for name in ("auc", "tpr_at_1_fpr", "empirical_epsilon")]
        print(f"| {mechanism} | {epsilon:g} | {' | '.join(figures)} | {of('nearest', 'auc')} |")
    print("\n| mechanism | metric | 1 | 8 | inf |\n|---|---|---|---|---|")
    for mechanism in WORDS:
        sets = [held.get((mechanism, epsilon), {}).get("found", {}).get("inversion", {}) for epsilon in EPSILONS]
        for metric in dict.fromkeys(name for one in sets for name in one):
            figures = [f"{one[metric][0]:.3f}" if metric in one else "-" for one in sets]
            print(f"| {mechanism} | {metric} | {' | '.join(figures)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=("run", "cell", "table"))
    parser.add_argument("words", nargs="*", help="of a cell: mechanism and epsilon")
    parser.add_argument("--only", nargs="*", default=[], help="mechanisms that run makes")
    parser.add_argument("--folder", type=Path, default=Path("benchmarks/audits"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    if options.verb == "run":
        run(options)
    elif options.verb == "table":
        table(options.folder)
    else:
        mechanism, epsilon = options.words
        found = cell(mechanism, float(epsilon))
        path(options.folder, mechanism, float(epsilon)).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
