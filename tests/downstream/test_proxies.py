import json

import pytest
from scipy import stats

from hf_dpsynth.downstream import proxy_correlation
from hf_dpsynth.errors import ConfigError

ACCURACY = {"a": 0.61, "b": 0.7, "c": 0.66, "d": 0.8, "e": 0.72}
MAUVE = {"a": 0.3, "b": 0.6, "c": 0.2, "d": 0.9, "e": 0.5}


def test_the_figures_are_those_of_scipy():
    (row,) = proxy_correlation(scores={"mauve": MAUVE}, accuracy=ACCURACY).rows
    pair = list(MAUVE.values()), list(ACCURACY.values())
    assert row.spearman == pytest.approx(stats.spearmanr(*pair).statistic)
    assert row.kendall == pytest.approx(stats.kendalltau(*pair).statistic)
    assert row.pearson == pytest.approx(stats.pearsonr(*pair).statistic)


def test_a_metric_that_should_be_low_is_turned_around():
    low = {name: -score for name, score in MAUVE.items()}
    found = proxy_correlation(scores={"mauve": MAUVE, "fid": low, "perplexity": low}, accuracy=ACCURACY,
                              higher_is_better={"perplexity": False})  # fmt: skip
    assert [row.higher_is_better for row in found.rows] == [True, False, False]
    assert len({(row.spearman, row.kendall, row.pearson) for row in found.rows}) == 1 and found.limits == ()


def test_sets_are_paired_by_name_and_not_by_their_order():
    shuffled = dict(sorted(MAUVE.items(), reverse=True))
    first, second = (proxy_correlation(scores={"mauve": s}, accuracy=ACCURACY) for s in (MAUVE, shuffled))
    assert first == second


def test_few_sets_and_equal_scores_are_said():
    found = proxy_correlation(scores={"mauve": {"a": 1.0, "b": 1.0}}, accuracy={"a": 0.5, "b": 0.6})
    assert found.rows[0].spearman is None and found.rows[0].pearson is None
    assert len(found.limits) == 2 and "fewer than 5" in found.limits[0] and "equal" in found.limits[1]
    assert "fewer than 5" in found.table() and str(found) == found.table()
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["uses_private_data"] is True


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"accuracy": {"a": 0.5}}, "has 1 sets"),
        ({"scores": {}}, "0 metrics"),
        ({"scores": {"mauve": {"a": 1.0}}}, "differ in the sets"),
        ({"scores": {"perplexity": MAUVE}}, "no direction"),
        ({"scores": {"mine": MAUVE}}, "no direction"),
        ({"scores": {"mauve": MAUVE | {"a": float("nan")}}}, "NaN"),
    ],
)
def test_bad_input_is_refused_in_words(wrong, message):
    with pytest.raises(ConfigError, match=message):
        proxy_correlation(**({"scores": {"mauve": MAUVE}, "accuracy": ACCURACY} | wrong))
