"""Accounting against independent numbers: published calibrations, enumeration, dp-accounting's own events."""

import logging
import math

import numpy as np
import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.privacy import accounting
from hf_dpsynth.privacy.event_json import event_from_json, event_to_json
from hf_dpsynth.privacy.noise import DiscreteGaussianDpEvent
from hf_dpsynth.privacy.scales import metric_scale
from hf_dpsynth.privacy.words import MultivariateLaplaceDpEvent

# Xie et al. 2024, arXiv:2403.01749: noise multipliers of 10 rounds at epsilon 1, 2, 4 and delta 1/(n ln n)
PUBLISHED = {1939290: (15.40, 8.04, 4.25), 8396: (11.60, 6.21, 3.37), 75316: (13.25, 7.00, 3.75)}
SGD = SelfComposedDpEvent(PoissonSampledDpEvent(0.04096, GaussianDpEvent(1.0)), 1000)


def rounds(sigma, number, shifts=(1,)):
    return SelfComposedDpEvent(DiscreteGaussianDpEvent(sigma, shifts), number)


def calibrated(epsilon, delta, number=10, shifts=(1,), **more):
    return accounting.calibrate(
        lambda s: rounds(s, number, shifts), epsilon, delta,
        start=math.sqrt(number * len(shifts)) / accounting.gaussian_mu(epsilon, delta), **more,
    )  # fmt: skip


@pytest.mark.parametrize("n", PUBLISHED)
def test_calibration_equals_the_published_multipliers(n):
    for epsilon, sigma in zip((1.0, 2.0, 4.0), PUBLISHED[n], strict=True):
        assert abs(calibrated(epsilon, 1 / (n * math.log(n))) - sigma) <= 0.02


def exact_epsilon(sigma, delta, releases=1):
    """Hockey-stick divergence of discrete Gaussians by enumeration and direct convolution of losses."""
    z = np.arange(-int(12 * sigma) - 12, int(12 * sigma) + 13)
    p = np.exp(-(z**2) / (2 * sigma**2))
    p /= p.sum()
    losses, masses = (1 - 2 * z) / (2 * sigma**2), p  # ln P(z) / P(z - 1)
    total_losses, total_masses = np.zeros(1), np.ones(1)
    for _ in range(releases):
        total_losses = (total_losses[:, None] + losses).ravel()
        total_masses = (total_masses[:, None] * masses).ravel()
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        excess = np.clip(1 - np.exp(np.minimum(middle - total_losses, 0.0)), 0, None)
        low, high = (low, middle) if (excess * total_masses).sum() <= delta else (middle, high)
    return high


@pytest.mark.parametrize(("sigma", "releases"), [(1.0, 1), (3.0, 1), (2.0, 2), (3.0, 3)])
def test_the_account_equals_enumeration_and_never_falls_below_it(sigma, releases):
    exact = exact_epsilon(sigma, 1e-5, releases)
    account = accounting.epsilon(rounds(sigma, releases), 1e-5)
    assert exact - 1e-9 <= account <= exact + 2e-4 * releases


def test_the_discrete_gaussian_costs_more_than_the_formula_says():
    cost = accounting.epsilon(DiscreteGaussianDpEvent(1.0), 1e-5)
    assert abs(cost - 4.430) < 1e-3
    assert abs(accounting.gaussian_mu(cost, 1e-5) - 1.0) > 0.005


@settings(max_examples=12, deadline=None)
@given(st.floats(0.05, 12.0), st.integers(1, 20), st.floats(-9, -3), st.sampled_from([(1,), (1, 1), (1, 1, 1)]))
def test_calibrate_then_account_comes_back_and_never_above(epsilon, number, log_delta, shifts):
    delta = 10**log_delta
    sigma = calibrated(epsilon, delta, number, shifts)
    cost = accounting.epsilon(rounds(sigma, number, shifts), delta, discretisation=accounting.interval(epsilon))
    assert cost <= epsilon
    assert accounting.epsilon(
        rounds(sigma * 0.995, number, shifts), delta, discretisation=accounting.interval(epsilon)
    ) > min(epsilon, cost)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 30.0, 1e3, 1e6])
def test_extreme_epsilons_calibrate_without_overflow(epsilon):
    sigma = calibrated(epsilon, 1e-6)
    assert 0 < sigma < 1e6
    discretisation = accounting.interval(epsilon)
    assert accounting.epsilon(rounds(sigma, 10), 1e-6, discretisation=discretisation) <= epsilon


@given(st.floats(0.01, 20.0), st.floats(-9, -2))
def test_the_closed_forms_are_inverse_to_each_other(epsilon, log_delta):
    mu = accounting.gaussian_mu(epsilon, 10**log_delta)
    assert accounting.gaussian_epsilon(mu, 10**log_delta) == pytest.approx(epsilon, rel=1e-4)


def test_a_replaced_vote_costs_the_square_root_of_two():
    assert abs(calibrated(1.0, 1e-6, shifts=(1, 1)) / calibrated(1.0, 1e-6) - math.sqrt(2)) < 0.02


def test_events_of_dp_accounting_keep_their_regression_numbers():
    assert abs(accounting.epsilon(SGD, 4e-5, adjacency="zero-out") - 8.053) < 1e-3
    assert abs(accounting.epsilon(SGD, 4e-5, adjacency="add-remove") - 8.053) < 1e-3
    assert abs(accounting.epsilon(SGD, 4e-5, adjacency="replace-one") - 13.72) < 1e-2
    assert abs(accounting.rdp_epsilon(SGD, 4e-5, adjacency="zero-out") - 8.888) < 2e-3


