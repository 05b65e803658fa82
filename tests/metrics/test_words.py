"""N-grams, diversity and lengths: laws, and the usual definitions written out slowly."""

from collections import Counter
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_dpsynth import metrics
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.distinct_n import distinct_share
from hf_dpsynth.metrics.divergence import frontier_area
from hf_dpsynth.metrics.length import length_distance
from hf_dpsynth.metrics.ngram import length_area, ngram_area
from hf_dpsynth.metrics.self_bleu import self_bleu
from hf_dpsynth.metrics.words import ngrams, words

TEXTS = st.lists(st.lists(st.sampled_from("abc"), max_size=6).map(" ".join), min_size=2, max_size=6)
COUNTS = st.lists(st.integers(0, 9), min_size=2, max_size=6).filter(any)


@given(COUNTS, COUNTS)
def test_the_frontier_area_is_symmetric_and_between_0_and_1(first, second):
    size = max(len(first), len(second))
    p, q = (np.pad(counts, (0, size - len(counts))) for counts in (first, second))
    area = frontier_area(p, q)
    assert -1e-9 <= area <= 1 + 1e-9
    assert area == pytest.approx(frontier_area(q, p), abs=1e-9)
    assert frontier_area(p, p) == pytest.approx(1)
    assert frontier_area(7 * p, q) == pytest.approx(area)


def test_the_frontier_area_is_0_for_histograms_that_are_apart():
    # Both KL to the mixture are at least log 2 somewhere; the curve of two point masses is
    # (share ** c, (1 - share) ** c), whose area for c = 5 is the beta integral 5 B(5, 6) = 1 / 252.
    assert frontier_area(np.array([1, 0]), np.array([0, 1])) == pytest.approx(1 / 252, abs=2e-3)


def test_the_frontier_area_falls_with_the_distance():
    areas = [frontier_area(np.array([50, 50]), np.array([50 - gap, 50 + gap])) for gap in (0, 10, 20, 40)]
    assert areas == sorted(areas, reverse=True) and areas[0] - areas[-1] > 0.2


@pytest.mark.parametrize("wrong", [[0, 0], [1, -1], [1, np.nan], [[1]], [1]])
def test_what_is_no_histogram_is_refused(wrong):
    with pytest.raises(ConfigError):
        frontier_area(np.array(wrong), np.array([1, 2]))


def test_words_are_lower_case_and_marks_are_words():
    assert words("It's GOOD.\n") == ["it", "'", "s", "good", "."]
    assert ngrams(["a", "b", "c"], 2) == [("a", "b"), ("b", "c")]
    assert ngrams(["a"], 2) == []


def test_ngrams_of_sets_without_any():
    none = [np.empty(0, np.int64)]
    assert ngram_area(none, none) == 1.0
    assert ngram_area(none, [np.array([0])]) == 0.0


def test_lengths_that_are_all_equal_are_one_cell():
    assert length_area(np.full(9, 5.0), np.full(4, 5.0)) == pytest.approx(1)


def test_ngram_sees_another_topic_and_another_length():
    rng = np.random.default_rng(0)
    film, food = "film plot cast star".split(), "soup teas cake salt".split()

    def make(vocabulary, n, size):
        return [" ".join(rng.choice(vocabulary, size)) for _ in range(n)]

    real = make(film, 80, 8)
    ngram = metrics.load("ngram")
    same, topic, longer = (
        ngram.compute(predictions=made, references=real)
        for made in (make(film, 60, 8), make(food, 60, 8), make(film, 60, 20))
    )
    assert same["ngram"] > 0.8 and abs(same["ngram"] - same["ngram_floor"]) < 0.1
    assert topic["ngram_unigram"] < 0.05 < longer["ngram_unigram"]
    assert longer["ngram_length"] < 0.05 < topic["ngram_length"]


def slow_self_bleu(texts, max_n):
    """Sentence BLEU of each text against all others, by comparing every pair."""
    scores = []
    for at, text in enumerate(texts):
        own, others = words(text), [words(other) for other in texts[:at] + texts[at + 1 :]]
        logs = []
        for n in range(1, max_n + 1):
            counts = Counter(ngrams(own, n))
            if counts:
                best = Counter()
                for other in others:
                    best |= Counter(ngrams(other, n))
                matches = sum((counts & best).values())
                logs.append(log(max(matches, 0.1) / sum(counts.values())))
        closest = min((len(other) for other in others), key=lambda length: (abs(length - len(own)), length))
        penalty = min(0.0, 1 - closest / len(own)) if own else 0.0
        scores.append(exp(penalty + sum(logs) / len(logs)) if logs else 0.0)
    return scores


@given(TEXTS, st.integers(1, 4))
def test_self_bleu_in_one_pass_is_that_of_all_pairs(texts, max_n):
    assert self_bleu(texts, max_n=max_n) == pytest.approx(slow_self_bleu(texts, max_n))


def test_self_bleu_is_1_for_copies_and_low_for_strangers():
    def self_bleu_of(texts):
        return metrics.load("self_bleu").compute(predictions=texts)["self_bleu"]

    assert self_bleu_of(["one two three four five"] * 3) == pytest.approx(1)
    assert self_bleu_of(["one two three four five", "six seven eight nine ten"]) < 0.1
    with pytest.raises(ConfigError, match="2 or more"):
        self_bleu_of(["alone"])


@given(TEXTS)
def test_distinct_shares_are_those_of_the_definition(texts):
    for n in (1, 2):
        grams = [gram for text in texts for gram in ngrams(words(text), n)]
        assert distinct_share(texts, n) == (len(set(grams)) / len(grams) if grams else 0)


def test_diversity_compares_as_many_real_texts():
    found = metrics.load("distinct_n").compute(predictions=["a b"] * 3, references=["c d", "e f", "g h", "i j"])
    assert found["distinct_texts"] == pytest.approx(1 / 3) and found["references_distinct_texts"] == 1
    assert found["num_rows"] == 3 and "3 texts" in found["limits"][0] and found["uses_private_data"] is True
    alone = metrics.load("distinct_n").compute(predictions=["", " "])
    assert alone["distinct_n"] == 0 and alone["empty_texts"] == 1 and alone["uses_private_data"] is False


def test_lengths_are_measured_and_compared():
    found = metrics.load("length").compute(predictions=["aa bb"] * 4, references=["aa bb cc"] * 8)
    assert found["length"] == 3 and found["length_words"] == 1 and found["length_floor"] == 0
    alone = metrics.load("length").compute(predictions=["", "a b"])
    assert alone["length_mean"] == 1.5 and alone["uses_private_data"] is False and "length" not in alone
    assert length_distance(np.array([1, 2]), np.array([2, 3, 1, 2])) == 0.5


def test_empty_strings_and_copies_give_figures_not_nans():
    for texts in ([""] * 8, ["same"] * 8):
        for name in ("ngram", "length", "distinct_n", "self_bleu"):
            found = metrics.load(name).compute(predictions=texts, references=texts)
            assert not [key for key, value in found.items() if isinstance(value, float) and np.isnan(value)], name
            assert any("same" in limit or "has a word" in limit for limit in found["limits"]), name


def test_sets_without_variety_are_named_without_a_text_or_a_count():
    found = metrics.load("self_bleu").compute(predictions=["", " ", "\n"], references=["a secret"] * 3)
    assert found["self_bleu"] == 0
    assert found["limits"] == [
        "no text of predictions has a word: the figures say nothing of its diversity",
        "all texts of references are the same",
    ]
