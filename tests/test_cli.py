"""The command line: each verb does what its function does, and every error is one line and an exit code."""

import csv
import inspect
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pyarrow.parquet as parquet
import pytest
import typer

import hf_dpsynth
from hf_dpsynth import cli
from tests.stubs import CANARY, files_with, synth, toy_vectors

PLAN = "mechanism: aug-pe\nepsilon: 1\ndelta: 1e-6\nnum_rows: 100\nparams: {iterations: 10}\n"
VERBS = (
    "list plan run privatize synthesize data models card verify ledger doctor deniability export contamination".split()
)


def process(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "hf_dpsynth.cli", *arguments],
        capture_output=True, text=True, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.fixture
def refused(call):
    """Run a command that must be refused: no output, one line, which is returned."""

    def run(*arguments, code=2):
        found, out, err = call(*arguments)
        assert (found, out, len(err.splitlines())) == (code, "", 1), (found, out, err)
        assert err.startswith("hf-dpsynth: ") and CANARY not in err
        return err

    return run


def recipe(text, **more):
    path = pathlib.Path("recipe.yaml")
    path.write_text(text + "".join(f"{name}: {value}\n" for name, value in more.items()), encoding="utf-8")
    return path


def private(suffix=".csv", rows=2):
    path = pathlib.Path(f"private{suffix}")
    if suffix == ".csv":
        path.write_text("text,label\n" + f"good film {CANARY},1\n,0\n" * (rows // 2), encoding="utf-8")
    return path


def words(text=None):
    """Flags that make madlib fast."""
    return ("--vectors", toy_vectors(), "--epsilon", "5", "--text-column", "text")


def test_list_names_every_mechanism_with_guarantee_and_source_on_any_console():
    done = process("list", PYTHONIOENCODING="cp1252")
    assert done.returncode == 0 and done.stderr == ""
    for row in hf_dpsynth.list_mechanisms():
        assert all(cell in done.stdout for cell in row)


def test_each_verb_explains_itself_on_one_line_and_in_full(call):
    code, out, _ = call("--help")
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    for verb in VERBS:
        assert code == 0 and lines[verb].rstrip().endswith(".") and "..." not in lines[verb]
        code, full, err = call(verb, "--help")
        assert code == 0 and "Usage" in full and err == ""
    assert call()[0] == 2


def test_output_and_errors_survive_a_narrow_console():
    recipe(PLAN, text_column='"\u05e9\U0001f600"', label_column="\u05e9", labels="[\u05e9, b]", nope="\u05e9")
    done = process("plan", "recipe.yaml", "--set", "\u05e9=1", PYTHONIOENCODING="cp1252")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    pathlib.Path("\u05e9.yaml").write_text(PLAN)
    done = process("plan", "\u05e9.yml", PYTHONIOENCODING="ascii")
    assert done.returncode == 2 and "\\u05e9.yml" in done.stderr


def test_plan_shows_noise_guarantee_events_and_cost(call):
    code, out, _ = call("plan", recipe(PLAN, labels="[neg, pos]"))
    assert code == 0 and "noise multiplier: 13.714" in out and "(1, 1e-06)-differentially private per record" in out
    assert "event: 10 x DiscreteGaussian, sigma 13.714" in out and "event: 1 x DiscreteGaussian, sigma 18.9" in out
    plan = hf_dpsynth.plan("aug-pe", epsilon=1, delta=1e-6, num_rows=100, labels=["neg", "pos"])
    assert f"at most {plan.cost.lm_calls} prompts, {plan.cost.tokens} tokens" in out
    code, out, _ = call("plan", recipe(PLAN), "--set", "params.iterations=1", "--set", "epsilon=.inf")
    assert code == 0 and "No privacy" in out and "event: 1 x NonPrivate" in out
    code, out, _ = call("plan", recipe(PLAN, num_records=50), "--set", "label_column=label")
    assert out.count("warning: ") == 2
    code, out, _ = call("plan", recipe("mechanism: madlib\nepsilon: 10\n"))
    assert code == 0 and "Metric DP at scale 10" in out and "noise multiplier" not in out


def test_a_wrong_command_is_one_line_and_exit_code_2(refused):
    path = recipe(PLAN)
    for arguments, named in (
        (("plann",), "plan"),
        (("plan",), "RECIPE"),
        (("plan", "missing.yaml"), "missing.yaml"),
        (("plan", path, "--sett", "a=1"), "--sett"),
        (("plan", path, "--set", "iterations=1"), "iterations"),
        (("plan", path, "--set", "params.iteration=1"), "did you mean 'iterations'"),
        (("plan", path, "--set", "epsilon=-1"), "epsilon is -1"),
        (("run", path), "out"),
        (("run", path, "--set", "out=run"), "names no data"),
        (("run", path, "--set", "out=run", "--set", "data=missing.csv"), "missing.csv"),
        (("run", path, "--set", "mechanism=madlib", "--no-resume"), "delta"),
        (("data",), "NAME"),
        (("synthesize", "movie"), "--epsilon"),
        (("synthesize", "movie", "--epsilon", "x"), "--epsilon"),
        (("synthesize", "movie", "--epsilon", "1"), "--out"),
        (("synthesize", "movie", "--epsilon", "1", "--out", "run", "--param", "iteration=1"), "iterations"),
        (("synthesize", "movie", "--epsilon", "1", "--out", "run", "--param", "iterations"), "k=v"),
        (("synthesize", "movie", "--epsilon", "1", "--out", "run", "--mechanism", "aug"), "aug-pe"),
        (("synthesize", "moovie", "--epsilon", "1", "--out", "run"), "movie"),
        (("synthesize", private(), "--epsilon", "1", "--out", "run", "--text-column", "txt"), "txt"),
        (("synthesize", private(), "--epsilon", "1", "--out", "run", "--labels", "[a"), "--labels"),
        (("privatize", private(), *words(), "--output", "rows.xls"), "rows.xls"),
        (("privatize", private(), *words(), "--output", "no/rows.csv"), "rows.csv"),
        (("privatize", private(), *words(), "--output", private()), "is not overwritten"),
        (("privatize", "movie", *words(), "--output", "rows.csv"), "--split"),
        (("privatize", private(), *words(), "--out", "run", "--budget", "b.db"), "b.db"),
        (("card", "missing"), "missing"),
        (("verify", "missing"), "missing"),
        (("ledger", "missing.db"), "missing.db"),
        (("ledger", path), "not a budget"),
    ):
        assert named in refused(*arguments), arguments
    assert not pathlib.Path("run").exists()


def test_a_failure_is_one_line_and_exit_code_1(refused, monkeypatch):
    assert "movie" in refused("data", "movies", code=1)

    def broken(*arguments):
        raise RuntimeError(f"{CANARY} in a stranger's message")

    monkeypatch.setattr("hf_dpsynth.registry.list_mechanisms", broken)
    assert "RuntimeError" in refused("list", code=1)

    def full(*arguments):
        raise OSError(28, "No space left on device", "rows")

    monkeypatch.setattr("hf_dpsynth.registry.list_mechanisms", full)
    assert "rows: No space left on device" in refused("list", code=1)


def test_an_interrupted_command_says_so_and_exits_with_130(refused, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("hf_dpsynth.registry.list_mechanisms", interrupted)
    assert "interrupted" in refused("list", code=130)


def test_a_traceback_is_shown_only_on_request():
    done = process("data", "movies")
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1 and "movie" in done.stderr
    assert "Traceback" in process("data", "movies", HF_DPSYNTH_DEBUG="1").stderr


@pytest.mark.parametrize("kind", ["privatize", "synthesize"])
def test_the_flags_are_the_arguments_of_the_function(kind):
    taken = set(inspect.signature(getattr(hf_dpsynth, kind)).parameters)
    offered = set(inspect.signature(getattr(cli.runs, f"{kind}_verb")).parameters)
    # --param is params=; the others say where rows come from and go to
    assert taken - offered == {"ds", "params", "insecure_noise_seed"}
    assert offered - taken <= {"context", "input", "param", "output", "name", "split"}


def test_privatize_writes_a_file_and_a_run_directory_and_no_private_text(call):
    path = private(rows=4)
    flags = ("--out", "run", "--output", "rows.csv", "--keep-columns", "label", "--param", "punctuation=drop")
    code, out, err = call("privatize", path, *words(), *flags)
    assert code == 0 and "Metric DP at scale 5" in out and "rows: rows.csv" in out and "run.private/" in out, err
    with open("rows.csv", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [row["label"] for row in rows] == ["1", "0", "1", "0"] and [bool(row["text"]) for row in rows] == [1, 0] * 2
    assert json.loads(pathlib.Path("run/plan.json").read_text())["params"]["punctuation"] == "drop"
    assert files_with(".", CANARY) == [path]
    before = pathlib.Path("rows.csv").read_bytes()
    assert call("privatize", path, *words(), *flags)[0] == 2, "a file that exists is not overwritten"
    pathlib.Path("rows.csv").unlink()
    assert call("privatize", path, *words(), *flags)[0] == 0
    assert pathlib.Path("rows.csv").read_bytes() == before, "the second run draws nothing"


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_rows_are_written_with_null_and_class_label(call, suffix):
    from datasets import ClassLabel, Dataset, Features, Value

    features = Features({"text": Value("string"), "label": ClassLabel(names=["neg", "pos"])})
    rows = {"text": ["good film", None, "\U0001f600"], "label": [1, 0, None]}
    Dataset.from_dict(rows, features=features).to_parquet("private.parquet")
    output = f"rows{suffix}"
    assert call("privatize", "private.parquet", *words(), "--keep-columns", "label", "--output", output)[0] == 0
    if suffix == ".parquet":
        table = parquet.read_table(output)
        assert Features.from_arrow_schema(table.schema) == features and table["text"][1].as_py() is None
    else:
        made = [json.loads(line) for line in pathlib.Path(output).read_text(encoding="utf-8").splitlines()]
        assert made[1] == {"text": None, "label": "neg"} and made[2]["label"] is None


def test_numbers_in_the_named_column_are_text(call):
    pathlib.Path("numbers.csv").write_text("text,id\n12,1\n007,2\n")
    assert call("privatize", "numbers.csv", *words(), "--output", "rows.jsonl")[0] == 0
    assert len(pathlib.Path("rows.jsonl").read_text().splitlines()) == 2


def reviews(rows=30):
    """Some labelled reviews as a file."""
    hf_dpsynth.data.load("movie")["train"].select(range(rows)).to_parquet("reviews.parquet")


SMALL = {"iterations": 1, "variations": 2, "max_new_tokens": 8}


def test_synthesize_runs_end_to_end_and_verify_and_card_read_the_run(call):
    reviews()
    flags = ("--text-column", "text", "--label-column", "label", "--labels", "negative, positive", "--num-rows", 4)
    params = [word for name, value in SMALL.items() for word in ("--param", f"{name}={value}")]
    where = ("--out", "run", "--output", "rows.jsonl", "--budget", "{path: b.db, epsilon: 8, delta: 1e-3}")
    code, out, err = call("synthesize", "reviews.parquet", "--epsilon", 4, *flags, *params, *where)
    assert code == 0 and "(4, 0.001)-differentially private per record under add-remove" in out, err
    rows = [json.loads(line) for line in pathlib.Path("rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 4 and {row["label"] for row in rows} <= {"negative", "positive"}

    code, out, _ = call("ledger", "b.db")
    assert code == 0 and "limits: epsilon 8, delta 0.001, unit record, zero-out adjacency" in out
    assert "run: aug-pe, settled, 20" in out and out.count("1 x DiscreteGaussian, sigma") == 2
    assert "spent: epsilon 3." in out and "remaining: epsilon 4." in out

    code, out, _ = call("card", "run")
    assert code == 0 and out.strip() == pathlib.Path("run/README.md").read_text(encoding="utf-8").strip()
    code, out, _ = call("verify", "run")
    assert code == 0 and "accounting recomputed: yes" in out and "not checkable: " in out and "wrong" not in out
    assert "verified private" not in out
    with open("run/data/train-00000-of-00001.parquet", "ab") as handle:
        handle.write(b"x")
    code, out, err = call("verify", "run")
    assert code == 1 and "files match: no" in out and "parquet" in out and err == ""


def test_run_follows_a_recipe_and_a_second_run_spends_nothing(call):
    reviews()
    path = recipe(
        PLAN, label_column="label", text_column="text", data="{path: reviews.parquet}", seed=3
    )  # fmt: skip
    sets = ("--set", "num_rows=4", "--set", f"params={SMALL}", "--set", "delta=1e-3", "--set", "out=run")
    code, out, err = call("run", path, *sets)
    assert code == 0 and "rows: run/data" in out.replace(os.sep, "/"), err
    rows = parquet.read_table("run/data/train-00000-of-00001.parquet")
    ledger = pathlib.Path("run/ledger.db").read_bytes()
    assert call("run", path, *sets, "--resume")[0] == 0
    assert parquet.read_table("run/data/train-00000-of-00001.parquet") == rows and len(rows) == 4
    assert pathlib.Path("run/ledger.db").read_bytes() == ledger
    code, _, err = call("run", path, *sets, "--no-resume")
    assert code == 2 and "--no-resume" in err.splitlines()[-1]
    code, _, err = call("run", path, *sets, "--set", "seed=4")
    assert code == 1 and "seed" in err.splitlines()[-1]


def test_a_folder_without_claims_is_not_verified(call):
    synth(out="run")
    shutil.rmtree("run/data")
    code, out, _ = call("verify", "run")
    assert code == 1 and "wrong: " in out


def test_a_metric_budget_shows_its_scales(call):
    hf_dpsynth.PrivacyBudget("m.db", epsilon=12, delta=0, unit="word")
    call("privatize", private(), *words(), "--out", "run", "--budget", "m.db")
    code, out, _ = call("ledger", "m.db")
    assert code == 0 and "run: syntax-guided, settled" in out and "MultivariateLaplace, epsilon 5" in out
    assert "spent: epsilon 5\nremaining: epsilon 7\n" in out


def test_models_lists_the_catalogue_and_pull_prints_a_folder(call, tmp_path):
    assert "smollm2-135m" in call("models")[1]
    assert call("models", "pull", tmp_path)[1].strip() == str(tmp_path)


def test_data_shows_the_splits_and_no_row(call):
    code, out, _ = call("data", "movie")
    assert code == 0 and "movie/train" in out and "ClassLabel" in out


def test_doctor_says_what_is_there_and_asks_the_hub_only_on_request(call, monkeypatch):
    monkeypatch.setattr("httpx2.head", lambda *arguments, **options: pytest.fail("nobody asked for the network"))
    code, out, _ = call("doctor")
    assert code == 0 and "Hub: not asked -> hf-dpsynth doctor --network" in out and "minilm: " in out


def test_a_process_obeys_the_switches_and_reports_to_nobody():
    private()
    quiet = {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "HF_DPSYNTH_VERBOSITY": "error"}
    done = process("privatize", "private.csv", *words(), "--output", "rows.csv", **quiet)
    assert done.returncode == 0 and done.stderr == ""


def test_the_switch_of_datasets_silences_the_bars_of_the_models_too(monkeypatch):
    from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars

    monkeypatch.setattr(cli, "call", lambda: 0)
    monkeypatch.setenv("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    enable_progress_bars()
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    assert are_progress_bars_disabled()
    enable_progress_bars()


def test_usage_errors_of_typer_are_known():
    assert issubclass(typer.BadParameter, cli._ClickError)


def test_an_output_inside_the_private_folder_does_not_overwrite_it(call):
    pathlib.Path("folder").mkdir()
    pathlib.Path("folder/train.csv").write_text("text\nzqprivate film\n")
    code, _, err = call("privatize", "folder", *words(), "--text-column", "text", "--output", "folder/train.csv")
    assert code == 2 and "is not overwritten" in err
    assert pathlib.Path("folder/train.csv").read_text() == "text\nzqprivate film\n"


def test_a_file_without_a_header_shows_and_publishes_no_first_record(call):
    pathlib.Path("nohead.csv").write_text("zqprivate lives in Ulm,x\ngood film,y\n")
    for more in ((), ("--text-column", "text")):
        flags = ("--vectors", toy_vectors(), "--epsilon", "5", "--output", "rows.csv", *more)
        code, out, err = call("privatize", "nohead.csv", *flags)
        assert code == 2 and "text_column" in err.replace("column 'text'", "text_column")
        assert "zqprivate" not in out + err and not pathlib.Path("rows.csv").exists()


def test_a_plan_of_a_tuned_model_shows_how_records_are_sampled(capsys):
    recipe = pathlib.Path(__file__).parents[1] / "recipes" / "movie-dp-lora-eps3.yaml"
    assert cli.call(["plan", str(recipe)]) == 0
    out = capsys.readouterr().out
    assert "162 x PoissonSampled, sampling_probability 0.0310078 of Gaussian, noise_multiplier" in out
    assert "tokens expected" in out and "by Renyi DP" in out
