"""What may be watched in training: public figures alone, that change nothing and stop nothing."""

import json
import math
import os
import pathlib
import stat
import sys
import textwrap

import pytest
from datasets import ClassLabel, Dataset, DatasetDict

import hf_dpsynth
from hf_dpsynth.errors import ConfigError, MissingExtra
from hf_dpsynth.mechanisms.base import PublicInputs
from hf_dpsynth.mechanisms.finetune import reports, training
from hf_dpsynth.mechanisms.finetune.examples import Example
from hf_dpsynth.mechanisms.finetune.public_loss import held_out
from hf_dpsynth.mechanisms.finetune.trainable import Trainable
from hf_dpsynth.mechanisms.finetune.tuning import DPLora
from hf_dpsynth.privacy.accounting import epsilon, rdp_epsilon
from hf_dpsynth.processes import Processes
from tests.mechanisms import tiny
from tests.stubs import CANARY, files_with, reviews

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
PARAMS = {
    "steps": 6, "batch_size": 16, "max_tokens": 16, "max_new_tokens": 4, "checkpoint_every": 2, "rank": 2,
    "dtype": "float32",
}  # fmt: skip
PUBLIC = {"text": ["a good film", "a bad plot", "dull", "great fun"], "label": ["pos", "neg", "neg", "pos"]}
WITH_LOSS = {"epsilon", "learning_rate", "public_loss"}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True, scope="module")
def bounds_are_computed_once():
    held = {}

    def memoised(event, delta, *, adjacency):
        key = (str(event), delta, adjacency)
        if key not in held:
            held[key] = rdp_epsilon(event, delta, adjacency=adjacency)
        return held[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "rdp_epsilon", memoised)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("model"))


def tune(model, ds=None, mechanism="dp-lora", params=None, **more):
    settings = {
        "epsilon": 0.5, "delta": 1e-2, "text_column": "text", "label_column": "label", "num_rows": 4,
        "label_proportions": {"pos": 0.5, "neg": 0.5}, "generator": model, "params": PARAMS | (params or {}),
    } | more  # fmt: skip
    return (reviews(64) if ds is None else ds).synthesize(mechanism, **settings)


def public():
    return Dataset.from_dict(PUBLIC)


@pytest.fixture
def watched(monkeypatch):
    """A tracker that keeps what it gets, under the name of TensorBoard."""
    kept = []

    class Kept:
        def __init__(self, folder, name, settings):
            kept.append(("settings", settings))

        def log(self, values, step):
            kept.append((step, values))

        def close(self):
            kept.append(("close", {}))

    monkeypatch.setitem(reports.TRACKERS, "tensorboard", Kept)
    return kept


