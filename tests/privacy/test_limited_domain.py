"""The limited domain by its exact law: what is picked has the claimed loss, and the sampler has that law."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from dp_accounting import NonPrivateDpEvent, SelfComposedDpEvent, ZCDpEvent

from hf_dpsynth.audit import audit_counts, audit_histograms
from hf_dpsynth.audit.histograms import gumbel_law, hockey_stick, limited_domain_law, neighbours
from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.privacy.accounting import extra_delta, rdp_epsilon
from hf_dpsynth.privacy.event_json import event_from_json, event_to_json
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.limited_domain import (
    GUMBEL_DEVIATION,
    LimitedDomainDpEvent,
    limited_domain,
    limited_domain_event,
    most_voted,
    paper_noise,
    threshold,
)

DELTA = 0.01
MOVES = {"add-remove": 1, "replace-one": 2}


def ours(votes, domain, picks, epsilon, adjacency, labels=1):
    return limited_domain_law(votes, LimitedDomainDpEvent(epsilon, picks, DELTA, MOVES[adjacency]), domain, labels)


def worst(make, adjacency, candidates, epsilon):
    return audit_histograms(make, adjacency, epsilon, DELTA, candidates=candidates).value


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("candidates", "domain", "picks"), [(3, 1, 1), (3, 2, 2), (3, 3, 2)])
def test_neighbouring_votes_are_told_apart_within_the_claim(adjacency, candidates, domain, picks):
    """Over all histograms of up to 3 votes a candidate and all neighbours. The bound is reached: 0.01 / 1.01."""
    found = max(
        worst(lambda v, e=e: ours(v, domain, picks, e, adjacency), adjacency, candidates, picks * e)
        for e in (0.3, 1.5)
    )
    assert found <= DELTA * (1 + 1e-9)
    # where every candidate is in the domain no neighbour has another one, and nothing is left for delta
    assert found < 1e-9 if domain == candidates else found == pytest.approx(DELTA / (1 + DELTA))


@pytest.mark.parametrize(
    ("scale", "margin", "reached"), [(1, 1 + math.log(100) / 1.5, 0.17), (2, 1 + 2 * math.log(100) / 1.5, 0.02)]
)
def test_what_holds_for_one_vote_does_not_hold_for_a_replacement(scale, margin, reached):
    """Noise and threshold of one vote, and the noise of a replacement with the threshold as the seed prints it."""
    assert worst(lambda votes: gumbel_law(votes, 1, 1, scale / 1.5, margin), "replace-one", 3, 1.5) > reached


@pytest.mark.parametrize("epsilon", [0.3, 1.5])
def test_a_replacement_that_changes_its_label_is_within_the_same_claim(epsilon):
    """One vote less in one label's histogram and one more in another's, whose outputs are independent."""
    single = [
        ours(votes, 1, 1, epsilon, "replace-one", labels=2) for votes in ((1, 1), (2, 1), (1, 2), (1, 0), (2, 2))
    ]
    pairs = [(ours(a, 1, 1, epsilon, "replace-one", 2), ours(b, 1, 1, epsilon, "replace-one", 2))
             for a, b in (((1, 1), (1, 2)), ((1, 1), (2, 1)), ((2, 1), (2, 2)), ((0, 1), (1, 1)))]  # fmt: skip
    assert all(math.isclose(sum(one.values()), 1) for one in single)

    def joint(one, other):
        return {(a, b): one[a] * other[b] for a in one for b in other}

    found = max(
        hockey_stick(joint(one[i], other[j]), joint(one[1 - i], other[1 - j]), epsilon)
        for one, other in itertools.product(pairs, repeat=2)
        for i, j in ((0, 1), (1, 0))
    )
    assert DELTA / 4 < found <= DELTA


def test_the_loss_of_all_picks_is_within_rho_where_the_domain_is_the_same():
    """Renyi divergence, over all histograms of candidates that are all in the domain, wherever the threshold lies."""
    for epsilon, picks in itertools.product((0.3, 1.5), (1, 2)):
        rho = LimitedDomainDpEvent(epsilon, picks, DELTA, 1).rho
        for adjacency, moves in MOVES.items():
            reached, scale = 0.0, moves / epsilon
            for votes in itertools.product(range(4), repeat=3):
                p = gumbel_law(votes, 3, picks, scale, 0.0)
                for other in neighbours(votes, adjacency):
                    q = gumbel_law(other, 3, picks, scale, 0.0)
                    for order in (1.01, 2.0, 16.0):
                        total = sum(p[out] ** order * q[out] ** (1 - order) for out in p)
                        reached = max(reached, math.log(total) / (order - 1) / (order * rho))
            assert 0.2 < reached <= 1 + 1e-9


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_what_is_drawn_has_the_enumerated_law(adjacency):
    """Chi-square at level 1e-4: a noise that is 10 % off is rejected with probability .99."""
    step = MOVES[adjacency]
    votes, epsilon, number = step * np.array([3, 9, 7, 6, 2]), 0.9, 7_000
    event, key = LimitedDomainDpEvent(epsilon, 2, 0.2, step), Key.from_insecure_seed(5)
    drawn = Counter()
    for draw in range(number):
        (rows,) = limited_domain([votes], event, picks=2, domain=3, key=key.derive(draw))
        drawn[tuple(rows)] += 1

    def rejects(factor, lower=0.0):
        margin = step + step * math.log(5) / epsilon - lower * step
        expected = gumbel_law(votes.tolist(), 3, 2, factor * step / epsilon, margin)
        assert set(drawn) <= set(expected) and () in expected
        counts = np.array([drawn[out] for out in expected])
        return audit_counts(counts, np.array(list(expected.values())), 1 - 1e-4).violated

    assert not rejects(1.0)
    assert rejects(1.1) and rejects(0.9) and rejects(1.0, lower=0.3)


def test_labels_are_drawn_with_noise_of_their_own_and_ties_fall_to_the_first():
    event, key = LimitedDomainDpEvent(1.0, 5, 0.1, 1), Key.from_insecure_seed(1)
    votes = np.full(40, 60)
    votes[30:] = 0
    one, other = limited_domain([votes, votes], event, picks=5, domain=30, key=key)
    assert len(one) == len(other) == 5 and one != other
    nothing = limited_domain([votes], NonPrivateDpEvent(), picks=5, domain=30, key=key)
    assert nothing == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("candidates", [1, 2, 3, 4])
def test_a_domain_of_all_candidates_and_more_has_a_threshold_above_zero_votes(candidates):
    event, key = LimitedDomainDpEvent(5.0, 2, 1e-6, 1), Key.from_insecure_seed(1)
    votes = np.full(candidates, 100)
    (rows,) = limited_domain([votes], event, picks=2, domain=3, key=key)
    # beyond the domain lie as many votes again, so that nothing can be picked
    assert len(rows) == (min(2, candidates) if candidates <= 3 else 0)
    sharp, seen = LimitedDomainDpEvent(400.0, 2, 1e-6, 1), []  # whose threshold is 1.03, and its noise next to nothing
    for votes in (1, 2):
        same = {"picks": 2, "domain": 3, "key": key}
        seen.append(len(limited_domain([np.full(candidates, votes)], sharp, **same)[0]))
    assert seen == [0, min(2, candidates) if candidates <= 3 else 0]


def test_an_empty_label_gives_a_set_that_may_be_empty_and_no_error():
    event, key = LimitedDomainDpEvent(1.0, 3, 1e-6, 1), Key.from_insecure_seed(1)
    rows, candidates = np.zeros((0, 4), dtype=np.float32), np.eye(4, dtype=np.float32)
    near = np.repeat(candidates[[2]], 90, axis=0)
    empty, full = most_voted([rows, near], [candidates, candidates], event, picks=3, domain=2, key=key)
    assert empty == [] and full == [2]


def test_the_event_is_accounted_in_zcdp_and_by_its_delta():
    event = LimitedDomainDpEvent(0.2, 30, 1e-7, 1)
    assert event.rho == pytest.approx(30 * 0.2**2 / 8)
    rounds = SelfComposedDpEvent(event, 7)
    assert extra_delta(rounds) == pytest.approx(7e-7)
    assert rdp_epsilon(rounds, 1e-5) == pytest.approx(rdp_epsilon(ZCDpEvent(7 * event.rho), 1e-5 - 7e-7), rel=1e-12)
    assert event_from_json(event_to_json(rounds)) == rounds
    noise = GUMBEL_DEVIATION / 0.2
    assert all(limited_domain_event(noise, 30, 1e-7, one) == event for one in ("add-remove", "zero-out"))
    assert limited_domain_event(noise, 30, 1e-7, "replace-one") == LimitedDomainDpEvent(0.2, 30, 1e-7, 2)
    assert isinstance(limited_domain_event(0.0, 30, None, "add-remove"), NonPrivateDpEvent)


def test_a_replacement_is_stored_as_one_and_has_twice_the_noise_and_the_threshold():
    one, two = (LimitedDomainDpEvent(0.2, 30, 1e-7, moves) for moves in (1, 2))
    assert event_from_json(event_to_json(two)) == two != one and event_to_json(two)["moves"] == 2
    assert threshold(two) == 2 * threshold(one) == 2 * (1 + math.log(1e7) / 0.2)
    assert threshold(two, labels=2) > threshold(two) and threshold(one, labels=2) == threshold(one)
    without = {name: value for name, value in event_to_json(one).items() if name != "moves"}
    for wrong in (without, without | {"moves": 3}, without | {"moves": (1.0).hex()}, without | {"moves": True}):
        with pytest.raises((PrivacyError, ConfigError), match=r"moves|fields"):
            event_from_json(wrong)


@pytest.mark.parametrize(
    "fields",
    [(0.0, 1, 0.1, 1), (math.inf, 1, 0.1, 1), (math.nan, 1, 0.1, 1), (1.0, 0, 0.1, 1), (1.0, 1.5, 0.1, 1),
     (1.0, True, 0.1, 1), (1.0, 1, 0.0, 1), (1.0, 1, 1.0, 1), (1.0, 1, math.nan, 1), (1.0, 1, 0.1, 0),
     (1.0, 1, 0.1, 3), (1.0, 1, 0.1, True), (1.0, 1, 0.1, 2.0), (1.0, 1, 0.1, "2")],
)  # fmt: skip
def test_an_event_out_of_range_is_refused(fields):
    with pytest.raises(ConfigError, match="the limited domain has"):
        LimitedDomainDpEvent(*fields)


def test_more_picks_than_are_accounted_are_refused():
    event, key = LimitedDomainDpEvent(1.0, 3, 1e-6, 1), Key.from_insecure_seed(1)
    with pytest.raises(ConfigError, match="accounts 3 picks, not 4"):
        limited_domain([np.zeros(9, dtype=np.int64)], event, picks=4, domain=9, key=key)


def test_the_accounting_of_the_paper_takes_the_lesser_of_basic_and_advanced_composition():
    """One pick and one round at a tiny delta: neither advanced bound gains anything, so the noise is 1/epsilon."""
    assert paper_noise(1.0, 1e-30, 1, 1) == pytest.approx(GUMBEL_DEVIATION)
    assert paper_noise(1.0, 1 / 120000, 30, 7) == pytest.approx(136, abs=0.5)  # with the factor k; without it below 8
    assert paper_noise(1.0, 1 / 120000, 1, 7) < 20
