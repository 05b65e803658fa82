"""The laws of word mechanisms, from texts that they privatize: all pairs of words, each with its distance.

20,000 draws of each input at confidence 1 - 1e-6, from keys that are fixed, so that verdicts repeat. A word beside a
crowd shows nearly the whole loss of an exponential mechanism; words on a line do not, so there the law is read too.
"""

from collections import Counter
from functools import partial

import numpy as np
import pytest

from hf_dpsynth.audit import audit_matrix, audit_words
from hf_dpsynth.audit.matrices import line
from hf_dpsynth.mechanisms.word import (
    base,
    custext,
    diffractor,
    exponential,
    madlib,
    mahalanobis,
    noisy_points,
    santext,
    syntax_guided,
    tem,
    vickrey,
)
from hf_dpsynth.mechanisms.word.mahalanobis import root
from hf_dpsynth.models.lexicon import lexical_tags
from hf_dpsynth.models.tags import TAGS
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.keys import Key
from tests.audit.mechanisms.unit import SURE, Unit, planted
from tests.mechanisms.word_draws import law_of, points

DRAWS, EPSILON = 20_000, 1.0
LINE = line()
OUTSIDE = ("unheard", "31,415")


def drawn(mechanism, vectors, inputs, apart, epsilon=EPSILON):
    """The texts of one word each, privatized: a lower bound on the loss for each unit of distance."""

    def draw(word, size, generator):
        key = Key.from_insecure_seed(word)
        (text,) = mechanism.privatize([f"{inputs[word]} " * size], vectors, epsilon, lambda row: key.generator("row"))
        found = Counter(text.split())
        assert found.total() == size
        return np.repeat(np.arange(len(vectors)), [found[word] for word in vectors.words])

    mechanism.forget(vectors)  # what was kept may be of a law without the fault
    found = audit_words(draw, apart, epsilon, draws=DRAWS, confidence=SURE)
    mechanism.forget(vectors)
    return found


def euclidean(vectors):
    """Distances between the words and the two points outside of W."""
    places = points(vectors)
    return np.linalg.norm(places[:, None] - places[None], axis=2)


def on_the_line(mechanism, vectors=LINE):
    inputs = (*vectors.words, *OUTSIDE)
    return [drawn(mechanism, vectors, inputs, euclidean(vectors))]


def exact(mechanism, vectors=LINE):
    """Every probability by which the sampler draws, beside what it draws."""
    mechanism.forget(vectors)
    found = audit_matrix(law_of(mechanism, vectors, EPSILON), euclidean(vectors), EPSILON)
    return [found, *on_the_line(mechanism, vectors)]


def half_the_noise(module, name, patch):
    """Noise of twice the epsilon."""
    real = getattr(module, name)
    patch.setattr(module, name, lambda generator, epsilon, *more: real(generator, 2 * epsilon, *more))


def no_noise(module, name, patch):
    real = getattr(module, name)
    patch.setattr(module, name, lambda *given: 0 * real(*given))


def shared(patch):
    """All words of a text get the same noise."""

    def wrong(generator, epsilon, count, *more, real=noisy_points.multivariate_laplace):
        return np.repeat(real(generator, epsilon, min(count, 1), *more), count, axis=0)

    patch.setattr(noisy_points, "multivariate_laplace", wrong)


NOISE_FAULTS = {
    "half the noise": partial(half_the_noise, noisy_points, "multivariate_laplace"),
    "no noise": partial(no_noise, noisy_points, "multivariate_laplace"),
}


def whole_score(patch):
    """exp(-epsilon d) in place of exp(-epsilon d / 2): an exponential mechanism of half the sensitivity."""
    real = exponential.ExponentialWord.weights
    patch.setattr(exponential.ExponentialWord, "weights", lambda self, code, part: real(self, code, part) ** 2)


def whole_score_in_groups(patch):
    real = custext.within_group_weights
    patch.setattr(custext, "within_group_weights", lambda *given: real(*given) ** 2)


def likeliest(module, patch):
    """No draw at all."""
    patch.setattr(module, "at_places", lambda weights, places: np.full(len(places), int(np.argmax(weights))))


SCORE_FAULTS = {
    "the whole score and not half of it": whole_score,
    "no draw": partial(likeliest, exponential),
}

CROSS = WordVectors(
    tuple("abcdef"), np.array([[-9.0, 0], [9, 0], [0, -0.6], [0, -0.2], [0, 0.2], [0, 0.6]]), "a long cross"
)


def elliptical():
    """Distances in the norm of the noise; the cross is long in one direction and short in the other."""
    places = points(CROSS) @ np.linalg.inv(root(CROSS.vectors, 0.9))
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    return [drawn(mahalanobis.Mahalanobis(lam=0.9), CROSS, (*CROSS.words, *OUTSIDE), apart)]


def squared_root(patch):
    """M in place of its root: less noise where vectors spread less."""
    patch.setattr(mahalanobis, "root", lambda *given: root(*given) @ root(*given))


def second_of_the_input(patch):
    """The coin favours a word by its distance to the input, in place of the noisy point."""
    patch.setattr(
        vickrey._NearestTwo,
        "draw",
        lambda self, codes, marks, generator: (self.vocabulary.points[codes], vickrey.uniforms(generator, len(codes))),
    )


ROW = WordVectors(tuple("abcde"), np.array([[0.0], [1], [3], [4], [9]]), "a row")


