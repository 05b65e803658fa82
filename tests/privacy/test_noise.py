"""Samplers match their density, and a scale that is 10 % wrong is caught."""

import math

import numpy as np
import pytest
from scipy import stats

from hf_dpsynth.audit import audit_counts, audit_noise
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.noise import DiscreteGaussianDpEvent, discrete_gaussian
from hf_dpsynth.privacy.words import multivariate_laplace

DRAWS = 40_000


def refuted(draws, sigma):
    """Whether draws have other probabilities than the discrete Gaussian's, tails pooled."""
    edge = math.ceil(3 * sigma)
    z = np.arange(-20 * edge, 20 * edge + 1)
    mass = np.exp(-(z**2) / (2 * sigma**2))
    mass /= mass.sum()
    inner = np.abs(z) <= edge
    observed = [np.sum(draws == value) for value in z[inner]] + [np.sum(np.abs(draws) > edge)]
    return audit_counts(np.array(observed), np.append(mass[inner], mass[~inner].sum())).violated


# rejected at 1e-6, so that the test flakes once in a million; at 40,000 draws a scale 10 % off gives p < 1e-20
@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0, 13.4])
def test_the_discrete_gaussian_matches_its_density_and_a_wrong_scale_is_caught(sigma):
    draws = discrete_gaussian(np.zeros(DRAWS, dtype=np.int64), sigma)
    assert not refuted(draws, sigma)
    assert refuted(draws, sigma * 1.1)
    assert refuted(draws, sigma / 1.1)


def test_the_noise_is_added_to_the_counts():
    counts = np.asarray([10**6, -(10**6), 0])
    assert np.abs(discrete_gaussian(counts, 2.0) - counts).max() < 40


def test_two_draws_differ():
    zeros = np.zeros(64, dtype=np.int64)
    assert (discrete_gaussian(zeros, 5.0) != discrete_gaussian(zeros, 5.0)).any()


def test_no_noise_is_added_without_privacy():
    assert discrete_gaussian(np.asarray([3, 4]), 0.0).tolist() == [3, 4]


@pytest.mark.parametrize("sigma", [-1.0, math.nan, math.inf])
def test_a_scale_that_is_no_number_is_refused(sigma):
    with pytest.raises(ConfigError, match="sigma is"):
        discrete_gaussian(np.zeros(2, dtype=np.int64), sigma)


def test_real_counts_are_refused():
    with pytest.raises(ConfigError, match="integers"):
        discrete_gaussian(np.zeros(2), 1.0)


def test_an_event_without_noise_or_shift_cannot_be_made():
    for sigma, shifts in ((0.0, (1,)), (1.0, ()), (1.0, (0,)), (math.nan, (1,))):
        with pytest.raises(ConfigError):
            DiscreteGaussianDpEvent(sigma, shifts)


# KS at 40,000 draws: a scale 10 % off moves the distribution function of a Gamma(d) radius by > .04, p < 1e-50
@pytest.mark.parametrize("dimension", [1, 3, 50])
def test_the_radius_of_the_laplace_noise_is_gamma_and_a_wrong_scale_is_caught(dimension):
    noise = multivariate_laplace(Key().generator("noise"), 2.0, DRAWS, dimension)
    radius = np.linalg.norm(noise, axis=1)
    assert not audit_noise(radius, stats.gamma(dimension, scale=1 / 2.0).cdf).violated
    assert audit_noise(radius * 1.1, stats.gamma(dimension, scale=1 / 2.0).cdf).violated


def test_the_direction_of_the_laplace_noise_is_uniform():
    noise = multivariate_laplace(Key().generator("noise"), 1.0, DRAWS, 3)
    direction = noise / np.linalg.norm(noise, axis=1, keepdims=True)
    for axis in range(3):  # on the sphere in three dimensions each coordinate is uniform on [-1, 1]
        assert not audit_noise(direction[:, axis], stats.uniform(-1, 2).cdf).violated
