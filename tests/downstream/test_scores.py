import numpy as np
import pytest
from sklearn.metrics import f1_score

from hf_dpsynth.downstream.examples import Examples
from hf_dpsynth.downstream.scores import score, wilson
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.records import PrivateTexts


def examples(labels, groups=()):
    return Examples(PrivateTexts("" for _ in labels), np.array(labels), ("a", "b", "c"), tuple(groups))


def test_wilson_agrees_with_the_published_formula():
    share, number, z = 0.83, 400, 1.959963984540054
    centre = (share + z * z / (2 * number)) / (1 + z * z / number)
    half = z / (1 + z * z / number) * np.sqrt(share * (1 - share) / number + z * z / (4 * number * number))
    assert wilson(share, number, 0.95) == pytest.approx((centre - half, centre + half))
    assert wilson(1.0, 10, 0.95)[1] == pytest.approx(1) and wilson(0.0, 10, 0.95)[0] == pytest.approx(0)


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    intervals = [wilson(rng.binomial(200, 0.8) / 200, 200, 0.9) for _ in range(2000)]
    inside = [low <= 0.8 <= high for low, high in intervals]
    assert abs(np.mean(inside) - 0.9) < 0.03  # four standard errors


def test_several_fits_are_averaged_and_their_spread_is_told():
    test = examples([0, 0, 1, 1])
    found = score([np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0])], test, 0.95)
    assert found.accuracy == 0.875 and found.spread == pytest.approx(0.25 / np.sqrt(2))
    assert score([np.array([0, 0, 1, 1])], test, 0.95).spread is None
    assert found.by_group == {} and found.gap is None


def test_macro_f1_is_that_of_scikit_learn_over_the_classes_that_occur():
    labels, predicted = np.array([0, 0, 1, 1]), np.array([0, 2, 1, 1])
    expected = f1_score(labels, predicted, labels=[0, 1], average="macro")
    assert score([predicted], examples(labels), 0.95).macro_f1 == pytest.approx(expected)
    assert score([np.zeros(4, dtype=int)], examples(labels), 0.95).macro_f1 == pytest.approx(1 / 3)


def test_subgroups_have_accuracies_and_a_gap_and_small_ones_are_told():
    test = examples([0] * 80, ["x"] * 40 + ["y"] * 40)
    found = score([np.array([0] * 60 + [1] * 20)], test, 0.95)
    assert found.by_group == {"x": 1.0, "y": 0.5} and found.gap == 0.5 and found.limits == ()
    few = score([np.array([0, 1])], examples([0, 0], ["x", "y"]), 0.95)
    assert few.gap == 1.0 and "2 subgroups" in few.limits[0]
    alone = score([np.array([0] * 40)], examples([0] * 40, ["x"] * 40), 0.95)
    assert alone.gap is None and "single subgroup" in alone.limits[0]


def test_nothing_to_score_and_a_wrong_confidence_are_refused():
    with pytest.raises(ConfigError, match="nothing to score"):
        score([], examples([0]), 0.95)
    with pytest.raises(ConfigError, match="confidence"):
        score([np.array([0])], examples([0]), float("nan"))
