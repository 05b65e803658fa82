"""Steps of dp-lora, dp-prompt-tuning and dp-full on a tiny model: clipping, noise, and who is in a batch.

The gradients are those of the mechanism's own engine, computed once a side, and every step is its own from there on.
40 steps a side hold tens of thousands of numbers, so that noise 5 % off is more than 10 standard errors off; all draws
come from fixed keys, so that verdicts repeat.
"""

import math
from functools import cache, partial
from types import SimpleNamespace

import numpy as np
import pytest

from hf_dpsynth.audit import audit_sampling, audit_steps
from hf_dpsynth.mechanisms.planning import plan_synthesis
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.processes import Processes
from tests.audit.mechanisms.unit import SURE, Unit, planted
from tests.mechanisms import tiny

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from hf_dpsynth.mechanisms.finetune import training, tuning  # noqa: E402
from hf_dpsynth.privacy import sgd  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
CLIP, NOISE, STEPS, BATCHES, RECORDS = 0.01, 1.0, 40, 1500, 60
OTHERS, RECORD = ["good film", "dull", "bad bad script"], "a great film with a slow plot and bright actor"
SMALL = {"batch_size": 12, "clip_norm": CLIP, "max_tokens": 16, "dtype": "float32", "engine": "loop"}
MECHANISMS = {
    "dp-lora": partial(tuning.DPLora, rank=1),
    "dp-prompt-tuning": partial(tuning.DPPromptTuning, prompt_length=3),
    "dp-full": tuning.DPFull,
}


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """A random model of two layers."""
    made = tiny.save(tmp_path_factory.mktemp("model"))
    tiny_model["folder"] = made
    return made


tiny_model = {}


def training_of(name, texts, keys, devices=None):
    """The training of these texts by one process of several."""
    mechanism = MECHANISMS[name](steps=1, **SMALL)
    plan = plan_synthesis(mechanism, epsilon=math.inf, num_records=RECORDS, num_rows=4)
    public = SimpleNamespace(generator=training.CausalLM(tiny_model["folder"]))
    trainable = training.trainable_of(mechanism, public, plan)
    with torch.no_grad():  # some gradients vanish at the initial values
        for number, parameter in enumerate(trainable.parameters):
            draws = np.random.default_rng(number).standard_normal(parameter.shape)
            parameter.add_(0.05 * torch.from_numpy(draws).float())
    run = SimpleNamespace(keys=keys, devices=devices or Processes())
    encoder = training.encoder_of(mechanism, trainable, plan)
    made = training.Training(mechanism, PrivateRecords(texts), plan, run, trainable, encoder)
    made._optimizer = SimpleNamespace(step=lambda: None, zero_grad=lambda set_to_none: None)
    return made


class Steps:
    """Steps of two trainings, one with the record, from gradients that their engine computed."""

    def __init__(self, name):
        self.sides = [
            training_of(name, texts, Key.from_insecure_seed(number))
            for number, texts in enumerate((OTHERS, [*OTHERS, RECORD]))
        ]
        for side in self.sides:
            side._drawn = lambda step, side=side: range(len(side._shard))
            engine = side._engine()
            kept = [[part.detach().clone() for part in parts] for parts in side._gradients(engine, 0)]
            engine.close()
            side._gradients = lambda engine, step, kept=kept: iter(kept)

    def __call__(self, present, noise_multiplier, number):
        side = self.sides[present]
        side._sigma = noise_multiplier
        side._step(None, number)
        gradients = torch.cat([parameter.grad.flatten() for parameter in side._parameters])
        return gradients.double().numpy() * side._mechanism.batch_size


@cache
def steps_of(name):
    """Its steps, whose gradients are computed once: faults are planted in what is done with them."""
    return Steps(name)


@cache
def processes_of(name):
    """Two processes that share sixty records."""
    texts, key = [f"good {number}" for number in range(RECORDS)], Key.from_insecure_seed(5)
    return [training_of(name, texts, key, Processes(rank, 2, 2)) for rank in range(2)]


def sampled(name):
    """Who of two processes' records is in which batch, at the rate that is charged; neighbours are of both."""
    found = np.zeros((BATCHES, RECORDS), dtype=bool)
    for rank, made in enumerate(processes_of(name)):
        for step in range(BATCHES):
            found[step, rank + 2 * np.asarray(made._drawn(step), dtype=np.int64)] = True
    event, count = made._batches.block_event(NOISE, 0, 1)
    assert count == 1
    return audit_sampling(found, event.sampling_probability, SURE)


def units(name):
    yield audit_steps(steps_of(name), clip_norm=CLIP, noise_multiplier=NOISE, steps=STEPS, confidence=SURE)
    yield sampled(name)


def unclipped(patch):
    """Gradients are added as they are, ten times as large as the clip norm of this test."""

    def wrong(self, gradients, real=sgd.ClippedSum.add):
        for gradient, total in zip(gradients, self.sums, strict=True):
            total += gradient.detach().float().sum(0)

    patch.setattr(sgd.ClippedSum, "add", wrong)


def clipped_by_parameter(patch):
    """Each parameter's gradient is clipped to C, and not the whole of a record."""

    def wrong(self, gradients):
        for gradient, total in zip(gradients, self.sums, strict=True):
            norms = gradient.detach().float().flatten(1).norm(dim=1)
            total += torch.einsum("b,b...->...", (self.clip_norm / norms).clamp(max=1.0), gradient.detach().float())

    patch.setattr(sgd.ClippedSum, "add", wrong)


def noise_over(factor, patch):
    def wrong(self, noise_multiplier, generator, real=sgd.ClippedSum.noised):
        return real(self, noise_multiplier / factor if factor else 0.0, generator)

    patch.setattr(sgd.ClippedSum, "noised", wrong)


def shared_by_steps(patch):
    patch.setattr(Key, "generator", lambda self, *labels, real=Key.generator: real(self, labels[0], *labels[1:-1]))


def shared_by_ranks(patch):
    """Each process draws for its records as the first one does."""

    def wrong(self, key, step, present, *, rank=0, real=sgd.PoissonSampling.batch):
        return real(self, key, step, present)

    patch.setattr(sgd.PoissonSampling, "batch", wrong)


def fixed_batches(patch):
    def wrong(self, key, step, present, *, rank=0):
        return np.sort(key.generator("fixed", rank, step).permutation(present)[: round(self.probability * present)])

    patch.setattr(sgd.PoissonSampling, "batch", wrong)


FAULTS = {
    "gradients are not clipped": unclipped,
    "each parameter is clipped alone": clipped_by_parameter,
    "half the noise": partial(noise_over, 2),
    "no noise": partial(noise_over, 0),
    "steps share noise": shared_by_steps,
    "ranks share draws": shared_by_ranks,
    "batches of a fixed size": fixed_batches,
}
UNITS = {name: Unit(partial(units, name), dict(FAULTS)) for name in MECHANISMS}
UNITS["dp-prompt-tuning"].faults.pop("each parameter is clipped alone")  # it has one parameter


@pytest.mark.parametrize("name", UNITS)
def test_steps_of_a_training_are_what_is_charged(name):
    assert UNITS[name].refuted() == []


@pytest.mark.parametrize(("unit", "fault"), planted(UNITS))
def test_a_planted_fault_is_refuted(unit, fault, monkeypatch):
    assert unit.caught(fault, monkeypatch)
