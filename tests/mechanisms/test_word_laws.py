"""The exponential mechanisms, the groups and the line: full matrices of probabilities, and the bound they keep."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hf_dpsynth.audit import audit_matrix
from hf_dpsynth.audit.matrices import losses
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word import exponential
from hf_dpsynth.mechanisms.word.base import prepared
from hf_dpsynth.mechanisms.word.custext import CusText, CusTextPlus
from hf_dpsynth.mechanisms.word.diffractor import Diffractor, principal_line
from hf_dpsynth.mechanisms.word.groups import groups
from hf_dpsynth.mechanisms.word.santext import SanText, SanTextPlus
from hf_dpsynth.mechanisms.word.tem import TEM
from hf_dpsynth.models.word_vectors import WordVectors
from tests.mechanisms.word_draws import (
    DRAWS,
    LINE,
    PLANE,
    counts,
    differs,
    distances,
    generators,
    law_of,
    points,
)


def normalised(rows):
    return rows / rows.sum(axis=1, keepdims=True)


def by_hand(name, epsilon):
    """The laws on the plane from the formulas of the papers, written down anew."""
    away = distances(PLANE)
    if name == "tem":
        gamma = 2 / epsilon * math.log((1 - 0.3) * 7 / 0.3)
        away = np.minimum(away, gamma)
    if name in ("tem", "santext"):
        return normalised(np.exp(-epsilon / 2 * away))
    rows = np.zeros((10, 8))
    order = np.argsort(away[0])  # the first word and the three nearest to it, then the other four
    for w in range(10):
        group = order[:4] if away[w].argmin() in order[:4] else order[4:]
        near = -away[w, group]
        score = (near - near.min()) / (near.max() - near.min())
        rows[w, group] = np.exp(epsilon / 2 * score)
    return normalised(rows)


MECHANISMS = {"tem": TEM(beta=0.3), "santext": SanText(), "custext": CusText(k=4)}
INPUTS = (*PLANE.words, "unheard", "31,415")


@pytest.mark.parametrize("name", MECHANISMS)
def test_each_row_of_the_law_is_the_formula(name):
    np.testing.assert_allclose(law_of(MECHANISMS[name], PLANE, 1.3), by_hand(name, 1.3), rtol=1e-10)


# with 100k draws of each input, a scale 10 % off is found in the whole matrix with probability > 0.999
@pytest.mark.parametrize("name", MECHANISMS)
def test_draws_follow_each_row_and_a_wrong_scale_is_caught(name):
    found = np.array([counts(MECHANISMS[name], PLANE, word, 2.0, DRAWS, seed) for seed, word in enumerate(INPUTS)])
    assert not any(differs(row, law) for row, law in zip(found, by_hand(name, 2.0), strict=True))
    for wrong in (1.8, 2.2):
        assert any(differs(row, law) for row, law in zip(found, by_hand(name, wrong), strict=True))


def test_the_laws_on_the_line_are_the_cited_figures():
    """tem with beta = .5 has gamma = 2.197 on four words: (a, b, c, d) for the input b."""
    np.testing.assert_allclose(law_of(TEM(beta=0.5), LINE, 1.0)[1], [0.1466, 0.4399, 0.2668, 0.1466], atol=1e-4)
    np.testing.assert_allclose(law_of(SanText(), LINE, 1.0)[1], [0.0472, 0.5752, 0.3489, 0.0286], atol=1e-4)


@st.composite
def vocabularies(draw):
    size, width = draw(st.integers(2, 7)), draw(st.integers(1, 3))
    rows = draw(arrays(np.float32, (size, width), elements=st.floats(-4, 4, width=32)))
    return WordVectors(tuple(str(i) if i % 3 else f"w{i}" for i in range(size)), rows, "drawn")


@settings(max_examples=150, deadline=None)
@given(vocabularies(), st.floats(1e-3, 10), st.floats(0.001, 0.999))
def test_no_log_ratio_exceeds_epsilon_times_the_distance(vectors, epsilon, beta):
    """All pairs of inputs, the points outside W among them, and all outputs."""
    places = points(vectors)
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    for mechanism in (TEM(beta=beta), SanText()):
        assert not audit_matrix(law_of(mechanism, vectors, epsilon), apart, epsilon * (1 + 1e-12)).violated


@settings(max_examples=60, deadline=None)
@given(vocabularies(), st.floats(1e-3, 10), st.integers(2, 4))
def test_within_a_group_no_log_ratio_exceeds_epsilon_and_across_all_is_shown(vectors, epsilon, k):
    k = min(k, len(vectors))
    law = law_of(CusText(k=k), vectors, epsilon)
    _, of_word = groups(vectors, k)
    group = of_word[law.argmax(axis=1)]
    assert group[: len(vectors)].tolist() == of_word.tolist()
    for w, row in enumerate(law):
        inside = of_word == group[w]
        assert (row[inside] > 0).all() and not row[~inside].any()
        others = law[group == group[w]][:, inside]
        assert (np.abs(np.log(row[inside] / others)) <= epsilon + 1e-9).all()


def test_tem_has_the_law_of_the_bottom_symbol():
    """The paper's form: words within gamma, a symbol of weight m exp(-epsilon gamma / 2), then one of the m."""
    epsilon, beta = 2.0, 0.3
    gamma = 2 / epsilon * math.log((1 - beta) * (len(PLANE) - 1) / beta)
    for away, law in zip(distances(PLANE), law_of(TEM(beta=beta), PLANE, epsilon), strict=True):
        beyond = away > gamma
        m = int(beyond.sum())
        within = np.where(beyond, 0, np.exp(-epsilon / 2 * away))
        bottom = m * math.exp(-epsilon * gamma / 2)
        want = (within + np.where(beyond, bottom / max(m, 1), 0)) / (within.sum() + bottom)
        np.testing.assert_allclose(law, want, rtol=1e-10)
    assert (distances(PLANE)[: len(PLANE)] > gamma).any()


