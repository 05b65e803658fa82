"""Privatized streams: one charge, the same text at each reading, nothing that leaves the process."""

import copy
import pickle

import numpy as np
import pytest
from datasets import (
    ClassLabel,
    Dataset,
    DatasetDict,
    Features,
    IterableDataset,
    IterableDatasetDict,
    Value,
    concatenate_datasets,
    interleave_datasets,
)
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader

import hf_dpsynth
from hf_dpsynth.errors import BudgetExceeded, ConfigError, PrivacyError
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.keys import Key
from tests.stubs import CANARY, reviews

WORDS = tuple(f"word{one}{other}" for one in "abcdefghij" for other in "abcdefghij")
VECTORS = WordVectors(WORDS, np.random.default_rng(1).standard_normal((len(WORDS), 8)), "small")
EPSILON = 2.0


def rows(n=24):
    rng = np.random.default_rng(2)
    texts = [" ".join([*rng.choice(WORDS, size=6), f"{CANARY}{i}"]) for i in range(n)]
    features = Features({"text": Value("string"), "label": ClassLabel(names=["neg", "pos"]), "id": Value("int64")})
    labels = [i % 2 for i in range(n)]
    return Dataset.from_dict({"text": texts, "label": labels, "id": list(range(n))}, features=features)


def private(ds, **more):
    return ds.privatize("madlib", **{"epsilon": EPSILON, "vectors": VECTORS, "text_column": "text"} | more)


def texts(stream):
    return [row["text"] for row in stream]


def by_id(stream):
    return {int(row["id"]): row["text"] for row in stream}


def read_by_workers(stream):
    return list(DataLoader(stream, batch_size=None, num_workers=2, multiprocessing_context="fork"))


def sharded(n=24, shards=4, **more):
    return private(rows(n).to_iterable_dataset(num_shards=shards), keep_columns=["id"], **more)


def unnamed(values, **kept):
    """A stream of unknown features."""

    def generate():
        for i, value in enumerate(values):
            yield {"text": value, **{name: column[i] for name, column in kept.items()}}

    return IterableDataset.from_generator(generate)


def test_a_plain_stream_comes_back_with_known_features_and_its_guarantee():
    source = rows().to_iterable_dataset()
    out = private(source, keep_columns=["label"])
    assert type(out) is IterableDataset and out.features == source.select_columns(["text", "label"]).features
    made = list(out)
    assert [set(row) for row in made] == [{"text", "label"}] * 24
    assert [row["label"] for row in made] == rows()["label"][:]
    assert all(set(row["text"].split()) <= set(WORDS) and len(row["text"].split()) == 7 for row in made)
    guarantee = private(rows(), keep_columns=["label"]).privacy.guarantee
    assert out.privacy.guarantee == guarantee and "copied in clear are not protected: label" in guarantee.statement()
    assert [charge.key for charge in out.privacy.charges] == ["privatize/train"]
    info = {name: value for name, value in vars(out.info).items() if value}
    assert info == {"features": out.features}
    assert len({private(source)._fingerprint for _ in range(3)}) == 3


def test_each_reading_gives_the_same_text_and_another_call_does_not():
    source = rows().to_iterable_dataset(num_shards=3)
    out = private(source, batch_size=5)
    first = texts(out)
    assert texts(out) == first == texts(copy.copy(out)) == texts(copy.deepcopy(out))
    assert [texts(out.take(2)), texts(out.skip(20))] == [first[:2], first[20:]]
    assert [one["text"] for one, _ in zip(out, out, strict=True)] == first, "two readings at once"
    assert texts(private(source)) != first


@pytest.mark.parametrize("shards", [1, 3])
def test_the_size_of_a_batch_changes_nothing(shards):
    source = rows().to_iterable_dataset(num_shards=shards)
    made = [texts(private(source, batch_size=size, insecure_noise_seed=1)) for size in (1, 2, 7, 8, 1000)]
    assert made == [made[0]] * 5
    whole = private(rows(), insecure_noise_seed=1)["text"][:]
    assert (made[0] == whole) == (shards == 1), "of one shard it is what the Dataset gives"


