"""What a run wrote is a plain adapter or model: peft, transformers and trl load it, compute the same and train on."""

import json
import math
import pathlib

import pytest
import yaml
from datasets import Dataset
from markdown_it import MarkdownIt

import hf_dpsynth
from hf_dpsynth.mechanisms.finetune.model_card import model_card
from hf_dpsynth.mechanisms.finetune.trainable import Trainable
from tests.mechanisms import tiny
from tests.stubs import reviews

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")
PARAMS = {
    "steps": 2, "batch_size": 16, "max_tokens": 16, "max_new_tokens": 4, "dtype": "float32", "learning_rate": 0.05
}  # fmt: skip
METHODS = {"dp-lora": {"rank": 2}, "dp-prompt-tuning": {"prompt_length": 3}, "dp-full": {}}
TOKENS = torch.tensor([[1, 4, 5, 7, 20, 21], [1, 4, 5, 8, 22, 2]])
EACH = pytest.mark.parametrize("kind", ["llama", "gpt2"])
ADAPTERS = pytest.mark.parametrize("mechanism", ["dp-lora", "dp-prompt-tuning"])

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """Base model and written folder, by architecture and mechanism; each run once."""
    made, bases = {}, {}

    def get(kind, mechanism):
        if kind not in bases:
            bases[kind] = tiny.save(tmp_path_factory.mktemp(kind), kind)
        if (kind, mechanism) not in made:
            out = tmp_path_factory.mktemp("runs") / f"{kind}-{mechanism}"
            reviews(64).synthesize(
                mechanism, epsilon=math.inf, text_column="text", num_rows=2, generator=bases[kind], out=out,
                params=PARAMS | METHODS[mechanism],
            )  # fmt: skip
            made[kind, mechanism] = out / "adapter"
        return bases[kind], made[kind, mechanism]

    return get


def ours(base, folder, mechanism):
    """Our own tuned model, read back, and the logits it computes for the tokens of the test."""
    method, options = mechanism.removeprefix("dp-"), {"rank": 2, "prompt_length": 3, "dtype": "float32"}
    part = Trainable(base, method=method, **options)
    part.restore(part.read(folder))
    state = part.state()
    model, first, count = part.for_generation()
    virtual = torch.arange(first, first + count).expand(len(TOKENS), count)
    with torch.no_grad():
        logits = model(torch.cat([virtual, TOKENS], dim=1)).logits[:, -TOKENS.shape[1] :]
    start = Trainable(base, method=method, **options).state()
    assert any(not torch.equal(a, b) for a, b in zip(start, state, strict=True)), "it was not trained"
    return state, logits


def theirs(model):
    with torch.no_grad():
        found = model.eval()(input_ids=TOKENS, attention_mask=torch.ones_like(TOKENS)).logits
    return found[:, -TOKENS.shape[1] :]


def adapter_of(model):
    """The weights of an adapter in the names of its file."""
    return peft.get_peft_model_state_dict(model)


def same_bits(model, folder):
    from safetensors.torch import load_file

    held, found = load_file(folder / "adapter_model.safetensors"), adapter_of(model)
    assert set(held) == set(found) and len(held) > 0
    return all(torch.equal(held[name], found[name].cpu()) for name in held)


@EACH
@ADAPTERS
def test_peft_loads_an_adapter_bit_for_bit_by_folder_and_onto_a_base(tuned, kind, mechanism):
    base, folder = tuned(kind, mechanism)
    _, logits = ours(base, folder, mechanism)
    alone = peft.AutoPeftModelForCausalLM.from_pretrained(folder)
    onto = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(base), folder)
    for loaded in (alone, onto):
        assert same_bits(loaded, folder) and torch.allclose(theirs(loaded), logits, atol=1e-5)


@EACH
def test_transformers_loads_a_low_rank_adapter(tuned, kind):
    base, folder = tuned(kind, "dp-lora")
    state, logits = ours(base, folder, "dp-lora")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(base)
    plain = theirs(loaded)
    loaded.load_adapter(str(folder))
    weights = [value for name, value in loaded.named_parameters() if "lora_" in name]
    assert all(torch.equal(a, b) for a, b in zip(weights, state, strict=True))
    assert torch.allclose(theirs(loaded), logits, atol=1e-5) and not torch.allclose(plain, logits, atol=1e-3)


@EACH
def test_transformers_loads_a_whole_tuned_model(tuned, kind):
    base, folder = tuned(kind, "dp-full")
    state, logits = ours(base, folder, "dp-full")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), state, strict=True))
    assert torch.allclose(theirs(loaded), logits, atol=1e-5)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    assert words("good film")["input_ids"] == tiny.tokenizer()("good film")["input_ids"]


