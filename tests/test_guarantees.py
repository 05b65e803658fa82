import math

import pytest

from hf_dpsynth import guarantees
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.guarantees import ApproxDP, LocalDP, MetricDP, SecretProtection


def test_an_approximate_guarantee_states_epsilon_delta_unit_and_adjacency():
    text = ApproxDP(epsilon=4.0, delta=1e-4, neighbours="zero-out").statement()
    assert text == "This release is (4, 0.0001)-differentially private per record under zero-out adjacency."


def test_only_approximate_dp_is_called_differentially_private():
    for other in (MetricDP(epsilon=5.0, metric="d"), LocalDP(epsilon=2.0), SecretProtection(p=1e-4, r=1e-3)):
        assert "differentially private" not in other.statement()
    assert "not differential privacy" in SecretProtection(p=1e-4, r=1e-3).statement()
    assert "epsilon" not in SecretProtection(p=1e-4, r=1e-3).statement()


@pytest.mark.parametrize("kind", [ApproxDP, MetricDP, LocalDP])
def test_an_infinite_epsilon_says_no_privacy(kind):
    extra = {"delta": 0.0} if kind is ApproxDP else {"metric": "d"} if kind is MetricDP else {}
    assert kind(epsilon=math.inf, **extra).statement().startswith("No privacy")


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_an_epsilon_that_is_not_positive_is_refused(epsilon):
    with pytest.raises(ConfigError, match="epsilon is"):
        ApproxDP(epsilon=epsilon, delta=1e-5)


def test_a_statement_never_states_less_than_the_guarantee():
    epsilon, delta = 1.23456749, 1.23449e-6
    assert f"({epsilon}, {delta})-differentially" in ApproxDP(epsilon=epsilon, delta=delta).statement()
    assert MetricDP(epsilon=epsilon, metric="d").statement().count(str(epsilon)) == 2
    assert f"epsilon {epsilon} per" in LocalDP(epsilon=epsilon).statement()
    assert SecretProtection(p=0.1000000049, r=0.2000000049).statement().count("0.2000000049") == 2
    assert "(8, 1e-05)-" in ApproxDP(epsilon=8.0, delta=1e-5).statement()


def test_assumptions_are_part_of_the_statement():
    assert "n is public" in ApproxDP(epsilon=1, delta=0.0, assumptions=("n is public",)).statement()


@pytest.mark.parametrize(
    "guarantee",
    [
        ApproxDP(epsilon=math.inf, delta=0.0),
        ApproxDP(epsilon=1.5, delta=1e-5, unit="user_id", neighbours="replace-one", assumptions=("a", "b")),
        MetricDP(epsilon=5.0, metric="Euclidean"),
        LocalDP(epsilon=1.0),
        SecretProtection(p=0.1, r=0.2),
    ],
)
def test_a_guarantee_survives_json(guarantee):
    assert guarantees.from_json(guarantees.to_json(guarantee)) == guarantee
