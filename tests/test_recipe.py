"""Recipes are strict: YAML means what it says, every key is known, and a plan reads no data."""

import dataclasses
import inspect
import math
import pathlib

import pytest
from datasets import Dataset

import hf_dpsynth
from hf_dpsynth import recipe, strict_yaml
from hf_dpsynth.errors import ConfigError
from tests.recipe_table import FOLDER, README, line
from tests.stubs import StubEmbedder, StubGenerator, reviews, toy_vectors

RECIPES = sorted(FOLDER.glob("*.yaml"))
TOLD = {"dp-eda": 2, "sentdp-select": 1}  # lines that each plan of a mechanism has
BASE = "mechanism: aug-pe\nepsilon: 1\ndelta: 1e-6\nnum_rows: 100\n"


def load(text, *overrides):
    pathlib.Path("r.yaml").write_text(text, encoding="utf-8")
    return recipe.load("r.yaml", overrides)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6), ("1E+3", 1000.0), (".5", 0.5), ("4", 4), ("-2", -2), ("0x1F", 31), ("0o17", 15), ("017", 17),
        (".inf", math.inf), ("-.Inf", -math.inf), ("true", True), ("False", False), ("null", None), ("~", None),
        ("", None), ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"), ("NA", "NA"),
        ("1_000", "1_000"), ("12:30:45", "12:30:45"), ("2024-01-01", "2024-01-01"), ("'1'", "1"), ("1.2.3", "1.2.3"),
        ("<<", "<<"), ("=", "="), ("[no, on, 1]", ["no", "on", 1]), ("{no: 0.5, 1: .5}", {"no": 0.5, 1: 0.5}),
    ],
)  # fmt: skip
def test_scalars_follow_the_core_schema_of_yaml_1_2(text, value):
    found = strict_yaml.parse(text, "here")
    assert found == value and type(found) is type(value)
    assert math.isnan(strict_yaml.parse(".nan", "here"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: key 'a' stands twice"),
        ("a: {b: 1, b: 2}", "'b' stands twice"),
        ("a: [1", "line 1"),
        ("[a]: 1", "list or a mapping"),
        ("a: !!python/object:os.system x", "line 1"),
        ("a: \x00", "here"),
        ("[" * 5000, "here"),
    ],
)
def test_what_is_no_strict_yaml_is_refused_on_one_line(text, words):
    with pytest.raises(ConfigError, match="here") as caught:
        strict_yaml.parse(text, "here")
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mechanism: aug-pee\nepsilon: 1", "did you mean 'aug-pe'"),
        ("mechanism: 3\nepsilon: 1", "mechanism is 3"),
        ("epsilon: 1", "mechanism is missing"),
        ("mechanism: aug-pe", "epsilon is missing"),
        (BASE + "params: {iteration: 3}", "did you mean 'iterations'"),
        (BASE + "params: {iterations: x}", "iterations is 'x'"),
        (BASE + "num_row: 3", "did you mean 'num_rows'"),
        (BASE + "vectors: glove-50d", "no key 'vectors'"),
        (BASE + "insecure_noise_seed: 1", "no key 'insecure_noise_seed'"),
        (BASE + "data: {pth: a.csv}", "data has no key 'pth'; did you mean 'path'"),
        (BASE + "data: {name: a}", "data has no path"),
        (BASE + "data: {path: 3}", "path is 3"),
        (BASE + "data: {path: a.csv, split: test}\nsplit: test", "split stands twice"),
        (BASE + "budget: {path: b.db, epsilon: x}", "budget: epsilon is 'x'"),
        (BASE + "budget: {file: b.db}", "budget has no key 'file'"),
        (BASE + "public: {pth: a.csv}", "public has no key 'pth'; did you mean 'path'"),
        (BASE + "public: [a.csv]", "public is ['a.csv']; it must be text or a mapping"),
        (BASE + "data: a.csv\npublic: {path: a.csv}", "public names what data names"),
        (
            BASE + "public: {path: a, remove_source: {}}",
            "public has no key 'remove_source'; did you mean 'remove_sources'",
        ),
        (BASE + "public: {path: a, remove_sources: [b]}", "public: remove_sources is ['b']; it must be a mapping"),
        (BASE + "public: {path: a, remove_sources: {}}", "public: remove_sources is {}; it must be a mapping"),
        (BASE + "public: {path: a, remove_sources: {site: b}}", "remove_sources of 'site' is 'b'; it must be a list"),
        (BASE + "public: {path: a, remove_sources: {site: [true]}}", "remove_sources of 'site' is [True]"),
        (BASE + "public: {path: a, overlaps: cutt}", "public: overlaps is 'cutt'; did you mean 'cut'"),
        (BASE + "public: {path: a, overlaps: report}", "public: overlaps is 'report'"),
        (
            BASE + "public: {path: a, overlaps: cut, window: 1.5}",
            "public: window is 1.5; it is a whole number of tokens",
        ),
        (BASE + "public: {path: a, overlaps: cut, window: 0}", "public: window is 0"),
        (BASE + "public: {path: a, window: 13}", "window stands without overlaps"),
        (BASE + "params: [1]", "params is [1]; it must be a mapping"),
        (BASE + "text_column: 3", "text_column is 3; it must be text"),
        (BASE + "resume: no", "resume is 'no'; it must be true or false"),
        (BASE + "out: 3", "out is 3"),
        (BASE + "1: 2", "no key 1"),
        ("- a", "holds no mapping"),
        ("", "holds no mapping"),
    ],
)
def test_a_wrong_recipe_is_refused_by_key(text, words):
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("data", "public"),
    [
        ("./rows.csv", "rows.csv"),
        ("rows.csv", "{path: folder/../rows.csv, split: train}"),
        ("{path: rows.csv, split: train}", "rows.csv"),
        ("rows.csv", "link.csv"),
        ("rows.csv\nsplit: test", "rows.csv"),
        ("{path: folder, split: train}", "{path: ./folder/}"),
        ("folder", "{path: folder, split: train}"),
        ("movie", "{path: movie, split: train}"),
        ("org/data", "{path: org/data, name: plain}"),
    ],
)
def test_public_text_is_not_the_private_data_however_its_path_is_written(data, public):
    pathlib.Path("rows.csv").write_text("text\na\n")
    pathlib.Path("link.csv").symlink_to("rows.csv")
    pathlib.Path("folder").mkdir()
    with pytest.raises(ConfigError, match=r"public names what data names.*private records.*Name other text"):
        load(BASE + f"data: {data}\npublic: {public}\n")