def test_tem_stays_within_gamma_as_often_as_beta_says():
    vectors = WordVectors(tuple(f"w{i}" for i in range(200)), 100.0 * np.arange(200)[:, None], "far apart")
    law = law_of(TEM(beta=0.2), vectors, 1.0)
    np.testing.assert_allclose(law.diagonal(), 0.8, rtol=1e-6)  # all others lie beyond gamma: mass beta in all


def test_tem_is_uniform_where_gamma_is_not_positive():
    pair = WordVectors(("left", "right"), np.array([[0.0], [9.0]]), "pair")
    np.testing.assert_array_equal(law_of(TEM(beta=0.7), pair, 5.0), np.full((4, 2), 0.5))


def test_tem_copies_no_word_where_a_draw_fails(monkeypatch):
    def fail(*arguments):
        raise FloatingPointError("no draw")

    monkeypatch.setattr(exponential, "at_places", fail)
    with pytest.raises(FloatingPointError, match="no draw"):
        TEM().privatize(["river"], PLANE, 1.0, generators())


def test_distances_are_not_squared():
    """The log of santext's law falls linearly on a line."""
    line = WordVectors(tuple("abcde"), np.arange(5.0)[:, None], "steps")
    np.testing.assert_allclose(np.diff(np.log(law_of(SanText(), line, 3.0)[0])), -1.5, rtol=1e-12)


def test_words_and_near_copies_are_told_apart_far_from_the_origin():
    """|x|^2 + |y|^2 - 2 x.y alone would lose these distances to rounding."""
    vectors = WordVectors(
        tuple("abcdz"), np.array([[4096.0, 0], [4096, 2**-10], [4096, 3 * 2**-10], [0, 0], [-8e5, 1]]), "near"
    )
    _, law = prepared(SanText(), vectors, 1.0)
    found = np.array([law.distances(code, 0) for code in range(7)])
    np.testing.assert_allclose(found, distances(vectors), rtol=1e-10)
    assert not found.diagonal().any()
    np.testing.assert_array_equal(law_of(SanText(), vectors, 1e300)[:5], np.eye(5))


