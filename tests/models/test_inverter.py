"""Inverters: what they learn comes back, whatever happens to the process and whoever stands beside a row."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from datasets import Dataset

from hf_dpsynth import models
from hf_dpsynth.errors import AssetError, ConfigError, ResumeMismatch
from hf_dpsynth.metrics.reconstruction import evaluate_inverter, token_f1
from hf_dpsynth.models import (
    NearestTextInverter,
    PrefixInverter,
    inverter_folder,
    inverter_training,
    load_inverter,
    train_inverter,
)
from hf_dpsynth.models.base import Inverter
from hf_dpsynth.models.inverter_examples import Examples, noisy
from hf_dpsynth.models.inverter_settings import InverterTraining
from hf_dpsynth.models.inverter_training import deal
from tests.mechanisms.tiny import tokenizer
from tests.stubs import WORDS, StubEmbedder, StubGenerator, reviews

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = {"prefix_length": 4, "hidden": 48, "rank": 8, "batch_size": 8, "max_tokens": 8, "learning_rate": 1e-2}


def sentences(count, seed=0, length=5):
    rng = np.random.default_rng(seed)
    return list(dict.fromkeys(" ".join(rng.choice(WORDS, size=length)) for _ in range(count)))


TEXTS = sentences(16)


class Other(StubEmbedder):
    """Another encoder."""


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    """A random model over a few words whose frozen output layer is loud enough to be sure of a word."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder, words = tmp_path_factory.mktemp("lm"), tokenizer()
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.4,
        bos_token_id=words.bos_token_id, eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


def train(language_model, out, texts=TEXTS, encoder=None, held_out=(), **more):
    settings = InverterTraining(**{**SMALL, "steps": 20, "noise_std": 0.0, "dtype": "float32"} | more)
    return train_inverter(
        texts, out=out, encoder=encoder or StubEmbedder(), model=language_model, held_out=held_out, training=settings
    )


@pytest.fixture(scope="module")
def learned(language_model, tmp_path_factory):
    """An inverter that knows sixteen sentences, and the folder it lies in."""
    folder = tmp_path_factory.mktemp("learned") / "inverter"
    train(language_model, folder, steps=150, held_out=sentences(8, seed=1))
    return folder


def read(folder, **options):
    return PrefixInverter(folder, encoder=StubEmbedder(), dtype="float32", **options)


def cosines(inverter, vectors, seed=0):
    return (StubEmbedder().embed(inverter.invert(vectors, seed=seed)) * vectors).sum(1)


def test_sentences_that_were_learned_come_back_from_their_vectors(learned):
    found = evaluate_inverter(read(learned), TEXTS, embedder=StubEmbedder())
    assert found["token_f1"] > 0.9 and found["exact"] > 0.7 and found["bleu"] > 0.8
    assert found["cosine"] > found["cosine_chance"] + 0.5 and found["token_f1_chance"] < 0.5


def test_without_the_vector_nothing_comes_back(learned, monkeypatch):
    inverter = read(learned, samples=1, corrections=0)
    inverter.invert(StubEmbedder().embed(TEXTS), seed=0)
    real = inverter._loaded.prompts
    inverter._loaded.prompts = lambda aims: real(np.roll(aims, 3, axis=0))
    said = inverter.invert(StubEmbedder().embed(TEXTS), seed=0)
    assert np.mean([token_f1(one, other) for one, other in zip(said, TEXTS, strict=True)]) < 0.5
    assert np.mean([token_f1(one, other) for one, other in zip(said, np.roll(TEXTS, 3), strict=True)]) > 0.8


def test_what_is_read_from_the_folder_is_what_was_trained(learned, language_model):
    vectors = StubEmbedder().embed(TEXTS)
    assert read(learned).invert(vectors, seed=3) == read(learned).invert(vectors, seed=3)
    facts = read(learned).config.training
    assert facts["held_out_loss"] < 100 and facts["training_loss"] < 0.5 * facts["held_out_loss_before"]
    inverter = read(learned)
    inverter.invert(vectors[:1], seed=0)
    # the same loss, computed from the merged model in memory
    import torch

    loaded = inverter._loaded
    held = Examples.of(sentences(8, seed=1), loaded.tokenizer, StubEmbedder(), SMALL["max_tokens"])
    total = count = 0
    for prompt, tokens in zip(loaded.prompts(held.vectors), held.tokens, strict=True):
        logits = loaded.generator.load()[0](input_ids=torch.tensor([[*prompt, *tokens[:-1]]])).logits[0]
        shown = torch.log_softmax(logits[len(prompt) - 1 :], -1)
        total -= float(shown[range(len(tokens)), tokens].sum())
        count += len(tokens)
    assert total / count == pytest.approx(facts["held_out_loss"], rel=1e-4)


