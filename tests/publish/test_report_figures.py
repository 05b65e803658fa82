"""The numbers behind the pages: losses, shares, cells, n-grams and the plane of embeddings."""

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hf_dpsynth
from hf_dpsynth.downstream.table import Row, Study
from hf_dpsynth.privacy.accounting import epsilon
from hf_dpsynth.publish.report import charts, comparisons, facts, private, texts
from hf_dpsynth.publish.report.budget import spending
from hf_dpsynth.publish.report.facts import Share
from hf_dpsynth.publish.report.numerals import loss, percent
from hf_dpsynth.publish.report.page import public_page
from tests.publish import golden
from tests.stubs import synth

LENGTHS = st.lists(st.integers(0, 10**9), min_size=1, max_size=30)


@given(st.floats(1e-12, 1e12))
def test_a_loss_is_never_shown_below_itself(value):
    assert value <= float(loss(value)) <= value * 1.002


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_a_share_is_shown_as_all_or_nothing_only_where_it_is(part, whole):
    part = min(part, whole)
    assert (percent(part / whole) == "100 %") == (part == whole)
    assert (percent(part / whole) == "0 %") == (part == 0)


@given(LENGTHS, LENGTHS)
def test_cells_hold_every_length_and_are_few_and_equal(first, second):
    edges = charts.cells(first, second)
    assert len(edges) <= 25 and len(set(np.diff(edges))) == 1
    for values in (first, second):
        assert np.histogram(values, edges)[0].sum() == len(values)


def test_the_budget_by_charge_is_that_of_the_accountant():
    release = synth(params={"iterations": 3, "variations": 2}).privacy
    rows, plan = spending(release), release.plan
    assert [row.name for row in rows] == [charge.key for charge in release.charges]
    totals = [row.total for row in rows]
    assert totals == sorted(totals) and totals[0] == rows[0].own
    assert totals[-1] <= plan.guarantee.epsilon < sum(row.own for row in rows)
    whole = epsilon(plan.event, plan.delta, adjacency=plan.adjacency, discretisation=plan.discretisation)
    assert totals[-1] == pytest.approx(whole)


def test_a_lost_charge_is_called_lost():
    release = golden.releases()["aug-pe-zero-out-own-embedder"]
    charges = tuple(row._replace(key=key) for row in release.charges[-1:] for key in ("votes-001", "votes-002"))
    rows = spending(hf_dpsynth.release.replace(release, charges=charges))
    assert [row.num_lost for row in rows] == [0, 1]


def test_many_charges_are_taken_together_without_losing_one():
    release = golden.releases()["aug-pe-add-remove"]
    leaf = release.charges[-1]
    charges = tuple(leaf._replace(key=f"step-{at:03d}") for at in range(95))
    rows = spending(hf_dpsynth.release.replace(release, charges=charges))
    assert len(rows) <= 20 and rows[0].name == "step-000 to step-004" and rows[-1].name.endswith("step-094")
    assert sum(int(row.reads.split(" x ")[0]) for row in rows) == 95 == sum(row.count for row in rows)


@pytest.mark.parametrize("number", [3, 25])
def test_the_page_states_the_number_of_charges_and_not_of_its_bars(number):
    release = golden.releases()["aug-pe-zero-out-own-embedder"]
    keys = ["votes-002", *(f"step-{at:03d}" for at in range(number - 1))]
    charges = tuple(release.charges[-1]._replace(key=key) for key in keys)
    shown = facts.public_facts(hf_dpsynth.release.replace(release, charges=charges), [], num_samples=0, seed=0)
    figure = charts.budget(shown, 100.0)
    assert figure.alt.startswith(f"{number} charges")
    assert f'<dd class="big">{number}<small>of the ledger' in public_page(shown, {"budget": figure})
    drawn = base64.b64decode(figure.light.split(",")[1]).decode()
    grouped = number > 20
    assert ("these charges alone" in drawn, "this charge alone" in drawn) == (grouped, not grouped)
    states = [row[3] for row in figure.table.rows]
    assert states[0] == ("1 of 2 lost" if grouped else "lost") + ", and spent all the same"
    assert set(states[1:]) == {"released"} and ("up to 2 in a row" in figure.table.caption) == grouped


def test_a_delta_has_the_same_digits_in_the_words_of_a_figure_as_on_the_page():
    made = synth(delta=1.23449e-6).privacy
    shown = facts.public_facts(made, [], num_samples=0, seed=0)
    assert "at delta = 1.23449e-06; the claim is 4." in charts.budget(shown, 4.0).alt
    assert ">1.23449e-06</dd>" in public_page(shown, {})


def test_rows_that_are_a_real_text_are_counted_and_blank_ones_are_not():
    assert private.verbatim(["a b", " a b ", "c", "", " "], ["a b", "", "d"]) == 2


