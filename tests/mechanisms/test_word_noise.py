"""Mahalanobis and Vickrey: their laws by numerical integration, and the faults of published code."""

import numpy as np
import pytest

from hf_dpsynth.audit import audit_matrix
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word.base import prepared
from hf_dpsynth.mechanisms.word.madlib import Madlib
from hf_dpsynth.mechanisms.word.mahalanobis import Mahalanobis, root
from hf_dpsynth.mechanisms.word.noisy_points import noisy_points
from hf_dpsynth.mechanisms.word.vickrey import Vickrey, first_probability
from hf_dpsynth.models.word_vectors import WordVectors
from tests.mechanisms.word_draws import DRAWS, LINE, PLANE, counts, differs, generators


def long_and_thin(size=40):
    """Vectors whose variance is 25 times larger along (0.8, 0.6) than across it."""
    rng = np.random.default_rng(3)
    spread = rng.standard_normal((size, 2)) * [5.0, 1.0]
    return WordVectors(
        tuple(f"w{i}" for i in range(size)), spread @ np.array([[0.8, 0.6], [-0.6, 0.8]]), "long and thin"
    )


def matrix(vectors, lam):
    """M by its definition, coordinate by coordinate."""
    rows = vectors.vectors.astype(float)
    centred = rows - rows.mean(axis=0)
    size, width = rows.shape
    covariance = np.array([[(centred[:, i] * centred[:, j]).sum() / size for j in range(width)] for i in range(width)])
    return lam * covariance / np.mean(np.diag(covariance)) + (1 - lam) * np.eye(width)


@pytest.mark.parametrize("lam", [0.0, 0.2, 0.9])
def test_the_root_squares_to_the_matrix_of_the_norm(lam):
    vectors = long_and_thin()
    found = root(vectors.vectors, lam)
    np.testing.assert_allclose(found @ found, matrix(vectors, lam), rtol=1e-6)
    np.testing.assert_allclose(found, found.T, atol=1e-12)
    assert np.trace(found @ found) == pytest.approx(2)


# 200k draws: an entry has a standard error below 1 %, an epsilon 10 % off moves all of them by 21 %
def test_mahalanobis_noise_has_its_covariance_and_is_not_normalised_after_the_root():
    """E z z' = (d + 1) / epsilon^2 M; scaled so that the root has trace d it would be another matrix."""
    vectors, lam, epsilon = long_and_thin(), 0.9, 1.5
    vocabulary, law = prepared(Mahalanobis(lam=lam), vectors, epsilon)
    codes = np.zeros(200_000, dtype=np.int64)
    noise = noisy_points(codes, vocabulary, epsilon, generators()(0), law.root) - vocabulary.points[0].astype(float)
    found, want = noise.T @ noise / len(noise), 3 / epsilon**2 * matrix(vectors, lam)
    assert np.abs(found - want).max() < 0.05 * want.max()
    assert abs(np.trace(law.root) - 2) > 0.2  # so that such a scaling would show


def cells(vectors, place, scale, norm_matrix, half_width=30.0, step=0.02):
    """Integrate the density exp(-scale |M^-1/2 (y - place)|) over the points of the plane nearest to each word."""
    side = np.arange(-half_width, half_width, step) + step / 2
    x, y = (axis.ravel() for axis in np.meshgrid(side, side))
    inverse = np.linalg.inv(norm_matrix)
    density = np.exp(-scale * np.sqrt(inverse[0, 0] * x**2 + 2 * inverse[0, 1] * x * y + inverse[1, 1] * y**2))
    best, which = np.full(len(x), np.inf), np.zeros(len(x), dtype=np.int64)
    for word, vector in enumerate(vectors.vectors.astype(float)):
        away = (x + place[0] - vector[0]) ** 2 + (y + place[1] - vector[1]) ** 2
        which[away < best] = word
        best = np.minimum(best, away)
    mass = np.bincount(which, weights=density, minlength=len(vectors))
    return mass / mass.sum()


# 100k draws find an epsilon 10 % off with probability > 0.999
def test_mahalanobis_has_the_integral_of_its_density():
    vectors = WordVectors(tuple("abcde"), np.array([[-4, -3.1], [0, 0.5], [0.4, -0.3], [4, 3], [0.9, 0.2]]), "five")
    lam, norm = (
        0.8,
        matrix(
            WordVectors(tuple("abcde"), np.array([[-4, -3.1], [0, 0.5], [0.4, -0.3], [4, 3], [0.9, 0.2]]), ""), 0.8
        ),
    )
    place = vectors.vectors[1].astype(float)
    found = counts(Mahalanobis(lam=lam), vectors, "b", 1.2)
    assert not differs(found, cells(vectors, place, 1.2, norm))
    assert differs(found, cells(vectors, place, 1.32, norm)) and differs(found, cells(vectors, place, 1.08, norm))
    assert differs(found, cells(vectors, place, 1.2, np.eye(2)))  # madlib's noise is another
    assert differs(found, cells(vectors, place, 1.2, norm @ norm))  # the root is not M itself


def test_without_lam_mahalanobis_is_madlib():
    (one,) = Mahalanobis(lam=0).privatize(["river film good"], PLANE, 1.0, generators())
    assert [one] == Madlib().privatize(["river film good"], PLANE, 1.0, generators())
    assert Mahalanobis(lam=0).guarantee(1) == Madlib().guarantee(1)


def test_mahalanobis_names_its_norm():
    metric = Mahalanobis(lam=0.25).guarantee(3).metric
    assert "M^(-1/2)" in metric and "lam = 0.25" in metric and "covariance of W over its mean variance" in metric


