"""Overlaps are those of an independent search; what is cut leaves none; nothing private is kept, shown or written."""

import gc
import json
import pickle
import sys
import tracemalloc
import types

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, IterableDataset, Value
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dpsynth.contamination import ASSUMPTION, find_overlaps, index, scanning, windows, workers
from hf_dpsynth.contamination.corpora import Corpus
from hf_dpsynth.contamination.rules import Rules
from hf_dpsynth.errors import ConfigError, MissingExtra, PrivacyError
from tests.contamination import naive
from tests.stubs import CANARY, files_with

FEW = st.lists(st.sampled_from(["a", "b", "é", "\U0001f600"]), max_size=25).map(" ".join)
TEXTS = st.lists(st.none() | FEW, max_size=8)


def words(rng, count, kinds=5000, mark="w"):
    return [f"{mark}{number}" for number in rng.integers(0, kinds, count)]


def planted(size, copies=20, seed=0):
    """Private texts of 120 tokens, and public ones that each hold `size` tokens of one."""
    rng = np.random.default_rng(seed)
    private = [words(rng, 120) for _ in range(copies)]
    public = [[*words(rng, 40, mark="p"), *text[10 : 10 + size], *words(rng, 40, mark="p")] for text in private]
    return [" ".join(text) for text in private], [" ".join(text) for text in public]


def check_against_the_suffix_array(private, public, window):
    found = find_overlaps(private, public, window=window, short_texts="ignore")
    expected = naive.windows(private, public, window)
    assert found.num_windows == len(expected)
    assert [span[:3] for span in found.spans] == naive.spans(expected, window)
    assert found.num_documents == len({row for row, _ in expected})
    assert found.num_private == naive.private_found(private, public, window)
    for row, start, end, first, last in found.spans:
        assert public[row][first:last].split() == public[row].split()[start:end]


@given(private=TEXTS, public=TEXTS, window=st.integers(1, 7))
@settings(max_examples=200, deadline=None)
def test_windows_texts_and_spans_are_those_of_a_suffix_array(private, public, window):
    check_against_the_suffix_array(private, public, window)


@pytest.mark.parametrize("seed", range(30))
def test_long_windows_are_those_of_a_suffix_array(seed):
    rng = np.random.default_rng(seed)
    private = [" ".join(words(rng, int(rng.integers(0, 90)), kinds=2)) for _ in range(6)]
    public = []
    for _ in range(12):
        text = private[int(rng.integers(6))].split()
        start, size = rng.integers(0, 60, 2)
        public.append(" ".join([*words(rng, 5, 2), *text[start : start + size], *words(rng, 9, 2)]))
    check_against_the_suffix_array(private, public, int(rng.integers(8, 34)))


@pytest.mark.parametrize("bits", [0, 1, 3])
def test_windows_whose_hashes_collide_are_told_apart(monkeypatch, bits):
    whole = windows.window_hashes
    monkeypatch.setattr(windows, "window_hashes", lambda *given: whole(*given) & np.uint64(2**bits - 1))
    rng = np.random.default_rng(bits)
    private, public = ([" ".join(words(rng, 30, kinds=3)) for _ in range(9)] for _ in range(2))
    check_against_the_suffix_array(private, public, 4)


@pytest.mark.parametrize("window", [1, 2, 3, 13, 32, 50])
def test_the_rolling_hash_is_the_polynomial(window):
    rng = np.random.default_rng(window)
    values, factor = rng.integers(0, 2**64, 70, dtype=np.uint64), 0x9E3779B97F4A7C15
    made = windows.window_hashes(values, window, factor)
    assert len(made) == 70 - window + 1
    for start in (0, 11, 70 - window):
        expected = 0
        for value in values[start : start + window].tolist():
            expected = (expected * factor + value) % 2**64
        assert int(made[start]) == expected
    assert len(windows.window_hashes(values[: window - 1], window, factor)) == 0


