"""Metric DP of words: matrices in full, and draws on a line. A scale that is twice the claimed one is refused."""

import math

import numpy as np
import pytest

from hf_dpsynth.audit import audit_matrix, audit_words
from hf_dpsynth.audit.matrices import line, losses
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word.madlib import Madlib
from hf_dpsynth.mechanisms.word.vickrey import Vickrey

LINE = line()
PLACES = LINE.vectors[:, 0].astype(float)
APART = np.abs(np.subtract.outer(PLACES, PLACES))


def drawn(mechanism, epsilon):
    def draw(word, size, generator):
        return mechanism.substitutes([LINE.words[word]], size, LINE, epsilon, lambda place: generator)[0]

    return draw


@pytest.mark.parametrize("mechanism", [Madlib(), Vickrey()])
def test_words_on_a_line_keep_their_scale_and_noise_of_half_the_scale_is_refused(mechanism):
    """200,000 draws a word, Bonferroni over 32 ends of intervals. The loss of madlib here is epsilon for all pairs but
    one, so that the bound is close: .975 to .980 for 1, and 1.63 to 1.68 for a scale of 2."""
    right = audit_words(drawn(mechanism, 1.0), APART, 1.0)
    wrong = audit_words(drawn(mechanism, 2.0), APART, 1.0)
    assert not right.violated and wrong.violated and right.n == 800_000
    if mechanism == Madlib():
        assert 0.95 < right.value < 1 and 1.55 < wrong.value < 2


def test_the_bound_of_draws_lies_below_the_loss_of_their_law():
    law = np.array([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3]])
    exact = audit_matrix(law, np.ones((2, 2)), 1.0)
    assert exact.value == pytest.approx(math.log(3.5)) and exact.violated

    def draw(word, size, generator):
        return generator.choice(3, size, p=law[word])

    few, many = (audit_words(draw, np.ones((2, 2)), 1.0, draws=draws).value for draws in (500, 50_000))
    assert few < many < exact.value < many + 0.05
    assert audit_words(draw, np.ones((2, 2)), 2.0, draws=500).confidence == 0.99


def test_an_output_that_only_one_word_has_is_an_infinite_loss():
    law = np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])
    assert audit_matrix(law, np.full((2, 2), 9.0), 100.0).value == math.inf
    assert audit_matrix(law[[0, 0]], np.zeros((2, 2)), 1.0).value == 0
    assert losses(law)[0, 0] == 0 and losses(law)[0, 1] == math.inf


def test_equal_words_must_have_equal_laws():
    law = np.array([[0.5, 0.5], [0.6, 0.4]])
    assert audit_matrix(law, np.zeros((2, 2)), 1.0).violated


def test_an_exponential_mechanism_of_the_whole_score_and_not_half_of_it_is_refused():
    """exp(-epsilon d) moves numerator and normaliser: up to twice the loss of exp(-epsilon d / 2)."""
    right, wrong = (np.exp(-share * APART) for share in (0.5, 1.0))
    right, wrong = (rows / rows.sum(axis=1, keepdims=True) for rows in (right, wrong))
    assert not audit_matrix(right, APART, 1.0).violated
    assert audit_matrix(wrong, APART, 1.0).violated


def test_shapes_and_rows_that_are_no_law_are_refused():
    for law, apart in (
        (np.ones((2, 2)), np.ones((2, 2))),
        (np.full((2, 2), 0.5), np.ones((3, 3))),
        (np.array([[1.5, -0.5], [0.5, 0.5]]), np.ones((2, 2))),
    ):
        with pytest.raises(ConfigError, match="law"):
            audit_matrix(law, apart, 1.0)
    with pytest.raises(ConfigError, match="draws is 0"):
        audit_words(drawn(Madlib(), 1.0), APART, 1.0, draws=0)


def test_draws_of_equal_words_with_other_laws_are_an_infinite_loss_and_equal_laws_none():
    def draw(word, size, generator):
        return generator.choice(2, size, p=[0.5, 0.5] if word else [0.7, 0.3])

    apart = np.zeros((2, 2))
    assert audit_words(draw, apart, 9.0, draws=5000).value == math.inf
    assert audit_words(lambda _, *more: draw(1, *more), apart, 9.0, draws=5000).value == 0


@pytest.mark.parametrize("drawn", [np.zeros(50, int), np.full(100, -1), np.full(100, 0.5)])
def test_draws_that_are_no_places_or_too_few_are_refused(drawn):
    """Half of the draws would halve each rate, and accuse a right law."""
    with pytest.raises(ConfigError, match="draw= returned"):
        audit_words(lambda *_: drawn, np.ones((2, 2)), 1.0, draws=100)


def test_a_law_of_one_input_is_compared_with_nothing_and_refused():
    with pytest.raises(ConfigError, match="at least 2 inputs"):
        audit_matrix(np.ones((1, 1)), np.zeros((1, 1)), 1.0)
