import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_dpsynth import metrics
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word.madlib import Madlib
from hf_dpsynth.metrics.plausible_deniability import confusion, distances, substitution
from hf_dpsynth.models.tags import TAGS
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.keys import Key

WORDS = WordVectors(
    ("good", "bad", "film", "quickly", "seven"), np.array([[0.0, 0], [1, 0], [5, 0], [0, 4], [9, 9]]), "five"
)


def measure(made, real, params=None, **options):
    metric = metrics.load("plausible_deniability", params=params or {"draws": 2})
    return metric.compute(predictions=made, references=real, vectors=WORDS, **options)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=9), st.integers(1, 5))
def test_distinct_is_the_mean_over_all_subsets_of_the_draws(pairs, among):
    inputs, outputs = np.array(pairs).T
    found = substitution(inputs, outputs, among)
    for at, word in enumerate(found.words):
        mine = outputs[inputs == word].tolist()
        subsets = list(itertools.combinations(mine, min(among, len(mine))))
        assert found.distinct[at] == pytest.approx(np.mean([len(set(one)) for one in subsets]))
        assert found.self_substitution[at] == pytest.approx(100 * mine.count(word) / len(mine))
        assert found.draws[at] == len(mine)


def test_distinct_of_no_more_draws_than_asked_for_is_their_plain_number():
    outputs = np.array([0, 1, 2, 2] * 25)
    assert substitution(np.zeros(100, dtype=int), outputs).distinct.tolist() == [3.0]


def test_confusion_has_what_went_in_by_rows():
    found = confusion(np.array([0, 0, 10], dtype=np.int8), np.array([1, 1, 10], dtype=np.int8))
    assert found.shape == (len(TAGS), len(TAGS)) and found.sum() == 3
    assert found[0, 1] == 2 and found[10, 10] == 1


def test_distances_are_those_of_words_that_changed(monkeypatch):
    monkeypatch.setattr("hf_dpsynth.metrics.plausible_deniability._BLOCK", 2)
    inputs, outputs = np.array([0, 0, 2, 3, 1]), np.array([1, 0, 0, 4, 2])
    want = [1.0, 5.0, np.hypot(9, 5), 4.0]
    np.testing.assert_allclose(distances(WORDS.vectors, inputs, outputs), want)
    assert distances(WORDS.vectors, inputs, inputs).shape == (0,)


def test_pairs_of_texts_are_counted_place_by_place():
    real = ["Good, film!", "good film", "quickly unheard", "good"]
    made = ["bad, film!", "good film", "quickly good", "good film"]
    found = measure(made, real)
    assert found["num_pairs"] == 6 and found["num_words"] == 2  # good and film occur twice in texts that pair
    assert found["self_substitution_mean"] == 75.0 and found["plausible_deniability"] == 0.5
    assert found["distinct_mean"] == 1.5 and found["unchanged"] == pytest.approx(4 / 6)
    assert found["tags_kept"] == 1.0 and found["distance_mean"] == 1.0
    assert any("1 texts have another number of words" in line for line in found["limits"])
    assert any("1 of 6 pairs hold a word outside the vocabulary" in line for line in found["limits"])


def test_private_references_are_said_to_be():
    assert measure(["good"], ["good"])["uses_private_data"] is True
    assert measure(["good"], ["good"], public_references=True)["uses_private_data"] is False


def test_what_cannot_be_measured_is_none_and_no_error():
    found = measure(["good film"], ["good"])
    assert found["plausible_deniability"] is None and found["tags_kept"] is None and found["num_pairs"] == 0
    assert measure(["!"], ["?"])["self_substitution_quantile"] is None


def test_figures_of_a_release_are_those_of_the_mechanism():
    """200 draws a word: 5 standard errors of N_w are 18 points, of which the noiseless case (100) is far off."""
    real = ["good bad film quickly seven"] * 200
    made = Madlib().privatize(real, WORDS, 1.0, Key.from_insecure_seed(0).generator)
    found = measure(made, real, {"draws": 100})
    own = [sum(text.split()[at] == word for text in made) / 2 for at, word in enumerate(WORDS.words)]
    assert found["self_substitution_mean"] == pytest.approx(np.mean(own))
    assert found["unchanged"] == pytest.approx(np.mean(own) / 100)
    assert found["self_substitution_quantile"] == pytest.approx(np.quantile(own, 0.9))
    assert measure(real, real, {"draws": 100})["self_substitution_mean"] == 100.0


def test_wrong_inputs_are_refused_without_a_text():
    for made, real in ((["secret"], ["a", "b"]), ([], [])):
        with pytest.raises(ConfigError, match="takes pairs") as error:
            measure(made, real)
        assert "secret" not in str(error.value)
    with pytest.raises(ConfigError, match="must be a text"):
        measure([None], ["secret"])
    with pytest.raises(ConfigError, match="quantile is nan"):
        metrics.load("plausible_deniability", params={"quantile": float("nan")})


def test_evaluate_finds_the_same_figures():
    evaluate = pytest.importorskip("evaluate")
    module = evaluate.load("hf_dpsynth/plausible_deniability")
    made, real = ["bad film", "good film"], ["good film", "good film"]
    assert module.compute(predictions=made, references=real, vectors=WORDS, draws=2) == measure(made, real)