@pytest.mark.parametrize(("epsilon", "renyi"), [(1.0, 1.078), (4.0, 4.279)])
def test_a_budget_across_runs_pays_the_renyi_price(epsilon, renyi):
    event = rounds(calibrated(epsilon, 1e-6), 10)
    assert abs(accounting.rdp_epsilon(event, 1e-6) - renyi) < 3e-3
    assert accounting.rdp_epsilon(event, 1e-6) >= accounting.epsilon(event, 1e-6)


def test_votes_beside_training_cost_more_than_either():
    both = ComposedDpEvent([rounds(10.0, 3), SGD])
    assert accounting.epsilon(both, 4e-5) > accounting.epsilon(SGD, 4e-5)
    with pytest.raises(PrivacyError, match="replace-one"):
        accounting.epsilon(both, 4e-5, adjacency="replace-one")
    with pytest.raises(PrivacyError, match="replace-one"):
        accounting.rdp_epsilon(both, 4e-5, adjacency="replace-one")


def test_equal_events_cost_the_same_whichever_way_their_tree_was_built():
    one = DiscreteGaussianDpEvent(3.0)
    flat = ComposedDpEvent([one] * 4 + [DiscreteGaussianDpEvent(5.0)])
    nested = ComposedDpEvent([DiscreteGaussianDpEvent(5.0), SelfComposedDpEvent(SelfComposedDpEvent(one, 2), 2)])
    assert accounting.epsilon(flat, 1e-5) == accounting.epsilon(nested, 1e-5)


def test_no_event_costs_nothing_and_a_non_private_one_everything():
    assert accounting.epsilon(NoOpDpEvent(), 1e-5) == accounting.rdp_epsilon(NoOpDpEvent(), 1e-5) == 0.0
    lost = ComposedDpEvent([rounds(1.0, 2), NonPrivateDpEvent()])
    assert accounting.epsilon(lost, 1e-5) == accounting.rdp_epsilon(lost, 1e-5) == math.inf


def test_metric_scales_add_up_and_do_not_mix_with_votes():
    assert metric_scale(SelfComposedDpEvent(MultivariateLaplaceDpEvent(2.5), 3)) == 7.5
    with pytest.raises(PrivacyError, match="ledgers of their own"):
        metric_scale(ComposedDpEvent([MultivariateLaplaceDpEvent(1.0), rounds(1.0, 1)]))


EVENTS = st.recursive(
    st.one_of(
        st.builds(DiscreteGaussianDpEvent, st.floats(1e-3, 1e6), st.lists(st.integers(1, 9), min_size=1).map(tuple)),
        st.builds(GaussianDpEvent, st.floats(1e-3, 1e6)),
        st.builds(MultivariateLaplaceDpEvent, st.floats(1e-3, 1e6)),
        st.just(NonPrivateDpEvent()),
    ),
    lambda inner: st.one_of(
        st.builds(SelfComposedDpEvent, inner, st.integers(0, 99)),
        st.builds(ComposedDpEvent, st.lists(inner, min_size=1, max_size=3)),
        st.builds(PoissonSampledDpEvent, st.floats(0.001, 1.0), inner),
    ),
    max_leaves=6,
)


@given(EVENTS)
def test_an_event_tree_survives_json_to_the_last_bit(event):
    assert event_from_json(event_to_json(event)) == event


@pytest.mark.parametrize("data", [{"type": "eval"}, {}, {"type": "GaussianDpEvent", "sigma": 1}])
def test_a_stored_event_off_the_allow_list_is_refused(data):
    with pytest.raises(PrivacyError):
        event_from_json(data)


def test_an_epsilon_that_cannot_be_reached_is_refused_at_once():
    with pytest.raises(ConfigError, match="epsilon is 1e-09; the least"):
        accounting.calibrate(lambda s: rounds(s, 1), 1e-9, 1e-9)
    with pytest.raises(ConfigError, match="noise multiplier above 200000"):
        accounting.calibrate(lambda s: rounds(s, 1000), 1e-4, 1e-12)
    with pytest.raises(ConfigError, match="noise multiplier above 200000"):
        accounting.calibrate(lambda s: rounds(3e5, 1), 1.0, 1e-5)


@given(st.floats(1e-6, 1e9))
def test_rounding_up_never_goes_down_and_stays_close(value):
    assert value <= accounting.round_up(value) <= value * (1 + 1.1e-4)


def test_an_order_of_renyi_dp_that_does_not_converge_is_left_out_in_silence(caplog):
    event = SelfComposedDpEvent(PoissonSampledDpEvent(0.25, GaussianDpEvent(0.98)), 6)
    found = accounting.rdp_epsilon(event, 1e-2, adjacency="zero-out")
    assert accounting.epsilon(event, 1e-2, adjacency="zero-out") <= found < 4 and caplog.text == ""


def test_orders_that_do_not_converge_are_left_out_in_silence_and_other_warnings_of_absl_are_heard(monkeypatch):
    heard, compose = [], accounting.RdpAccountant.compose
    listener, absl = logging.Handler(), logging.getLogger("absl")
    listener.emit = lambda record: heard.append(record.getMessage())

    def warns(self, event, count=1):
        absl.warning("_compute_log_a_frac failed to converge after %d iterations", 9)
        absl.warning("something else")
        return compose(self, event, count)

    monkeypatch.setattr(accounting.RdpAccountant, "compose", warns)
    absl.addHandler(listener)
    try:
        accounting.rdp_epsilon(SGD, 1e-5)
        assert heard == ["something else"]
        absl.warning("_compute_log_a_frac of somebody else")
        assert heard[1:] == ["_compute_log_a_frac of somebody else"] and absl.filters == []
    finally:
        absl.removeHandler(listener)
