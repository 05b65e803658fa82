"""Released words are found between the gaps of their originals, whatever marks they hold themselves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dpsynth.audit.pairs import beside
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word.text import read, write

WORDS = ("good", "bad", "'s", ",", "...", "u.s.", "a-b", "1.5", "n't", "don")
KNOWN = {word: row for row, word in enumerate(WORDS)}


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab .,-'!1", max_size=30), st.data())
def test_a_text_of_released_words_is_read_as_words_that_write_it(text, data):
    words, gaps = read(text, KNOWN)
    released = [data.draw(st.sampled_from(WORDS)) for _ in words]
    made = write(released, gaps)
    if not words:
        return
    found = beside([made], [text], KNOWN).rows[0]
    assert found.words == words and write(found.released, found.gaps) == made


def test_words_with_marks_and_texts_without_marks_keep_their_places():
    assert beside(["bad 's, , good!"], ["You are, my friend!"], KNOWN).rows[0].released == ["bad", "'s", ",", "good"]
    assert beside(["bad good"], ["Hello, you!"], KNOWN).rows[0].released == ["bad", "good"]
    assert beside(["zq good"], ["zq you"], KNOWN).rows[0].released == ["zq", "good"]


def test_rows_that_were_written_anew_are_left_out_and_counted():
    found = beside(["bad good", "a text of other length", None, "!"], ["hi you", "hi you", "x", "!"], KNOWN)
    assert len(found.rows) == 1 and found.left_out == 1
    assert any("1 of 2 rows are left out" in line for line in found.limits)


@pytest.mark.parametrize(
    ("made", "texts", "words"),
    [
        (["a"], ["a", "b"], "privatized= has 1 rows and originals= 2"),
        ("secret", ["secret"], "privatized= is a str"),
        (["a"], [5], r"originals\[0\] is a int"),
        ([], [], "no released row"),
        ([None], ["secret"], "no released row"),
        (["good bad"], ["secret"], "no released row"),
    ],
)
def test_lists_that_do_not_belong_together_are_refused_without_their_texts(made, texts, words):
    with pytest.raises(ConfigError, match=words) as error:
        beside(made, texts, KNOWN)
    assert "secret" not in str(error.value)
    assert "secret" not in repr(beside(["good"], ["secret"], KNOWN).rows[0])
