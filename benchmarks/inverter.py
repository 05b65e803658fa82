"""An inverter of MiniLM's vectors: a public corpus, training within a limit of time, and what it brings back.

The corpus is sentences of public data sets and zero-shot text of SmolLM2, without copies; a tenth of the texts, no
sentence of which is trained on, is held out. Beside the trained inverter stand the nearest training text, which needs
no training, and another text drawn at random (chance). Called again with the same folder, it goes on where it was.

    python -m benchmarks.inverter --out FOLDER [--data fine-foods] [--generated 2000] [--sentences 20000]
        [--minutes 60] [--steps 6000] [--evaluated 200] [--seed 0]

Writes FOLDER/scores.json; the inverter lies in FOLDER/inverter.
"""

import argparse
import json
import re
import time
import warnings
from pathlib import Path

import torch

from benchmarks.generation import describe_machine
from hf_dpsynth import data
from hf_dpsynth.devices import Devices
from hf_dpsynth.metrics.reconstruction import evaluate_inverter
from hf_dpsynth.models import NearestTextInverter, PrefixInverter, load_embedder, load_generator, train_inverter
from hf_dpsynth.models.inverter_settings import InverterTraining
from hf_dpsynth.models.inverter_training import deal
from hf_dpsynth.privacy.keys import public_generator

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_WORDS = range(3, 41)
_SUBJECTS = (
    "coffee", "tea", "dog food", "a box of cookies", "olive oil", "hot sauce", "gluten-free pasta", "dark chocolate",
    "a comedy", "a horror film", "a hotel", "a phone", "a pair of shoes", "a restaurant", "a novel", "a train journey",
)  # fmt: skip
_STYLES = ("short", "angry", "enthusiastic", "ironic", "neutral", "sad", "detailed", "plain")
_TOLD = "Write a {style} review of {subject} in two sentences. Reply with the review only."


def sentences(texts: list[str]) -> list[str]:
    parts = [part.strip() for text in texts for part in _SENTENCE.split(text.replace("<br />", " "))]
    return [part for part in parts if len(part.split()) in _WORDS]


def generated(count: int, seed: int, kept: Path) -> list[str]:
    """Zero-shot texts, which are made once and kept: a generator is not stable to the bit."""
    if kept.is_file():
        return json.loads(kept.read_text(encoding="utf-8"))[:count]
    pairs = [(style, subject) for style in _STYLES for subject in _SUBJECTS]
    prompts = [_TOLD.format(style=pairs[n % len(pairs)][0], subject=pairs[n % len(pairs)][1]) for n in range(count)]
    made = load_generator("smollm2-135m").generate(prompts, max_new_tokens=64, temperature=1.0, seed=seed)
    kept.write_text(json.dumps(made), encoding="utf-8")
    return made


def corpus(names: list[str], made: list[str], most: int, seed: int) -> tuple[list[str], list[str]]:
    """Sentences to train on, and sentences of other texts."""
    texts = [text for name in names for text in data.load(name)["train"]["text"]] + made
    known, others = deal(texts, 0.1, seed)
    train, unseen = (list(dict.fromkeys(sentences(part))) for part in (known, others))
    chosen = public_generator(seed, "sentences").permutation(len(train))[:most]
    train = [train[row] for row in sorted(chosen.tolist())]
    seen = set(train)
    return train, [text for text in unseen if text not in seen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", nargs="+", default=["fine-foods"])
    parser.add_argument("--generated", type=int, default=2000)
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--evaluated", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    Devices.current().limit_threads()
    machine = describe_machine()
    print(machine, flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    made = generated(options.generated, options.seed, options.out / "generated.json") if options.generated else []
    train, unseen = corpus(options.data, made, options.sentences, options.seed)
    print(f"{len(train)} sentences to train on, {len(unseen)} held out", flush=True)
    settings = InverterTraining(
        steps=options.steps, minutes=options.minutes, batch_size=options.batch, seed=options.seed
    )
    embedder = load_embedder("minilm")
    folder = options.out / "inverter"
    inverter = train_inverter(train, out=folder, encoder=embedder, held_out=unseen, training=settings)
    texts = unseen[: options.evaluated]
    sides = {
        "trained, 1 sample": PrefixInverter(folder, encoder=embedder, samples=1, corrections=0),
        "trained, 8 samples": PrefixInverter(folder, encoder=embedder, samples=8, corrections=0),
        "trained, 4 samples and a correction round of 4": PrefixInverter(
            folder, encoder=embedder, samples=4, corrections=1
        ),
        "nearest training text": NearestTextInverter(train, encoder=embedder),
    }
    scores = {}
    for name, side in sides.items():
        started = time.perf_counter()
        scores[name] = evaluate_inverter(side, texts, embedder=embedder, seed=options.seed)
        scores[name]["seconds"] = round(time.perf_counter() - started, 1)
        shown = ", ".join(f"{key} {value:.4g}" for key, value in scores[name].items())
        print(f"- {name}: {shown}", flush=True)
    facts = {
        "machine": machine, "threads": torch.get_num_threads(), "data": options.data, "generated": len(made),
        "train_sentences": len(train), "training": inverter.config.training, "scores": scores,
    }  # fmt: skip
    (options.out / "scores.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
