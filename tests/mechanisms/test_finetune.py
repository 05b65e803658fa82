"""DP fine-tuning through the public call: guarantee, kill and resume, noise, leaks, bad input."""

import json
import math
import pathlib
from collections import Counter

import numpy as np
import pytest
from scipy import stats

import hf_dpsynth
from hf_dpsynth.errors import ConfigError, PrivacyError, ResumeMismatch
from hf_dpsynth.mechanisms.finetune import training
from hf_dpsynth.mechanisms.finetune.examples import Encoder
from hf_dpsynth.mechanisms.finetune.trainable import Trainable
from hf_dpsynth.mechanisms.finetune.tuning import DPLora
from hf_dpsynth.models.causal_lm import CausalLM
from hf_dpsynth.privacy.accounting import epsilon, leaves
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.processes import Processes
from tests.mechanisms import tiny
from tests.stubs import CANARY, StubEmbedder, StubGenerator, files_with, reviews

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
PARAMS = {
    "steps": 6, "batch_size": 16, "max_tokens": 16, "max_new_tokens": 6, "checkpoint_every": 2, "rank": 2,
    "dtype": "float32",
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("model"))


def tune(model, mechanism="dp-lora", ds=None, **more):
    params = {name: value for name, value in PARAMS.items() if name != "rank" or mechanism == "dp-lora"}
    settings = {
        "epsilon": 2.0, "delta": 1e-2, "text_column": "text", "label_column": "label", "num_rows": 10,
        "label_proportions": {"pos": 0.5, "neg": 0.5}, "generator": model, "params": params,
    } | more  # fmt: skip
    return (reviews(64) if ds is None else ds).synthesize(mechanism, **settings)


@pytest.mark.parametrize("mechanism", ["dp-lora", "dp-prompt-tuning", "dp-full"])
def test_the_three_methods_give_rows_a_guarantee_and_a_model(model, mechanism):
    made = tune(model, mechanism, out="run")
    release = made.privacy
    assert len(made) == 10 and Counter(made["label"]) == {"pos": 5, "neg": 5}
    assert release.guarantee.epsilon == 2.0 and release.guarantee.neighbours == "zero-out"
    assert epsilon(release.plan.event, 1e-2, adjacency="zero-out") <= 2.0
    assert [charge.key for charge in release.charges] == (
        ["steps-000001-000002", "steps-000003-000004", "steps-000005-000006"]
    )
    found = hf_dpsynth.verify("run")
    assert found.ok, found.findings
    assert files_with("run", CANARY) == [] and not pathlib.Path("run/checkpoints").exists()
    assert "(2, 0.01)-differentially private" in pathlib.Path("run/adapter/README.md").read_text()
    assert "Poisson" in json.loads(pathlib.Path("run/privacy.json").read_text())["accounting"]["sampling"]["actual"]


def test_a_second_run_is_free_and_gives_the_same_rows(model):
    first = tune(model, out="run")
    again = tune(model, out="run")
    assert again[:] == first[:] and again.privacy.charges == first.privacy.charges
    more = again.privacy.more(7, seed=3)
    assert len(more) == 7 and more.privacy.charges == first.privacy.charges
    assert again.privacy.more(7, seed=3)[:] == more[:] != again.privacy.more(7, seed=4)[:]


def test_further_rows_without_a_run_directory(model):
    made = tune(model)
    assert len(made.privacy.more(3)) == 3


@pytest.mark.parametrize("last", range(6))
def test_killed_at_any_step_nothing_is_charged_twice_and_no_step_repeated(model, last, monkeypatch):
    taken, step = [], training.Training._step

    def dies(self, engine, number):
        taken.append(number)
        if number == last and len(taken) == last + 1:
            raise KeyboardInterrupt
        step(self, engine, number)

    monkeypatch.setattr(training.Training, "_step", dies)
    with pytest.raises(KeyboardInterrupt):
        tune(model, out="run")
    made = tune(model, out="run")
    lost = f"steps-{last // 2 * 2 + 1:06d}-{last // 2 * 2 + 2:06d}"
    assert f"{lost} was charged and lost" in made.privacy.statement()
    assert len(taken) == len(set(taken)), "a step was taken twice"
    spent = sum((leaves(charge.event) for charge in made.privacy.charges), Counter())
    assert spent == leaves(made.privacy.plan.event)
    assert hf_dpsynth.verify("run").ok


def test_killed_between_checkpoint_and_commit_the_block_is_lost_and_the_one_before_is_there(model, monkeypatch):
    checkpoint, written = training.Training._checkpoint, []

    def dies(self, key):
        digest = checkpoint(self, key)
        written.append(key)
        if len(written) == 2:
            raise KeyboardInterrupt
        return digest

    monkeypatch.setattr(training.Training, "_checkpoint", dies)
    with pytest.raises(KeyboardInterrupt):
        tune(model, out="run")
    made = tune(model, out="run")
    assert (
        written[-1] == "steps-000005-000006" and "steps-000003-000004 was charged and lost" in made.privacy.statement()
    )


