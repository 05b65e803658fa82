"""How well scores tell members from others: the figures have their meaning, and their intervals cover."""

import numpy as np
import pytest
from scipy.stats import norm

from hf_dpsynth.audit import AttackResult, discrimination
from hf_dpsynth.errors import ConfigError

METRICS = ("auc", "tpr_at_1_fpr", "empirical_epsilon")


def drawn(shift, n, m, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(shift, 1, n), rng.normal(0, 1, m)


def test_the_figures_are_those_of_two_gaussians():
    """With 20,000 scores a side the standard errors are below .004."""
    found = discrimination(*drawn(1.0, 20_000, 20_000, 0), attack="a shift")
    assert found["auc"].value == pytest.approx(norm.cdf(1 / np.sqrt(2)), abs=0.015)
    assert found["tpr_at_1_fpr"].value == pytest.approx(norm.sf(norm.isf(0.01) - 1), abs=0.02)
    assert 1.5 < found["empirical_epsilon"].value < 4.4, "a mu of 1 is epsilon 4.377 at delta 1e-5"


def test_scores_that_know_nothing_give_no_epsilon_and_an_area_about_a_half():
    for seed in range(40):
        found = discrimination(*drawn(0.0, 300, 300, seed), attack="nothing")
        assert found["empirical_epsilon"].value < 0.6


@pytest.mark.parametrize(("shift", "n", "m"), [(0.0, 40, 40), (1.0, 30, 80), (2.5, 25, 25)])
def test_the_interval_of_the_area_covers_it_as_often_as_it_says(shift, n, m):
    """600 studies: coverage of 95 % lies within 92.3 and 97.7 % at three standard errors."""
    truth = norm.cdf(shift / np.sqrt(2))
    held = [discrimination(*drawn(shift, n, m, seed), attack="-")["auc"].interval for seed in range(600)]
    assert 0.923 < np.mean([low <= truth <= high for low, high in held])


def test_the_interval_of_a_perfect_area_is_not_a_point():
    found = discrimination(range(100, 120), range(20), attack="sure")["auc"]
    assert found.value == 1.0 and found.interval[0] < 0.95 and found.interval[1] == 1.0


def test_equal_scores_at_the_threshold_are_no_true_positives():
    found = discrimination([1.0] * 50, [0.0] * 50 + [1.0] * 50, attack="ties")
    assert found["tpr_at_1_fpr"].value == 0.0
    assert found["auc"].value == 0.75


def test_few_others_are_said():
    assert any("fewer than 100" in line for line in discrimination(range(20), range(5, 25), attack="-").statements())


def test_no_figure_is_held_against_a_claim():
    for one in discrimination(*drawn(3.0, 500, 500, 0), attack="-").findings:
        assert not one.violated and one.as_audit().metric != "epsilon_lower" and one.as_audit().uses_private_data


def test_the_curve_rises_from_nothing_to_all():
    points = np.array(discrimination(*drawn(1.0, 3000, 2000, 0), attack="-").curve)
    assert len(points) <= 201 and tuple(points[0]) == (0, 0) and tuple(points[-1]) == (1, 1)
    assert (np.diff(points, axis=0) >= 0).all()


def test_a_result_comes_back_from_json_with_its_figures():
    import json

    found = discrimination(*drawn(1.0, 50, 50, 0), attack="a shift")
    read = AttackResult.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False)))
    assert read == found and [row[1] for row in read.rows()] == list(METRICS)
    with pytest.raises(ConfigError, match="audit again"):
        AttackResult.from_json({"name": "a shift"})


@pytest.mark.parametrize(
    ("members", "others", "words"),
    [
        ([1.0] * 20, [1.0] * 20, "all scores are equal"),
        (range(5), range(20), r"members= has scores of shape \(5,\)"),
        (range(20), [float("nan")] * 20, "finite"),
        (range(20), [], "others="),
    ],
)
def test_scores_that_tell_nothing_are_refused(members, others, words):
    with pytest.raises(ConfigError, match=words):
        discrimination(members, others, attack="-")


def test_the_curve_is_fine_where_there_are_few_false_positives():
    members, others = drawn(0.0, 10_000, 10_000, 0)
    points = discrimination([*(members[:9_900]), *np.arange(100) + 10.0], others, attack="-").curve
    assert sum(false <= 0.001 for false, _ in points) > 10
    near = max(true for false, true in points if false <= 0.001)
    exact = float(np.mean([*(members[:9_900] > np.sort(others)[-11]), *[True] * 100]))
    assert exact - near < 0.001, "the rate that a report reads at 0.1 % false positives"


def test_one_pair_of_scores_in_two_thousand_million_out_of_order_has_an_interval():
    members, others = np.arange(50_000) + 50_000.0, np.arange(50_000.0)
    members[0] = 49_998.5
    low, high = discrimination(members, others, attack="-")["auc"].interval
    assert low < 1 - 1 / 2.5e9 < high <= 1
