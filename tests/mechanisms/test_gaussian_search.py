"""Offspring of parents: where the law lies, how wide it is, and what a single parent or several groups make of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dpsynth.compute.unit_rows import unit_rows
from hf_dpsynth.mechanisms.evolution.gaussian_search import Gaussians, clusters


def rows(number, width=16, seed=0):
    return unit_rows(np.random.default_rng(seed).standard_normal((number, width)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_the_law_moves_towards_the_two_best_and_away_from_the_worst(smoothing):
    parents = rows(8).astype(np.float64)
    law = Gaussians(parents, smoothing)
    towards = parents[0] + parents[1] - parents[7]
    assert np.allclose(law.means, (1 - smoothing) * parents.mean(axis=0) + smoothing * towards)
    top = parents[:4]
    spread = (1 - smoothing) * parents.std(axis=0) + smoothing * np.sqrt(((top - top.mean(axis=0)) ** 2).mean(axis=0))
    assert np.allclose(law.spreads, np.maximum(spread, 0.1 / 4))


def test_offspring_have_the_fitted_mean_and_spread_before_they_are_cut_to_length_one():
    law = Gaussians(rows(10, width=4), 0.1)
    drawn = law.draw(20_000, np.random.default_rng(0))
    assert drawn.dtype == np.float32 and np.allclose(np.linalg.norm(drawn, axis=1), 1, atol=1e-6)
    noise = np.random.default_rng(0)
    noise.choice(1, size=20_000, p=[1.0])
    assert np.allclose(drawn, unit_rows(law.means[0] + law.spreads[0] * noise.standard_normal((20_000, 4))))


@given(st.integers(1, 3), st.integers(1, 4))
@settings(max_examples=10, deadline=None)
def test_few_equal_parents_still_have_different_offspring_near_them(number, components):
    parents = np.repeat(rows(1, width=64), number, axis=0)
    drawn = Gaussians(parents, 0.1, components).draw(200, np.random.default_rng(1))
    cosines = drawn @ parents[0]
    assert len({row.tobytes() for row in drawn}) == 200
    assert cosines.min() > 0.97 and cosines.max() < 1 - 1e-5


def test_groups_that_lie_apart_keep_their_own_means():
    """One Gaussian puts its offspring between two opposite groups, where no parent is; two do not."""
    near = rows(1, width=32, seed=3)[0]
    parents = np.stack([*(unit_rows(near + 0.1 * rows(6, 32, 4))), *(unit_rows(-near + 0.1 * rows(3, 32, 5)))])
    closest = [
        np.abs(Gaussians(parents, 0.0, components).draw(300, np.random.default_rng(0)) @ near).min()
        for components in (1, 2)
    ]
    assert closest[0] < 0.5 < 0.9 < closest[1]
    assert Gaussians(parents, 0.0, 2).weights.tolist() == [6 / 9, 3 / 9]
    assert sorted(map(len, clusters(parents.astype(np.float64), 2))) == [3, 6]


@given(st.integers(1, 12), st.integers(1, 15), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_every_parent_is_in_one_group_and_keeps_its_rank_there(number, most, seed):
    generator = np.random.default_rng(seed)
    points = rows(4, 3, seed)[generator.integers(0, 4, number)].astype(np.float64)
    groups = clusters(points, most)
    assert sorted(row for group in groups for row in group) == list(range(number)) and all(
        group == sorted(group) for group in groups
    )
    assert 1 <= len(groups) <= min(most, number)


def test_rows_of_zeros_stay_and_a_row_does_not_depend_on_the_others():
    many = np.random.default_rng(0).standard_normal((65, 33)).astype(np.float32)
    many[3] = 0
    assert (unit_rows(many)[3] == 0).all()
    assert all((unit_rows(many[: n + 1])[n] == unit_rows(many)[n]).all() for n in range(65))
