"""What each process does in test_finetune_processes.py: scenes in order, whose results go to a file by rank.

A scene that raises gives the error's type and text; each one opens a connection of its own.
"""

import contextlib
import hashlib
import io
import math
import os
import pathlib
import signal
import sys
import time
from datetime import timedelta

import torch
from datasets import ClassLabel, Dataset, Features, List, Value

import hf_dpsynth
from hf_dpsynth import cli, processes
from hf_dpsynth.compute import per_example
from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.mechanisms.finetune import reports, training
from hf_dpsynth.mechanisms.finetune.examples import Encoder
from hf_dpsynth.mechanisms.finetune.generation import TunedModel
from hf_dpsynth.mechanisms.finetune.trainable import Trainable
from hf_dpsynth.mechanisms.finetune.tuning import DPLora
from hf_dpsynth.mechanisms.planning import plan_synthesis
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.processes import Processes
from hf_dpsynth.run import devices, keys
from tests.launch import play
from tests.stubs import CANARY, reviews

PARAMS = {
    "steps": 6, "batch_size": 16, "max_tokens": 16, "max_new_tokens": 6, "checkpoint_every": 2, "rank": 2,
    "dtype": "float32",
}  # fmt: skip
RANK = int(os.environ.get("RANK", "0"))
TEXTS = "good film|bad plot|dull|great awful fun|slow bright story|music".split("|")
fit, drawn, step, checked, sample = (
    training.Training.fit, training.Training._drawn, training.Training._step, training.Training._engine,
    TunedModel.sample,
)  # fmt: skip


def tune(out, ds=None, mechanism="dp-lora", **more):
    settings = {
        "epsilon": 2.0, "delta": 1e-2, "text_column": "text", "label_column": "label", "labels": ["pos", "neg"],
        "num_rows": 10, "generator": "model", "params": PARAMS, "out": out,
    } | more  # fmt: skip
    return (reviews(64) if ds is None else ds).synthesize(mechanism, **settings)


def facts(made):
    return {
        "rows": made[:], "charges": [charge.key for charge in made.privacy.charges],
        "id": made.privacy.guarantee_id, "statement": made.privacy.statement(),
        "more": made.privacy.more(5, seed=2)[:],
    }  # fmt: skip


def loop(here, texts, sigma=0.0, key=None, units=None, **options):
    """Return a training of these texts whose update stays in the parameters' gradients."""
    mechanism = DPLora(**{**PARAMS, "batch_size": 4, "engine": "loop"} | options)
    plan = plan_synthesis(mechanism, epsilon=math.inf, num_records=8, num_rows=4)
    trainable = Trainable("model", method="lora", rank=2, dtype="float32")
    run = type("Run", (), {"keys": key or Key.from_insecure_seed(1), "devices": here})
    encoder = Encoder(trainable.tokenizer, "", (), plan.labels, 16)
    made = training.Training(mechanism, PrivateRecords(texts, units=units), plan, run, trainable, encoder)
    made._sigma = sigma
    made._optimizer = type("Keep", (), {"step": lambda _: None, "zero_grad": lambda _, set_to_none: None})()
    return made


def update(made, number=0):
    engine = per_example.engine("loop", made._trainable.module, made._trainable.losses, micro_batch_size=1)
    made._step(engine, number)
    return torch.cat([parameter.grad.flatten() for parameter in made._parameters])


def everybody(self, number):
    return range(len(self._shard))


def scene_one_update():
    """The update of all records, of one process's records alone, and of one record, beside those of one process."""
    here, gaps = devices(DPLora()), {}
    training.Training._drawn = everybody
    with here.leaving():
        for sigma in (0.0, 1.0):
            alone = update(loop(Processes(), TEXTS, sigma, clip_norm=0.05), 3)
            gaps[f"all {sigma}"] = float((update(loop(here, TEXTS, sigma, clip_norm=0.05), 3) - alone).abs().max())
        gaps["size"] = float(alone.abs().max())
        gaps["one"] = float((update(loop(here, TEXTS[:1])) - update(loop(Processes(), TEXTS[:1]))).abs().max())
        training.Training._drawn = lambda self, number: range(len(self._shard) * here.rank)  # the first one has none
        mine = update(loop(here, TEXTS))
        training.Training._drawn = lambda self, number: range(1, len(self._shard), 2)
        gaps["half"] = float((mine - update(loop(Processes(), TEXTS))).abs().max())
    return gaps


