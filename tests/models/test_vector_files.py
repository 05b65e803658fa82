import collections
import gzip
import os
import pathlib
import pickle
import re
import struct
import subprocess
import sys
import tracemalloc
import types

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.models.word_vectors import WordVectors, load_vectors

TEXT = b"the 1 2\nof 3 4\nand 5 6\nto 7 8\n"


def matrix(folder, rows, words=None):
    np.save(folder / "mine.npy", rows)
    words = [f"w{row}" for row in range(len(rows))] if words is None else words
    (folder / "mine.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return folder / "mine.npy"


def is_mapped(array):
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = array.base if isinstance(array, np.ndarray) else None
    return False


def refused(path, **options):
    with pytest.raises(ConfigError) as error:
        load_vectors(path, **options)
    assert "secret" not in str(error.value) and str(path.parent) not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"secret 1 2\nsecret2 3 4 5\n", "line 2: more than 2 numbers"),
        (b"secret 1 2\nsecret2 3 4\n 5 6\n", "word 3: it is empty"),
        (b"secret 1 2\nsecret2 1 1e60\n", "line 2: a NaN or infinite number"),
        (b"secret 1 2\nsecret2 1 -infinity\n", "line 2: a NaN or infinite number"),
        (b"secret 1 2\nSECRET 1 2\nsecret 3 4\n", "has 1 words; a vocabulary needs at least 2"),
        (b"1 2\nsecret 1 2\nsecret2 1 2\n", "promises 1 words and ends after 2"),
        (b"secret 1 2\nsecret2 1\n", "line 2: 1 numbers, not 2. Repair the file or fetch it again"),
        (b"secret\t1\t2\nsecret2\t1\t2\n", "line 1: 0 numbers, not a word and its numbers"),
    ],
)
def test_a_malformed_text_is_refused_with_its_place_and_no_word(tmp_path, content, words):
    for name, packed in (("mine.vec", content), ("mine.vec.gz", gzip.compress(content))):
        (tmp_path / name).write_bytes(packed)
        assert words in refused(tmp_path / name)


def test_a_text_packed_by_gzip_is_read_as_the_text_is(tmp_path):
    for name, content in (("glove.txt", TEXT), ("word2vec.vec", b"4 2\n" + TEXT)):
        (tmp_path / name).write_bytes(content)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
        plain, packed = load_vectors(tmp_path / name), load_vectors(tmp_path / f"{name}.gz", max_words=3)
        assert plain.words[:3] == packed.words and np.array_equal(plain.vectors[:3], packed.vectors)


def test_a_packed_file_that_is_cut_or_no_text_is_refused(tmp_path):
    whole = gzip.compress(np.random.default_rng(0).bytes(100) + TEXT)
    for content in (whole[:-6], whole[:60], b"secret", whole[:10] + b"\xff" * 50):
        (tmp_path / "mine.txt.gz").write_bytes(content)
        assert refused(tmp_path / "mine.txt.gz").startswith("mine.txt.gz")
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(TEXT)[:-6])
    assert "is no whole .gz file. Fetch it again" in refused(tmp_path / "cut.txt.gz")
    for name in ("mine.bin.gz", "mine.npy.gz", "mine.zip"):
        (tmp_path / name).write_bytes(gzip.compress(b"2 1\n"))
        assert "is packed; only texts are read as .gz. Unpack it" in refused(tmp_path / name)


def test_a_binary_file_is_as_long_as_it_promises(tmp_path):
    rows = b"".join(word + b" " + struct.pack("<2f", 1, 2) + b"\n" for word in (b"secret", b"secret2", b"secret3"))
    for content, words in [
        (b"2 2\n" + rows, "promises 2 words of width 2 and goes on"),
        (b"0 2\n", "has 0 words"),
        (b"3 0\n" + rows, "does not begin with the count and width"),
        (b"3 2\n" + rows.replace(b"secret2", b"\xff\xfe"), "word 2: not UTF-8"),
        (b"3 2\n" + rows.replace(b"secret2", b""), "word 2: it is empty"),
        (b"3 2\n" + rows[:-3], "word 3: the file promises 3 words and ends in this one"),
    ]:
        (tmp_path / "mine.bin").write_bytes(content)
        assert words in refused(tmp_path / "mine.bin")


