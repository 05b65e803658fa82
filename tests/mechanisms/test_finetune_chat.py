"""Conversations: written by a chat template, read back by its marks, tuned on and sampled as columns of messages."""

import json
import logging
import math
import pathlib
from datetime import datetime
from functools import cache

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value
from hypothesis import given
from hypothesis import strategies as st

import hf_dpsynth
from hf_dpsynth import columns
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.finetune.chat import ChatEncoder, ChatTemplate
from hf_dpsynth.mechanisms.finetune.trainable import Trainable
from hf_dpsynth.privacy.records import PrivateRecords
from tests.mechanisms import tiny
from tests.stubs import CANARY, files_with, synth

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
pytestmark = pytest.mark.usefixtures("one_thread")
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
DEFAULT_SYSTEM = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}"
    + CHATML
)
LLAMA_2 = (
    "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}"
    "{% else %}{% set rest = messages %}{% set system = false %}{% endif %}"
    "{% for m in rest %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if loop.index0 == 0 and system %}{% set c = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + m['content'] %}"
    "{% else %}{% set c = m['content'] %}{% endif %}"
    "{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + c.strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + c.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
LLAMA_3 = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' "
    "+ m['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
PLAIN = "{% for m in messages %}{{ '### ' + m['role'] + ':\n' + m['content'] + '\n\n' }}{% endfor %}{{ eos_token }}"
TEMPLATES = {"chatml": CHATML, "system": DEFAULT_SYSTEM, "llama-2": LLAMA_2, "llama-3": LLAMA_3, "plain": PLAIN}
SPECIALS = "<s> </s> <|im_start|> <|im_end|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|end|>".split()
TALK = [
    {"role": "user", "content": "good?"}, {"role": "assistant", "content": "no"},
    {"role": "user", "content": "bad?"}, {"role": "assistant", "content": "yes"},
]  # fmt: skip


def letters(template=CHATML, end="<|im_end|>", specials=SPECIALS):
    return tiny.letters(end=end, specials=specials, chat_template=template)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.save_letters(tmp_path_factory.mktemp("chat"), letters())


LETTERS = st.characters(codec="utf-8", exclude_characters="<>[]#|\x00")
CONTENT = st.text(LETTERS, min_size=1, max_size=12).map(str.strip)
ALTERNATING = st.tuples(st.booleans(), st.lists(CONTENT, min_size=1, max_size=6), CONTENT)


@cache
def chat_of(name):
    words = letters(TEMPLATES[name])
    return words, ChatTemplate(words)


@pytest.mark.parametrize("name", TEMPLATES)
@given(ALTERNATING)
def test_what_is_written_is_read_back_and_is_what_the_template_writes(name, drawn):
    with_system, contents, system = drawn
    talk = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(contents)]
    talk = [{"role": "system", "content": system}, *talk] if with_system else talk
    words, chat = chat_of(name)
    rendered = chat.render(talk)
    assert chat.parse(rendered) == talk
    if all(contents) and system:  # templates leave an empty system message out
        assert rendered == words.apply_chat_template(talk, tokenize=False)
    tokens = words(rendered, add_special_tokens=False)["input_ids"]
    assert chat.parse(words.decode(tokens, skip_special_tokens=False)) == talk
    written = columns.write_messages(talk)
    assert columns.read_messages(written) == (talk if any(turn["content"] for turn in talk) else [])


