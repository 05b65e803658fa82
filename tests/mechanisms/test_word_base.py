import gc
import weakref

import numpy as np
import pytest

from hf_dpsynth.mechanisms.word.base import WordMechanism, prepared
from hf_dpsynth.mechanisms.word.diffractor import Diffractor
from hf_dpsynth.mechanisms.word.madlib import Madlib
from hf_dpsynth.mechanisms.word.mahalanobis import Mahalanobis
from hf_dpsynth.mechanisms.word.syntax_guided import SyntaxGuided
from hf_dpsynth.models.word_vectors import WordVectors


def line(number=1.0):
    return WordVectors(("a", "b", "the"), np.array([[0.0], [number], [3.0]]), "line")


def test_the_last_law_is_kept_with_its_vectors_and_dies_with_them():
    vectors = line()
    assert prepared(Madlib(), vectors, 1.0)[1] is prepared(Madlib(), vectors, 1.0)[1]
    assert prepared(Madlib(), vectors, 2.0)[1] is not prepared(Madlib(), vectors, 1.0)[1]
    gone = weakref.ref(vectors)
    del vectors
    gc.collect()
    assert gone() is None


def test_how_large_the_loss_is_between_typical_words_is_said():
    (vacuous,) = Madlib().advice(line(), 100.0)
    assert "at most 100 to its nearest other word" in vacuous and "bounds nothing in practice" in vacuous
    (noise,) = SyntaxGuided().advice(line(), 0.01)
    assert "0.01 to its nearest" in noise and "next to independent" in noise
    (plain,) = Madlib().advice(line(), 3.0)
    assert "at most 3 to its nearest" in plain and "practice" not in plain
    assert "10000 and more" in Madlib().advice(line(), 1e5)[0]
    assert Madlib().advice(line(), float("inf")) == ()
    assert "at most 30 to its nearest" in Madlib().advice(line(0.999), 29.1)[0], "rounded up, or it may be less"
    (places,) = Diffractor().advice(line(), 2.0)
    assert "at most 2 to its nearest other word and 2 to another" in places
    assert "to its nearest other word" in Mahalanobis().advice(line(), 1.0)[0]
    assert Mahalanobis(lam=0).advice(line(), 1.0) == Madlib().advice(line(), 1.0)


def test_kept_stop_words_are_copied_and_the_claim_is_void_for_them():
    (text,) = Madlib(stop_words="keep").privatize(["the a the"], line(), 1e-3, lambda row: np.random.default_rng(1))
    assert text.split()[::2] == ["the", "the"]
    assert any("the claim is void for them" in said for said in Madlib(stop_words="keep").guarantee(1.0).assumptions)
    drawn = Madlib().privatize(["the " * 50], line(), 1e-3, lambda row: np.random.default_rng(1))[0].split()
    assert set(drawn) == {"a", "the"}, "at so small a scale b, which lies between them, is next to never the nearest"


@pytest.mark.parametrize("method", ["law", "event"])
def test_a_mechanism_has_a_law_and_an_event_of_its_own(method):
    class Bare(WordMechanism):
        name = "bare"

    with pytest.raises(NotImplementedError):
        getattr(Bare(), method)(*([None, 1.0] if method == "law" else [1.0]))
