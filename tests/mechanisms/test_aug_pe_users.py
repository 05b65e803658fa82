"""aug-pe that protects users: the public call, its plan, its guarantee, its files and what is refused."""

import json
import math
import pathlib
from dataclasses import replace

import numpy as np
import pytest

import hf_dpsynth
from hf_dpsynth.errors import ConfigError, ResumeMismatch
from hf_dpsynth.mechanisms.evolution import aug_pe
from hf_dpsynth.privacy import accounting, user_votes
from hf_dpsynth.privacy.budget import PrivacyBudget
from hf_dpsynth.privacy.user_votes import ClippedSumDpEvent
from tests.stubs import CANARY, StubEmbedder, files_with, reviews, synth

KEYS = ["label-counts", "votes-001", "votes-002", "votes-003"]


def owned(users=12, n=120):
    return reviews(n).add_column("user_id", [f"zquser{number % users}" for number in range(n)])


def by_user(ds=None, **more):
    return synth(owned() if ds is None else ds, **{"unit": "user_id", "delta": 1e-3} | more)


def test_the_guarantee_is_of_users_and_every_file_says_so():
    out = by_user(out="run")
    release, plan = out.privacy, out.privacy.plan
    assert (release.guarantee.unit, plan.unit_column, plan.account) == ("user", "user_id", "zcdp")
    statement = release.statement()
    assert "(4, 0.001)-differentially private per user under add-remove adjacency" in statement
    assert "the column 'user_id'" in statement and "one vector of norm at most 1" in statement
    assert "per record" not in statement and set(out.column_names) == {"text", "label"}
    assert [charge.key for charge in release.charges] == KEYS
    facts = json.loads(pathlib.Path("run/privacy.json").read_text())
    unit = facts["privacy_unit"]
    assert (unit["level"], unit["column"], facts["source"]["n_units"]) == ("user", "user_id", None)
    assert "scaled to norm 1" in unit["contribution_bounding"]
    assert all("a user moves" in access for access in facts["scope"]["data_accesses_covered"])
    assert "per record" not in release.card() and "user_id" in release.card()
    assert files_with("run", "zquser") == [] and files_with("run", CANARY) == []


def test_verify_recomputes_the_cost_and_finds_a_norm_that_is_too_small():
    by_user(out="run", adjacency="replace-one", params={"iterations": 1, "variations": 2})
    assert hf_dpsynth.verify("run").ok
    path = pathlib.Path("run/privacy.json")
    for norm in (1.0, 1.2):
        facts = json.loads(path.read_text())
        votes = facts["accounting"]["events"]["events"][0]
        votes.get("event", votes)["norm"] = norm.hex()
        pathlib.Path("other").mkdir(exist_ok=True)
        pathlib.Path("other/privacy.json").write_text(json.dumps(facts))
        found = hf_dpsynth.verify("other")
        assert not found.ok and any("too little" in sentence for sentence in found.findings)


@pytest.mark.parametrize("labels", [None, ["a", "b"]])
@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace-one"])
def test_a_plan_spends_its_epsilon_and_never_more(labels, adjacency):
    plan = hf_dpsynth.plan(
        "aug-pe", epsilon=1.0, delta=1e-6, num_rows=50, unit="user_id", labels=labels, adjacency=adjacency
    )
    kinds = set(accounting.leaves(plan.event))
    assert all(isinstance(leaf, ClippedSumDpEvent) for leaf in kinds) and len(kinds) == 1 + (labels is not None)
    assert {leaf.norm for leaf in kinds} == {math.sqrt(2) if adjacency == "replace-one" else 1.0}
    assert 0.999 < accounting.rdp_epsilon(plan.event, 1e-6, adjacency=adjacency) <= 1.0
    records = hf_dpsynth.plan("aug-pe", epsilon=1.0, delta=1e-6, num_rows=50, labels=labels, adjacency=adjacency)
    assert records.noise_multiplier < plan.noise_multiplier < 1.1 * records.noise_multiplier


def votes_of(ds, monkeypatch, **more):
    """The clean sums of every release of a run without noise, in the order of the releases."""
    seen = []

    def noisy(steps, sigma, grid=user_votes.GRID):
        seen.append(steps)
        return steps / grid

    monkeypatch.setattr(user_votes, "noisy_steps", noisy)
    by_user(ds, **{"epsilon": math.inf, "delta": None, "params": {"iterations": 1, "variations": 2}} | more)
    return seen


