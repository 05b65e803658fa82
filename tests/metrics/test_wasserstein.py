import numpy as np
import ot
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.wasserstein import Wasserstein, exact_wasserstein, sliced_wasserstein


def gaussian(seed, rows, width=6, shift=0.0):
    return (np.random.default_rng(seed).standard_normal((rows, width)) + shift).astype(np.float32)


@pytest.mark.parametrize("sizes", [(40, 40), (40, 25), (7, 30), (1, 5)])
def test_on_a_line_the_sliced_distance_is_w1(sizes):
    p, q = gaussian(0, sizes[0], 1), gaussian(1, sizes[1], 1, 0.7)
    want = wasserstein_distance(p[:, 0], q[:, 0])
    assert sliced_wasserstein(p, q, num_projections=3) == pytest.approx(want, rel=1e-5)
    assert exact_wasserstein(p, q) == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0])
def test_equal_and_unequal_sizes_agree_where_a_set_is_repeated(order):
    p, q = gaussian(0, 20), gaussian(1, 30)
    small = sliced_wasserstein(p, q, order=order)
    assert sliced_wasserstein(np.repeat(p, 3, axis=0), np.repeat(q, 2, axis=0), order=order) == pytest.approx(small)


def test_the_sliced_distance_agrees_with_pot_in_law():
    """POT draws other directions; with 4000 on both sides the two means differ by about 1 %."""
    p, q = gaussian(0, 80), gaussian(1, 50, shift=0.5)
    want = ot.sliced_wasserstein_distance(p, q, n_projections=4000, p=2, seed=0)
    assert sliced_wasserstein(p, q, num_projections=4000, order=2) == pytest.approx(want, rel=0.05)


def test_exact_w1_is_the_best_assignment():
    p, q = gaussian(0, 30), gaussian(1, 30)
    costs = cdist(p, q)
    assert exact_wasserstein(p, q) == pytest.approx(costs[linear_sum_assignment(costs)].mean(), rel=1e-9)


def test_a_shift_costs_its_length():
    p = gaussian(0, 50)
    q = p + np.array([3, 0, 4, 0, 0, 0], np.float32)
    assert exact_wasserstein(p, q) == pytest.approx(5, rel=1e-5)
    sliced = sliced_wasserstein(p, q, num_projections=5000, order=2)
    assert sliced == pytest.approx(5 / np.sqrt(6), rel=0.05)  # |cos|^2 is 1/d on average


@pytest.mark.parametrize("distance", [sliced_wasserstein, exact_wasserstein])
def test_distances_are_symmetric_blind_to_order_and_zero_for_one_set(distance):
    p, q = gaussian(0, 30), gaussian(1, 20)
    assert distance(p, q) == pytest.approx(distance(q, p), rel=1e-6)
    assert distance(p[::-1], np.roll(q, 5, axis=0)) == pytest.approx(distance(p, q), rel=1e-6)
    assert distance(p, p[::-1]) == pytest.approx(0, abs=1e-7)
    assert distance(np.ones((9, 3)), np.ones((4, 3))) == pytest.approx(0, abs=1e-12)


def test_directions_are_public():
    p, q = gaussian(0, 30), gaussian(1, 20)
    assert sliced_wasserstein(p, q, seed=1) == sliced_wasserstein(p, q, seed=1) != sliced_wasserstein(p, q, seed=2)


def test_bad_rows_and_options_are_refused():
    p = gaussian(0, 20)
    for bad, message in ((np.full_like(p, np.nan), "holds NaN"), (p[:, :2], "2 wide"), (p[:0], "has fewer")):
        for distance in (sliced_wasserstein, exact_wasserstein):
            with pytest.raises(ConfigError, match=message):
                distance(p, bad)
    with pytest.raises(ConfigError, match="at most 2000 rows") as refused:
        exact_wasserstein(p, np.zeros((2001, 6)))
    assert "2001" not in str(refused.value)
    for options in ({"num_projections": 0}, {"order": float("nan")}, {"exact_rows": 2001}, {"exact_rows": 1.5}):
        with pytest.raises(ConfigError, match=f"{next(iter(options))} is"):
            Wasserstein(**options)


def test_the_metric_adds_the_exact_distance_where_it_is_small_enough():
    real, near, far = gaussian(0, 120), gaussian(1, 3000), gaussian(2, 10, shift=2.0)
    found = Wasserstein(num_projections=50).compare(near, real)
    assert found["num_rows"] == 60 and found["wasserstein"] < 1.5 * found["wasserstein_floor"]
    assert found["wasserstein_exact"] > found["wasserstein"] and found["limits"] == []
    assert Wasserstein().compare(far, real)["wasserstein"] > 2 * Wasserstein().compare(near[:10], real)["wasserstein"]
    large = Wasserstein(exact_rows=50).compare(near, real)
    assert "wasserstein_exact" not in large and "at most 50" in large["limits"][0]
    assert Wasserstein(exact_rows=0).compare(near, real)["limits"] == []
