"""`evaluate` on runs and files, as a function and as a verb."""

import json
import pathlib
import shutil

import pytest
from datasets import Dataset, DatasetDict, Features, List, Value

from hf_dpsynth import columns, evaluation
from hf_dpsynth.cli import call
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.models import assets
from tests.stubs import CANARY, StubEmbedder, files_with, reviews, synth, toy_vectors

METRICS = ["ngram", "length", "distinct_n"]


@pytest.fixture
def files(tmp_path):
    reviews(40).to_json("real.jsonl")
    pathlib.Path("made.csv").write_text("text\n" + "\n".join(f"good film {i % 5}" for i in range(20)))
    return tmp_path


def test_a_run_is_compared_and_its_figures_stay_in_the_private_folder(files):
    synth(out="run")
    before = {path.name for path in pathlib.Path("run").iterdir()}
    found = evaluation.evaluate("run", "real.jsonl", metrics=[*METRICS, "fid"], embedder=StubEmbedder())
    assert found.path == pathlib.Path("run.private/evaluation.json").absolute()
    assert found.path.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in pathlib.Path("run").iterdir()} == before
    assert files_with("run.private", CANARY) == [] == files_with("run", CANARY)
    again = evaluation.held("run")
    assert again.results["fid"]["fid"] == found.results["fid"]["fid"] and again.embedder.endswith("StubEmbedder")
    assert found.results["fid"]["uses_private_data"] is True


def test_files_are_compared_without_a_run(files):
    found = evaluation.evaluate("made.csv", "real.jsonl", metrics=METRICS, text_column="text")
    assert found.path is None and set(found.results) == set(METRICS) and found.uses_private_data
    alone = evaluation.evaluate("made.csv", metrics=METRICS, text_column="text")
    assert set(alone.results) == {"length", "distinct_n"} and not alone.uses_private_data


def test_only_texts_with_a_guarantee_reach_the_cache(files, monkeypatch):
    monkeypatch.setenv("HF_DPSYNTH_CACHE", str(files / "cache"))

    class Named(StubEmbedder):
        id = "stub"

    synth(out="run")
    evaluation.evaluate("run", "real.jsonl", metrics=["fid"], embedder=Named())
    assert (assets.cache_folder() / "embeddings.db").exists()
    assert files_with(files / "cache", CANARY) == []
    (files / "cache" / "embeddings.db").unlink()
    synth(out="open", epsilon=float("inf"), delta=None, num_rows=12)
    evaluation.evaluate("open", "real.jsonl", metrics=["fid"], embedder=Named())
    evaluation.evaluate("made.csv", "real.jsonl", metrics=["fid"], embedder=Named(), text_column="text")
    assert not (files / "cache" / "embeddings.db").exists()


def test_the_verb_prints_scores_beside_floors_and_writes_json(files, capsys):
    flags = "--synthetic made.csv --real real.jsonl --text-column text --metrics ngram,distinct_n"
    code = call(["evaluate", *flags.split(), "--output", "figures.json"])
    out = capsys.readouterr().out
    assert code == 0 and "floor" in out and "ngram" in out and "no guarantee covers them" in out
    found = json.loads(pathlib.Path("figures.json").read_text())
    assert set(found["results"]) == {"ngram", "distinct_n"} and CANARY not in json.dumps(found)


def test_what_goes_wrong_takes_one_line_and_an_exit_code(files, capsys):
    assert call(["evaluate", "--synthetic", "made.csv", "--real", "real.jsonl"]) == 2  # CSV names no text column
    assert call(["evaluate", "--synthetic", "made.csv", "--text-column", "text", "--metrics", "mauvee"]) == 2
    assert "did you mean 'mauve'" in capsys.readouterr().err
    pathlib.Path("one.csv").write_text("text\nalone\n")
    code = call("evaluate --synthetic one.csv --real real.jsonl --text-column text --metrics ngram".split())
    assert code == 1 and "needs 2 synthetic" in capsys.readouterr().out


def test_splits_and_columns_that_do_not_exist_are_refused(files):
    with pytest.raises(ConfigError, match="has train"):
        evaluation.evaluate("made.csv", "real.jsonl", metrics=METRICS, text_column="text", split="test")
    with pytest.raises(ConfigError, match="does not exist"):
        evaluation.evaluate("made.csv", "real.jsonl", metrics=METRICS, text_column="body")


def test_a_broken_file_of_figures_is_refused():
    synth(out="run")
    assert evaluation.held("run") is None
    pathlib.Path("run.private/evaluation.json").write_text("[]")
    with pytest.raises(ConfigError, match="none that hf-dpsynth evaluate writes"):
        evaluation.held("run")


def test_a_run_notes_its_time_beside_it_and_never_in_it():
    made = synth(out="run")
    first = pathlib.Path("run.private/times.jsonl").read_text()
    assert json.loads(first)["seconds"] > 0 and json.loads(first)["run"] == made.privacy.guarantee_id
    assert files_with("run", "seconds") == []
    synth(out="run")
    assert pathlib.Path("run.private/times.jsonl").read_text() == first


