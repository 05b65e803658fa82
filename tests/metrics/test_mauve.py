import numpy as np
import pytest
from sklearn.cluster import KMeans

from hf_dpsynth import data
from hf_dpsynth.compute.kmeans import inertia, kmeans, with_ones
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.divergence import frontier_area
from hf_dpsynth.metrics.mauve import Mauve, automatic_buckets, mauve
from hf_dpsynth.models import SentenceEmbedder
from hf_dpsynth.privacy.keys import public_generator
from tests.stubs import StubEmbedder


def gaussian(seed, rows, width=16, shift=0.0):
    return (np.random.default_rng(seed).standard_normal((rows, width)) + shift).astype(np.float32)


def mixture(seed, rows, centres, width=16):
    rng = np.random.default_rng(seed)
    points = np.random.default_rng(99).standard_normal((centres, width))
    return (points[rng.integers(0, centres, rows)] + 0.1 * rng.standard_normal((rows, width))).astype(np.float32)


def unit_columns(rows):
    """What MAUVE clusters, written anew: unit rows, centred, main directions with 90 % of the variance."""
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    centred = rows - rows.mean(axis=0)
    _, scales, directions = np.linalg.svd(centred.astype(float), full_matrices=False)
    kept = np.searchsorted(np.cumsum(scales**2) / (scales**2).sum(), 0.9) + 1
    return centred @ directions[:kept].T


def test_identical_sets_score_one_and_sets_apart_score_zero():
    p = gaussian(0, 200)
    same = mauve(p, p[::-1].copy())
    assert (same.mauve, same.mauve_star) == pytest.approx((1, 1), abs=1e-12)
    apart = mauve(p, np.eye(16, dtype=np.float32)[0] * 50 + 0.01 * p)
    assert apart.mauve < 0.02 and apart.mauve < apart.mauve_star < 0.2


def test_neither_the_order_of_rows_nor_which_set_is_first_moves_the_score():
    p, q = gaussian(0, 150), gaussian(1, 90, shift=0.3)
    found = mauve(p, q)
    assert mauve(q, p).by_seed == pytest.approx(found.by_seed, abs=1e-12)
    assert mauve(p[::-1], np.roll(q, 31, axis=0)).by_seed == found.by_seed


def test_the_length_of_rows_does_not_matter():
    p, q = gaussian(0, 150), gaussian(1, 150, shift=0.3)
    assert mauve(p * np.float32(4), q * np.float32(0.5)).by_seed == pytest.approx(mauve(p, q).by_seed, abs=0.02)


def test_a_larger_shift_scores_lower():
    scores = [mauve(gaussian(0, 400), gaussian(1, 400, shift=shift)).mauve for shift in (0.0, 0.2, 0.4, 0.8)]
    assert scores == sorted(scores, reverse=True) and scores[0] > 0.9 > 0.2 > scores[-1]


def test_the_score_is_the_mean_over_public_seeds():
    p, q = gaussian(0, 200), gaussian(1, 200, shift=0.3)
    found = mauve(p, q, num_seeds=4)
    assert len(set(found.by_seed)) == 4 and found.mauve == pytest.approx(np.mean(found.by_seed))
    assert mauve(p, q, num_seeds=4) == found != mauve(p, q, num_seeds=4, seed=1)


def test_well_separated_clusters_give_the_frontier_of_their_counts():
    """Three tight clusters, which k-means finds whole from most starts: the score is that of the known histogram."""
    left, right = np.repeat(np.arange(3), 40), np.repeat(np.arange(3), (70, 40, 10))
    jitter = np.random.default_rng(0).standard_normal((240, 3)).astype(np.float32) * 1e-3
    p, q = np.eye(3, dtype=np.float32)[left] + jitter[:120], np.eye(3, dtype=np.float32)[right] + jitter[120:]
    found = mauve(p, q, num_buckets=3, num_seeds=9)
    assert np.median(found.by_seed) == pytest.approx(frontier_area(np.full(3, 40), np.array([70, 40, 10])), abs=1e-9)


