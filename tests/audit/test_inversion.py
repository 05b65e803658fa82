"""Inversion: mechanisms that can be undone are caught, noise is not accused, and Bayes' guess is that of the law."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from hf_dpsynth import data
from hf_dpsynth.audit import audit_inversion
from hf_dpsynth.audit.matrices import line
from hf_dpsynth.audit.rehearsal import frequencies
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word.base import WordMechanism
from hf_dpsynth.mechanisms.word.madlib import Madlib
from hf_dpsynth.models.word_vectors import load_vectors
from hf_dpsynth.privacy.keys import Key, public_generator

COMMON = load_vectors("glove-50d", max_words=400)
PRIOR = frequencies(COMMON)


@dataclass(frozen=True, kw_only=True)
class Permuted(WordMechanism):
    """A secret alphabet: each word always becomes the same other word, so no noise protects it."""

    name: ClassVar[str] = "permuted"

    def law(self, vocabulary, epsilon):
        order = public_generator(0, "permuted").permutation(vocabulary.size)

        class Law:
            def draw(self, codes, marks, generator):
                return (order[codes],)

            def choose(self, *drawn):
                return drawn[0]

        return Law()


def texts(rows=200, words=20, vectors=COMMON, prior=PRIOR, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(vectors.words[row] for row in rng.choice(len(prior), words, p=prior)) for _ in range(rows)]


def released(mechanism, epsilon, originals, vectors=COMMON):
    return mechanism.privatize(originals, vectors, epsilon, Key.from_insecure_seed(1).generator)


def rates(made, originals, **more):
    found = audit_inversion(made, originals, vectors=COMMON, candidates=400, **more)
    return {one.metric: one.value for one in found.findings}


def test_texts_that_came_out_as_they_were_are_recovered_whole():
    found = rates(texts(20), texts(20))
    assert found["words_unchanged"] == found["words_recovered"] == found["words_recovered_top_10"] == 1.0


def test_a_fixed_permutation_is_caught_by_who_knows_the_law_and_out_of_reach_of_who_does_not():
    """4000 words: chance is 1 in 400, and the attacker with the law recovers all of them."""
    originals = texts()
    made = released(Permuted(), 1.0, originals)
    assert rates(made, originals)["words_recovered"] < 0.05
    found = rates(made, originals, mechanism=Permuted(), epsilon=1.0)
    assert found["words_recovered"] == 1.0 and found["words_unchanged"] < 0.05


def test_more_noise_means_fewer_words_recovered():
    """4000 words: four standard errors of a difference are below .045; the rates are further apart than that."""
    originals = texts()
    measured = [
        rates(released(Madlib(), epsilon, originals), originals, mechanism="madlib", epsilon=epsilon)
        for epsilon in (2.0, 6.0, 12.0, 40.0)
    ]
    recovered = [found["words_recovered"] for found in measured]
    assert (np.diff(recovered) > 0.045).all() and recovered[-1] > 0.99
    assert all(found["words_recovered"] >= found["words_unchanged"] - 0.01 for found in measured)
    assert all(found["words_recovered_top_10"] > found["words_recovered"] for found in measured[:-1])
    assert measured[0]["words_recovered"] > measured[0]["words_unchanged"] + 0.045, "the prior alone tells more"


def test_noise_that_hides_everything_leaves_what_frequency_tells():
    """At epsilon .01 a released word tells nothing: the best guess is right about as often as the most frequent word.

    4000 words and a rate of .17: four standard errors are .024.
    """
    originals = texts()
    found = rates(released(Madlib(), 0.01, originals), originals, mechanism="madlib", epsilon=0.01)
    assert found["words_recovered"] < found["words_by_frequency"] + 0.024


def test_bayes_guess_is_right_as_often_as_the_law_allows():
    """On four words of a line every probability is an integral: 20,000 words, four standard errors are .014.

    A guess by the released word alone is .023 below.
    """
    words, prior = line(), frequencies(line())
    originals = texts(1000, 20, words, prior)
    edges = np.array([-math.inf, -2.5, 0.5, 3.5, math.inf])

    def below(x):
        return 0.5 * math.exp(x) if x < 0 else 1 - 0.5 * math.exp(-x)

    epsilon = 0.15
    law = np.array(
        [np.diff([below(epsilon * (edge - point)) for edge in edges]) for point in words.vectors[:, 0].astype(float)]
    )
    best, alone = float((prior[:, None] * law).max(axis=0).sum()), float((prior * law.diagonal()).sum())
    made = released(Madlib(), epsilon, originals, words)
    found = audit_inversion(made, originals, vectors=words, mechanism="madlib", epsilon=epsilon, draws=4000, top=1)
    assert abs(found["words_recovered"].value - best) < 0.014
    assert abs(found["words_unchanged"].value - alone) < 0.014 < best - alone


def test_texts_without_noise_are_recovered_by_law_as_without_it():
    originals = texts(20)
    found = rates(originals, originals, mechanism="madlib", epsilon=math.inf)
    assert found["words_recovered"] == 1.0


@pytest.mark.slow
def test_on_real_messages_who_knows_the_law_and_like_texts_guesses_more():
    """3168 words at epsilon 5: .099 against .074, and .30 against .12 among ten guesses; 4 standard errors are .04."""
    train, test = (data.load("sms-spam")[split]["text"][:] for split in ("train", "test"))
    vectors, originals = load_vectors("glove-50d"), train[:200]
    made = released(Madlib(), 5.0, originals, vectors)
    near = audit_inversion(made, originals)
    found = audit_inversion(made, originals, mechanism="madlib", epsilon=5.0, public=test)
    assert found["words_recovered"].value > near["words_recovered"].value
    assert found["words_recovered_top_10"].value > near["words_recovered_top_10"].value + 0.1


def test_a_word_that_is_copied_is_counted_as_in_clear_and_not_as_recovered():
    originals = ["the zqprivate city", "of people and zqother"]
    found = audit_inversion(originals, originals, vectors=COMMON)
    assert found["words_in_clear"].value == pytest.approx(2 / 7) and found["words_recovered"].n == 5
    kept = Madlib(stop_words="keep")
    made = released(kept, 1.0, originals)
    found = audit_inversion(made, originals, vectors=COMMON, mechanism=kept, epsilon=1.0)
    assert found["words_in_clear"].value == pytest.approx(3 / 7) and found["words_recovered"].n == 2
    assert audit_inversion(released(Madlib(), 1.0, originals), originals, vectors=COMMON)["words_in_clear"].value == 0


def test_public_texts_say_how_frequent_words_are():
    prior = frequencies(COMMON, ["city city people", "zq"])
    known = COMMON.known
    falling = [prior[known[word]] for word in ("city", "people", "the", "two", ",")]
    assert falling == sorted(falling, reverse=True) and len(set(falling)) == 5 and falling[-1] == 0
    assert prior.sum() == pytest.approx(1)


def test_the_interval_holds_the_rate_and_the_result_holds_no_text():
    found = audit_inversion(released(Madlib(), 6.0, texts(20)), texts(20), vectors=COMMON)
    for one in found.findings:
        assert one.interval[0] <= one.value <= one.interval[1] and one.uses_private_data and not one.violated
    assert "city" not in str(found.to_json())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mechanism": "madlib"}, "mechanism= and epsilon= together"),
        ({"epsilon": 1.0}, "mechanism= and epsilon= together"),
        ({"mechanism": "dp-mlm", "epsilon": 1.0}, "replaces words one by one"),
        ({"draws": 1}, "draws is 1"),
        ({"top": 0}, "top is 0"),
        ({"originals": ["zqprivate"], "privatized": ["zqprivate"]}, "no word of the originals is guessed at"),
    ],
)
def test_what_cannot_be_attacked_is_refused_without_private_text(change, words):
    given = {"privatized": ["city"], "originals": ["people"], "vectors": COMMON} | change
    with pytest.raises(ConfigError, match=words) as error:
        audit_inversion(given.pop("privatized"), given.pop("originals"), **given)
    assert "zqprivate" not in str(error.value)