def test_a_vocabulary_without_spread_is_refused():
    same = WordVectors(tuple("abc"), np.ones((3, 2)), "same")
    with pytest.raises(ConfigError, match="all equal"):
        Mahalanobis().privatize(["secret"], same, 1.0, generators())
    flat = WordVectors(tuple("abc"), np.array([[0.0, 0], [1, 0], [2, 0]]), "flat")
    with pytest.raises(ConfigError, match=r"lam=1\.0 there is next to no noise in a direction"):
        Mahalanobis(lam=1.0).privatize(["secret"], flat, 1.0, generators())
    assert Mahalanobis(lam=0.9).privatize(["a"], flat, float("inf"), generators()) == ["a"]


def vickrey_law(place, epsilon, t, vectors=LINE, power=1.0):
    """Integrate over y on the line: the two nearest words, and the coin between them."""
    y = place + np.arange(-60 / epsilon, 60 / epsilon, 1e-4 / epsilon) + 0.5e-4 / epsilon
    density = np.exp(-epsilon * np.abs(y - place))
    words = vectors.vectors[:, 0].astype(float)
    away = np.abs(y[:, None] - words)
    order = np.argsort(away, axis=1)[:, :2]
    first, second = (np.take_along_axis(away, order[:, i : i + 1], 1)[:, 0] ** power for i in (0, 1))
    share = (1 - t) * second / (t * first + (1 - t) * second)
    law = np.bincount(order[:, 0], density * share, len(words)) + np.bincount(order[:, 1], density * (1 - share), 4)
    return law / law.sum()


# 100k draws find an epsilon that is 10 % off, or a t that is 30 % off, with probability > 0.999
@pytest.mark.parametrize(("word", "place", "t"), [("b", 0.0, 0.5), ("c", 1.0, 0.25), ("unheard", 0.5, 0.8)])
def test_vickrey_has_the_integral_over_its_noise_and_its_coin(word, place, t):
    found = counts(Vickrey(t=t), LINE, word, 0.8)
    assert not differs(found, vickrey_law(place, 0.8, t))
    for wrong in (
        vickrey_law(place, 0.88, t),
        vickrey_law(place, 0.72, t),
        vickrey_law(place, 0.8, 1.3 * t if t < 0.5 else t / 1.3),
    ):
        assert differs(found, wrong)


def test_vickrey_measures_distances_not_their_squares():
    found = counts(Vickrey(), LINE, "b", 0.8)
    assert differs(found, vickrey_law(0.0, 0.8, 0.5, power=2.0))
    np.testing.assert_array_equal(first_probability(np.array([1.0]), np.array([3.0]), 0.25), [0.9])


def test_vickrey_does_not_take_the_input_out_of_the_search():
    """Published code does: the word could never stay itself, and the output would tell of it."""
    found = counts(Vickrey(), LINE, "b", 0.8)
    assert found[1] > 0.3 * DRAWS
    assert Vickrey(t=0.0).privatize(["a b c d"], LINE, 1e4, generators()) == ["a b c d"]


def test_vickrey_decides_by_the_noisy_point_and_the_coin_alone():
    _, law = prepared(Vickrey(), LINE, 1.0)
    points, coins = np.float32([[-3.1], [0.4], [0.6], [5.0]]), np.array([0.3, 0.99, 0.2, 0.999])
    whole = law.choose(points, coins)
    assert whole.tolist() == [0, 2, 2, 2]
    assert [int(law.choose(points[i : i + 1], coins[i : i + 1])[0]) for i in range(4)] == whole.tolist()


def test_the_loss_of_vickrey_is_within_epsilon_times_the_distance():
    """Of the integral: |log| of all outputs for all pairs of words, with 1e-3 for the rule of integration."""
    law = np.array([vickrey_law(place, 0.7, 0.4) for place in LINE.vectors[:, 0].astype(float)])
    apart = np.abs(np.subtract.outer(LINE.vectors[:, 0], LINE.vectors[:, 0]))
    assert not audit_matrix(law, apart, 0.7, tolerance=1e-3).violated
    assert audit_matrix(law, apart, 0.6, tolerance=1e-3).violated


def test_vickrey_between_equal_words_and_in_a_vocabulary_of_two():
    equal = first_probability(np.zeros(2), np.array([0.0, 1.0]), 1.0)
    assert equal.tolist() == [1.0, 1.0]
    assert first_probability(np.array([1.0]), np.array([1.0]), 0.3).tolist() == pytest.approx([0.7])
    pair = WordVectors(("left", "right"), np.array([[0.0], [2.0]]), "pair")
    (text,) = Vickrey(t=1.0).privatize(["left " * 500], pair, 50.0, generators())
    assert text.split().count("right") == 500
    twins = WordVectors(("left", "right"), np.zeros((2, 2)), "twins")
    assert Vickrey().privatize(["right"], twins, float("inf"), generators()) == ["left"]


def test_vickrey_of_a_point_far_beyond_single_precision_squares():
    """Squared distances of such points are infinite in float32: the coin must still be (1 - t) to t."""
    (text,) = Vickrey(t=0.0).privatize(["b " * 300], LINE, 1e-25, generators())
    assert set(text.split()) == {"a", "d"}


@pytest.mark.parametrize("make", [lambda v: Vickrey(t=v), lambda v: Mahalanobis(lam=v)])
def test_a_share_outside_its_range_is_refused(make):
    for value in (-0.1, 1.1, float("nan"), "0.5", True, [0.1]):
        with pytest.raises(ConfigError, match=r"must be a number in \[0, 1\]|takes one value"):
            make(value)
