"""Votes of users by law: a user with any number of records moves one vector by at most 1, exactly."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dpsynth.audit import audit_votes
from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.privacy import accounting
from hf_dpsynth.privacy.event_json import event_from_json, event_to_json
from hf_dpsynth.privacy.selection import noisy_votes
from hf_dpsynth.privacy.user_votes import (
    GRID,
    LEAST_GRID,
    ClippedSumDpEvent,
    clipped_steps,
    noisy_steps,
    noisy_user_labels,
    noisy_user_votes,
    user_count_event,
)
from tests.privacy.test_noise import DRAWS, refuted
from tests.privacy.test_selection import embeddings

SIZE = 9
USERS = st.lists(st.lists(st.integers(0, SIZE - 1), max_size=40), max_size=6)


def steps(users, grid=GRID):
    held = [(owner, place) for owner, places in enumerate(users) for place in places]
    owners, places = np.asarray(held, dtype=np.int64).reshape(-1, 2).T
    return clipped_steps(owners, places, SIZE, grid)


def squared(vector):
    """The squared norm in whole numbers: nothing is rounded."""
    return sum(value * value for value in vector.tolist())


@settings(max_examples=300, deadline=None)
@given(USERS, st.lists(st.integers(0, SIZE - 1), max_size=300), st.sampled_from([64, 1000, GRID]), st.data())
def test_a_user_with_any_records_moves_the_vector_by_at_most_one(users, added, grid, data):
    place = data.draw(st.integers(0, len(users)))
    moved = steps([*users[:place], added, *users[place:]], grid) - steps(users, grid)
    assert squared(moved) <= grid * grid and (moved >= 0).all()
    if added:  # no more is lost than the truncation of each place
        exact = np.bincount(added, minlength=SIZE) / math.sqrt(squared(np.bincount(added)))
        assert (np.abs(moved - grid * exact) < 1 + 1e-6).all()


def test_no_small_vector_exceeds_the_norm_where_rounding_to_the_nearest_would():
    over = 0
    for counts in itertools.product(range(6), repeat=4):
        if any(counts):
            user = np.repeat(np.arange(4), counts).tolist()
            moved = steps([user], LEAST_GRID)
            assert squared(moved) <= LEAST_GRID**2
            nearest = np.rint(LEAST_GRID * np.asarray(counts) / np.linalg.norm(counts)).astype(np.int64)
            over += squared(nearest) > LEAST_GRID**2
    assert over > 100


@settings(max_examples=200, deadline=None)
@given(USERS, *[st.lists(st.integers(0, SIZE - 1), max_size=60)] * 2)
def test_replacing_a_user_costs_at_most_the_square_root_of_two(users, before, after):
    moved = steps([*users, after]) - steps([*users, before])
    assert squared(moved) <= 2 * GRID * GRID


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 70), min_size=3, max_size=3))
def test_users_with_one_record_vote_as_records_do(seed, sizes):
    rng = np.random.default_rng(seed)
    candidates = [embeddings(rng, int(rng.integers(0, 9))) for _ in range(3)]
    private = [embeddings(rng, size) for size in sizes]
    owners = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    users, records = noisy_user_votes(private, owners, candidates, 0.0), noisy_votes(private, candidates, 0.0)
    assert all((one == other).all() for one, other in zip(users, records, strict=True))


def test_records_of_all_labels_are_one_vector_of_their_user():
    rows = [embeddings(np.random.default_rng(label), 1) for label in range(4)]
    votes = noisy_user_votes(rows, [np.zeros(1, dtype=np.int64)] * 4, rows, 0.0)
    assert np.concatenate(votes).tolist() == [0.5] * 4
    assert noisy_user_labels([[(0, "a"), (1, "b"), (1, "c")], [(1, "d")]], 2, 0.0) == pytest.approx(
        [1 / math.sqrt(5), 1 + 2 / math.sqrt(5)], abs=2 / GRID
    )
    assert noisy_user_labels([], 2, 0.0).tolist() == [0.0, 0.0]


# rejected at 1e-6, so that the test flakes once in a million; at 40,000 draws a scale 10 % off gives p < 1e-20
@pytest.mark.parametrize("sigma", [1 / 16, 0.25])
def test_the_noise_on_the_grid_matches_its_density_and_a_wrong_scale_is_caught(sigma):
    draws = np.rint(noisy_steps(np.zeros(DRAWS, dtype=np.int64), sigma, LEAST_GRID) * LEAST_GRID)
    assert not refuted(draws, sigma * LEAST_GRID)
    assert refuted(draws, sigma * LEAST_GRID * 1.1) and refuted(draws, sigma * LEAST_GRID / 1.1)


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace-one"])
@pytest.mark.parametrize("target", [0.2, 1.0, 6.0])
def test_calibrate_then_account_comes_back_and_never_above(adjacency, target):
    def event(sigma):
        return accounting.SelfComposedDpEvent(user_count_event(sigma, adjacency), 10)

    sigma = accounting.calibrate(event, target, 1e-6, adjacency=adjacency, account="zcdp")
    assert 0.999 * target < accounting.rdp_epsilon(event(sigma), 1e-6, adjacency=adjacency) <= target
    # the bound of Gaussian DP with the same mu lies below, by little: zCDP is an upper bound
    mu = math.sqrt(10) * user_count_event(sigma, adjacency).norm / sigma
    assert 0.8 * target < accounting.gaussian_epsilon(mu, 1e-6) < target


def test_the_event_survives_json_and_refuses_what_is_out_of_range():
    event = ClippedSumDpEvent(2.5, math.sqrt(2), 64)
    assert event_from_json(event_to_json(event)) == event and event.rho == pytest.approx(2 / (2 * 2.5**2))
    for wrong in ((0.0,), (math.nan,), (math.inf,), (1.0, 0.0), (1.0, math.nan), (1.0, 1.0, 63)):
        with pytest.raises(ConfigError, match="sigma is"):
            ClippedSumDpEvent(*wrong)


def test_places_out_of_range_are_refused():
    with pytest.raises(PrivacyError, match="one place"):
        clipped_steps(np.zeros(1, dtype=np.int64), np.asarray([3]), 3)
    with pytest.raises(PrivacyError, match="one place"):
        clipped_steps(np.zeros(2, dtype=np.int64), np.asarray([1]), 3)


def casting(function, sigma=3.0):
    """A sampler of the noisy votes in the direction in which a user with records at four places moves them."""
    others = [[0, 1, 1], [5]]
    user = [0, 2, 2, 2, 3, 7]
    direction = np.bincount(user, minlength=SIZE) / np.linalg.norm(np.bincount(user))

    def sampled(present, size, generator):
        clean = function([*others, user] if present else others)
        return noisy_steps(np.tile(clean, size), sigma).reshape(size, SIZE) @ direction

    return sampled


# Power, by 20,000 simulated audits in `audit_votes`: 2000 runs accuse a right mechanism in 2 of 10,000, and pass one
# that moves twice as far in none. Here one round has mu 1/3, as ten rounds at sigma 10 have there.
def test_an_audit_passes_a_user_of_norm_one_and_flags_one_of_norm_two():
    event = user_count_event(3.0, "add-remove")
    claim = accounting.rdp_epsilon(event, 1e-5)
    assert not audit_votes(3.0, 1, claim, 1e-5, 2000, 0.99, sampler=casting(steps)).violated
    doubled = casting(lambda users: 2 * steps(users))
    assert audit_votes(3.0, 1, claim, 1e-5, 2000, 0.99, sampler=doubled).violated
    unclipped = casting(lambda users: GRID * np.bincount([place for own in users for place in own], minlength=SIZE))
    assert audit_votes(3.0, 1, claim, 1e-5, 2000, 0.99, sampler=unclipped).violated
