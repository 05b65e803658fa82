import importlib
import logging
import pathlib
import tempfile

import numpy as np
import pytest
import torch
import transformers

from hf_dpsynth import data
from hf_dpsynth.devices import Devices
from hf_dpsynth.downstream import Classifier, Examples
from hf_dpsynth.errors import AssetError, ConfigError
from tests.downstream.tiny_models import CANARY, rows, save_encoder
from tests.stubs import files_with

TEXTS = ["good film", "", "slow , dull plot", "bad " * 400]
FAST = {"epochs": 4, "learning_rate": 5e-3, "batch_size": 16, "patience": 4}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def train():
    return Examples.of(rows(), label_column="label")


@pytest.fixture(scope="module")
def fitted(encoder, train):
    return Classifier(model=encoder, **FAST).fit(train)


def test_it_learns_and_generalises_to_unseen_rows(fitted):
    assert fitted.accuracy(Examples.of(rows(60, first=500, canary="other"), label_column="label")) > 0.9
    assert fitted.validation_accuracy > 0.9 and fitted.num_train == 120


def test_a_text_is_judged_as_it_would_be_alone(fitted):
    together = fitted.log_probabilities(TEXTS)
    alone = np.concatenate([fitted.log_probabilities([text]) for text in TEXTS])
    assert np.abs(together - alone).max() < 1e-4
    assert np.isfinite(together).all() and np.allclose(np.exp(together).sum(axis=1), 1)


def test_nothing_of_the_rows_is_printed_logged_or_left_on_disk(encoder, train, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    seen = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())
    logging.getLogger().addHandler(handler)
    logging.getLogger("transformers").addHandler(handler)
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_info()
    try:
        Classifier(model=encoder, **(FAST | {"epochs": 2})).fit(train)
        assert transformers.logging.get_verbosity() == logging.INFO
    finally:
        transformers.logging.set_verbosity(verbosity)
        logging.getLogger().removeHandler(handler)
        logging.getLogger("transformers").removeHandler(handler)
    printed = capfd.readouterr()
    assert printed.out == "" and printed.err == "" and seen == []
    assert list((tmp_path / "temporary").iterdir()) == []
    caches = [pathlib.Path(tempfile.gettempdir()), tmp_path, pathlib.Path.home() / ".cache" / "huggingface"]
    assert [hit for folder in caches for hit in files_with(folder, f"{CANARY}1")] == []


def test_shared_generators_and_switches_are_left_as_they_were(encoder, train):
    shared = importlib.import_module("random")
    states = shared.getstate(), torch.get_rng_state(), np.random.mtrand.get_state()[1].copy()
    bars = transformers.logging.is_progress_bar_enabled()
    first = Classifier(model=encoder, **(FAST | {"epochs": 1})).fit(train, seed=1).log_probabilities(TEXTS)
    assert shared.getstate() == states[0] and torch.equal(torch.get_rng_state(), states[1])
    assert np.array_equal(np.random.mtrand.get_state()[1], states[2])
    assert transformers.logging.is_progress_bar_enabled() == bars
    torch.rand(3)
    second = Classifier(model=encoder, **(FAST | {"epochs": 1})).fit(train, seed=1).log_probabilities(TEXTS)
    assert np.allclose(first, second, atol=1e-5)
    assert Devices.current().torch_device().type in ("cpu", "cuda", "mps")


def test_early_stopping_returns_the_best_weights(encoder, train):
    still = Classifier(model=encoder, epochs=6, learning_rate=1e-12, patience=1).fit(train)
    assert still.epochs == 1
    diverged = Classifier(model=encoder, epochs=2, learning_rate=1e30).fit(train)
    assert diverged.is_finite(TEXTS) and diverged.validation_accuracy is not None


def test_a_folder_that_is_no_model_is_refused_by_its_last_name_only(tmp_path, train):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(AssetError, match="nothing@") as caught:
        Classifier(model=str(tmp_path / "nothing")).fit(train)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"max_tokens": 1}, {"batch_size": 0}, {"learning_rate": -1}], ids=str
)
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Classifier(**wrong)


@pytest.mark.slow
def test_minilm_answers_trec_far_better_than_the_commonest_class():
    trec = data.load("trec")
    train = Examples.of(trec["train"].shuffle(seed=0).select(range(600)), label_column="label")
    test = Examples.of(trec["test"].shuffle(seed=0).select(range(300)), label_column="label")
    assert Classifier(epochs=2).fit(train).accuracy(test) > 0.75