def wide(size=300, width=8):
    rng = np.random.default_rng(1)
    return WordVectors(tuple(f"w{i}" for i in range(size)), rng.standard_normal((size, width)), "wide")


@pytest.mark.parametrize("mechanism", [TEM(beta=0.2), SanText()])
def test_many_distinct_words_draw_as_each_alone(monkeypatch, mechanism):
    """Over W in one part and in parts of 7 words: the draws are those of the whole row, whatever else is drawn."""
    vectors = wide()
    rng = np.random.default_rng(0)
    codes, places = rng.integers(302, size=2000), rng.random(2000)
    cumulative = np.cumsum(law_of(mechanism, vectors, 2.0), axis=1)[codes]
    reference = (cumulative <= places[:, None]).sum(axis=1)
    for part_words in (1024, 7):
        monkeypatch.setattr(exponential, "PART_WORDS", part_words)
        law = mechanism.law(prepared(mechanism, vectors, 2.0)[0], 2.0)
        whole = law.choose(codes, places)
        assert whole.tolist() == reference.tolist()
        anew = mechanism.law(law.vocabulary, 2.0)
        some = range(0, 2000, 40)
        alone = [int(anew.choose(codes[i : i + 1], places[i : i + 1])[0]) for i in some]
        assert alone == whole[some].tolist()


def test_santext_plus_keeps_frequent_words_as_often_as_p_says():
    plus = SanTextPlus(p=0.3, sensitive=0.75)  # river and bank are not sensitive
    law = law_of(SanText(), PLANE, 1.0)
    for place, word in enumerate(INPUTS):
        want = law[place].copy()
        if place < 2:
            want *= 0.3
            want[place] += 0.7
        found = counts(plus, PLANE, word, 1.0, 50_000, seed=place)
        assert not differs(found, want)
        if place < 2:
            assert differs(found, law[place])
            wrong = 0.33 * law[place] + 0.67 * np.eye(8)[place]
            assert differs(found, wrong)


def test_what_is_sensitive_does_not_depend_on_the_private_texts():
    """Published code counts words in the data: a rare word that fills the data would be kept."""
    plus = SanTextPlus(p=0.0, sensitive=0.75)
    flooded = counts(plus, PLANE, "film", 1.0, 50_000)
    assert not differs(flooded, law_of(SanText(), PLANE, 1.0)[4])
    (text,) = plus.privatize(["film " * 5000 + "river bank"], PLANE, 1.0, generators())
    assert text.endswith("river bank")


def test_santext_plus_says_who_is_exposed():
    kept = SanTextPlus(p=0.25, sensitive=0.8).guarantee(5)
    assert "all but frequent words of W (sensitive 0.8), infinite to those" in kept.metric
    joined = " ".join(kept.assumptions)
    assert "except with probability 0.25" in joined and "exposed where it is copied" in joined


def test_groups_are_the_greedy_ones():
    vectors = wide(403, 5)
    members, of_word = groups(vectors, 10)
    left = list(range(403))
    for group in range(39):
        away = np.linalg.norm(vectors.vectors[left].astype(float) - vectors.vectors[left[0]].astype(float), axis=1)
        want = [left[i] for i in np.argsort(away, kind="stable")[:10]]
        assert members[group].tolist() == want + [-1] * 3
        left = [i for i in left if i not in want]
    assert members[39].tolist() == left and len(left) == 13
    assert all(w in members[of_word[w]] for w in range(403))
    assert groups(vectors, 10)[0] is members


def test_groups_of_equal_vectors_go_by_rank():
    same = WordVectors(tuple(f"w{i}" for i in range(150)), np.ones((150, 2)), "same")
    members, _ = groups(same, 50)
    assert members.tolist() == np.arange(150).reshape(3, 50).tolist()
    np.testing.assert_allclose(law_of(CusText(k=50), same, 3.0)[0, :50], 0.02)