def test_an_overlap_of_the_window_is_found_and_one_token_less_is_not():
    for size, documents in ((49, 0), (50, 20), (51, 20)):
        found = find_overlaps(*planted(size))
        assert (found.num_documents, found.num_private) == (documents, documents)
        assert found.num_windows == documents * (size - 49)
        assert [span[:3] for span in found.spans] == [(row, 40, 40 + size) for row in range(documents)]


def test_no_window_crosses_texts_of_either_side():
    rng = np.random.default_rng(3)
    text = words(rng, 100)
    halves, whole = [" ".join(text[:50]), " ".join(text[50:])], [" ".join(text)]
    assert find_overlaps(whole, halves, window=51).num_documents == 0
    assert find_overlaps(halves, whole, window=51).num_documents == 0
    assert find_overlaps(halves, whole, window=50).num_windows == 2


@given(private=TEXTS, public=TEXTS, window=st.integers(1, 6), short=st.sampled_from(["exact", "ignore", "ngram"]))
@settings(max_examples=200, deadline=None)
def test_a_cut_leaves_no_overlap_and_the_rest_as_it_was(private, public, window, short):
    rules = {"window": window + 1, "short_texts": short, "ngram": window}
    found = find_overlaps(private, public, mode="cut", **rules)
    left = found.dataset["text"][:]
    assert find_overlaps(private, left, **rules).num_documents == 0
    assert len(left) == len(public)
    touched = {span.row for span in found.spans}
    for row, (before, after) in enumerate(zip(public, left, strict=True)):
        if row in touched:
            rest = iter((before or "").split())
            assert all(token in rest for token in after.split())  # in their order
        else:
            assert after == before


def test_what_a_cut_joins_is_cut_too():
    text = [f"t{number}" for number in range(60)]
    public = " ".join([*text[:30], *text[5:55], *text[30:60], "end"])
    found = find_overlaps([" ".join(text)], [public], mode="cut")
    assert [span[:3] for span in found.spans] == [(0, 30, 80)]
    assert found.dataset["text"][:] == ["end"]


def test_what_a_cut_leaves_is_not_like_a_short_private_text_either():
    long = " ".join(f"t{number}" for number in range(10))
    sides = [long, "a b c d e"], [f"{long} a b c d x", "a b c d x y z"]
    rules = {"window": 10, "short_texts": "minhash", "similarity": 0.6}
    for processes in (1, 2):
        left = find_overlaps(*sides, mode="cut", num_proc=processes, **rules).dataset["text"][:]
        assert left == ["", "a b c d x y z"]
        assert find_overlaps(sides[0], left, **rules).num_documents == 0


def test_a_window_longer_than_memory_is_a_window_that_no_text_has():
    found = find_overlaps(["b c"], ["b c", "b"], window=10**12)
    assert (found.num_documents, found.num_windows) == (1, 0)


def test_a_cut_keeps_white_space_and_what_stands_around():
    private, public = ["x y z"], ["  a\tb \n x  y z \r\n c d\n", "x y z", "a  x y z \n"]
    found = find_overlaps(private, public, window=3, mode="cut")
    assert found.dataset["text"][:] == ["  a\tb \n c d\n", "", "a \n"]


def test_drop_leaves_out_whole_texts_and_keeps_columns():
    private, public = planted(50)
    rows = Dataset.from_dict(
        {"text": [*public, "kept", None], "site": [row % 2 for row in range(22)]},
        features=Features({"text": Value("large_string"), "site": ClassLabel(names=["a", "b"])}),
    )
    shuffled = rows.select([21, 20, *range(10)])
    found = find_overlaps(Dataset.from_dict({"text": private}), shuffled, mode="drop")
    assert found.num_documents == 10 and found.num_scanned == 12
    assert found.dataset.to_dict() == {"text": [None, "kept"], "site": [1, 0]}
    assert found.dataset.features == rows.features


def test_equal_results_have_different_fingerprints():
    private, public = planted(50)
    rows = Dataset.from_dict({"text": public})
    one, other = (find_overlaps(private, rows, mode="cut").dataset for _ in range(2))
    assert one.to_dict() == other.to_dict() and one._fingerprint != other._fingerprint
    assert not one.cache_files and one._indices is None


