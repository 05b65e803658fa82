"""Copies are counted as planted, searches equal brute force, and where nothing leaks nothing is shown."""

import itertools
import json

import numpy as np
import pytest

from hf_dpsynth.audit import AttackResult, audit_leakage
from hf_dpsynth.audit.shared_text import alike, as_words, runs
from hf_dpsynth.errors import ConfigError

KINDS = ("exact_copies", "near_copies", "long_runs")


def texts(n, seed, shortest=21, longest=30, words=5000):
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{word}" for word in rng.integers(0, words, rng.integers(shortest, longest))) for _ in range(n)]


def edited(text):
    """Another word in the middle."""
    said = text.split()
    said[len(said) // 2] = "changed"
    return " ".join(said)


def part(text):
    """The last twelve words, within words of another text."""
    return " ".join(["so", "it", "was", *text.split()[-12:], "they", "told", "us", "all"])


def test_copies_are_counted_as_planted():
    """7 whole, 5 edited, 6 in part of 500 members; 3 whole of the hold-out; the rest is new."""
    members, others = texts(500, 0), texts(500, 1)
    planted = [text.upper().replace(" ", "\n ") for text in members[:7]]
    planted += [edited(text) for text in members[7:12]] + [part(text) for text in members[12:18]] + others[:3]
    found = audit_leakage(planted + texts(79, 2), members, others)
    assert [found[kind].value for kind in KINDS] == [0.07, 0.12, 0.18]
    assert [found[f"{kind}_holdout"].value for kind in KINDS] == [0.03] * 3
    assert [found[f"{kind}_of_all"].value for kind in KINDS] == [0.07, 0.12, 0.18]
    assert found["long_runs_p_value"].value < 0.001 and found["long_runs_p_value"].n == 21
    low, high = found["exact_copies"].interval
    assert low < 0.07 < high and all(one.uses_private_data for one in found.findings)


def test_a_right_set_shows_nothing_and_five_copies_show():
    """Power: one-sided, 5 of 5 give a p-value of .031, 4 of 4 one of .062."""
    members, others = texts(400, 3), texts(400, 4)
    for copies, shown in ((0, False), (4, False), (5, True)):
        found = audit_leakage(texts(400, 5) + members[:copies], members, others)
        assert all((found[f"{kind}_p_value"].value < 0.05) == shown for kind in KINDS)
        assert found["exact_copies_holdout"].value == 0


@pytest.mark.parametrize("more", [1, 3])
def test_chance_alone_is_accused_as_seldom_as_the_test_says(more):
    """400 audits of heavy-tailed short texts at .05, also with three times as many members: below .08 at 3 errors."""
    rng, below = np.random.default_rng(8), 0
    for _ in range(400):
        rows = [f"text {value}" for value in rng.zipf(1.5, 60 * more + 120)]
        found = audit_leakage(rows[:60], rows[120:], rows[60:120])
        below += found["exact_copies_p_value"].value < 0.05
    assert below / 400 < 0.08


def test_one_text_copied_many_times_is_one_text_to_the_test():
    members, others = texts(50, 0), texts(50, 1)
    found = audit_leakage(members[:1] * 90 + texts(10, 2), members, others)
    assert found["exact_copies"].value == 0.9 and found["exact_copies_p_value"].value == 0.5


def sets(text, length):
    said = (["<"] * (length > 1)) + text.split() + ([">"] * (length > 1))
    return {tuple(said[place : place + length]) for place in range(len(said) - length + 1)}


@pytest.mark.parametrize(("length", "similarity"), list(itertools.product((1, 2, 3), (0.3, 0.8, 1.0))))
def test_similar_texts_are_those_of_all_pairs(length, similarity, monkeypatch):
    monkeypatch.setattr("hf_dpsynth.audit.shared_text._PAIRS", 50)
    synthetic, private = (texts(60, seed, 1, 9, words=6) for seed in (0, 1))
    marks = np.random.default_rng(2).integers(1, 4, 60).astype(np.uint8)
    near = np.array(
        [
            [len(one & other) >= similarity * len(one | other) - 1e-9 for other in (sets(t, length) for t in private)]
            for one in (sets(t, length) for t in synthetic)
        ]
    )
    near &= np.array([bool(sets(t, length)) for t in synthetic])[:, None]
    found = alike(*as_words(synthetic, private), marks, length, similarity)
    assert (found.found == near.any(axis=0)).all() and 0 < near.sum() < near.size
    assert (found.rows == np.bitwise_or.reduce(np.where(near, marks, 0), axis=1)).all()


@pytest.mark.parametrize("length", [1, 3, 5])
def test_long_runs_are_those_of_all_pairs(length):
    synthetic, private = (texts(60, seed, 1, 12, words=3 + (length < 5) * 5) for seed in (0, 1))
    marks = np.random.default_rng(2).integers(1, 4, 60).astype(np.uint8)

    def windows(text):
        said = text.split()
        return {tuple(said[place : place + length]) for place in range(len(said) - length + 1)}

    near = np.array([[bool(windows(one) & windows(other)) for other in private] for one in synthetic])
    found = runs(*as_words(synthetic, private), marks, length)
    assert (found.found == near.any(axis=0)).all() and 0 < near.sum() < near.size
    assert (found.rows == np.bitwise_or.reduce(np.where(near, marks, 0), axis=1)).all()


@pytest.mark.parametrize(("words", "near"), [(16, 0.0), (17, 1.0)])
def test_one_other_word_of_seventeen_is_a_near_copy(words, near):
    text = " ".join(f"w{place}" for place in range(words))
    assert audit_leakage([edited(text)], [text], ["another"])["near_copies"].value == near


def test_texts_of_both_sides_are_left_out_and_said():
    found = audit_leakage(["ok", "hello there"], ["OK", "hello there"], ["ok ", "good night"])
    assert found["exact_copies"].value == 0.5 and found["exact_copies_of_all"].value == 1.0
    assert any("Left out as on both sides: 1 texts." in line for line in found.statements())


def test_a_larger_side_is_drawn_down_and_its_rest_is_no_baseline():
    """All 300 members are copied: a third of them stands against the 100 others, and all of them in the total."""
    members, others = texts(300, 0), texts(99, 1)
    found = audit_leakage(members, members, [*others, members[0]])
    assert found["exact_copies"].n == 300 and 0.32 < found["exact_copies"].value < 0.34
    assert found["exact_copies_holdout"].value == 0 and found["exact_copies_of_all"].value == 1.0


def test_texts_without_words_missing_and_one_word_texts_are_handled():
    found = audit_leakage([":)", "?!", None, "", "hi"], [":)", None, "hi", " "], ["!!", "bye", None])
    assert found["exact_copies"].value == pytest.approx(2 / 3) and found["exact_copies"].n == 3
    assert found["near_copies"].value == pytest.approx(1 / 3) and found["near_copies_holdout"].value == 0


def test_the_result_is_kept_without_a_text():
    found = audit_leakage(["secretword here"], ["secretword here"], ["another thing"])
    held = json.dumps(found.to_json(), allow_nan=False)
    assert "secretword" not in held + repr(found) and AttackResult.from_json(json.loads(held)).name == found.name


@pytest.mark.parametrize(
    ("arguments", "more", "words"),
    [
        ((["a"], ["canaryx"], None), {}, "others= is of type NoneType.*did not read"),
        ((["a"], ["canaryx"], []), {}, "others= holds no text"), ((["a"], [None, " "], ["b"]), {}, "members="),
        (([], ["canaryx"], ["b"]), {}, "synthetic="), (("a", ["canaryx"], ["b"]), {}, "synthetic= is of type str"),
        ((["a"], ["canaryx", 3], ["b"]), {}, "type int"), ((["a"], ["canaryx"], ["Canaryx"]), {}, "not on both sides"),
        ((["a"], ["canaryx"], ["b"]), {"similarity": 0}, "similarity"),
        ((["a"], ["canaryx"], ["b"]), {"similarity": "high"}, "similarity"),
        ((["a"], ["canaryx"], ["b"]), {"run": 0}, "run"), ((["a"], ["canaryx"], ["b"]), {"shingle": 1.5}, "shingle"),
        ((["a"], ["canaryx"], ["b"]), {"confidence": 1}, "confidence"),
    ],
)  # fmt: skip
def test_what_cannot_be_audited_is_refused_without_a_text(arguments, more, words):
    with pytest.raises(ConfigError, match=words) as caught:
        audit_leakage(*arguments, **more)
    assert "canaryx" not in str(caught.value).lower()
