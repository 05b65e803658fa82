"""Faults that stock parts of DP fine-tuning have without a word, each looked for on real architectures."""

import math
import pathlib

import numpy as np
import pytest

import hf_dpsynth
from hf_dpsynth.compute import per_example
from hf_dpsynth.compute.token_loss import frozen_head
from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.mechanisms.finetune import training
from hf_dpsynth.mechanisms.finetune.examples import Example
from hf_dpsynth.mechanisms.finetune.trainable import Trainable
from hf_dpsynth.mechanisms.finetune.tuning import DPFull, DPLora, DPPromptTuning
from hf_dpsynth.mechanisms.planning import plan_synthesis
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.processes import Processes
from tests.mechanisms import tiny
from tests.stubs import reviews

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
pytest.importorskip("opacus")
KINDS, ENGINES = ["llama", "gpt2"], ["loop", "hooks"]
METHODS = {"lora": DPLora, "prompt-tuning": DPPromptTuning, "full": DPFull}
CLIP = 0.01
TEXTS = ["good film", "dull", "a great film with a slow plot and bright actor", "bad bad bad script"]

pytestmark = pytest.mark.usefixtures("one_thread")
EACH_KIND = pytest.mark.parametrize("kind", KINDS)
EACH_METHOD = pytest.mark.parametrize("method", METHODS)
EACH_ENGINE = pytest.mark.parametrize("engine", ENGINES)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {kind: tiny.save(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def trainable(folders, kind, method):
    """A model whose trained parts have left their initial values, at which some gradients vanish."""
    part = Trainable(folders[kind], method=method, dtype="float32", rank=2, prompt_length=3)
    if method != "full":
        with torch.no_grad():
            for number, parameter in enumerate(part.parameters):
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)) * 0.05)
    return part


def engine_of(part, name, micro_batch_size=3):
    return per_example.engine(name, part.module, part.losses, micro_batch_size=micro_batch_size)


def whole(engine, rows):
    parts = [torch.cat(parts) for parts in zip(*engine.gradients(rows), strict=True)]
    engine.close()
    return parts


def update(folders, kind, method, engine, texts, *, broken=None):
    """The noiseless sum of a step over these records; `broken` is one whose loss is not finite."""
    mechanism = METHODS[method](steps=1, batch_size=4, clip_norm=CLIP, max_tokens=16, dtype="float32")
    plan = plan_synthesis(mechanism, epsilon=math.inf, num_records=64, num_rows=4)
    part = trainable(folders, kind, method)
    run = type("Run", (), {"keys": Key.from_insecure_seed(1), "devices": Processes()})
    rules = training.encoder_of(mechanism, part, plan)
    step = training.Training(mechanism, PrivateRecords(texts), plan, run, part, rules)
    step._batches = type("All", (), {"batch": lambda *_: np.arange(len(texts))})()
    kept = []
    step._optimizer = type(
        "Keep",
        (),
        {
            "step": lambda _: kept.extend(p.grad.clone().flatten() for p in step._parameters),
            "zero_grad": lambda _, set_to_none: None,
        },
    )()
    losses = part.losses
    if broken is not None:
        tokens = rules.example(0, broken).tokens
        part.losses = lambda rows: (
            losses(rows) * torch.tensor([math.nan if row.tokens == tokens else 1.0 for row in rows])
        )
    one = engine_of(part, engine)
    step._step(one, 0)
    one.close()
    return torch.cat(kept).double() * mechanism.batch_size


@EACH_KIND
@EACH_METHOD
@EACH_ENGINE
def test_one_record_moves_a_step_by_its_own_clipped_gradient_whoever_stands_beside_it(folders, kind, method, engine):
    def step(*texts):
        return update(folders, kind, method, engine, texts)

    alone = step(TEXTS[2])
    assert alone.norm().item() == pytest.approx(CLIP, rel=1e-4)
    for others in (TEXTS[:1], TEXTS[:2], [*TEXTS[:2], TEXTS[3]], [TEXTS[2]] * 3):
        moved = step(*others, TEXTS[2]) - step(*others)
        assert torch.allclose(moved, alone, atol=1e-4 * CLIP) and moved.norm() <= CLIP * (1 + 1e-5)


@EACH_KIND
@EACH_ENGINE
def test_a_record_without_a_finite_gradient_counts_as_nothing(folders, kind, engine):
    with_it = update(folders, kind, "lora", engine, TEXTS, broken=TEXTS[1])
    without = update(folders, kind, "lora", engine, [text for text in TEXTS if text != TEXTS[1]])
    assert torch.isfinite(with_it).all() and torch.allclose(with_it, without, atol=1e-4 * CLIP)