def test_a_matrix_is_made_of_finite_rows_with_a_word_each(tmp_path):
    rows = np.ones((3, 2), dtype=np.float32)
    for array, listed, words in [
        (rows[:0], [], "mine"),
        (rows[:1], ["secret"], "has 1 words; a vocabulary needs at least 2"),
        (rows, ["secret", "", "secret2"], "mine.txt, word 2: it is empty"),
        (rows, ["secret", "secret2"], "3 rows and mine.txt 2 words; one is cut short. Fetch both again"),
        (rows[0], ["secret", "secret2"], "it must be a float matrix"),
        (rows.astype(int), ["secret"] * 3, "it must be a float matrix"),
        (rows.astype(np.float64) * 1e60, ["secret", "secret2", "secret3"], "row 1: a NaN or infinite"),
    ]:
        assert words in refused(matrix(tmp_path, array, listed))
    holed = np.vstack([rows, [[1, np.inf]]]).astype(np.float32)
    assert "row 4: a NaN" in refused(matrix(tmp_path, holed, ["secret", "Secret", "a", "b"]))
    long = np.ones((5000, 1), dtype=np.float32)
    long[4500] = np.nan
    assert "row 4501: a NaN" in refused(matrix(tmp_path, long))
    path = matrix(tmp_path, rows)
    (tmp_path / "mine.txt").write_bytes(b"a\nb\n\xff\n")
    assert "mine.txt, line 3: not UTF-8" in refused(path)
    (tmp_path / "mine.txt").unlink()
    assert "mine.npy has no list of words" in refused(path)
    with path.open("wb") as file:
        np.savez(file, rows)
    assert "mine.npy" in refused(path)


def test_lists_of_words_may_have_windows_line_ends(tmp_path):
    path = matrix(tmp_path, np.eye(3))
    (tmp_path / "mine.txt").write_bytes("\ufeffthe\r\nof\r\nand\r\n".encode())
    assert load_vectors(path).words == ("the", "of", "and")


def test_a_zero_vector_is_a_point_like_any_other(tmp_path):
    assert not load_vectors(matrix(tmp_path, np.zeros((3, 2), dtype=np.float32))).vectors.any()


def test_a_folder_holds_exactly_one_file_of_vectors(tmp_path):
    for name, content in {
        "LICENSE.txt": b"Public Domain\n",
        "requirements.txt": b"numpy\n",
        "empty.txt": b"",
        "pytorch_model.bin": b"PK\x03\x04",
        "config.json": b"{}",
    }.items():
        (tmp_path / name).write_bytes(content)
    message = refused(tmp_path)
    assert "holds 0 files of vectors;" in message and "What counts" in message and "Pass the path" in message
    folder = tmp_path / "vectors"
    folder.mkdir()
    for name, content in {
        "mine.txt": TEXT,
        "mine.vec": b"4 2\n" + TEXT,
        "mine.txt.gz": gzip.compress(TEXT),
        "mine.bin": b"4 1\n" + b"".join(b"%c \0\0\0\0" % letter for letter in b"abcd"),
    }.items():
        (folder / name).write_bytes(content)
        assert load_vectors(folder).id.startswith(f"{name}-") and len(load_vectors(folder)) == 4
        (folder / "other.vec").write_bytes(TEXT)
        assert f"folder 'vectors' holds 2 files of vectors ({name}, other.vec)" in refused(folder)
        (folder / "other.vec").unlink()
        (folder / name).unlink()
    matrix(folder, np.eye(3), ["w0", "a 1", "b 2"])
    assert load_vectors(folder).words == ("w0", "a 1", "b 2")
    matrix(folder, np.eye(3), ["a 1", "b 2", "w0"])
    assert load_vectors(folder).words == ("a 1", "b 2", "w0")


COUNTS = b"\xef\xbb\xbfto 10\nThe 5\nthe 5.5\nand\t7\nunseen 3\n"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("content", "order"), [(COUNTS, "the to and of"), (b"and\nto\nTO\nthe\n\n", "and to the of")])
def test_a_public_list_of_frequencies_orders_the_words_before_the_cut(tmp_path, content, order, packed):
    vectors = tmp_path / "mine.txt"
    vectors.write_bytes(TEXT)
    path = tmp_path / ("list.txt.gz" if packed else "list.txt")
    path.write_bytes(gzip.compress(content) if packed else content)
    row = {"the": [1, 2], "of": [3, 4], "and": [5, 6], "to": [7, 8]}
    for most in (2, 3, 4):
        found = load_vectors(vectors, max_words=most, frequencies=path)
        assert " ".join(found.words) == " ".join(order.split()[:most])
        assert found.vectors.tolist() == [row[word] for word in found.words]
    assert found.id != load_vectors(vectors).id


