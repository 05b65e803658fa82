import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dpsynth.compute import first_pass, nearest
from hf_dpsynth.compute.candidates import table
from tests.compute.test_nearest import exact_order, float64_argmin, hard_candidates, hard_rows, unit_rows


@pytest.fixture(autouse=True, scope="module")
def forced():
    """Take the first pass whatever the size and the processor; without bfloat16 it is slow and as right."""
    first_pass._FORCED = True
    yield
    first_pass._FORCED = None


def without(rows, candidates):
    first_pass._FORCED = False
    try:
        return nearest.assign(rows, candidates)
    finally:
        first_pass._FORCED = True


def clusters(rng, count, width, step):
    """Candidates `step` apart around a few far points, lengths unequal: scores that bfloat16 rounds together."""
    centres = 0.3 + unit_rows(rng, 3, width)
    return (centres[rng.integers(3, size=count)] + step * unit_rows(rng, count, width)).astype(np.float32)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.sampled_from([1, 2, 3, 31, 33, 65]),
    step=st.sampled_from([0.0, 1e-6, 1e-3, 4e-3, 0.1, 1.0]),
    scale=st.sampled_from([1e-41, 1e-30, 1e-3, 1.0, 300.0, 1e11, 1e14]),
    columns=st.sampled_from([5, 16, 4096]),
    unit=st.booleans(),
)
def test_the_first_pass_changes_no_answer(seed, width, step, scale, columns, unit):
    """Ties and near-ties within bfloat16, numbers below 2^-126, rows that are too long, crowds, several tiles."""
    rng = np.random.default_rng(seed)
    candidates = np.concatenate([clusters(rng, 30, width, step), unit_rows(rng, 9, width)])
    if unit:
        candidates /= np.linalg.norm(candidates, axis=1, keepdims=True) + np.float32(1e-30)
    lengths = rng.choice([1e-6, 1.0, 1.0, 50.0, 1e13, 1e38], size=(60, 1))
    rows = np.concatenate([lengths * hard_rows(rng, candidates, 60), -candidates[:5], 0 * candidates[:1]])
    rows, candidates = np.clip(scale * rows, -3e38, 3e38).astype(np.float32), np.float32(scale) * candidates
    before = first_pass._TILE_COLUMNS
    first_pass._TILE_COLUMNS = columns
    try:
        found = nearest.assign(rows, candidates, block_rows=16)
    finally:
        first_pass._TILE_COLUMNS = before
    np.testing.assert_array_equal(found, without(rows, candidates))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), width=st.integers(1, 6))
def test_ties_go_to_the_lowest_index(seed, width):
    rng = np.random.default_rng(seed)
    candidates = rng.integers(-3, 4, size=(40, width)).astype(np.float32)
    rows = (rng.integers(-6, 7, size=(9, width)) / 2).astype(np.float32)
    want = [exact_order(row, candidates)[0] for row in rows]
    np.testing.assert_array_equal(nearest.assign(rows, candidates, block_rows=4), want)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.sampled_from([0, 1, 7, 8, 9, 43]), place=st.floats(0, 1))
def test_one_record_more_is_exactly_one_vote_more(seed, count, place):
    rng = np.random.default_rng(seed)
    candidates = hard_candidates(rng, 33)
    rows, extra = hard_rows(rng, candidates, count), hard_rows(rng, candidates, 1)
    position = int(place * count)
    with_it = np.concatenate([rows[:position], extra, rows[position:]])
    change = nearest.votes(with_it, candidates, block_rows=8) - nearest.votes(rows, candidates, block_rows=8)
    assert change.sum() == 1 and change.min() >= 0
    np.testing.assert_array_equal(change, nearest.votes(extra, candidates))


@pytest.mark.parametrize(("kind", "layout"), [(np.float64, "C"), (np.float16, "C"), (np.float32, "F")])
def test_other_number_types_and_layouts_are_taken_as_float32(kind, layout):
    rng = np.random.default_rng(1)
    rows, candidates = unit_rows(rng, 300, 50), unit_rows(rng, 70, 50)
    rows, candidates = np.asarray(rows.astype(kind), order=layout), np.asarray(candidates.astype(kind), order=layout)
    np.testing.assert_array_equal(nearest.assign(rows[::2], candidates), without(rows[::2], candidates))


def measured(rows, candidates):
    """What the pass stores and the true scores, with A of the bound: shapes (n, m), (n, m) and (n,)."""
    ready = first_pass._centred(table(candidates))
    one = first_pass.FirstPass(ready, len(rows))
    norms = np.linalg.norm(rows.astype(np.float64), axis=1) * (1 + 1e-12)
    error = one._errors(rows, norms)
    bits = np.concatenate([one._scores(tile) for tile in ready.tiles], axis=1)
    exact, halves = candidates.astype(np.float64), np.square(candidates.astype(np.float64)).sum(axis=1) / 2
    true = rows.astype(np.float64) @ (exact - exact.mean(axis=0)).T + halves.mean() - halves
    return (bits.astype(np.int32) << 16).view(np.float32).astype(np.float64), true, error


@pytest.mark.parametrize("width", [3, 384, 3000])
@pytest.mark.parametrize("spread", [0, 1])
def test_the_bound_covers_the_rounding_of_bfloat16(width, spread):
    """The worst case is reached to a third at width 3, so a bound that is three times too small is caught there."""
    rng = np.random.default_rng(width)
    rows, candidates = (unit_rows(rng, n, width) * 10 ** rng.uniform(-spread, spread, (n, 1)) for n in (300, 100))
    stored, true, error = measured(rows.astype(np.float32), candidates.astype(np.float32))
    allowed = error[:, None] + 2.0**-8 * np.abs(stored)
    share = (np.abs(stored - true) / allowed).max()
    assert share <= 1
    assert share > (0.33 if width == 3 else 0.04), "the case is too easy to tell"