@pytest.mark.parametrize("mode", ["report", "drop", "cut"])
def test_processes_change_nothing(mode, monkeypatch):
    monkeypatch.setattr("hf_dpsynth.contamination.corpora._CHARACTERS", 2000)  # so that there are many batches
    private, public = planted(55)
    private += ["good day", "as one two three four"]
    public = [*public, "good day", None, "", "one two three four"]
    rules = {"mode": mode, "short_texts": "ngram", "ngram": 4}
    one, two = (find_overlaps(private, public, num_proc=count, **rules) for count in (None, 2))
    assert len(list(Corpus(public, None).batches())) > 6
    assert one.to_json() == two.to_json() and one.num_documents == 22
    assert mode == "report" or one.dataset.to_dict() == two.dataset.to_dict()


def test_a_worker_that_stops_is_an_error_without_text(monkeypatch):
    monkeypatch.setattr(workers.sys, "executable", "/bin/false")
    with pytest.raises(PrivacyError, match="a worker stopped with exit code 1") as caught:
        find_overlaps([CANARY] * 9, [CANARY] * 9, window=1, num_proc=2)
    assert CANARY not in str(caught.value)


def test_short_private_texts_are_found_whole_and_only_whole():
    private = ["good day", "", None, "  ", "good day", "one two three"]
    public = ["good  day\n", "a good day", "", None, "good", "unknown day", "one two three"]
    found = find_overlaps(private, public, window=4)
    assert [span[:3] for span in found.spans] == [(0, 0, 2), (6, 0, 3)]
    assert (found.num_short, found.num_private, found.num_windows) == (3, 3, 0)
    assert find_overlaps(private, public, window=4, short_texts="ignore").num_documents == 0


def test_windows_of_thirteen_tokens_of_short_texts():
    rng = np.random.default_rng(5)
    short, shorter, long = words(rng, 20), words(rng, 12), words(rng, 60)
    public = [
        ["p", *short[3:16], "p"], ["p", *short[3:15], "p"], shorter, [*shorter, "p"], ["p", *long[:30], "p"],
    ]  # fmt: skip
    private, public = ([" ".join(text) for text in side] for side in ((short, shorter, long), public))
    found = find_overlaps(private, public, short_texts="ngram")
    assert [span[:3] for span in found.spans] == [(0, 1, 14), (2, 0, 12)]
    assert (found.num_private, found.num_windows, found.num_short) == (2, 1, 2)
    assert find_overlaps(private, public, short_texts="ngram", ngram=14).num_documents == 1


def test_minhash_finds_short_texts_that_are_alike_and_no_others():
    rng = np.random.default_rng(6)
    private = [words(rng, 20, kinds=10**6) for _ in range(200)]
    alike = [[*text[:19], "other"] for text in private]  # 19 of 21 tokens
    unlike = [[*text[:17], "x", "y", "z"] for text in private]  # 17 of 23
    sides = [[" ".join(text) for text in side] for side in (private, [*alike, *unlike, ["x"]])]
    found = find_overlaps(*sides, short_texts="minhash", mode="drop")
    assert sorted({span.row for span in found.spans}) == list(range(200))
    assert found.num_private == 200 and len(found.dataset) == 201
    lower = find_overlaps(*sides, short_texts="minhash", similarity=0.7, num_proc=2)
    assert lower.num_documents == 400
    assert find_overlaps(["a b"] * 2, ["b a"], short_texts="minhash", similarity=1, mode="cut").dataset["text"][:] == [
        ""
    ]


def test_minhash_names_its_package_when_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "rensa", None)
    with pytest.raises(MissingExtra, match=r"hf-dpsynth\[contamination\]"):
        find_overlaps(["a"], ["a"], short_texts="minhash")


def test_a_token_is_what_split_gives():
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    assert scanning.TOKEN.findall(every) == every.split()


