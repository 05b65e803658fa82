import logging
import math

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from hf_dpsynth import devices
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.perplexity import Likelihoods, Perplexity, generator_perplexity, likelihoods, perplexity
from hf_dpsynth.models.causal_lm import CausalLM

WORDS = [f"w{number}" for number in range(20)]


class TinyModel:
    """A random Llama of two layers over twenty words; `.load()` gives model and tokenizer as `CausalLM` does."""

    def __init__(self, start="<s>", context=48):
        vocabulary = {word: number for number, word in enumerate(["<s>", "</s>", "<unk>", *WORDS])}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        ends = {"bos_token": start, "eos_token": "</s>"} if start else {}
        self.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", **ends)
        config = transformers.LlamaConfig(
            vocab_size=len(vocabulary), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=2, max_position_embeddings=context, bos_token_id=0, eos_token_id=1,
        )  # fmt: skip
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.model = transformers.LlamaForCausalLM(config).eval()
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter.mul_(4)

    def load(self):
        return self.model, self.tokenizer


@pytest.fixture(scope="module")
def tiny():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on so small a model threads only wait for each other
    yield TinyModel()
    torch.set_num_threads(threads)


def texts(count, longest=30, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, longest))) for _ in range(count)]


def one_by_one(text, tiny, start=True):
    """-log p of a text without batches, padding or the library's loss, in float64."""
    tokens = [0] * start + [WORDS.index(word) + 3 for word in text.split()]
    with torch.no_grad():
        logits = tiny.model.double()(input_ids=torch.tensor([tokens])).logits[0].numpy()
        tiny.model.float()
    shifted = logits - logits.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return -sum(logs[place, token] for place, token in enumerate(tokens[1:]))


@pytest.mark.parametrize(("batch_tokens", "start"), [(1, True), (64, False), (2048, True)])
def test_batches_and_padding_move_no_likelihood(tiny, batch_tokens, start):
    rows = texts(9)
    found = likelihoods(rows, *tiny.load(), batch_tokens=batch_tokens, add_start_token=start)
    assert found.negative_log == pytest.approx([one_by_one(row, tiny, start) for row in rows], rel=1e-4, abs=1e-4)
    assert list(found.num_tokens) == [len(row.split()) - (not start) for row in rows] and found.num_cut == 0


def test_a_model_without_preference_has_the_perplexity_of_its_vocabulary(tiny):
    flat = TinyModel()
    with torch.no_grad():
        flat.model.lm_head.weight.zero_()
    assert Perplexity().compute(predictions=texts(5), model=flat)["perplexity"] == pytest.approx(23, rel=1e-5)