def test_a_user_more_moves_each_release_of_a_run_by_at_most_one(monkeypatch):
    ds = owned()
    shares = {"label_proportions": {"neg": 0.5, "pos": 0.5}}
    without = votes_of(ds.filter(lambda row: row["user_id"] != "zquser3"), monkeypatch, **shares)
    moved = votes_of(ds, monkeypatch, **shares)[0] - without[0]
    assert 0.9 * user_votes.GRID < np.linalg.norm(moved) <= user_votes.GRID
    counts, _ = votes_of(ds, monkeypatch)
    assert counts.tolist() == [6 * user_votes.GRID] * 2, "each of twelve users has ten records of one label"


def test_rows_without_a_user_and_vectors_that_are_not_finite_cast_no_vote(monkeypatch):
    class Broken(StubEmbedder):
        def embed(self, texts):
            rows = super().embed(texts)
            rows[[f"{CANARY}3" in text.split() for text in texts]] = np.nan
            return rows

    ds = reviews(40).add_column("user_id", [None if number == 5 else f"u{number}" for number in range(40)])
    counts, votes = votes_of(ds, monkeypatch, embedder=Broken())
    assert counts.sum() == 39 * user_votes.GRID and votes.sum() == 38 * user_votes.GRID


def test_without_noise_a_run_of_single_records_makes_the_rows_that_records_make():
    ds = reviews(60).add_column("user_id", [str(number) for number in range(60)])
    settings = {"epsilon": math.inf, "delta": None}
    assert by_user(ds, **settings)["text"][:] == synth(reviews(60), **settings)["text"][:]


def test_a_run_that_stopped_in_a_vote_resumes_without_a_second_charge(monkeypatch):
    real, calls = aug_pe.noisy_user_votes, []

    def stopping(*args):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(aug_pe, "noisy_user_votes", stopping)
    with pytest.raises(KeyboardInterrupt):
        by_user(out="run")
    out = by_user(out="run")
    keys = [charge.key for charge in out.privacy.charges]
    assert len(keys) == len(set(keys)) and set(keys) <= set(KEYS)
    assert any("votes-002" in note for note in out.privacy.notes), "the round was charged and is lost"
    again = by_user(out="run")
    assert again["text"][:] == out["text"][:] and again.privacy.charges == out.privacy.charges
    with pytest.raises(ResumeMismatch):
        by_user(owned(users=11), out="run")


def test_a_release_of_records_cannot_claim_users_nor_the_other_way_round():
    synth(out="record")
    by_user(out="user")
    for held, other in (("record", "user"), ("user", "record")):
        path = pathlib.Path(held, "privacy.json")
        facts = json.loads(path.read_text())
        facts["privacy_unit"] |= {"level": other, "description": f"one {other}"}
        path.write_text(json.dumps(facts))
        assert any("accounting.events: not those of aug-pe" in line for line in hf_dpsynth.verify(held).findings)


def test_budgets_of_users_and_records_do_not_mix():
    users = PrivacyBudget("u.db", epsilon=5.0, delta=1e-3, unit="user", adjacency="add-remove")
    by_user(budget=users, epsilon=2.0)
    assert 0 < users.spent() <= 2.0 + 1e-9
    with pytest.raises(ConfigError, match="unit is 'record', the budget's is 'user'"):
        synth(budget=users, delta=1e-3)
    records = PrivacyBudget("r.db", epsilon=5.0, delta=1e-3, adjacency="add-remove")
    with pytest.raises(ConfigError, match="unit is 'user', the budget's is 'record'"):
        by_user(budget=records)


def test_what_would_publish_the_number_of_users_is_asked_for():
    with pytest.raises(ConfigError, match="num_rows= must be given with a user unit"):
        by_user(num_rows=None)
    plan = hf_dpsynth.plan("aug-pe", epsilon=1.0, num_records=20_000, num_rows=50, unit="user_id")
    assert (plan.num_records, plan.adjacency, plan.delta) == (20_000, "zero-out", 1e-6)
    assert "the number of users is public" in plan.guarantee.statement()


def test_the_warning_speaks_of_users():
    plan = hf_dpsynth.plan("aug-pe", epsilon=1.0, delta=1e-6, num_records=2000, num_rows=1000, unit="user_id")
    assert any("users" in warning and "records" not in warning for warning in plan.warnings)
    assert replace(plan) == plan