def stream(public, **more):
    return IterableDataset.from_generator(
        lambda: ({"text": text, "n": row} for row, text in enumerate(public)), **more
    )


def test_a_stream_stays_one_and_is_edited_when_it_is_read():
    private, public = planted(60)
    public = [*public, "kept", None]
    cut = find_overlaps(private, stream(public), mode="cut")
    listed = find_overlaps(private, public, mode="cut").dataset["text"][:]
    assert isinstance(cut.dataset, IterableDataset)
    for _ in range(2):
        assert [(row["text"], row["n"]) for row in cut.dataset] == list(zip(listed, range(22), strict=True))
    dropped = find_overlaps(private, stream(public), mode="drop").dataset
    assert [row["n"] for row in dropped] == [20, 21]
    typed = Features({"text": Value("string"), "n": Value("int64")})
    assert find_overlaps(private, stream(public, features=typed), mode="drop").dataset.features == typed


def test_a_stream_that_is_another_at_the_second_reading_is_noticed():
    private, public = planted(60)
    rows = list(public)
    found = find_overlaps(private, stream(rows), mode="cut").dataset
    rows[0] = "short now"
    with pytest.raises(ConfigError, match="row 0 of the public stream"):
        list(found)


def test_memory_follows_the_private_side_and_not_the_corpus():
    private, public = planted(50)
    rng = np.random.default_rng(8)
    other = [" ".join(words(rng, 200)) for _ in range(500)]  # all of words that private texts have

    def corpus(times):
        for _ in range(times):
            yield from (text + "" for text in other)
        yield from public

    peaks = []
    for times in (5, 50):  # 3 and 29 MB
        tracemalloc.start()
        found = find_overlaps(private, corpus(times))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert found.num_documents == 20 and found.num_scanned == 500 * times + 20
    size = sum(map(len, other)) * 50
    assert peaks[1] < 1.1 * peaks[0] and peaks[1] < 0.7 * size, (peaks, size)


def test_an_iterator_is_reported_on_and_not_cut():
    private, public = planted(50)
    assert find_overlaps(private, iter(public)).num_documents == 20
    assert find_overlaps(private, ({"text": text} for text in public)).num_documents == 20
    for mode in ("drop", "cut"):
        with pytest.raises(ConfigError, match="a generator gives them once"):
            find_overlaps(private, (text for text in public), mode=mode)


def test_private_texts_come_from_splits_files_and_other_columns(tmp_path):
    private, public = planted(50)
    splits = DatasetDict(train=Dataset.from_dict({"text": private[:9]}), test=Dataset.from_dict({"text": private[9:]}))
    assert find_overlaps(splits, public).num_private == 20
    (tmp_path / "a.txt").write_text("\n".join(private))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"body": text, "url": "u"}) + "\n" for text in public))
    found = find_overlaps(tmp_path / "a.txt", tmp_path / "b.jsonl", public_column="body", mode="drop")
    assert found.num_documents == 20 and found.dataset.column_names == ["body", "url"]
    numbers = Dataset.from_dict({"text": [12, 13]})
    assert find_overlaps(["12"], numbers, text_column=None, public_column="text").num_documents == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"window": 0}, "window is 0"),
        ({"window": 2.5}, "window is 2.5"),
        ({"mode": "erase"}, "report, drop, cut"),
        ({"short_texts": "fuzzy"}, "exact, ngram, minhash, ignore"),
        ({"short_texts": "ngram", "window": 13}, "ngram is 13 and window 13"),
        ({"similarity": float("nan")}, "similarity is nan"),
        ({"num_proc": 0}, "num_proc is 0"),
        ({"public": 5}, "the public texts are a int"),
        ({"public": [["a"]]}, "the public texts hold a list"),
        ({"public": [{"body": "a"}]}, "no column 'text'"),
        ({"private": [b"zqprivate"]}, "the private texts hold a bytes"),
        ({"public": DatasetDict(a=Dataset.from_dict({"text": []}), b=Dataset.from_dict({"text": []}))}, "splits a, b"),
    ],
)
def test_what_is_wrong_is_said_without_private_text(given, said):
    with pytest.raises(ConfigError, match=said) as caught:
        find_overlaps(**{"private": [f"{CANARY} a"], "public": ["a"], **given})
    assert CANARY not in str(caught.value)