def test_equal_words_of_uneven_groups_stay_in_their_group():
    same = WordVectors(tuple(f"w{i}" for i in range(7)), np.ones((7, 2)), "seven")
    (text,) = CusText(k=3).privatize(["w1 " * 400], same, 3.0, generators())
    assert set(text.split()) == {"w0", "w1", "w2"}
    assert CusText(k=3).privatize(["w2 w6"], same, float("inf"), generators()) == ["w0 w3"]


def test_custext_plus_copies_stop_words():
    vectors = WordVectors(("the", "of", "film", "plot"), np.arange(4.0)[:, None], "stops")
    (kept,) = CusTextPlus(k=2).privatize(["the film of " * 50], vectors, 0.1, generators())
    assert kept.split()[::3] == ["the"] * 50 and kept.split()[2::3] == ["of"] * 50
    assert len(set(kept.split()[1::3])) == 2
    (drawn,) = CusTextPlus(k=2, stop_words="privatize").privatize(["the " * 50], vectors, 0.1, generators())
    assert set(drawn.split()) == {"the", "of"}
    assert "stop words" in " ".join(CusTextPlus().guarantee(1).assumptions)


def test_a_group_larger_than_the_vocabulary_is_refused():
    with pytest.raises(ConfigError, match=r"k=9 words needs as many in W, which has 8\. Lower k or raise max_words"):
        CusText(k=9).privatize(["secret"], PLANE, 1.0, generators())
    for k in (1, 0, 2.0, True, [4]):
        with pytest.raises(ConfigError, match="custext: k is"):
            CusText(k=k)


def folded(place, size, epsilon):
    """Two-sided geometric noise on a place, with what lies beyond an end added to it."""
    z = np.arange(-4000, 4001)
    mass = math.tanh(epsilon / 2) * np.exp(-epsilon * np.abs(z))
    return np.bincount(np.clip(place + z, 0, size - 1), weights=mass, minlength=size)


# 100k draws find a scale 10 % off with probability > 0.999 at any of these places
@pytest.mark.parametrize("word", ["a", "c", "unheard"])
def test_diffractor_has_the_folded_geometric_law(word):
    line = WordVectors(tuple("bdac"), np.array([[2.0, 0], [9, 0.1], [-4, 0], [3, 0]]), "row")
    order = "abcd" if principal_line(line.vectors)[0] == 2 else "dcba"
    nearest = {"unheard": line.words[int(distances(line)[4].argmin())]}
    place = order.index(nearest.get(word, word))
    found = counts(Diffractor(), line, word, 0.7)[[line.words.index(letter) for letter in order]]
    assert not differs(found, folded(place, 4, 0.7))
    assert differs(found, folded(place, 4, 0.63)) and differs(found, folded(place, 4, 0.77))


def test_the_line_follows_the_direction_of_largest_spread():
    rng = np.random.default_rng(2)
    along = rng.permutation(60).astype(float)
    vectors = np.outer(along, [0.6, 0.8]) + 0.01 * rng.standard_normal((60, 2)) + 100
    line = principal_line(vectors.astype(np.float32))
    assert along[line].tolist() in (sorted(along), sorted(along, reverse=True))


def test_the_loss_of_diffractor_is_epsilon_for_each_place():
    worst = losses(np.array([folded(place, 6, 0.5) for place in range(6)]))
    np.testing.assert_allclose(worst, 0.5 * np.abs(np.subtract.outer(range(6), range(6))), atol=1e-9)


@pytest.mark.parametrize("beta", [0, 1, -0.1, float("nan"), "0.5", True, [0.1]])
def test_a_beta_outside_its_range_is_refused(beta):
    with pytest.raises(ConfigError, match="tem: beta is"):
        TEM(beta=beta)


@pytest.mark.parametrize("field", ["p", "sensitive"])
def test_a_share_outside_its_range_is_refused(field):
    for value in (-0.1, 1.1, float("nan"), "0.5", True, [0.1]):
        with pytest.raises(ConfigError, match=rf"santext\+: {field} is"):
            SanTextPlus(**{field: value})