TODAY = "<|start_header_id|>system<|end_header_id|>\n\nToday Date: "
DATED = {
    "llama-3.2": (
        "{{- bos_token }}\n{%- if not date_string is defined %}\n    {%- if strftime_now is defined %}\n"
        "        {%- set date_string = strftime_now('%d %b %Y') %}\n    {%- else %}\n"
        "        {%- set date_string = '1 Jan 2000' %}\n    {%- endif %}\n{%- endif %}\n"
        "{{ '" + TODAY + "' + date_string + '<|eot_id|>' }}" + LLAMA_3.removeprefix("{{ bos_token }}"),
        "<s>" + TODAY + "26 Jul 2024<|eot_id|>",
    ),
    "in a macro": (
        "\n{% macro today() %}It is {{ strftime_now('%A, %Y-%m-%d %H:%M') }}.{% endmacro %}{{ today() }}" + CHATML,
        "\nIt is Friday, 2024-07-26 00:00.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DATED)
def test_a_template_that_writes_the_date_is_given_a_fixed_one(name, monkeypatch):
    from transformers.utils import chat_template_utils

    template, wanted = DATED[name]
    made = []
    for year in (2025, 2031):
        clock = type("Clock", (), {"now": staticmethod(lambda year=year: datetime(year, 1, 2, 3, 4))})
        monkeypatch.setattr(chat_template_utils, "datetime", clock)
        words = letters(template)
        assert str(year) in words.apply_chat_template(TALK, tokenize=False), "the template reads the clock"
        made.append((ChatEncoder(words, "", (), ((),), 400), ChatTemplate(words).render(TALK)))
    (first, rendered), (second, again) = made
    assert rendered == again and rendered.startswith(wanted) and first.chat.parse(rendered) == TALK
    written = columns.write_messages(TALK)
    assert first.example(0, written) == second.example(0, written)


@pytest.mark.parametrize(
    ("template", "end", "wanted"),
    [
        (CHATML, "<|im_end|>", "</s>"),
        (CHATML, "</s>", "</s>"),
        (LLAMA_2, "</s>", "<|im_start|>"),
        (LLAMA_3, "<|eot_id|>", "</s>"),
    ],
)
def test_the_end_of_a_conversation_is_no_token_of_a_message(template, end, wanted):
    words = letters(template, end)
    chat = ChatTemplate(words)
    assert words.convert_ids_to_tokens(chat.end) == wanted
    used = words(chat.render(TALK), add_special_tokens=False)["input_ids"]
    assert chat.end not in used
    encoder = ChatEncoder(words, "", (), ((),), 999)
    example = encoder.example(0, columns.write_messages(TALK))
    assert example.tokens[-1] == chat.end and example.tokens.count(chat.end) == 1
    assert columns.read_messages(encoder.decoded(example.tokens[example.prefix : -1])) == TALK


def test_a_long_conversation_is_cut_and_the_last_message_with_it():
    encoder = ChatEncoder(letters(), "", (), ((),), 90)
    long = [TALK[0], {"role": "assistant", "content": "x" * 999}]
    example = encoder.example(0, columns.write_messages(long))
    assert len(example.tokens) == 90 and example.tokens[-1] != encoder.end
    cut = columns.read_messages(encoder.decoded(example.tokens[example.prefix :]))
    assert cut[0] == TALK[0] and set(cut[1]["content"]) == {"x"} and len(cut) == 2


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nho<|im_end|>\nrest",
            [("user", "hi"), ("assistant", "ho")],
        ),
        ("<|im_start|>user\nhi<|im_e", [("user", "hi")]),
        ("<|im_start|>user\nhi<|im_end|>", [("user", "hi")]),
        ("<|im_start|>username\nhi<|im_end|>\n", []),
        ("<|im_start|>user\nhi<|im_end|>\n<|im_start|>tool\nx<|im_end|>\n", [("user", "hi")]),
        ("<|im_start|>user\na<s>b<|im_end|>\n", [("user", "ab")]),
        ("hello", []),
        ("", []),
    ],
)  # fmt: skip
def test_sampled_text_is_taken_apart_by_the_marks(text, wanted):
    found = ChatTemplate(letters()).parse(text)
    assert [(turn["role"], turn["content"]) for turn in found] == wanted


