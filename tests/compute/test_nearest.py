import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import threadpoolctl
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dpsynth.compute import candidates as candidates_of
from hf_dpsynth.compute import nearest, threads
from hf_dpsynth.errors import ConfigError

BLOCK = 8


def exact_order(row, vectors):
    """The oracle: squared distances as fractions, so ties are ties; a stable sort puts the lowest index first."""
    row = [Fraction(float(v)) for v in np.asarray(row, dtype=np.float32)]
    distances = [
        sum((a - Fraction(float(b))) ** 2 for a, b in zip(row, vector, strict=True))
        for vector in np.asarray(vectors, dtype=np.float32)
    ]
    return sorted(range(len(vectors)), key=distances.__getitem__)


def float64_argmin(rows, vectors):
    rows, vectors = rows.astype(np.float64), vectors.astype(np.float64)
    return np.array([((row - vectors) ** 2).sum(axis=1).argmin() for row in rows], dtype=np.int64)


def unit_rows(rng, count, width):
    rows = rng.standard_normal((count, width)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def hard_candidates(rng, width):
    """Exact copies, and copies 1e-7, 1e-6 and 1e-5 away, in shuffled order."""
    base = unit_rows(rng, 12, width)
    near = [base + step * unit_rows(rng, 12, width) for step in (0.0, 1e-7, 1e-6, 1e-5)]
    return rng.permutation(np.concatenate([base, *near])).astype(np.float32)


def hard_rows(rng, candidates, count):
    """Candidates, points mid-way between two of them, and points anywhere."""
    one, other = candidates[rng.integers(len(candidates), size=(2, count))]
    kind = rng.integers(3, size=(count, 1))
    rows = np.where(kind == 0, one, np.where(kind == 1, (one + other) / 2, unit_rows(rng, count, candidates.shape[1])))
    return rows.astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.sampled_from([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 5 * BLOCK + 3]),
    width=st.sampled_from([1, 3, 17, 64]),
    place=st.floats(0, 1),
)
def test_one_record_more_is_exactly_one_vote_more(seed, count, width, place):
    rng = np.random.default_rng(seed)
    candidates = hard_candidates(rng, width)
    rows, extra = hard_rows(rng, candidates, count), hard_rows(rng, candidates, 1)
    position = int(place * count)
    with_it = np.concatenate([rows[:position], extra, rows[position:]])
    change = nearest.votes(with_it, candidates, block_rows=BLOCK) - nearest.votes(rows, candidates, block_rows=BLOCK)
    assert change.sum() == 1 and change.min() >= 0
    np.testing.assert_array_equal(change, nearest.votes(extra, candidates))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), width=st.sampled_from([1, 2, 5, 33]), scale=st.sampled_from([1e-3, 1.0, 300.0]))
def test_votes_equal_brute_force_in_float64(seed, width, scale):
    rng = np.random.default_rng(seed)
    candidates = np.unique(scale * hard_candidates(rng, width), axis=0)
    rows = np.float32(scale) * hard_rows(rng, candidates / np.float32(scale), 50)
    chosen = nearest.assign(rows, candidates, block_rows=16)
    for row, choice, best in zip(rows, chosen, float64_argmin(rows, candidates), strict=True):
        if choice != best:  # the two float64 sums may split a tie that is a tie to the last bit
            gaps = [((row.astype(float) - candidates[j].astype(float)) ** 2).sum() for j in (choice, best)]
            assert abs(gaps[0] - gaps[1]) <= 1e-13 * (np.square(row.astype(float)).sum() + scale**2)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.integers(1, 6),
    k=st.integers(1, 30),
    block=st.sampled_from([1, 4, 64]),
)
def test_ties_go_to_the_lowest_index(seed, width, k, block):
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-3, 4, size=(40, width)).astype(np.float32)
    queries = (rng.integers(-6, 7, size=(9, width)) / 2).astype(np.float32)
    want = np.array([exact_order(query, vectors) for query in queries])
    found, distances = nearest.top_k(queries, vectors, k, block_rows=block)
    np.testing.assert_array_equal(found, want[:, :k])
    np.testing.assert_array_equal(distances, ((queries[:, None] - vectors[found]) ** 2).sum(axis=2))
    np.testing.assert_array_equal(nearest.assign(queries, vectors, block_rows=block), want[:, 0])