def test_a_resumed_run_goes_on_from_the_checkpoint(model, monkeypatch):
    seen, step = {}, training.Training._step

    def watched(self, engine, number):
        if number == 2 and "dead" not in seen:
            seen["dead"] = self._trainable.state()
            raise KeyboardInterrupt
        seen.setdefault("resumed", self._trainable.state())
        step(self, engine, number)

    monkeypatch.setattr(training.Training, "_step", watched)
    with pytest.raises(KeyboardInterrupt):
        tune(model, out="run")
    del seen["resumed"]
    tune(model, out="run")
    assert all(torch.equal(a, b) for a, b in zip(seen["dead"], seen["resumed"], strict=True))


def test_a_checkpoint_that_was_changed_is_refused(model, monkeypatch):
    def dies(self, engine, number):
        raise KeyboardInterrupt

    step = training.Training._step
    monkeypatch.setattr(
        training.Training, "_step", lambda self, e, n: dies(self, e, n) if n == 2 else step(self, e, n)
    )
    with pytest.raises(KeyboardInterrupt):
        tune(model, out="run")
    (path,) = pathlib.Path("run/checkpoints").glob("*.pt")
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(ResumeMismatch, match="gone or changed"):
        tune(model, out="run")


class Loop:
    """A training whose pieces a test can reach."""

    def __init__(self, model, texts, sigma=1.0, **options):
        self.mechanism = DPLora(**{**PARAMS, "batch_size": 4, "engine": "loop"} | options)
        plan = hf_dpsynth.mechanisms.planning.plan_synthesis(
            self.mechanism, epsilon=math.inf, num_records=64, num_rows=4
        )
        self.trainable = Trainable(model, method="lora", rank=2, dtype="float32")
        encoder = Encoder(self.trainable.tokenizer, "", (), plan.labels, 16)
        run = type("Run", (), {"keys": Key.from_insecure_seed(1), "devices": Processes()})
        self.training = training.Training(self.mechanism, PrivateRecords(texts), plan, run, self.trainable, encoder)
        self.training._sigma = sigma
        self.kept = []
        self.training._optimizer = type(
            "Keep",
            (),
            {
                "step": lambda _: self.kept.append([p.grad.clone() for p in self.training._parameters]),
                "zero_grad": lambda _, set_to_none: None,
            },
        )()

    def step(self, number=0):
        from hf_dpsynth.compute import per_example

        engine = per_example.engine("loop", self.trainable.module, self.trainable.losses, micro_batch_size=1)
        self.training._step(engine, number)
        return torch.cat([part.flatten() for part in self.kept[-1]]).double().numpy()


import hf_dpsynth.mechanisms.planning  # noqa: E402  (the class above names it)


def test_an_empty_batch_is_a_noisy_step_of_the_stated_scale(model):
    loop = Loop(model, [""] * 8, sigma=2.0)
    draws = np.concatenate([loop.step(number) for number in range(12)])
    scaled = draws * loop.mechanism.batch_size / (2.0 * loop.mechanism.clip_norm)
    assert stats.kstest(scaled, "norm").pvalue > 1e-3  # 10 % off: refused with power above .999 at 10,000 draws
    assert len(scaled) > 10_000 and stats.kstest(scaled * 1.1, "norm").pvalue < 1e-3


def test_an_update_is_the_clipped_sum_over_the_public_batch_size(model):
    texts = ["good film", "bad plot", "dull", "great awful fun"]
    loop = Loop(model, texts, sigma=0.0, clip_norm=0.05)
    loop.training._batches = type("All", (), {"batch": lambda *_: np.arange(4)})()
    wanted = 0
    for text in texts:
        part = loop.trainable.losses([loop.training._encoder.example(0, text)])[0]
        flat = torch.cat([g.flatten() for g in torch.autograd.grad(part, loop.training._parameters)]).double()
        wanted = wanted + flat * min(1.0, 0.05 / flat.norm().item())
    assert np.allclose(loop.step(), wanted.numpy() / 4, atol=1e-6)
    assert np.linalg.norm(loop.step() * 4) <= 4 * 0.05


def test_a_record_whose_gradient_is_not_finite_changes_nothing(model):
    def step(texts):
        loop = Loop(model, texts, sigma=0.0)
        loop.training._batches = type("All", (), {"batch": lambda *_: np.arange(len(texts))})()
        losses = loop.trainable.losses
        broken = len(loop.training._encoder.example(0, "script script script").tokens)
        loop.trainable.losses = lambda rows: losses(rows) * (math.nan if len(rows[0].tokens) == broken else 1.0)
        return loop.step()

    assert np.array_equal(step(["good", "script script script"]), step(["good"]))


