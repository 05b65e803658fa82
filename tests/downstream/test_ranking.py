import json
from collections import Counter

import numpy as np
import pytest
from datasets import DatasetDict

from hf_dpsynth.downstream import Classifier, InContext, WordCNN, rank
from hf_dpsynth.downstream.ranking import LEARNING_RATES, WEIGHT_DECAYS, grid, top_figures
from hf_dpsynth.errors import ConfigError
from tests.downstream.tiny_models import CANARY, rows, save_encoder

SMALL = WordCNN(embedding_size=16, filters=8, hidden_size=8, epochs=4, batch_size=16, validation=0.3)


class Never(WordCNN):
    """A word CNN that must not be fitted."""

    def fit(self, train, *, seed=0):
        raise AssertionError("was fitted")


@pytest.fixture(scope="module")
def real():
    return DatasetDict({"train": rows(80), "test": rows(60, first=500, canary="t")})


@pytest.fixture(scope="module")
def found(real):
    same = rows(80, first=200, canary="s")
    opposite = same.remove_columns("label").add_column("label", [1 - label for label in same["label"]])
    sets = {"same": same, "opposite": opposite}
    return rank(real=real, synthetic=sets, label_column="label", model=SMALL)


def test_the_grid_is_the_papers_sweep_and_has_28_trials():
    assert LEARNING_RATES == tuple(float(f"1e-{power}") for power in range(7, 0, -1))
    assert WEIGHT_DECAYS == (*(float(f"5e-{power}") for power in range(1, 7)), 0.0)
    pairs = grid(LEARNING_RATES, WEIGHT_DECAYS, 28, seed=0)
    assert len(set(pairs)) == 28 and set(Counter(rate for rate, _ in pairs).values()) == {4}
    assert pairs != grid(LEARNING_RATES, WEIGHT_DECAYS, 28, seed=1)
    assert len(set(grid(LEARNING_RATES, WEIGHT_DECAYS, 49, seed=0))) == 49
    assert max(Counter(rate for rate, _ in grid(LEARNING_RATES, WEIGHT_DECAYS, 10, seed=0)).values()) == 2


def test_good_rows_rank_as_real_rows_do_and_mislabelled_ones_do_not(found):
    upper, same, opposite = found.rows
    assert (upper.source, upper.guarantee) == ("real", "none")
    assert upper.spearman > 0.7 and same.spearman > 0.7 and same.kendall > 0.6 and same.rbo > 0.6
    assert opposite.spearman < 0
    assert same.top_mean > 0.9 and opposite.top_mean < 0.3 and same.top_std is not None
    assert found.num_top == 7 and found.persistence == pytest.approx(0.862, abs=1e-3)
    assert len(same.trials) == 28 and found.uses_private_data


def test_the_figures_are_those_of_the_trials(found):
    from scipy.stats import kendalltau, spearmanr

    row = found.rows[1]
    validation = [trial.validation_accuracy for trial in row.trials]
    tested = np.array([trial.test_accuracy for trial in row.trials])
    assert row.spearman == pytest.approx(spearmanr(validation, tested).statistic)
    assert row.kendall == pytest.approx(kendalltau(validation, tested).statistic)
    assert (row.top_mean, row.top_std) == pytest.approx(top_figures(np.array(validation), tested, 7))


def test_trials_tied_at_the_cut_share_its_places_in_any_order():
    validation, tested = np.array([0.9, 0.5, 0.5, 0.5, 0.1]), np.array([0.8, 0.2, 0.6, 0.7, 0.0])
    rng = np.random.default_rng(0)
    for order in [np.arange(5), *(rng.permutation(5) for _ in range(9))]:
        mean, _ = found = top_figures(validation[order], tested[order], 2)
        assert mean == pytest.approx((0.8 + 0.5) / 2) and found == pytest.approx(top_figures(validation, tested, 2))
    apart = np.array([3.0, 2.0, 1.0])
    assert top_figures(apart, tested[:3], 2) == pytest.approx((0.5, np.std([0.8, 0.2], ddof=1)))
    assert top_figures(apart, tested[:3], 1) == (pytest.approx(0.8), None)


def test_a_set_that_is_too_small_is_named_before_anything_is_fitted(real):
    with pytest.raises(ConfigError, match="'tiny' has fewer than 2 training rows"):
        rank(real=real, synthetic={"tiny": rows(1)}, label_column="label", model=Never())


def test_the_result_is_json_and_a_table_without_text(found):
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert CANARY not in text + found.table() + repr(found)
    assert "28 trials of word-cnn" in str(found) and "| same" in found.table()


def test_trials_that_are_all_equal_give_no_ranking_and_say_so(real):
    found = rank(real=real, synthetic={}, label_column="label", model=SMALL, learning_rates=(1e-9,),
                 weight_decays=(0.0, 1e-9), num_trials=2, top_fraction=0.5)  # fmt: skip
    row = found.rows[0]
    assert row.spearman is row.kendall is row.rbo is None and row.top_std is None
    assert any("no ranking" in limit for limit in row.limits) and "| - " in found.table()


def test_an_encoder_can_be_tuned_too(real, tmp_path):
    model = Classifier(model=save_encoder(tmp_path / "encoder"), epochs=1)
    found = rank(real=real, synthetic={}, label_column="label", model=model, learning_rates=(1e-6, 1e-2, 1e30),
                 weight_decays=(0.0,), num_trials=3, top_fraction=0.5)  # fmt: skip
    assert all(0 <= trial.test_accuracy <= 1 for trial in found.rows[0].trials) and found.num_top == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_trials": 1}, "num_trials"),
        ({"num_trials": 50}, "at most 49"),
        ({"num_trials": 2.5}, "num_trials is 2.5; it is a whole number"),
        ({"seed": "x"}, "seed is 'x'; it is a whole number"),
        ({"top_fraction": 0}, "top_fraction"),
        ({"model": InContext()}, "no learning rate"),
        ({"model": "word-cn"}, "did you mean"),
    ],
)
def test_bad_options_are_refused_before_anything_is_fitted(real, wrong, message):
    with pytest.raises(ConfigError, match=message):
        rank(real=real, synthetic={"x": lambda train: 1 / 0}, label_column="label", **wrong)