@pytest.mark.parametrize("k", [1, 2, 20])
@pytest.mark.parametrize("tile", [32, 100, 4096])
def test_top_k_equals_brute_force_over_many_tiles(monkeypatch, k, tile):
    monkeypatch.setattr(nearest, "_TILE_COLUMNS", tile)
    monkeypatch.setattr(nearest, "_HEAD_COLUMNS", 24)
    rng = np.random.default_rng(k)
    vectors = rng.standard_normal((1500, 11)).astype(np.float32)
    queries = np.concatenate([vectors[::100], rng.standard_normal((70, 11))]).astype(np.float32)
    found, distances = nearest.top_k(queries, vectors, k, block_rows=32)
    full = ((queries[:, None].astype(float) - vectors.astype(float)) ** 2).sum(axis=2)
    np.testing.assert_array_equal(found, np.argsort(full, axis=1, kind="stable")[:, :k])
    np.testing.assert_allclose(distances, np.sort(full, axis=1)[:, :k], rtol=1e-6)


@pytest.mark.parametrize("k", [1, 7])
def test_a_row_does_not_depend_on_the_batch(k):
    rng = np.random.default_rng(3)
    vectors = hard_candidates(rng, 24)
    queries = hard_rows(rng, vectors, 131)
    indices, distances = nearest.top_k(queries, vectors, k)
    for block in (1, 7, 64, 130, 131, 132):
        again, also = nearest.top_k(queries, vectors, k, block_rows=block)
        np.testing.assert_array_equal(indices, again)
        np.testing.assert_array_equal(distances, also)
    alone, _ = nearest.top_k(queries[77:78], vectors, k)
    np.testing.assert_array_equal(alone[0], indices[77])


def test_the_order_of_the_rows_does_not_change_the_counts():
    rng = np.random.default_rng(4)
    candidates = hard_candidates(rng, 48)
    rows = hard_rows(rng, candidates, 500)
    counts = nearest.votes(rows, candidates)
    assert counts.dtype == np.int64 and counts.sum() == 500
    for _ in range(5):
        np.testing.assert_array_equal(counts, nearest.votes(rng.permutation(rows), candidates))


@pytest.mark.parametrize("spread", [0, 3])
def test_the_bound_covers_the_rounding_of_the_product(spread):
    rng = np.random.default_rng(5)
    rows, vectors = (10 ** rng.uniform(-spread, spread, (n, 1)) * unit_rows(rng, n, 200) for n in (300, 400))
    rows, vectors = rows.astype(np.float32), vectors.astype(np.float32)
    table = candidates_of.table(vectors)
    (block,) = nearest._blocks(rows, "rows", table, 300)
    exact = rows.astype(float) @ vectors.T.astype(float) - np.square(vectors.astype(float)).sum(axis=1) / 2
    constant = 0 if spread else 0.5
    error = np.abs((block.rows @ table.products).astype(float) - constant - exact).max(axis=1)
    assert len(table.products) == (201 if spread else 200)
    assert (2 * error <= block.margin).all()
    assert (error > 1e-3 * block.margin).any(), "the case is too easy to tell"


def test_scores_rounded_against_the_winner_are_settled_in_float64(monkeypatch):
    def perturbed(block, table, scratch):
        for left, scores in honest(block, table, scratch):
            noise = np.random.default_rng(left).uniform(-0.5, 0.5, scores.shape) * block.margin[:, None]
            yield left, (scores + 0.98 * noise).astype(np.float32)

    honest = nearest._tiles
    rng = np.random.default_rng(6)
    candidates = hard_candidates(rng, 32)
    rows = hard_rows(rng, candidates, 200)
    one, many = nearest.assign(rows, candidates), nearest.top_k(rows, candidates, 9)[0]
    monkeypatch.setattr(nearest, "_tiles", perturbed)
    np.testing.assert_array_equal(one, nearest.assign(rows, candidates))
    np.testing.assert_array_equal(many, nearest.top_k(rows, candidates, 9)[0])
    monkeypatch.setattr(nearest, "_margins", lambda norms, *_: (0 * norms, np.empty(0, dtype=int)))
    assert (one != nearest.assign(rows, candidates)).any(), "without the margin the rounding shows"


@pytest.mark.parametrize("k", [1, 5])
def test_rows_too_long_for_single_precision_are_measured_in_float64(k):
    rng = np.random.default_rng(7)
    vectors = unit_rows(rng, 60, 5)
    queries = np.concatenate([unit_rows(rng, 3, 5), 3e37 * unit_rows(rng, 3, 5), np.full((1, 5), 2e-44)])
    queries = queries.astype(np.float32)
    found, _ = nearest.top_k(queries, vectors, k, block_rows=4)
    plain, _ = nearest.top_k(queries[:3], vectors, k)
    np.testing.assert_array_equal(found[:3], plain)
    np.testing.assert_array_equal(found, [exact_order(query, vectors)[:k] for query in queries])


@pytest.mark.parametrize("k", [1, 30])
def test_vectors_that_are_all_alike_are_told_apart_by_index(k):
    vectors = np.ones((5000, 4), dtype=np.float32)
    found, distances = nearest.top_k(np.zeros((6, 4), dtype=np.float32), vectors, k)
    np.testing.assert_array_equal(found, np.tile(np.arange(k), (6, 1)))
    assert (distances == 4).all()