@pytest.mark.parametrize(
    ("data", "public"),
    [
        ("rows.csv", "other.csv"),
        ("folder", "{path: folder, split: test}"),
        ("folder\nsplit: validation", "{path: folder, split: train}"),
        ("{path: org/data, name: a}", "{path: org/data, name: b}"),
    ],
)
def test_other_rows_may_be_public(data, public):
    pathlib.Path("folder").mkdir()
    for name in ("rows.csv", "other.csv"):
        pathlib.Path(name).write_text("text\na\n")
    assert load(BASE + f"data: {data}\npublic: {public}\n").arguments["public"]
    if "split: validation" in data:
        with pytest.raises(ConfigError, match="public names what data names"):
            load(BASE + f"data: {data}\npublic: {{path: folder, split: validation}}\n")


def test_a_file_that_cannot_be_read_is_refused():
    pathlib.Path("latin.yaml").write_bytes(b"mechanism: caf\xe9")
    for path, words in (("missing.yaml", "cannot be read"), (".", "cannot be read"), ("latin.yaml", "not UTF-8")):
        with pytest.raises(ConfigError, match=words):
            recipe.load(path)


def test_a_recipe_holds_the_arguments_of_the_function():
    found = load("\ufeff" + BASE + "labels: [[a, 1], [b, 2]]\nout: run\ndata: a.csv\nbudget: b.db\nunit:\n")
    assert (found.kind, found.mechanism, found.out) == ("synthesize", "aug-pe", "run")
    assert found.data == {"path": "a.csv"} and found.arguments == {
        "epsilon": 1, "delta": 1e-6, "num_rows": 100, "labels": [("a", 1), ("b", 2)], "budget": {"path": "b.db"},
    }  # fmt: skip
    for kind in ("privatize", "synthesize"):
        taken = set(inspect.signature(getattr(hf_dpsynth, kind)).parameters)
        assert set(recipe.argument_names(kind)) == taken - {"ds", "mechanism", "insecure_noise_seed"}


def test_overrides_set_single_values():
    found = load(BASE, "epsilon=1e-2", "params.iterations=3", "data.path=x.csv", "out=run", "labels=[no, yes]")
    assert found.arguments["epsilon"] == 0.01 and found.arguments["params"] == {"iterations": 3}
    assert found.data == {"path": "x.csv"} and found.out == "run" and found.arguments["labels"] == ["no", "yes"]
    assert "num_rows" not in load(BASE, "num_rows=").arguments
    for wrong in ("epsilon", "=3", "a..b=1", "epsilon.x=3", "iterations=3", "params.iteration=3", "labels=[a"):
        with pytest.raises(ConfigError):
            load(BASE, wrong)


def test_a_plan_equals_that_of_the_function_and_reads_no_data():
    found = load(BASE + "labels: [neg, pos]\nlabel_column: label\ndata: {path: missing.csv}\n").plan()
    assert found == hf_dpsynth.plan("aug-pe", epsilon=1, delta=1e-6, num_rows=100, labels=["neg", "pos"])
    assert load(BASE).plan().noise_multiplier == 13.367
    assert load(BASE, "epsilon=.inf", "delta=").plan().noise_multiplier == 0.0
    with pytest.raises(ConfigError, match="epsilon is nan"):
        load(BASE, "epsilon=.nan").plan()


