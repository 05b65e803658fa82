import json
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from datasets import Dataset

import hf_dpsynth
from hf_dpsynth.audit import plausible_deniability
from hf_dpsynth.audit.words import prepare
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word.base import WordMechanism
from hf_dpsynth.mechanisms.word.madlib import Madlib
from hf_dpsynth.models.tags import TAGS
from hf_dpsynth.models.word_vectors import WordVectors, load_vectors
from hf_dpsynth.privacy.keys import Key, public_generator

LINE = WordVectors(tuple("abcd"), np.array([[-5.0], [0.0], [1.0], [6.0]]), "line")
COMMON = load_vectors("glove-50d", max_words=400)
MARKS = WordVectors((",", "film", "...", "good", "u.s.", "seven"), np.arange(6.0)[:, None], "marks")


def study(words=20, draws=50, mechanism="madlib", vectors=COMMON, key=None, seed=0, params=None):
    return prepare(mechanism, words, draws, params, vectors=vectors, seed=seed, key=key)


@dataclass(frozen=True, kw_only=True)
class Marked(WordMechanism):
    """Returns the row that its mark says, and so shows which mark each draw was given."""

    name: ClassVar[str] = "marked"

    def law(self, vocabulary, epsilon):
        class Law:
            def draw(self, codes, marks, generator):
                assert marks.shape == (len(codes), 2) and (marks[:, 0] == codes).all()
                return (marks[:, 1],)

            def choose(self, *drawn):
                return drawn[0]

        return Law()

    def marks(self, texts, words, codes, vocabulary):
        assert list(texts) == [one for (one,) in words]
        return [np.stack([code, len(text) + 0 * code], axis=1) for text, code in zip(texts, codes, strict=True)]


def test_self_substitution_is_the_probability_of_the_law():
    """On a line P(b -> b) is a Laplace integral; with 40,000 draws 6 standard errors are 1.5 points, and an epsilon
    that is 10 % wrong moves it by 2.8."""

    def below(x, epsilon):
        return 0.5 * math.exp(epsilon * x) if x < 0 else 1 - 0.5 * math.exp(-epsilon * x)

    found = plausible_deniability("madlib", 1.0, ["b"], draws=40_000, vectors=LINE).self_substitution[0]
    want, wrong = (100 * (below(0.5, epsilon) - below(-2.5, epsilon)) for epsilon in (1.0, 1.1))
    assert abs(found - want) < 1.5 < abs(found - wrong)


def test_a_draw_is_that_of_a_text_of_the_word_alone():
    words, key = [word for word in COMMON.words[:80] if word.isalpha()], Key.from_insecure_seed(3)
    for params in ({}, {"stop_words": "keep"}):
        mechanism = Madlib(**params)
        texts = mechanism.privatize(list(words), COMMON, 4.0, key.generator)
        rows = mechanism.substitutes(words, 1, COMMON, 4.0, key.generator)
        assert [COMMON.words[row] for row in rows[:, 0]] == texts
    assert mechanism.substitutes(["the"], 9, COMMON, 0.1, key.generator).tolist() == [[0] * 9]


def test_each_draw_has_the_mark_of_its_word():
    found = Marked().substitutes(["good", "a", "the"], 40_000, COMMON, 1.0, Key().generator)
    assert (found == np.array([[4], [1], [3]])).all() and found.shape == (3, 40_000)


def test_one_key_draws_the_same_noise_again_and_scales_it():
    """The point moves along a ray from the word, and what is nearest to the word is a convex set: N_w never falls."""
    common = study(key=Key.from_insecure_seed(1))
    own = np.array([common.at(epsilon).self_substitution for epsilon in (2.0, 2.1, 3.0, 4.0, 9.0)])
    assert (np.diff(own, axis=0) >= 0).all() and (np.diff(own, axis=0) > 0).any()
    np.testing.assert_array_equal(common.outputs(3.0), common.outputs(3.0))
    assert (study().outputs(3.0) != study().outputs(3.0)).any()


def test_words_have_streams_of_their_own_whatever_the_others_are():
    key = Key.from_insecure_seed(1)
    both = study(["city", "people"], key=key).outputs(2.0)
    np.testing.assert_array_equal(both[1:], study(["people"], key=key).outputs(2.0))


def test_a_number_of_words_is_a_public_choice_of_words_that_texts_hold():
    first, again, other = study(30).words, study(30).words, study(30, seed=1).words
    assert first == again and first != other and len(set(first)) == 30
    assert set(study(3, vectors=MARKS).words) == {"film", "good", "seven"}
    for words in (4, 0, -1):
        with pytest.raises(ConfigError, match=f"words is {words}; marks has"):
            study(words, vectors=MARKS)


def test_private_texts_are_refused_with_the_reason():
    private = Dataset.from_dict({"text": ["my secret", "good"]})
    for words in (private, private["text"], "my secret", {"good": 1}, {"good"}, True, 2.5, None, np.array(["good"])):
        with pytest.raises(ConfigError, match="reads public words only") as error:
            study(words)
        assert "secret" not in str(error.value)
    for words in (private["text"][:], ["good", None], ["Good"], ["good", "the film"]):
        with pytest.raises(ConfigError, match=r"words\[\d\] is no word .*reads public words only") as error:
            study(words)
        assert "secret" not in str(error.value)
    with pytest.raises(ConfigError, match=r"words\[0\] is no word"):
        study([","], vectors=MARKS)
    for words in ([], ["good", "good"]):
        with pytest.raises(ConfigError, match="Name each word once"):
            study(words)


