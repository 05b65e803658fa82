import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.tokens import MOST_TOKENS, TokensDpEvent, draw_token, per_token, temperature
from hf_dpsynth.privacy.words import uniforms

LOGITS = np.array([3.0, 9.0, -2.0, float("nan"), 7.0])
LOW, HIGH = 0.0, 8.0


@given(st.floats(1e-90, 1e300), st.integers(1, MOST_TOKENS))
def test_the_parts_of_a_text_never_exceed_its_epsilon_and_come_close(epsilon, tokens):
    each = per_token(epsilon, tokens)
    assert Fraction(each) * tokens <= Fraction(epsilon)
    assert Fraction(each * tokens) == Fraction(each) * tokens, "the sum of the parts is exact"
    assert each * tokens >= epsilon * (1 - 1e-12)
    assert per_token(each * tokens, tokens) == each, "a plan that is made again from its events is the same"


def test_parts_that_are_out_of_range_are_refused():
    assert per_token(math.inf, 5) == math.inf
    for epsilon, tokens in [(0.0, 5), (math.nan, 5), (-1.0, 5), (1e-101, 5), (1.0, 0), (1.0, MOST_TOKENS + 1)]:
        with pytest.raises(ConfigError):
            per_token(epsilon, tokens)


def law(epsilon):
    scores = np.array([3.0, 8.0, 0.0, 0.0, 7.0])  # LOGITS clipped to [0, 8] by hand
    weights = np.exp(scores * epsilon / 16)
    return weights / weights.sum()


def differs(counts, probabilities):
    """Pearson's chi-square at level 1e-6; 100k draws find a 10 % wrong temperature with probability > 0.999."""
    expected = counts.sum() * probabilities
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1) < 1e-6


def test_the_law_is_the_softmax_of_clipped_logits():
    places = uniforms(Key.from_insecure_seed(0).generator("tokens"), 100_000)
    found = Counter(draw_token(LOGITS, place, 4.0, LOW, HIGH) for place in places)
    counts = np.array([found[token] for token in range(5)])
    assert not differs(counts, law(4.0))
    for wrong in (3.6, 4.4):
        assert differs(counts, law(wrong))


def test_a_cold_draw_far_below_the_range_still_gives_a_token():
    for epsilon in (1e5, 1e300, math.inf):
        assert draw_token(np.array([-3.0, 1.0, -9.0]), 0.7, epsilon, -10.0, 10.0) == 1
    assert draw_token(np.full(3, float("nan")), 0.99, 1e6, -10.0, 10.0) == 2


def test_the_event_says_what_a_token_costs():
    assert TokensDpEvent(per_token(8.0, 64), 64) == TokensDpEvent(0.125, 64)


ODD = st.lists(st.floats(-1e9, 1e9) | st.just(np.nan) | st.just(np.inf) | st.just(-np.inf), min_size=6, max_size=6)


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


@given(ODD, ODD, st.sampled_from([0.1, 1.0, 5.0]))
def test_no_two_logits_differ_by_more_than_epsilon(one, other, epsilon):
    first, second = edges(one, epsilon), edges(other, epsilon)
    assert np.abs(np.log(first / second)).max() <= epsilon * (1 + 1e-6)


def test_the_bound_is_reached():
    """One token at the upper end against the rest at the lower one, and the opposite: close to epsilon both ways."""
    first, second = edges([1e9, *[-1e9] * 5], 5.0), edges([-1e9, *[1e9] * 5], 5.0)
    assert 0.7 * 5.0 < np.log(first / second).max() <= 5.0


def test_a_range_or_epsilon_that_is_none_is_refused():
    for epsilon, low, high in ((0.0, 0.0, 1.0), (np.nan, 0.0, 1.0), (1.0, 1.0, 1.0), (1.0, np.nan, 1.0)):
        with pytest.raises(ConfigError, match="must be positive"):
            temperature(epsilon, low, high)
