"""Votes by law: a record moves one coordinate of one vector, whatever else is in the data."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dpsynth.compute import nearest
from hf_dpsynth.privacy import selection
from hf_dpsynth.privacy.noise import DiscreteGaussianDpEvent

LABELS, WIDTH = 3, 8


def embeddings(rng, n):
    rows = rng.standard_normal((n, WIDTH)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def clean(private, candidates):
    return np.concatenate(selection.noisy_votes(private, candidates, 0.0))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 130), min_size=LABELS, max_size=LABELS), st.data())
def test_adding_a_record_moves_exactly_one_coordinate_by_one(seed, sizes, data):
    rng = np.random.default_rng(seed)
    candidates = [embeddings(rng, int(rng.integers(1, 9))) for _ in range(LABELS)]
    private = [embeddings(rng, size) for size in sizes]
    label, near = data.draw(st.integers(0, LABELS - 1)), data.draw(st.booleans())
    target = candidates[label][0]
    record = target + 1e-6 * embeddings(rng, 1)[0] if near else embeddings(rng, 1)[0]
    place = data.draw(st.integers(0, sizes[label]))
    more = [np.insert(rows, place, record, axis=0) if n == label else rows for n, rows in enumerate(private)]
    difference = clean(more, candidates) - clean(private, candidates)
    assert sorted(difference.tolist()) == [0] * (len(difference) - 1) + [1]
    assert difference[np.cumsum([0, *map(len, candidates)])[label] :][: len(candidates[label])].sum() == 1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_replacing_a_record_costs_at_most_the_square_root_of_two_also_across_labels(seed):
    rng = np.random.default_rng(seed)
    candidates = [embeddings(rng, 6) for _ in range(2)]
    private = [embeddings(rng, 40), embeddings(rng, 30)]
    moved = [private[0][1:], np.concatenate([private[1], embeddings(rng, 1)])]
    difference = clean(moved, candidates) - clean(private, candidates)
    assert np.linalg.norm(difference) <= np.sqrt(2) + 1e-12


def test_the_noise_is_drawn_once_for_all_labels_and_has_the_claimed_scale():
    rng = np.random.default_rng(0)
    candidates = [embeddings(rng, 4000), embeddings(rng, 4000)]
    noisy = np.concatenate(selection.noisy_votes([embeddings(rng, 0)] * 2, candidates, 5.0))
    assert len(noisy) == 8000
    assert abs(noisy.std() / 5.0 - 1) < 0.05  # 6 standard errors; a scale 10 % off is rejected
    assert not abs(noisy.std() / 5.5 - 1) < 0.05


def test_a_label_without_records_or_candidates_still_takes_part():
    rng = np.random.default_rng(0)
    candidates = [embeddings(rng, 3), embeddings(rng, 0), embeddings(rng, 2)]
    votes = selection.noisy_votes([embeddings(rng, 0), embeddings(rng, 5), embeddings(rng, 7)], candidates, 0.0)
    assert [len(v) for v in votes] == [3, 0, 2]
    assert [int(v.sum()) for v in votes] == [0, 0, 7]


def test_the_event_carries_the_relation():
    assert selection.count_event(3.0, "add-remove") == DiscreteGaussianDpEvent(3.0, (1,))
    assert selection.count_event(3.0, "zero-out") == DiscreteGaussianDpEvent(3.0, (1,))
    assert selection.count_event(3.0, "replace-one") == DiscreteGaussianDpEvent(3.0, (1, 1))
    assert type(selection.count_event(0.0, "zero-out")).__name__ == "NonPrivateDpEvent"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 700))
def test_distinct_keeps_no_two_rows_within_a_millionth_and_drops_none_without_a_twin(seed, number):
    rng = np.random.default_rng(seed)
    base = embeddings(rng, max(1, number // 3)).astype(np.float64)
    rows = base[rng.integers(0, len(base), number)]
    rows = (rows + rng.choice([0.0, 3e-7, 5e-6], size=(number, 1)) * embeddings(rng, number)).astype(np.float32)
    kept = selection.distinct(rows)
    exact = rows.astype(np.float64)
    gaps = np.linalg.norm(exact[kept][:, None] - exact[kept][None], axis=2) + 10 * np.eye(len(kept))
    assert gaps.min() > 1e-6
    dropped = np.setdiff1d(np.arange(number), kept)
    for row in dropped:
        assert np.linalg.norm(exact[kept] - exact[row], axis=1).min() <= 1e-6
    assert nearest.votes(rows[kept], rows[kept]).max(initial=1) == 1