def test_equal_rows_of_two_shards_get_noise_of_their_own():
    same = Dataset.from_dict({"text": ["wordaa wordbb wordcc worddd wordee wordff"] * 8})
    made = texts(private(same.to_iterable_dataset(num_shards=4)))
    assert len(set(made)) == 8


def test_rows_are_read_when_they_are_asked_for():
    seen = []

    def generate():
        for i in range(100):
            seen.append(i)
            yield {"text": "wordaa wordbb"}

    out = private(IterableDataset.from_generator(generate), batch_size=10)
    assert seen == [] and len(out.privacy.charges) == 1
    reading = iter(out)
    next(reading)
    assert len(seen) == 10, "one batch"
    reading.close()


def test_an_epoch_changes_nothing_and_a_shuffle_only_the_order():
    out = sharded()
    first = texts(out)
    shuffled = out.shuffle(seed=3, buffer_size=8)
    assert texts(shuffled) != first and by_id(shuffled) == by_id(out)
    shuffled.set_epoch(2)
    assert by_id(shuffled) == by_id(out)
    out.set_epoch(5)
    assert texts(out) == first


def test_readings_resume_where_they_stopped():
    out = sharded(batch_size=4)
    whole = texts(out)
    for stop in (1, 6, 7, 23):
        reading = iter(out)
        begun = [next(reading)["text"] for _ in range(stop)]
        state = out.state_dict()
        out.load_state_dict(state)
        assert begun + texts(out) == whole
        out.load_state_dict(None)
    assert CANARY not in repr(state)


@pytest.mark.parametrize("shards", [1, 3, 4])
def test_workers_of_a_data_loader_give_each_row_once_with_the_same_text(shards):
    out = sharded(shards=shards)
    loaded = read_by_workers(out)
    assert len(loaded) == 24 and by_id(loaded) == by_id(out)


@pytest.mark.parametrize("strategy", ["auto", "shards", "examples"])
@pytest.mark.parametrize("shards", [3, 4])
def test_nodes_give_each_row_once_with_the_same_text(strategy, shards):
    out = sharded(shards=shards)
    parts = [split_dataset_by_node(out, rank, 2, strategy) for rank in range(2)]
    assert sum(len(texts(part)) for part in parts) == 24
    assert {**by_id(parts[0]), **by_id(parts[1])} == by_id(out)
    both = [read_by_workers(part) for part in parts]
    assert {**by_id(both[0]), **by_id(both[1])} == by_id(out)
    assert sum(map(len, both)) == 24


def test_parts_keep_the_text_of_their_rows():
    out = sharded()
    halves = [out.shard(2, 1), out.shard(2, 0)]
    assert by_id(concatenate_datasets(halves)) == by_id(out) and len(list(halves[0])) == 12
    assert by_id(out.reshard()) == by_id(out)
    assert by_id(out.map(lambda row: {"id": row["id"]})) == by_id(out)
    assert by_id(out.with_format("numpy")) == by_id(out)
    assert by_id(out.to_list()) == by_id(out)
    assert by_id(interleave_datasets([out, out.take(0)], stopping_strategy="all_exhausted_without_replacement")) == (
        by_id(out)
    )


def before(ds):
    """What may come before privatizing, with how many shards are left of four."""
    stream = ds.to_iterable_dataset(num_shards=4)
    return {
        "take": (stream.take(9), 1),
        "skip": (stream.skip(9), 1),
        "map": (stream.map(lambda row: {"text": row["text"] + " wordaa"}, features=stream.features), 4),
        "map with indices": (stream.map(lambda row, i: {"id": i}, with_indices=True, features=stream.features), 1),
        "map of batches": (stream.map(lambda batch: batch, batched=True, batch_size=5, features=stream.features), 1),
        "filter": (stream.filter(lambda row: row["id"] % 3 > 0), 4),
        "select": (stream.select_columns(["text", "id"]), 4),
        "rename": (stream.rename_column("label", "other"), 4),
        "torch format": (stream.with_format("torch"), 4),
        "concatenate": (concatenate_datasets([stream.take(3), stream.skip(3)]), 1),
        "interleave": (interleave_datasets([stream.take(3), stream.skip(3)]), 1),
        "shard": (stream.shard(2, 1), 2),
        "twice": (private(stream, keep_columns=["id"]), 4),
    }