def test_kmeans_is_as_good_as_sklearns_run_to_its_end():
    """Mean inertia over 6 seeds of both, same kind of start: ours, stopped early, is less than 1 % above."""
    rows = np.concatenate([gaussian(0, 1000), gaussian(1, 1000, shift=0.2)])
    ready = with_ones(rows - rows.mean(axis=0))
    ours = [inertia(ready, kmeans(ready, 100, public_generator(seed, "test"))) for seed in range(6)]
    theirs = [
        KMeans(100, init="random", n_init=1, max_iter=1000, tol=0, random_state=seed).fit(rows).inertia_
        for seed in range(6)
    ]
    assert np.mean(ours) < 1.01 * np.mean(theirs)


def test_kmeans_run_to_its_end_is_a_fixed_point_of_lloyd():
    ready = with_ones(gaussian(0, 500))
    labels = kmeans(ready, 20, public_generator(0, "test"), tolerance=0, max_iterations=1000)
    points = ready[:, :-1].astype(float)
    centres = np.stack([points[labels == bucket].mean(axis=0) for bucket in range(20)])
    nearest = np.square(points[:, None] - centres).sum(axis=2).argmin(axis=1)
    assert np.array_equal(nearest, labels)


def test_an_empty_bucket_is_filled_again():
    """Only 40 of 400 rows differ: starts on copies lose their bucket and are moved to rows that are served badly."""
    rows = np.concatenate([np.zeros((360, 4), np.float32), gaussian(0, 40, width=4)])
    labels = kmeans(with_ones(rows), 30, public_generator(0, "test"), tolerance=0)
    assert len(np.unique(labels)) > 15


def test_the_score_follows_the_law_of_a_full_kmeans():
    """Two Gaussians, 20 seeds: our mean is within 4 standard errors of sklearn's k-means run to its end.

    The standard error is .002, so a bias of .01 is caught with a power above 95 %.
    """
    p, q = gaussian(0, 600), gaussian(1, 600, shift=0.25)
    ours = np.array(mauve(p, q, num_buckets=60, num_seeds=20).by_seed)
    rows = unit_columns(np.concatenate([p, q]))
    theirs = []
    for seed in range(20):
        labels = KMeans(60, init="random", n_init=1, max_iter=500, tol=0, random_state=seed).fit(rows).labels_
        theirs.append(frontier_area(*(np.bincount(part, minlength=60) for part in (labels[:600], labels[600:]))))
    error = np.sqrt((ours.var(ddof=1) + np.var(theirs, ddof=1)) / 20)
    assert abs(ours.mean() - np.mean(theirs)) < 4 * error
    assert 0.5 < ours.std() / np.std(theirs) < 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shift", [0.0, 0.2, 0.5])
