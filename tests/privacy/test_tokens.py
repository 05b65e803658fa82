"""Tokens from clipped logits: the law is exact, and no logits move a probability by more than epsilon."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.tokens import draw_token, temperature

LOW, HIGH = -5.0, 10.0
LOGITS = st.lists(st.floats(-1e9, 1e9) | st.just(np.nan) | st.just(np.inf) | st.just(-np.inf), min_size=6, max_size=6)


def law(logits, epsilon):
    """The softmax of the clipped logits at the temperature, from its formula."""
    scores = np.clip(logits, LOW, HIGH) / (2 * (HIGH - LOW) / epsilon)
    return np.exp(scores) / np.exp(scores).sum()


def edges(logits, epsilon):
    """Find by bisection the places at which the drawn token changes: the exact law of the sampler."""
    logits = np.array(logits)
    found = []
    for token in range(len(logits)):
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if draw_token(logits, middle, epsilon, LOW, HIGH) <= token else (low, middle)
        found.append(high)
    return np.diff([0.0, *found])


def test_tokens_follow_the_clipped_softmax_and_a_wrong_temperature_is_caught():
    logits = np.array([-80.0, 0.0, 4.0, 9.0, 300.0])
    places = Key.from_insecure_seed(1).generator("places").random(100_000)
    counts = np.bincount([draw_token(logits, place, 8.0, LOW, HIGH) for place in places], minlength=5)
    # 100,000 draws: an epsilon 10 % off has a non-centrality above 200; power > .999
    assert stats.chisquare(counts, law(logits, 8.0) * len(places)).pvalue > 1e-6
    for wrong in (7.2, 8.8):
        assert stats.chisquare(counts, law(logits, wrong) * len(places)).pvalue < 1e-6


@given(LOGITS, LOGITS, st.sampled_from([0.1, 1.0, 5.0]))
def test_no_two_logits_differ_by_more_than_epsilon(one, other, epsilon):
    first, second = edges(one, epsilon), edges(other, epsilon)
    assert np.abs(np.log(first / second)).max() <= epsilon * (1 + 1e-6)


def test_the_bound_is_reached():
    """One token at the upper end against the rest at the lower one, and the opposite: close to epsilon both ways."""
    first, second = edges([1e9, *[-1e9] * 5], 5.0), edges([-1e9, *[1e9] * 5], 5.0)
    assert 0.7 * 5.0 < np.log(first / second).max() <= 5.0


def test_an_infinite_epsilon_takes_the_best_token():
    assert draw_token(np.array([1.0, 7.0, 7.0, np.nan]), 0.99, np.inf, LOW, HIGH) == 1


def test_a_range_or_epsilon_that_is_none_is_refused():
    for epsilon, low, high in ((0.0, 0.0, 1.0), (np.nan, 0.0, 1.0), (1.0, 1.0, 1.0), (1.0, np.nan, 1.0)):
        with pytest.raises(ConfigError, match="must be positive"):
            temperature(epsilon, low, high)