def test_scores_wrong_by_as_much_as_the_bound_change_no_answer(monkeypatch):
    """Every score is moved by A against the winner; a threshold that allows for less shows the change."""
    rng = np.random.default_rng(2)
    base, rows = unit_rows(rng, 6, 256), unit_rows(rng, 300, 256)
    candidates = np.concatenate([base, base + np.float32(1e-3) * unit_rows(rng, 6, 256)])
    want = without(rows, candidates)
    errors, honest = [], first_pass.FirstPass._scores

    def noted(self, rows, norms):
        errors.append(honest_errors(self, rows, norms))
        return allowed * errors[-1]

    def moved(self, tile):
        bits = honest(self, tile)
        value = (bits.astype(np.int32) << 16).view(np.float32)
        sign = rng.choice([-1, 1], value.shape)
        sign[np.arange(len(value)), value.argmax(axis=1)] = -1
        worse = torch.from_numpy(value + sign * errors[-1][:, None].astype(np.float32)).bfloat16()
        return worse.view(torch.int16).numpy()

    honest_errors = first_pass.FirstPass._errors
    monkeypatch.setattr(first_pass.FirstPass, "_errors", noted)
    monkeypatch.setattr(first_pass.FirstPass, "_scores", moved)
    allowed = 1.5  # for what was rounded, and for what was moved
    np.testing.assert_array_equal(nearest.assign(rows, candidates, block_rows=300), want)
    allowed = 0.5
    assert (nearest.assign(rows, candidates, block_rows=300) != want).any()


def test_the_pass_settles_rows_of_embeddings_with_few_pairs():
    """Answers that all came from single precision would be right and slow."""
    rng = np.random.default_rng(3)
    candidates, rows = (unit_rows(rng, n, 128) for n in (500, 400))
    one = first_pass.FirstPass(first_pass.rough(table(candidates), 400), 400)
    row, column, left = one.pairs(rows, np.ones(400))
    assert len(left) == 0 and 400 <= len(row) < 1200
    best = float64_argmin(rows, candidates)
    assert set(zip(range(400), best.tolist(), strict=True)) <= set(zip(row.tolist(), column.tolist(), strict=True))


def test_crowds_of_near_copies_are_left_and_the_pass_is_given_up(monkeypatch):
    rng = np.random.default_rng(4)
    candidates = np.concatenate([clusters(rng, 300, 20, 1e-5), -unit_rows(rng, 2, 20)])
    rows = hard_rows(rng, candidates[:300], 100)
    calls, honest = [], first_pass.FirstPass.pairs
    monkeypatch.setattr(first_pass.FirstPass, "pairs", lambda self, *a: calls.append(1) or honest(self, *a))
    monkeypatch.setattr(nearest, "in_threads", lambda work, count, block_rows: work(slice(0, count)))
    np.testing.assert_array_equal(nearest.assign(rows, candidates, block_rows=10), without(rows, candidates))
    assert len(calls) == 1


def test_torch_keeps_its_threads_after_votes_and_after_an_error():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        rows = np.ones((40, 3), dtype=np.float32)
        nearest.votes(rows, np.eye(3, dtype=np.float32), block_rows=8)
        assert torch.get_num_threads() == 3
        rows[-1] = np.nan
        with pytest.raises(ValueError, match="NaN"):
            nearest.votes(rows, np.eye(3, dtype=np.float32), block_rows=8)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_only_a_processor_with_bfloat16_and_enough_work_takes_the_pass(monkeypatch):
    monkeypatch.setattr(first_pass, "_FORCED", None)
    ready = table(unit_rows(np.random.default_rng(5), 64, 32))
    known = {"avx512_bf16": True, "amx_bf16": False}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known)
    assert first_pass.rough(ready, 2**16) is not None
    assert first_pass.rough(ready, 2**16 - 1) is None, "too little to do"
    known["avx512_bf16"] = False
    assert first_pass.rough(ready, 2**16) is None, "no bfloat16"
    known["amx_bf16"] = True
    assert first_pass.rough(table(2.0**41 * ready.vectors), 2**16) is None, "too long"
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert first_pass.rough(ready, 2**16) is None, "no oneDNN"


SHARD = """
import sys
import numpy as np
from hf_dpsynth.compute import first_pass, nearest
rows, candidates = np.load(sys.argv[1], mmap_mode="r"), np.load(sys.argv[2])
counts = nearest.votes(rows[int(sys.argv[3]) : int(sys.argv[4])], candidates, block_rows=64)
print(*counts, "torch" in sys.modules)
"""


def test_counts_of_parts_in_two_processes_add_up_to_those_of_all(tmp_path):
    """Little work, so without the first pass and without torch; here all rows, with both."""
    rng = np.random.default_rng(6)
    candidates = hard_candidates(rng, 40)
    rows = hard_rows(rng, candidates, 999)
    paths = [str(tmp_path / name) for name in ("rows.npy", "candidates.npy")]
    for path, array in zip(paths, (rows, candidates), strict=True):
        np.save(path, array)
    parts = [["0", "501"], ["501", "999"]]
    running = [subprocess.Popen([sys.executable, "-c", SHARD, *paths, *part], stdout=-1, text=True) for part in parts]
    found = [process.communicate()[0].split() for process in running]
    assert [words.pop() for words in found] == ["False", "False"]
    np.testing.assert_array_equal(np.array(found, dtype=np.int64).sum(axis=0), nearest.votes(rows, candidates))