def scene_draws():
    """Who is in this process's shard, its Poisson draws under a key that both know, and its slots of an epoch."""
    here = devices(DPLora())
    texts = [f"good {number}" for number in range(51)]
    with here.leaving():
        made = loop(here, texts)
        poisson = [number in made._drawn(step) for step in range(60) for number in range(25)]
        shuffled = loop(here, texts[:7], sampling="shuffle")
        by_user = loop(here, texts, units=[number % 7 for number in range(51)])
        slots = [[int(place) * 2 + RANK for place in shuffled._drawn(step)] for step in range(4)]
        return {
            "shard": [text for unit in made._shard for _, text in unit], "poisson": poisson, "slots": slots,
            "users": [sorted(text for _, text in unit) for unit in by_user._shard],
            "fresh": [keys(None).generator("draws").random(), keys(3).generator("draws").random()],
        }  # fmt: skip


def scene_noise():
    """The standard deviation of updates without records, and whether all processes hold the same bits."""
    here = devices(DPLora())
    with here.leaving():
        made = loop(here, [""] * 8, 2.0, key=Key(), clip_norm=0.5)
        draws = torch.cat([update(made, number) for number in range(20)])
        alone = torch.cat([update(loop(Processes(), [], 2.0, key=Key(), clip_norm=0.5), n) for n in range(20)])
    return {"std": float(draws.std()), "alone": float(alone.std()), "bits": digest([draws]), "draws": len(draws)}


def digest(tensors):
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()


def scene_whole():
    """A run with a directory of the first process; the other one names another."""
    seen = {}

    def watched(self):
        fit(self)
        seen["bits"] = digest(self._trainable.state())

    training.Training.fit = watched
    TunedModel.block = 4
    made = tune(f"whole-{RANK}")
    again = tune(f"whole-{RANK}")
    return {**facts(made), "bits": seen["bits"], "again": again[:], "charges again": len(again.privacy.charges)}


def talks(number, users):
    """Labelled conversations of users."""
    turns = List({"role": Value("string"), "content": Value("string")})
    features = Features({"chat": turns, "topic": ClassLabel(names=["film", "food"]), "user_id": Value("string")})
    rows = {"chat": [], "topic": [n % 2 for n in range(number)], "user_id": [f"u{n % users}" for n in range(number)]}
    for n in range(number):
        rows["chat"].append([{"role": "user", "content": "good"}, {"role": "assistant", "content": f"no {n}"}])
    return Dataset.from_dict(rows, features=features)


def scene_everything():
    """Conversations of users with labels, public ones whose loss is logged, and what is tracked."""
    written, log = [], reports.TensorBoard.log

    def watched(self, values, step):
        written.append([step, values])
        log(self, values, step)

    reports.TensorBoard.log = watched
    params = {**PARAMS, "batch_size": 8, "max_tokens": 60, "steps": 2, "report_to": "tensorboard"}
    public = talks(3, users=1).remove_columns("user_id")
    made = tune(
        f"everything-{RANK}", ds=talks(32, users=16), text_column="chat", label_column="topic", labels=None,
        num_rows=4, unit="user_id", public=public, generator="chat", params=params,
    )  # fmt: skip
    reports.TensorBoard.log = log
    return {**facts(made), "logged": written}


def scene_command_line():
    """What a process prints and writes; each one names a file of its own."""
    reviews(64).to_parquet(f"reviews-{RANK}.parquet")
    flags = (
        f"reviews-{RANK}.parquet --mechanism dp-lora --epsilon 2 --delta 1e-2 --text-column text --label-column label"
    )
    flags += f" --labels pos,neg --num-rows 3 --generator model --out command-{RANK} --output command-{RANK}.jsonl"
    params = [word for name, value in {**PARAMS, "steps": 2}.items() for word in ("--param", f"{name}={value}")]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = cli.call(["synthesize", *flags.split(), *params])
    return {"code": code, "printed": printed.getvalue()}


def scene_in_memory():
    return facts(tune(None, num_rows=3))


def scene_shuffled():
    return facts(tune("shuffled", params={**PARAMS, "sampling": "shuffle", "steps": 4}))