def places_apart():
    """One step in the line of words is a distance of 1, also from a word to the next one that is far away."""
    order = np.argsort(diffractor.principal_line(ROW.vectors))
    near = np.abs(points(ROW)[5:, None, 0] - ROW.vectors[None, :, 0]).argmin(axis=1)
    at = np.concatenate([order, order[near]])
    return [drawn(diffractor.Diffractor(), ROW, (*ROW.words, *OUTSIDE), np.abs(np.subtract.outer(at, at)))]


CROWD = WordVectors(
    ("the", "film", *(f"plot{number}" for number in range(11))),
    np.array([[2.011], [0.0], *([2 + number / 1000] for number in range(11))]),
    "one word beside a crowd",
)
BESIDE = ("film", "plot0", "plot5", *OUTSIDE)


def inside_a_group(mechanism):
    """Words of one group, each at a distance of 1 from the others."""
    return [drawn(mechanism, CROWD, BESIDE, 1.0 - np.eye(len(BESIDE)))]


def sensitive_words():
    """Words of the crowd, of which the first one alone is not sensitive."""
    codes = [1, 2, 7, 13, 14]
    return [drawn(santext.SanTextPlus(sensitive=12 / 13), CROWD, BESIDE, euclidean(CROWD)[codes][:, codes])]


def stop_words_of_the_data(patch):
    """Words that are frequent in private texts count as stop words."""
    patch.setattr(base, "STOP_WORDS", frozenset({"the", "film"}))


def frequent_in_the_data(patch):
    """Words are taken for insensitive that are sensitive by their public rank."""
    patch.setattr(santext, "ordinary", lambda size, sensitive: size)


TAGGED = WordVectors(("dog", "good", "cat", "run"), np.array([[0.0], [0.1], [0.3], [0.4]]), "near words of other tags")
TAG_EPSILON = 0.5


def guided(tag_privacy):
    """Distances by what is paid: a tag that differs costs `tag_epsilon` (rr), or everything (public), or nothing."""
    mechanism = syntax_guided.SyntaxGuided(k=3, tag_privacy=tag_privacy, tag_epsilon=TAG_EPSILON)
    apart = euclidean(TAGGED)[:4, :4]
    tags = lexical_tags(TAGGED.words)
    differs = tags[:, None] != tags[None]
    assert TAGS[tags[0]] == TAGS[tags[2]] == "NOUN" and differs.any()
    if tag_privacy != "none":
        apart = np.where(differs, apart + TAG_EPSILON / EPSILON if tag_privacy == "rr" else np.inf, apart)
    return drawn(mechanism, TAGGED, TAGGED.words, apart)


def unpaid_tags(patch):
    """The response of tags is the tag itself."""
    patch.setattr(syntax_guided, "randomized_response", lambda generator, tags, epsilon, categories: tags)


def cheap_tags(patch):
    """Tags leave at six times the loss that is paid for."""

    def wrong(generator, tags, epsilon, categories, real=syntax_guided.randomized_response):
        return real(generator, tags, 6 * epsilon, categories)

    patch.setattr(syntax_guided, "randomized_response", wrong)


def tags_of_the_word(patch):
    """With tags that are neither public nor paid for, the word's own tag decides."""
    real = syntax_guided._Guided.draw

    def wrong(self, codes, marks, generator):
        return real(self, codes, marks, generator)[0], self.lexical[codes]

    patch.setattr(syntax_guided._Guided, "draw", wrong)


def guided_units():
    return [guided(tag_privacy) for tag_privacy in syntax_guided._PRIVACY]


UNITS = {
    "madlib": Unit(lambda: on_the_line(madlib.Madlib()), NOISE_FAULTS | {"words share noise": shared}),
    "mahalanobis": Unit(elliptical, NOISE_FAULTS | {"M in place of its root": squared_root}),
    "vickrey": Unit(
        lambda: on_the_line(vickrey.Vickrey()),
        NOISE_FAULTS | {"a coin between words near the input": second_of_the_input},
    ),
    "tem": Unit(lambda: exact(tem.TEM(beta=0.01)), SCORE_FAULTS),
    "santext": Unit(lambda: exact(santext.SanText()), SCORE_FAULTS),
    "santext+": Unit(
        sensitive_words,
        SCORE_FAULTS | {"sensitive words by the data": frequent_in_the_data},
    ),
    "custext": Unit(
        lambda: inside_a_group(custext.CusText(k=13)),
        {"the whole score and not half of it": whole_score_in_groups, "no draw": partial(likeliest, exponential)},
    ),
    "custext+": Unit(
        lambda: inside_a_group(custext.CusTextPlus(k=13)),
        {
            "the whole score and not half of it": whole_score_in_groups,
            "stop words by the data": stop_words_of_the_data,
        },
    ),
    "diffractor": Unit(
        places_apart,
        {
            "half the noise": partial(half_the_noise, diffractor, "two_sided_geometric"),
            "no noise": partial(no_noise, diffractor, "two_sided_geometric"),
        },
    ),
    "syntax-guided": Unit(
        guided_units,
        NOISE_FAULTS
        | {"tags unpaid for": unpaid_tags, "tags at another loss": cheap_tags, "tags of the word": tags_of_the_word},
    ),
}


@pytest.mark.parametrize("name", UNITS)
def test_privatized_words_keep_the_loss_for_each_unit_of_distance(name):
    assert UNITS[name].refuted() == []


@pytest.mark.parametrize(("unit", "fault"), planted(UNITS))
def test_a_planted_fault_is_refuted(unit, fault, monkeypatch):
    assert unit.caught(fault, monkeypatch)
