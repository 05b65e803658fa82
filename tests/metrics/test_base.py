from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_dpsynth import metrics
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import Splits, TwoSampleMetric, check_texts
from tests.stubs import CANARY


@dataclass(frozen=True, kw_only=True)
class MeanGap(TwoSampleMetric):
    name: ClassVar[str] = "mean_gap"
    description: ClassVar[str] = "Distance of means."
    source: ClassVar[str] = "-"
    higher_is_better: ClassVar[bool] = False

    def score(self, predictions, references, *, seed):
        self.__dict__.setdefault("sizes", []).append((len(predictions), len(references)))
        return float(np.abs(predictions.mean() - references.mean()))


@given(st.integers(1, 40), st.integers(2, 40), st.integers(0, 40), st.integers(0, 3))
def test_a_split_never_takes_a_row_twice_and_the_halves_share_none(predictions, references, holdout, seed):
    splits = Splits(predictions, references, 3, seed, holdout)
    for left, right, other in splits.draw():
        assert len(left) == len(right) == len(other) == splits.size
        assert len(set(left)) == splits.size and set(left) <= set(range(predictions))
        if holdout:
            assert set(other) <= set(range(holdout))
        else:
            assert not set(right) & set(other)


def test_score_and_floor_read_the_same_number_of_rows():
    metric = MeanGap()
    found = metric.compare(np.arange(50.0), np.arange(30.0), num_splits=4)
    assert set(metric.sizes) == {(15, 15)} and len(metric.sizes) == 8
    assert found["num_rows"] == found["floor_num_rows"] == 15
    assert found["mean_gap_interval"][0] <= found["mean_gap"] <= found["mean_gap_interval"][1]
    assert found["limits"] == [] and found["uses_private_data"] is True


def test_a_score_over_all_rows_says_that_its_floor_has_others():
    metric = MeanGap()
    found = metric.compare(np.arange(50.0), np.arange(30.0), equal_size=False, num_splits=2)
    assert set(metric.sizes) == {(15, 15), (50, 30)}
    assert "not comparable" in found["limits"][0]


def test_a_holdout_leaves_the_references_whole():
    metric = MeanGap()
    found = metric.compare(np.arange(50.0), np.arange(30.0), holdout=np.arange(30.0), num_splits=2)
    assert set(metric.sizes) == {(30, 30)} and found["mean_gap_floor"] == 0.0


def test_public_references_are_said_to_be_public():
    assert MeanGap().compare(np.arange(9.0), np.arange(9.0), public_references=True)["uses_private_data"] is False


def test_the_same_seed_gives_the_same_figures_and_another_others():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(200, 1)), rng.normal(size=(100, 1))
    first, again = (MeanGap().compare(left, right, seed=3) for _ in range(2))
    assert first == again != MeanGap().compare(left, right, seed=4)


@pytest.mark.parametrize(("predictions", "references"), [(1, 50), (50, 3), (0, 0)])
def test_too_few_rows_are_refused_with_the_number_that_is_needed(predictions, references):
    with pytest.raises(ConfigError, match="needs 2 synthetic and 4 real"):
        MeanGap().compare(np.zeros(predictions), np.zeros(references))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_no_number_is_an_error(value):
    with pytest.raises(ConfigError, match="mean_gap is NaN or infinite"), np.errstate(invalid="ignore"):
        MeanGap().compare(np.full(9, value), np.zeros(9))


def test_a_side_whose_rows_are_all_equal_is_named_in_a_limit():
    varied, same = np.arange(9.0), np.zeros(9)
    for sides, named in (((same, varied), ["synthetic"]), ((varied, same), ["real"]), ((varied, varied), [])):
        limits = MeanGap().compare(*sides)["limits"]
        assert [limit.split()[1] for limit in limits] == named
    assert "all holdout texts" in MeanGap().compare(varied, varied, holdout=same)["limits"][0]


@pytest.mark.parametrize(("options", "message"), [
    ({"num_splits": 1.5}, "num_splits is 1.5; it is a whole number"),
    ({"num_splits": "3"}, "num_splits is '3'"),
    ({"seed": "x"}, "seed is 'x'; it is a whole number"),
    ({"seed": 1.5}, "seed is 1.5"),
])  # fmt: skip
def test_options_of_a_wrong_type_are_refused_by_name(options, message):
    with pytest.raises(ConfigError, match=message):
        MeanGap().compare(np.arange(9.0), np.arange(9.0), **options)
    if "seed" in options:
        with pytest.raises(ConfigError, match=message):
            metrics.load("distinct_n").compute(predictions=["a", "b"], **options)


@pytest.mark.parametrize(("name", "option"), [
    ("mauve", "num_buckets"), ("mauve", "num_seeds"), ("mmd", "num_permutations"), ("mmd", "test_rows"), ("prdc", "k"),
    ("vendi", "num_splits"), ("wasserstein", "num_projections"), ("ngram", "num_bins"), ("self_bleu", "max_n"),
    ("distinct_n", "max_n"), ("perplexity", "max_tokens"),
])  # fmt: skip
def test_a_count_that_is_no_whole_number_is_refused_by_name(name, option):
    for value in (2.5, "3", True):
        with pytest.raises(ConfigError, match=f"{option} is {value!r}; it is a whole number"):
            metrics.load(name, params={option: value})


def test_an_unknown_option_or_metric_names_the_closest():
    with pytest.raises(ConfigError, match="did you mean 'num_bins'"):
        metrics.load("ngram", params={"num_bin": 3})
    with pytest.raises(ConfigError, match="did you mean 'mauve'"):
        metrics.load("mauv")
    with pytest.raises(ConfigError, match="holdout= is empty"):
        MeanGap().compare(np.zeros(9), np.zeros(9), holdout=np.zeros(0))
    with pytest.raises(ConfigError, match="num_splits is 0"):
        MeanGap().compare(np.zeros(9), np.zeros(9), num_splits=0)


@pytest.mark.parametrize("wrong", [CANARY, None, 3, [CANARY, None], [CANARY, 3.5], {CANARY: 1}.values()])
def test_what_is_no_list_of_texts_is_refused_without_showing_it(wrong):
    with pytest.raises(ConfigError) as caught:
        check_texts(wrong, "predictions")
    assert CANARY not in str(caught.value) and "predictions=" in str(caught.value)