def test_all_records_blank_trains_on_noise_alone(model):
    made = tune(model, ds=reviews(64).map(lambda row: {"text": ""}), out="run")
    assert len(made) == 10 and hf_dpsynth.verify("run").ok


def test_without_privacy_the_statement_says_so(model):
    made = tune(model, epsilon=math.inf, delta=None)
    assert "No privacy" in made.privacy.statement() and made.privacy.plan.noise_multiplier == 0


def test_proportions_can_be_bought(model):
    made = tune(model, label_proportions=None, labels=["pos", "neg"], out="run")
    assert made.privacy.charges[0].key == "label-counts" and hf_dpsynth.verify("run").ok
    plain = tune(model)
    assert made.privacy.plan.noise_multiplier > plain.privacy.plan.noise_multiplier


def test_shuffled_batches_cost_what_they_cost(model):
    made = tune(model, params={**PARAMS, "sampling": "shuffle", "steps": 8}, out="run")
    assert [charge.key for charge in made.privacy.charges] == ["steps-000001-000004", "steps-000005-000008"]
    assert (
        made.privacy.plan.noise_multiplier > tune(model, params={**PARAMS, "steps": 8}).privacy.plan.noise_multiplier
    )
    assert hf_dpsynth.verify("run").ok and "no amplification" in made.privacy.card()


def test_several_columns_and_every_option_of_sampling(model):
    ds = reviews(64).add_column("stars", ["one", "two"] * 32)
    made = tune(
        model, ds=ds, label_column=["label", "stars"], label_proportions=None,
        labels={"label": ["pos", "neg"], "stars": ["one", "two"]}, num_rows=8,
        params={**PARAMS, "num_decodes": 3, "top_k": 5, "temperature": 0.7, "prompt_template": "{label} {stars}:"},
    )  # fmt: skip
    assert set(made.features) == {"text", "label", "stars"} and len(made) == 8


def test_the_plan_follows_from_declared_numbers_alone():
    settings = {"epsilon": 3.0, "delta": 4e-5, "num_records": 25_000}
    plan = hf_dpsynth.plan("dp-lora", **settings, params={"steps": 1000, "batch_size": 1024})
    assert plan.noise_multiplier == pytest.approx(1.8503, abs=1e-3) and plan.adjacency == "zero-out"
    paper = hf_dpsynth.plan("dp-lora", **{**settings, "delta": "1/n"}, params={"steps": 1000, "batch_size": 1024})
    assert paper.delta == 4e-5 and paper.noise_multiplier == plan.noise_multiplier
    epochs = hf_dpsynth.plan("dp-lora", **settings, params={"epochs": 2, "batch_size": 1024})
    assert sum(leaves(epochs.event).values()) == math.ceil(2 * 25_000 / 1024)
    assert plan.cost.training_tokens == 1000 * 1024 * 128


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"params": {**PARAMS, "batch_size": 65}}, "batch_size is 65 and the data has 64"),
        ({"params": {**PARAMS, "epochs": 1}}, "both given"),
        ({"params": {**PARAMS, "steps": 0}}, "steps is 0"),
        ({"params": {**PARAMS, "clip_norm": math.nan}}, "clip_norm is nan"),
        ({"params": {**PARAMS, "engine": "ghost"}}, "engine is 'ghost'"),
        ({"params": {**PARAMS, "max_tokens": 5}}, "longest prefix has 6"),
        ({"params": {**PARAMS, "prompt_template": "{stars}"}}, "no label column"),
        ({"params": {**PARAMS, "target_modules": ["nowhere"]}}, "fits no layer"),
        ({"generator": StubGenerator()}, "tunes a local causal language model"),
        ({"embedder": StubEmbedder()}, "takes no embedder="),
        ({"adjacency": "add-remove"}, "reads a public share"),
        ({"epsilon": 0.0}, "epsilon is 0"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_spent(model, more, message):
    with pytest.raises(ConfigError, match=message):
        tune(model, **{"out": "run"} | more)
    ledger = pathlib.Path("run/ledger.db")
    assert not ledger.exists() or hf_dpsynth.privacy.budget is not None
    if ledger.exists():
        import sqlite3

        with sqlite3.connect(ledger) as database:
            assert database.execute("SELECT count(*) FROM charges").fetchone() == (0,)
        database.close()


def test_a_model_that_couples_records_stops_before_a_charge(model, monkeypatch):
    monkeypatch.setattr(training.per_example, "_TOLERANCE", -1.0)
    with pytest.raises(PrivacyError, match="couples the records"):
        tune(model, out="run")


def test_a_generator_of_ours_is_taken_by_its_name(model):
    assert len(tune(CausalLM(model))) == 10
