import logging

import numpy as np
import pytest
from datasets import Dataset

from hf_dpsynth.downstream import Examples, InContext
from hf_dpsynth.downstream.in_context import balanced
from hf_dpsynth.downstream.label_scores import LabelScorer
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.models import CausalLM
from hf_dpsynth.privacy.keys import public_generator
from tests.downstream.tiny_models import CANARY, CAUSAL, rows, save_causal

TEXTS = ["good film", "a very slow plot , dull actor", "", "w1 w2 w3 w4 w5 w6 w7 w8", "great"]
LONG_WORDS = {"neg": "very bad w3", "pos": "good w5"}


@pytest.fixture(scope="module", params=list(CAUSAL))
def tiny(request, tmp_path_factory):
    return save_causal(tmp_path_factory.mktemp("tiny"), request.param)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return save_causal(tmp_path_factory.mktemp("llama"), "llama")


@pytest.fixture
def train():
    return Examples.of(rows(), label_column="label")


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_the_shared_prefix_changes_no_log_probability(tiny, train, batch_size):
    model = InContext(model=tiny, dtype="float32", shots=4, batch_size=batch_size, verbalisers=LONG_WORDS)
    fitted = model.fit(train, seed=1)
    scorer = fitted._scorer
    questions = [fitted._pieces.question(text) for text in TEXTS]
    cached, whole = scorer.scores(questions), scorer.uncached(questions)
    assert np.abs(cached - whole).max() < 1e-4
    assert cached.std() > 0.1
    assert np.array_equal(scorer.scores(questions), cached)


def test_the_scores_are_those_of_one_plain_pass_a_text_and_label(llama, train):
    import torch

    fitted = InContext(model=llama, dtype="float32", shots=2, verbalisers=LONG_WORDS).fit(train)
    model, _ = CausalLM(llama, dtype="float32").load()
    for text in TEXTS:
        question = fitted._pieces.question(text)
        scores = []
        for word in fitted._pieces.words:
            tokens = fitted._scorer._prefix + question + word
            with torch.inference_mode():
                chances = torch.log_softmax(model(torch.tensor([tokens])).logits[0], dim=-1)
            places = range(len(tokens) - len(word) - 1, len(tokens) - 1)
            scores.append(sum(float(chances[place, tokens[place + 1]]) for place in places))
        expected = np.array(scores) - np.logaddexp.reduce(scores)
        assert np.abs(fitted.log_probabilities([text])[0] - expected).max() < 1e-4


def test_a_text_is_judged_as_it_would_be_alone(llama, train):
    fitted = InContext(model=llama, dtype="float32", shots=3).fit(train)
    together = fitted.log_probabilities(TEXTS)
    alone = np.concatenate([fitted.log_probabilities([text]) for text in TEXTS])
    assert np.abs(together - alone).max() < 1e-4
    assert np.allclose(np.exp(together).sum(axis=1), 1)


def test_demonstrations_hold_each_label_equally_often():
    labels = np.array([0] * 50 + [1] * 3 + [2] * 9)
    for seed in range(20):
        for shots in (3, 6, 9, 10):
            drawn = balanced(labels, shots, public_generator(seed, "test"))
            counts = np.bincount(labels[drawn], minlength=3)
            assert len(set(drawn.tolist())) == shots and counts.max() - counts.min() <= 1
    counts = np.bincount(labels[balanced(labels, 14, public_generator(0, "test"))]).tolist()
    assert sorted(counts) == [3, 5, 6] and counts[1] == 3


def test_resamples_differ_and_zero_shot_needs_none(llama, train):
    model = InContext(model=llama, dtype="float32", shots=3)
    prefixes = {tuple(model.fit(train, seed=seed)._scorer._prefix) for seed in range(6)}
    assert len(prefixes) > 3 and model.repeats(2) == 20
    bare = InContext(model=llama, dtype="float32", shots=0)
    assert bare.repeats(5) == 1 and bare.fit(train).num_train == 0


def test_long_demonstrations_are_cut_at_the_public_limit(llama):
    long = Dataset.from_dict({"text": ["good " * 500, "bad " * 500] * 3, "label": ["pos", "neg"] * 3})
    train = Examples.of(long, label_column="label", text_column="text")
    model = InContext(model=llama, dtype="float32", shots=6, max_prefix_tokens=120, max_text_tokens=40)
    fitted = model.fit(train)
    assert len(fitted._scorer._prefix) <= 120
    assert len(fitted._pieces.question("good " * 500)) <= 40 + 4
    with pytest.raises(ConfigError, match="max_prefix_tokens is 40"):
        InContext(model=llama, dtype="float32", shots=6, max_prefix_tokens=40).fit(train)
    with pytest.raises(ConfigError, match="does not fit into the model's 256"):
        InContext(model=llama, dtype="float32", shots=6, max_text_tokens=200).fit(train)


def test_the_length_of_a_long_private_text_is_not_logged(llama, monkeypatch):
    long = Dataset.from_dict({"text": ["good " * 500, "bad " * 500] * 3, "label": ["pos", "neg"] * 3})
    train = Examples.of(long, label_column="label", text_column="text")
    model, seen = InContext(model=llama, dtype="float32", shots=2), []
    _, tokenizer = model._language_model.load()
    monkeypatch.setattr(tokenizer, "model_max_length", 256)
    monkeypatch.setattr(tokenizer, "deprecation_warnings", {})  # it warns once
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())
    logging.getLogger("transformers").addHandler(handler)
    try:
        model.fit(train).predict(["good " * 500])
        assert seen == []
        tokenizer("good " * 500)
        assert len(seen) == 1
    finally:
        logging.getLogger("transformers").removeHandler(handler)


@pytest.mark.parametrize(
    "wrong", [{"neg": "w1", "pos": "w1"}, {"neg": "w1", "other": "w2"}, {"neg": "", "pos": "w1"}], ids=str
)
def test_verbalisers_must_tell_the_classes_apart(llama, train, wrong):
    with pytest.raises(ConfigError, match="verbalisers"):
        InContext(model=llama, dtype="float32", verbalisers=wrong).fit(train)


def test_more_shots_than_rows_are_refused_without_a_count_or_a_text(llama):
    few = Examples.of(rows(4), label_column="label")
    with pytest.raises(ConfigError, match="shots is 6") as caught:
        InContext(model=llama, dtype="float32").fit(few)
    assert CANARY not in str(caught.value) and "4" not in str(caught.value)
    assert CANARY not in repr(few)


@pytest.mark.parametrize(
    "wrong", [{"shots": -1}, {"resamples": 0}, {"max_text_tokens": 1}, {"instruction": ""}, {"batch_size": 0}]
)
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        InContext(**wrong)


def test_a_scorer_with_one_prefix_token_works(llama):
    model, _ = CausalLM(llama, dtype="float32").load()
    scorer = LabelScorer(model, [0], [[4], [5, 6]], batch_size=2, room=4)
    texts = [[7], [8, 9, 10]]
    assert np.abs(scorer.scores(texts) - scorer.uncached(texts)).max() < 1e-4
