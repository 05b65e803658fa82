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
        lambda: audit_independence(np.zeros((1, 9))),
        lambda: audit_sampling(np.zeros((4, 4)), 0.5),
        lambda: audit_sampling(np.zeros((4, 4), dtype=bool), 0.0),
    ):
        with pytest.raises(ConfigError):
            wrong()