@pytest.mark.parametrize("kind", before(rows()))
def test_what_may_come_before_keeps_its_rows_in_any_number_of_workers(kind):
    source, shards = before(rows())[kind]
    out = private(source, keep_columns=["id"])
    assert [row["id"] for row in out] == [int(row["id"]) for row in source]
    assert [len(text.split()) for text in texts(out)] == [len(text.split()) for text in texts(source)]
    assert out.num_shards == shards
    loaded = read_by_workers(out)
    assert sorted(texts(loaded)) == sorted(texts(out))


def after_epoch(stream):
    stream.set_epoch(1)
    return stream


def at_state(stream):
    stream.load_state_dict(stream.state_dict())
    return stream


UNSTABLE = {
    "shuffled": (lambda s: s.shuffle(seed=0), "was shuffled.*Shuffle what comes out"),
    "shuffled below": (
        lambda s: concatenate_datasets([s, s.shuffle(seed=0).filter(lambda row: True)]),
        "was shuffled",
    ),
    "shuffled in a buffer of one": (lambda s: s.shuffle(seed=0, buffer_size=1), "was shuffled"),
    "at random": (lambda s: interleave_datasets([s, s], probabilities=[0.5, 0.5]), "at random"),
    "repeated": (lambda s: s.repeat(2), "more than once"),
    "oversampled": (lambda s: interleave_datasets([s, s], stopping_strategy="all_exhausted"), "more than once"),
    "epoch": (after_epoch, r"set_epoch\(0\)"),
    "state": (at_state, "loaded state"),
    "node": (lambda s: split_dataset_by_node(s, 0, 2), "Split what comes out"),
}


@pytest.mark.parametrize("kind", UNSTABLE)
def test_a_source_without_a_stable_order_is_refused_and_nothing_is_spent(kind):
    spoil, words = UNSTABLE[kind]
    budget = hf_dpsynth.PrivacyBudget("b.db", epsilon=10, delta=0, unit="word", adjacency="replace-one")
    with pytest.raises(ConfigError, match=words) as caught:
        private(spoil(rows().to_iterable_dataset(num_shards=2)), budget=budget)
    assert CANARY not in str(caught.value) and budget.spent() == 0


def test_a_source_of_an_unknown_kind_is_refused():
    class Unknown(type(rows().to_iterable_dataset()._ex_iterable)):
        pass

    source = rows().to_iterable_dataset()
    source._ex_iterable = Unknown(source._ex_iterable.generate_tables_fn, source._ex_iterable.kwargs)
    with pytest.raises(ConfigError, match="Unknown, whose order is unknown"):
        private(source)


def test_nothing_that_holds_the_key_can_be_pickled(monkeypatch):
    secret = []
    real = Key.derive
    monkeypatch.setattr(Key, "derive", lambda self, *labels: secret.append(real(self, *labels)) or secret[-1])
    out = private(rows().to_iterable_dataset(num_shards=2))
    texts(out)
    for held in (out, out._ex_iterable, out.take(1), out.map(lambda row: row), IterableDatasetDict(train=out)):
        with pytest.raises(PrivacyError, match="cannot be pickled"):
            pickle.dumps(held)
    with pytest.raises(PrivacyError, match=r"\.to_parquet\(\)"):
        Dataset.from_generator(out.__iter__)
    with pytest.raises(PrivacyError):
        list(DataLoader(out, batch_size=None, num_workers=1, multiprocessing_context="spawn"))
    shown = repr(vars(out)) + repr(vars(out._ex_iterable)) + repr(out) + repr(out.state_dict())
    assert CANARY not in shown and secret and all(key.reveal().hex() not in shown for key in secret)
    assert not any(repr(key.reveal())[2:-1] in shown for key in secret)


