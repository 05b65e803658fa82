"""Rows of length 1: each is a function of itself alone, in any layout; memory stays near that of the rows."""

import tracemalloc

import numpy as np

from hf_dpsynth.compute.unit_rows import unit_rows


def test_a_row_is_the_same_bits_alone_among_others_and_in_any_layout():
    rows = np.random.default_rng(0).standard_normal((9000, 37)).astype(np.float32)
    rows[8999] = 0
    whole = unit_rows(rows)
    assert whole.dtype == np.float32 and np.allclose(np.linalg.norm(whole[:-1], axis=1), 1)
    assert not whole[8999].any()
    for row in (0, 8191, 8192, 8998):
        assert (unit_rows(rows[row : row + 1]) == whole[row]).all()
    assert (unit_rows(np.asfortranarray(rows)) == whole).all() and (unit_rows(rows[::-1])[::-1] == whole).all()
    assert unit_rows(rows[:0]).shape == (0, 37)


def test_double_precision_is_held_of_a_block_alone():
    rows = np.ones((100_000, 64), dtype=np.float32)
    tracemalloc.start()
    unit_rows(rows)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1.6 * rows.nbytes