@EACH_KIND
@EACH_METHOD
@EACH_ENGINE
def test_examples_without_a_target_have_zero_gradients(folders, kind, method, engine):
    part = trainable(folders, kind, method)
    rows = [Example([1, 4, 5], 3), Example([1, 4], 2), Example([1, 4, 5, 6], 4)]
    found = whole(engine_of(part, engine), rows)
    assert all(gradient.shape[0] == 3 and bool((gradient == 0).all()) for gradient in found)


def test_a_prompt_that_is_not_expanded_before_its_layer_is_refused(folders):
    part = trainable(folders, "llama", "prompt-tuning")
    part.losses._virtual = lambda count: part.prompt(torch.arange(3)[None]).expand(count, -1, -1)
    with pytest.raises(PrivacyError, match=r"per-example gradients of shape \(1, 3, 16\) for 3 examples"):
        whole(engine_of(part, "hooks"), [Example([1, 4, 5, 6, 2], 3)] * 3)


@EACH_KIND
def test_tied_weights_get_the_gradients_of_both_of_their_uses(folders, kind):
    part = trainable(folders, kind, "full")
    words = part.model.get_input_embeddings().weight
    assert words is part.model.get_output_embeddings().weight and part.parameters[0] is words
    row = Example([1, 4, 5, 6, 2], 3)
    unread = [token for token in range(len(words)) if token not in row.tokens]
    for engine in ENGINES:
        (found, *_) = whole(engine_of(part, engine), [row, row])
        output_alone = (part.model(torch.tensor([row.tokens[:-1]])).logits.softmax(-1) > 0).all()
        assert output_alone and (found[0][unread] != 0).any(1).all(), "words that are not read are predicted"
        assert (found[0][row.tokens[0]] - found[0][unread[0]]).norm() > 1e-3


def test_positions_of_gpt2_are_given_for_each_row(folders, monkeypatch):
    part = trainable(folders, "gpt2", "full")
    rows = [Example([1, 4, 5, 6, 2], 3), Example([1, 4, 5, 2], 3)]
    number = next(n for n, (name, _) in enumerate(part.module.named_parameters()) if name.endswith("wpe.weight"))
    found = whole(engine_of(part, "hooks"), rows)[number]
    assert found.shape == (2, 64, 16) and found[0][3].any() and not found[1][3].any(), "the last token is predicted"
    inner = part.model.forward
    monkeypatch.setattr(part.model, "forward", lambda *args, position_ids=None, **more: inner(*args, **more))
    with pytest.raises(PrivacyError, match="per-example gradients"):
        whole(engine_of(part, "hooks"), rows)


@EACH_KIND
@EACH_METHOD
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated")
def test_the_loop_is_right_under_gradient_checkpointing(folders, kind, method, monkeypatch):
    part = trainable(folders, kind, method)
    rows = [Example([1, 4, 5, 6, 7, 2], 3), Example([1, 4, 5, 2], 3)]
    plain = whole(engine_of(part, "loop"), rows)
    part.model.gradient_checkpointing_enable()
    layers = [module for module in part.module.modules() if getattr(module, "gradient_checkpointing", False)]
    calls = []
    for layer in layers:
        function = layer._gradient_checkpointing_func
        layer._gradient_checkpointing_func = lambda *args, f=function: calls.append(1) or f(*args)
    evaluated = whole(engine_of(part, "loop"), rows)
    assert layers and not calls, "transformers applies it in training mode alone, and the loop evaluates"
    engine = engine_of(part, "loop")
    for layer in layers:  # as somebody else may set it, dropout apart: now it is applied
        layer.training = True
    applied = whole(engine, rows)
    assert len(calls) >= 2 * len(rows)
    for a, b, c in zip(plain, evaluated, applied, strict=True):
        assert torch.allclose(a, b, atol=1e-7) and torch.allclose(a, c, atol=1e-6) and a.any()


@EACH_KIND
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated")
def test_hooks_refuse_gradient_checkpointing_of_a_model(folders, kind):
    part = trainable(folders, kind, "lora")
    part.model.gradient_checkpointing_enable()
    with pytest.raises(ConfigError, match="gradient checkpointing"):
        engine_of(part, "hooks")


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA"), RuntimeError("can't allocate memory")])
def test_memory_that_runs_out_halves_the_micro_batch_of_a_model(folders, error):
    part = trainable(folders, "llama", "lora")
    rows = [Example([1, 4, 5, number, 2], 3) for number in range(6, 11)]
    wanted, losses, sizes = whole(engine_of(part, "loop"), rows), part.losses, []

    def fails(chunk):
        sizes.append(len(chunk))
        found = losses(chunk)
        if len(chunk) > 2:
            raise error
        return found

    part.losses = fails
    found = whole(engine_of(part, "hooks", 5), rows)
    assert sizes == [5, 2, 2, 1]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, wanted, strict=True))


