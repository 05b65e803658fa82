"""Local models behind the rewriting mechanisms: what they may be, what they read, and rows that know no other."""

import logging
import pickle

import numpy as np
import pytest

from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.mechanisms.rewrite import fixed_shapes, local_model
from hf_dpsynth.mechanisms.rewrite.dp_mlm import DPMLM
from hf_dpsynth.mechanisms.rewrite.dp_prompt import DPPrompt
from hf_dpsynth.mechanisms.rewrite.local_model import LocalModel
from hf_dpsynth.models import CausalLM, Endpoint
from hf_dpsynth.privacy.keys import Key
from tests.mechanisms import tiny
from tests.stubs import WORDS

INF = float("inf")
TEXTS = [
    "good bad film",
    "story",
    "",
    "actor plot slow bright dull " * 4,
    "zq great <s> text awful fun",
    "A two one : neg",
]
PROMPT = "review text: {text} label:"


@pytest.fixture(params=["float32", "bfloat16"])
def precision(request, monkeypatch):
    monkeypatch.setattr(local_model, "best_dtype", lambda device: request.param)
    return request.param


@pytest.fixture
def exact(monkeypatch):
    monkeypatch.setattr(local_model, "best_dtype", lambda device: "float32")


def saved(kind, folder, **tokens):
    return tiny.save_masked(folder / kind) if kind == "bert" else tiny.save(folder / kind, kind, **tokens)


def small(mechanism):
    more = {"max_new_tokens": 20} if mechanism is DPPrompt else {}
    return mechanism(prompt_template=PROMPT, max_tokens=20, **more)


def streams(seed=0):
    return lambda row: Key.from_insecure_seed(seed).generator("row", row)


def alone(model, tokens, **more):
    """The logits of one row without any padding."""
    import torch

    with torch.inference_mode():
        logits = model.loaded.model(input_ids=torch.tensor([tokens]), **more).logits[0]
    return logits[:, : model.loaded.vocabulary].float().numpy()


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("start", ["<s>", None])
@pytest.mark.parametrize("template", [PROMPT, "{text} label:"])
def test_a_padded_row_has_the_logits_of_the_row_alone(kind, start, template, tmp_path, exact):
    model = LocalModel(saved(kind, tmp_path, start=start))
    before, after = model.prompt(template)
    assert (before[:1] == [model.loaded.tokenizer.bos_token_id]) == (start is not None)
    read = model.read(TEXTS, 20)
    seen = {}

    def draw(number, step, logits):
        seen[number, step] = logits.copy()
        return 5 + (number + step) % 3

    fixed_shapes.continued(model.loaded, (before, after), read, 20, 3, draw)
    for number, tokens in enumerate(read):
        drawn = [5 + (number + step) % 3 for step in range(3)]
        whole = alone(model, [*before, *tokens, *after, *drawn[:2]])
        for step in range(3):
            np.testing.assert_allclose(seen[number, step], whole[step - 3], atol=1e-5)
    found = 0
    for number, position, logits in fixed_shapes.followed(model.loaded, (before, after), read, 20):
        whole = alone(model, [*before, *read[number], *after, *read[number]])
        place = len(before) + len(read[number]) + len(after) + position - 1
        np.testing.assert_allclose(logits, whole[place], atol=1e-5)
        found += 1
    assert found == sum(map(len, read)) > 30


def test_a_masked_row_has_the_logits_of_the_row_alone(tmp_path, exact):
    import torch

    model = LocalModel(saved("bert", tmp_path))
    assert model.loaded.masked
    words = model.loaded.tokenizer
    start, end, mask = words.bos_token_id, words.eos_token_id, words.mask_token_id
    assert model.pair() == ([start], [end], [end])
    read = model.read(TEXTS, 20)
    for number, position, logits in fixed_shapes.masked(model.loaded, model.pair(), read, 20):
        text = read[number]
        hidden = [mask if place == position else token for place, token in enumerate(text)]
        kinds = torch.tensor([[0] * (len(text) + 2) + [1] * (len(text) + 1)])
        whole = alone(model, [start, *text, end, *hidden, end], token_type_ids=kinds)
        np.testing.assert_allclose(logits, whole[len(text) + 2 + position], atol=1e-5)