def test_a_seed_reproduces_and_another_one_differs(learned):
    inverter, vectors = read(learned, temperature=2.0, samples=1, corrections=0), StubEmbedder().embed(TEXTS)
    assert inverter.invert(vectors, seed=1) == inverter.invert(vectors, seed=1) != inverter.invert(vectors, seed=2)


def test_a_text_does_not_depend_on_the_other_rows(learned):
    inverter, vectors = read(learned, temperature=1.5, batch_size=5), StubEmbedder().embed(TEXTS)
    whole = inverter.invert(vectors, seed=1)
    others = StubEmbedder().embed(sentences(len(TEXTS), seed=9))
    assert inverter.invert(vectors[:5], seed=1) == whole[:5]
    assert inverter.invert(np.concatenate([others[:7], vectors[7:]]), seed=1)[7:] == whole[7:]
    assert inverter.invert(vectors * 7, seed=1) == whole


def test_corrections_never_lower_the_cosine_and_often_raise_it(learned):
    vectors = StubEmbedder().embed(sentences(24, seed=5))
    reached = [cosines(read(learned, samples=2, corrections=rounds), vectors) for rounds in (0, 1, 3)]
    assert (reached[1] >= reached[0] - 1e-6).all() and (reached[2] >= reached[1] - 1e-6).all()
    assert (reached[2] > reached[0] + 0.01).sum() >= 3


def test_a_correction_aims_beyond_the_vector_by_what_is_missing(learned):
    inverter, vectors, aims = read(learned, samples=2, corrections=1), StubEmbedder().embed(sentences(6, seed=5)), []
    inverter.invert(vectors, seed=0)
    real = inverter._loaded.prompts
    inverter._loaded.prompts = lambda rows: aims.append(rows) or real(rows)
    inverter.invert(vectors, seed=0)
    guess = StubEmbedder().embed(read(learned, samples=2, corrections=0).invert(vectors, seed=0))
    beyond = 2 * vectors - guess
    np.testing.assert_allclose(aims[0], vectors, atol=1e-6)
    np.testing.assert_allclose(aims[1], beyond / np.linalg.norm(beyond, axis=1, keepdims=True), atol=1e-5)


def test_many_rows_are_inverted_in_parts(learned, monkeypatch):
    monkeypatch.setattr("hf_dpsynth.models.inverter._CHUNK", 5)
    found = evaluate_inverter(read(learned), TEXTS, embedder=StubEmbedder())
    assert found["token_f1"] > 0.9


class NoisyLater(StubEmbedder):
    """Clean vectors at the first call, for the texts to learn, and noisy ones for those that are held out."""

    def embed(self, texts):
        vectors = super().embed(texts)
        directions = np.random.default_rng(1).standard_normal(vectors.shape)
        return noisy(vectors, np.full(len(texts), 0.8 if self.calls > 1 else 0.0), directions)


def test_noise_in_training_makes_noisy_vectors_easier(language_model, tmp_path):
    loss = {}
    for noise in (0.0, 0.8):
        options = {"encoder": NoisyLater(), "held_out": TEXTS, "steps": 50, "noise_std": noise}
        loss[noise] = train(language_model, tmp_path / str(noise), **options).config.training["held_out_loss"]
    assert loss[0.8] < 0.85 * loss[0.0], loss


