"""Private prediction by law: what a record moves, what the noise is, and what it costs."""

import math

import numpy as np
import pytest
from dp_accounting import NonPrivateDpEvent, SelfComposedDpEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy import accounting
from hf_dpsynth.privacy.predictions import (
    ClippedLogits,
    SampledPrompts,
    distribution,
    mean_distribution,
    noisy_largest,
)


def sampled(**more):
    return SampledPrompts(**{"rate": 0.3, "subsets": 4, "shots": 3, "tokens": 5} | more)


def clipped(**more):
    return ClippedLogits(**{"batch_size": 4, "temperature": 0.8, "tokens": 6, "top_k": 3} | more)


@pytest.mark.parametrize(("kept", "cost"), [(False, 0.19), (True, 22.6)])
def test_a_hundred_tokens_at_a_rate_of_a_hundredth_cost_what_the_derivation_says(kept, cost):
    event = sampled(rate=0.01, tokens=100, kept=kept).event(2.0)
    # a coarse interval is fast, and rounds up by less than the printed digits
    assert accounting.epsilon(event, 1e-5, discretisation=1e-3) == pytest.approx(cost, rel=5e-3)


def test_the_noise_is_the_multiplier_times_the_sensitivity():
    assert sampled(subsets=10).deviation(2.0) == pytest.approx(2 * math.sqrt(2) / 10)
    assert sampled().event(0.0) == NonPrivateDpEvent() == sampled(kept=True).event(0.0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.floats(0.01, 300))
def test_one_prompt_moves_the_mean_by_at_most_root_two_over_m(seed, subsets, gain):
    rng = np.random.default_rng(seed)
    rows, allowed = distribution(gain * rng.standard_normal((subsets, 30))), rng.permutation(30)[:20]
    other = rows.copy()
    other[rng.integers(subsets)] = distribution(gain * rng.standard_normal(30))
    moved = mean_distribution(rows, allowed) - mean_distribution(other, allowed)
    assert np.linalg.norm(moved) <= math.sqrt(2) / subsets + 1e-12


def test_the_bound_on_the_mean_is_reached_and_nothing_is_made_to_sum_to_one():
    rows = np.eye(6)[[0, 3, 3, 3]]
    other = np.eye(6)[[1, 3, 3, 3]]
    allowed = np.array([0, 1])
    moved = mean_distribution(rows, allowed) - mean_distribution(other, allowed)
    assert np.linalg.norm(moved) == pytest.approx(math.sqrt(2) / 4)
    assert mean_distribution(rows, allowed).tolist() == [0.25, 0.0]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 40), st.floats(0.05, 1.0))
def test_another_record_changes_one_prompt_and_pushes_out_at_most_one(seed, present, rate):
    sampling = sampled(rate=1.0)
    few, more = (sampling.draw(np.random.default_rng(seed), number, rate) for number in (present, present + 1))
    changed = [(set(a), set(b)) for a, b in zip(few, more, strict=True) if a.tolist() != b.tolist()]
    assert len(changed) <= 1 and all(len(prompt) <= sampling.shots for prompt in more)
    for before, after in changed:
        assert after - before == {present} and len(before - after) <= 1


def test_records_are_sampled_at_their_rate_and_choose_every_prompt_alike():
    sampling, number = sampled(shots=10**6), 40_000
    prompts = sampling.draw(np.random.default_rng(1), number, 0.1)
    sizes = np.array([len(prompt) for prompt in prompts])
    deviation = math.sqrt(0.1 * 0.9 / number)
    assert abs(sizes.sum() / number - 0.1) < 6 * deviation < 0.01  # a rate 10 % off lies beyond
    assert np.abs(sizes / number - 0.025).max() < 6 * math.sqrt(0.025 * 0.975 / number)
    with pytest.raises(ConfigError, match="accounted"):
        sampling.draw(np.random.default_rng(1), 3, 0.31)


def test_the_largest_entry_wins_as_often_as_the_scale_of_the_noise_says():
    sampling, generator, gap, draws = sampled(), np.random.default_rng(2), 0.5, 20_000
    deviation = sampling.deviation(1.0)
    wins = np.mean([noisy_largest(generator, np.array([gap, 0.0]), deviation) == 0 for _ in range(draws)])

    def share(scale):
        return norm.cdf(gap / (scale * deviation * math.sqrt(2)))

    error = math.sqrt(0.25 / draws)
    assert abs(wins - share(1.0)) < 4 * error
    assert min(abs(share(1.0) - share(1.1)), abs(share(1.0) - share(0.9))) > 6 * error  # so either would be seen
    assert noisy_largest(generator, np.array([gap, 0.0]), 0.0) == 0


LOGITS = st.one_of(st.floats(-50, 50), st.sampled_from([math.nan, math.inf, -math.inf, 1e300]))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 9), st.floats(1e-3, 30), st.lists(LOGITS, min_size=7, max_size=7))
def test_a_record_moves_each_logit_by_at_most_c_over_b_and_replaced_by_twice_that(seed, others, bound, record):
    rng, clip = np.random.default_rng(seed), clipped()
    public, rows = 5 * rng.standard_normal(7), 9 * rng.standard_normal((others, 7))
    without = clip.moved(rows, public, bound)
    nulled = clip.moved(np.vstack([rows, public]), public, bound)
    there = clip.moved(np.vstack([rows, record]), public, bound)
    another = clip.moved(np.vstack([rows, 90 * rng.standard_normal(7)]), public, bound)
    assert np.abs(nulled - without).max() < 1e-12
    assert np.abs(there - without).max() <= bound / clip.batch_size + 1e-12
    assert np.abs(there - another).max() <= 2 * bound / clip.batch_size + 1e-12


