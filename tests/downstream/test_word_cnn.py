import numpy as np
import pytest
import torch
from datasets import Dataset

from hf_dpsynth.downstream import Examples, WordCNN
from hf_dpsynth.downstream.base import Patience
from hf_dpsynth.downstream.word_cnn import words
from hf_dpsynth.errors import ConfigError, PrivacyError
from tests.downstream.tiny_models import CANARY, rows

SMALL = {"embedding_size": 24, "filters": 16, "hidden_size": 16, "learning_rate": 5e-3}
TEXTS = ["good film", "", "slow , dull plot - awful", "?!", "w " * 500, "GOOD Film"]


@pytest.fixture(scope="module")
def train():
    return Examples.of(rows(), label_column="label")


@pytest.fixture(scope="module")
def fitted(train):
    return WordCNN(epochs=4, **SMALL).fit(train)


def test_the_defaults_are_those_of_the_paper(train):
    model = WordCNN()
    assert (model.vocabulary_size, model.embedding_size, model.filters, model.hidden_size) == (30_000, 384, 256, 256)
    network = WordCNN(epochs=1).fit(train.take(range(20)))._network
    assert network.convolution.kernel_size == (3,) and network.convolution.out_channels == 256
    assert network.embedding.embedding_dim == 384 and network.hidden.out_features == 256
    assert model.patience == 1


def test_it_learns_and_generalises_to_unseen_rows(fitted):
    assert fitted.accuracy(Examples.of(rows(60, first=500, canary="other"), label_column="label")) > 0.95


def test_a_text_is_judged_as_it_would_be_alone_whatever_stands_beside_it(fitted):
    together = fitted.log_probabilities(TEXTS)
    alone = np.concatenate([fitted.log_probabilities([text]) for text in TEXTS])
    assert np.abs(together - alone).max() < 1e-5
    assert np.abs(fitted.log_probabilities(TEXTS[::-1])[::-1] - together).max() < 1e-5
    assert np.isfinite(together).all() and np.allclose(np.exp(together).sum(axis=1), 1)
    assert np.allclose(together[0], together[5])


def test_empty_and_wordless_texts_are_judged_alike(fitted):
    found = fitted.log_probabilities(["", "?!", "   "])
    assert np.isfinite(found).all() and np.allclose(found, found[0])


def test_the_same_seed_gives_the_same_model_and_no_shared_generator_moves(train):
    before = torch.get_rng_state(), np.random.mtrand.get_state()[1].copy()
    first = WordCNN(epochs=2, **SMALL).fit(train, seed=1).log_probabilities(TEXTS)
    second = WordCNN(epochs=2, **SMALL).fit(train, seed=1).log_probabilities(TEXTS)
    third = WordCNN(epochs=2, **SMALL).fit(train, seed=2).log_probabilities(TEXTS)
    assert np.allclose(first, second, atol=1e-5) and not np.allclose(first, third, atol=1e-3)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.mtrand.get_state()[1])


def test_the_vocabulary_holds_the_commonest_words_of_the_training_part(train):
    fitted = WordCNN(epochs=1, vocabulary_size=5, **SMALL).fit(train)
    assert len(fitted._vocabulary) == 5 and "film" in fitted._vocabulary
    assert fitted.encode("FILM unheard") == [fitted._vocabulary["film"], 1]


def test_words_are_split_at_white_space_and_punctuation():
    assert words("It's a_b\u00e9 -- GOOD!\n42") == ["it", "s", "a", "b\u00e9", "good", "42"]


def test_validation_accuracy_that_does_not_increase_stops_training():
    patience = Patience(1)
    assert [patience.improves(accuracy) for accuracy in (0.5, 0.6)] == [True, True] and not patience.is_over
    assert not patience.improves(0.6) and patience.is_over
    patient = Patience(2)
    assert [patient.improves(a) for a in (0.5, 0.5, 0.6, 0.6)] == [True, False, True, False] and not patient.is_over
    assert not patient.improves(0.1) and patient.is_over and patient.best == 0.6


def test_a_step_too_small_to_learn_ends_after_two_epochs(train):
    fitted = WordCNN(epochs=20, **(SMALL | {"learning_rate": 1e-9})).fit(train)
    assert fitted.epochs == 1 and 0 <= fitted.validation_accuracy <= 1


def test_a_fit_that_diverges_keeps_finite_weights(train):
    fitted = WordCNN(epochs=3, **(SMALL | {"learning_rate": 1e30})).fit(train)
    assert fitted.is_finite(TEXTS) and fitted.epochs == 0 and 0 <= fitted.validation_accuracy <= 1


def test_one_class_and_two_rows_are_fitted():
    data = Dataset.from_dict({"text": ["good", ""], "label": ["pos", "pos"]})
    train = Examples.of(data, text_column="text", label_column="label", classes=("neg", "pos"))
    fitted = WordCNN(epochs=30, **SMALL).fit(train)
    assert fitted.predict(["good", "bad", ""]).tolist() == [1, 1, 1]
    with pytest.raises(ConfigError, match="fewer than 2"):
        WordCNN(**SMALL).fit(train.take([0]))


def test_examples_show_nothing_and_cannot_be_pickled(train):
    import pickle

    assert CANARY not in repr(train) + str(train) + repr(train.texts)
    with pytest.raises(PrivacyError):
        pickle.dumps(train)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"learning_rate": 0},
        {"learning_rate": float("nan")},
        {"weight_decay": -1},
        {"weight_decay": float("nan")},
        {"validation": 1},
        {"patience": 0},
        {"vocabulary_size": 0},
        {"max_words": 0},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        WordCNN(**wrong)
