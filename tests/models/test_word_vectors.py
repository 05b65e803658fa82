import pickle
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.models import word_vectors
from hf_dpsynth.models.word_vectors import WordVectors, load_vectors

WORDS = ["the", "of", "10", "2,000", "café"]
ROWS = np.arange(15, dtype=np.float32).reshape(5, 3) / 4


def glove_text(folder, words=WORDS, rows=ROWS, name="tiny.txt", header=""):
    lines = [f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, rows.tolist(), strict=True)]
    (folder / name).write_text(header + "".join(lines), encoding="utf-8")
    return folder / name


def word2vec_binary(folder, words=WORDS, rows=ROWS, end=b"\n"):
    body = [word.encode() + b" " + struct.pack("<3f", *row) + end for word, row in zip(words, rows, strict=True)]
    (folder / "tiny.bin").write_bytes(b"%d 3\n" % len(words) + b"".join(body))
    return folder / "tiny.bin"


def matrix_and_list(folder, listed):
    np.save(folder / "tiny.npy", ROWS)
    if listed == "txt":
        (folder / "tiny.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    else:
        pq.write_table(pa.table({"index": WORDS}), folder / "tiny_index.parquet")
    return folder / "tiny.npy"


MAKERS = {
    "GloVe text": glove_text,
    "word2vec text": lambda folder: glove_text(folder, name="tiny.vec", header="5 3\n"),
    "word2vec binary": word2vec_binary,
    "word2vec binary without line ends": lambda folder: word2vec_binary(folder, end=b""),
    "matrix and text": lambda folder: matrix_and_list(folder, "txt"),
    "matrix and Parquet": lambda folder: matrix_and_list(folder, "parquet"),
    "folder": lambda folder: matrix_and_list(folder, "parquet").parent,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_every_format_gives_the_same_vectors(tmp_path, kind):
    found = load_vectors(MAKERS[kind](tmp_path))
    assert found.words == tuple(WORDS)
    assert found.vectors.dtype == np.float32
    np.testing.assert_array_equal(found.vectors, ROWS)
    assert found.index("of") == 1 and found.index("missing") is None
    assert found.id.startswith("tiny.") and str(tmp_path) not in found.id


def test_unknown_words_and_numbers_stand_at_public_means(tmp_path):
    found = load_vectors(glove_text(tmp_path))
    np.testing.assert_allclose(found.unk, ROWS.mean(axis=0))
    np.testing.assert_allclose(found.number, ROWS[2:4].mean(axis=0))
    none = WordVectors(("a", "b"), ROWS[:2], "none")
    np.testing.assert_array_equal(none.number, none.unk)


@pytest.mark.parametrize("kind", MAKERS)
def test_only_the_most_frequent_words_are_kept(tmp_path, kind):
    found = load_vectors(MAKERS[kind](tmp_path), max_words=3)
    assert found.words == ("the", "of", "10")
    assert load_vectors(found, max_words=2).words == ("the", "of")
    assert load_vectors(found) is found


def test_words_equal_in_lower_case_count_once_by_the_first(tmp_path):
    found = load_vectors(glove_text(tmp_path, ["The", "the", "THE", "Of", "of"]), max_words=2)
    assert found.words == ("the", "of")
    np.testing.assert_array_equal(found.vectors, ROWS[[0, 3]])


def test_words_may_hold_spaces_as_in_glove_840b(tmp_path):
    assert (
        load_vectors(glove_text(tmp_path, [". . .", *WORDS[1:]], name="spaced.txt", header="x 1 2 3\n")).words[1]
        == ". . ."
    )


def test_one_dimension_and_the_zero_vector_are_fine(tmp_path):
    (tmp_path / "toy.txt").write_text("a -5.0\nb 0.0\nc 1.0\nd 6.0\n")
    found = load_vectors(tmp_path / "toy.txt")
    assert found.words == tuple("abcd") and found.vectors.shape == (4, 1)


def test_the_id_follows_the_content(tmp_path):
    first = load_vectors(glove_text(tmp_path)).id
    assert load_vectors(glove_text(tmp_path)).id == first
    assert load_vectors(glove_text(tmp_path, rows=ROWS + 1)).id != first


def test_vectors_travel_to_workers(tmp_path):
    found = load_vectors(glove_text(tmp_path))
    again = pickle.loads(pickle.dumps(found))
    assert again.words == found.words and again.id == found.id
    np.testing.assert_array_equal(again.vectors, found.vectors)
    assert "0.25" not in repr(found)


def test_a_short_name_is_pulled(tmp_path, monkeypatch):
    matrix_and_list(tmp_path, "parquet")
    monkeypatch.setattr("hf_dpsynth.models.catalog.pull", lambda name: tmp_path)
    assert load_vectors("glove-50d").id == "glove-50d"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("secret 1 2\nsecret2 1\n", "line 2: 1 numbers, not 2"),
        ("secret 1 2\nsecret2 1 nan\n", "line 2: a NaN"),
        ("secret 1 2\nsecret2 1 inf\n", "line 2: a NaN or infinite"),
        ("secret 1 2\nsecret2 1 two\n", "line 2: no UTF-8 word"),
        ("secret 1 2\n", "1 words"),
        ("", "is empty"),
        ("0 2\n", "0 words"),
        ("secret\nsecret2\n", "line 1: 0 numbers"),
        ("3 2\nsecret 1 2\nsecret2 3 4\n", "promises 3 words and ends after 2"),
        (b"secret 1 2\n\xff\xfe 1 2\n", "line 2: no UTF-8 word"),
    ],
)
def test_a_broken_text_file_is_named_with_the_line_alone(tmp_path, content, words):
    path = tmp_path / "broken.vec"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=words) as error:
        load_vectors(path)
    assert "broken.vec" in str(error.value) and "secret" not in str(error.value)