def scores(kind, model, texts):
    """The logits of each text, as bytes."""
    read, found = model.read(texts, 20), {}
    if kind == "bert":
        rows = fixed_shapes.masked(model.loaded, model.pair(), read, 20)
    elif kind == "followed":
        rows = fixed_shapes.followed(model.loaded, model.prompt(PROMPT), read, 20)
    else:
        rows = []

        def draw(number, step, logits):
            rows.append((number, step, logits.copy()))
            return 5 + step

        fixed_shapes.continued(model.loaded, model.prompt(PROMPT), read, 20, 3, draw)
    for number, _, logits in rows:
        found[number] = found.get(number, b"") + logits.tobytes()
    return [found.get(number, b"") for number in range(len(texts))]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "followed", "bert"])
def test_a_row_does_not_move_with_the_rows_beside_it(kind, tmp_path, precision):
    model = LocalModel(saved(kind.replace("followed", "llama"), tmp_path))
    whole = dict(zip(TEXTS, scores(kind, model, TEXTS), strict=True))
    chance = np.random.default_rng(0)
    for size in [1, 2, 3, 7, 16, 17, 33]:
        texts = [str(text) for text in chance.choice(TEXTS, size)]
        assert scores(kind, model, texts) == [whole[text] for text in texts]


def test_a_row_that_has_ended_moves_no_other(tmp_path, precision):
    model = LocalModel(saved("llama", tmp_path))
    (end,) = model.loaded.ends

    def run(ended):
        seen = {}

        def draw(number, step, logits):
            seen[number, step] = logits.tobytes()
            return end if number == ended and step == 1 else 5

        made = fixed_shapes.continued(model.loaded, model.prompt(PROMPT), model.read(TEXTS, 20), 20, 4, draw)
        return seen, made

    (first, made), (second, _) = run(0), run(1)
    assert made == [[5], *[[5] * 4] * 5]
    assert (0, 2) not in first and (0, 2) in second
    both = first.keys() & second.keys()
    assert len(both) == 6 * 4 - 4 and all(first[key] == second[key] for key in both)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "followed"])
def test_a_row_of_a_real_model_does_not_move_with_the_rows_beside_it(kind):
    model, chance = LocalModel("smollm2-135m"), np.random.default_rng(0)
    whole = dict(zip(TEXTS, scores(kind, model, TEXTS), strict=True))
    for size in [1, 5, 17]:
        texts = [str(text) for text in chance.choice(TEXTS, size)]
        assert scores(kind, model, texts) == [whole[text] for text in texts]


@pytest.mark.parametrize(("mechanism", "kind"), [(DPPrompt, "llama"), (DPMLM, "llama"), (DPMLM, "bert")])
def test_a_text_depends_on_its_stream_and_itself_alone(mechanism, kind, tmp_path):
    mechanism = small(mechanism)
    model = mechanism.load(saved(kind, tmp_path))
    epsilon = 6.0 * mechanism.draws
    whole = mechanism.privatize([*TEXTS, None], model, epsilon, streams())
    assert len(set(whole)) >= 5 and whole[-1] is None
    assert mechanism.privatize(TEXTS, model, epsilon, streams(1)) != whole[:-1]
    for start in range(0, 6, 2):
        part = mechanism.privatize(
            TEXTS[start : start + 2], model, epsilon, lambda row, start=start: streams()(start + row)
        )
        assert part == whole[start : start + 2]
    copy = pickle.loads(pickle.dumps(model))
    assert "loaded" not in vars(copy) and copy.id == model.id
    assert mechanism.privatize(TEXTS, copy, epsilon, streams()) == whole[:-1]


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_without_noise_each_token_is_the_likeliest_that_is_not_special(kind, tmp_path, exact):
    mechanism = small(DPMLM)
    model = mechanism.load(saved(kind, tmp_path))
    read = model.read(TEXTS, 20)
    rows = (
        fixed_shapes.masked(model.loaded, model.pair(), read, 20)
        if kind == "bert"
        else fixed_shapes.followed(model.loaded, model.prompt(PROMPT), read, 20)
    )
    want = [[0] * len(tokens) for tokens in read]
    for number, position, logits in rows:
        logits[list(model.loaded.specials)] = -INF
        want[number][position] = int(logits.argmax())
    made = mechanism.privatize(TEXTS, model, INF, streams())
    assert made == [model.write(tokens).strip() for tokens in want]


