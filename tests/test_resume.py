"""Killed at any moment, a run resumes: no charge beyond the plan, committed rounds kept, the end stays the end."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from hf_dpsynth.errors import PrivacyError, ResumeMismatch

ROOT = pathlib.Path(__file__).parents[1]
JOB = textwrap.dedent("""
    import json, os, sys
    from hf_dpsynth.privacy import ledger, selection, user_votes
    from hf_dpsynth import store
    from tests.stubs import StubEmbedder, StubGenerator, reviews, synth

    folder, limits = sys.argv[1], json.loads(sys.argv[2])

    def made(where, **more):
        if "users" not in where:
            return synth(**more)
        ds = reviews().add_column("user_id", [number % 7 for number in range(60)])
        return synth(ds, unit="user_id", **more)

    def once(limit, where):
        if os.fork() == 0:
            calls = 0
            generator, embedder = StubGenerator(), StubEmbedder()
            if where == "generator":
                generator.crash_after = limit
            elif where == "embedder":
                embedder.crash_after = limit
            else:
                owner, name = {
                    "charge": (ledger.Ledger, "charge"), "commit": (ledger.Ledger, "commit"),
                    "draw": (selection, "discrete_gaussian"), "draw of users": (user_votes, "discrete_gaussian"),
                    "write": (store.Store, "write_data"),
                    "finish": (ledger.Ledger, "finish"), "sync": (store, "_sync"),
                }[where]
                original = getattr(owner, name)
                def counted(*args, **more):
                    nonlocal calls
                    calls += 1
                    if calls > limit:
                        os._exit(41)
                    return original(*args, **more)
                setattr(owner, name, counted)
            out = made(where, out=folder, generator=generator, embedder=embedder)
            print("DONE", json.dumps([out["text"][:], out["label"][:], [c.key for c in out.privacy.charges],
                                      list(out.privacy.notes)]), flush=True)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.wait()[1])

    made(limits[0][1])  # imports and calibrates once, before the forks
    for limit, where in limits:
        print(once(limit, where), flush=True)
""")
KEYS = ["label-counts", "votes-001", "votes-002", "votes-003"]


def job(folder, limits):
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(folder), json.dumps(limits)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    codes = [int(line) for line in lines if not line.startswith("DONE")]
    return codes, [json.loads(line[5:]) for line in lines if line.startswith("DONE")]


@pytest.mark.parametrize(
    "where", ["generator", "embedder", "charge", "draw", "draw of users", "commit", "write", "finish", "sync"]
)
def test_killed_at_every_call_a_run_resumes_within_its_plan(tmp_path, where):
    limits = [(limit, where) for limit in range(12)] + [(10**6, where)] * 2
    codes, ends = job(tmp_path / "run", limits)
    assert 41 in codes and codes[-2:] == [0, 0]
    assert all(end == ends[0] for end in ends), "a call after the end changed rows or charges"
    rows, labels, keys, notes = ends[0]
    assert len(rows) == len(labels) == 12
    assert keys == KEYS, "every planned round was charged once, lost or not"
    lost = [note.split(" ")[0] for note in notes]
    assert set(lost) <= set(KEYS)
    if where in ("generator", "embedder", "charge", "write", "finish"):
        assert lost == [], "a stop outside of charge-draw-commit loses no round"


def test_a_lost_round_is_skipped_and_stated(tmp_path):
    codes, ends = job(tmp_path / "run", [(2, "commit"), (10**6, "commit")])
    assert codes == [41, 0]
    assert ends[0][3] == ["votes-002 was charged and lost when a process stopped; its round was skipped."]


def test_all_rounds_lost_still_ends_within_the_plan(tmp_path):
    _, ends = job(tmp_path / "run", [(0, "commit")] * 4 + [(10**6, "commit")])
    assert len(ends[-1][0]) == 12 and ends[-1][2] == KEYS and len(ends[-1][3]) == 4


PRIVATIZE = textwrap.dedent("""
    import os, sys
    from datasets import DatasetDict
    import hf_dpsynth
    from hf_dpsynth import errors, store
    from hf_dpsynth.privacy import ledger
    from tests.stubs import reviews, toy_vectors

    os.chdir(sys.argv[1])
    both, vectors = DatasetDict(train=reviews(20), test=reviews(6)), toy_vectors()
    budget = hf_dpsynth.PrivacyBudget("b.db", epsilon=100, delta=0, unit="word")

    def privatize():
        return both.privatize("madlib", epsilon=5, text_column="text", vectors=vectors, out="run", budget=budget)

    where, limit = sys.argv[2], int(sys.argv[3])
    owner, name = {"charge": (ledger.Ledger, "charge"), "commit": (ledger.Ledger, "commit"),
                   "write": (store.Store, "write_data"), "finish": (ledger.Ledger, "finish")}[where]
    if os.fork() == 0:
        original, calls = getattr(owner, name), 0
        def counted(*args, **more):
            global calls
            calls += 1
            if calls > limit:
                os._exit(41)
            return original(*args, **more)
        setattr(owner, name, counted)
        privatize()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 41
    ends = []
    for _ in range(2):
        try:
            out = privatize()
            ends.append([out["train"]["text"][:], out["test"]["text"][:], len(out.privacy.charges)])
        except errors.PrivacyError:
            ends.append("LOST")
    assert ends[0] == ends[1], "a call after the end changed"
    assert budget.spent() <= 10
    print("LOST" if isinstance(ends[0], str) else "DONE", budget.spent())
