"""Generation: `CausalLM` against `transformers.generate`, side by side, alternating, in one run.

Both sides run the same weights in the same precision on the same prompts in one batch, sample the whole vocabulary at
temperature 1, and make exactly as many tokens. Each side is run once before the clock starts. Processor time is given
too: other work on the machine moves it less than the clock.

    python -m benchmarks.generation [--pairs 3] [--tokens 64] [--batch 64] [--dtype bfloat16]
"""

import os

os.environ.pop("OPENBLAS_CORETYPE", None)

import argparse
import dataclasses
import datetime
import platform
import statistics
import time
import warnings
from pathlib import Path

import torch
import transformers

from hf_dpsynth.devices import Devices, best_dtype
from hf_dpsynth.models import pull
from hf_dpsynth.models.causal_lm import Batch, CausalLM
from hf_dpsynth.models.sampling import row_uniforms

_SUBJECTS = (
    "a horror film", "a comedy", "a documentary about whales", "an action film", "a love story", "a film for children",
    "a western", "a musical",
)  # fmt: skip
_STYLES = ("short", "angry", "enthusiastic", "ironic", "neutral", "sad", "poetic", "plain")


def make_prompts(count: int) -> list[str]:
    pairs = [(style, subject) for style in _STYLES for subject in _SUBJECTS]
    chosen = [pairs[number % len(pairs)] for number in range(count)]
    return [f"Write a {style} review of {subject}. The review is positive." for style, subject in chosen]


class Transformers:
    """`transformers.generate` with left padding, its dynamic cache and its own sampler."""

    def __init__(self, prompts: list[str], dtype: str) -> None:
        folder = pull("smollm2-135m")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        self.model = model.to(Devices.current().torch_device()).eval()
        chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
        texts = tokenizer.apply_chat_template(chats, add_generation_prompt=True, tokenize=False)
        encoded = tokenizer(texts, add_special_tokens=False, padding=True, return_tensors="pt").to(self.model.device)
        self.inputs = {name: encoded[name] for name in ("input_ids", "attention_mask")}

    def run(self, tokens: int, seed: int) -> int:
        torch.manual_seed(seed)
        with torch.inference_mode():
            output = self.model.generate(
                **self.inputs,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                min_new_tokens=tokens,
                max_new_tokens=tokens,
            )
        made = output.shape[1] - self.inputs["input_ids"].shape[1]
        return int(made * output.shape[0])


class Ours:
    """`CausalLM` with its ends taken away, so that no row stops early."""

    def __init__(self, prompts: list[str], dtype: str) -> None:
        loaded = CausalLM("smollm2-135m", dtype=dtype)._load()
        self.encoded = loaded.encode(prompts)
        self.loaded = dataclasses.replace(loaded, ends=frozenset())
        self.prefill_share = self.sampling_share = 0.0

    def run(self, tokens: int, seed: int) -> int:
        started = time.perf_counter()
        batch = Batch(self.loaded, self.encoded, tokens)
        made = batch.run(row_uniforms(list(range(len(self.encoded))), tokens, seed), 1.0, 1.0)
        wall = time.perf_counter() - started
        self.prefill_share, self.sampling_share = batch.prefill_seconds / wall, batch.sampling_seconds / wall
        return sum(len(text) for text in made)


def measure(pairs: int, tokens: int, batch: int, dtype: str) -> list[str]:
    prompts = make_prompts(batch)
    sides = {"transformers.generate": Transformers(prompts, dtype), "CausalLM": Ours(prompts, dtype)}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    busy: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        side.run(min(tokens, 8), 0)
    shares: list[tuple[float, float]] = []
    for pair in range(pairs):
        for name in sorted(sides, reverse=bool(pair % 2)):
            started, started_busy = time.perf_counter(), time.process_time()
            made = sides[name].run(tokens, pair)
            seconds[name].append(time.perf_counter() - started)
            busy[name].append(time.process_time() - started_busy)
            if made != tokens * batch:
                raise RuntimeError(f"{name} made {made} tokens, {tokens * batch} were asked for")
        shares.append((sides["CausalLM"].prefill_share, sides["CausalLM"].sampling_share))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    busy_medians = {name: statistics.median(values) for name, values in busy.items()}
    lines = [f"batch {batch}, {tokens} new tokens a prompt, {dtype}, {pairs} alternating pairs:"]
    for name, values in seconds.items():
        rate = tokens * batch / medians[name]
        lines.append(
            f"- {name}: median {medians[name]:.2f} s, {rate:.0f} tokens/s (runs {_seconds(values)}); "
            f"processor time {busy_medians[name]:.2f} s (runs {_seconds(busy[name])})"
        )
    prefill, sampling = (statistics.median(column) for column in zip(*shares, strict=True))
    lines.append(
        f"- ratio of medians {_ratio(medians):.2f} by the clock, {_ratio(busy_medians):.2f} by processor time; "
        f"in CausalLM prefill takes {prefill:.0%}, sampling {sampling:.0%}"
    )
    return lines


def describe_machine() -> str:
    models = [line.partition(":")[2].strip() for line in _read("/proc/cpuinfo") if line.startswith("model name")]
    processor = models[0] if models else platform.processor()
    load = f", load average {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    return (
        f"{datetime.date.today()}; {processor}, {os.cpu_count()} cores, {torch.get_num_threads()} threads{load}; "
        f"Python {platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}"
    )


def _read(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).is_file() else []


def _ratio(medians: dict[str, float]) -> float:
    return medians["transformers.generate"] / medians["CausalLM"]


def _seconds(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    devices = Devices.current()
    devices.limit_threads()
    print(describe_machine())
    dtype = options.dtype or best_dtype(devices.torch_device())
    print("\n".join(measure(options.pairs, options.tokens, options.batch, dtype)))


if __name__ == "__main__":
    main()
