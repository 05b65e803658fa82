"""Released texts near to members are found, texts near to nobody are not, and the interval counts neighbours."""

import itertools

import numpy as np
import pytest

from hf_dpsynth.audit import audit_neighbours
from hf_dpsynth.audit.rates import lower_rate, upper_rate
from hf_dpsynth.errors import ConfigError
from tests.stubs import StubEmbedder


class Points:
    """Texts "t0", "t1" and so on are the rows of a matrix."""

    def __init__(self, rows):
        self.rows, self.most = np.asarray(rows, np.float32), 0

    def embed(self, texts):
        self.most = max(self.most, len(texts))
        return self.rows[[int(text[1:]) for text in texts]]


def study(seed, *, released=400, members=60, others=60, copied=0, width=8):
    """Arguments of an audit of like points, where some released ones lie beside members."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(released + members + others, width))
    rows[:copied] = rows[released + rng.integers(0, members, copied)] + 0.05 * rng.normal(size=(copied, width))
    ends = np.cumsum([0, released, members, others])
    lists = [[f"t{row}" for row in range(*span)] for span in itertools.pairwise(ends)]
    return lists, Points(rows)


def test_the_interval_covers_a_half_as_often_as_it_says_where_nothing_leaks():
    """200 audits of 20 against 20 texts and 2000 released ones: 95 %, at least 90 at three standard errors. Taking
    the rows for independent covers a half in 66 % of them."""
    covers, rows = [], []
    for seed in range(200):
        lists, points = study(seed, released=2000, members=20, others=20)
        found = audit_neighbours(*lists, embedder=points)["closer_to_members"]
        covers.append(found.interval[0] <= 0.5 <= found.interval[1])
        hits = round(found.value * 2000)
        rows.append(lower_rate(hits, 2000, 0.025) <= 0.5 <= upper_rate(hits, 2000, 0.025))
    assert np.mean(rows) < 0.8 and 0.9 < np.mean(covers)


def test_a_tenth_of_copies_is_found():
    """Power: 300 of 400 members copied in 3000 released rows, in each of 10 audits."""
    for seed in range(10):
        lists, points = study(seed, released=3000, members=400, others=400, copied=300)
        found = audit_neighbours(*lists, embedder=points)
        assert found["closer_to_members"].value > 0.52 and found["auc"].interval[0] > 0.5
        assert found["distance_1_percent"].value < 0.5 * found["distance_1_percent_holdout"].value
        assert found["distance_5_percent"].value < 0.5 * found["distance_5_percent_holdout"].value


def test_half_of_copies_pushes_the_interval_beyond_a_half():
    for seed in range(10):
        lists, points = study(seed, released=400, members=400, others=400, copied=200)
        assert audit_neighbours(*lists, embedder=points)["closer_to_members"].interval[0] > 0.5


def test_both_sides_exchanged_give_the_share_of_the_other():
    lists, points = study(0, copied=40)
    one = audit_neighbours(*lists, embedder=points)["closer_to_members"]
    other = audit_neighbours(lists[0], lists[2], lists[1], embedder=points)["closer_to_members"]
    assert one.value + other.value == pytest.approx(1) and one.interval[0] == pytest.approx(1 - other.interval[1])


def test_blocks_change_nothing_and_bound_what_is_embedded(monkeypatch):
    lists, points = study(1, copied=40)
    whole = audit_neighbours(*lists, embedder=points)
    monkeypatch.setattr("hf_dpsynth.audit.neighbours._BLOCK", 64)
    points.most = 0
    parts = audit_neighbours(*lists, embedder=points)
    assert points.most == 120, "the private texts; released ones come 64 at a time"
    assert [one.value for one in parts.findings] == pytest.approx([one.value for one in whole.findings])


def test_rows_that_share_a_neighbour_are_one_trial():
    lists, points = study(2)
    same = audit_neighbours([lists[0][0]] * 500, *lists[1:], embedder=points)["closer_to_members"]
    assert same.n == 500 and same.value in (0, 1) and same.interval[1] - same.interval[0] > 0.9
    assert "that of 1 independent rows" in same.statement()


def test_equally_near_counts_half():
    rows = np.random.default_rng(0).normal(size=(40, 8))
    lists = [[f"t{row}" for row in range(*span)] for span in ((0, 20), (20, 40), (40, 60))]
    found = audit_neighbours(*lists, embedder=Points(np.concatenate([rows, rows[20:]])))
    assert found["closer_to_members"].value == 0.5 and found["auc"].value == 0.5


def test_a_larger_side_is_drawn_down_several_times():
    lists, points = study(3, members=240, others=60)
    one, five = (audit_neighbours(*lists, embedder=points, splits=number) for number in (1, 5))
    assert one["closer_to_members"].value != five["closer_to_members"].value
    low, high = five["closer_to_members"].interval
    assert low < 0.5 < high and one["auc"].n == 120


def test_any_embedder_of_texts_will_do():
    words = [f"alpha{n} beta{n} gamma{n}" for n in range(60)]
    found = audit_neighbours([*words[:20], words[0]], words[:30], words[30:], embedder=StubEmbedder())
    assert found["closer_to_members"].value > 0.9 and found["closer_to_members"].n == 21
    assert found["distance_5_percent"].value == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "more", "words"),
    [
        ({2: None}, {}, "others= is of type NoneType"), ({2: []}, {}, "others= holds no text"),
        ({0: [None]}, {}, "synthetic="), ({1: ["t0"] * 50}, {}, "members= has 1 different texts"),
        ({}, {"splits": 0}, "splits"), ({}, {"confidence": 2}, "confidence"), ({}, {"delta": -1}, "delta"),
    ],
)  # fmt: skip
def test_what_cannot_be_audited_is_refused(change, more, words):
    lists, points = study(0)
    arguments = [change.get(place, held) for place, held in enumerate(lists)]
    with pytest.raises(ConfigError, match=words):
        audit_neighbours(*arguments, embedder=points, **more)


def test_the_same_texts_on_both_sides_are_refused():
    lists, points = study(0)
    with pytest.raises(ConfigError, match="not on both sides"):
        audit_neighbours(lists[0], lists[1], lists[1], embedder=points)


def test_points_that_are_all_alike_are_refused():
    lists, points = study(0)
    points.rows[:] = 1
    with pytest.raises(ConfigError, match="all scores are equal"):
        audit_neighbours(*lists, embedder=points)
