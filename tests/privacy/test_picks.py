"""Picks by the exponential mechanism, and what is accounted by its cost in zCDP."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from dp_accounting import DpEvent, NonPrivateDpEvent, SelfComposedDpEvent, ZCDpEvent

from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.privacy.accounting import calibrate, extra_delta, rdp_epsilon
from hf_dpsynth.privacy.event_json import event_from_json, event_to_json
from hf_dpsynth.privacy.picks import BoundedRangeDpEvent, pick_event, picks


@dataclass(frozen=True)
class Perhaps(DpEvent):
    """A release that promises nothing with a probability, and costs next to nothing else."""

    extra_delta: float
    rho: float = 1e-9


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_a_pick_costs_no_more_renyi_than_its_rho(epsilon):
    """The worst pair of laws with a loss of that range, over its mixtures, by Renyi divergence of every order."""
    rho, worst = BoundedRangeDpEvent(epsilon).rho, 0.0
    for share, order in itertools.product(np.linspace(0.01, 0.99, 99), (1.001, 1.5, 2.0, 8.0, 64.0)):
        p, q = np.array([share, 1 - share]), np.array([share, (1 - share) * math.exp(epsilon)])
        q /= q.sum()
        renyi = math.log((p**order * q ** (1 - order)).sum()) / (order - 1)
        worst = max(worst, renyi / (order * rho))
    assert 0.85 < worst <= 1 + 1e-9


def test_picks_are_accounted_like_their_sum_in_zcdp():
    picks = SelfComposedDpEvent(BoundedRangeDpEvent(0.1), 210)
    assert rdp_epsilon(picks, 1e-5) == pytest.approx(rdp_epsilon(ZCDpEvent(210 * 0.1**2 / 8), 1e-5), rel=1e-12)
    multiplier = calibrate(lambda m: SelfComposedDpEvent(BoundedRangeDpEvent(1 / m), 210), 1.0, 1e-5, account="rdp")
    cost = [rdp_epsilon(SelfComposedDpEvent(BoundedRangeDpEvent(f / multiplier), 210), 1e-5) for f in (1, 1.001)]
    assert cost[0] <= 1.0 < cost[1]


def test_what_promises_nothing_is_taken_off_delta():
    event = SelfComposedDpEvent(Perhaps(1e-6), 4)
    assert extra_delta(event) == pytest.approx(4e-6)
    plain = SelfComposedDpEvent(ZCDpEvent(1e-9), 4)
    assert rdp_epsilon(event, 1e-5) == rdp_epsilon(plain, 1e-5 - extra_delta(event)) > rdp_epsilon(plain, 1e-5)
    assert rdp_epsilon(event, 4e-6) == math.inf


@pytest.mark.parametrize("event", [BoundedRangeDpEvent(0.1), ZCDpEvent(0.3)])
def test_events_come_back_from_json(event):
    assert event_from_json(event_to_json(event)) == event


@pytest.mark.parametrize("cost", [{"rho": -0.1}, {"rho": 0.0}, {"rho": math.inf}, {"rho": 0.1, "xi": 1.0}])
def test_a_stored_cost_out_of_range_is_refused(cost):
    with pytest.raises(PrivacyError, match="rho"):
        event_from_json(event_to_json(ZCDpEvent(**cost)))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_a_range_must_be_a_positive_number(epsilon):
    with pytest.raises(ConfigError, match="range of a pick"):
        BoundedRangeDpEvent(epsilon)


SCORES = np.array([3, 1, 0, 2])


def law(multiplier, again):
    """The probability of each ordered pair of picks, by enumeration."""
    weights, table = np.exp(SCORES / multiplier), np.zeros((4, 4))
    for first, second in itertools.product(range(4), repeat=2):
        rest = weights.sum() if again else weights.sum() - weights[first]
        share = weights[first] / weights.sum() * weights[second] / rest
        table[first, second] = share if again or first != second else 0.0
    return table


@pytest.mark.parametrize("again", [False, True])
def test_two_picks_have_the_law_of_the_exponential_mechanism(again):
    """At 12,000 draws a scale 10 % off moves the statistic of 11 or 15 degrees of freedom beyond the bound."""
    generator, draws, multiplier = np.random.default_rng(5), 12_000, 1.5
    counts = np.zeros((4, 4))
    for _ in range(draws):
        counts[tuple(picks(generator, SCORES, multiplier, 2, again=again))] += 1

    def distance(table):
        seen = table > 0
        return (((counts - draws * table) ** 2)[seen] / (draws * table)[seen]).sum()

    bound = 45.0  # beyond 1 - 1e-4 of chi-squared with 15 degrees of freedom
    assert counts[law(multiplier, again) == 0].sum() == 0
    assert distance(law(multiplier, again)) < bound
    assert min(distance(law(multiplier * factor, again)) for factor in (0.9, 1.1)) > bound


def test_picks_without_noise_are_the_largest_scores_and_never_more_than_there_are():
    generator = np.random.default_rng(0)
    assert picks(generator, SCORES, 0.0, 2).tolist() == [0, 3]
    assert picks(generator, SCORES, 0.0, 3, again=True).tolist() == [0, 0, 0]
    assert sorted(picks(generator, SCORES, 1.0, 9).tolist()) == [0, 1, 2, 3]
    assert len(picks(generator, SCORES, 1.0, 9, again=True)) == 9


@pytest.mark.parametrize(("adjacency", "moves"), [("add-remove", [0, 1]), ("replace-one", [-1, 0, 1])])
def test_the_range_of_a_pick_is_what_its_event_says(adjacency, moves):
    event, worst = pick_event(1.5, adjacency), 0.0
    for moved in itertools.product(moves, repeat=4):
        logs = [scores / 1.5 - math.log(np.exp(scores / 1.5).sum()) for scores in (SCORES, SCORES + np.array(moved))]
        worst = max(worst, np.ptp(logs[0] - logs[1]))
    assert worst == pytest.approx(event.epsilon)
    assert pick_event(0.0, adjacency) == NonPrivateDpEvent()
