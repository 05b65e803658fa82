"""DP-SGD: what is drawn is what is accounted, a record moves a sum by at most C, and the noise has its scale."""

import math
from collections import Counter

import numpy as np
import pytest
from dp_accounting import NonPrivateDpEvent
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hf_dpsynth.audit import audit_independence, audit_noise, audit_sampling
from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.privacy.accounting import epsilon, leaves, rdp_epsilon
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.sgd import ClippedSum, PoissonSampling, ShuffledBatches

torch = pytest.importorskip("torch")
CPU = torch.device("cpu")
BIG = PoissonSampling(num_records=25_000, batch_size=1024, steps=1000)


def inclusion(batches, key, steps, present):
    drawn = np.zeros((steps, present), dtype=bool)
    for step in range(steps):
        drawn[step, batches.batch(key, step, present)] = True
    return drawn


def test_the_sampler_draws_what_its_event_says():
    batches = PoissonSampling(num_records=60, batch_size=12, steps=4000)
    (leaf,) = leaves(batches.event(1.0))
    drawn = inclusion(batches, Key.from_insecure_seed(1), 4000, 60)
    assert not audit_sampling(drawn, leaf.sampling_probability).violated


def test_other_samplers_are_caught():
    rng = np.random.default_rng(0)
    fixed, wrong, together = (np.zeros((4000, 60), dtype=bool) for _ in range(3))
    for step in range(4000):
        fixed[step, rng.permutation(60)[:12]] = True
        wrong[step] = rng.random(60) < 0.22
        together[step] = np.repeat(rng.random(30) < 0.2, 2)
    assert all(audit_sampling(drawn, 0.2).violated for drawn in (fixed, wrong, together))


def test_steps_ranks_and_process_starts_draw_apart():
    batches = PoissonSampling(num_records=200, batch_size=50, steps=10)
    first = batches.batch(Key(), 0, 200)
    key = Key()
    others = [
        batches.batch(Key(), 0, 200),
        *(batches.batch(key, step, 200, rank=r) for step in (0, 1) for r in (0, 1)),
    ]
    assert len({tuple(rows) for rows in (first, *others)}) == 6


def test_published_numbers_come_out():
    # Regression numbers of the specification: PLD, Renyi, replace-one; n = 25,000, batch 1,024, 1,000 steps.
    assert epsilon(BIG.event(1.0), 4e-5) == pytest.approx(8.053, abs=2e-3)
    assert epsilon(BIG.event(1.0), 4e-5, adjacency="zero-out") == pytest.approx(8.053, abs=2e-3)
    assert rdp_epsilon(BIG.event(1.0), 4e-5) == pytest.approx(8.888, abs=2e-3)
    assert epsilon(BIG.event(1.0), 4e-5, adjacency="replace-one") == pytest.approx(13.72, abs=1e-2)


def test_shuffling_claims_no_amplification():
    shuffled = ShuffledBatches(num_records=25_000, batch_size=1024, steps=1000)
    assert epsilon(shuffled.event(1.0), 4e-5, discretisation=1e-3) == pytest.approx(45, abs=2)


@pytest.mark.parametrize("kind", [PoissonSampling, ShuffledBatches])
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 50), st.integers(1, 20))
def test_blocks_are_all_steps_once_and_cost_the_whole_event(kind, num_records, batch_size, steps, length):
    batches = kind(num_records=num_records, batch_size=min(batch_size, num_records), steps=steps)
    blocks = list(batches.blocks(length))
    assert [step for start, stop in blocks for step in range(start, stop)] == list(range(steps))
    total = Counter()
    for start, stop in blocks:
        event, count = batches.block_event(1.3, start, stop)
        total.update({event: count})
    assert total == leaves(batches.event(1.3)) == leaves(batches.event_until(1.3, steps))


def test_a_shuffled_record_is_in_one_batch_of_each_epoch():
    batches = ShuffledBatches(num_records=10, batch_size=4, steps=9)
    drawn = inclusion(batches, Key(), 9, 10)
    assert batches.epochs == 3 and all((drawn[e * 3 : e * 3 + 3].sum(0) == 1).all() for e in range(3))
    fewer = inclusion(batches, Key(), 9, 7)
    assert (fewer.sum(0) == 3).all()
    with pytest.raises(PrivacyError, match="more records"):
        batches.batch(Key(), 0, 11)