def test_text_that_is_no_conversation_is_one_message_of_a_user():
    encoder, words = ChatEncoder(letters(), "", (), ((),), 99), letters()
    feature = Features({"messages": List({"role": Value("string"), "content": Value("string")})})

    def row(text):
        written = encoder.decoded(words(text, add_special_tokens=False)["input_ids"])
        return columns.encode(feature, {"messages": written})["messages"]

    assert row("hello <|im_end|> you") == [{"role": "user", "content": "hello  you"}]
    for blank in ("", "<|im_end|>", "user\n<|im_end|>\n"):
        assert len(row(blank)) == 1 and set(row(blank)[0]) == {"role", "content"}


def test_a_conversation_without_a_form_has_no_gradient():
    encoder = ChatEncoder(letters(LLAMA_2), "", (), ((),), 99)
    odd = [{"role": "assistant", "content": CANARY}, {"role": "assistant", "content": "b"}]
    example = encoder.example(0, columns.write_messages(odd))
    assert len(example.tokens) == example.prefix


def test_what_has_no_form_is_said_of_the_template_alone(caplog):
    library = logging.getLogger("hf_dpsynth")
    library.addHandler(caplog.handler)
    try:
        ChatTemplate(letters(LLAMA_2))
    finally:
        library.removeHandler(caplog.handler)
    assert "has no form for" in caplog.text and "user user" in caplog.text
    assert "user system" in caplog.text  # the template would write it as a message of the assistant


@pytest.mark.parametrize(
    "turns",
    [
        [{"role": "tool", "content": "x"}], [{"role": None, "content": "x"}], [{"role": "user", "content": None}],
        [None], [{"role": "user", "content": "x"}, {"role": "admin", "content": "y"}], [],
        [{"role": "user", "content": " "}],
    ],
)  # fmt: skip
def test_a_record_with_other_roles_or_without_content_is_blank(turns):
    written = columns.write_messages(turns)
    assert written == "" and PrivateRecords([written, None]).by_unit(((),)) == []
    assert columns.write_messages(None) is None


@given(st.lists(st.tuples(st.sampled_from(columns.ROLES), st.text(max_size=9)), max_size=5), st.integers(0, 60))
def test_a_written_conversation_is_read_back_and_cut_at_any_place(turns, cut):
    talk = [{"role": role, "content": content} for role, content in turns]
    written = columns.write_messages(talk)
    assert columns.read_messages(written) == (talk if written else [])
    for found, turn in zip(columns.read_messages(written[:cut]), talk, strict=False):
        assert found["role"] == turn["role"] and turn["content"].startswith(found["content"])


FEATURES = Features({
    "messages": List({"role": Value("string"), "content": Value("string")}),
    "topic": ClassLabel(names=["film", "food"]), "user_id": Value("string"),
})  # fmt: skip


def talks(n=32):
    rows = [[*TALK[:2], {"role": "user", "content": f"{CANARY}{number}"}] for number in range(n)]
    rows[0], rows[1] = None, [{"role": "tool", "content": CANARY}]
    topics, users = [number % 2 for number in range(n)], [f"u{number % 16}" for number in range(n)]
    return Dataset.from_dict({"messages": rows, "topic": topics, "user_id": users}, features=FEATURES)


PARAMS = {
    "steps": 3, "batch_size": 4, "max_tokens": 120, "max_new_tokens": 40, "checkpoint_every": 2, "dtype": "float32",
}  # fmt: skip


def tune(model, mechanism="dp-lora", ds=None, **more):
    settings = {
        "epsilon": 1.0, "delta": 1e-2, "text_column": "messages", "num_rows": 5, "generator": model, "params": PARAMS,
    } | more  # fmt: skip
    return (talks() if ds is None else ds).synthesize(mechanism, **settings)