def test_words_that_a_list_lacks_come_last_in_the_order_of_the_file(tmp_path):
    rows = np.arange(40, dtype=np.float32).reshape(20, 2)
    (tmp_path / "list.txt").write_text("w15 1\nw7 2\n")
    for most in (2, 3, 5, 20):
        found = load_vectors(matrix(tmp_path, rows), max_words=most, frequencies=tmp_path / "list.txt")
        order = [7, 15, *(row for row in range(20) if row not in (7, 15))][:most]
        assert found.words == tuple(f"w{row}" for row in order)
        assert np.array_equal(found.vectors, rows[order]) and found.mapped is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no word"),
        (b"\n\n", "holds no word"),
        (b"the 3\nsecret\n", "line 2: no 'word count', which line 1 is"),
        (b"the 3\nsecret -1\n", "line 2: no 'word count'"),
        (b"the 3\nsecret nan\n", "line 2: no 'word count'"),
        (b"the\n\xff\n", "line 2: not UTF-8"),
        (b"word count\nthe 3\n", "name none of the words"),
        (b"secret\n", "name none of the words of mine.txt"),
    ],
)
def test_a_malformed_list_of_frequencies_is_refused(tmp_path, content, words):
    (tmp_path / "mine.txt").write_bytes(TEXT)
    (tmp_path / "list.txt").write_bytes(content)
    assert words in refused(tmp_path / "mine.txt", frequencies=tmp_path / "list.txt")
    missing = refused(tmp_path / "mine.txt", frequencies=tmp_path / "missing.txt")
    assert "missing.txt cannot be read" in missing


def test_frequencies_order_a_file_and_not_loaded_vectors(tmp_path):
    (tmp_path / "mine.txt").write_bytes(TEXT)
    with pytest.raises(ConfigError, match="orders a file before it is cut"):
        load_vectors(load_vectors(tmp_path / "mine.txt"), frequencies=tmp_path / "mine.txt")


def test_the_id_of_a_named_source_tells_its_cut_and_its_order(tmp_path, monkeypatch):
    matrix(tmp_path, np.eye(4))
    (tmp_path / "list").write_text("w2\nw1\n")
    monkeypatch.setattr("hf_dpsynth.models.catalog.pull", lambda name: tmp_path)
    assert load_vectors("glove-50d").id == load_vectors("glove-50d", max_words=10).id == "glove-50d"
    assert (
        load_vectors("glove-50d", max_words=3).id == load_vectors("glove-50d").most_frequent(3).id == "glove-50d[:3]"
    )
    ordered = {load_vectors("glove-50d", max_words=most, frequencies=tmp_path / "list").id for most in (2, 3)}
    assert len(ordered) == 2 and all(re.fullmatch(r"glove-50d\|ordered-[0-9a-f]{16}", name) for name in ordered)


def sources():
    from datasets import Dataset, DatasetDict

    texts = ["my secret text"]
    trained = types.SimpleNamespace(wv={"secret": np.ones(3)}, vector_size=3)
    ds = Dataset.from_dict({"text": texts})
    return {
        "Dataset": ds,
        "DatasetDict": DatasetDict(train=ds),
        "Column": ds["text"],
        "list": texts,
        "tuple": ("secret",),
        "set": {"secret"},
        "dict": {"secret": [1.0]},
        "Counter": collections.Counter(["secret"]),
        "SimpleNamespace": trained,
        "ndarray": np.ones((2, 3)),
        "bytes": b"secret",
        "NoneType": None,
        "Table": pa.table({"text": texts}),
    }


def test_what_could_have_been_made_from_private_texts_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_bytes(TEXT)
    for kind, source in sources().items():
        with pytest.raises(ConfigError, match=f"vectors is a {kind}; .* must come from a public file") as error:
            load_vectors(source)
        assert "secret" not in str(error.value) and "vectors='glove.6B.300d.txt'" in str(error.value)
        if source is not None:
            with pytest.raises(
                ConfigError, match=f"frequencies is a {kind}; .* public file.*frequencies='counts.txt'"
            ):
                load_vectors(tmp_path / "mine.txt", frequencies=source)


def test_privatize_refuses_a_vocabulary_of_its_own_texts():
    ds = sources()["Dataset"]
    with pytest.raises(ConfigError, match="vectors is a Column; "):
        ds.privatize("madlib", epsilon=1.0, vectors=ds["text"])


@pytest.mark.parametrize("text", ["my secret text " * 400, "my secret\0text " * 10])
def test_a_text_in_place_of_a_path_is_not_shown(text):
    with pytest.raises(ConfigError, match=r"vectors=a text of \d+ characters is no file") as error:
        load_vectors(text)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("most", [1, 2.5, True, "10", float("nan")])