def test_wrong_arguments_are_refused():
    with pytest.raises(ConfigError, match="of kind 'synthesize'"):
        study(mechanism="aug-pe")
    with pytest.raises(ConfigError, match="no parameter 'lamm'"):
        study(params={"lamm": 1})
    with pytest.raises(ConfigError, match="draws is 0"):
        study(draws=0)
    with pytest.raises(ConfigError, match="epsilon is nan"):
        study().at(float("nan"))

    class Rewrites:
        name, kind = "rewrites", "privatize"

    with pytest.raises(ConfigError, match="rewrites is no mechanism that replaces words"):
        study(mechanism=Rewrites())


def test_figures_agree_with_each_other():
    found = plausible_deniability("madlib", 3.0, 60, 40, vectors=COMMON)
    assert found.confusion.shape == (len(TAGS), len(TAGS)) and found.confusion.sum() == 60 * 40
    assert found.tags_kept == pytest.approx(found.tags_kept_by_word.mean())
    moved = (1 - found.self_substitution / 100).sum() * 40
    assert len(found.distances) == round(moved) and (found.distances > 0).all()
    assert (found.distinct <= 40).all() and (found.distinct >= 1).all()
    assert found.self_quantile(1.0) == found.self_substitution.max()
    assert found.distinct_quantile(0.0) == found.distinct.min()
    assert all(COMMON.words[rank - 1] == word for word, rank in zip(found.words, found.ranks, strict=True))
    counts = [band.num_words for band in found.bands]
    assert sum(counts) == 60 and [band.last for band in found.bands] == [100, 400]
    for name, values in (("self_substitution", found.self_substitution), ("distinct", found.distinct)):
        means = [getattr(band, name) for band in found.bands]
        assert np.average(means, weights=counts) == pytest.approx(values.mean())
    assert "60 words x 40 draws" in repr(found) and "tags kept" in repr(found)


def test_each_word_has_the_figures_of_its_own_draws():
    common = study(40, 60, key=Key.from_insecure_seed(2))
    outputs, found = common.outputs(4.0), common.at(4.0)
    assert len(set(found.self_substitution)) > 5
    for row, drawn, own, distinct in zip(common.rows, outputs, found.self_substitution, found.distinct, strict=True):
        assert own == pytest.approx(100 * (drawn == row).mean()) and distinct == len(set(drawn.tolist()))


def test_without_noise_every_word_is_returned():
    found = plausible_deniability("madlib", float("inf"), 20, 5, vectors=COMMON)
    assert (found.self_substitution == 100).all() and (found.distinct == 1).all() and found.tags_kept == 1
    assert not len(found.distances) and found.to_json()["epsilon"] is None


def test_many_draws_are_counted_as_among_a_hundred():
    few, many = (plausible_deniability("madlib", 1.0, 10, draws, vectors=COMMON) for draws in (100, 1000))
    assert many.distinct.max() <= 100
    assert abs(few.distinct.mean() - many.distinct.mean()) < 8


def test_saved_numbers_and_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    found = plausible_deniability("madlib", 3.0, 20, 10, {"max_words": 300}, vectors=COMMON)
    folder = found.save(tmp_path / "new" / "folder")
    names = {"tag-confusion", "self-substitution", "distinct", "distances", "bands"}
    assert {path.name for path in folder.iterdir()} == {*(f"{name}.png" for name in names), "deniability.json"}
    data = json.loads((folder / "deniability.json").read_text())
    assert data["tags_kept"] == found.tags_kept and len(data["words"]) == 20
    assert data["params"]["max_words"] == 300 and np.array(data["confusion"]).sum() == 200
    assert sum(data["distances"]["counts"]) == len(found.distances)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    found.save(folder)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        found.save(tmp_path / "file")


def test_the_audit_is_a_public_name_that_loads_late():
    assert hf_dpsynth.audit.plausible_deniability is plausible_deniability
    with pytest.raises(AttributeError, match="no attribute 'proofs'"):
        _ = hf_dpsynth.audit.proofs


def test_published_figures_of_50_dimensions():
    """Mean over 250 words x 100 draws by an exact search: N 12.1 and S 85.8 at epsilon 5 (specification of this
    project, from another implementation, on a choice of words that is not known). Over choices of 250 words our means
    have a standard deviation of 0.33 and 0.41; 120 fixed words add 0.5 and 0.6. Both tolerances are 4 of the sum; a
    10 % larger epsilon moves N by 5 and S by 6."""
    vectors = load_vectors("glove-50d")
    common = study(120, 100, vectors=vectors, key=Key.from_insecure_seed(0))
    right, wrong = common.at(5.0), common.at(5.5)
    assert abs(right.self_substitution.mean() - 12.1) < 2.4 < abs(wrong.self_substitution.mean() - 12.1)
    assert abs(right.distinct.mean() - 85.8) < 2.9 < abs(wrong.distinct.mean() - 85.8)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize(
    ("vectors", "epsilon", "self_substitution", "distinct", "spread"),
    [
        ("glove-50d", 10.0, 76.3, 21.8, 1.2),
        ("glove-300d", 5.0, 1.3, 98.7, 0.12),
        ("glove-300d", 10.0, 27.2, 71.8, 0.7),
        ("glove-300d", 25.0, 99.0, 1.7, 0.5),
    ],
)
def test_published_figures(vectors, epsilon, self_substitution, distinct, spread):
    """As above at 250 words; `spread` is the standard deviation over choices of words, and 5 of it are allowed."""
    found = plausible_deniability("madlib", epsilon, vectors=vectors, key=Key.from_insecure_seed(0))
    assert abs(found.self_substitution.mean() - self_substitution) < 5 * spread
    assert abs(found.distinct.mean() - distinct) < 5 * spread


def test_the_public_choice_does_not_come_from_the_noise():
    order = public_generator(0, "deniability-words").permutation(len(COMMON))
    assert set(study(5).words) <= {COMMON.words[row] for row in order[:20]}