def test_the_bound_on_logits_is_reached():
    clip, public = clipped(), np.zeros(2)
    moved = clip.moved(np.array([[9.0, -9.0]]), public, 2.0) - clip.moved(np.zeros((0, 2)), public, 2.0)
    assert moved.tolist() == [0.5, -0.5]


@pytest.mark.parametrize(("adjacency", "times"), [("zero-out", 1), ("replace-one", 2)])
def test_the_log_ratio_of_two_neighbours_has_the_range_that_is_accounted(adjacency, times):
    clip, noise, rng = clipped(), 0.7, np.random.default_rng(3)
    bound, event = clip.bound(noise), clip.event(noise, adjacency)
    assert event.count == clip.tokens and isinstance(event, SelfComposedDpEvent)
    worst = 0.0
    for _ in range(200):
        public, record = rng.standard_normal(5), 40 * rng.choice([-1.0, 1.0], 5)
        other = -record if times == 2 else public
        logs = [np.log(distribution(clip.moved(row[None], public, bound) / 0.8)) for row in (record, other)]
        worst = max(worst, np.ptp(logs[0] - logs[1]))
    assert 0.999 * event.event.epsilon < worst <= event.event.epsilon * (1 + 1e-9)


def test_the_clip_is_that_of_the_target_in_zcdp():
    clip, noise = clipped(), 1.7
    rho = 1 / (2 * noise**2)
    assert clip.bound(noise) == pytest.approx(0.8 * 4 * math.sqrt(2 * rho / 6))
    token = clip.event(noise, "zero-out").event.rho
    assert token == pytest.approx((clip.bound(noise) / (4 * 0.8)) ** 2 / 2) == pytest.approx(rho / 6)
    assert clip.event(noise, "replace-one").event.rho == pytest.approx(4 * token)
    assert clip.bound(0.0) == math.inf and clip.event(0.0, "zero-out") == NonPrivateDpEvent()
    found = accounting.calibrate(lambda m: clip.event(m, "zero-out"), 2.0, 1e-5, account="rdp")
    assert 1.999 < accounting.rdp_epsilon(clip.event(found, "zero-out"), 1e-5) <= 2.0


def test_a_token_is_drawn_with_the_probability_of_its_logit():
    clip, allowed = clipped(), np.array([1, 3, 4])
    logits, places = np.array([9.0, 0.5, 9.0, 1.5, -0.3]), np.random.default_rng(4).random(20_000)
    shares = np.bincount([clip.draw(place, logits, allowed) for place in places], minlength=5) / len(places)

    def law(temperature):
        return distribution(logits[allowed] / temperature)

    error = 4.5 / math.sqrt(4 * len(places))
    assert np.abs(shares[allowed] - law(0.8)).max() < error and shares[[0, 2]].sum() == 0
    for wrong in (0.72, 0.88):  # a temperature 10 % off is seen
        assert np.abs(law(wrong) - law(0.8)).max() > error
        assert np.abs(shares[allowed] - law(wrong)).max() > error / 2


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 3))
def test_the_allowed_tokens_hold_the_likeliest_ones_of_a_full_batch(seed, bound):
    rng, clip = np.random.default_rng(seed), clipped()
    public = rng.standard_normal(12)
    allowed = set(clip.allowed(public, bound).tolist())
    moved = clip.moved(public + rng.choice([-9.0, 9.0], (1, 12)), public, bound)
    assert set(np.argsort(-moved)[: clip.top_k].tolist()) <= allowed
    assert set(np.argsort(-public)[: clip.top_k].tolist()) <= allowed
    if bound < 0.1:
        assert len(allowed) < 12


@pytest.mark.parametrize("bound", [0.3, math.inf])
def test_a_token_that_is_ruled_out_takes_no_place_among_the_likeliest(bound):
    clip, public = clipped(top_k=1), np.array([9.0, -math.inf, 2.0, 8.9, 1.0])
    first = clip.allowed(public, bound).tolist()
    assert first == ([0, 3] if bound < 1 else [0, 2, 3, 4])
    assert clip.allowed(np.where(np.arange(5) == 0, -math.inf, public), bound).tolist() == (
        [3] if bound < 1 else [2, 3, 4]
    )
    assert clipped(top_k=9).allowed(public, bound).tolist() == [0, 2, 3, 4]


def test_half_precision_enters_and_double_precision_decides():
    clip, bound = clipped(batch_size=1000), 1e-3
    public = np.array([20.0, 17.0], dtype=np.float16)
    moved = clip.moved(np.array([[21.0, 10.0]], dtype=np.float16), public, bound)
    assert moved.dtype == np.float64
    assert moved[0] - 20.0 == pytest.approx(1e-6, rel=1e-6) and moved[1] - 17.0 == pytest.approx(-1e-6, rel=1e-6)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan])
def test_a_rate_must_be_a_probability(rate):
    with pytest.raises(ConfigError, match="rate"):
        sampled(rate=rate)