def test_a_plan_without_the_label_domain_says_what_it_leaves_out():
    assert "labels=" in load(BASE + "label_column: label\n").plan().warnings[-1]
    assert load(BASE + "label_column: label\nlabels: [neg, pos]\n").plan().warnings == ()


def test_shares_by_column_are_declared():
    plan = load(BASE + "label_column: [a, b]\nlabel_proportions: {a: {x: .5, y: .5}, b: {1: .25, 2: .75}}\n").plan()
    assert plan.labels == (("x", 1), ("x", 2), ("y", 1), ("y", 2)) and plan.proportions == (0.125, 0.375, 0.125, 0.375)


def test_a_plan_under_a_budget_is_accounted_as_the_run_will_be():
    text = "mechanism: aug-pe\nepsilon: 1\nnum_rows: 100\nbudget: {path: b.db, epsilon: 8, delta: 1e-6}\n"
    plan = load(text).plan()
    assert plan.account == "rdp" and plan.delta == 1e-6 and not pathlib.Path("b.db").exists()
    with pytest.raises(ConfigError, match=r"b\.db does not exist"):
        load(text, "budget=b.db").plan()
    with pytest.raises(ConfigError, match="budget has no delta"):
        load(text, "budget.delta=").plan()
    hf_dpsynth.PrivacyBudget("b.db", epsilon=8, delta=1e-6)
    assert load(text, "budget=b.db").plan() == plan


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_each_recipe_of_the_house_plans_and_is_named_after_what_it_does(path):
    found = recipe.load(path)
    plan = found.plan()
    epsilon = found.arguments.get("epsilon")
    name = f"{found.data['path']}-{found.mechanism}" + ("" if epsilon is None else f"-eps{epsilon:g}")
    assert path.stem == name == found.out and len(plan.warnings) == TOLD.get(found.mechanism, 0)
    assert line(path, found, plan) in README.read_text().splitlines()
    features = hf_dpsynth.data.load(found.data["path"])["train"].features
    assert found.arguments.get("labels", features["label"].names) == features["label"].names


def test_a_recipe_privatizes_a_file_under_a_budget_and_a_second_run_spends_nothing():
    pathlib.Path("private.csv").write_text('text,label\n"good film",1\n,0\n')
    text = (
        "mechanism: madlib\nepsilon: 2\ndata: {path: private.csv}\nout: run\nkeep_columns: label\n"
        f"text_column: text\nvectors: {toy_vectors()}\nbudget: {{path: b.db, epsilon: 3, delta: 0, unit: word}}\n"
    )
    rows, release = load(text).run()
    again, _ = load(text).run()
    assert rows["text"][1] == "" and rows["label"][:] == [1, 0] and again["text"][:] == rows["text"][:]
    assert rows.privacy is release and hf_dpsynth.PrivacyBudget.open("b.db").remaining() == 1.0


def test_a_recipe_synthesizes_what_it_is_given(monkeypatch):
    from hf_dpsynth import models

    monkeypatch.setattr(models, "load_generator", lambda name: StubGenerator())
    monkeypatch.setattr(models, "load_embedder", lambda name: StubEmbedder())
    found = load(BASE + "label_column: label\nlabels: [neg, pos]\ntext_column: text\nparams: {iterations: 2}\n")
    rows, release = found.run(reviews())
    assert isinstance(rows, Dataset) and len(rows) == 100 and release.guarantee.epsilon == 1
    with pytest.raises(ConfigError, match="names no data"):
        found.run()


@pytest.mark.parametrize("odd", ["0", "none", "007", ""])
def test_a_label_of_csv_is_text_whatever_another_record_holds(odd):
    """One odd label must not decide whether a run happens, nor the type of what it makes."""
    lines = ["text,label", *(f"good film {i},{i % 2}" for i in range(20)), f"odd film,{odd}"]
    pathlib.Path("private.csv").write_text("\n".join(lines) + "\n")
    made = recipe.build({
        "mechanism": "aug-pe", "epsilon": 4, "delta": 1e-3, "num_rows": 4, "data": {"path": "private.csv"},
        "text_column": "text", "label_column": "label", "labels": [0, 1], "params": {"iterations": 1},
        "label_proportions": {0: 0.5, 1: 0.5},
    })  # fmt: skip
    arguments = {**made.arguments, "generator": StubGenerator(), "embedder": StubEmbedder()}
    rows, _ = dataclasses.replace(made, arguments=arguments).run()
    assert sorted(rows["label"][:]) == ["0", "0", "1", "1"]
