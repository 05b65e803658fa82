"""Charge, draw, commit: killed at every statement, charges never exceed the plan and no value is drawn twice."""

import os
import pathlib
import pickle
import subprocess
import sys
import textwrap

import pytest
from dp_accounting import SelfComposedDpEvent

from hf_dpsynth.errors import BudgetExceeded, PrivacyError, ResumeMismatch
from hf_dpsynth.guarantees import ApproxDP
from hf_dpsynth.privacy.accounting import epsilon, leaves
from hf_dpsynth.privacy.ledger import Ledger
from hf_dpsynth.privacy.noise import DiscreteGaussianDpEvent
from tests.stubs import race

ROOT = pathlib.Path(__file__).parents[2]
VOTE = DiscreteGaussianDpEvent(3.0)
PLAN = SelfComposedDpEvent(VOTE, 3)
PINS = {"plan": "p", "data": "d"}


def ledger(path=None, allowance=PLAN, pins=PINS):
    return Ledger(path, allowance=allowance, guarantee=ApproxDP(epsilon=4.0, delta=1e-5), pins=pins)


def test_a_release_is_charged_before_it_is_drawn_and_committed_after():
    book, seen = ledger(), []

    def draw():
        seen.append([(charge.key, charge.event) for charge in book.charges()])
        assert book.lost == ("votes-001",)
        return [1, 2]

    assert book.release("votes-001", VOTE, draw) == [1, 2]
    assert seen == [[("votes-001", VOTE)]]
    assert book.lost == ()


def test_a_committed_release_is_returned_for_free_and_never_drawn_again():
    book = ledger()
    first = book.release("votes-001", VOTE, lambda: [7], about={"population": "x"})
    again = book.release("votes-001", VOTE, lambda: pytest.fail("drawn twice"), about={"population": "x"})
    assert first == again == [7]
    assert len(book.charges()) == 1


def test_a_draw_that_fails_costs_its_charge_and_is_lost():
    book = ledger()
    with pytest.raises(ZeroDivisionError):
        book.release("votes-001", VOTE, lambda: 1 / 0)
    assert book.release("votes-001", VOTE, lambda: pytest.fail("drawn after it was lost")) is None
    assert book.lost == ("votes-001",)
    assert len(book.charges()) == 1


@pytest.mark.parametrize(("event", "about"), [(DiscreteGaussianDpEvent(4.0), {"a": 1}), (VOTE, {"a": 2})])
def test_another_event_or_population_under_a_committed_key_is_refused(event, about):
    book = ledger()
    book.release("votes-001", VOTE, lambda: [7], about={"a": 1})
    with pytest.raises(ResumeMismatch):
        book.release("votes-001", event, lambda: [8], about=about)


def test_nothing_beyond_the_plan_is_charged_or_drawn():
    book = ledger()
    for number in range(3):
        book.release(f"votes-{number}", VOTE, lambda: [0])
    with pytest.raises(BudgetExceeded, match="votes-3"):
        book.release("votes-3", VOTE, lambda: pytest.fail("drawn without a charge"))
    assert len(book.charges()) == 3


@pytest.mark.parametrize("event", [DiscreteGaussianDpEvent(2.9), DiscreteGaussianDpEvent(3.0, (1, 1))])
def test_an_event_outside_the_plan_is_refused(event):
    with pytest.raises(BudgetExceeded):
        ledger().charge("votes-001", event)


def test_steps_are_spent_in_one_charge():
    book = ledger()
    book.steps("sgd-0", VOTE, 2)
    with pytest.raises(BudgetExceeded):
        book.steps("sgd-1", VOTE, 2)
    book.steps("sgd-1", VOTE, 1)
    assert leaves(book.spent()) == leaves(PLAN)
    assert epsilon(book.spent(), 1e-5) == epsilon(PLAN, 1e-5)


def test_a_key_is_charged_once_and_a_finished_run_spends_nothing():
    book = ledger()
    book.charge("a", VOTE)
    with pytest.raises(PrivacyError, match="charged before"):
        book.charge("a", VOTE)
    with pytest.raises(PrivacyError, match="not charged"):
        book.commit("b", 1)
    book.commit("a", 1)
    with pytest.raises(PrivacyError, match="committed already"):
        book.commit("a", 2)
    book.finish()
    with pytest.raises(PrivacyError, match="finished"):
        book.charge("b", VOTE)


@pytest.mark.parametrize("pins", [{"plan": "other", "data": "d"}, {"plan": "p", "data": "other"}])
def test_another_plan_or_other_data_is_refused(tmp_path, pins):
    ledger(tmp_path / "l.db").close()
    with pytest.raises(ResumeMismatch):
        ledger(tmp_path / "l.db", pins=pins)


def test_a_ledger_of_a_newer_version_is_refused(tmp_path):
    ledger(tmp_path / "l.db", pins={**PINS}).close()
    import sqlite3

    with sqlite3.connect(tmp_path / "l.db") as database:
        database.execute("UPDATE meta SET value = '99' WHERE name = 'version'")
    database.close()
    with pytest.raises(ResumeMismatch, match="version"):
        ledger(tmp_path / "l.db")


def test_a_file_that_is_no_ledger_is_refused(tmp_path):
    (tmp_path / "l.db").write_text("this is no database, it only lies where one is expected" * 99)
    with pytest.raises(ResumeMismatch, match="not a ledger"):
        ledger(tmp_path / "l.db")


def test_the_ledger_cannot_be_pickled_into_a_worker():
    with pytest.raises(TypeError):
        pickle.dumps(ledger())


KILLED = textwrap.dedent("""
    import os, sys
    from tests.privacy.test_ledger import PLAN, VOTE, ledger

    def run(path, last):
        book, seen = ledger(path), 0
        def trace(sql):
            nonlocal seen
            seen += 1
            if seen > last:
                os._exit(41)
        book._database.set_trace_callback(trace)
        for number in range(3):
            book.release(f"votes-{number}", VOTE, lambda: [os.getpid()])
        book.finish()
        return seen

    statements = run(None, 10**6)
    for last in range(statements):
        if os.fork() == 0:
            run(f"{sys.argv[1]}/{last}.db", last)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 41, last
    print(statements)
""")


def test_killed_at_every_statement_the_charges_never_exceed_the_plan(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    statements = int(done.stdout)
    assert statements >= 20
    lost = 0
    for last in range(statements):
        values = None
        for attempt in range(2):
            book = ledger(tmp_path / f"{last}.db")
            got = {f"votes-{n}": book.release(f"votes-{n}", VOTE, lambda a=attempt: [a]) for n in range(3)}
            assert leaves(book.spent())[VOTE] <= 3
            assert values in (None, got), "a value changed after it was committed"
            assert set(book.lost) == {key for key, value in got.items() if value is None}
            values = got
            lost += bool(book.lost) and attempt == 0
            book.close()
    assert 0 < lost < statements, "some kills fall between charge and commit, others do not"


RACER = textwrap.dedent("""
    import json, os, sys
    from hf_dpsynth.errors import BudgetExceeded
    from tests.privacy.test_ledger import VOTE, ledger
    book, won = ledger(sys.argv[1]), 0
    for number in range(4):
        try:
            book.charge(f"{os.getpid()}-{number}", VOTE)
            won += 1
        except BudgetExceeded:
            pass
    print(json.dumps(won))
""")


def test_concurrent_processes_never_charge_more_than_the_plan(tmp_path):
    path = tmp_path / "l.db"
    ledger(path).close()
    won = race(RACER, path)
    book = ledger(path)
    assert won == len(book.charges()) == 3
    book.close()
    assert not os.path.exists(f"{path}-journal")
