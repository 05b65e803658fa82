"""Samplers of words match their laws, and a scale that is 10 % wrong is caught (rejected at 1e-6)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hf_dpsynth.audit import audit_counts, audit_noise
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.words import (
    at_places,
    multivariate_laplace,
    randomized_response,
    two_sided_geometric,
    uniforms,
)

DRAWS = 200_000


def generator(seed=0):
    return Key.from_insecure_seed(seed).generator("words")


def fits(counts, probabilities):
    return not audit_counts(counts, probabilities).violated


def geometric_law(epsilon, edge):
    """Inusah & Kozubowski 2006: P(z) = (1 - p) / (1 + p) p^|z|; tails pooled at both ends."""
    p = np.exp(-epsilon)
    z = np.arange(-edge + 1, edge)
    tail = p**edge / (1 + p)
    return np.array([tail, *((1 - p) / (1 + p) * p ** np.abs(z)), tail])


# 200,000 draws: chi-square of a scale 10 % off has a non-centrality above 400 for each of these; power > .999
@pytest.mark.parametrize(("epsilon", "edge"), [(0.2, 20), (1.0, 6), (3.0, 3)])
def test_the_geometric_noise_has_its_law_and_a_wrong_scale_is_caught(epsilon, edge):
    draws = np.clip(two_sided_geometric(generator(), epsilon, DRAWS), -edge, edge)
    counts = np.bincount(draws + edge, minlength=2 * edge + 1)
    assert fits(counts, geometric_law(epsilon, edge))
    for wrong in (0.9, 1.1):
        assert not fits(counts, geometric_law(wrong * epsilon, edge))


def test_geometric_noise_of_a_tiny_scale_does_not_cancel():
    draws = two_sided_geometric(generator(), 1e-100, 1000)
    assert (np.abs(draws) == 2**53).all() and 400 < (draws > 0).sum() < 600
    assert not two_sided_geometric(generator(), np.inf, 1000).any()


def test_elliptical_noise_is_laplace_in_its_own_norm():
    root = np.array([[2.0, 0.3], [0.3, 0.5]])
    noise = multivariate_laplace(generator(), 1.5, DRAWS, 2, root)
    radius = np.linalg.norm(noise @ np.linalg.inv(root).T, axis=1)
    gamma = stats.gamma(2, scale=1 / 1.5)
    assert not audit_noise(radius, gamma.cdf).violated
    assert audit_noise(radius * 1.1, gamma.cdf).violated
    # the noise R u r has the covariance E r^2 / d R R^T, with E r^2 = d (d + 1) / epsilon^2
    assert np.allclose(np.cov(noise.T), 3 / 1.5**2 * root @ root.T, rtol=0.03)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_the_response_keeps_its_share_and_spreads_the_rest_evenly(epsilon):
    kept = np.exp(epsilon) / (np.exp(epsilon) + 10)
    answers = randomized_response(generator(), np.full(DRAWS, 3), epsilon, 11)
    counts = np.bincount(answers, minlength=11)
    law = np.full(11, (1 - kept) / 10)
    law[3] = kept
    assert fits(counts, law)
    off = np.exp(1.1 * epsilon) / (np.exp(1.1 * epsilon) + 10)
    wrong = np.full(11, (1 - off) / 10)
    wrong[3] = off
    assert not fits(counts, wrong)


def test_an_infinite_response_keeps_everything_and_a_bad_one_is_refused():
    values = np.arange(5)
    assert (randomized_response(generator(), values, np.inf, 5) == values).all()
    for epsilon, categories in ((0.0, 5), (-1.0, 5), (np.nan, 5), (1.0, 1)):
        with pytest.raises(ConfigError, match="it must be > 0"):
            randomized_response(generator(), values, epsilon, categories)


def test_uniform_places_draw_a_discrete_distribution():
    weights = np.array([0.0, 3.0, 0.0, 1.0, 6.0, 0.0])
    found = at_places(weights, uniforms(generator(), DRAWS))
    counts = np.bincount(found, minlength=6)
    assert not counts[weights == 0].any()
    assert fits(counts[weights > 0], weights[weights > 0] / weights.sum())


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=20).filter(lambda values: sum(values) > 1e-300),
    st.floats(0, 1, exclude_max=True),
)
def test_no_place_draws_what_has_no_weight(weights, place):
    found = at_places(np.array(weights), np.array([place, 0.0, np.nextafter(1, 0)]))
    assert all(weights[index] > 0 for index in found)