def test_no_rows_cast_no_votes():
    counts = nearest.votes(np.empty((0, 3), dtype=np.float32), np.eye(3, dtype=np.float32))
    np.testing.assert_array_equal(counts, [0, 0, 0])
    assert counts.dtype == np.int64
    indices, distances = nearest.top_k(np.empty((0, 3), dtype=np.float32), np.eye(3, dtype=np.float32), 2)
    assert indices.shape == distances.shape == (0, 2)


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int8])
def test_other_number_types_are_taken_as_float32(kind):
    rng = np.random.default_rng(8)
    rows, candidates = rng.integers(-9, 9, (50, 4)).astype(kind), rng.integers(-9, 9, (7, 4)).astype(kind)
    want = nearest.votes(rows.astype(np.float32), candidates.astype(np.float32))
    np.testing.assert_array_equal(nearest.votes(rows, candidates), want)


def test_a_memory_mapped_file_is_read_in_blocks(tmp_path):
    rng = np.random.default_rng(9)
    rows, candidates = unit_rows(rng, 60_000, 32), unit_rows(rng, 20, 32)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    tracemalloc.start()
    counts = nearest.votes(mapped, candidates, block_rows=256)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(counts, nearest.votes(rows, candidates))
    assert peak < rows.nbytes / 2


def test_wrong_arguments_are_named_without_their_values():
    good = np.full((4, 3), 7.25, dtype=np.float32)
    bad = good.copy()
    bad[2, 1] = np.nan
    endless = np.full((4, 3), 1e300)
    cases = [
        (good, good[:, :2], "width"),
        (good, good[:0], "candidates has no rows"),
        (bad, good, "private holds NaN"),
        (good, bad, "candidates holds NaN"),
        (endless, good, "private holds NaN or infinite"),
        (good, endless, "candidates holds NaN or infinite"),
        (good[0], good, "private has 1 axes"),
        (good.astype(object), good, "private has 2 axes and type object"),
        (good[:, :0], good[:, :0], "not 0"),
    ]
    for rows, candidates, words in cases:
        with pytest.raises(ConfigError, match=words) as error:
            nearest.votes(rows, candidates)
        assert isinstance(error.value, ValueError) and "7.25" not in str(error.value)
    for k in (0, 5):
        with pytest.raises(ConfigError, match="k is"):
            nearest.top_k(good, good, k)
    with pytest.raises(ConfigError, match="block_rows"):
        nearest.votes(good, good, block_rows=0)


def test_threads_do_not_change_the_result():
    """More blocks than threads, an odd rest, and rows whose scores tie within rounding."""
    rng = np.random.default_rng(11)
    vectors = hard_candidates(rng, 24)
    queries = hard_rows(rng, vectors, 333)
    many, one = nearest.top_k(queries, vectors, 5, block_rows=16), nearest.assign(queries, vectors, block_rows=16)
    with threadpoolctl.threadpool_limits(1, "blas"):
        np.testing.assert_array_equal(many[0], nearest.top_k(queries, vectors, 5, block_rows=16)[0])
        np.testing.assert_array_equal(one, nearest.assign(queries, vectors, block_rows=16))


def test_every_row_is_worked_on_once_and_an_error_comes_out():
    for count, block_rows in [(0, 4), (1, 4), (9, 4), (1000, 7)]:
        seen = np.zeros(count, dtype=int)
        threads.in_threads(lambda part, seen=seen: seen.__setitem__(part, seen[part] + 1), count, block_rows)
        assert (seen == 1).all()
    rows = np.zeros((100, 2), dtype=np.float32)
    rows[-1] = np.nan
    with pytest.raises(ConfigError, match="NaN"):
        nearest.top_k(rows, np.eye(2, dtype=np.float32), 1, block_rows=10)


def test_candidates_that_are_kept_are_searched_as_the_vectors_are():
    rng = np.random.default_rng(12)
    vectors = hard_candidates(rng, 24)
    queries = hard_rows(rng, vectors, 90)
    held = candidates_of.Candidates(vectors)
    for k in (1, 6):
        indices, distances = nearest.top_k(queries, vectors, k)
        np.testing.assert_array_equal(indices, nearest.top_k_indices(queries, held, k))
        np.testing.assert_array_equal(distances, nearest.top_k(queries, held, k)[1])
    assert held.table is held.table and held.distinct[1] is held.distinct[1]
    for wrong, words in ((np.eye(2)[:0], "no rows"), (np.full((2, 2), np.nan), "NaN"), (np.zeros(3), "1 axes")):
        with pytest.raises(ConfigError, match=words):
            candidates_of.Candidates(wrong)