def tune(model, *, mechanism="dp-lora", budget=None, public=None, **more):
    params = {"steps": 2, "batch_size": 16, "max_tokens": 16, "max_new_tokens": 4, "dtype": "float32"}
    settings = {"text_column": "text", "num_rows": 2, "generator": model, "out": "run", "public": public}
    settings |= {"epsilon": math.inf} if budget is None else {"epsilon": 1.0, "budget": budget}
    return reviews(64).synthesize(mechanism, params=params | more, **settings)


def test_an_engine_with_other_gradients_stops_before_a_charge(folders, monkeypatch):
    sample = per_example.Hooks._sample
    monkeypatch.setattr(per_example.Hooks, "_sample", lambda self, *given: 1.01 * sample(self, *given))
    with pytest.raises(PrivacyError, match=r"engine='hooks' gives gradients that differ"):
        tune(folders["llama"], engine="hooks")
    assert not pathlib.Path("run/ledger.db").exists()


def test_a_model_that_did_not_move_is_not_released(folders, monkeypatch):
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self: None)
    with pytest.raises(PrivacyError, match="no parameter moved"):
        tune(folders["llama"])
    assert not pathlib.Path("run/adapter").exists()


def test_a_model_that_is_not_finite_is_not_released(folders, monkeypatch):
    def step(self):
        self.param_groups[0]["params"][0].data.fill_(math.nan)

    monkeypatch.setattr(torch.optim.Adam, "step", step)
    with pytest.raises(PrivacyError, match="not finite"):
        tune(folders["llama"])
    assert not pathlib.Path("run/adapter").exists()


def test_an_adapter_that_does_not_read_back_bit_for_bit_is_not_released(folders, monkeypatch):
    read = Trainable.read
    with monkeypatch.context() as patch:
        patch.setattr(Trainable, "read", lambda self, folder: [part + 1e-7 for part in read(self, folder)])
        with pytest.raises(PrivacyError, match="not what was trained"):
            tune(folders["llama"])
    assert not pathlib.Path("run/adapter").exists()
    assert len(tune(folders["llama"])) == 2 and hf_dpsynth.verify("run").ok


@pytest.fixture(scope="module")
def opt(tmp_path_factory):
    """A model whose positions and linear layers the hooks of Opacus do not understand."""
    from transformers import OPTConfig, OPTForCausalLM

    words = tiny.tokenizer()
    torch.manual_seed(0)
    config = OPTConfig(
        vocab_size=len(words), hidden_size=16, ffn_dim=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, word_embed_proj_dim=16, pad_token_id=words.pad_token_id,
        bos_token_id=words.bos_token_id, eos_token_id=words.eos_token_id,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("opt")
    OPTForCausalLM(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("mechanism", ["dp-lora", "dp-full"])
def test_auto_takes_the_loop_where_hooks_do_not_fit_and_says_so(opt, caplog, mechanism):
    made = tune(opt, mechanism=mechanism)
    assert len(made) == 2 and "engine='auto' takes the loop, because hooks do not fit this model" in caplog.text


@pytest.mark.parametrize("mechanism", ["dp-lora", "dp-full"])
def test_what_does_not_fit_is_refused_before_a_budget_is_touched(opt, tmp_path, mechanism):
    budget = hf_dpsynth.PrivacyBudget(tmp_path / "b.db", epsilon=3, delta=1e-5)
    with pytest.raises((ConfigError, PrivacyError), match="engine='loop'"):
        tune(opt, mechanism=mechanism, budget=budget, engine="hooks")
    assert budget.spent() == 0 and not pathlib.Path("run/plan.json").exists()
    made = tune(opt, mechanism=mechanism, budget=budget, engine="loop")
    assert 0 < budget.spent() <= 1.1 and len(made) == 2


def test_a_public_loss_that_fails_is_left_out_and_the_run_goes_on(folders, monkeypatch, caplog):
    def fails(self):
        raise RuntimeError("no memory")

    monkeypatch.setattr(training.PublicLoss, "__call__", fails)
    with caplog.at_level("INFO", logger="hf_dpsynth"):
        made = tune(folders["llama"], public=["good film"], checkpoint_every=1)
    said = [record.message for record in caplog.records if "public loss" in record.message]
    assert len(made) == 2 and said == [
        "'public loss' failed with RuntimeError and is left out of the reports from now on; the run goes on."
    ]


def test_a_model_that_bends_its_logits_computes_them_itself():
    from transformers import Gemma2Config, Gemma2ForCausalLM

    options = {
        "vocab_size": 30, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 64,
    }  # fmt: skip
    for cap, plain in ((30.0, False), (None, True)):
        torch.manual_seed(0)
        model = Gemma2ForCausalLM(Gemma2Config(**options, final_logit_softcapping=cap)).requires_grad_(False)
        assert (frozen_head(model) is not None) is plain
