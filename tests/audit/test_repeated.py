"""Error rates and what they prove: intervals against exact tails, epsilons against the accountant, and coverage."""

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from scipy.stats import binom, norm

from hf_dpsynth.audit import multi_run
from hf_dpsynth.audit.rates import direct_epsilon, gaussian_epsilon, gaussian_mu, lower_rate, upper_rate
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.accounting import epsilon


@pytest.mark.parametrize(
    ("errors", "trials", "miss"), [(0, 10, 0.05), (3, 10, 0.05), (400, 2000, 0.005), (9, 10, 0.1)]
)
def test_a_rate_at_the_end_of_its_interval_gives_so_few_errors_as_seldom_as_stated(errors, trials, miss):
    assert binom.cdf(errors, trials, upper_rate(errors, trials, miss)) == pytest.approx(miss)
    if errors:
        assert binom.sf(errors - 1, trials, lower_rate(errors, trials, miss)) == pytest.approx(miss)


def test_the_ends_of_no_error_and_of_nothing_else():
    assert upper_rate(10, 10, 0.05) == 1 and lower_rate(0, 10, 0.05) == 0
    assert upper_rate(0, 10, 0.05) == pytest.approx(1 - 0.05 ** (1 / 10))


@pytest.mark.parametrize("mu", [0.3, 1.0, 4.0])
def test_the_epsilon_of_a_mu_is_that_of_the_accountant(mu):
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(epsilon(GaussianDpEvent(1 / mu), 1e-5), abs=2e-3)
    assert gaussian_epsilon(mu, 1e-5) <= epsilon(GaussianDpEvent(1 / mu), 1e-5)


def test_rates_of_a_gaussian_give_its_mu_and_those_of_a_guess_nothing():
    assert gaussian_mu(norm.sf(0.7), norm.cdf(0.7 - 1.5)) == pytest.approx(1.5)
    assert gaussian_mu(0.5, 0.6) == 0 == gaussian_epsilon(0.0, 1e-5) == direct_epsilon(0.5, 0.5, 0.0)
    assert direct_epsilon(0.1, 0.3, 0.0) == pytest.approx(math.log(7)) == direct_epsilon(0.3, 0.1, 0.0)


def test_randomized_response_is_bounded_by_its_epsilon_and_closely():
    """With 20,000 runs at epsilon 1 the rates are known to .009 each, so the bound lies .05 below."""
    keep = math.e / (1 + math.e)
    rng = np.random.default_rng(0)
    scores = [(rng.random(20_000) < share).astype(float) for share in (1 - keep, keep)]
    found = multi_run(*scores, 1e-5, 0.99, threshold=0.5, claimed_epsilon=1.0)
    assert 0.9 < found.epsilon_lower < 1 and not found.violated
    assert multi_run(*scores, 1e-5, 0.99, threshold=0.5, claimed_epsilon=0.8).violated
    assert found.epsilon_gaussian > 1, "its trade-off is not Gaussian: that bound does not hold here"


def test_a_gaussian_is_bounded_by_both_and_the_second_is_closer():
    rng = np.random.default_rng(1)
    found = multi_run(rng.standard_normal(4000), 1 + rng.standard_normal(4000), 1e-5, 0.99)
    assert 0.3 < found.epsilon_direct < found.epsilon_gaussian < gaussian_epsilon(1.0, 1e-5)
    assert found.n == 4000 and "second half" in found.statement() and 0.5 < found.mu_lower < 1


def test_the_bound_of_chosen_thresholds_is_too_high_as_seldom_as_stated():
    """500 audits at .8 of a Gaussian of mu 1: in .2 at most, in fact less, as both rates rarely fail together."""
    rng, wrong = np.random.default_rng(2), 0
    for _ in range(500):
        wrong += multi_run(rng.standard_normal(60), 1 + rng.standard_normal(60), 1e-3, 0.8).mu_lower > 1
    assert wrong < 100
    same = [multi_run(*rng.standard_normal((2, 60)), 1e-3, 0.8).epsilon_lower > 0 for _ in range(200)]
    assert sum(same) < 40


def test_scores_that_tell_nothing_or_are_too_few_are_refused():
    twenty = np.arange(20.0)
    for wrong, words in (
        ((np.zeros(20), np.zeros(20)), "all scores are equal"),
        ((twenty[:9], twenty), "without="),
        ((twenty, np.full(20, math.inf)), "present="),
    ):
        with pytest.raises(ConfigError, match=words):
            multi_run(*wrong, 1e-5, 0.9)
    with pytest.raises(ConfigError, match="threshold is nan"):
        multi_run(twenty, twenty, 1e-5, 0.9, threshold=math.nan)


def test_too_few_runs_say_so():
    few, enough = (multi_run(np.arange(n) % 5, 9 + np.arange(n) % 5, 1e-5, 0.99) for n in (10, 40))
    assert few.epsilon_lower == 0 and "5 runs on a side are too few for any claim" in few.statement()
    assert enough.epsilon_lower > 0 and "too few" not in enough.statement()