def test_the_size_of_a_vocabulary_is_a_whole_number_from_2(tmp_path, most):
    (tmp_path / "mine.txt").write_bytes(TEXT)
    assert f"max_words is {most!r}; a vocabulary needs at least 2" in refused(tmp_path / "mine.txt", max_words=most)


def test_a_matrix_of_float32_stays_in_its_file(tmp_path):
    path = matrix(tmp_path, np.ones((400, 4000), dtype=np.float32))
    load_vectors(path, max_words=2)
    tracemalloc.start()
    found = load_vectors(path, max_words=300).most_frequent(200)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The finite check holds one byte a number of the part read, 1.2 MB at most; a copy would be 3.2 MB for 200 words.
    assert is_mapped(found.vectors) and found.mapped is not None and peak < 2e6
    assert found.vectors.shape == (200, 4000) and not found.vectors.flags.writeable


@pytest.mark.parametrize(
    "rows", [np.asfortranarray(np.eye(5, dtype=np.float32)), np.eye(5), np.eye(5, dtype=">f4"), np.eye(5, dtype="f2")]
)
def test_a_matrix_of_another_layout_is_converted(tmp_path, rows):
    found = load_vectors(matrix(tmp_path, rows), max_words=3)
    assert found.mapped is None and found.vectors.dtype == np.float32 and found.vectors.flags.c_contiguous
    assert np.array_equal(found.vectors, np.eye(5)[:3])


def test_words_equal_in_lower_case_leave_the_rows_of_a_matrix_with_their_words(tmp_path):
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    found = load_vectors(matrix(tmp_path, rows, ["The", "the", "of", "OF"]))
    assert found.words == ("the", "of") and found.vectors.tolist() == [[0, 1], [4, 5]] and found.mapped is None


def test_a_mapped_matrix_travels_to_workers_as_the_path_of_its_file(tmp_path):
    rows = np.random.default_rng(0).standard_normal((500, 400), dtype=np.float32)
    found = load_vectors(matrix(tmp_path, rows), max_words=450).most_frequent(400)
    sent = pickle.dumps(found)
    assert len(sent) < 20_000 < found.vectors.nbytes
    again = pickle.loads(sent)
    assert is_mapped(again.vectors) and np.array_equal(again.vectors, found.vectors)
    assert (again.words, again.id, again.mapped) == (found.words, found.id, found.mapped)
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).vectors.sum(dtype='f8'))"
    elsewhere = subprocess.run(
        [sys.executable, "-c", code], input=sent, capture_output=True, check=True, cwd=pathlib.Path.cwd().root
    )
    assert float(elsewhere.stdout) == found.vectors.sum(dtype="f8")
    assert str(tmp_path) not in repr(found)


def test_a_matrix_that_changed_since_is_sent_as_it_was_loaded_or_refused(tmp_path):
    rows = np.ones((3, 2), dtype=np.float32)
    found = load_vectors(matrix(tmp_path, rows))
    before = pickle.dumps(found)
    os.rename(tmp_path / "mine.npy", tmp_path / "old.npy")
    for replaced in (False, True):
        if replaced:
            np.save(tmp_path / "mine.npy", rows + 1)
        with pytest.raises(ConfigError, match=r"mine\.npy was changed or removed since it was loaded. Load it again"):
            pickle.loads(before)
        assert np.array_equal(pickle.loads(pickle.dumps(found)).vectors, rows)


def test_vectors_in_workers_do_not_change_what_is_released(tmp_path):
    from datasets import Dataset

    rows = np.random.default_rng(0).standard_normal((50, 8), dtype=np.float32)
    vectors = load_vectors(matrix(tmp_path, rows))
    assert vectors.mapped is not None
    ds = Dataset.from_dict({"text": ["w1 w2 w3", "w4 w5", "w6", "unknown w7"]})
    alone, shared = (
        ds.privatize("madlib", epsilon=2.0, vectors=vectors, num_proc=workers, insecure_noise_seed=3)["text"][:]
        for workers in (1, 2)
    )
    assert alone == shared


def test_a_vocabulary_in_memory_is_refused_for_numbers_that_float32_cannot_hold():
    with pytest.raises(ConfigError, match="row 2 holds a NaN or infinite"):
        WordVectors(("a", "b"), np.array([[1.0], [1e60]]), "mine")


def test_parquet_lists_may_be_large_strings(tmp_path):
    np.save(tmp_path / "mine.npy", np.eye(2))
    pq.write_table(pa.table({"n": [1, 2], "word": pa.array(["a", "b"], pa.large_string())}), tmp_path / "mine.parquet")
    assert load_vectors(tmp_path).words == ("a", "b")
