"""Depths by law: a point adds 0 or 1 to each, by brute force and whatever else is there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dpsynth.compute.depth import tukey_depths
from hf_dpsynth.errors import ConfigError


def cloud(rng, number, width=5):
    return (
        rng.integers(-3, 4, (number, width)).astype(np.float32)
        if number % 2
        else rng.standard_normal((number, width)).astype(np.float32)
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 70), st.integers(1, 9), st.data())
def test_a_point_adds_zero_or_one_to_every_depth(seed, number, lines, data):
    rng = np.random.default_rng(seed)
    points, places, directions = cloud(rng, number), cloud(rng, 11), rng.standard_normal((lines, 5))
    record = places[0] if data.draw(st.booleans()) else 9 * rng.standard_normal(5).astype(np.float32)
    more = np.insert(points, data.draw(st.integers(0, number)), record, axis=0)
    moved = tukey_depths(more, places, directions) - tukey_depths(points, places, directions)
    assert set(moved.tolist()) <= {0, 1}
    if np.array_equal(record, places[0]):
        assert moved[0] == 1


def test_depths_are_those_of_counting_by_hand():
    rng = np.random.default_rng(0)
    points, places, directions = (rng.standard_normal((n, 4)) for n in (60, 9, 7))
    expected = [
        min(min((points @ u <= place @ u).sum(), (points @ u >= place @ u).sum()) for u in directions)
        for place in places
    ]
    assert tukey_depths(points, places, directions).tolist() == expected
    assert tukey_depths(points[:0], places, directions).tolist() == [0] * 9


def test_other_widths_and_no_direction_are_refused():
    with pytest.raises(ConfigError, match="width"):
        tukey_depths(np.zeros((2, 3)), np.zeros((2, 4)), np.ones((1, 3)))
    with pytest.raises(ConfigError, match="direction"):
        tukey_depths(np.zeros((2, 3)), np.zeros((2, 3)), np.ones((0, 3)))
