"""Signals of membership against counts by hand, slow searches, and rows that a signal must not be moved by."""

import math

import numpy as np
import pytest

from hf_dpsynth.audit.signals import Reading, likelihood, named, nearest_similarity, scores_of, shared_words
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.words import words
from tests.stubs import WORDS, StubEmbedder


def texts(n, seed, size=6):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=size)) for _ in range(n)]


def test_the_likelihood_of_a_pair_is_that_of_counts_by_hand():
    """ "good film" and "good plot": 6 words with the ends, 4 kinds with the end; "good" was seen twice."""
    start = (2 + (2 + 1) / 11) / (2 + 1)  # 2 of 2 texts begin with good
    film = (1 + (1 + 1) / 11) / (2 + 1)
    end = (1 + (2 + 1) / 11) / (1 + 1)
    want = np.mean(np.log([start, film, end]))
    assert likelihood(["good film", "good plot"], ["good film"], calibrated=False)[0] == pytest.approx(want)
    single = np.mean(np.log([3 / 11, 2 / 11, 3 / 11]))
    assert likelihood(["good film", "good plot"], ["good film"])[0] == pytest.approx(want - single)
    after = likelihood(["good film", "good plot"], ["good film"], calibrated=False, starts=[1])[0]
    assert after == pytest.approx(np.mean(np.log([film, end])))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_chances_of_all_words_after_any_others_add_up_to_one(n):
    """Over the vocabulary, the end and one word that was never seen, from scores of texts that differ in the last."""
    seen = texts(30, 0)
    known = sorted({word for text in seen for word in words(text)})
    for before in ("good", "good bad", "nobody"):
        ends = [f"{before} {word}" for word in [*known, "unseen"]]
        size = len(before.split())
        scores = likelihood(seen, ends, n=n, calibrated=False, starts=[size] * len(ends))
        closing = likelihood(seen, [f"{text} x" for text in ends], n=n, calibrated=False, starts=[size] * len(ends))
        assert np.isfinite(scores).all() and np.isfinite(closing).all()
        stop = likelihood(seen, [before], n=n, calibrated=False, starts=[size])[0]
        after = [likelihood(seen, [text], n=n, calibrated=False, starts=[size + 1])[0] for text in ends]
        chances = [math.exp(2 * both - last) for both, last in zip(scores, after, strict=True)]
        assert sum(chances) + math.exp(stop) == pytest.approx(1.0)


def test_a_text_that_was_released_is_more_likely_than_its_words_in_another_order():
    seen = texts(200, 1, size=8)
    mixed = [" ".join(sorted(text.split())) for text in seen]
    assert (likelihood(seen, seen) > likelihood(seen, mixed)).mean() > 0.8


def test_the_sets_of_words_agree_with_a_slow_search_in_any_blocks(monkeypatch):
    seen, targets = [*texts(40, 2), "", "..."], [*texts(25, 3), "", "nobody"]
    sets = [[set(words(text)) for text in side] for side in (targets, seen)]
    want = [
        np.mean(sorted((len(one & two) / max(len(one | two), 1) for two in sets[1]), reverse=True)[:5])
        for one in sets[0]
    ]
    assert shared_words(seen, targets, neighbours=5) == pytest.approx(want)
    monkeypatch.setattr("hf_dpsynth.audit.signals._CELLS", 100)
    assert shared_words(seen, targets, neighbours=5) == pytest.approx(want)


def test_the_mean_cosine_agrees_with_a_slow_search():
    seen, targets, model = texts(40, 4), texts(10, 5), StubEmbedder()
    cosines = -np.sort(-(model.embed(targets) @ model.embed(seen).T), axis=1)
    for neighbours in (1, 5, 1000):
        found = nearest_similarity(seen, targets, model, neighbours=neighbours)
        assert found == pytest.approx(cosines[:, :neighbours].mean(axis=1), abs=1e-5)


@pytest.mark.parametrize("signal", ["ngram", "nearest", "jaccard"])
def test_a_score_does_not_move_when_another_target_is_added(signal):
    seen, targets, model = texts(50, 6), texts(20, 7), StubEmbedder()
    more = {"reading": Reading(), "embedder": model}
    both = scores_of(signal, seen, [*targets, "good", ""], **more)
    assert np.array_equal(both[:20], scores_of(signal, seen, targets, **more)) and np.isfinite(both).all()


def test_the_marks_of_start_and_end_are_no_words_of_a_text():
    assert "<s>" not in words("<s> good </s>")
    assert likelihood(["good"], ["<s> good </s>"])[0] < likelihood(["good"], ["good"])[0]


def test_options_out_of_range_are_refused():
    for wrong in ({"n": 0}, {"neighbours": 0}, {"n": 1}):
        with pytest.raises(ConfigError):
            Reading(**wrong)
    with pytest.raises(ConfigError, match="did you mean 'ngram'"):
        named("ngrams")