def test_mauve_text_agrees_within_the_noise_of_kmeans(shift):
    """An optional check against the published package (GPLv3, never a dependency), of which no code was read.

    It keeps the best of five k-means, ours is a mean. Measured with mauve-text 0.4.0 and faiss-cpu 1.15.1: ours .959,
    .844 and .685 against .960, .904 and .775, where the standard deviations of one run of ours are .005, .05 and .06.
    """
    peer = pytest.importorskip("mauve")
    p, q = mixture(0, 1000, 150, 32), mixture(1, 1000, 150, 32) + np.float32(shift)
    theirs = [
        peer.compute_mauve(p_features=p, q_features=q, num_buckets=100, seed=seed, verbose=False) for seed in range(5)
    ]
    ours = mauve(p, q, num_buckets=100, num_seeds=20)
    noise = np.hypot(np.std(ours.by_seed), np.std([one.mauve for one in theirs]))
    assert abs(ours.mauve - np.mean([one.mauve for one in theirs])) < 3 * noise + 0.005
    assert abs(ours.mauve_star - np.mean([one.mauve_star for one in theirs])) < 3 * noise + 0.005
    one = theirs[0]
    assert frontier_area(one.p_hist, one.q_hist) == pytest.approx(one.mauve, abs=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_all_rows_identical_give_one_and_say_that_nothing_was_told_apart(value):
    rows = np.full((60, 8), value, np.float32)
    found = Mauve().compare(rows, rows)
    assert [found[key] for key in ("mauve", "mauve_floor", "mauve_star")] == pytest.approx([1, 1, 1], abs=1e-12)
    said = [limit.split(" fell into one bucket")[0] for limit in found["limits"] if "one bucket" in limit]
    assert said == ["mauve: all rows of both sets", "mauve_floor: all real rows"]


def test_real_rows_that_are_all_alike_leave_the_score_told_apart():
    found = Mauve().compare(gaussian(0, 60), np.ones((120, 16), np.float32))
    said = [limit.split(":")[0] for limit in found["limits"] if "one bucket" in limit]
    assert said == ["mauve_floor"] and found["mauve"] < 1


def test_fewer_rows_than_buckets_is_refused_and_few_rows_a_bucket_is_said():
    p, q = gaussian(0, 30), gaussian(1, 60)
    with pytest.raises(ConfigError, match="num_buckets is 500, more than there are rows"):
        Mauve(num_buckets=500).compare(p, q)
    found = Mauve(num_buckets=50).compare(p, q)
    assert found["mauve_floor"] < 0.5 < found["mauve_star"]
    assert any("50 buckets for 30 rows" in limit for limit in found["limits"])
    assert Mauve().compare(p, q)["limits"] == []


def test_buckets_are_a_tenth_of_the_smaller_set_between_2_and_500():
    assert [automatic_buckets(size) for size in (2, 25, 100, 4000, 5000, 10**6)] == [2, 2, 10, 400, 500, 500]


def test_sets_of_very_different_size_are_compared_at_one_size():
    found = Mauve().compare(gaussian(0, 10), gaussian(1, 3000))
    assert found["num_rows"] == found["floor_num_rows"] == 10
    assert 0 < found["mauve"] <= 1 and found["mauve_interval"][0] <= found["mauve"] <= found["mauve_interval"][1]
    everything = mauve(gaussian(0, 10), gaussian(1, 3000))
    assert everything.num_buckets == 2 and 0 < everything.mauve <= 1


def test_bad_rows_and_options_are_refused():
    p = gaussian(0, 30)
    broken = p.copy()
    broken[0, 0] = np.nan
    for bad, message in ((broken, "holds NaN"), (p[:, :5], "5 wide"), (p[:1], "has fewer")):
        with pytest.raises(ConfigError, match=message):
            mauve(p, bad)
    nan = float("nan")
    for options in ({"num_buckets": 1}, {"scaling": nan}, {"explained_variance": nan}, {"num_seeds": 0}):
        with pytest.raises(ConfigError, match=f"{next(iter(options))} is"):
            Mauve(**options)
        with pytest.raises(ConfigError, match=f"{next(iter(options))} is"):
            mauve(p, p, **options)
    with pytest.raises(ConfigError, match="smoothing is -1"):
        Mauve(smoothing=-1)


def test_texts_are_embedded_and_compared():
    words = "film actor plot scene soup bread taste salt".split()
    rng = np.random.default_rng(0)
    film, food = ([" ".join(rng.choice(part, 6)) for _ in range(80)] for part in (words[:4], words[4:]))
    near = Mauve().compute(predictions=film[:40], references=film, embedder=StubEmbedder())
    far = Mauve().compute(predictions=[*food, ""], references=film, embedder=StubEmbedder())
    assert near["mauve"] > 0.5 > far["mauve"] and near["uses_private_data"] is True


@pytest.mark.slow
def test_the_floor_on_real_sentences_depends_on_the_buckets_as_measured():
    """The spec's figures, 600 real against 600 real texts: .977 with 60 buckets, .193 with 500; here .962 and .166."""
    vectors = SentenceEmbedder("minilm").embed(data.load("movie")["train"]["text"][:1200])
    few, many = (mauve(vectors[:600], vectors[600:], num_buckets=buckets).mauve for buckets in (60, 500))
    assert few > 0.93 and 0.1 < many < 0.3
