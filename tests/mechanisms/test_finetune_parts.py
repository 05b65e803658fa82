"""Examples, loss, what is trained: on real architectures with random weights."""

import logging
import math

import pytest

from hf_dpsynth.compute import per_example
from hf_dpsynth.compute.token_loss import frozen_head
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.finetune.examples import Encoder, Example, prefix_text
from hf_dpsynth.mechanisms.finetune.prefix_lm import PrefixLoss
from hf_dpsynth.mechanisms.finetune.trainable import Trainable
from tests.mechanisms import tiny
from tests.stubs import CANARY

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
KINDS, METHODS = ["llama", "gpt2"], ["lora", "prompt-tuning", "full"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {kind: tiny.save(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def trainable(folders, kind, method, **options):
    return Trainable(folders[kind], method=method, dtype="float32", prompt_length=3, rank=2, **options)


def encoder(words=None, template="", columns=("label",), labels=(("pos",), ("neg",)), max_tokens=16):
    return Encoder(words or tiny.tokenizer(), template, columns, labels, max_tokens)


def examples(rules=None):
    rules = rules or encoder()
    texts = ["good film", "dull", "a great film with a slow plot and bright actor music scene story", ""]
    return [rules.example(number % 2, text) for number, text in enumerate(texts)]


def test_an_example_is_prefix_text_and_end():
    rules, words = encoder(), tiny.tokenizer()
    example = rules.example(0, " good film ")
    assert words.convert_ids_to_tokens(example.tokens) == (
        ["<s>", "label", ":", "pos", "text", ":", "good", "film", "</s>"]
    )
    assert example.prefix == 6 and CANARY not in repr(rules.example(0, CANARY))


def test_a_long_text_is_cut_at_the_public_length_and_does_not_end():
    example = encoder(max_tokens=9).example(0, "good bad film story actor")
    assert len(example.tokens) == 9 and example.tokens[-1] != tiny.tokenizer().eos_token_id
    exact = encoder(max_tokens=9).example(0, "good bad")
    assert len(exact.tokens) == 9 and exact.tokens[-1] == tiny.tokenizer().eos_token_id


def test_a_text_beyond_the_context_leaves_no_count_of_its_tokens_in_the_log(caplog):
    words = tiny.tokenizer()
    words.model_max_length = 8
    transformers = logging.getLogger("transformers")
    transformers.addHandler(caplog.handler)
    try:
        encoder(words).example(0, "good " * 777)
        assert caplog.text == ""
        words("good " * 777)  # what it would say
        assert "777" in caplog.text
    finally:
        transformers.removeHandler(caplog.handler)


def test_a_model_without_a_start_token_begins_with_the_prefix():
    rules = encoder(tiny.tokenizer(start=None), template="", columns=(), labels=((),))
    assert rules.prefixes[0] and rules.example(0, "good").prefix == len(rules.prefixes[0])


def test_templates_name_every_column_and_values_are_not_read_as_templates():
    assert prefix_text("{a} of {b}:", ("a", "b"), ("x", "{c}")) == "x of {c}:"
    assert prefix_text("", (), ()) == "text:"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 7}, "max_tokens is 7 and the longest prefix has 6"),
        ({"template": "A review:"}, "same prefix"),
        ({"template": "{stars}"}, "names 'stars'"),
        ({"template": "{label"}, "no format string"),
        ({"template": "{label.real}"}, "a field is the name of a column"),
        ({"template": "{label!r}"}, "a field is the name of a column"),
        ({"words": tiny.tokenizer(end=None)}, "no end-of-sequence token"),
    ],
)
def test_prompts_that_cannot_work_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        encoder(**options)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_the_mean_over_an_examples_own_target(folders, kind):
    part = trainable(folders, kind, "full")
    for example in examples():
        tokens = torch.tensor([example.tokens])
        logits = part.model(tokens).logits[0].float()
        places = range(example.prefix, len(example.tokens))
        wanted = [-logits[at - 1].log_softmax(-1)[example.tokens[at]].item() for at in places]
        assert part.losses([example])[0].item() == pytest.approx(sum(wanted) / len(wanted), rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_a_loss_does_not_depend_on_who_stands_beside_it(folders, kind, method):
    part = trainable(folders, kind, method)
    rows = examples()
    together = part.losses(rows)
    for example, loss in zip(rows, together, strict=True):
        assert part.losses([example])[0].item() == pytest.approx(loss.item(), rel=1e-5)
    assert part.losses([rows[1], rows[2]])[0].item() == pytest.approx(together[1].item(), rel=1e-5)


def test_padding_is_masked_by_length_also_where_it_is_the_end_token(folders, tmp_path):
    same = tiny.save(tmp_path / "same", "llama", pad="</s>")
    part = Trainable(same, method="full", dtype="float32")
    ended, cut = Example([1, 4, 5, 2], 2), Example([1, 4, 5], 2)
    assert part.losses([ended])[0] != part.losses([cut])[0]


def test_an_example_of_prefix_alone_has_loss_zero_and_no_gradient(folders):
    part = trainable(folders, "llama", "lora")
    empty = Example([1, 4, 5], 3)
    assert part.losses([empty, examples()[0]])[0].item() == 0.0
    (found,) = per_example.engine("loop", part.module, part.losses, micro_batch_size=1).gradients([empty])
    assert all((gradient == 0).all() for gradient in found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_hooks_and_loop_and_plain_autograd_agree(folders, kind, method):
    part, rows = trainable(folders, kind, method), examples()
    with torch.no_grad():  # low-rank updates start at zero, where half of the gradients vanish
        for number, parameter in enumerate(part.parameters):
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)) * 0.05)
    found = {}
    for name in ("loop", "hooks"):
        engine = per_example.engine(name, part.module, part.losses, micro_batch_size=3)
        found[name] = [torch.cat(parts) for parts in zip(*engine.gradients(rows), strict=True)]
        engine.close()
    for row, example in enumerate(rows):
        part.module.zero_grad()
        part.losses([example])[0].backward()
        for parameter, loop, hooks in zip(part.parameters, found["loop"], found["hooks"], strict=True):
            assert loop.shape == (len(rows), *parameter.shape) == hooks.shape
            manual = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            assert torch.allclose(loop[row], manual, atol=1e-6) and torch.allclose(hooks[row], manual, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_what_was_trained_is_read_back_bit_for_bit(folders, kind, method, tmp_path):
    part = trainable(folders, kind, method, seed=1)
    with torch.no_grad():
        for parameter in part.parameters:
            parameter.add_(torch.rand(parameter.shape, generator=torch.Generator().manual_seed(2)))
    part.save(tmp_path)
    fresh = trainable(folders, kind, method, seed=3)
    assert any(not torch.equal(a, b) for a, b in zip(fresh.parameters, part.parameters, strict=True))
    fresh.restore(fresh.read(tmp_path))
    for a, b in zip(fresh.parameters, part.parameters, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["lora", "prompt-tuning"])
def test_peft_loads_the_adapter_and_computes_the_same(folders, kind, method, tmp_path):
    from peft import AutoPeftModelForCausalLM

    part = trainable(folders, kind, method)
    with torch.no_grad():
        for parameter in part.parameters:
            parameter.add_(torch.rand(parameter.shape, generator=torch.Generator().manual_seed(2)) * 0.3)
    part.save(tmp_path)
    loaded = AutoPeftModelForCausalLM.from_pretrained(tmp_path).eval()
    tokens = torch.tensor([[1, 4, 5, 7]])
    theirs = loaded(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits[:, -4:]
    model, first, count = part.for_generation()
    virtual = torch.arange(first, first + count)[None]
    ours = model(torch.cat([virtual, tokens], dim=1)).logits[:, -4:]
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_initial_values_follow_the_public_seed_alone(folders):
    torch.manual_seed(1)
    first = trainable(folders, "llama", "lora", seed=5).state()
    torch.manual_seed(2)
    second = trainable(folders, "llama", "lora", seed=5).state()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    prompt = trainable(folders, "llama", "prompt-tuning").parameters[0].detach()
    assert prompt.abs().max() <= 0.01 and prompt.std() == pytest.approx(0.01 / math.sqrt(3), rel=0.3)


def test_layers_that_do_not_exist_are_refused(folders):
    with pytest.raises(ConfigError, match="fits no layer"):
        Trainable(folders["llama"], method="lora", target_modules=["nowhere"])


def test_a_model_without_positions_or_kept_logits_gives_the_same_loss(folders):
    part = trainable(folders, "llama", "full")

    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = part.model

        def forward(self, input_ids, attention_mask):
            return self.inner(input_ids=input_ids, attention_mask=attention_mask)

    rows = examples()
    assert torch.allclose(PrefixLoss(Plain())(rows), part.losses(rows), atol=1e-6)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("method", ["lora", "prompt-tuning"])
def test_losses_through_a_frozen_head_are_those_of_the_whole_model(folders, kind, method):
    part, rows = trainable(folders, kind, method), examples()
    for parameter in part.parameters:
        parameter.data.normal_()
    whole = PrefixLoss(part.model, virtual=part._virtual if part.prompt is not None else None)
    assert frozen_head(part.model) is not None and part.losses._head is not None and whole._head is None
    assert torch.allclose(part.losses(rows), whole(rows), atol=1e-5)
    found, expected = (torch.autograd.grad(loss(rows).sum(), part.parameters) for loss in (part.losses, whole))
    assert all(torch.allclose(*pair, atol=1e-4) for pair in zip(found, expected, strict=True))


def test_a_head_that_trains_or_bends_its_logits_is_left_to_the_model(folders):
    assert frozen_head(trainable(folders, "llama", "full").model) is None
    part = trainable(folders, "llama", "prompt-tuning")
    plain = part.model.forward

    def bent(**inputs):
        found = plain(**inputs)
        found.logits = 0.1 * torch.tanh(found.logits / 0.1)
        return found

    part.model.forward = bent
    assert frozen_head(part.model) is None


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_inputs_of_low_rank_layers_stay_in_the_precision_of_the_products(folders, dtype):
    part = Trainable(folders["llama"], method="lora", dtype=dtype)
    casts = {module.cast_input_dtype_enabled for module in part.model.modules() if hasattr(module, "lora_A")}
    assert casts == {dtype == "float32"} and {p.dtype for p in part.parameters} == {torch.float32}
    exact = Trainable(folders["llama"], method="lora", dtype="float32")
    for one in (part, exact):
        for number, parameter in enumerate(one.parameters):
            parameter.data.normal_(0, 0.1, generator=torch.Generator().manual_seed(number))
    engine = per_example.checked_engine(
        "hooks", part.module, part.losses, examples(), micro_batch_size=8, rough=part.rough
    )
    (found,) = engine.gradients(examples())
    engine.close()
    wanted = torch.autograd.grad(exact.losses(examples())[1], exact.parameters)
    largest = max(float(gradient.abs().max()) for gradient in wanted)
    tolerance = 0.1 if dtype == "bfloat16" else 1e-4
    assert all(float((a[1] - b).abs().max()) < tolerance * largest for a, b in zip(found, wanted, strict=True))