def loss_of(model, adapter, rows):
    """The mean loss of public rows, computed with nothing of the training loop."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = AutoTokenizer.from_pretrained(model)
    tuned = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), adapter).eval()
    losses = []
    for text, label in zip(rows["text"], rows["label"], strict=True):
        prefix = words(f"label: {label}\ntext:", add_special_tokens=False)["input_ids"]
        target = words(" " + text, add_special_tokens=False)["input_ids"]
        tokens = [words.bos_token_id, *prefix, *target, words.eos_token_id]
        logits = tuned(torch.tensor([tokens])).logits[0].log_softmax(-1)
        places = range(1 + len(prefix), len(tokens))
        losses.append(-sum(logits[at - 1, tokens[at]].item() for at in places) / len(places))
    return sum(losses) / len(losses)


def test_the_figures_of_a_checkpoint_are_the_planned_rate_a_bound_on_epsilon_and_the_public_loss(model, watched):
    made = tune(model, public=public(), out="run", params={"report_to": "tensorboard", "learning_rate": 0.05})
    steps = [step for step, _ in watched[1:-1]]
    assert watched[0][0] == "settings" and watched[-1][0] == "close" and steps == [2, 4, 6]
    assert all(set(values) == WITH_LOSS and values["learning_rate"] == 0.05 for _, values in watched[1:-1])
    spent = [values["epsilon"] for _, values in watched[1:-1]]
    events = [made.privacy.charges[number].event for number in range(3)]
    assert spent == sorted(spent) and spent[0] >= epsilon(events[0], 1e-2, adjacency="zero-out") and spent[-1] <= 0.5
    assert watched[-2][1]["public_loss"] == pytest.approx(loss_of(model, "run/adapter", PUBLIC), rel=1e-5)


def test_bought_proportions_are_in_the_bound(model, watched):
    settings = {"labels": ["pos", "neg"], "label_proportions": None, "params": {"report_to": "tensorboard"}}
    counts, first, *_ = tune(model, out="run", **settings).privacy.charges
    assert counts.key == "label-counts" and watched[1][0] == 2
    alone = rdp_epsilon(first.event, 1e-2, adjacency="zero-out")
    assert 1.01 * alone < watched[1][1]["epsilon"] < 0.5


def test_neighbouring_data_give_the_same_keys_steps_and_settings(model, watched):
    zeroed = reviews(64).map(lambda row, at: {"text": "" if at == 5 else row["text"]}, with_indices=True)
    found = []
    for name, ds in (("a", reviews(64)), ("b", zeroed), ("c", reviews(64).map(lambda row: {"text": ""}))):
        watched.clear()
        tune(model, ds, public=public(), out=name, params={"report_to": "tensorboard"})
        loss_free = [(step, {k: v for k, v in values.items() if k != "public_loss"}) for step, values in watched]
        found.append((loss_free, [set(values) for step, values in watched]))
    assert found[0] == found[1] == found[2]
    assert set(dict(found[0][0])["settings"]) == (
        set(hf_dpsynth.plan("dp-lora", epsilon=0.5, delta=1e-2, num_records=64, params=PARAMS).params)
        | {"noise_multiplier", "planned_epsilon", "delta", "public_rows"}
    )


def test_the_public_loss_and_reports_change_nothing_of_training(model, watched):
    kept = {}
    for name, more in {
        "plain": {},
        "watched": {"public": public(), "params": {"report_to": "tensorboard"}},
        "hooks": {"params": {"engine": "hooks"}},
        "watched hooks": {"public": public(), "params": {"engine": "hooks", "report_to": "tensorboard"}},
    }.items():
        tune(model, out=name, insecure_noise_seed=1, **more)
        kept[name] = Trainable(model, method="lora", rank=2, dtype="float32").read(pathlib.Path(name) / "adapter")
    for name, other in (("plain", "watched"), ("hooks", "watched hooks")):
        assert all(torch.equal(a, b) for a, b in zip(kept[name], kept[other], strict=True))
    assert len(watched) == 10


def test_reports_are_not_in_the_plan_so_a_run_resumes_with_others(model, watched, monkeypatch):
    step = training.Training._step

    def dies(self, engine, number):
        if number == 3:
            raise KeyboardInterrupt
        step(self, engine, number)

    with monkeypatch.context() as patch:
        patch.setattr(training.Training, "_step", dies)
        with pytest.raises(KeyboardInterrupt):
            tune(model, out="run", public=public(), params={"report_to": "tensorboard"})
    assert [step for step, _ in watched] == ["settings", 2, "close"]
    watched.clear()
    other = Dataset.from_dict({"text": ["another film"], "label": ["pos"]})
    made = tune(model, out="run", public=other, params={"report_to": "tensorboard"})
    assert [step for step, _ in watched] == ["settings", 6, "close"]
    assert "report_to" not in made.privacy.plan.params and "report_to" not in made.privacy.card()
    assert hf_dpsynth.verify("run").ok
    assert tune(model, out="run")[:] == made[:]


@pytest.mark.parametrize("place", ["init", "log", "close"])
def test_a_tracker_that_fails_is_named_once_and_the_run_goes_on(model, monkeypatch, caplog, place):
    class Broken:
        def __init__(self, *arguments):
            self.fail("init")

        def log(self, values, step):
            self.fail("log")

        def close(self):
            self.fail("close")

        def fail(self, at):
            if at == place:
                raise OSError(28, "No space left on device")

    monkeypatch.setitem(reports.TRACKERS, "tensorboard", Broken)
    made = tune(model, out="run", public=public(), params={"report_to": "tensorboard"})
    said = [record.getMessage() for record in caplog.records if "left out of the reports" in record.getMessage()]
    assert len(said) == 1 and "'tensorboard' failed with OSError" in said[0]
    assert len(made.privacy.charges) == 3 and hf_dpsynth.verify("run").ok


def test_what_cannot_be_written_is_refused_before_a_charge(model, monkeypatch):
    with pytest.raises(ConfigError, match=r"report_to='tensorboard' writes to RUN.private/logs.*Pass out="):
        tune(model, params={"report_to": "tensorboard"})
    monkeypatch.setattr(reports, "find_spec", lambda name: None)
    for name, extra in (("tensorboard", "reporting"), ("trackio", "trackio")):
        with pytest.raises(MissingExtra, match=rf"needs {name}: pip install 'hf-dpsynth\[{extra}\]'"):
            tune(model, out=name, params={"report_to": name})
        assert not pathlib.Path(name, "ledger.db").exists()
    assert len(tune(model, out="tensorboard")) == 4  # the plan is the same


@pytest.mark.parametrize("value", ["wandb", ["tensorboard", "none"], 3, None, [3], "all"])
def test_other_trackers_are_refused(value):
    with pytest.raises(ConfigError, match="report_to"):
        DPLora(report_to=value)


def test_names_of_trackers_are_a_name_or_a_list():
    assert DPLora().report_to == DPLora(report_to="none").report_to == ()
    assert DPLora(report_to=["trackio", "tensorboard", "trackio"]).report_to == ("trackio", "tensorboard")


def test_event_files_of_tensorboard_hold_these_tags_alone_and_lie_in_the_private_folder(model):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tune(model, public=public(), out="run", params={"report_to": "tensorboard"})
    (path,) = pathlib.Path("run.private/logs/tensorboard/dp-lora").glob("events.*")
    found = EventAccumulator(str(path))
    found.Reload()
    tags = found.Tags()
    assert set(tags["scalars"]) == WITH_LOSS and tags["tensors"] == ["settings/text_summary"]
    assert not any(tags[name] for name in tags if name not in ("scalars", "tensors"))
    assert [event.step for event in found.Scalars("public_loss")] == [2, 4, 6]
    assert files_with("run.private/logs", CANARY) == [] and not list(pathlib.Path("run").rglob("events.*"))
    assert stat.S_IMODE(os.stat("run.private").st_mode) == 0o700


STAND_IN = """
    import json, os, pathlib

    class Run:
        def log(self, values, step=None):
            self.lines.append([step, values])
            if os.environ.get("STAND_IN_FAILS"):
                os._exit(3)

        def finish(self):
            folder = pathlib.Path(os.environ["TRACKIO_DIR"])
            folder.mkdir(parents=True)
            ours = ("TRACKIO_", "HF_HUB_OFFLINE")
            environment = {name: value for name, value in os.environ.items() if name.startswith(ours)}
            kept = {"settings": self.settings, "lines": self.lines, "environment": environment}
            (folder / "kept.json").write_text(json.dumps(kept))

    def init(**settings):
        print("* a line of advice")
        run = Run()
        run.settings, run.lines = settings, []
        return run
