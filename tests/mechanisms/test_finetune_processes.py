"""DP fine-tuning in several real processes: shards, one noise, one ledger, errors of one that end all."""

import json
import pathlib
import shutil
import sqlite3
import time
from collections import Counter

import numpy as np
import pytest

import hf_dpsynth
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.finetune.generation import TunedModel
from hf_dpsynth.mechanisms.finetune.tuning import DPLora
from hf_dpsynth.privacy.accounting import leaves
from hf_dpsynth.run import devices
from tests.launch import torchrun, unwatched
from tests.mechanisms import tiny
from tests.stubs import CANARY, files_with, reviews

pytest.importorskip("torch")
pytest.importorskip("peft")
SCENES = (
    "one_update draws noise whole in_memory shuffled other_plan other_data other_order engine_fails step_fails "
    "resumed first_fails gives_up wrong_argument failed_sums everything command_line unmet"
).split()
TEMPLATE = (
    "{% for m in messages %}{{ ('<|user|>' if m['role'] == 'user' else m['role']) + ':' + m['content'] + '<|end|>' }}"
    "{% endfor %}"
)
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    tiny.save(folder / "model")
    tiny.save_letters(folder / "chat", tiny.letters(specials=["<|user|>", "<|end|>"], chat_template=TEMPLATE))
    return folder


@pytest.fixture(scope="module")
def played(folder):
    """What the processes printed, and what each found, scene by scene."""
    printed = torchrun(folder, "tests.mechanisms.ranks", *SCENES)
    first, second = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(2))
    return printed, {name: (first[name], second[name]) for name in SCENES}


@pytest.fixture
def scenes(folder, played, monkeypatch):
    """What both processes found; the test stands in their folder."""
    monkeypatch.chdir(folder)
    return played[1]


def charged(run):
    with sqlite3.connect(f"file:{run}/ledger.db?mode=ro", uri=True) as database:
        return dict(database.execute("SELECT key, state FROM charges"))


def test_an_update_of_two_processes_is_that_of_one(scenes):
    for gaps in scenes["one_update"]:
        assert gaps["size"] > 1e-3
        assert gaps["all 0.0"] < 1e-6 and gaps["all 1.0"] < 1e-6, "the same records and the same noise"


def test_a_process_without_records_joins_every_step(scenes):
    for gaps in scenes["one_update"]:
        assert gaps["one"] < 1e-6, "one record, so an empty shard"
        assert gaps["half"] < 1e-6, "an empty batch of the first process"


def test_shards_are_disjoint_and_complete_and_draws_are_independent(scenes):
    first, second = scenes["draws"]
    assert sorted(first["shard"] + second["shard"]) == sorted(f"good {number}" for number in range(51))
    # q is 1/2: equal draws agree always, independent ones in half of 1500 places, 4 deviations to either side
    assert abs(np.mean(np.equal(first["poisson"], second["poisson"])) - 0.5) < 4 * 0.5 / 1500**0.5
    assert first["fresh"][0] != second["fresh"][0] and first["fresh"][1] == second["fresh"][1]


def test_a_user_stands_whole_in_one_shard(scenes):
    first, second = (found["users"] for found in scenes["draws"])
    wanted = [sorted(f"good {number}" for number in range(user, 51, 7)) for user in range(7)]
    assert sorted(first + second) == sorted(wanted) and len(first) == 4


def test_shuffled_slots_follow_one_order_for_all(scenes):
    first, second = (found["slots"] for found in scenes["draws"])
    steps = [sorted(mine + theirs) for mine, theirs in zip(first, second, strict=True)]
    assert sorted(steps[0] + steps[1]) == sorted(steps[2] + steps[3]) == list(range(7)), "each record once an epoch"
    assert all(slot % 2 == 0 for slots in first for slot in slots)


