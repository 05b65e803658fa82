"""A budget across runs and processes: reserved before anything runs, never overspent, read without writing."""

import pathlib
import sqlite3
import textwrap
from contextlib import closing

import pytest
from dp_accounting import SelfComposedDpEvent

from hf_dpsynth.errors import BudgetExceeded, ConfigError
from hf_dpsynth.guarantees import ApproxDP
from hf_dpsynth.privacy.accounting import rdp_epsilon
from hf_dpsynth.privacy.budget import PrivacyBudget
from hf_dpsynth.privacy.ledger import Ledger
from hf_dpsynth.privacy.noise import DiscreteGaussianDpEvent
from hf_dpsynth.privacy.words import MultivariateLaplaceDpEvent
from tests.stubs import race

ROOT = pathlib.Path(__file__).parents[2]
RUN = SelfComposedDpEvent(DiscreteGaussianDpEvent(10.0), 10)
ALONE = rdp_epsilon(RUN, 1e-6)


def budget(epsilon=2.5 * ALONE, **more):
    return PrivacyBudget("b.db", **({"epsilon": epsilon, "delta": 1e-6} | more))


def test_runs_compose_and_the_one_that_does_not_fit_is_refused():
    purse = budget(1.5 * ALONE)  # two equal runs cost sqrt(2) and more
    purse.reserve("a", "aug-pe", RUN)
    assert purse.spent() == pytest.approx(ALONE)
    purse.reserve("b", "aug-pe", RUN)
    with pytest.raises(BudgetExceeded, match=r"b\.db"):
        purse.reserve("c", "aug-pe", RUN)
    assert purse.spent() == pytest.approx(rdp_epsilon(SelfComposedDpEvent(RUN, 2), 1e-6))


def test_a_reservation_is_kept_at_resume_and_settled_with_what_was_spent():
    purse = budget(1.1 * ALONE)
    for _ in range(2):
        purse.reserve("a", "aug-pe", RUN)
    with pytest.raises(ConfigError, match="another plan"):
        purse.reserve("a", "aug-pe", SelfComposedDpEvent(DiscreteGaussianDpEvent(10.0), 9))
    spent = SelfComposedDpEvent(DiscreteGaussianDpEvent(10.0), 2)
    purse.settle("a", spent)
    purse.settle("a", RUN)
    assert purse.spent() == pytest.approx(rdp_epsilon(spent, 1e-6))
    assert purse.remaining() == pytest.approx(purse.epsilon - purse.spent())


def test_spent_and_remaining_are_pure_reads():
    purse = budget()
    purse.reserve("a", "aug-pe", RUN)
    before = pathlib.Path("b.db").read_bytes()
    purse.spent(), purse.remaining()
    assert pathlib.Path("b.db").read_bytes() == before


def test_the_limits_are_fixed_when_the_file_is_made():
    budget()
    budget()
    for other in ({"epsilon": 9.0}, {"delta": 1e-5}, {"unit": "user"}, {"adjacency": "replace-one"}):
        with pytest.raises(ConfigError, match="fixed when it was made"):
            budget(**other)


@pytest.mark.parametrize(
    "limits",
    [
        {"epsilon": 0.0},
        {"epsilon": "x"},
        {"delta": None},
        {"epsilon": float("inf")},
        {"epsilon": float("nan")},
        {"delta": 0.0},
        {"delta": 1.0},
        {"unit": "user_id"},
        {"unit": None},
    ],
)
def test_limits_out_of_range_are_refused(limits):
    with pytest.raises(ConfigError):
        budget(**limits)


def test_a_run_of_another_kind_is_refused():
    purse = budget()
    purse.check(unit="record", adjacency="add-remove", delta=1e-6)
    purse.check(unit="record", adjacency="zero-out", delta=1e-6)
    for other in (
        {"unit": "user", "adjacency": "zero-out", "delta": 1e-6},
        {"unit": "record", "adjacency": "replace-one", "delta": 1e-6},
        {"unit": "record", "adjacency": "zero-out", "delta": 1e-5},
    ):
        with pytest.raises(ConfigError):
            purse.check(**other)


def test_a_run_per_record_does_not_enter_a_budget_per_user():
    purse = budget(unit="user")
    purse.check(unit="user", adjacency="zero-out", delta=1e-6)
    with pytest.raises(ConfigError, match="unit is 'record'"):
        purse.check(unit="record", adjacency="zero-out", delta=1e-6)


def test_a_budget_of_an_unknown_unit_names_the_known_ones_and_makes_no_file():
    with pytest.raises(ConfigError, match=r"unit is 'user_id'; it must be one of record, user, word"):
        budget(unit="user_id")
    assert not pathlib.Path("b.db").exists()


def test_a_budget_per_user_keeps_the_column_of_its_first_run():
    budget(unit="user").hold_column("user_id")
    for purse in (budget(unit="user"), PrivacyBudget.open("b.db")):
        purse.hold_column("user_id")
        with pytest.raises(ConfigError, match=r"'user_id'.*'house'.*a budget for each column"):
            purse.hold_column("house")