"""


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    folder = tmp_path / "stand-in"
    folder.mkdir()
    (folder / "trackio.py").write_text(textwrap.dedent(STAND_IN))
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(folder)


def test_trackio_gets_a_quiet_process_without_network_and_its_folder_in_the_private_one(
    model, stand_in, monkeypatch, capfd
):
    monkeypatch.setenv("TRACKIO_SPACE_ID", "somebody/somewhere")
    monkeypatch.setenv("TRACKIO_SERVER_URL", "http://example.org")
    tune(model, public=public(), out="run", params={"report_to": "trackio"})
    kept = json.loads(pathlib.Path("run.private/logs/trackio/kept.json").read_text())
    folder = os.path.abspath("run.private/logs/trackio")
    assert kept["environment"] == {"TRACKIO_DIR": folder, "HF_HUB_OFFLINE": "1"}
    config = kept["settings"].pop("config")
    assert config["learning_rate"] == 1e-3 and config["public_rows"] == 4
    assert kept["settings"] == {
        "project": "dp-lora", "name": "run", "resume": "allow", "embed": False, "auto_log_gpu": False,
        "auto_log_cpu": False,
    }  # fmt: skip
    assert [step for step, _ in kept["lines"]] == [2, 4, 6] and all(set(v) == WITH_LOSS for _, v in kept["lines"])
    assert "advice" not in "".join(capfd.readouterr()) and "trackio" not in sys.modules


def test_a_process_of_trackio_that_dies_does_not_stop_the_run(model, stand_in, monkeypatch, caplog):
    monkeypatch.setenv("STAND_IN_FAILS", "1")
    made = tune(model, out="run", params={"report_to": "trackio"})
    said = [record.getMessage() for record in caplog.records if "left out of the reports" in record.getMessage()]
    assert len(said) == 1 and "'trackio' failed" in said[0] and len(made.privacy.charges) == 3


def test_trackio_itself_stores_these_figures(model):
    pytest.importorskip("trackio")
    import sqlite3

    tune(model, public=public(), out="run", params={"report_to": "trackio"})
    (path,) = pathlib.Path("run.private/logs/trackio").rglob("dp-lora*.db")
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT step, metrics FROM metrics ORDER BY step").fetchall()
        system = database.execute("SELECT count(*) FROM system_metrics").fetchone()
    database.close()
    assert [step for step, _ in rows] == [2, 4, 6] and all(set(json.loads(text)) == WITH_LOSS for _, text in rows)
    assert system == (0,)


def test_without_privacy_no_epsilon_is_reported(model, watched):
    tune(model, epsilon=math.inf, delta=None, out="run", params={"report_to": "tensorboard"})
    assert [set(values) for _, values in watched[1:-1]] == [{"learning_rate"}] * 3


def test_replacement_has_no_quick_bound_so_none_is_reported(model, watched):
    tune(model, adjacency="replace-one", out="run", params={"report_to": "tensorboard"})
    assert [set(values) for _, values in watched[1:-1]] == [{"learning_rate"}] * 3


def test_the_progress_bar_shows_the_public_figures(model, monkeypatch):
    shown = []

    class Bar:
        disable = False
        update = close = lambda self, *values: None

        def set_postfix_str(self, text):
            shown.append(text)

    monkeypatch.setattr(training, "progress_bar", lambda **options: Bar())
    tune(model, public=public())
    assert len(shown) == 3 and all("epsilon <= " in text and ", public loss " in text for text in shown)
    shown.clear()
    tune(model)
    assert len(shown) == 3 and not any("loss" in text for text in shown)


def test_texts_alone_serve_where_there_is_no_label_column(model, watched):
    settings = {"label_column": None, "label_proportions": None, "params": {"report_to": "tensorboard"}}
    tune(model, public=["a good film", " ", "dull"], out="run", **settings)
    assert watched[0][1]["public_rows"] == 2 and set(watched[1][1]) == WITH_LOSS


def test_public_rows_that_no_token_can_be_learned_of_are_left_out():
    class Half:
        """An encoder that has no form for some of the rows, as a chat template may."""

        def example(self, label, text):
            return Example([1, 2, *[3] * text.count("good")], 2)

    plan = hf_dpsynth.plan("dp-lora", epsilon=math.inf, num_records=64, params=PARAMS)
    rows = [((), text) for text in ("good good", "bad", "good")]
    inputs = {"generator": None, "embedder": None}
    found = held_out(PublicInputs(**inputs, dataset=rows), plan, Half())
    assert [len(example.tokens) for example in found] == [3, 4]
    with pytest.raises(ConfigError, match=r"public=.*no token.*Pass"):
        held_out(PublicInputs(**inputs, dataset=[((), "bad")] * 2), plan, Half())
    assert held_out(PublicInputs(**inputs), plan, Half()) == []


def test_at_most_256_public_rows_are_read(model, watched):
    many = Dataset.from_dict({"text": ["good film"] * 300, "label": ["pos"] * 300})
    tune(model, public=many, out="run", params={"report_to": "tensorboard"})
    assert watched[0][1]["public_rows"] == 256


def test_labels_of_public_rows_are_read_by_name(model, watched):
    numbered = public().cast_column("label", ClassLabel(names=["neg", "unused", "pos"]))
    tune(model, public=numbered, out="a", insecure_noise_seed=1, params={"report_to": "tensorboard"})
    first = [values for _, values in watched]
    watched.clear()
    tune(model, public=public(), out="b", insecure_noise_seed=1, params={"report_to": "tensorboard"})
    assert first == [values for _, values in watched]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda ds: ds, "private data itself"),
        (lambda ds: DatasetDict({"train": ds}), "public= is DatasetDict"),
        (lambda ds: "a good film", "public= is str"),
        (lambda ds: ["a good film"], "has label too"),
        (lambda ds: [3], "public= is list"),
        (lambda ds: Dataset.from_dict({"words": ["a"], "label": ["pos"]}), "no column 'text'"),
        (lambda ds: Dataset.from_dict({"text": ["a"]}), "no column 'label'"),
        (
            lambda ds: Dataset.from_dict({"text": ["a", None, " "], "label": ["mixed", "pos", "neg"]}),
            "no row with text",
        ),
    ],
)
def test_public_data_that_cannot_serve_is_refused_before_the_run_directory_is_made(model, given, message):
    ds = reviews(64)
    with pytest.raises(ConfigError, match=message):
        tune(model, ds, public=given(ds), out="run")
    assert not pathlib.Path("run").exists()


def test_only_the_main_process_reports(model, watched):
    run = type("Run", (), {"devices": Processes(rank=1, world_size=2)})  # it has no ledger of its own
    with reports.Reports(("tensorboard",), None, run, ()) as report:
        assert report.checkpoint(2, shown=True) == "" and watched == []


def test_other_mechanisms_go_on_refusing_public_data():
    with pytest.raises(ConfigError, match="aug-pe takes no public="):
        reviews().synthesize("aug-pe", epsilon=1, delta=1e-3, public=["a"])


def test_a_recipe_and_a_flag_name_public_text_that_is_loaded_as_the_data_is(model, watched):
    from hf_dpsynth import cli

    reviews(64).to_csv("private.csv")
    public().to_csv("public.csv")
    shared = f"{{mechanism: dp-lora, epsilon: 0.5, delta: 1e-2, text_column: text, label_column: label, num_rows: 4, \
        label_proportions: {{pos: 0.5, neg: 0.5}}, generator: {model}, params: {json.dumps(PARAMS)}, \
        data: private.csv, out: run, public: {{path: public.csv}}}}"
    pathlib.Path("recipe.yaml").write_text(shared, encoding="utf-8")
    assert cli.call(["run", "recipe.yaml", "--set", "params.report_to=tensorboard"]) == 0
    first = [set(values) for _, values in watched[1:-1]]
    watched.clear()
    flags = ["--epsilon", "0.5", "--delta", "1e-2", "--text-column", "text", "--label-column", "label"]
    flags += ["--label-proportions", "pos: 0.5, neg: 0.5", "--num-rows", "4", "--generator", model, "--out", "other"]
    flags += [word for name, value in PARAMS.items() for word in ("--param", f"{name}={value}")]
    flags += ["--param", "report_to=[tensorboard]", "--public", "public.csv", "--mechanism", "dp-lora"]
    assert cli.call(["synthesize", "private.csv", *flags]) == 0
    assert first == [set(values) for _, values in watched[1:-1]] == [WITH_LOSS] * 3