def continued(base, folder, mechanism):
    """The written model, as a user would load it to train on."""
    if mechanism == "dp-full":
        return transformers.AutoModelForCausalLM.from_pretrained(folder)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(base)
    if mechanism == "dp-lora":
        return peft.PeftModel.from_pretrained(loaded, folder, is_trainable=True)
    model = peft.PeftModel.from_pretrained(loaded, folder)  # peft loads no prompt as trainable
    model.prompt_encoder.requires_grad_(True)
    return model


def settings(cls, folder):
    return cls(
        output_dir=str(folder), max_steps=1, per_device_train_batch_size=2, learning_rate=0.1, report_to="none",
        use_cpu=True, save_strategy="no", disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip


def trained(model):
    return {name: value.detach().clone() for name, value in model.named_parameters() if value.requires_grad}


@EACH
@pytest.mark.parametrize("mechanism", METHODS)
def test_trainer_takes_a_further_step(tuned, kind, mechanism, tmp_path):
    base, folder = tuned(kind, mechanism)
    model = continued(base, folder, mechanism)
    before = trained(model)
    rows = [{"input_ids": row, "attention_mask": [1] * len(row), "labels": row} for row in TOKENS.tolist()]
    transformers.Trainer(
        model=model,
        args=settings(transformers.TrainingArguments, tmp_path),
        train_dataset=Dataset.from_list(rows),
        data_collator=transformers.default_data_collator,
    ).train()
    assert before and all(not torch.equal(before[name], value) for name, value in trained(model).items())


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated")  # trl names it
@EACH
@pytest.mark.parametrize("mechanism", METHODS)
def test_trl_takes_a_further_step(tuned, kind, mechanism, tmp_path):
    trl = pytest.importorskip("trl")
    base, folder = tuned(kind, mechanism)
    model = continued(base, folder, mechanism)
    before = trained(model)
    trainer = trl.SFTTrainer(
        model=model,
        args=settings(trl.SFTConfig, tmp_path),
        train_dataset=Dataset.from_dict({"text": ["good film", "a bad plot"]}),
        processing_class=tiny.tokenizer(),
    )
    trainer.train()
    after = trained(trainer.model)
    assert before and all(not torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize("mechanism", METHODS)
def test_the_model_card_carries_the_guarantee_and_metadata_that_the_hub_reads(tuned, mechanism):
    from huggingface_hub import ModelCard

    base, _ = tuned("llama", mechanism)
    settings = {"epsilon": 2.0, "delta": 1e-2, "text_column": "text", "num_rows": 2, "generator": base, "out": "run"}
    made = reviews(64).synthesize(mechanism, params=PARAMS | METHODS[mechanism], **settings)
    card = ModelCard.load("run/adapter/README.md")
    assert made.privacy.guarantee.statement() in card.text and "(2, 0.01)-differentially private" in card.text
    data = card.data.to_dict()
    assert data["pipeline_tag"] == "text-generation" and mechanism in data["tags"]
    assert data["library_name"] == ("transformers" if mechanism == "dp-full" else "peft")
    assert "hyper-parameters were not chosen on these records, or the runs that chose them count too" in card.text
    assert "base_model" not in data  # a folder of this machine
    assert yaml.safe_load(card.content.split("---")[1]) == data
    if mechanism != "dp-full":
        written = json.loads(pathlib.Path("run/adapter/adapter_config.json").read_text())
        assert written["base_model_name_or_path"] == base and written["task_type"] == "CAUSAL_LM"


@pytest.mark.parametrize("words", ["a | b\n## title\n`code` {label}", "<b>{label}</b>", "[x](http://x) {label} ***"])
def test_a_template_stays_in_its_cell_of_the_model_card(words):
    def tokens(template):
        params = {"batch_size": 10, "prompt_template": template}
        plan = hf_dpsynth.plan("dp-lora", epsilon=math.inf, num_records=100, num_rows=2, params=params)
        text = model_card(plan, "somebody/a-model").split("---", 2)[2]
        found = MarkdownIt("commonmark").enable("table").parse(text)
        return [
            [token.type, *(child.type for child in token.children or [] if child.type != "text")] for token in found
        ]

    assert tokens(words) == tokens("{label}")


def test_a_base_model_of_the_hub_is_named_in_the_metadata():
    plan = hf_dpsynth.plan("dp-lora", epsilon=math.inf, num_records=100, num_rows=2, params={"batch_size": 10})
    front = yaml.safe_load(model_card(plan, "somebody/a-model").split("---")[1])
    assert front["base_model"] == "somebody/a-model" and front["tags"] == ["dp-lora", "lora"]