def test_a_killed_training_goes_on_to_the_same_inverter(language_model, tmp_path, monkeypatch):
    options = {"steps": 12, "checkpoint_steps": 5, "noise_std": 0.3, "held_out": sentences(4, seed=2)}
    train(language_model, tmp_path / "whole", **options)
    real = inverter_training._Trainer._one_step

    def killed(trainer, *arguments):
        if trainer._step == 8:
            raise KeyboardInterrupt
        return real(trainer, *arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(inverter_training._Trainer, "_one_step", killed)
        train(language_model, tmp_path / "killed", **options)
    made = []
    monkeypatch.setattr(inverter_training._Trainer, "_one_step", lambda *all: made.append(all[0]._step) or real(*all))
    with pytest.raises(ResumeMismatch, match="other texts"):
        train(language_model, tmp_path / "killed", **options | {"noise_std": 0.2})
    resumed = train(language_model, tmp_path / "killed", **options)
    assert made == list(range(5, 12))
    for name in ("mapper.safetensors", "adapter/adapter_model.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    whole = json.loads((tmp_path / "whole/config.json").read_text())["training"]
    for name in ("held_out_loss", "held_out_loss_before", "training_loss"):
        assert resumed.config.training[name] == whole[name]
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == [
        "adapter",
        "config.json",
        "mapper.safetensors",
    ]
    train(language_model, tmp_path / "killed", **options)
    assert made == list(range(5, 12))  # a finished inverter is returned as it is
    with pytest.raises(ResumeMismatch, match="other texts"):
        train(language_model, tmp_path / "killed", **options | {"seed": 1})


@pytest.mark.parametrize("name", ["checkpoint.pt", "config.json", None])
def test_a_training_killed_while_it_writes_goes_on_to_the_same_inverter(language_model, tmp_path, monkeypatch, name):
    """In its first checkpoint, before the configuration is in place, and between the weights and it."""
    options = {"steps": 3, "checkpoint_steps": 1 if name == "checkpoint.pt" else 100}
    train(language_model, tmp_path / "whole", **options)

    def killed(path, *arguments):
        if name in (None, arguments[-1].name if arguments else None):
            raise KeyboardInterrupt
        return real(path, *arguments)

    owner, method = (inverter_folder, "_digest") if name is None else (pathlib.Path, "replace")
    real = getattr(owner, method)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, method, killed)
        train(language_model, tmp_path / "killed", **options)
    left = {path.name for path in (tmp_path / "killed").iterdir()}
    assert "config.json" not in left and (left == {"checkpoint.pt.partial"} or name != "checkpoint.pt")
    made, real = [], inverter_training._Trainer._one_step
    monkeypatch.setattr(inverter_training._Trainer, "_one_step", lambda *all: made.append(all[0]._step) or real(*all))
    train(language_model, tmp_path / "killed", **options)
    assert made == ([0, 1, 2] if name == "checkpoint.pt" else [])
    for file in ("mapper.safetensors", "adapter/adapter_model.safetensors"):
        assert (tmp_path / "killed" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert {path.name for path in (tmp_path / "killed").iterdir()} == {"adapter", "config.json", "mapper.safetensors"}


def test_a_limit_of_time_ends_training(language_model, tmp_path):
    assert train(language_model, tmp_path / "short", steps=500, minutes=1e-9).config.training["steps_made"] == 1


def test_a_checkpoint_that_was_cut_is_said_to_be(language_model, tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(b"PK\x03\x04cut")
    with pytest.raises(AssetError, match=r"checkpoint\.pt cannot be read"):
        train(language_model, tmp_path)


def cut(folder, name):
    path = folder / name
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: shutil.rmtree(folder), "holds no config.json"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "llama"}'), "holds another model"),
        (lambda folder: (folder / "config.json").write_text("[1]"), "holds another model"),
        (lambda folder: cut(folder, "config.json"), "cannot be read"),
        (lambda folder: cut(folder, "mapper.safetensors"), "mapper.safetensors is not as it was written"),
        (lambda folder: cut(folder, "adapter/adapter_model.safetensors"), "is not as it was written"),
        (lambda folder: (folder / "adapter/adapter_config.json").unlink(), "adapter_config.json is missing"),
        (
            lambda folder: (folder / "config.json").write_text('{"format": "hf-dpsynth-inverter-1", "files": {}}'),
            "lacks encoder",
        ),
    ],
)
def test_a_folder_that_is_foreign_or_cut_is_refused(learned, tmp_path, spoil, said):
    shutil.copytree(learned, tmp_path / "inverter")
    spoil(tmp_path / "inverter")
    with pytest.raises(AssetError, match=said.replace(".", r"\.")):
        load_inverter(tmp_path / "inverter", encoder=StubEmbedder())


def test_another_language_model_in_its_place_is_refused(learned, language_model, tmp_path):
    shutil.copytree(language_model, tmp_path / "lm")
    text = json.loads((learned / "config.json").read_text())
    shutil.copytree(learned, tmp_path / "inverter")
    text["language_model"] = str(tmp_path / "lm")
    (tmp_path / "lm" / "more.txt").write_text("more")
    (tmp_path / "inverter/config.json").write_text(json.dumps(text))
    with pytest.raises(AssetError, match="was trained on lm"):
        read(tmp_path / "inverter").invert(StubEmbedder().embed(["good"]), seed=0)