@pytest.mark.parametrize(
    ("mechanism", "more"),
    [
        ("dp-lora", {"label_column": "topic", "unit": "user_id"}),
        ("dp-full", {"label_column": "topic", "label_proportions": {"film": 0.4, "food": 0.6}}),
        ("dp-prompt-tuning", {"params": {**PARAMS, "num_decodes": 2}}),
    ],
)
def test_a_column_of_conversations_comes_back_as_one(model, mechanism, more):
    made = tune(model, mechanism, out="run", **more)
    kept = ["messages", *(["topic"] if "label_column" in more else [])]
    assert made.features == Features({name: FEATURES[name] for name in kept}) and len(made) == 5
    for turns in made["messages"]:
        assert turns and all(turn["role"] in columns.ROLES and isinstance(turn["content"], str) for turn in turns)
    assert hf_dpsynth.verify("run").ok and files_with("run", CANARY) == []
    again = tune(model, mechanism, out="run", **more)
    assert again[:] == made[:]
    further = again.privacy.more(3, seed=1)
    assert len(further) == 3 and further.features == made.features and all(further["messages"])


def test_a_model_that_learned_them_writes_conversations_of_several_turns(model):
    ds = Dataset.from_dict({"messages": [TALK] * 8}, features=Features({"messages": FEATURES["messages"]}))
    params = {
        "steps": 150, "batch_size": 4, "learning_rate": 0.01, "clip_norm": 100.0, "max_tokens": 140,
        "max_new_tokens": 130, "temperature": 0.01, "dtype": "float32", "checkpoint_every": 150, "engine": "hooks",
    }  # fmt: skip
    made = tune(model, "dp-full", ds=ds, epsilon=math.inf, delta=None, params=params, num_rows=2)
    assert made["messages"][:] == [TALK, TALK]


def test_records_of_the_commitment_are_whole_conversations(model):
    tune(model, out="run")
    other = talks().to_dict()
    other["messages"][5][0]["content"] = "other"
    with pytest.raises(hf_dpsynth.errors.ResumeMismatch, match="another data"):
        tune(model, ds=Dataset.from_dict(other, features=FEATURES), out="run")


def test_without_a_chat_template_nothing_is_spent(tmp_path):
    plain = tiny.save(tmp_path / "plain")
    with pytest.raises(ConfigError, match="no chat template"):
        tune(plain, out="run")
    assert not pathlib.Path("run/ledger.db").exists()


@pytest.mark.parametrize(
    ("template", "specials", "message"),
    [
        ("{% for m in messages %}{{ m['content'] }}{% endfor %}", SPECIALS, "marks no turns"),
        ("nothing", SPECIALS, "marks no turns"),
        (CHATML, ["<|im_start|>", "<|im_end|>"], "no special token that its chat template leaves"),
    ],
)
def test_templates_that_cannot_be_read_back_are_refused(template, specials, message):
    with pytest.raises(ConfigError, match=message):
        ChatTemplate(letters(template, specials=specials))


def test_other_mechanisms_refuse_conversations():
    ds = talks().remove_columns("user_id")
    with pytest.raises(ConfigError, match="holds conversations"):
        synth(ds, text_column="messages", label_column=None, labels=None)
    with pytest.raises(ConfigError, match="holds conversations"):
        ds.privatize("madlib", epsilon=1.0, text_column="messages")


@pytest.mark.parametrize(
    "feature",
    [
        List(Value("string")), List({"role": Value("string"), "content": Value("int64")}),
        List({"role": Value("string"), "content": Value("string"), "name": Value("string")}),
        {"role": Value("string"), "content": Value("string")},
    ],
)  # fmt: skip
def test_other_columns_are_no_conversations(feature):
    assert not columns.is_messages(feature) and columns.is_messages(FEATURES["messages"])
    with pytest.raises(ConfigError, match="not text"):
        columns.text_column(Features({"messages": feature}), "messages", messages=True)


def test_the_prefix_stands_before_the_conversation(model):
    part = Trainable(model, method="full", dtype="float32")
    encoder = ChatEncoder(part.tokenizer, "", ("topic",), (("film",), ("food",)), 120)
    example = encoder.example(1, columns.write_messages(TALK))
    assert part.tokenizer.decode(example.tokens[: example.prefix]) == "<s>topic: food\ntext:<|im_start|>"
    assert json.dumps(columns.read_messages(encoder.decoded(example.tokens[example.prefix : -1]))) == json.dumps(TALK)