def test_a_second_evaluation_of_the_same_texts_keeps_the_first(files, monkeypatch):
    synth(out="run")
    evaluation.evaluate("run", "real.jsonl", metrics=["length"], embedder=StubEmbedder())
    evaluation.evaluate("run", "real.jsonl", metrics=["distinct_n"], embedder=StubEmbedder())
    assert set(evaluation.held("run").results) == {"length", "distinct_n"}
    evaluation.evaluate("run", ["other text"] * 9, metrics=["distinct_n"], embedder=StubEmbedder())
    assert set(evaluation.held("run").results) == {"distinct_n"}
    monkeypatch.chdir("run")
    assert set(evaluation.held(".").results) == {"distinct_n"}


def test_an_evaluation_of_another_run_or_of_other_texts_is_not_shown(files):
    synth(out="run")
    evaluation.evaluate("run", "real.jsonl", metrics=METRICS, embedder=StubEmbedder())
    with pytest.raises(ConfigError, match="other real texts"):
        evaluation.report("run", ["another text"] * 9, embedder=StubEmbedder())
    shutil.rmtree("run")
    synth(out="run", seed=1)
    assert evaluation.held("run") is None
    assert evaluation.report("run").private is None


def test_rows_that_were_changed_are_not_evaluated_and_not_cached(files, monkeypatch):
    monkeypatch.setenv("HF_DPSYNTH_CACHE", str(files / "cache"))
    synth(out="run")
    (path,) = pathlib.Path("run/data").glob("*.parquet")
    reviews(12).to_parquet(path)
    with pytest.raises(ConfigError, match="other rows than it released"):
        evaluation.evaluate("run", "real.jsonl", metrics=METRICS, embedder=StubEmbedder())


def test_every_released_split_is_evaluated(files):
    splits = DatasetDict(train=reviews(20), test=reviews(10))
    splits.privatize("madlib", epsilon=10, vectors=toy_vectors(), text_column="text", out="run")
    found = evaluation.evaluate("run", metrics=["distinct_n"])
    assert found.results["distinct_n"]["num_rows"] == 30


def test_private_figures_are_never_written_into_a_run(files, capsys):
    synth(out="run")
    flags = "--synthetic made.csv --real real.jsonl --text-column text --metrics length --output".split()
    for place in ("run/figures.json", "run/data/figures.json", "nowhere/figures.json"):
        assert call(["evaluate", *flags, place]) == 2 and not pathlib.Path(place).exists()
    assert call(["evaluate", *flags, "figures.json"]) == 0
    assert pathlib.Path("figures.json").stat().st_mode & 0o777 == 0o600


def conversations(rows):
    features = Features({"chat": List({"role": Value("string"), "content": Value("string")})})
    said = [[("user", f"good film {row}"), ("assistant", "dull")] for row in range(rows)]
    turns = [[{"role": role, "content": content} for role, content in talk] for talk in said]
    return Dataset.from_dict({"chat": turns}, features=features)


def test_conversations_of_a_run_are_compared_and_reported_as_they_are_written_out(tmp_path, capsys):
    pytest.importorskip("torch")
    pytest.importorskip("peft")
    from tests.mechanisms import tiny

    template = "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    specials = ["<|user|>", "<|assistant|>", "<|end|>"]
    model = tiny.save_letters(tmp_path / "model", tiny.letters(specials=specials, chat_template=template))
    conversations(8).to_parquet("real.parquet")
    conversations(8).to_json("real.jsonl")
    params = {
        "steps": 1, "batch_size": 4, "max_tokens": 60, "max_new_tokens": 8, "dtype": "float32", "engine": "loop",
    }  # fmt: skip
    made = conversations(8).synthesize(
        "dp-lora", epsilon=2.0, delta=1e-2, text_column="chat", num_rows=4, generator=model, params=params, out="run"
    )
    for real in ("real.parquet", "real.jsonl"):
        assert call(["evaluate", "--synthetic", "run", "--real", real, "--metrics", "ngram,length"]) == 0
    assert evaluation.held("run").results["length"]["num_rows"] == 4
    written = columns.read_texts(made, "chat")
    assert evaluation.released_texts(pathlib.Path("run"), made.privacy.plan, None) == written
    assert evaluation.texts_of("real.jsonl", "chat", None)[3] == "user 11 good film 3assistant 4 dull"
    report = evaluation.report("run", "real.parquet", embedder=StubEmbedder())
    page = report.public.read_text(encoding="utf-8")
    assert "rows are conversations, which are read and shown as one text" in page and "good film" not in page
    assert report.private is not None
    for name in ("plan.json", "release.json"):
        pathlib.Path(f"run/{name}").unlink()
    assert call(["report", "run"]) == 0, capsys.readouterr().err
