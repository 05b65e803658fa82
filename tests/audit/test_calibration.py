import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest

from hf_dpsynth.audit import calibrate
from hf_dpsynth.audit import words as word_studies
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word.base import WordMechanism
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.keys import Key

PAIR = WordVectors(("good", "bad"), np.array([[-1.0], [1.0]]), "pair")
RING = WordVectors(
    ("good", "bad", "film", "story", "actor", "music", "war", "love"),
    np.stack([[math.cos(at * math.pi / 4), math.sin(at * math.pi / 4)] for at in range(8)]),
    "ring",
)


@dataclass(frozen=True, kw_only=True)
class First(WordMechanism):
    """Returns the first word of the vocabulary, whatever goes in."""

    name: ClassVar[str] = "first"

    def law(self, vocabulary, epsilon):
        class Law:
            def draw(self, codes, marks, generator):
                return (codes,)

            def choose(self, *drawn):
                return np.zeros(len(drawn[0]), dtype=np.int64)

        return Law()


def test_the_epsilon_is_that_of_the_law():
    """Two words at distance 2: P(w -> w) = 1 - exp(-epsilon) / 2, which is 80 % at epsilon = ln 2.5 = 0.916. With
    50,000 draws a standard error of N_w is 0.18 points, 1 % of this epsilon; 5 of them and the tolerance are 6 %."""
    found = calibrate(
        "madlib", most_self=80, quantile=0.5, words=["good", "bad"], draws=50_000, vectors=PAIR, tolerance=0.01
    )
    assert abs(found.epsilon / math.log(2.5) - 1) < 0.06
    assert found.deniability.epsilon == found.epsilon and found.deniability.self_quantile(0.5) <= 80


def test_the_limits_hold_at_the_epsilon_and_fail_right_above_it():
    found = calibrate("madlib", words=8, draws=400, vectors=RING, tolerance=0.02)
    best = [step for step in found.trace if step.epsilon == found.epsilon]
    assert len(best) == 1 and best[0].holds and best[0].self_substitution <= 50
    assert best[0].self_substitution == found.deniability.self_quantile(0.9)
    above = min(step.epsilon for step in found.trace if not step.holds)
    assert found.epsilon < above <= found.epsilon * 1.02
    assert "90 % of words have N_w <= 50 %" in repr(found)


def test_common_random_numbers_make_the_trace_monotone():
    trace = sorted((step.epsilon, step.self_substitution) for step in calibrate("madlib", words=8, vectors=RING).trace)
    assert all(one[1] <= other[1] for one, other in pairwise(trace))


def test_a_limit_of_distinct_words_can_bind(monkeypatch):
    monkeypatch.setattr(word_studies, "Key", lambda: Key.from_insecure_seed(1))  # by 4 of 30 keys it does not bind
    free = calibrate("madlib", words=8, draws=100, vectors=RING, tolerance=0.05)
    bound = calibrate("madlib", words=8, draws=100, vectors=RING, tolerance=0.05, least_distinct=8)
    assert bound.epsilon < free.epsilon and bound.deniability.distinct_quantile(0.1) >= 8


def test_a_lower_quantile_asks_for_less():
    few = calibrate("madlib", words=8, draws=200, vectors=RING, quantile=0.9, most_self=50)
    most = calibrate("madlib", words=8, draws=200, vectors=RING, quantile=0.1, most_self=50)
    assert few.epsilon <= most.epsilon


def test_no_epsilon_on_the_edge_is_an_error_that_says_why():
    kept = {"stop_words": "keep"}
    words = WordVectors(("the", "a", "film"), np.array([[0.0], [1.0], [2.0]]), "three")
    with pytest.raises(ConfigError, match=r"at no epsilon down to 0\.001 .*copied by its parameters"):
        calibrate("madlib", words=["the", "a"], draws=9, vectors=words, params=kept)
    with pytest.raises(ConfigError, match=r"up to epsilon 10000 .*sets no epsilon"):
        calibrate(First(), words=["bad"], draws=9, vectors=PAIR)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quantile": 1.5}, "quantile is 1.5"),
        ({"quantile": float("nan")}, "quantile is nan"),
        ({"most_self": 100}, "most_self is 100"),
        ({"most_self": float("nan")}, "most_self is nan"),
        ({"tolerance": 0}, "tolerance is 0"),
        ({"tolerance": float("nan")}, "tolerance is nan"),
        ({"least_distinct": 51, "draws": 50}, "with draws=50 it lies between 1 and 50"),
        ({"least_distinct": 101, "draws": 500}, "between 1 and 100"),
        ({"draws": 0}, "draws is 0"),
        ({"words": "private text"}, "reads public words only"),
    ],
)
def test_wrong_arguments_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        calibrate("madlib", vectors=PAIR, **options)
