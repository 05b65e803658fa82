"""Units of several records: a unit moves a sum and a histogram by what one record could, whatever it holds."""

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hf_dpsynth.errors import PrivacyError
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.privacy.sgd import ClippedSum, PoissonSampling
from hf_dpsynth.privacy.units import capped, label_counts, unit_means

torch = pytest.importorskip("torch")
LABELS = (("a",), ("b",), ("c",))
SHAPES = [torch.Size([2]), torch.Size([1, 2])]
NUMBERS = st.floats(-(2.0**40), 2.0**40, width=32) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0])
UNIT = st.lists(st.lists(NUMBERS, min_size=4, max_size=4), min_size=1, max_size=6)


def micro_batches(units, size):
    rows = torch.tensor([row for unit in units for row in unit], dtype=torch.float32).reshape(-1, 4)
    for part in rows.split(size) if len(rows) else ():
        yield [part[:, :2], part[:, 2:].reshape(-1, 1, 2)]


def summed(units, size=3, clip_norm=1.0):
    total = ClippedSum(SHAPES, clip_norm, torch.device("cpu"))
    for means in unit_means(micro_batches(units, size), [len(unit) for unit in units]):
        total.add(means)
    return torch.cat([part.flatten() for part in total.sums]).double()


@given(st.lists(UNIT, max_size=4), UNIT, st.integers(0, 4), st.integers(1, 7))
def test_one_user_moves_the_sum_by_at_most_the_clip_norm_however_many_records_it_has(others, user, place, size):
    after = summed([*others[:place], user, *others[place:]], size)
    assert torch.isfinite(after).all()
    assert (after - summed(others, size)).norm() <= 1 + 1e-6 * (len(others) + 1)


@given(st.lists(UNIT, max_size=4), UNIT, st.integers(0, 4), st.integers(1, 7), st.integers(1, 7))
def test_what_a_user_adds_does_not_depend_on_who_else_is_there_nor_on_micro_batches(others, user, place, size, other):
    moved = summed([*others[:place], user, *others[place:]], size) - summed(others, size)
    assert torch.allclose(moved, summed([user], other), atol=1e-5)


def test_a_mean_over_more_records_than_a_micro_batch_is_clipped_as_a_whole():
    rng = np.random.default_rng(0)
    user = rng.normal(size=(100, 4))
    mean = user.mean(0)
    for scale in (0.1, 100.0):
        wanted = scale * mean * min(1.0, 1 / np.linalg.norm(scale * mean))
        assert np.allclose(summed((scale * user)[None].tolist(), 7).numpy(), wanted, atol=1e-5)


def test_two_users_with_1_and_100_records_move_the_sum_alike():
    row = [3.0, 0.0, 0.0, 0.0]
    one, many = summed([[row]]), summed([[row] * 100])
    assert torch.allclose(one, many) and one.norm() == pytest.approx(1, abs=1e-4)


def test_a_user_with_one_record_that_is_not_finite_counts_for_nothing():
    good, bad = [0.5, 0.0, 0.0, 0.0], [math.nan, 0.0, 0.0, 0.0]
    assert torch.equal(summed([[good, bad, good], [good]]), summed([[good]]))
    assert torch.equal(summed([[good], [bad], [good, good]], 2), summed([[good], [good, good]], 2))


def test_users_of_one_record_are_the_records_themselves():
    parts = list(micro_batches([[[1.0, 2.0, 3.0, 4.0]]] * 5, 2))
    assert all(a is b for a, b in zip(parts, unit_means(parts, [1] * 5), strict=True))


def test_only_one_gradient_a_record_is_taken():
    rows = list(micro_batches([[[1.0] * 4] * 4], 4))
    for sizes in ([3], [5], [2, 1], [4, 1], []):
        with pytest.raises(PrivacyError, match="couples"):
            list(unit_means(rows, sizes))
    with pytest.raises(PrivacyError, match="couples"):
        list(unit_means([[torch.zeros(2, 2), torch.zeros(1, 1, 2)]], [2]))


def test_a_change_of_one_record_of_a_user_can_move_the_sum_by_twice_the_clip_norm():
    # so a guarantee per user is none per record at the same cost, and no budget mixes the two
    both, one = summed([[[3.0, 0, 0, 0], [-1.0, 0, 0, 0]]]), summed([[[-1.0, 0, 0, 0]]])
    assert (both - one).norm() == pytest.approx(2, abs=1e-3)


