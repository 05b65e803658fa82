"""A step of DP-LoRA on SmolLM2 against a non-private step of peft and against stock Opacus, time and peak memory.

`python -m benchmarks.finetune` runs each variant in a process of its own, alternating, and prints medians. A step is
16 records of exactly 64 tokens, of which 48 are target; all of ours compute the same update. `peft` is the usual step:
one padded batch, the model's own loss, Adam; `peft-lean` is the same with what our models have changed in bfloat16:
plain attention, and inputs of the low-rank layers that are not copied to float32. `opacus` is GradSampleModule and
DPOptimizer as its documentation has them, on the per-example loss. The number after `ours-hooks` is the micro-batch.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

VARIANTS = ("peft", "peft-lean", "ours-loop", "ours-hooks-4", "ours-hooks-8", "ours-hooks-16", "opacus")
ROWS, TOKENS, PREFIX = 16, 64, 16


def _examples():
    import numpy as np

    from hf_dpsynth.mechanisms.finetune.examples import Example

    rng = np.random.default_rng(0)
    return [Example(rng.integers(100, 40_000, TOKENS).tolist(), PREFIX) for _ in range(ROWS)]


def _trainable(dtype):
    from hf_dpsynth.mechanisms.finetune.trainable import Trainable

    return Trainable("smollm2-135m", method="lora", rank=8, dtype=dtype)


def _stock(part):
    """Undo what our models change: peft and Opacus as they come."""
    part.model.get_base_model().set_attn_implementation("sdpa")
    for module in part.model.modules():
        if hasattr(module, "cast_input_dtype_enabled"):
            module.cast_input_dtype_enabled = True
    return part


def _peft(dtype, lean=False):
    import torch

    part, examples = _trainable(dtype), _examples()
    if not lean:
        _stock(part)
    tokens = torch.tensor([example.tokens for example in examples])
    labels = tokens.clone()
    labels[:, :PREFIX] = -100
    optimizer = torch.optim.Adam(part.parameters, lr=1e-3)

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=part.rough):
            loss = part.model(input_ids=tokens, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _ours(dtype, engine, micro=1):
    import torch

    from hf_dpsynth.compute import per_example
    from hf_dpsynth.privacy.keys import Key
    from hf_dpsynth.privacy.sgd import noisy_mean

    part, examples, key = _trainable(dtype), _examples(), Key()
    running = per_example.engine(engine, part.module, part.losses, micro_batch_size=micro)
    optimizer = torch.optim.Adam(part.parameters, lr=1e-3)
    count = iter(range(10**6))

    def step():
        gradients = noisy_mean(
            running.gradients(examples),
            part.parameters,
            clip_norm=1.0,
            noise_multiplier=1.0,
            batch_size=ROWS,
            generator=key.generator("n", next(count)),
        )
        for parameter, gradient in zip(part.parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        optimizer.zero_grad()

    return step


def _opacus(dtype):
    import torch
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    part, examples = _stock(_trainable(dtype)), _examples()
    part.model.train()
    wrapped = GradSampleModule(part.model, loss_reduction="sum", strict=False)
    optimizer = DPOptimizer(
        torch.optim.Adam(part.parameters, lr=1e-3), noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=ROWS,
        loss_reduction="mean",
    )  # fmt: skip
    tokens = torch.tensor([example.tokens for example in examples])
    targets = tokens.clone()
    targets[:, :PREFIX] = -100

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=part.rough):
            logits = wrapped(input_ids=tokens).logits
        losses = torch.nn.functional.cross_entropy(
            logits[:, :-1].float().transpose(1, 2), targets[:, 1:], ignore_index=-100, reduction="none"
        )
        (losses.sum(1) / (TOKENS - PREFIX)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _worker(variant, dtype, steps):
    import warnings

    warnings.simplefilter("ignore")
    _, engine, micro = (*variant.split("-"), "", "")[:3]
    if engine in ("", "lean"):
        step = _opacus(dtype) if variant == "opacus" else _peft(dtype, lean=engine == "lean")
    else:
        step = _ours(dtype, engine, int(micro or 1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step()
    seconds, processor = [], []
    for _ in range(steps):
        clock, cpu = time.perf_counter(), time.process_time()
        step()
        seconds.append(time.perf_counter() - clock)
        processor.append(time.process_time() - cpu)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "processor": processor, "before": before, "peak": peak}))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _worker(options.worker, options.dtype, options.steps)
        return
    from statistics import median

    import torch
    import transformers

    found = {name: {"seconds": [], "processor": [], "grown": []} for name in options.variants}
    for _ in range(options.pairs):
        for name in options.variants:
            command = [sys.executable, "-m", "benchmarks.finetune", "--worker", name, "--dtype", options.dtype]
            done = subprocess.run(
                [*command, "--steps", str(options.steps)], capture_output=True, text=True, check=True
            )
            result = json.loads(done.stdout.splitlines()[-1])
            found[name]["seconds"] += result["seconds"]
            found[name]["processor"] += result["processor"]
            found[name]["grown"].append((result["peak"] - result["before"]) / 1024)
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, {torch.get_num_threads()} threads"
    print(f"{ROWS} x {TOKENS} tokens, {options.dtype}, {versions}, {time.strftime('%Y-%m-%d')}")
    base = found[options.variants[0]]
    for name, figures in found.items():
        clock, cpu, grown = (median(figures[key]) for key in ("seconds", "processor", "grown"))
        ratio = clock / median(base["seconds"])
        print(
            f"{name:12} {clock:7.3f} s  ({cpu:7.3f} s of the processor)  {ratio:5.2f} x  +{grown:6.0f} MB at the peak"
        )


if __name__ == "__main__":
    main()