def test_numbers_are_dropped_and_not_cut():
    rows = Dataset.from_dict({"text": [12, 13]})
    for corpus in (rows, rows.to_iterable_dataset()):
        with pytest.raises(ConfigError, match="holds numbers"):
            find_overlaps(["12"], corpus, public_column="text", mode="cut")
        kept = find_overlaps(["12"], corpus, public_column="text", mode="drop").dataset
        assert [row["text"] for row in kept] == [13]
    assert find_overlaps(["12"], [12, 13], mode="cut").dataset["text"][:] == ["", "13"]


def test_half_of_a_surrogate_pair_is_searched_and_no_data_set():
    private, public = [f"{CANARY} \ud800"], [f"{CANARY} \ud800", "c"]
    assert find_overlaps(private, public, num_proc=2).num_documents == 1
    with pytest.raises(ConfigError, match="surrogate pair") as caught:
        find_overlaps(private, public, mode="cut")
    assert CANARY not in str(caught.value) and caught.value.__suppress_context__


def test_empty_sides_are_no_overlap():
    for private, public in (([], ["a"]), (["a"], []), ([None, ""], [None, ""]), ([], [])):
        for mode in ("report", "drop", "cut"):
            found = find_overlaps(private, public, window=1, mode=mode)
            assert (found.num_documents, found.num_scanned, found.spans) == (0, len(public), ())
            assert mode == "report" or found.dataset.num_rows == len(public)


def test_nothing_private_is_shown_pickled_or_written(tmp_path, monkeypatch, capfd, caplog):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    caplog.set_level(0)
    private = Dataset.from_dict({"text": [f"{CANARY} {number} a b c" for number in range(50)]})
    public = Dataset.from_dict({"text": [*private["text"][:], "d"]})
    found = find_overlaps(private, public, window=5, mode="cut", num_proc=2)
    assert found.num_documents == 50
    seen = repr(found) + found.note + found.to_json() + repr(found.dataset) + "".join(capfd.readouterr()) + caplog.text
    assert CANARY not in seen and "50" not in repr(found)
    assert files_with(tmp_path, CANARY) == [] and not private.cache_files
    known = index.PrivateIndex(private["text"][:], Rules(window=5))
    assert repr(known) == "PrivateIndex(<redacted>)" and CANARY not in repr(known.for_workers())
    for one in (found, known):
        with pytest.raises(PrivacyError, match="cannot be pickled"):
            pickle.dumps(one)


def test_hashes_are_keyed_anew_at_each_call():
    texts = [" ".join(f"t{number}" for number in range(60))]
    one, other = (index.PrivateIndex(texts, Rules()).finders[0]._sorted for _ in range(2))
    assert len(one) == 11 and not set(one.tolist()) & set(other.tolist())


def test_the_index_is_not_kept():
    private, public = planted(50)
    found = find_overlaps(private, Dataset.from_dict({"text": public}), mode="cut")
    held, kinds = [found], set()
    seen = set()
    while held:
        one = held.pop()
        if id(one) in seen or isinstance(one, (type, types.ModuleType, types.FunctionType)):
            continue
        seen.add(id(one))
        kinds.add(type(one).__name__)
        held += gc.get_referents(one)
    assert "Overlaps" in kinds and not kinds & {"PrivateIndex", "Windows", "Whole", "PrivateTexts"}


def test_the_note_names_the_assumption_that_fails():
    for mode in ("report", "drop", "cut"):
        note = find_overlaps(["a"], ["a"], mode=mode).note
        assert "no guarantee covers them" in note
        assert (ASSUMPTION in note and "formal_dp_conditional" in note) == (mode != "report")
    assert ASSUMPTION == "public corpus chosen independently of the private data: false"