def test_an_inverter_of_another_encoder_is_refused(learned):
    assert isinstance(load_inverter(str(learned), encoder=StubEmbedder()), PrefixInverter)
    for wrong in (learned, read(learned)):
        with pytest.raises(ConfigError, match=r"trained for the encoder 'tests\.stubs\.StubEmbedder'.*Other'"):
            load_inverter(wrong, encoder=Other())
    with pytest.raises(ConfigError, match="pass encoder="):
        PrefixInverter(learned)
    same = read(learned)
    assert load_inverter(same, encoder=StubEmbedder()) is same and isinstance(same, Inverter)
    assert same.id.startswith("inverter@") and str(learned) not in same.id + repr(same)


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        (np.zeros((2, 63), np.float32), r"shape \(2, 63\)"),
        (np.zeros(64, np.float32), r"shape \(64,\)"),
        (np.full((1, 64), np.nan), "NaN"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(learned, vectors, said):
    for inverter in (read(learned), NearestTextInverter(TEXTS, encoder=StubEmbedder())):
        with pytest.raises(ConfigError, match=said):
            inverter.invert(vectors, seed=0)
        assert inverter.invert(np.zeros((0, 64), np.float32), seed=0) == []


@pytest.mark.parametrize("texts", [[], ["", "  "], ["good", None], "good film"])
def test_text_that_is_empty_or_none_is_refused(language_model, tmp_path, texts):
    for refused in (
        lambda: train(language_model, tmp_path / "out", texts),
        lambda: deal(texts, 0.1, 0),
        lambda: load_inverter(None, encoder=StubEmbedder(), public_texts=texts),
    ):
        with pytest.raises(ConfigError, match="public text"):
            refused()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "wrong",
    [{"steps": 0}, {"rank": 0}, {"max_tokens": 1}, {"minutes": 0.0}, {"minutes": float("nan")}, {"noise_std": -1.0},
     {"noise_std": float("nan")}, {"learning_rate": float("inf")}, {"dtype": "float16"}],
)  # fmt: skip
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        InverterTraining(**wrong)


def test_a_folder_with_something_else_is_left_alone(language_model, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    for names in (["mine.txt"], ["checkpoint.pt.partial", "mine.txt"]):
        (tmp_path / names[0]).write_text("mine")
        with pytest.raises(ConfigError, match="holds no inverter"):
            train(language_model, tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_the_command_line_trains_and_says_what_comes_back(call, language_model, monkeypatch):
    monkeypatch.setattr(models.catalog, "load_embedder", lambda name: StubEmbedder() if name == "minilm" else name)
    pathlib.Path("public.txt").write_text("\n".join(sentences(30)))
    numbers = ("--steps", 3, "--rank", 2, "--max-tokens", 8, "--held-out", 0.2)
    verb = ("models", "train-inverter", "--model", language_model)
    command = (*verb, "--texts", "public.txt", "--out", "inv", *numbers)
    code, out, err = call(*command)
    assert code == 0, err
    assert "24 texts: 3 steps" in out and "token_f1" in out and "bleu" in out and "inverter: inv" in out
    assert (pathlib.Path("inv/config.json")).is_file() and "PUBLIC" in call("models", "train-inverter", "--help")[1]
    assert "train-inverter" in call("models", "--help")[1]
    assert call(*command)[0] == 0
    pathlib.Path("empty.txt").write_text("\n")
    for wrong, exit_code, said in (
        (("--texts", "empty.txt", "--out", "new"), 2, "none has a word"),
        (("--texts", "public.txt", "--out", "inv", "--seed", 1), 1, "inverter of other texts"),
        (("--texts", "public.txt", "--out", "new", "--rank", 0), 2, "rank is 0"),
        (("--texts", "public.txt"), 2, "--out"),
        (("--texts", "missing.txt", "--out", "new"), 2, "does not exist"),
    ):
        code, out, err = call(*verb, *wrong)
        assert (code, out, len(err.splitlines())) == (exit_code, "", 1) and said in err, (wrong, err)


def evolved(folder, embedder):
    params = {"iterations": 2, "parents": 2, "offspring": 8, "num_initial": 8, "inverter": str(folder)}
    public = Dataset.from_dict({"text": TEXTS, "label": ["neg", "pos"] * (len(TEXTS) // 2)})
    generator = StubGenerator()
    out = reviews().synthesize(
        "dp-eda", epsilon=4.0, delta=1e-4, text_column="text", label_column="label", labels=["neg", "pos"],
        num_rows=6, generator=generator, embedder=embedder, public=public, params=params, out="run",
    )  # fmt: skip
    return out, generator.prompts


def test_dp_eda_makes_its_offspring_with_a_trained_inverter(learned):
    out, prompts = evolved(learned, StubEmbedder())
    assert len(out) == 6 and out.privacy.plan.params["inverter"].startswith("inverter@") and not prompts
    grown = pathlib.Path("run/populations/population-001-00.jsonl").read_text().splitlines()
    assert len(grown) == 4 and any(json.loads(line)["text"] not in TEXTS for line in grown)


def test_dp_eda_refuses_the_inverter_of_another_encoder_before_anything_is_charged(learned):
    with pytest.raises(ConfigError, match="encoder"):
        evolved(learned, Other())
    assert not pathlib.Path("run/ledger.db").exists()
