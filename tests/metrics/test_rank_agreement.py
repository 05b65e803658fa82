import traceback

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_dpsynth import metrics
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.rank_agreement import kendall, persistence, prefix_weight, rbo, spearman
from tests.stubs import CANARY

SCORES = st.lists(st.integers(0, 5), min_size=2, max_size=9)


def slow_rbo(first, second, p, depth):
    """The infinite sum of Webber et al., equation 4, for rankings without ties continued by equal agreement."""
    total, agreement = 0.0, 0.0
    for d in range(1, depth + 1):
        if d <= len(first):
            agreement = len(set(first[:d]) & set(second[:d])) / d
        total += (1 - p) * p ** (d - 1) * agreement
    return total


@given(st.permutations(range(6)), st.floats(0.3, 0.9))
def test_overlap_is_the_weighted_sum_of_agreements(order, p):
    scores = [6 - order.index(trial) for trial in range(6)]
    assert rbo([6, 5, 4, 3, 2, 1], scores, p) == pytest.approx(slow_rbo(list(range(6)), list(order), p, 400), abs=1e-6)


@given(SCORES, st.randoms(use_true_random=False))
def test_overlap_is_symmetric_and_blind_to_the_order_of_the_trials(scores, rng):
    other = rng.sample(scores, len(scores))
    value = rbo(scores, other, 0.8)
    assert 0 <= value <= 1 and value == pytest.approx(rbo(other, scores, 0.8))
    at = rng.sample(range(len(scores)), len(scores))
    assert rbo([scores[i] for i in at], [other[i] for i in at], 0.8) == pytest.approx(value)
    assert rbo(scores, scores, 0.8) == pytest.approx(1)


def test_the_top_weighs_more_than_the_end():
    assert rbo([4, 3, 2, 1], [4, 3, 1, 2], 0.8) > rbo([4, 3, 2, 1], [3, 4, 2, 1], 0.8)


def test_the_weight_of_a_prefix_is_that_of_the_paper():
    # Webber, Moffat & Zobel 2010, section 4.2: p = .9 gives the first 10 ranks 86 % of the weight.
    assert prefix_weight(0.9, 10) == pytest.approx(0.8556, abs=1e-3)


@given(st.integers(4, 200), st.floats(0.5, 0.95))
def test_persistence_gives_the_top_its_weight(trials, weight):
    p = persistence(trials, 0.25, weight)
    assert prefix_weight(p, round(trials * 0.25)) == pytest.approx(weight, abs=1e-6)


def test_correlations_are_those_of_the_definitions():
    first, second = [1, 2, 3, 4, 5], [2, 1, 4, 3, 5]
    assert spearman(first, second) == pytest.approx(1 - 6 * 4 / (5 * 24))
    assert kendall(first, second) == pytest.approx((8 - 2) / 10)


def test_scores_without_an_order_are_said_to_have_none():
    found = metrics.load("rank_agreement").compute(predictions=[1, 1, 1, 1], references=[1, 2, 3, 4])
    assert found["spearman"] is None and found["kendall"] is None and "no ranking" in found["limits"][0]
    assert np.isfinite(found["rank_agreement"]) and found["uses_private_data"] is True


@pytest.mark.parametrize(
    ("first", "second"), [([1, 2], [1]), ([1], [1]), ([1, np.nan], [1, 2]), (["a", "b"], [1, 2]), ([[1, 2]], [[1, 2]])]
)
def test_what_is_no_pair_of_rankings_is_refused(first, second):
    with pytest.raises(ConfigError):
        spearman(first, second)


def test_a_text_among_the_scores_is_in_no_part_of_the_traceback():
    for scores in ([1, f"{CANARY} text"], [1, {CANARY: 1}]):
        with pytest.raises(ConfigError, match="numbers") as caught:
            spearman([1, 2], scores)
        assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_numbers_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="between 0 and 1"):
        rbo([1, 2], [1, 2], 1.0)
    with pytest.raises(ConfigError, match="no trial"):
        persistence(28, top_fraction=0.001)
    with pytest.raises(ConfigError, match="weight is 1"):
        persistence(28, weight=1)
