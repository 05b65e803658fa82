"""Samplers of the word mechanisms match their laws, and a scale that is 10 % wrong is caught."""

import math

import numpy as np
import pytest
from scipy import stats

from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.words import at_places, multivariate_laplace, part_places, two_sided_geometric, uniforms

DRAWS = 100_000


def stream(*labels):
    return Key.from_insecure_seed(5).generator(*labels)


def geometric_p_value(draws, epsilon):
    """Chi-square against tanh(epsilon / 2) exp(-epsilon |z|), tails pooled."""
    edge = math.ceil(2 / epsilon)
    z = np.arange(-edge, edge + 1)
    mass = math.tanh(epsilon / 2) * np.exp(-epsilon * np.abs(z))
    expected = len(draws) * np.append(mass, 1 - mass.sum())
    observed = [np.sum(draws == value) for value in z] + [np.sum(np.abs(draws) > edge)]
    return stats.chisquare(observed, expected * np.sum(observed) / expected.sum()).pvalue


# rejected at 1e-6; with 100k draws a scale 10 % off gives p < 1e-20
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_two_sided_geometric_noise_matches_its_mass(epsilon):
    draws = two_sided_geometric(stream("geometric"), epsilon, DRAWS)
    assert draws.dtype == np.int64
    assert geometric_p_value(draws, epsilon) > 1e-6
    assert geometric_p_value(draws, 1.1 * epsilon) < 1e-6
    assert geometric_p_value(draws, 0.9 * epsilon) < 1e-6


@pytest.mark.parametrize("epsilon", [1e-15, 1e-17, 1e-30, 1e-100])
def test_a_tiny_scale_never_means_no_noise(epsilon):
    """Two numbers that were cut to what int64 holds before they are subtracted would differ by 0."""
    draws = two_sided_geometric(stream("tiny"), epsilon, 1000)
    assert np.abs(draws).min() > 1e10 and np.abs(draws).max() <= 2**53
    assert 400 < np.sum(draws > 0) < 600


def test_a_huge_scale_means_no_noise():
    assert not two_sided_geometric(stream("huge"), 1e300, 1000).any()


def test_draws_at_places_follow_the_weights():
    weights = np.array([0.0, 3.0, 0.0, 1.0, 4.0, 0.0])
    found = at_places(weights, uniforms(stream("places"), DRAWS))
    counts = np.bincount(found, minlength=6)
    assert not counts[weights == 0].any()
    assert stats.chisquare(counts[weights > 0], DRAWS * weights[weights > 0] / 8).pvalue > 1e-6
    assert stats.chisquare(counts[weights > 0], DRAWS * np.array([3.3, 0.9, 3.8]) / 8).pvalue < 1e-6


def test_a_weight_of_zero_is_never_drawn_at_the_ends():
    ends = np.array([0.0, np.nextafter(1, 0)])
    assert at_places(np.array([0.0, 1e-300, 1e300, 0.0]), ends).tolist() == [1, 2]
    assert at_places(np.array([0.0, 0.1, 0.1, 0.1, 0.0]), ends).tolist() == [1, 3]


def test_a_draw_in_two_steps_is_the_draw_in_one():
    weights = np.random.default_rng(0).random(40) * (np.arange(40) % 7 > 1)
    places = uniforms(stream("two steps"), 5000)
    parts, rest = part_places(weights.reshape(8, 5).sum(axis=1), places)
    assert ((rest >= 0) & (rest < 1)).all()
    inner = np.array([at_places(weights[5 * p : 5 * p + 5], rest[i : i + 1])[0] for i, p in enumerate(parts.tolist())])
    assert (5 * parts + inner == at_places(weights, places)).all()


def test_places_at_the_ends_of_parts_stay_within_them():
    ends = np.array([0.0, 0.5, np.nextafter(0.5, 0), np.nextafter(1, 0)])
    parts, rest = part_places(np.array([1e-300, 1.0, 1.0, 1e-300]), ends)
    assert ((rest >= 0) & (rest <= 1)).all() and parts.tolist() == [0, 2, 1, 2]
    assert at_places(np.array([0.0, 2.0, 3.0, 0.0]), rest).tolist() == [1, 1, 2, 2]


def test_noise_with_a_root_is_the_rooted_noise():
    """z = R z0 for the z0 of the same stream, so |R^-1 z| is Gamma(d, 1 / epsilon)."""
    root = np.array([[2.0, 0.5], [0.5, 1.0]])
    noise = multivariate_laplace(stream("root"), 1.5, DRAWS, 2, root)
    np.testing.assert_allclose(noise, multivariate_laplace(stream("root"), 1.5, DRAWS, 2) @ root.T, rtol=1e-12)
    radius = np.linalg.norm(np.linalg.solve(root, noise.T), axis=0)
    assert stats.kstest(radius, stats.gamma(2, scale=1 / 1.5).cdf).pvalue > 1e-6
    assert stats.kstest(1.1 * radius, stats.gamma(2, scale=1 / 1.5).cdf).pvalue < 1e-6