def test_noise_is_drawn_once_and_all_hold_the_same_bits(scenes):
    for found in scenes["noise"]:  # of 20,480 draws: 3 % are 6 deviations; twice the noise would be 41 % more
        assert found["draws"] == 20_480
        assert found["std"] == pytest.approx(2.0 * 0.5 / 4, rel=0.03) == pytest.approx(found["alone"], rel=0.06)
    assert scenes["noise"][0]["bits"] == scenes["noise"][1]["bits"]


def test_all_processes_get_the_same_rows_release_and_parameters(scenes):
    for name in ("whole", "in_memory", "shuffled", "resumed"):
        first, second = scenes[name]
        assert first == second, name
    whole = scenes["whole"][0]
    assert len(whole["rows"]["text"]) == 10 and len(whole["more"]["text"]) == 5 and len(whole["bits"]) == 64
    assert len(scenes["in_memory"][0]["rows"]["text"]) == 3 and scenes["in_memory"][0]["id"] != whole["id"]


def test_the_first_process_alone_writes_and_charges_what_was_planned(scenes):
    whole = scenes["whole"][0]
    assert (
        list(charged("whole-0"))
        == whole["charges"]
        == (["label-counts", "steps-000001-000002", "steps-000003-000004", "steps-000005-000006"])
    )
    release = hf_dpsynth.load_privacy("whole-0")
    assert release.guarantee_id == whole["id"] and hf_dpsynth.verify("whole-0").ok
    spent = sum((leaves(charge.event) for charge in release.charges), Counter())
    assert spent == leaves(release.plan.event)
    assert whole["again"] == whole["rows"] and whole["charges again"] == 4
    assert list(pathlib.Path().glob("whole-1*")) == [] and files_with("whole-0", CANARY) == []


def test_conversations_of_users_with_labels_public_text_and_tracking_run_in_two_processes(scenes):
    (first, logged), (second, nothing) = ((found, found.pop("logged")) for found in map(dict, scenes["everything"]))
    assert first == second and len(first["rows"]["chat"]) == 4 and len(first["more"]["chat"]) == 5
    assert set(first["rows"]) == {"chat", "topic"} and all(first["rows"]["chat"]) and "per user" in first["statement"]
    assert nothing == [] and "public_loss" in logged[0][1] and logged[-1][0] == 2
    assert [path.parts[0] for path in pathlib.Path().rglob("events.out.*")] == ["everything-0.private"]
    facts = json.loads(pathlib.Path("everything-0/privacy.json").read_text())
    assert any("it is not encrypted" in item for item in facts["scope"]["not_covered"])
    assert list(pathlib.Path().glob("everything-1*")) == [] and hf_dpsynth.verify("everything-0").ok


def test_the_command_line_prints_and_writes_in_the_first_process_alone(scenes):
    first, second = scenes["command_line"]
    assert first["code"] == second["code"] == 0 and second["printed"] == ""
    assert "differentially private" in first["printed"] and "rows: command-0.jsonl" in first["printed"]
    assert len(pathlib.Path("command-0.jsonl").read_text().splitlines()) == 3
    assert list(pathlib.Path().glob("command-1*")) == []


def test_rows_are_the_same_whoever_makes_them(scenes, monkeypatch):
    from tests.mechanisms.ranks import tune

    for place in ("", ".private"):
        shutil.copytree(f"whole-0{place}", f"alone{place}")
    for name in ("data", "populations"):
        shutil.rmtree(f"alone/{name}")
    for name in ("release.json", "privacy.json", "README.md"):
        pathlib.Path(f"alone/{name}").unlink()
    monkeypatch.setattr(TunedModel, "block", 4)
    assert tune("alone")[:] == scenes["whole"][0]["rows"]