def test_every_token_weighs_the_same_and_the_order_of_texts_does_not_matter(tiny):
    rows = texts(12)
    found = Perplexity().compute(predictions=rows, model=tiny)
    total, count = sum(one_by_one(row, tiny) for row in rows), sum(len(row.split()) for row in rows)
    assert found["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-4)
    assert found["num_tokens"] == count and found["uses_private_data"] is False and found["limits"] == []
    assert Perplexity().compute(predictions=rows[::-1], model=tiny)["perplexity"] == pytest.approx(found["perplexity"])
    twice = Perplexity().compute(predictions=[*rows, *rows], model=tiny)["perplexity"]
    assert twice == pytest.approx(found["perplexity"], rel=1e-6)


def test_real_text_is_scored_beside_and_makes_the_result_private(tiny):
    found = Perplexity().compute(predictions=texts(5), references=texts(30, seed=1), model=tiny)
    alone = Perplexity().compute(predictions=texts(30, seed=1), model=tiny)
    assert found["references_perplexity"] == pytest.approx(alone["perplexity"], rel=1e-6)
    assert found["uses_private_data"] is True and "test_perplexity" not in found
    public = Perplexity().compute(predictions=texts(5), references=texts(5), model=tiny, public_references=True)
    assert public["uses_private_data"] is False


def test_the_generators_test_perplexity_is_kept_apart(tiny):
    found = generator_perplexity(texts(9), tiny)
    assert found["test_perplexity"] == pytest.approx(
        Perplexity().compute(predictions=texts(9), model=tiny)["perplexity"]
    )
    assert found["uses_private_data"] is True and "perplexity" not in found
    assert generator_perplexity(texts(9), tiny, public=True)["uses_private_data"] is False


def test_empty_texts_are_left_out_and_said_to_be(tiny):
    rows = texts(4)
    found = Perplexity().compute(predictions=["", *rows, " "], model=tiny)
    assert found["perplexity"] == pytest.approx(Perplexity().compute(predictions=rows, model=tiny)["perplexity"])
    assert found["limits"] == ["2 of 6 texts of predictions have no token to score and were left out"]
    without = Perplexity(add_start_token=False).compute(predictions=["w1", "w1 w2"], model=tiny)
    assert without["num_tokens"] == 1 and "1 of 2" in without["limits"][0]


@pytest.mark.parametrize("rows", [["", ""], []])
def test_nothing_to_score_is_refused_and_never_nan(tiny, rows):
    with pytest.raises(ConfigError, match="predictions=: no text has a token"):
        Perplexity().compute(predictions=rows, model=tiny)


def test_long_texts_are_cut_at_the_limit_or_the_context_and_said_to_be(tiny):
    rows = [" ".join(WORDS * 5), "w1 w2"]
    found = Perplexity(max_tokens=10).compute(predictions=rows, model=tiny)
    assert found["num_tokens"] == 12 and "1 of 2 texts of predictions were cut at 10 tokens" in found["limits"][0]
    assert found["perplexity"] == pytest.approx(
        Perplexity().compute(predictions=[" ".join(WORDS[:10]), "w1 w2"], model=tiny)["perplexity"], rel=1e-6
    )
    assert Perplexity().compute(predictions=rows, model=tiny)["num_tokens"] == 47 + 2  # a context of 48 with the start


def test_a_model_without_start_token_is_refused_with_the_way_out():
    lost = TinyModel(start=None)
    with pytest.raises(ConfigError, match="add_start_token=False"):
        Perplexity().compute(predictions=["w1 w2"], model=lost)
    assert Perplexity(add_start_token=False).compute(predictions=["w1 w2"], model=lost)["num_tokens"] == 1


def test_a_broken_model_is_named_and_gives_no_nan():
    broken = TinyModel()
    with torch.no_grad():
        broken.model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(ConfigError, match="not finite"):
        Perplexity().compute(predictions=["w1 w2"], model=broken)


def test_bad_arguments_are_refused_without_showing_a_text(tiny):
    for wrong in ("zqprivate", [None], ["w1", 3]):
        with pytest.raises(ConfigError, match="references=") as refused:
            Perplexity().compute(predictions=["w1"], references=wrong, model=tiny)
        assert "zqprivate" not in str(refused.value)
    for options in ({"max_tokens": 0}, {"batch_tokens": float("nan")}):
        with pytest.raises(ConfigError, match=f"{next(iter(options))} is"):
            Perplexity(**options)
    with pytest.raises(ConfigError, match="model is a int"):
        Perplexity().compute(predictions=["w1"], model=3)
    with pytest.raises(ConfigError, match="no text has a token"):
        perplexity(*Likelihoods(np.zeros(0), np.zeros(0, dtype=int), 0)[:2])


@pytest.mark.slow
def test_the_real_model_prefers_english_to_the_same_words_shuffled():
    rows = [
        "The film is a quiet story about two old friends who meet again after the war.",
        "I did not expect to laugh so much, but the second half is very funny.",
        "The acting is good, although the plot makes little sense at the end.",
    ]
    rng = np.random.default_rng(0)
    shuffled = [" ".join(rng.permutation(row.split())) for row in rows]
    found = Perplexity().compute(predictions=rows, references=shuffled)
    assert 5 < found["perplexity"] < 200 and found["references_perplexity"] > 5 * found["perplexity"]


def test_the_length_of_a_long_private_text_is_not_logged(monkeypatch):
    tiny, seen = TinyModel(), []
    monkeypatch.setattr(tiny.tokenizer, "model_max_length", 48)
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())
    logging.getLogger("transformers").addHandler(handler)
    try:
        found = likelihoods(["w1 " * 60, "w2 w3"], *tiny.load())
        assert seen == [] and found.num_cut == 1
        tiny.tokenizer("w1 " * 60)  # the tokenizer would warn
        assert len(seen) == 1
    finally:
        logging.getLogger("transformers").removeHandler(handler)


def test_a_batch_shrinks_where_memory_is_short_and_the_figures_stay(monkeypatch):
    model, tokenizer = TinyModel().load()
    texts, calls = [" ".join(WORDS[: 3 + row % 5]) for row in range(12)], []
    model.register_forward_hook(lambda *_: calls.append(1))
    whole = likelihoods(texts, model, tokenizer)
    many = len(calls)
    monkeypatch.setattr(devices, "free_memory", lambda device=None: 1)
    single = likelihoods(texts, model, tokenizer)
    assert len(calls) - many > many
    assert np.allclose(single.negative_log, whole.negative_log, rtol=1e-5)


def test_a_generator_scores_each_text_alone_and_says_nothing_of_one_token(one_thread):
    tiny = TinyModel()  # whose layers the generator packs
    rows = ["", *texts(20), WORDS[0], " ".join(WORDS[:2])]
    words = [len(text.split()) for text in rows]
    expected = [math.exp(one_by_one(text, tiny) / n) for text, n in zip(rows, words, strict=True) if n >= 2]
    generator = CausalLM.of(*tiny.load())
    found = generator.perplexity(rows)
    assert [bool(np.isnan(value)) for value in found] == [number < 2 for number in words]
    assert np.allclose(found[~np.isnan(found)], expected, rtol=1e-3)
    assert generator.perplexity([]).shape == (0,)
