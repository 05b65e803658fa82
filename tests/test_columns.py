"""Columns: what may serve as text, as users and as public rows, and what is refused with a way out."""

import traceback

import pytest
from datasets import Dataset, Features, List, Value

from hf_dpsynth import columns
from hf_dpsynth.errors import ConfigError, PrivacyError
from tests.stubs import CANARY, reviews

TURN = {"role": Value("string"), "content": Value("string")}
TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


def talks(n=3):
    return Dataset.from_dict({"text": [TALK] * n}, features=Features({"text": List(TURN)}))


def texts(n=3):
    return Dataset.from_dict({"text": ["Hi there"] * n})


def public_rows(public, private):
    return columns.public_rows(public, private, "text", (), ((),))


@pytest.mark.parametrize("made", [texts, lambda: reviews(8).shuffle(seed=1)])
def test_the_private_data_is_refused_as_public_rows_in_every_format(made):
    ds = made()
    for same in (ds, ds.with_format("numpy"), ds.with_format("numpy").with_format(None)):
        with pytest.raises(ConfigError, match=r"private data itself.*Pass other text"):
            public_rows(same, ds)


def test_a_data_set_that_was_loaded_twice_is_the_private_data():
    ds = reviews(8)
    again = Dataset.from_dict(ds.to_dict())
    again._fingerprint = ds._fingerprint  # as a second load from a cache has it
    with pytest.raises(ConfigError, match="private data itself"):
        public_rows(again, ds)


def test_other_rows_of_one_table_are_other_rows():
    ds = reviews(8)
    assert len(public_rows(ds.select([6, 7]), ds.select([0, 3]))) == 2
    assert len(public_rows(ds.select(range(4)), ds.select(range(4, 8)))) == 4


@pytest.mark.parametrize(
    ("public", "private", "message"),
    [
        (["Hi there"], talks(), "list of texts; pass a Dataset that has conversations"),
        (texts(), talks(), "column 'text' of public= holds no conversations"),
        (talks(), texts(), "column 'text' of public= holds no text.*Pass text"),
    ],
)
def test_text_beside_conversations_is_refused_either_way(public, private, message):
    with pytest.raises(ConfigError, match=message):
        public_rows(public, private)


def test_public_rows_of_the_same_kind_are_read():
    assert public_rows(talks(1), talks()) == [((), "user 2 Hiassistant 5 Hello")]
    assert public_rows(["a film"], texts()) == public_rows(Dataset.from_dict({"text": ["a film"]}), texts())


@pytest.mark.parametrize("key", ["name", "weight"])
def test_conversations_with_a_further_key_are_refused_with_the_way_out(key):
    features = Features({"talk": List({**TURN, key: Value("string")})})
    with pytest.raises(ConfigError, match=r"'talk'.*keep only role and content") as caught:
        columns.text_column(features, "talk", messages=True)
    assert key in str(caught.value)


def test_another_list_is_no_conversation():
    for feature in (List(Value("string")), List({"role": Value("string"), "content": Value("int64")})):
        with pytest.raises(ConfigError, match="not text") as caught:
            columns.text_column(Features({"talk": feature}), "talk", messages=True)
        assert "keep only" not in str(caught.value)


def test_users_are_not_shown_and_not_pickled():
    ds = reviews(2).add_column("user_id", [CANARY, None])
    users = columns.read_users(ds, "user_id", ("text",))
    assert users == [CANARY, None] and CANARY not in repr(users) + str(users)
    with pytest.raises(PrivacyError):
        users.__reduce_ex__(4)


def test_a_frame_that_fails_shows_no_user(monkeypatch):
    ds = reviews(64).add_column("user_id", [f"zquser{number}" for number in range(64)])

    def fail(*arguments, **more):
        raise RuntimeError("no plan")

    monkeypatch.setattr("hf_dpsynth.mechanisms.planning.plan_synthesis", fail)
    with pytest.raises(RuntimeError) as caught:
        ds.synthesize("dp-lora", epsilon=1, delta=1e-3, text_column="text", unit="user_id", num_rows=2)
    frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True).stack
    assert any(frame.name == "synthesize" and "users" in frame.locals for frame in frames)
    for frame in frames[1:]:  # the first one is this test
        assert "zquser" not in str(frame.locals), frame.name
