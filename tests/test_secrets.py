"""Where secrets come from: columns, functions, detectors. None is an error that a private row decides about."""

import sys
import types

import pytest
from datasets import Dataset

from hf_dpsynth import secrets
from hf_dpsynth.errors import ConfigError, MissingExtra
from hf_dpsynth.mechanisms.evolution.sec_pe import SecPE

TEXTS = ["Mail Ann@Example.org or +49 30 1234567.", "Call 555-123-4567, or (030) 123 4567", "nothing 2024 12", None]
SEC_PE = SecPE(p=1e-4, r=1e-3)


def found(asked, texts=TEXTS, **columns):
    data = Dataset.from_dict({"text": texts, **columns})
    return secrets.secrets_of(SEC_PE, asked, data, texts, ("text",))


def test_regexes_find_addresses_and_numbers_in_one_spelling():
    held = found("regex")
    assert held.rows[0] == [("email", "ann@example.org"), ("phone", "+49301234567")]
    assert held.rows[1] == [("phone", "0301234567"), ("phone", "5551234567")]
    assert held.rows[2:] == [[], []]
    assert held.assumptions == ("regex finds a secret in the same rows whatever its value: unknown",)
    more = secrets.RegexDetector().find(["DE89 3704 0044 0532 0130 00; 4111 1111 1111 1111; 10.0.0.1"])[0]
    assert {("iban", "de89370400440532013000"), ("card", "4111111111111111"), ("ip", "10.0.0.1")} <= set(more)


def test_a_hostile_text_takes_no_time():
    import time

    start = time.perf_counter()
    for text in ("a" * 20_000, "a." * 10_000, "1" * 20_000, "1-" * 10_000, "a@" * 10_000, "+1 (" * 5000):
        secrets.RegexDetector().find([text])
    assert time.perf_counter() - start < 8


def test_a_column_of_lists_is_taken_as_it_is():
    held = found("mine", mine=[["a", "a ", ""], None, [], [None, "b"]])
    assert held.rows == [[("other", "a")], [], [], [("other", "b")]] and held.assumptions == ()
    pairs = [[{"kind": "email", "value": "x"}], [{"kind": None, "value": "y"}], [], None]
    assert found("mine", mine=pairs).rows[:2] == [[("email", "x")], [("other", "y")]]


def test_what_a_set_holds_is_read_in_one_order():
    words = {f"word{number}" for number in range(50)}  # whose order changes with the process
    assert found(lambda text: words).rows[0] == [("other", word) for word in sorted(words)]


def test_a_kind_that_the_detector_never_finds_is_refused():
    data = Dataset.from_dict({"text": TEXTS})
    for asked in ("regex", secrets.RegexDetector({"plate": "[A-Z]{2}"})):
        named = SecPE(p={"other": 1e-4, "Email": 1e-5}, r=1e-3)
        with pytest.raises(ConfigError, match="kind 'Email'; secrets= finds"):
            secrets.secrets_of(named, asked, data, TEXTS, ("text",))
    known = SecPE(p={"other": 1e-4, "email": 1e-5}, r=1e-3)
    assert secrets.secrets_of(known, "regex", data, TEXTS, ("text",)).rows[0]
    assert secrets.secrets_of(named, lambda text: [("Email", text)], data, TEXTS[:3], ("text",)).rows[0]


def test_a_column_comes_before_a_detector_of_its_name():
    assert found("regex", regex=[["a"], [], [], []]).rows[0] == [("other", "a")]


def test_a_function_gets_each_text_and_its_misses_are_an_assumption():
    def shouted(text):
        return [word for word in text.split() if word.isupper()]

    held = found(shouted, ["A bad DAY", "none", None])
    assert held.rows == [[("other", "A"), ("other", "DAY")], [], []]
    assert "shouted finds a secret" in held.assumptions[0] and held.assumptions[0].endswith(": unknown")
    assert found(lambda text: None).rows == [[]] * 4
    assert found(lambda text: text).rows[2] == [("other", "nothing 2024 12")], "one text is one secret"


def test_a_detector_object_serves():
    class Mine:
        def find(self, texts):
            return [[("name", "ann")] if "Ann" in text else [] for text in texts]

    assert found(Mine()).rows == [[("name", "ann")], [], [], []]


@pytest.mark.parametrize(
    ("asked", "words"),
    [(None, "needs secrets="), ("prezidio", "neither a column nor a detector.*'mine'"), ("text", "lists no secrets"),
     ("number", "lists no secrets"), (3, "of type int")],
)  # fmt: skip
def test_what_lists_no_secrets_is_an_error(asked, words):
    with pytest.raises(ConfigError, match=words):
        found(asked, mine=[["a"]] * 4, number=[1] * 4)


def test_what_is_no_secret_is_an_error_that_shows_nothing():
    with pytest.raises(ConfigError, match="something else than strings") as caught:
        found(lambda text: [41])
    assert "41" not in str(caught.value)
    with pytest.raises(ConfigError, match="one list for each text"):
        found(type("Short", (), {"find": lambda self, texts: []})())
    with pytest.raises(ConfigError, match="no regular expression"):
        secrets.RegexDetector({"x": "("})


def test_a_secret_that_the_cut_splits_is_found_whole():
    text = "x" * (secrets.LONGEST - 5) + " ann@example.org"
    assert found("regex", [text]).rows == [[("email", "ann@example.org")]]


def test_spacy_finds_names_and_presidio_is_named_when_it_is_missing(monkeypatch):
    held = found("spacy", ["Barack Obama met Angela Merkel in Berlin last Tuesday.", "it was good"])
    assert {("PERSON", "barack obama"), ("PERSON", "angela merkel"), ("GPE", "berlin")} <= set(held.rows[0])
    assert held.rows[1] == [] and all(kind != "DATE" for kind, _ in held.rows[0])
    monkeypatch.setitem(sys.modules, "presidio_analyzer", None)
    with pytest.raises(MissingExtra, match=r"hf-dpsynth\[secrets\]"):
        found("presidio")


def test_presidio_is_asked_text_by_text(monkeypatch):
    class AnalyzerEngine:
        def analyze(self, text, language, entities):
            assert (language, entities) == ("en", None)
            at = text.find("Ann")
            return [types.SimpleNamespace(entity_type="PERSON", start=at, end=at + 3)] if at >= 0 else []

    monkeypatch.setitem(sys.modules, "presidio_analyzer", types.SimpleNamespace(AnalyzerEngine=AnalyzerEngine))
    assert found("presidio").rows == [[("PERSON", "ann")], [], [], []]
