import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from scipy.stats import kstest

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics import mmd as module
from hf_dpsynth.metrics.mmd import MMD, mmd


def gaussian(seed, rows, width=5, shift=0.0):
    return (np.random.default_rng(seed).standard_normal((rows, width)) + shift).astype(np.float32)


def brute_force(p, q, width):
    """The definition, pair by pair."""
    kernel = lambda a, b: np.exp(-cdist(a.astype(float), b.astype(float), "sqeuclidean") / (2 * width**2))  # noqa: E731
    m, n = len(p), len(q)
    own = (kernel(p, p).sum() - m) / (m * (m - 1)) + (kernel(q, q).sum() - n) / (n * (n - 1))
    return own - 2 * kernel(p, q).mean()


@pytest.mark.parametrize("block", [7, 1024])
def test_the_estimate_is_the_definition_in_blocks_of_any_size(block, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", block)
    p, q = gaussian(0, 30, shift=100.0), gaussian(1, 45, shift=100.4)
    assert mmd(p, q, bandwidth=1.7).mmd == pytest.approx(brute_force(p, q, 1.7), abs=1e-5)
    found = mmd(p, p + np.float32(0.5))
    want = np.median(pdist(np.concatenate([p, p + np.float32(0.5)]).astype(float)))
    assert found.bandwidth == pytest.approx(want, rel=1e-5)
    assert found.mmd == pytest.approx(brute_force(p, p + np.float32(0.5), want), abs=1e-6)


def test_the_estimate_is_unbiased():
    """400 pairs of samples of one law: the mean is within 4 standard errors of 0, and about half lie below."""
    values = np.array([mmd(gaussian(2 * i, 12), gaussian(2 * i + 1, 9), bandwidth=2.0).mmd for i in range(400)])
    assert abs(values.mean()) < 4 * values.std() / 20
    assert 0.3 < (values < 0).mean() < 0.8


def test_the_p_value_is_uniform_under_one_law_and_small_under_two():
    """200 tests of one law: Kolmogorov-Smirnov against uniform at 0.1 %; a p-value off by .14 or more is caught."""
    values = [mmd(gaussian(2 * i, 15), gaussian(2 * i + 1, 10), num_permutations=99).p_value for i in range(200)]
    assert kstest(values, "uniform").pvalue > 1e-3
    assert mmd(gaussian(0, 40), gaussian(1, 40, shift=1.0), num_permutations=199).p_value == 1 / 200


def test_the_p_value_is_that_of_relabelled_sets():
    """Each permuted statistic equals the estimate of the two sets that the relabelling makes."""
    p, q = gaussian(0, 8), gaussian(1, 6)
    rows = np.concatenate([p, q])
    rng = np.random.default_rng(0)
    labels = np.stack([rng.permutation(np.repeat([1, 0], [8, 6])) for _ in range(5)], axis=1).astype(np.float32)
    want = [brute_force(rows[column == 1], rows[column == 0], 1.0) for column in labels.T]
    assert module._statistics(rows, labels, 8) == pytest.approx(want, abs=1e-6)


def test_mmd_is_symmetric_and_blind_to_the_order_of_rows():
    p, q = gaussian(0, 30), gaussian(1, 20, shift=0.3)
    want = mmd(p, q).mmd
    assert mmd(q, p).mmd == pytest.approx(want, abs=1e-6)
    assert mmd(p[::-1], np.roll(q, 3, axis=0)).mmd == pytest.approx(want, abs=1e-6)


def test_equal_rows_give_zero_and_never_nan():
    same = np.ones((20, 4), np.float32)
    assert mmd(same, same, num_permutations=9) == (0.0, 1.0, 0.0)
    found = mmd(np.concatenate([same, 2 * same[:2]]), same)  # most pairs are equal, so the median is 0
    assert found.bandwidth > 0 and np.isfinite(found.mmd)
    metric = MMD(num_permutations=9).compare(same, same)
    assert (metric["mmd"], metric["mmd_floor"], metric["mmd_p_value"]) == (0.0, 0.0, 1.0)


def test_bad_rows_and_options_are_refused():
    p = gaussian(0, 20)
    for bad, message in ((np.full_like(p, np.nan), "holds NaN"), (p[:, :2], "2 wide"), (p[:1], "has fewer")):
        with pytest.raises(ConfigError, match=message):
            mmd(p, bad)
    for options in ({"bandwidth": float("nan")}, {"num_permutations": -1}, {"test_rows": 1}):
        with pytest.raises(ConfigError, match=f"{next(iter(options))} is"):
            MMD(**options)


def test_the_metric_reports_floor_and_p_value_for_sets_of_any_size():
    real, near, far = gaussian(0, 200), gaussian(1, 3000), gaussian(2, 10, shift=1.0)
    found = MMD(num_permutations=99, test_rows=500).compare(near, real)
    assert abs(found["mmd"]) < 0.02 and found["mmd_p_value"] > 0.01 and found["uses_private_data"] is True
    assert "500 public random rows" in found["limits"][0]
    other = MMD(num_permutations=99).compare(far, real)
    assert other["mmd"] > 0.05 > abs(other["mmd_floor"]) and other["mmd_p_value"] == 0.01 and other["num_rows"] == 10
    assert "mmd_p_value" not in MMD(num_permutations=0).compare(far, real)