def test_a_binary_file_that_is_cut_short_is_refused(tmp_path):
    path = word2vec_binary(tmp_path)
    whole = path.read_bytes()
    for content, words in [
        (whole[:-9], "word 5: the file promises 5 words and ends in this one"),
        (whole[:20], "word 2: the file"),
        (b"", "is empty"),
        (b"no header", "does not begin"),
        (whole.replace(struct.pack("<f", 0.25), struct.pack("<f", np.nan), 1), "word 1: a NaN"),
    ]:
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=words):
            load_vectors(path)


def test_a_matrix_must_be_whole_and_as_long_as_its_list(tmp_path):
    path = matrix_and_list(tmp_path, "parquet")
    np.save(path, ROWS[:4])
    with pytest.raises(ConfigError, match=r"4 rows and tiny_index\.parquet 5 words"):
        load_vectors(path)
    matrix_and_list(tmp_path, "parquet")
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ConfigError, match="no complete"):
        load_vectors(path)
    np.save(path, np.array(["a", "b"], dtype=object), allow_pickle=True)
    with pytest.raises(ConfigError, match="no complete"):
        load_vectors(path)
    np.save(path, np.where(ROWS == 1, np.nan, ROWS))
    with pytest.raises(ConfigError, match=r"tiny\.npy, row 2: a NaN"):
        load_vectors(path)
    np.save(path, ROWS)
    (tmp_path / "tiny_index.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match="no complete Parquet"):
        load_vectors(path)
    np.save(tmp_path / "other.npy", ROWS)
    with pytest.raises(ConfigError, match="holds 2 files"):
        load_vectors(tmp_path)


def test_what_is_no_file_and_no_name_is_refused(tmp_path):
    for source in (tmp_path / "missing.txt", str(tmp_path / "missing"), "missing.bin"):
        with pytest.raises(ConfigError, match="is no file, folder or short name"):
            load_vectors(source)
    with pytest.raises(ConfigError, match="max_words"):
        load_vectors(glove_text(tmp_path), max_words=1)


def test_a_vocabulary_is_two_distinct_words_or_more():
    for words, rows, match in [
        (("a",), ROWS[:1], "has 1 words"),
        (("a", "a"), ROWS[:2], "more than once"),
        (("a", "b"), ROWS[:3], "need as many vectors"),
    ]:
        with pytest.raises(ConfigError, match=match):
            WordVectors(words, rows, "mine")


def test_numbers_are_digits_with_inner_marks():
    assert all(word_vectors.NUMBER.fullmatch(word) for word in ("7", "1,000", "3.5", "6-3", "1/2", "12:30"))
    assert not any(word_vectors.NUMBER.fullmatch(word) for word in ("1980s", "-1", "u2", "1.", ""))
