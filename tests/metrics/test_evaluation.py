"""Our metrics through `evaluate`: resolved on this machine, in memory, in both import orders."""

import os
import pathlib
import subprocess
import sys
import types

import pytest

import hf_dpsynth
from hf_dpsynth import metrics
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics import resolve
from tests.stubs import CANARY, StubEmbedder, files_with

evaluate = pytest.importorskip("evaluate")
REAL = [f"{word} film {CANARY}{i}" for i, word in enumerate(["good", "bad", "slow", "fun"] * 5)]
MADE = ["good film", "bad film", "fun plot", "slow plot"] * 3


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("evaluate.config.HF_METRICS_CACHE", str(tmp_path / "metrics"))
    monkeypatch.setattr("evaluate.config.HF_EVALUATE_OFFLINE", True)
    return tmp_path


@pytest.mark.parametrize("name", metrics.list_metrics())
def test_every_metric_loads_by_name_and_by_path(name):
    for place in (f"hf_dpsynth/{name}", metrics.path(name)):
        module = evaluate.load(place)
        assert module.name == name and module.description and module.citation and "Args:" in module.inputs_description
    assert pathlib.Path(metrics.path(name), f"{name}.py").is_file()


@pytest.mark.parametrize("order", ["import evaluate, hf_dpsynth", "import hf_dpsynth, evaluate"])
@pytest.mark.parametrize("offline", ["0", "1"])
def test_names_resolve_in_both_import_orders_without_asking_the_network(order, offline):
    code = f"""{order}
import socket
def refuse(*arguments, **options): raise AssertionError("the network was asked")
socket.socket.connect = refuse
socket.getaddrinfo = refuse
print(evaluate.load("hf_dpsynth/ngram").compute(predictions=["a b"] * 4, references=["a c"] * 4)["ngram_unigram"])
"""
    environment = {**os.environ, "HF_EVALUATE_OFFLINE": offline, "HF_HUB_OFFLINE": offline}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert 0 < float(done.stdout) < 1


def test_names_resolve_here_also_where_classes_are_left_alone():
    code = "import evaluate, hf_dpsynth; print(evaluate.load('hf_dpsynth/ngram').name)"
    environment = {**os.environ, "HF_DPSYNTH_NO_PATCH": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "ngram", done.stderr


def test_importing_the_package_does_not_import_evaluate():
    code = "import sys, hf_dpsynth; print('evaluate' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_a_folder_of_that_name_does_not_take_the_place_of_a_metric(tmp_path):
    strange = tmp_path / "hf_dpsynth" / "ngram" / "ngram.py"
    strange.parent.mkdir(parents=True)
    strange.write_text("raise SystemExit('stranger')")
    assert evaluate.load("hf_dpsynth/ngram").name == "ngram"


def test_an_unknown_metric_never_reaches_the_hub():
    with pytest.raises(ConfigError, match="did you mean 'ngram'"):
        evaluate.load("hf_dpsynth/ngrams")


def test_unregistering_gives_evaluate_its_resolver_back():
    import evaluate.loading

    try:
        hf_dpsynth.unregister()
        assert not hasattr(evaluate.loading.evaluation_module_factory, "__wrapped_by_hf_dpsynth__")
    finally:
        hf_dpsynth.register()
    hf_dpsynth.register()
    inner = evaluate.loading.evaluation_module_factory.__wrapped_by_hf_dpsynth__
    assert not hasattr(inner, "__wrapped_by_hf_dpsynth__")


def test_the_hook_waits_for_evaluate_and_wraps_it_once(monkeypatch, tmp_path):
    package = tmp_path / "evaluate"
    package.mkdir()
    (package / "__init__.py").write_text("from . import loading")
    (package / "loading.py").write_text("def evaluation_module_factory(path, *a, **o): return path")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "evaluate"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    resolve.install()
    resolve.install()
    assert sum(type(finder).__name__ == "_Finder" for finder in sys.meta_path) == 1
    import evaluate as fake

    assert isinstance(fake, types.ModuleType) and fake.loading.evaluation_module_factory("x/y") == "x/y"
    assert fake.loading.evaluation_module_factory("hf_dpsynth/fid") == metrics.path("fid")
    assert not any(type(finder).__name__ == "_Finder" for finder in sys.meta_path)


def test_figures_are_those_of_the_plain_class_for_sets_of_any_size():
    want = metrics.load("ngram").compute(predictions=MADE, references=REAL)
    whole = evaluate.load("hf_dpsynth/ngram").compute(predictions=MADE, references=REAL)
    parts = evaluate.load("hf_dpsynth/ngram", keep_in_memory=False)
    for start in range(0, 20, 5):
        parts.add_batch(predictions=MADE[start : start + 5], references=REAL[start : start + 5])
    single = evaluate.load("hf_dpsynth/ngram")
    for row in range(20):
        single.add(prediction=MADE[row] if row < len(MADE) else None, reference=REAL[row])
    assert len(single) == 20
    assert want == whole == parts.compute() == single.compute()


def test_nothing_private_is_left_on_disk_or_in_the_module(cache):
    module = evaluate.load("hf_dpsynth/ngram", keep_in_memory=False)
    module.add_batch(predictions=MADE, references=REAL)
    assert files_with(cache, CANARY) == []
    module.compute()
    assert files_with(cache, CANARY) == [] and CANARY not in repr(vars(module))
    with pytest.raises(ConfigError, match="no predictions"):
        module.compute()


def test_an_error_shows_no_text():
    module = evaluate.load("hf_dpsynth/ngram")
    for wrong in ({"predictions": CANARY, "references": REAL}, {"predictions": [CANARY, None], "references": REAL}):
        with pytest.raises(ConfigError) as caught:
            module.compute(**wrong)
        assert CANARY not in str(caught.value)
    with pytest.raises(ConfigError, match="no references"):
        module.compute(predictions=MADE)


def test_several_processes_are_refused():
    with pytest.raises(ConfigError, match="num_process is 2"):
        evaluate.load("hf_dpsynth/ngram", num_process=2, process_id=0)


def test_combined_metrics_take_one_set_of_arguments():
    both = evaluate.combine(["hf_dpsynth/fid", "hf_dpsynth/ngram", "hf_dpsynth/self_bleu"])
    found = both.compute(predictions=MADE, references=REAL, embedder=StubEmbedder(), num_splits=2)
    assert {"fid", "fid_floor", "ngram", "self_bleu"} <= set(found)
    both.add_batch(predictions=MADE, references=REAL[: len(MADE)])
    assert both.compute(embedder=StubEmbedder())["ngram"] > 0


def test_options_reach_the_metric_and_a_slip_is_refused():
    module = evaluate.load("hf_dpsynth/distinct_n")
    assert "distinct_n_5" in module.compute(predictions=MADE, max_n=5)
    with pytest.raises(ConfigError, match="did you mean 'num_splits'"):
        module.compute(predictions=MADE, num_split=2)


def test_rankings_are_numbers():
    module = evaluate.load("hf_dpsynth/rank_agreement")
    assert module.features["predictions"].dtype == "float64"
    assert module.compute(predictions=[0.1, 0.2, 0.3, 0.4], references=[0.2, 0.3, 0.4, 0.5])["spearman"] == 1
