import json
import os
import stat

import pytest

import hf_dpsynth
from hf_dpsynth.errors import ConfigError, ResumeMismatch
from hf_dpsynth.plans import Plan
from hf_dpsynth.store import Store


def plan(**more):
    return hf_dpsynth.plan("aug-pe", **({"epsilon": 4.0, "delta": 1e-5, "num_rows": 10} | more))


def test_a_population_on_disk_is_read_and_only_the_rest_is_made(tmp_path):
    store = Store(tmp_path / "run")
    store.folder.mkdir()
    made = []

    def make(start, stop):
        made.append((start, stop))
        if start >= 4 and len(made) == 3:
            raise KeyboardInterrupt
        return [f"text {i}\nwith 'quotes' \u2028 \U0001f600" for i in range(start, stop)]

    with pytest.raises(KeyboardInterrupt):
        store.grow("p", 7, 2, make)
    texts = store.grow("p", 7, 2, make)
    assert made == [(0, 2), (2, 4), (4, 6), (4, 6), (6, 7)]
    assert texts == store.grow("p", 7, 2, lambda *_: pytest.fail("made again"))
    assert texts[0] == "text 0\nwith 'quotes' \u2028 \U0001f600"


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_line_that_a_crash_cut_is_made_again(tmp_path, cut):
    store = Store(tmp_path / "run")
    store.folder.mkdir()
    whole = store.grow("p", 4, 4, lambda a, b: [f"text {i}" for i in range(a, b)])
    digest, path = store.digest("p"), store.folder / "populations" / "p.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    assert store.grow("p", 4, 4, lambda a, b: [f"text {i}" for i in range(a, b)]) == whole
    assert store.digest("p") == digest


def test_a_plan_survives_the_disk_and_another_one_is_refused_by_field(tmp_path):
    store = Store(tmp_path / "run")
    with store.opened():
        store.pin(plan(labels=["a", "b"], epsilon=float("inf"), delta=None))
        store.pin(plan(labels=["a", "b"], epsilon=float("inf"), delta=None))
        with pytest.raises(ResumeMismatch, match="num_rows"):
            store.pin(plan(labels=["a", "b"], epsilon=float("inf"), delta=None, num_rows=11))


def test_plans_survive_json():
    for one in (plan(), plan(labels=["a"], num_records=50_000, delta=None), plan(label_proportions={"a": 1.0})):
        assert Plan.from_json(json.loads(json.dumps(one.to_json()))) == one
        assert len(one.digest()) == 64


def test_a_folder_with_something_else_in_it_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.doc").write_text("mine")
    store = Store(tmp_path / "run")
    with store.opened(), pytest.raises(ConfigError, match="not empty"):
        store.pin(plan())
    (tmp_path / "run" / "plan.json").write_text("{}")
    with store.opened(), pytest.raises(ResumeMismatch, match="not a plan"):
        store.pin(plan())


def test_a_path_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="cannot be written"), Store(tmp_path / "file" / "run").opened():
        pass


def test_two_runs_on_one_directory_are_refused(tmp_path):
    with Store(tmp_path / "run").opened(), pytest.raises(ConfigError, match="in use"):
        with Store(tmp_path / "run").opened():
            pass


def test_the_commitment_key_is_for_its_owner_and_its_loss_is_noticed(tmp_path):
    store = Store(tmp_path / "run")
    with store.opened():
        key = store.commitment_key(fresh=True)
    path = tmp_path / "run.private" / "commitment.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert store.commitment_key(fresh=False).reveal() == key.reveal()
    path.unlink()
    with pytest.raises(ResumeMismatch, match="is gone"):
        store.commitment_key(fresh=False)


def test_a_store_without_a_folder_leaves_nothing_behind():
    store = Store(None)
    with store.opened():
        store.pin(plan())
        folder = store.folder
        assert folder.exists()
    assert not os.path.exists(folder.parent)