def test_without_noise_there_is_no_privacy():
    assert set(leaves(BIG.event(0.0))) == {NonPrivateDpEvent()}
    assert epsilon(BIG.event(0.0), 1e-5) == math.inf


@pytest.mark.parametrize("wrong", [{"num_records": 0}, {"steps": 0}, {"batch_size": 2.5}, {"batch_size": 101}])
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError):
        PoissonSampling(**{"num_records": 100, "batch_size": 10, "steps": 5} | wrong)


def summed(gradients, clip_norm=1.0):
    total = ClippedSum([torch.Size([3]), torch.Size([2, 2])], clip_norm, CPU)
    if gradients:
        whole = torch.tensor(gradients, dtype=torch.float32)
        total.add([whole[:, :3], whole[:, 3:].reshape(-1, 2, 2)])
    return torch.cat([part.flatten() for part in total.sums])


VALUES = st.floats(-(2.0**66), 2.0**66, width=32) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0])
ROWS = st.lists(st.lists(VALUES, min_size=7, max_size=7), max_size=4)


@given(ROWS, st.lists(VALUES, min_size=7, max_size=7), st.sampled_from([0.01, 1.0, 30.0]))
def test_one_record_moves_the_sum_by_at_most_its_clip_norm(rows, record, clip_norm):
    before, after = summed(rows, clip_norm), summed([*rows, record], clip_norm)
    assert torch.isfinite(after).all()
    moved = (after.double() - before.double()).norm().item()
    rounding = (len(rows) + 1) * clip_norm * 1e-6
    assert moved <= clip_norm + rounding
    assert summed([record], clip_norm).double().norm().item() <= clip_norm


def test_a_record_within_the_norm_is_added_as_it_is():
    record = [0.1, 0.2, -0.3, 0.0, 0.1, 0.2, 0.0]
    assert torch.allclose(summed([record, record]), 2 * torch.tensor(record))


def test_a_whole_record_is_left_out_when_one_number_is_not_finite():
    good = [0.1] * 7
    for bad in (math.nan, math.inf):
        assert torch.equal(summed([good, [bad, *good[1:]]]), summed([good]))


def test_gradients_that_are_not_one_a_record_are_refused():
    total = ClippedSum([torch.Size([3])], 1.0, CPU)
    for wrong in (torch.zeros(2, 4), torch.zeros(3)):
        with pytest.raises(PrivacyError, match="couples"):
            total.add([wrong])
    pair = ClippedSum([torch.Size([3]), torch.Size([3])], 1.0, CPU)
    with pytest.raises(PrivacyError, match="couples"):
        pair.add([torch.zeros(2, 3), torch.zeros(1, 3)])


def noise(noise_multiplier, clip_norm, scale=1.0):
    total = ClippedSum([torch.Size([200, 200]), torch.Size([10])], clip_norm, CPU)
    parts = list(total.noised(noise_multiplier * scale, Key.from_insecure_seed(5).generator("sgd-noise", 0)))
    return torch.cat([part.flatten() for part in parts]).double().numpy() / (noise_multiplier * clip_norm)


def test_the_noise_is_gaussian_of_its_scale_and_another_scale_is_caught():
    assert not audit_noise(noise(1.7, 0.3), stats.norm.cdf, 0.999).violated
    assert audit_noise(noise(1.7, 0.3, scale=1.1), stats.norm.cdf).violated  # 40,010 draws: power above .999
    assert not audit_independence(noise(1, 1)[:40_000].reshape(20, -1)).violated


def test_an_empty_batch_is_noise_and_no_noise_is_the_sum():
    total = ClippedSum([torch.Size([4])], 1.0, CPU)
    total.add([torch.zeros(0, 4)])
    (noisy,) = total.noised(1.0, Key().generator("a"))
    assert (noisy != 0).all()
    (plain,) = total.noised(0.0, Key().generator("a"))
    assert (plain == 0).all()


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_a_clip_norm_or_noise_out_of_range_is_refused(wrong):
    with pytest.raises(ConfigError, match="clip_norm"):
        ClippedSum([torch.Size([1])], wrong, CPU)
    if wrong != 0:
        with pytest.raises(ConfigError, match="noise_multiplier"):
            list(ClippedSum([torch.Size([1])], 1.0, CPU).noised(wrong, Key().generator("a")))