def test_ngrams_that_part_the_sets_come_first():
    terms = private.divergent(["good film"] * 5 + ["odd"], ["bad film"] * 5, 1)
    assert [term.text for term in terms] == ["good", "odd", "bad", "film"]
    assert private.divergent(["a"], ["a b"], 2) == () == private.divergent([], ["a"], 1)


def test_the_plane_keeps_the_distances_of_flat_data_and_draws_a_bounded_number():
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(2200, 2)) @ np.linalg.qr(rng.normal(size=(8, 2)))[0].T
    ours, theirs, explained = private.plane(flat[:40], flat[40:], seed=0)
    assert len(ours) == 40 and len(theirs) == 1000 and explained == pytest.approx(1)
    assert np.linalg.norm(ours[0] - ours[1]) == pytest.approx(np.linalg.norm(flat[0] - flat[1]))
    ours, _, explained = private.plane(np.ones((1, 1)), np.ones((2, 1)), seed=0)
    assert ours.tolist() == [[0, 0]] and explained == 1


def test_scores_are_told_from_floors_counts_and_real_sides():
    result = {
        "prdc": 0.5, "precision": 0.6, "prdc_floor": 0.9, "precision_floor": 0.8, "prdc_interval": (0.4, 0.6),
        "references_bleu": 3.0, "bleu": 2.0, "vendi": 2.0, "references_vendi": 4.0,
        "num_rows": 9, "floor_num_rows": 8, "num_tokens": 7, "limits": [], "note": "x",
        "uses_private_data": True,
    }  # fmt: skip
    found = private.scores({"prdc": result})
    assert [(score.name, score.value, score.floor) for score in found] == [
        ("prdc", 0.5, 0.9), ("precision", 0.6, 0.8), ("bleu", 2.0, 3.0),
        ("vendi", 2.0, 4.0),
    ]  # fmt: skip
    assert (
        found[0].interval == (0.4, 0.6)
        and found[0].rows == 9
        and [score.main for score in found] == [True, False, False, False]
    )
    assert [score.direction for score in found] == ["higher", "—", "—", "—"]
    assert private.scores({"nobody's": {"nobody's": 1}})[0].direction == "—"


def test_a_score_that_is_not_finite_stands_in_the_table_and_in_no_picture():
    found = private.scores({"fid": {"fid": float("nan"), "fid_floor": 0.1}, "mauve": {"mauve": float("inf")}})
    assert "not a number" in str(comparisons.scores_table(found))
    assert not any(map(comparisons._is_finite, found))


def test_a_metric_without_a_figure_says_why():
    results = {"vendi": {"error": "too few", "uses_private_data": True}, "fid": {"fid": 1.0, "limits": ["coarse"]}}
    assert private.sentences(results) == ("vendi: not computed. too few", "fid: coarse")
    assert [score.name for score in private.scores(results)] == ["fid"]


def test_a_study_becomes_a_table_and_a_picture_and_notes():
    rows = (
        Row(source="real", model="cnn", amount=1.0, accuracy=0.8, interval=(0.7, 0.9), by_group={"a": 0.5}),
        Row(source="ours", model="cnn", amount=0.5, accuracy=0.6, limits=("few rows",)),
        Row(source="ours", model="none", limits=("not run",)),
    )
    study = Study(rows=rows, classes=("x", "y"), num_test=1234, majority=0.5, confidence=0.95, notes=("noted",))
    flat = private.study_rows(study)
    assert flat[0]["by_group: a"] == 0.5 and not {"limits", "spread", "gap"} & set(flat[0])
    assert private.study_notes(study) == (
        "1,234 real test rows; always naming one class is right for 50.0%", "noted", "few rows", "not run",
    )  # fmt: skip
    figure = comparisons.study([row for row in flat if isinstance(row["accuracy"], float)])
    assert "real, cnn, 1x 80 %; ours, cnn, 0.5x 60 %." in figure.alt and len(figure.table.rows) == 2


def test_many_labels_are_drawn_as_the_largest_and_the_rest():
    shares = [Share(f"label-{at}", at, None) for at in range(30)]
    figure = charts.labels(shares)
    assert len(figure.table.rows) == 30 and "label-29 6.7 %" in figure.alt and "18 more" in figure.alt


def test_ngrams_of_many_rows_are_those_of_a_public_choice(monkeypatch):
    monkeypatch.setattr(facts, "_MOST_TEXTS", 5)
    release = golden.releases()["aug-pe-add-remove"]
    rows = [facts.Row(f"{at} same", "positive") for at in range(40)]
    found, again = (facts.public_facts(release, rows, num_samples=3, seed=4) for _ in range(2))
    assert found == again and found.distinct[0] == 0.6 and "of 5 rows, by a public choice" in " ".join(found.limits)
    assert [share.rows for share in found.labels] == [0, 40] and len(found.samples) == 3


def test_long_text_is_cut_and_says_so():
    shown = texts.cut("x" * 5000)
    assert len(shown) < 700 and "5,000 characters in all" in shown and texts.cut("x") == "x"