def test_a_killed_process_ends_the_other_and_one_process_finishes_the_run(folder, monkeypatch):
    started = time.perf_counter()
    codes = unwatched(folder, "tests.mechanisms.ranks", "killed")
    assert codes[1][0] == -9 and codes[0][0] == 0, codes
    assert time.perf_counter() - started < 300
    monkeypatch.chdir(folder)
    found = json.loads(pathlib.Path("0.json").read_text())["killed"]
    assert found["error"] == "HfDpsynthError" and "another process of this run stopped" in found["text"]
    assert charged("killed")["steps-000003-000004"] == "charged"
    from tests.mechanisms.ranks import tune

    made = tune("killed")
    assert "steps-000003-000004 was charged and lost" in made.privacy.statement() and len(made) == 10
    spent = sum((leaves(charge.event) for charge in made.privacy.charges), Counter())
    assert spent == leaves(made.privacy.plan.event) and hf_dpsynth.verify("killed").ok


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        ("other_plan", "differ in num_rows, seed"),
        ("other_data", "different records"),
        ("other_order", "in another order"),
    ],
)
def test_other_arguments_or_data_are_refused_by_all_before_anything_is_charged(scenes, scene, words):
    for found in scenes[scene]:
        assert found["error"] == "ConfigError" and words in found["text"]
    assert not pathlib.Path(scene.replace("_", "-")).exists()


def test_an_error_of_one_process_is_an_error_of_all(scenes):
    for name, of, words in (("engine_fails", 1, "gradients differ"), ("first_fails", 0, "the disk is full")):
        for rank, found in enumerate(scenes[name]):
            assert found["error"] == "PrivacyError"
            assert found["text"] == (words if rank == of else f"{words} (process {of} of 2)")
    assert charged("engine") == {"label-counts": "committed"}
    assert charged("disk") == {"label-counts": "committed", "steps-000001-000002": "charged"}


def test_a_sum_without_noise_is_sent_to_nobody(scenes):
    for found in scenes["failed_sums"]:  # the last place tells of the error
        assert found["sent"] == [[0.0] * 5 + [1.0], "refused"] * 2


def test_a_strangers_error_reaches_the_others_without_its_words(scenes):
    first, second = scenes["step_fails"]
    assert second["error"] == "ValueError" and CANARY in second["text"]
    assert first["error"] == "HfDpsynthError" and CANARY not in first["text"] and "ValueError" in first["text"]


def test_two_processes_resume_a_run_at_its_checkpoint_and_at_its_rows(scenes):
    resumed = scenes["resumed"][0]
    assert "steps-000003-000004 was charged and lost" in resumed["statement"] and resumed["held"] == 4
    assert len(resumed["rows"]["text"]) == 10 and hf_dpsynth.verify("step").ok


@pytest.mark.parametrize("scene", ["gives_up", "wrong_argument"])
def test_a_process_that_gives_up_is_not_waited_for(scenes, scene):
    first, second = scenes[scene]
    assert second == {"known": True} and "another process of this run stopped" in first["text"]


def test_a_process_that_makes_the_call_alone_is_told_that_all_must(scenes):
    first, second = scenes["unmet"]
    assert first["error"] == "ConfigError" and "not the main process alone" in first["text"] and second == {}
    assert not pathlib.Path("unmet").exists()


def test_the_first_process_alone_warns(played):
    assert played[0].count("no amplification is claimed") == 1


def test_the_others_show_no_bars(monkeypatch):
    import datasets.utils

    monkeypatch.setattr(datasets.utils, "tqdm", lambda **options: options)
    assert hf_dpsynth.logging.progress_bar(total=3) == {"total": 3}
    monkeypatch.setenv("RANK", "1")
    assert hf_dpsynth.logging.progress_bar(total=3) == {"total": 3, "disable": True}


@pytest.mark.parametrize("name", ["ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"])
def test_models_that_are_split_over_processes_are_refused(name, monkeypatch):
    from tests.mechanisms.ranks import tune

    monkeypatch.setenv(name, "true")
    with pytest.raises(ConfigError, match=f"{name} is set"):
        tune("run")
    assert not pathlib.Path("run").exists()


def test_a_process_whose_launcher_gave_no_address_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="do not meet"):
        devices(DPLora())


def test_other_mechanisms_take_one_process(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="WORLD_SIZE is 2: several processes are not supported by dp-icl"):
        reviews().synthesize("dp-icl", epsilon=1.0, out="run")
    assert not pathlib.Path("run").exists()