""")


@pytest.mark.parametrize(
    ("where", "limit", "end"),
    [
        ("charge", 0, "DONE 10.0"), ("charge", 1, "DONE 10.0"), ("commit", 0, "DONE 10.0"), ("commit", 1, "DONE 10.0"),
        ("finish", 0, "DONE 10.0"), ("write", 0, "LOST 5.0"), ("write", 1, "LOST 10.0"),
    ],
)  # fmt: skip
def test_a_killed_privatization_resumes_or_is_lost_and_settles_its_budget(tmp_path, where, limit, end):
    done = subprocess.run(
        [sys.executable, "-c", PRIVATIZE, str(tmp_path), where, str(limit)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == end


def test_deleted_rows_of_a_privatization_are_not_drawn_again(tmp_path):
    from tests.stubs import reviews, toy_vectors

    same = {"epsilon": 5, "text_column": "text", "vectors": toy_vectors(), "out": tmp_path / "run"}
    first = reviews(9).privatize("madlib", **same)
    assert reviews(9).privatize("madlib", **same)["text"][:] == first["text"][:]
    (tmp_path / "run" / "data" / "train-00000-of-00001.parquet").unlink()
    with pytest.raises(PrivacyError, match="are gone"):
        reviews(9).privatize("madlib", **same)


def test_another_kept_column_is_other_data(tmp_path):
    from tests.stubs import reviews, toy_vectors

    same = {"epsilon": 5, "text_column": "text", "vectors": toy_vectors(), "out": tmp_path / "run"}
    ds = reviews(9)
    ds.privatize("madlib", keep_columns="label", **same)
    other = ds.remove_columns("label").add_column("label", ["pos"] * 9)
    with pytest.raises(ResumeMismatch):
        other.privatize("madlib", keep_columns=["label"], **same)


BUDGETED = textwrap.dedent("""
    import os, sys
    import hf_dpsynth
    from hf_dpsynth import errors
    from hf_dpsynth.privacy import budget, ledger
    from tests.stubs import synth

    def run(folder):
        return synth(out=folder, budget=hf_dpsynth.PrivacyBudget("b.db", epsilon=4.5, delta=1e-4))

    os.chdir(sys.argv[1])
    synth()  # imports and calibrates once, before the forks
""")
RACE = BUDGETED + textwrap.dedent("""
    for number in range(4):
        if os.fork() == 0:
            try:
                run(f"run-{number}")
            except errors.BudgetExceeded:
                os._exit(3)
            os._exit(0)
    codes = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(4)]
    print(sorted(codes), hf_dpsynth.PrivacyBudget("b.db", epsilon=4.5, delta=1e-4).spent() <= 4.5)
""")
KILL = BUDGETED + textwrap.dedent("""
    for limit in range(40):
        if os.fork() == 0:
            calls = 0
            def counted(original):
                def call(*args, **more):
                    global calls
                    calls += 1
                    if calls > limit:
                        os._exit(41)
                    return original(*args, **more)
                return call
            for module in (ledger, budget):  # before each transaction, of the ledger and of the budget
                module.transaction = counted(module.transaction)
            out = run("run")
            os._exit(0 if len(out.privacy.charges) == 4 else 5)
        code = os.waitstatus_to_exitcode(os.wait()[1])
        assert code in (0, 41), code
        spent = hf_dpsynth.PrivacyBudget("b.db", epsilon=4.5, delta=1e-4).spent()
        assert spent <= 4.0, spent
    print(code, 3.9 < spent)
""")


@pytest.mark.parametrize(("script", "end"), [(RACE, "[0, 3, 3, 3] True"), (KILL, "0 True")])
def test_whole_runs_on_one_budget_never_overspend_when_they_race_or_are_killed(tmp_path, script, end):
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == end
