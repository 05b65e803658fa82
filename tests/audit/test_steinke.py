"""The one-run audit against published numbers, an independent count, and mechanisms of a known epsilon."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import brentq

from hf_dpsynth.audit import one_run
from hf_dpsynth.audit.rates import gaussian_epsilon
from hf_dpsynth.audit.steinke import epsilon_bound, p_value
from hf_dpsynth.errors import ConfigError


def coins(m, seed=0):
    return np.random.default_rng(seed).integers(0, 2, m).astype(bool)


# Steinke, Nasr & Jagielski 2023, arXiv:2305.08846v1: Appendix D, p. 46, and section 7, p. 28 (cut after 3 digits)
@pytest.mark.parametrize(
    ("m", "guesses", "correct", "delta", "published"),
    [(1000, 100, 75, 1e-4, 0.673), (10**5, 1510, 1439, 1e-5, 2.675)],
)
def test_published_bounds_come_out(m, guesses, correct, delta, published):
    assert epsilon_bound(m, guesses, correct, delta, 0.05) == pytest.approx(published, abs=1e-3)


def by_convolution(guesses, q):
    """The law of the number of right guesses, one coin after the other."""
    law = np.ones(1)
    for _ in range(guesses):
        law = np.convolve(law, [1 - q, q])
    return law


@pytest.mark.parametrize(
    ("m", "guesses", "correct", "epsilon", "delta"),
    [
        (50, 20, 15, 0.5, 0.0),
        (50, 20, 15, 0.5, 1e-3),
        (300, 100, 93, 2.0, 1e-4),
        (9, 9, 9, 0.0, 1e-2),
        (9, 4, 0, 1, 0.1),
    ],
)  # fmt: skip
def test_the_p_value_is_that_of_a_convolution(m, guesses, correct, epsilon, delta):
    law = by_convolution(guesses, math.exp(epsilon) / (1 + math.exp(epsilon)))
    best = max((law[correct - i : correct].sum() / i for i in range(1, correct + 1)), default=0.0)
    want = min(1.0, law[correct:].sum() + 2 * m * delta * best)
    assert p_value(m, guesses, correct, epsilon, delta) == pytest.approx(want, rel=1e-9)


def test_no_mechanism_on_few_canaries_beats_the_p_value():
    """All randomized responses of epsilon 1 that fail, each with probability delta, by telling the coin."""
    epsilon, delta, m = 1.0, 0.02, 6
    q, reached = math.exp(epsilon) / (1 + math.exp(epsilon)), 0.0
    for correct in range(1, m + 1):
        right = delta + (1 - delta) * q
        law = by_convolution(m, right)
        truth, bound = law[correct:].sum(), p_value(m, m, correct, epsilon, delta)
        assert truth <= bound
        reached = max(reached, truth / bound)
    assert reached > 0.9
    assert by_convolution(m, 0.9)[m:].sum() > p_value(m, m, m, epsilon, delta), "a larger loss does exceed it"


def test_the_bound_exceeds_a_true_epsilon_as_seldom_as_the_confidence_says():
    """Randomized response at epsilon 1, pure, with all canaries guessed: the worst case. 2000 audits at .9."""
    rng, wrong = np.random.default_rng(4), 0
    correct = rng.binomial(200, math.e / (1 + math.e), 2000)
    bounds = {value: epsilon_bound(200, 200, int(value), 0.0, 0.1) for value in set(correct)}
    wrong = sum(bounds[value] > 1 for value in correct)
    assert 100 < wrong < 240  # the level is .1, less what a whole number of guesses leaves: .05 to .1, 5 errors


def gaussian_scores(epsilon, m, seed, delta=1e-5):
    mu = brentq(lambda one: gaussian_epsilon(one, delta) - epsilon, 0.01, 20)
    included = coins(m, seed)
    return mu * included + np.random.default_rng(1000 + seed).standard_normal(m), included


def test_the_ideal_mechanism_at_epsilon_4_gives_the_known_figure():
    """A Gaussian mechanism at (4, 1e-5), 1000 canaries that do not disturb each other, confidence .95: the
    means of 2000 audits by an implementation that draws its own scores; here their standard errors are .01 to .06."""
    for guesses, want in ((50, 1.52), (100, 1.53), (200, 1.40), (1000, 0.63)):
        found = [
            one_run(*gaussian_scores(4.0, 1000, seed), 1e-5, 0.95, guesses=guesses).epsilon_lower for seed in range(40)
        ]
        assert np.mean(found) == pytest.approx(want, abs=0.2) and max(found) < 4
    default = one_run(*gaussian_scores(4.0, 1000, 0), 1e-5, 0.95)
    assert default == one_run(*gaussian_scores(4.0, 1000, 0), 1e-5, 0.95, guesses=100)


def test_blind_guesses_show_nothing_and_perfect_ones_much():
    truth = coins(1000)
    noise = np.random.default_rng(1).standard_normal(1000)
    blind, sure = (one_run(scores, truth, 1e-5, 0.95) for scores in (noise, truth + 0.01 * noise))
    assert blind.epsilon_lower < 0.5 < 3 < sure.epsilon_lower
    assert (sure.guesses, sure.correct, sure.m, sure.confidence, sure.delta) == (100, 100, 1000, 0.95, 1e-5)
    assert one_run(-noise - truth, truth, 1e-5, 0.95).epsilon_lower == 0


def test_several_numbers_of_guesses_share_the_confidence():
    scores, included = gaussian_scores(8.0, 400, 0)
    several = one_run(scores, included, 1e-5, 0.95, guesses=(20, 50, 100, 400))
    singles = [one_run(scores, included, 1e-5, 1 - 0.05 / 4, guesses=number) for number in (20, 50, 100, 400)]
    assert several.epsilon_lower == max(one.epsilon_lower for one in singles)
    assert several.tried == (20, 50, 100, 400) and "The best of 4 numbers of guesses" in several.statement()


def test_guesses_of_one_side_are_right_where_only_large_scores_tell():
    """A tenth of the included have a large score and nobody else: guesses of both sides are half blind."""
    included = coins(1000)
    scores = np.random.default_rng(0).random(1000) + 10.0 * (included & (np.arange(1000) % 5 == 0))
    both, one = (one_run(scores, included, 1e-5, 0.95, included_share=share).epsilon_lower for share in (0.5, 1.0))
    assert both < 1.2 < 2.5 < one
    assert one_run(-scores, ~included, 1e-5, 0.95, included_share=0.0).epsilon_lower == pytest.approx(one)
    noise = np.random.default_rng(1).standard_normal(1000)
    assert one_run(noise, included, 1e-5, 0.95, included_share=1.0).epsilon_lower < 0.5
    for wrong in (-0.1, 1.1, True, math.nan):
        with pytest.raises(ConfigError, match="included_share"):
            one_run(scores, included, 1e-5, 0.95, included_share=wrong)


def test_equal_scores_do_not_follow_the_order_of_the_canaries():
    """Sorted by inclusion, with nearly equal scores: a tie that falls to the place would tell who was included."""
    included = np.sort(coins(1000))
    scores = np.zeros(1000)
    scores[0] = -1.0
    assert one_run(scores, included, 1e-5, 0.95).epsilon_lower < 0.5
    assert one_run(scores, included[::-1], 1e-5, 0.95).epsilon_lower < 0.5


def test_the_bound_grows_with_right_guesses_and_falls_with_delta_and_confidence():
    for guesses, delta in itertools.product((20, 100), (0.0, 1e-5)):
        bounds = [epsilon_bound(1000, guesses, correct, delta, 0.05) for correct in range(guesses + 1)]
        assert bounds == sorted(bounds) and bounds[guesses // 2] == 0 < bounds[-1]
        assert epsilon_bound(1000, guesses, guesses - 1, delta, 0.01) < bounds[-2]
    assert epsilon_bound(1000, 100, 90, 1e-4, 0.05) < epsilon_bound(1000, 100, 90, 0.0, 0.05)


@pytest.mark.parametrize(("m", "delta"), [(4, 1e-5), (30, 0.4)])
def test_too_few_canaries_say_so(m, delta):
    included = np.arange(m) % 2 == 0
    found = one_run(included.astype(float), included, delta, 0.95)
    assert found.epsilon_lower == 0 and found.correct == found.guesses
    assert f"{m} canaries" in found.statement() and "too few for any claim" in found.statement()
    enough = one_run(*gaussian_scores(4.0, 1000, 0), 1e-5, 0.95)
    assert "too few" not in enough.statement()


@pytest.mark.parametrize(
    ("scores", "included", "words"),
    [
        (np.zeros(40), coins(40), "all scores are equal"), (np.arange(40), np.ones(40, bool), "40 of 40 canaries"),
        (np.arange(40), np.zeros(40, bool), "0 of 40 canaries"), (np.arange(4), coins(40), "shape"),
        (np.full(40, math.nan), coins(40), "not finite"), (np.arange(40), np.arange(40), "True and False"),
        ([], [], "shape"), (np.arange(1000), np.arange(1000) < 300, "300 of 1000 .* fair coin"),
    ],
)  # fmt: skip
def test_scores_and_coins_that_cannot_be_audited_are_refused(scores, included, words):
    with pytest.raises(ConfigError, match=words):
        one_run(scores, included, 1e-5, 0.95)


@pytest.mark.parametrize("guesses", [0, 41, 2.5, True, (), (20, 0)])
def test_a_number_of_guesses_out_of_range_is_refused(guesses):
    with pytest.raises(ConfigError, match="guesses="):
        one_run(np.arange(40), coins(40), 1e-5, 0.95, guesses=guesses)