def scene_other_plan():
    tune("other-plan", num_rows=10 + RANK, seed=RANK)


def scene_other_data():
    tune("other-data", ds=reviews(64).map(lambda row: {"text": f"good {RANK}"}))


def scene_other_order():
    order = list(range(64))
    tune("other-order", ds=reviews(64).select(order if RANK == 0 else order[::-1]))


def scene_engine_fails():
    """The check of the engine fails in the second process."""

    def broken(self):
        if RANK == 1:
            raise PrivacyError("gradients differ")
        return checked(self)

    training.Training._engine = broken
    tune("engine")


def fails_at(rank, number, error):
    def broken(self, at):
        if (RANK, at) == (rank, number):
            raise error
        return drawn(self, at)

    training.Training._drawn = broken


def scene_step_fails():
    fails_at(1, 3, ValueError(f"{CANARY} in a stranger's message"))
    tune("step")


def scene_resumed():
    """The run whose fourth step failed, in both processes; then another time while rows were sampled."""
    TunedModel.block = 2

    def broken(self, labels, seed, start, *, stream="sample"):
        if start == 8 or (RANK, start) == (1, 6):
            raise PrivacyError("no more")
        return sample(self, labels, seed, start, stream=stream)

    TunedModel.sample = broken
    try:
        tune("step")
    except PrivacyError:
        held = len(pathlib.Path("step/populations/rows.jsonl").read_bytes().splitlines())
    TunedModel.sample = sample
    return {**facts(tune("step")), "held": held}


def scene_first_fails():
    """The first process fails where it leads."""

    def broken(self, key):
        raise PrivacyError("the disk is full")

    training.Training._checkpoint, kept = broken, training.Training._checkpoint
    try:
        tune("disk")
    finally:
        training.Training._checkpoint = kept


def scene_gives_up():
    """The second process is interrupted in a step."""
    fails_at(1, 3, KeyboardInterrupt())
    return lives_on("gives_up")


def scene_wrong_argument():
    """The second process alone has an argument that cannot be planned."""
    return lives_on("wrong_argument", epsilon=2.0 - 4 * RANK)


def lives_on(name, **more):
    """After its error the second process waits until the first one has one too, or for long."""
    known = pathlib.Path(f"{name}.known")
    try:
        tune(name, **more)
    except (KeyboardInterrupt, ConfigError):
        pass
    finally:
        if RANK == 0:
            known.touch()
    for _ in range(300):
        if known.exists():
            break
        time.sleep(0.1)
    return {"known": known.exists()}


def scene_unmet():
    """The first process alone makes the call; their connections have other numbers from then on."""
    processes._MEETING = timedelta(seconds=2)
    return tune("unmet")[:] if RANK == 0 else {}


def scene_failed_sums():
    """What the first process sends when a share could not be added, and when noise could not be drawn."""
    here, broadcast, sent = devices(DPLora()), torch.distributed.broadcast, []

    def watched(tensor, **options):
        broadcast(tensor, **options)
        sent.append(tensor.tolist())

    def fails(*_):
        raise PrivacyError("cannot")

    torch.distributed.broadcast = watched
    with here.leaving():
        for number in range(2):
            sums = [torch.zeros(2), torch.zeros(3)]
            fill = fails if (number, RANK) == (0, 1) else lambda sums=sums: [total.add_(1) for total in sums]
            try:
                here.summed(sums, fill, fails if number == 1 else lambda sums=sums: sums)
            except PrivacyError:
                sent.append("refused")
    torch.distributed.broadcast = broadcast
    return {"sent": [message for message in sent if len(message) > 5]}


def scene_killed():
    """The second process is killed in the middle of a block."""

    def dies(self, engine, number):
        if (RANK, number) == (1, 3):
            os.kill(os.getpid(), signal.SIGKILL)
        step(self, engine, number)

    training.Training._step = dies
    tune("killed")


def reset():
    training.Training.fit, training.Training._drawn, training.Training._step = fit, drawn, step
    training.Training._engine, TunedModel.sample, TunedModel.block = checked, sample, 256


if __name__ == "__main__":
    assert pathlib.Path(hf_dpsynth.__file__).parents[1] == pathlib.Path(__file__).parents[2]
    play(RANK, globals(), sys.argv[1:], reset)
