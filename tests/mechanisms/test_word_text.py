import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_dpsynth.mechanisms.word.text import PUNCTUATION, cased, is_number, read, write

KNOWN = {"do", "n't", "she", "'s", "o'brien", "u.s", "1.5", "well-known", "10-year", "good"}


@pytest.mark.parametrize(
    ("text", "words", "rebuilt"),
    [
        ("Good,  GOOD!\n\tgood", ["good", "good", "good"], "good, good! good"),
        ("don't", ["do", "n't"], "do n't"),
        ("She\u2019s", ["she", "'s"], "she 's"),
        ("O'Brien", ["o'brien"], "o'brien"),
        ("O'Neill", ["o", "neill"], "o'neill"),
        ("1.5", ["1.5"], "1.5"),
        ("19,500.75 km", ["19,500.75", "km"], "19,500.75 km"),
        ("5km", ["5km"], "5km"),
        ("well-known ill-known", ["well-known", "ill", "known"], "well-known ill-known"),
        ("good.good", ["good", "good"], "good.good"),
        ("\u201cgood\u201d \u2014 \u2026", ["good"], '"good" - ...'),
        ("  good  ", ["good"], "good"),
        ("(good) , :-)", ["good"], "(good) , :-)"),
        ("!?", [], "!?"),
        ("", [], ""),
        (" \t\n\u00a0\u2028", [], ""),
    ],
)
def test_texts_are_read_by_the_public_rules(text, words, rebuilt):
    found, gaps = read(text, KNOWN)
    assert found == words and len(gaps) == len(words) + 1
    assert write(found, gaps) == rebuilt


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f600\U0001f600",
        "\u05e9\u05dc\u05d5\u05dd",
        "a\x00b",
        "\x00",
        "\x07",
        "\u200b",
        "\u202e",
        "\ud800",
        "\u00b7",
    ],
)
def test_whatever_is_not_ascii_punctuation_is_a_word(text):
    found, gaps = read(f"good {text}. good", KNOWN)
    assert found == ["good", text, "good"] and gaps == ["", " ", ". ", ""]


def test_dropped_punctuation_becomes_single_spaces():
    words, gaps = read('"Good" -- O\'Neill, 19-20!', KNOWN, keep_punctuation=False)
    assert write(words, gaps) == "good o neill 19 20"
    assert read("?!", KNOWN, keep_punctuation=False) == ([], [""])


@given(st.text(), st.booleans())
def test_only_spaces_and_ascii_punctuation_stand_between_words(text, keep):
    words, gaps = read(text, KNOWN, keep_punctuation=keep)
    assert len(gaps) == len(words) + 1
    assert all(set(gap) <= set(PUNCTUATION + " ") for gap in gaps)
    assert all(gaps[1:-1]) and all(words)
    assert not any("  " in gap for gap in gaps)
    assert not gaps[0].startswith(" ") and not gaps[-1].endswith(" ")
    letters = re.sub(r"[^a-z0-9]", "", text.lower())
    assert re.sub(r"[^a-z0-9]", "", "".join(words)) == letters


@given(st.text(alphabet="ab1'n.t- ,!"), st.booleans())
def test_reading_what_was_written_changes_nothing(text, keep):
    words, gaps = read(text, KNOWN, keep_punctuation=keep)
    once = write(words, gaps)
    assert write(*read(once, KNOWN, keep_punctuation=keep)) == once


@given(st.text(), st.text(alphabet="AbN\u03a3\u0130'nT.1-, \u2026\u2019\u2014\n"))
def test_capitals_are_found_again_word_by_word(anything, crafted):
    for text in (anything, crafted):
        words, _ = read(text, {*KNOWN, "ab.n", "'s"})
        found = cased(text, words)
        assert [word.casefold() for word in found] == [word.casefold() for word in words]
        assert (
            found == words
            if len(text.lower()) != len(text)
            else all(word in text.translate(cased_marks()) for word in found)
        )


def cased_marks():
    return {0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"', 0x2013: "-", 0x2014: "-", 0x2026: "..."}


@pytest.mark.parametrize(
    "unit", ["good ", "a", "1,", "n't", "'", "-a", " \n", "\U0001f600", "\x00", "n'tn", "don't", "a1."]
)
def test_a_megabyte_takes_well_under_a_second_whatever_it_holds(unit):
    text = (unit * (1_000_000 // len(unit.encode())))[:1_000_000]
    seconds = []
    for part in (text[: len(text) // 4], text):
        start = time.process_time()
        words, gaps = read(part, KNOWN)
        write(words, gaps)
        cased(part, words)
        seconds.append(time.process_time() - start)
    assert seconds[1] < 3 and seconds[1] < 16 * seconds[0] + 0.2


def test_a_number_begins_with_an_ascii_digit():
    assert is_number("12th") and is_number("0")
    assert not is_number("u2") and not is_number("\u0663") and not is_number("")