@pytest.mark.parametrize("opened", [lambda: PrivacyBudget.open("b.db"), lambda: budget(unit="user")])
def test_a_budget_made_before_columns_were_kept_opens_and_keeps_the_next_one(opened):
    purse = budget(unit="user")
    purse.reserve("a", "dp-lora", RUN)
    with closing(sqlite3.connect("b.db")) as database:
        database.execute("DROP TABLE IF EXISTS unit_column")
        database.commit()
    again = opened()
    assert again.spent() == pytest.approx(ALONE)
    again.hold_column("user_id")
    again.reserve("b", "dp-lora", RUN)
    with pytest.raises(ConfigError, match="'user_id'"):
        again.hold_column("house")


def test_a_zero_out_run_does_not_enter_an_add_remove_budget():
    with pytest.raises(ConfigError):
        budget(adjacency="add-remove").check(unit="record", adjacency="zero-out", delta=1e-6)


def test_a_metric_budget_adds_scales():
    purse = PrivacyBudget("m.db", epsilon=10.0, delta=0.0, unit="word")
    purse.check(unit="word", adjacency="replace-one", delta=None)
    purse.reserve("a", "madlib", MultivariateLaplaceDpEvent(6.0))
    with pytest.raises(BudgetExceeded):
        purse.reserve("b", "madlib", MultivariateLaplaceDpEvent(4.5))
    purse.reserve("b", "madlib", MultivariateLaplaceDpEvent(4.0))
    assert (purse.spent(), purse.remaining()) == (10.0, 0.0)


def test_scales_over_other_vectors_do_not_add_up():
    purse = PrivacyBudget("m.db", epsilon=10.0, delta=0.0, unit="word")
    purse.reserve("a", "madlib", MultivariateLaplaceDpEvent(1.0), metric="glove-50d")
    with pytest.raises(ConfigError, match="glove-50d"):
        purse.reserve("b", "madlib", MultivariateLaplaceDpEvent(1.0), metric="mine@1")


def test_a_budget_that_vanished_does_not_start_anew():
    purse = budget()
    purse.reserve("a", "aug-pe", RUN)
    pathlib.Path("b.db").unlink()
    for call in (purse.spent, lambda: purse.reserve("b", "aug-pe", RUN), lambda: purse.settle("a", RUN)):
        with pytest.raises(ConfigError, match="Put it back"):
            call()
    assert not pathlib.Path("b.db").exists()


def test_the_ledger_of_a_run_is_no_budget():
    ledger = Ledger(pathlib.Path("l.db"), allowance=RUN, guarantee=ApproxDP(epsilon=1, delta=1e-6), pins={})
    ledger.close()
    before = pathlib.Path("l.db").read_bytes()
    with pytest.raises(ConfigError, match="not a budget"):
        PrivacyBudget("l.db", epsilon=1, delta=1e-6)
    assert pathlib.Path("l.db").read_bytes() == before


def test_a_file_that_is_no_budget_is_refused():
    pathlib.Path("b.db").write_text("no database at all " * 99)
    with pytest.raises(ConfigError, match="not a budget"):
        budget()


def test_a_budget_opens_with_the_limits_it_was_made_with_and_lists_its_runs():
    purse = budget(unit="user", adjacency="replace-one")
    purse.reserve("a", "aug-pe", RUN)
    purse.settle("a", RUN.event)
    purse.reserve("b", "aug-pe", RUN)
    before = pathlib.Path("b.db").read_bytes()
    again = PrivacyBudget.open("b.db")
    limits = [(one.epsilon, one.delta, one.unit, one.adjacency) for one in (purse, again)]
    assert limits[0] == limits[1] and again.spent() == purse.spent()
    assert [run[:2] for run in again.runs()] == [("aug-pe", "settled"), ("aug-pe", "reserved")]
    assert again.runs()[1][3] == RUN and len(again.runs()[0][2]) == len("2026-01-01")
    assert pathlib.Path("b.db").read_bytes() == before


@pytest.mark.parametrize("content", [None, b"", b"no database at all " * 99])
def test_only_a_budget_opens_and_nothing_is_made(content):
    path = pathlib.Path("other.db")
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"other\.db"):
        PrivacyBudget.open(path)
    assert path.exists() == (content is not None) and (content is None or path.read_bytes() == content)


RACER = textwrap.dedent("""
    import os, sys
    from hf_dpsynth.errors import BudgetExceeded
    from hf_dpsynth.privacy.budget import PrivacyBudget
    from tests.privacy.test_budget import ALONE, RUN
    purse, won = PrivacyBudget(sys.argv[1], epsilon=2.5 * ALONE, delta=1e-6), 0
    for number in range(4):
        try:
            purse.reserve(f"{os.getpid()}-{number}", "aug-pe", RUN)
            won += 1
        except BudgetExceeded:
            pass
    print(won)
""")


def test_concurrent_processes_cannot_overspend(tmp_path):
    path = tmp_path / "b.db"
    won = race(RACER, path)
    purse = PrivacyBudget(path, epsilon=2.5 * ALONE, delta=1e-6)
    assert 1 <= won < 12
    assert purse.spent() == pytest.approx(rdp_epsilon(SelfComposedDpEvent(RUN, won), 1e-6))
    assert purse.spent() <= purse.epsilon < rdp_epsilon(SelfComposedDpEvent(RUN, won + 1), 1e-6)
