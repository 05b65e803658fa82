import random

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.models import pull
from hf_dpsynth.models.base import Embedder
from hf_dpsynth.models.sentence import SentenceEmbedder

WORDS = "the a film plot actor is was great dull slow bright funny very not and but with music".split()


def make_texts(count, seed=0):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.choice([1, 5, 20, 40, 90, 170, 300]))) for _ in range(count)]


@pytest.fixture(scope="module")
def minilm():
    return SentenceEmbedder("minilm", batch_size=4)


def test_a_vector_is_the_same_bits_whatever_stands_beside_it_and_wherever_it_stands(minilm):
    texts = make_texts(21)
    together = minilm.embed(texts)
    order = list(range(21))
    random.Random(1).shuffle(order)
    shuffled = minilm.embed([texts[row] for row in order[:13]])
    assert np.array_equal(shuffled, together[order[:13]])
    for row in (0, 7, 20):
        assert np.array_equal(minilm.embed([texts[row]])[0], together[row])


def test_vectors_are_those_of_sentence_transformers(minilm):
    texts = make_texts(9, seed=2)
    reference = SentenceTransformer(pull("minilm"), device="cpu").encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(minilm.embed(texts), reference, atol=2e-6)


def test_vectors_are_float32_and_have_length_one(minilm):
    vectors = minilm.embed(make_texts(5))
    assert vectors.dtype == np.float32 and vectors.shape == (5, minilm.dimension) == (5, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert isinstance(minilm, Embedder)


def test_no_texts_give_no_rows(minilm):
    assert minilm.embed([]).shape == (0, 384)


def test_an_empty_text_has_a_vector(minilm):
    assert np.isfinite(minilm.embed([""])).all()


def test_texts_are_cut_at_a_public_number_of_tokens():
    short = SentenceEmbedder("minilm", batch_size=2, max_tokens=10)
    vectors = short.embed(["film " * 8, "film " * 8 + "music " * 50])
    assert np.array_equal(vectors[0], vectors[1])


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"max_tokens": 2}, {"max_tokens": 1000}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ConfigError):
        SentenceEmbedder(**options)


def test_a_folder_that_holds_no_model_is_an_asset_error(tmp_path):
    with pytest.raises(AssetError, match="does not load as a sentence-transformers model"):
        SentenceEmbedder(str(tmp_path)).embed(["film"])
