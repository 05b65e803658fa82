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
from hf_dpsynth.privacy.tokens import MOST_TOKENS, TokensDpEvent, draw_token, per_token
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
