"""`aug-pe` in several real processes: shares of texts, vectors and votes, one noise, one ledger, one release."""

import json
import pathlib
import sqlite3
from collections import Counter

import pytest

import hf_dpsynth
from hf_dpsynth.mechanisms.evolution import aug_pe, population
from hf_dpsynth.privacy.accounting import leaves
from tests.launch import torchrun, unwatched
from tests.mechanisms import evolving_ranks
from tests.stubs import CANARY, files_with

pytest.importorskip("torch")
SCENES = "whole lookahead votes one_record other_seed count_fails store_fails resumed".split()
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("evolving")


@pytest.fixture(scope="module")
def played(folder):
    torchrun(folder, "tests.mechanisms.evolving_ranks", *SCENES)
    first, second = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(2))
    return {name: (first[name], second[name]) for name in SCENES}


@pytest.fixture
def scenes(folder, played, monkeypatch):
    """What both processes found; the test stands in their folder."""
    monkeypatch.chdir(folder)
    return played


def charged(run):
    with sqlite3.connect(f"file:{run}/ledger.db?mode=ro", uri=True) as database:
        return dict(database.execute("SELECT key, state FROM charges"))


def spent_as_planned(made):
    spent = sum((leaves(charge.event) for charge in made.privacy.charges), Counter())
    return spent == leaves(made.privacy.plan.event)


def test_both_processes_get_the_same_rows_and_release(scenes):
    for name in ("whole", "lookahead", "one_record", "resumed"):
        first, second = scenes[name]
        assert first == second and len(first["rows"]["text"]) == 24, name


def test_the_first_process_alone_writes_and_charges_what_was_planned(scenes):
    whole = scenes["whole"][0]
    assert list(charged("whole-0")) == whole["charges"] == ["label-counts", *(f"votes-00{n}" for n in (1, 2, 3))]
    release = hf_dpsynth.load_privacy("whole-0")
    assert release.guarantee_id == whole["id"] and hf_dpsynth.verify("whole-0").ok
    facts = json.loads(pathlib.Path("whole-0/privacy.json").read_text())
    assert any("it is not encrypted" in item for item in facts["scope"]["not_covered"])
    assert list(pathlib.Path().glob("whole-1*")) == [] and files_with("whole-0", CANARY) == []


def test_votes_and_texts_of_two_processes_are_those_of_one(scenes, monkeypatch):
    first, second = scenes["votes"]
    monkeypatch.setattr(population, "BLOCK", 4)
    monkeypatch.setattr(aug_pe, "noisy_counts", aug_pe.noisy_counts)
    alone = evolving_ranks.scene_votes()
    assert first["seen"] == alone["seen"] and len(alone["seen"]) == 3 and second["seen"] == []
    assert sum(sum(part) for part in first["seen"][0]) == 60, "each record votes once"
    assert first["rows"] == alone["rows"]
    assert first["private"] == second["private"] == 30 and alone["private"] == 60
    assert first["asked"] == second["asked"] == alone["asked"] / 2 == 30


def test_other_arguments_are_refused_by_all_before_anything_is_charged(scenes):
    for found in scenes["other_seed"]:
        assert found["error"] == "ConfigError" and "differ in seed" in found["text"]
    assert not pathlib.Path("other").exists()


def test_an_error_of_one_process_is_an_error_of_all_without_a_strangers_words(scenes):
    first, second = scenes["count_fails"]
    assert second["error"] == "ValueError" and CANARY in second["text"]
    assert first["error"] == "HfDpsynthError" and CANARY not in first["text"] and "ValueError" in first["text"]
    first, second = scenes["store_fails"]
    assert first == {"error": "ConfigError", "text": "the disk is full"}
    assert second == {"error": "ConfigError", "text": "the disk is full (process 0 of 2)"}


def test_two_processes_resume_a_run_and_the_round_that_failed_stays_charged(scenes):
    resumed = scenes["resumed"][0]
    assert "votes-002 was charged and lost" in resumed["statement"]
    assert charged("count") == {
        "label-counts": "committed", "votes-001": "committed", "votes-002": "charged", "votes-003": "committed",
    }  # fmt: skip
    assert hf_dpsynth.verify("count").ok


@pytest.mark.parametrize(("scene", "run", "dead"), [("killed", "killed", 1), ("killed_leader", "leader", 0)])
def test_a_killed_process_ends_the_other_and_one_process_finishes_the_run(folder, monkeypatch, scene, run, dead):
    codes = unwatched(folder, "tests.mechanisms.evolving_ranks", scene)
    assert codes[dead][0] == -9 and codes[1 - dead][0] == 0, codes
    monkeypatch.chdir(folder)
    found = json.loads(pathlib.Path(f"{1 - dead}.json").read_text())[scene]
    assert found["error"] == "HfDpsynthError" and "another process of this run stopped" in found["text"]
    assert charged(run)["votes-002"] == "charged"
    monkeypatch.setattr(population, "BLOCK", 4)
    made = evolving_ranks.evolve(run)
    assert "votes-002 was charged and lost" in made.privacy.statement() and len(made) == 24
    assert spent_as_planned(made) and hf_dpsynth.verify(run).ok
