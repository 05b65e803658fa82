import logging
import math

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.models import pull
from hf_dpsynth.models.base import TextGenerator
from hf_dpsynth.models.causal_lm import CausalLM, _shared_prefix
from hf_dpsynth.models.packed_linear import pack_linear_layers
from hf_dpsynth.models.sampling import choose

WORDS = [f"w{number}" for number in range(40)]
SIZES = {"vocab_size": 44, "hidden_size": 32, "num_hidden_layers": 2, "max_position_embeddings": 96}
LLAMA = {"intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
ENDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
CONFIGURATIONS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES, **LLAMA, **ENDS),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=44, n_embd=32, n_layer=2, n_head=4, n_positions=96, **ENDS),
    "sliding window": lambda: transformers.MistralConfig(**SIZES, **LLAMA, **ENDS, sliding_window=8),
}
PROMPTS = [
    " ".join(WORDS[:12]),
    " ".join(WORDS[:9]) + " w30 w31 w32 w33",
    " ".join(WORDS[:9]) + " w20",
    " ".join(WORDS[:10]) + " w17 w3 w5 w35 w36",
]


@pytest.fixture(scope="module", params=list(CONFIGURATIONS))
def tiny(request, tmp_path_factory):
    """A random model of two layers with a tokenizer of words and no chat template."""
    folder = tmp_path_factory.mktemp("tiny")
    vocabulary = {word: number for number, word in enumerate(["<s>", "</s>", "<unk>", "<pad>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>"
    ).save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = transformers.AutoModelForCausalLM.from_config(CONFIGURATIONS[request.param]())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(4)
        model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def smollm2():
    return CausalLM("smollm2-135m", batch_size=4)


def plain_greedy(folder, prompt, tokens):
    """`transformers.generate` on one prompt without padding."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    inputs = tokenizer(prompt, return_tensors="pt")
    output = model.generate(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        max_new_tokens=tokens,
        do_sample=False,
        pad_token_id=1,
    )
    return tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_a_padded_batch_continues_each_prompt_as_it_would_alone(tiny, batch_size):
    texts = CausalLM(tiny, batch_size=batch_size, dtype="float32").generate(
        PROMPTS, max_new_tokens=24, temperature=0, seed=0
    )
    assert texts == [plain_greedy(tiny, prompt, 24) for prompt in PROMPTS]
    assert len(set(texts)) > 1


def test_the_same_seed_gives_the_same_texts_and_another_seed_others(tiny):
    model = CausalLM(tiny, batch_size=3, dtype="float32")
    first, again, other = (
        model.generate(PROMPTS, max_new_tokens=20, temperature=2.0, seed=seed) for seed in (5, 5, 6)
    )
    assert first == again
    assert first != other


def test_equal_prompts_get_different_texts(tiny):
    texts = CausalLM(tiny, dtype="float32").generate(["w1 w2"] * 4, max_new_tokens=20, temperature=2.0, seed=0)
    assert len(set(texts)) > 1


def test_generation_leaves_the_global_generator_alone(tiny):
    before = torch.get_rng_state()
    CausalLM(tiny, dtype="float32").generate(PROMPTS, max_new_tokens=4, temperature=1.0, seed=0)
    assert torch.equal(before, torch.get_rng_state())


def test_no_prompts_give_no_texts():
    assert CausalLM("no-such-model").generate([], max_new_tokens=1, temperature=0, seed=0) == []


def test_an_empty_prompt_starts_from_the_beginning_of_text(tiny):
    assert len(CausalLM(tiny).generate([""], max_new_tokens=3, temperature=0, seed=0)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": math.inf}, "temperature is inf"),
    ],
)
def test_arguments_out_of_range_are_refused_before_anything_is_loaded(arguments, message):
    with pytest.raises(ConfigError, match=message):
        CausalLM("no-such-model").generate(
            ["w1"], **({"max_new_tokens": 4, "temperature": 1.0, "seed": 0} | arguments)
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"top_p": 0.0}, "top_p is 0"),
        ({"top_p": math.nan}, "top_p is nan"),
        ({"dtype": "float64"}, "dtype is 'float64'"),
        ({"max_prompt_tokens": 0}, "max_prompt_tokens is 0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        CausalLM(**options)


def test_a_prompt_longer_than_the_context_is_named_by_number_alone(tiny):
    with pytest.raises(ConfigError, match=r"prompt 1 has 90 tokens; 76 fit") as caught:
        CausalLM(tiny).generate(["w1", "w7 " * 90], max_new_tokens=20, temperature=0, seed=0)
    assert "w7" not in str(caught.value)


def test_a_folder_that_holds_no_model_is_an_asset_error(tmp_path):
    with pytest.raises(AssetError, match="does not load as a causal language model"):
        CausalLM(str(tmp_path)).generate(["w1"], max_new_tokens=1, temperature=0, seed=0)


def test_neither_prompts_nor_texts_are_logged(tiny, caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        texts = CausalLM(tiny, batch_size=2).generate(PROMPTS, max_new_tokens=4, temperature=0, seed=0)
    shown = caplog.text + "".join(capfd.readouterr())
    assert not any(text in shown for text in [*PROMPTS, *texts] if text)


def test_a_shared_prefix_leaves_every_prompt_a_token():
    beginning = list(range(20))
    assert _shared_prefix([[*beginning, 50, 51], [*beginning, 60]]) == 20
    assert _shared_prefix([beginning, [*beginning, 60]]) == 19
    assert _shared_prefix([beginning, beginning]) == 19
    assert _shared_prefix([[1, 2, 3], [1, 2, 4]]) == 0
    assert _shared_prefix([beginning]) == 0


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_evenly_spaced_uniforms_draw_each_token_in_proportion_to_its_probability(temperature):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(700, generator=generator)
    draws = 20_000
    uniforms = (torch.arange(draws, dtype=torch.float64) + 0.5) / draws
    chosen = choose(logits.expand(draws, -1), uniforms, temperature=temperature)
    expected = torch.softmax(logits.double() / temperature, -1) * draws
    assert (torch.bincount(chosen, minlength=700) - expected).abs().max() < 1.5


@pytest.mark.parametrize("top_p", [1.0, 0.7])
@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_a_token_of_probability_zero_is_never_drawn(top_p, uniform):
    logits = torch.full((1, 1000), -math.inf)
    logits[0, 300:303] = torch.tensor([0.1, 0.0, -0.1])
    chosen = choose(logits, torch.tensor([uniform], dtype=torch.float64), temperature=1.0, top_p=top_p)
    assert 300 <= int(chosen) <= 302


def test_a_temperature_near_zero_takes_the_likeliest_token():
    logits = torch.tensor([[1.0, 3.0, 2.0]], dtype=torch.bfloat16)
    for temperature in (0, 1e-30, 1e-5):
        assert int(choose(logits, torch.tensor([0.999], dtype=torch.float64), temperature=temperature)) == 1


@pytest.mark.parametrize("scale", [0.01, 3.0])
def test_top_p_keeps_the_smallest_set_that_holds_the_share(scale):
    logits = scale * torch.randn(3000, generator=torch.Generator().manual_seed(1))
    warped = transformers.TopPLogitsWarper(0.6)(None, logits[None])[0]
    draws = 4_000
    uniforms = (torch.arange(draws, dtype=torch.float64) + 0.5) / draws
    chosen = choose(logits.expand(draws, -1), uniforms, temperature=1.0, top_p=0.6)
    counts = torch.bincount(chosen, minlength=3000)
    assert (counts - torch.softmax(warped.double(), -1) * draws).abs().max() < 2.5


def test_packed_weights_multiply_as_plain_ones():
    plain = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.Linear(40, 8, bias=False)).eval()
    inputs = torch.randn(5, 1, 24, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = plain(inputs)
        assert pack_linear_layers(plain) == 2
        torch.testing.assert_close(plain(inputs), expected)


def test_smollm2_loads_from_its_folder_alone_and_knows_its_template(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = pull("smollm2-135m")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.eos_token, tokenizer.eos_token_id, tokenizer.pad_token_id) == ("<|im_end|>", 2, 2)
    assert tokenizer.model_max_length == 8192
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, tokenize=False
    )
    assert chat.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    configuration = transformers.AutoConfig.from_pretrained(folder)
    assert not hasattr(configuration, "quantization_config")


def test_smollm2_answers_a_question(smollm2):
    texts = smollm2.generate(
        ["What is the capital of France? Answer in one word.", "Say hello."], max_new_tokens=12, temperature=0, seed=0
    )
    assert "Paris" in texts[0]
    assert not any("<|" in text for text in texts)
    assert isinstance(smollm2, TextGenerator)
    assert smollm2.id == "smollm2-135m"
