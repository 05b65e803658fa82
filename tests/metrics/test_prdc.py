import numpy as np
import pytest
from scipy.spatial.distance import cdist

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics import prdc as module
from hf_dpsynth.metrics.prdc import PRDC, prdc


def gaussian(seed, rows, width=6, shift=0.0):
    return (np.random.default_rng(seed).standard_normal((rows, width)) + shift).astype(np.float32)


def brute_force(p, q, k):
    """The definitions of both papers with all distances at hand."""
    p, q = p.astype(float), q.astype(float)
    reach = lambda rows: np.sort(cdist(rows, rows), axis=1)[:, k]  # noqa: E731 - column 0 is the row itself
    between, of_p, of_q = cdist(p, q), reach(p), reach(q)
    inside = between <= of_q
    recall = (between <= of_p[:, None]).any(axis=0).mean()
    return inside.any(axis=1).mean(), recall, inside.sum() / (k * len(p)), (between.min(axis=0) <= of_q).mean()


@pytest.mark.parametrize("block", [11, 1024])
@pytest.mark.parametrize(("sizes", "k"), [((60, 60), 5), ((30, 80), 3), ((90, 20), 1)])
def test_the_figures_are_those_of_all_pairs(sizes, k, block, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", block)
    p, q = gaussian(0, sizes[0]), gaussian(1, sizes[1], shift=0.4)
    assert prdc(p, q, k=k) == pytest.approx(brute_force(p, q, k), abs=1e-12)
    moved = prdc(p + np.float32(50), q + np.float32(50), k=k)  # far from the origin, where products cancel
    assert moved == pytest.approx(brute_force(p + np.float32(50), q + np.float32(50), k), abs=1e-12)


def test_swapping_the_sets_swaps_precision_and_recall():
    p, q = gaussian(0, 50), gaussian(1, 40, shift=0.5)
    assert (prdc(p, q).precision, prdc(p, q).recall) == (prdc(q, p).recall, prdc(q, p).precision)
    assert prdc(p[::-1], np.roll(q, 3, axis=0)) == prdc(p, q)


def test_identical_sets_are_perfect_and_sets_apart_share_nothing():
    p = gaussian(0, 60)
    same = prdc(p, p[::-1])
    assert (same.precision, same.recall, same.coverage, same.f1) == (1, 1, 1, 1) and same.density == pytest.approx(1.2)
    apart = prdc(p, p + np.float32(100))
    assert tuple(apart) == (0, 0, 0, 0) and apart.f1 == 0
    ones = np.ones((20, 3), np.float32)
    assert prdc(ones, ones)[:2] == (1, 1) and prdc(ones, ones).coverage == 1


def test_a_set_with_one_mode_missing_is_precise_and_covers_half():
    left, right = gaussian(0, 100), gaussian(1, 100, shift=30.0)
    found = prdc(gaussian(2, 200), np.concatenate([left, right]))
    assert found.precision > 0.8 and found.recall == pytest.approx(0.5, abs=0.1)
    assert found.coverage == pytest.approx(0.5, abs=0.1)


def test_one_law_has_density_one():
    """20 pairs of samples: the mean density is 1 within 4 standard errors, as Naeem et al. state."""
    values = np.array([prdc(gaussian(2 * i, 80), gaussian(2 * i + 1, 80)).density for i in range(20)])
    assert abs(values.mean() - 1) < 4 * values.std() / np.sqrt(20)


def test_bad_rows_and_options_are_refused():
    p = gaussian(0, 20)
    for bad, message in ((np.full_like(p, np.nan), "holds NaN"), (p[:, :2], "2 wide"), (p[:5], "at least 6 rows")):
        with pytest.raises(ConfigError, match=message):
            prdc(p, bad)
    for k in (0, float("nan")):
        with pytest.raises(ConfigError, match="k is"):
            PRDC(k=k)
        with pytest.raises(ConfigError, match="k is"):
            prdc(p, p, k=k)
    with pytest.raises(ConfigError, match="6 synthetic and 12 real texts"):
        PRDC().compare(p, p[:8])
    with pytest.raises(ConfigError, match="9 synthetic and 18 real texts"):
        PRDC(k=8).compare(p, p[:16])
    assert PRDC(k=1).compare(p[:2], p[:4])["num_rows"] == 2  # k + 1 rows on a side are enough


def test_the_metric_reports_all_figures_with_floors_and_a_limit_for_few_rows():
    real, near, far = gaussian(0, 400), gaussian(1, 3000), gaussian(2, 10, shift=3.0)
    found = PRDC().compare(near, real)
    names = ["prdc", "prdc_precision", "prdc_recall", "prdc_density", "prdc_coverage"]
    assert all(f"{name}{end}" in found for name in names for end in ("", "_floor", "_interval"))
    assert found["limits"] == [] and abs(found["prdc"] - found["prdc_floor"]) < 0.1
    few = PRDC().compare(far, real)
    assert few["prdc"] < few["prdc_floor"] and "10 rows on each side" in few["limits"][0]