def test_the_source_is_in_no_public_attribute():
    out = private(rows().to_iterable_dataset())
    texts(out)
    for held in (out, out._ex_iterable):
        assert [name for name in vars(held) if not name.startswith("_")] == []
    assert not hasattr(out._ex_iterable, "ex_iterable") and not hasattr(out._ex_iterable, "kwargs")


def test_derived_streams_inherit_nothing():
    out = sharded()
    assert out.privacy is not None
    derived = [
        out.map(lambda row: row), out.take(1), out.skip(1), out.shuffle(seed=0), out.filter(lambda row: True),
        out.shard(2, 0), out.select_columns(["text"]), out.with_format("numpy"), copy.copy(out),
        split_dataset_by_node(out, 0, 2), concatenate_datasets([out]),
    ]  # fmt: skip
    assert [stream.privacy for stream in derived[:-1]] == [None] * (len(derived) - 1)


def test_each_split_is_released_once_under_one_ledger():
    both = IterableDatasetDict(train=rows().to_iterable_dataset(), test=rows(6).to_iterable_dataset(num_shards=2))
    out = private(both, keep_columns="label", insecure_noise_seed=1)
    assert type(out) is IterableDatasetDict and {name: len(list(split)) for name, split in out.items()} == {
        "train": 24,
        "test": 6,
    }
    assert out.privacy is out["train"].privacy is out["test"].privacy is not None
    assert [charge.key for charge in out.privacy.charges] == ["privatize/train", "privatize/test"]
    same = DatasetDict(train=rows(), test=rows(6))
    assert out.privacy.plan == private(same, keep_columns="label", insecure_noise_seed=1).privacy.plan
    assert texts(out["train"])[:3] != texts(out["test"])[:3], "splits have noise of their own"
    out["train"] = out["train"].take(3)
    assert out.privacy is None and out["test"].privacy is not None


def test_a_dict_of_streams_that_do_not_fit_is_refused():
    stream = rows().to_iterable_dataset()
    for splits, words in [
        ({}, "IterableDatasetDict is empty"),
        ({"train": stream, "test": stream.remove_columns("id")}, "other columns"),
        ({"train": stream, "test": rows(3)}, "split 'test' is a Dataset"),
        ({"a-b": stream}, "no split name"),
    ]:
        with pytest.raises(ConfigError, match=words):
            private(IterableDatasetDict(splits))


