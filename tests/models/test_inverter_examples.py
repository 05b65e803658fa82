"""What an inverter is trained on: batches of cut texts, and vectors with noise of a stated length."""

import numpy as np
import pytest

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.models.inverter_examples import Examples, noisy
from hf_dpsynth.models.inverter_training import deal
from tests.mechanisms.tiny import tokenizer
from tests.models.test_inverter import TEXTS
from tests.stubs import StubEmbedder


def test_noise_has_the_length_that_is_stated_and_vectors_keep_theirs():
    rng, rows, width = np.random.default_rng(0), 400, 64
    vectors = rng.standard_normal((rows, width))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for share in (0.0, 0.3, 1.0):
        made = noisy(vectors, np.full(rows, share), rng.standard_normal((rows, width)))
        np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)
        tangent = np.sqrt(1 / np.minimum((made * vectors).sum(1) ** 2, 1) - 1)
        # of 400 rows the mean has a relative error of 0.5 %: a scale that is 10 % wrong is 20 of them away
        assert np.mean(tangent) == pytest.approx(share, rel=0.04, abs=1e-3)


def test_each_text_is_learned_once_in_an_epoch_and_cut_before_it_is_embedded():
    embedder, texts = StubEmbedder(), [*TEXTS, "good bad " * 9]
    kept = Examples.of(texts, tokenizer(), embedder, 8)
    end = tokenizer().eos_token_id
    assert all(tokens[-1] == end and len(tokens) <= 8 for tokens in kept.tokens) and len(kept.tokens[-1]) == 8
    np.testing.assert_allclose(kept.vectors[-1], embedder.embed(["good bad good bad good bad good"])[0], atol=1e-6)
    for epoch in range(2):
        rows = [row for step in range(5) for row in kept.batch(5 * epoch + step, 4, seed=0)]
        assert sorted(rows) == list(range(17))
    assert [kept.batch(step, 4, 0) for step in range(5)] != [kept.batch(step, 4, 1) for step in range(5)]


def test_held_out_texts_are_dealt_once_and_for_all():
    known, unseen = deal([*TEXTS, TEXTS[0], " "], 0.25, 0)
    assert sorted(known + unseen) == sorted(TEXTS) and len(unseen) == round(0.25 * len(TEXTS))
    assert deal(TEXTS, 0.25, 0) == (known, unseen) != deal(TEXTS, 0.25, 1)
    with pytest.raises(ConfigError, match="share"):
        deal(TEXTS, 1.0, 0)
