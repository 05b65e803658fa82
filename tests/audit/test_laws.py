"""Tests of laws accept what is right and refuse what is not. All draws are of fixed seeds."""

import numpy as np
import pytest
from scipy import stats

from hf_dpsynth.audit import audit_counts, audit_independence, audit_noise, audit_sampling
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.sgd import PoissonSampling


def rng(seed=0):
    return np.random.default_rng(seed)


# 40,000 draws: 200 of 200 scales 10 % off were refused at 1e-6, and a right one is once in a million
@pytest.mark.parametrize("law", [stats.norm(), stats.gamma(1), stats.gamma(50), stats.laplace()])
def test_a_scale_that_is_ten_percent_off_is_refused(law):
    draws = law.rvs(size=40_000, random_state=rng())
    assert not audit_noise(draws, law.cdf).violated
    assert audit_noise(1.1 * draws, law.cdf).violated and audit_noise(draws / 1.1, law.cdf).violated


def test_a_right_law_is_refused_as_seldom_as_the_confidence_says():
    """1000 audits at .9: the number of refusals has a standard deviation of 9.5."""
    generator = rng(1)
    wrong = sum(audit_noise(generator.standard_normal(200), stats.norm.cdf, 0.9).violated for _ in range(1000))
    assert 60 < wrong < 140
    share = np.array([0.2, 0.3, 0.5])
    wrong = sum(audit_counts(generator.multinomial(500, share), share, 0.9).violated for _ in range(1000))
    assert 60 < wrong < 140
    wrong = sum(audit_independence(generator.standard_normal((2, 9)), 0.9).violated for _ in range(1000))
    assert 60 < wrong < 140


def test_counts_of_what_has_no_probability_and_of_what_is_rare():
    share = np.array([0.5, 0.5 - 1e-9, 1e-9, 0.0])
    assert not audit_counts(np.array([510, 490, 0, 0]), share).violated
    assert not audit_counts(np.array([510, 489, 1, 0]), share).violated
    assert audit_counts(np.array([510, 488, 2, 0]), share).violated
    assert audit_counts(np.array([510, 489, 0, 1]), share).violated
    assert not audit_counts(np.array([100, 0]), np.array([1.0, 0.0])).violated


def test_an_outcome_that_is_rare_and_came_once_does_not_refute_a_right_law():
    """Expected .002 to .05 times, it comes once in 500 to once in 20 audits, which level 1e-6 must not notice."""
    for rare in (2e-6, 2e-5, 5e-5):
        share = np.array([0.5, 0.5 - rare, rare])
        assert not audit_counts(np.array([505, 494, 1]), share).violated
        assert audit_counts(np.array([505, 483, 12]), share).violated


@pytest.mark.parametrize("expected", [2, 5, 20, 200])
def test_the_level_of_counts_holds_far_out_for_small_counts_too(expected):
    """Summed over all counts of one outcome of 100,000 draws. Chi-square alone at 5 expected: 69 times the level."""
    n, miss = 100_000, 1e-6
    share, refused = np.array([expected / n, 1 - expected / n]), 0.0
    for count in range(expected * 3 + 40):
        if audit_counts(np.array([count, n - count]), share).violated:
            refused += stats.binom.pmf(count, n, share[0])
    assert refused < 2 * miss


# the spread that is taken for that of a normal law, and neighbouring pairs for independent ones: .345, .026, .105, .02
@pytest.mark.parametrize(
    ("steps", "records", "probability"), [(5000, 5, 0.01), (1000, 60, 0.5), (2, 60, 0.2), (50, 60, 0.2)]
)
def test_a_right_sampler_is_refused_as_seldom_as_the_confidence_says(steps, records, probability):
    """600 audits at .99: 6 are due at most, and 16 come once in 10,000."""
    generator, wrong = rng(5), 0
    for _ in range(600):
        drawn = generator.random((steps, records), dtype=np.float32) < probability
        wrong += audit_sampling(drawn, probability, 0.99).violated
    assert wrong < 16


def test_batches_that_take_neighbours_together_or_have_one_size_are_refused():
    generator = rng(6)
    chosen = generator.random((4000, 30)) < 0.2
    assert audit_sampling(np.repeat(chosen, 2, axis=1), 0.2).violated
    shifted = np.roll(np.repeat(chosen, 2, axis=1), 1, axis=1)
    assert audit_sampling(shifted, 0.2).violated, "pairs that begin at odd places"
    fixed = generator.random((4000, 60)).argsort(axis=1) < 12
    assert audit_sampling(fixed, 0.2).violated
    assert not audit_sampling(np.ones((1, 3), bool), 0.9).violated, "one step says nothing of the spread"


def test_workers_whose_streams_have_no_name_of_their_own_share_noise():
    key = Key.from_insecure_seed(3)
    right = np.stack([key.generator("noise", rank).standard_normal(500) for rank in range(4)])
    wrong = np.stack([key.generator("noise").standard_normal(500) for _ in range(2)])
    assert not audit_independence(right).violated
    assert audit_independence(wrong).violated
    assert audit_independence(np.stack([*right, 0.5 * right[2]])).violated
    assert audit_independence(np.stack([*right, -right[0]])).violated
    assert audit_independence(np.stack([*right, 0.5 * right[0] + right[1]])).violated
    assert audit_independence(np.zeros((2, 9))).violated, "no noise at all"


def test_the_event_of_another_batch_size_is_refused():
    batches = PoissonSampling(num_records=60, batch_size=12, steps=2000)
    drawn = np.zeros((2000, 60), dtype=bool)
    for step in range(2000):
        drawn[step, batches.batch(Key.from_insecure_seed(1), step, 60)] = True
    assert not audit_sampling(drawn, batches.probability).violated
    assert audit_sampling(drawn, 14 / 60).violated and audit_sampling(drawn, 10 / 60).violated


def test_what_cannot_be_tested_is_refused():
    for wrong in (
        lambda: audit_noise(np.zeros((2, 2)), stats.norm.cdf),
        lambda: audit_noise(np.zeros(0), stats.norm.cdf),
        lambda: audit_noise(np.zeros(3), stats.norm.cdf, 1.0),
        lambda: audit_counts(np.array([1, 2]), np.array([0.5, 0.3, 0.2])),
        lambda: audit_counts(np.array([1, 2]), np.array([1.5, -0.5])),
        lambda: audit_counts(np.array([0, 0]), np.array([0.5, 0.5])),
        lambda: audit_counts(np.array([-5, 10]), np.array([0.5, 0.5])),
        lambda: audit_counts(np.array([5, 3]), np.array([0.5, 0.3])),
        lambda: audit_counts(np.array([5, 3]), np.array([0.0, 0.0])),
        lambda: audit_independence(np.zeros((1, 9))),
        lambda: audit_sampling(np.zeros((4, 4)), 0.5),
        lambda: audit_sampling(np.zeros((4, 4), dtype=bool), 0.0),
    ):
        with pytest.raises(ConfigError):
            wrong()