def test_the_cap_keeps_every_set_of_records_alike():
    # 4,000 draws of 6 sets: a set that is kept 1.3 times as often as the others is refused with power above .999
    users = [[0, 1, 2, 3]] * 4000
    found = Counter(tuple(kept) for kept in capped(users, 2, Key.from_insecure_seed(3)))
    assert set(found) == set(combinations(range(4), 2))
    counts, biased = np.array(list(found.values())), np.array([1.3, 1, 1, 1, 1, 1])
    assert stats.chisquare(counts).pvalue > 1e-3
    assert stats.chisquare(counts, 4000 * biased / biased.sum()).pvalue < 1e-3


def test_the_cap_is_respected_and_fresh_in_each_process_start():
    users = [list(range(size)) for size in (1, 2, 3, 50)]
    kept = capped(users, 3, Key())
    assert [len(records) for records in kept] == [1, 2, 3, 3] and kept[:3] == users[:3]
    assert kept[3] == sorted(kept[3]) and "1" not in repr(kept)
    assert len({tuple(capped(users, 3, Key())[3]) for _ in range(20)}) > 1


def records(users, labels=None):
    labels = [("a",)] * len(users) if labels is None else labels
    return PrivateRecords([f"canary {number}" for number in range(len(users))], labels, units=users)


def test_users_are_included_with_the_probability_of_the_event():
    # at 3,000 steps of 40 users, a rate 10 % off is refused with power above .999
    users = [f"u{number}" for number in range(40) for _ in range(1 + 5 * (number % 3))]
    units = capped(records(users).by_unit(LABELS), 8, Key())
    batches = PoissonSampling(num_records=40, batch_size=10, steps=3000)
    key = Key.from_insecure_seed(2)
    drawn = np.zeros((3000, 40), dtype=bool)
    for step in range(3000):
        drawn[step, batches.batch(key, step, len(units))] = True
    assert len(units) == 40 and stats.binomtest(int(drawn.sum()), drawn.size, batches.probability).pvalue > 1e-3
    assert stats.binomtest(int(drawn.sum() * 1.1), drawn.size, batches.probability).pvalue < 1e-3


@given(
    st.lists(st.tuples(st.sampled_from([None, "u", "v", "w"]), st.sampled_from("abcx")), max_size=12),
    st.lists(st.sampled_from("abcx"), max_size=9),
)
def test_a_user_adds_one_count_of_one_label(others, own):
    def counts(rows):
        found = records([user for user, _ in rows], [(label,) for _, label in rows])
        return np.array(label_counts(found, LABELS, Key.from_insecure_seed(1)))

    usable = {user for user, label in others if user is not None and label != "x"}
    without, with_user = counts(others), counts([*others, *(("new", label) for label in own)])
    assert without.sum() == len(usable)
    assert np.abs(with_user - without).sum() == (1 if set(own) - {"x"} else 0)


def test_the_label_of_a_user_is_drawn_from_its_usable_records():
    # a user with 1 "a" and 3 "b": 2,000 users give 500 "a"; 600 would be refused with power above .999
    users = [number for number in range(2000) for _ in range(5)]
    labels = [(label,) for _ in range(2000) for label in "abbbx"]
    found = label_counts(records(users, labels), LABELS, Key.from_insecure_seed(4))
    assert found[2] == 0 and sum(found) == 2000 and stats.binomtest(found[0], 2000, 0.25).pvalue > 1e-3


def test_records_without_users_are_units_of_their_own():
    texts, labels = ["x", None, " ", "y" * 30, "z"], [(label,) for label in "aaabn"]
    private = PrivateRecords(texts, labels, max_characters=9)
    assert private.by_unit(LABELS) == [[(0, "x")], [(1, "y" * 9)]]
    assert label_counts(private, LABELS, Key()) == [1, 1, 0]


def test_records_of_a_user_stand_together_and_those_without_a_user_nowhere():
    private = records(["u", None, "v", "u", "", ""])
    assert private.by_unit(LABELS) == [
        [(0, "canary 0"), (0, "canary 3")], [(0, "canary 2")], [(0, "canary 4"), (0, "canary 5")],
    ]  # fmt: skip
    assert "canary" not in repr(private.by_unit(LABELS)) and "canary" not in repr(private.by_unit(LABELS)[0])


def test_the_commitment_sees_the_users():
    key = Key()
    variants = [None, ["u", "v"], ["v", "u"], ["u", None], [1, 2], ["1", "2"]]
    digests = {key.commit(PrivateRecords(["a", "b"], units=users).chunks()) for users in variants}
    assert len(digests) == len(variants)
    with pytest.raises(PrivacyError, match="lengths"):
        PrivateRecords(["a"], units=[])
