"""Small histograms, enumerated: laws that hold pass, and planted faults of the limited domain are found."""

import math

import pytest

from hf_dpsynth.audit import audit_histograms
from hf_dpsynth.audit.histograms import gumbel_law, hockey_stick, limited_domain_law, neighbours
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.limited_domain import LimitedDomainDpEvent

EVENT = LimitedDomainDpEvent(1.5, 1, 0.01, 1)


def test_the_law_of_the_library_passes_with_the_empty_output():
    found = audit_histograms(lambda votes: limited_domain_law(votes, EVENT, 1), "add-remove", 1.5, 0.01)
    assert not found.violated and found.value == pytest.approx(0.01 / 1.01) and found.confidence == 1
    assert () in limited_domain_law((0, 0), EVENT, 1)


def again_if_empty(votes):
    """A fault: where nothing beats the threshold it picks again, so that something is always picked."""
    law = limited_domain_law(votes, EVENT, 1)
    return {picked: share / (1 - law[()]) for picked, share in law.items() if picked}


def without_threshold(votes):
    return gumbel_law(votes, 1, 1, 1 / 1.5, -50.0)


def half_the_noise(votes):
    return gumbel_law(votes, 1, 1, 1 / 3.0, 1 + math.log(100) / 1.5)


@pytest.mark.parametrize("law", [again_if_empty, without_threshold])
def test_a_pick_that_cannot_be_empty_tells_neighbours_apart(law):
    found = audit_histograms(law, "add-remove", 1.5, 0.01)
    assert found.violated and found.value > 0.5 and "refuted" in found.statement()


def test_noise_of_one_vote_is_too_little_for_a_replacement_and_half_the_noise_for_anything():
    def single(votes):
        return limited_domain_law(votes, EVENT, 1)

    assert audit_histograms(single, "replace-one", 1.5, 0.01).violated
    assert audit_histograms(half_the_noise, "add-remove", 1.5, 0.01).violated


def test_a_law_that_leaves_the_empty_output_out_is_none():
    def partial(votes):
        return {out: share for out, share in limited_domain_law(votes, EVENT, 1).items() if out}

    with pytest.raises(ConfigError, match="the empty output too"):
        audit_histograms(partial, "add-remove", 1.5, 0.01)


def test_neighbours_and_the_divergence_by_hand():
    assert sorted(neighbours((1, 0), "add-remove")) == [(1, 1), (2, 0)]
    assert sorted(neighbours((1, 0), "replace-one")) == [(0, 1)]
    assert sorted(neighbours((1, 0), "zero-out")) == [(1, 1), (2, 0)]
    assert hockey_stick({(0,): 0.9, (): 0.1}, {(0,): 0.3, (): 0.7}, math.log(2)) == pytest.approx(0.3)


def test_another_relation_is_refused():
    with pytest.raises(ConfigError, match="adjacency is 'swap'"):
        audit_histograms(without_threshold, "swap", 1.0, 0.01)


def test_a_negative_probability_and_an_epsilon_that_hides_every_delta_are_refused():
    with pytest.raises(ConfigError, match="probability >= 0"):
        audit_histograms(lambda _: {(0,): 1.5, (): -0.5}, "add-remove", 1.0, 0.01)
    with pytest.raises(ConfigError, match="epsilon is 1000"):
        audit_histograms(without_threshold, "add-remove", 1000.0, 0.01)