def test_the_budget_is_charged_at_the_call_and_refuses_the_next():
    budget = hf_dpsynth.PrivacyBudget("b.db", epsilon=3, delta=0, unit="word", adjacency="replace-one")
    out = private(rows().to_iterable_dataset(), budget=budget)
    assert budget.spent() == EPSILON, "before any row is read"
    texts(out), texts(out)
    assert budget.spent() == EPSILON
    with pytest.raises(BudgetExceeded):
        private(rows().to_iterable_dataset(), budget=budget)
    assert budget.spent() == EPSILON


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"out": "run"}, "out= cannot hold a stream.*or privatize a Dataset"),
        ({"num_proc": 2}, "num_proc is 2.*DataLoader"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"unit": "id"}, "unit='id'"),
        ({"epsilon": -1}, "epsilon"),
        ({"text_column": "label"}, "label"),
        ({"text_column": "nope"}, "nope"),
        ({"keep_columns": ["nope"]}, "nope"),
        ({"keep_columns": ["text"]}, "text"),
        ({"budget": 3}, "budget"),
    ],
)
def test_a_bad_argument_is_refused_by_name(change, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        private(rows().to_iterable_dataset(), **change)
    assert list(tmp_path.iterdir()) == []


def test_one_process_may_be_asked_for():
    assert len(texts(private(rows().to_iterable_dataset(), num_proc=1, unit="word"))) == 24


def test_an_insecure_seed_marks_the_release():
    out = private(rows().to_iterable_dataset(), insecure_noise_seed=1)
    assert out.privacy.statement().startswith("NOT PRIVATE")


def test_streams_of_unknown_features_need_a_named_column():
    stream = unnamed(["wordaa wordbb"])
    assert stream.features is None
    with pytest.raises(ConfigError, match=r"text_column=.*\.cast\(Features"):
        private(stream, text_column=None)
    out = private(stream)
    assert out.features == Features({"text": Value("string")}) and len(list(out)) == 1
    kept = private(unnamed(["wordaa", "wordbb"], stars=[1, None], other=[0, 0]), keep_columns=["stars"])
    assert kept.features is None and [sorted(row) for row in kept] == [["stars", "text"]] * 2
    assert [row["stars"] for row in kept] == [1, None]


def test_numbers_and_null_are_text_where_features_are_unknown():
    out = texts(private(unnamed(["wordaa", None, "", 12, 3.5, np.int64(7), np.float32(0.5)])))
    assert out[1] is None and out[2] == "" and all(set(text.split()) <= set(WORDS) for text in out if text)
    assert [bool(text) for text in out] == [True, False, False, True, True, True, True]


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("wrong", [["wordaa", CANARY], {"a": CANARY}, True, b"zqprivate", Key])
def test_reading_stops_at_a_row_whose_text_is_no_text(wrong, size):
    out = private(unnamed(["wordaa", "wordbb", wrong, "wordcc"]), batch_size=size)
    for _ in range(2):
        reading, read = iter(out), []
        with pytest.raises(ConfigError, match="column 'text' of a row of the stream holds neither") as caught:
            for row in reading:
                read.append(row)
        assert len(read) == 2 and CANARY not in str(caught.value)


@pytest.mark.parametrize("missing", ["text", "label"])
def test_reading_stops_at_a_row_without_a_named_column(missing):
    def generate():
        yield {"text": "wordaa", "label": 0}
        yield {name: CANARY for name in ("text", "label") if name != missing}

    out = private(IterableDataset.from_generator(generate), keep_columns=["label"])
    reading = iter(out)
    next(reading)
    with pytest.raises(ConfigError, match=f"has no column '{missing}'") as caught:
        next(reading)
    assert CANARY not in str(caught.value)


def test_a_record_without_rows_says_so(tmp_path):
    out = private(rows().to_iterable_dataset())
    release = out.privacy
    assert release.rows == () and "no file of them can be matched" in release.statement()
    assert "Rows are made when they are read" in release.card() and "24 rows" not in release.card()
    assert "size_categories" not in release.card()
    assert release.to_json()["charges"][0]["key"] == "privatize/train"
    release.save("record")
    found = hf_dpsynth.verify("record")
    assert found.ok and any("output.files lists none" in line for line in found.not_checkable)
    loaded = hf_dpsynth.load_privacy("record")
    assert loaded.rows == () and loaded.guarantee == release.guarantee and loaded.notes == release.notes
    (tmp_path / "record" / "release.json").unlink()
    assert hf_dpsynth.load_privacy("record").rows == () and hf_dpsynth.verify("record").ok
    out.to_parquet("rows/train.parquet")
    with pytest.raises(ConfigError, match="no digests to match them with"):
        release.save("rows")
    Dataset.from_list(list(out)).to_parquet("record/train.parquet")
    assert "not listed" in str(hf_dpsynth.verify("record").findings)


def test_synthesize_still_refuses_streams():
    with pytest.raises(ConfigError, match="IterableDataset is not supported"):
        rows().to_iterable_dataset().synthesize("aug-pe", epsilon=1.0, delta=1e-5, num_rows=4)


def test_no_private_word_comes_out_and_nothing_is_written(tmp_path):
    out = private(reviews().to_iterable_dataset(num_shards=2), keep_columns=["label"])
    assert len(texts(out)) == 60 and list(tmp_path.iterdir()) == []
    assert not any(CANARY in text for text in texts(out)) and CANARY not in repr(out) + out.privacy.card()
