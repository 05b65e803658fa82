"""Token F1 and BLEU against values worked out by hand."""

import math

import numpy as np
import pytest

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.reconstruction import corpus_bleu, evaluate_inverter, token_f1
from tests.stubs import StubEmbedder


def test_f1_counts_each_copy_once_and_no_order():
    assert token_f1("film good a", "A good film") == 1
    assert token_f1("good good good", "good film") == pytest.approx(2 / 5)
    assert token_f1("plot", "good film") == token_f1("", "good") == 0
    assert token_f1("", " ") == 1


def test_bleu_clips_matches_and_adds_all_texts_before_it_divides():
    # matches 6 of 8, 4 of 6, 2 of 4, 1 of 2 n-grams of both texts; 8 words said for 9
    said, wanted = ["a b c d x", "e f g"], ["a b c d e", "f g h e"]
    orders = [(4 + 3, 8), (3 + 1, 6), (2 + 0, 4), (1 + 0, 2)]
    expected = math.exp(sum(math.log(hit / all_) for hit, all_ in orders) / 4 + 1 - 9 / 8)
    assert corpus_bleu(said, wanted) == pytest.approx(expected)
    assert corpus_bleu(wanted, wanted) == 1
    # Papineni et al. 2002, section 2.1: two of seven; no pair matches
    assert corpus_bleu(["the the the the the the the"], ["the cat is on the mat"]) == 0
    longer = corpus_bleu(["a b c d e f g h"], ["a b c d"])
    assert longer == pytest.approx((4 / 8 * 3 / 7 * 2 / 6 * 1 / 5) ** 0.25)
    with pytest.raises(ConfigError, match="pair them"):
        corpus_bleu(["a"], [])


def test_an_inverter_is_scored_beside_chance():
    texts = ["good film", "bad plot", "slow story"]

    class Half:
        """Gives back the first word."""

        def invert(self, vectors, *, seed):
            known = StubEmbedder().embed(texts)
            return [texts[row].split()[0] for row in (np.asarray(vectors) @ known.T).argmax(1)]

    found = evaluate_inverter(Half(), texts, embedder=StubEmbedder())
    assert found["token_f1"] == pytest.approx(2 / 3) and found["exact"] == found["bleu"] == 0
    assert found["cosine"] == pytest.approx(0.5**0.5, abs=0.01) and found["token_f1_chance"] == 0
    assert found["cosine_chance"] < 0.2 and found["num_texts"] == 3
    assert "cosine_chance" not in evaluate_inverter(Half(), texts[:1], embedder=StubEmbedder())
    with pytest.raises(ConfigError, match="no text"):
        evaluate_inverter(Half(), [], embedder=StubEmbedder())