@pytest.mark.parametrize(("mechanism", "kind"), [(DPPrompt, "llama"), (DPMLM, "llama"), (DPMLM, "bert")])
def test_nothing_but_words_of_the_model_comes_out(mechanism, kind, tmp_path, capfd):
    mechanism = small(mechanism)
    model = mechanism.load(saved(kind, tmp_path))
    capfd.readouterr()
    odd = [
        "<s> </s> <pad> <mask> <unk>",
        "\ud800 \x00 zqsecret",
        "\U0001f600 \u05e9\u05dc\u05d5\u05dd",
        " \n\t ",
        "good " * 100_000,
    ]
    made = mechanism.privatize(odd * 6, model, 1e-6, streams())
    words = {word for text in made for word in text.split()}
    assert words <= {*tiny.VOCABULARY, *WORDS} - {"<s>", "</s>", "<pad>", "<mask>", "<unk>"}
    assert len(words) > 25, "at so small an epsilon every word comes out"
    if mechanism.name == "dp-mlm":
        assert all(len(text.split()) == 20 for text in made[4::5])


def test_special_tokens_in_a_text_are_letters_like_others(tmp_path):
    model = LocalModel(tiny.save_letters(tmp_path / "letters", tiny.letters(specials=["<|user|>"])))
    (tokens,) = model.read(["a<|user|></s>"], 99)
    assert not set(tokens) & model.loaded.specials and model.write(tokens) == "a<|user|></s>"
    assert model.write([*tokens, *sorted(model.loaded.specials)]) == "a<|user|></s>"


def test_the_length_of_a_text_is_in_no_log(tmp_path, capfd, caplog, monkeypatch):
    folder = saved("llama", tmp_path)
    model = LocalModel(folder)
    model.loaded.tokenizer.model_max_length = 8
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    with caplog.at_level(logging.DEBUG):
        model.read(["good " * 4321], 20)
        assert "4321" not in caplog.text + "".join(capfd.readouterr())
        model.loaded.tokenizer("good " * 4321)
    assert "4321" in caplog.text + "".join(capfd.readouterr()), "the tokenizer tells where it is not kept from it"


def test_the_prompt_stands_in_the_chat_template_of_a_model_that_has_one(tmp_path):
    chat = "{% for m in messages %}<|user|>{{ m['content'] }}</s>{% endfor %}<|bot|>"
    words = tiny.letters(specials=["<|user|>", "<|bot|>"], chat_template=chat)
    model = LocalModel(tiny.save_letters(tmp_path / "chat", words))
    before, after = model.prompt("say {text} now")
    user, bot, end = words.convert_tokens_to_ids(["<|user|>", "<|bot|>", "</s>"])
    assert before == [user, *words("say ")["input_ids"]]
    assert after == [*words(" now")["input_ids"], end, bot]
    twice = "{% for m in messages %}{{ m['content'] }}{{ m['content'] }}{% endfor %}"
    model = LocalModel(tiny.save_letters(tmp_path / "twice", tiny.letters(chat_template=twice)))
    with pytest.raises(ConfigError, match="does not write a text once"):
        model.prompt("say {text}")


@pytest.mark.parametrize("mechanism", [DPPrompt(), DPMLM()])
def test_what_is_no_local_model_is_refused(mechanism, tmp_path):
    for away in [
        "http://127.0.0.1:8000/v1#model",
        "https://token:zqkey@example.org/v1",
        Endpoint("model", base_url="http://127.0.0.1:8000/v1"),
        CausalLM("smollm2-135m"),
        7,
    ]:
        with pytest.raises(ConfigError, match="private text is sent nowhere") as error:
            mechanism.load(away)
        assert "zqkey" not in str(error.value)
    with pytest.raises(AssetError, match="lacks weights"):
        mechanism.load(tiny.save_masked(tmp_path / "headless", head=False))


def test_models_that_cannot_hold_the_longest_text_are_refused(tmp_path):
    llama, bert = saved("llama", tmp_path), saved("bert", tmp_path)
    assert DPPrompt(prompt_template="text: {text} label:", max_tokens=40, max_new_tokens=18).load(llama).id
    with pytest.raises(ConfigError, match=r"needs 65 tokens a row.*takes 64"):
        DPPrompt(prompt_template="text: {text} label:", max_tokens=40, max_new_tokens=20).load(llama)
    with pytest.raises(ConfigError, match="needs 65 tokens a row"):
        DPMLM(max_tokens=31).load(bert)
    assert DPMLM(max_tokens=30).load(bert).id
    with pytest.raises(ConfigError, match="needs a causal model"):
        DPPrompt(max_tokens=4, max_new_tokens=4).load(bert)
