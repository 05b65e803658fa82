"""The two public functions: what comes back, what is refused, what is inherited."""

import gc
import math
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Value, concatenate_datasets

import hf_dpsynth
from hf_dpsynth.errors import BudgetExceeded, ConfigError, HfDpsynthError, ResumeMismatch
from hf_dpsynth.guarantees import ApproxDP
from tests.stubs import CANARY, StubEmbedder, StubGenerator, reviews, synth, toy_vectors


def test_a_plain_dataset_comes_back_with_its_guarantee():
    out = synth()
    assert type(out) is Dataset and len(out) == 12 and set(out.column_names) == {"text", "label"}
    guarantee = out.privacy.guarantee
    assert isinstance(guarantee, ApproxDP) and (guarantee.epsilon, guarantee.delta) == (4.0, 1e-4)
    statement = out.privacy.statement()
    assert "(4, 0.0001)-differentially private per record under add-remove adjacency" in statement
    assert "row-independent" in statement or "embeds each row independently" in statement


def test_the_relation_follows_from_what_the_plan_uses():
    assert synth().privacy.guarantee.neighbours == "add-remove"
    assert synth().privacy.plan.num_records is None
    sized = synth(reviews(24), num_rows=None)
    assert (sized.privacy.guarantee.neighbours, len(sized), sized.privacy.plan.num_records) == ("zero-out", 24, 24)
    assert "the number of records is public" in sized.privacy.statement()
    with pytest.raises(ConfigError, match="num_rows"):
        synth(num_rows=None, adjacency="add-remove")
    with pytest.raises(ConfigError, match="delta"):
        hf_dpsynth.plan("aug-pe", epsilon=1.0, num_records=5000, num_rows=10, adjacency="add-remove")
    replaced = synth(adjacency="replace-one").privacy
    assert replaced.plan.noise_multiplier / synth().privacy.plan.noise_multiplier == pytest.approx(2**0.5, rel=0.02)


def test_neighbouring_data_sets_of_one_declaration_get_one_plan():
    plans = {synth(reviews(n), num_records=60, num_rows=None).privacy.plan.digest() for n in (59, 60)}
    assert len(plans) == 1


@pytest.mark.parametrize("kind", ["string", "classlabel", "int", "bool"])
def test_labels_keep_their_type(kind):
    ds, domain = reviews(label_type=int), [0, 1]
    if kind == "string":
        ds, domain = reviews(), ["neg", "pos"]
    elif kind == "classlabel":
        ds, domain = ds.cast_column("label", ClassLabel(names=["neg", "pos"])), None
    elif kind == "bool":
        ds, domain = ds.cast_column("label", Value("bool")), [False, True]
    out = synth(ds, labels=domain)
    assert out.features["label"] == ds.features["label"]
    assert set(out["label"][:]) <= set(ds["label"][:])


def test_several_conditioning_columns_take_a_joint_domain():
    ds = reviews().add_column("stars", [i % 5 + 1 for i in range(60)])
    domain = {"label": ["neg", "pos"], "stars": [1, 5]}
    out = synth(ds, label_column=["label", "stars"], labels=domain, num_rows=16)
    assert set(out.column_names) == {"text", "label", "stars"} and set(out["stars"][:]) <= {1, 5}
    shares = {("neg", 1): 0.25, ("pos", 5): 0.75}
    out = synth(ds, label_column=["label", "stars"], labels=None, label_proportions=shares, num_rows=16)
    assert list(zip(out["label"][:], out["stars"][:], strict=True)).count(("pos", 5)) == 12
    by_column = {"label": {"neg": 0.5, "pos": 0.5}, "stars": {1: 0.25, 5: 0.75}}
    out = synth(ds, label_column=["label", "stars"], labels=None, label_proportions=by_column, num_rows=16)
    assert list(zip(out["label"][:], out["stars"][:], strict=True)).count(("pos", 5)) == 6


def test_text_without_labels():
    out = synth(reviews().remove_columns("label"), label_column=None, labels=None)
    assert out.column_names == ["text"] and out.privacy.charges[0].key == "votes-001"


def test_a_dict_is_read_at_its_split_and_only_train_comes_back():
    both = DatasetDict(train=reviews(), test=reviews(10))
    out = synth(both)
    assert type(out) is DatasetDict and list(out) == ["train"]
    assert out.privacy is not None and out["train"].privacy is out.privacy
    with pytest.raises(ConfigError, match="split 'dev'"):
        synth(both, split="dev")


def test_derived_datasets_inherit_nothing():
    out = synth()
    assert out.privacy is not None
    derived = [
        out.select([0]), out.map(lambda row: row), out.filter(lambda row: True), out.shuffle(seed=0),
        concatenate_datasets([out, reviews()]), Dataset.from_dict(out.to_dict()), out.with_format("numpy"),
    ]  # fmt: skip
    assert [ds.privacy for ds in derived] == [None] * len(derived)
    assert out.privacy is not None
    dictionary = synth(DatasetDict(train=reviews()))
    dictionary["train"] = reviews()
    assert dictionary.privacy is None


def test_fingerprints_of_released_rows_are_random():
    assert synth(out="a")._fingerprint != synth(out="a")._fingerprint


def test_releases_of_forgotten_datasets_are_forgotten():
    from hf_dpsynth import release

    gc.collect()
    before = len(release._releases)
    out = synth()
    assert len(release._releases) == before + 1
    del out
    gc.collect()
    assert len(release._releases) == before


def test_infinite_epsilon_runs_without_noise_and_says_so():
    assert "No privacy" in synth(epsilon=math.inf, delta=None).privacy.statement()


def test_an_insecure_seed_marks_the_release():
    assert synth(insecure_noise_seed=1).privacy.statement().startswith("NOT PRIVATE")


BAD = {
    "epsilon": [{"epsilon": 0}, {"epsilon": -1.0}, {"epsilon": math.nan}, {"epsilon": "4"}, {"epsilon": None}],
    "delta": [{"delta": 2.0}, {"delta": 0.0}, {"delta": None}],
    "column": [{"text_column": "nope"}, {"text_column": None}, {"label_column": "nope"}, {"label_column": "text"}],
    "labels": [
        {"labels": None},
        {"labels": ["neg", "neg"]},
        {"labels": "neg"},
        {"labels": []},
        {"labels": [["neg"], ["pos"]]},
        {"labels": ["neg"]},
        {"labels": [f"label {i}" for i in range(5000)]},
        {"labels": [1, 2]},
        {"labels": [None, "neg"]},
        {"labels": {"label": "neg"}},
        {"labels": [0.5, "neg"]},
    ],
    "label_proportions": [
        {"label_proportions": {"neg": 0.5}},
        {"label_proportions": {"other": 1.0}},
        {"label_proportions": {"neg": "x"}},
        {"label_proportions": {"neg": math.nan, "pos": 1.0}},
        {"label_proportions": [0.5, 0.5]},
    ],
    "seed": [{"seed": "x"}, {"seed": -1}],
    "out": [{"out": 3}],
    "budget": [{"budget": "b.db"}],
    "num_rows": [{"num_rows": 0}, {"num_rows": 2.5}],
    "unit": [{"unit": "user_id"}],
    "adjacency": [{"adjacency": "swap"}],
    "params": [{"params": {"iteration": 3}}],
    "public": [{"public": "x"}],
    "secrets": [{"secrets": "x"}],
}


@pytest.mark.parametrize(("word", "change"), [(word, change) for word, changes in BAD.items() for change in changes])
def test_a_bad_argument_is_refused_by_name_and_nothing_runs(word, change):
    generator, embedder = StubGenerator(), StubEmbedder()
    with pytest.raises(HfDpsynthError) as caught:
        synth(**{"out": "run", "generator": generator, "embedder": embedder} | change)
    assert word.split("_")[0].rstrip("s") in str(caught.value).lower() and CANARY not in str(caught.value)
    assert generator.calls == embedder.calls == 0


@pytest.mark.parametrize("domain", [[0, 1, 2], [0, -1], ["neg", "bad"], [True, False], [0.0, 1.0]])
def test_a_domain_outside_of_the_class_label_is_refused_before_anything_runs(domain):
    generator = StubGenerator()
    ds = reviews(label_type=int).cast_column("label", ClassLabel(names=["neg", "pos"]))
    with pytest.raises(ConfigError, match="label"):
        synth(ds, labels=domain, generator=generator)
    assert generator.calls == 0


def test_a_missing_class_label_is_in_no_domain():
    ds = reviews(label_type=int)
    ds = ds.remove_columns("label").add_column("label", [-1, *ds["label"][1:]])
    ds = ds.cast_column("label", ClassLabel(names=["neg", "pos"]))
    assert set(synth(ds, labels=None)["label"][:]) <= {0, 1}


def test_numbers_are_text_when_their_column_is_named():
    ds = Dataset.from_dict({"code": [1, None, 30], "label": [0.5, 1.5, 2.5]})
    out = ds.privatize("madlib", epsilon=5, text_column="code", vectors=toy_vectors())
    assert out.features["code"] == Value("string") and out["code"][1] is None and all(out["code"][::2])
    assert len(synth(ds, text_column="code", label_column=None, labels=None)) == 12
    with pytest.raises(ConfigError, match="column"):
        ds.privatize("madlib", epsilon=5, vectors=toy_vectors())


def test_numpy_numbers_are_numbers():
    same = {"num_rows": np.int64(12), "seed": np.int64(0), "epsilon": np.float64(4.0)}
    ds = reviews(label_type=int)
    out = synth(ds, out="run", labels=np.asarray([0, 1]), **same)
    assert synth(ds, out="run", labels=[0, 1])["text"][:] == out["text"][:]


@pytest.mark.parametrize("kind", ["numpy", "arrow", "pandas"])
def test_the_format_of_the_private_data_does_not_matter(kind):
    ds = reviews().with_format(kind)
    assert len(synth(ds)) == 12
    assert len(ds.privatize("madlib", epsilon=5, text_column="text", vectors=toy_vectors())) == 60


@pytest.mark.parametrize("wrong", ["empty", "stream", "list", "no text"])
def test_an_object_that_cannot_be_used_is_refused(wrong):
    ds = {
        "empty": reviews().select([]),
        "stream": reviews().to_iterable_dataset(),
        "list": ["text"],
        "no text": Dataset.from_dict({"x": [1]}),
    }[wrong]
    with pytest.raises(ConfigError):
        hf_dpsynth.synthesize(ds, epsilon=1.0, delta=1e-5, num_rows=4)
    with pytest.raises(ConfigError):
        hf_dpsynth.privatize(ds, epsilon=1.0)


def test_unknown_mechanisms_get_the_closest_name():
    with pytest.raises(ConfigError, match="did you mean 'aug-pe'"):
        reviews().synthesize("aug-pee", epsilon=1.0)
    with pytest.raises(ConfigError, match="privatize"):
        reviews().synthesize("madlib", epsilon=1.0)


def test_the_second_call_spends_nothing_and_returns_the_same_rows():
    first, generator = synth(out="run"), StubGenerator()
    again = synth(out="run", generator=generator)
    assert again["text"][:] == first["text"][:] and again["label"][:] == first["label"][:]
    assert again.privacy.charges == first.privacy.charges and generator.calls == 0
    assert again.features == first.features


def test_rows_that_were_deleted_are_made_again_from_what_was_released():
    first = synth(out="run")
    shutil.rmtree("run/data")
    again = synth(out="run", generator=StubGenerator())
    assert again["text"][:] == first["text"][:] and again.privacy.charges == first.privacy.charges


@pytest.mark.parametrize("change", [{"epsilon": 2.0}, {"seed": 1}, {"num_rows": 13}, {"ds": reviews(61)}])
def test_another_plan_or_other_data_in_the_same_directory_is_refused(change):
    synth(out="run")
    with pytest.raises(ResumeMismatch):
        synth(**{"out": "run"} | change)
    assert len(synth(out="run").privacy.charges) == 4


@pytest.mark.parametrize("out", [None, "run"])
def test_further_rows_cost_nothing_and_follow_their_seed(out):
    first = synth(out=out, label_proportions={"neg": 0.25, "pos": 0.75})
    extra = first.privacy.more(40, seed=3)
    assert len(extra) == 40 and extra.features == first.features
    assert extra["label"][:].count("pos") == 30
    assert extra.privacy.charges == first.privacy.charges
    assert extra.privacy.statement() == first.privacy.statement()
    assert len(extra.privacy.more(2)) == 2
    assert extra.select([0]).privacy is None
    if out:
        again = synth(out=out, label_proportions={"neg": 0.25, "pos": 0.75}).privacy
        assert len(again.more(5, seed=3)) == 5 and len(again.charges) == 3
    for bad in ({"num_rows": 0}, {"num_rows": 3, "seed": -1}):
        with pytest.raises(ConfigError):
            first.privacy.more(**bad)


def test_further_rows_show_the_generator_only_released_text():
    generator = StubGenerator()
    out = synth(generator=generator)
    generator.prompts.clear()
    out.privacy.more(9)
    assert len(generator.prompts) == 9 and not any(CANARY in prompt for prompt in generator.prompts)


def test_a_directory_is_not_continued_against_the_users_will():
    synth(out="run")
    with pytest.raises(ConfigError, match="resume=False"):
        synth(out="run", resume=False)


def test_a_shared_budget_refuses_what_does_not_fit_before_any_model_runs():
    budget = hf_dpsynth.PrivacyBudget("b.db", epsilon=4.5, delta=1e-4)
    synth(out="a", budget=budget, delta=None)
    assert 3.9 < budget.spent() <= 4.0
    assert len(synth(out="a", budget=budget).privacy.charges) == 4
    generator = StubGenerator()
    with pytest.raises(BudgetExceeded, match=r"4\.5"):
        synth(out="b", budget=budget, generator=generator)
    assert generator.calls == 0 and 3.9 < budget.spent() <= 4.0


def test_a_deleted_run_directory_does_not_give_its_budget_back():
    budget = hf_dpsynth.PrivacyBudget("b.db", epsilon=4.5, delta=1e-4)
    synth(out="a", budget=budget)
    shutil.rmtree("a")
    with pytest.raises(BudgetExceeded):
        synth(out="a", budget=budget)
    assert len(synth(reviews(40), out="a", budget=budget, epsilon=1.0)) == 12
    assert 4.0 < budget.spent() <= 4.5


def test_a_refused_run_reserves_nothing_and_leaves_no_plan():
    budget = hf_dpsynth.PrivacyBudget("b.db", epsilon=4.5, delta=1e-4)
    synth(out="a")
    with pytest.raises(ResumeMismatch):
        synth(out="a", budget=budget)
    with pytest.raises(ResumeMismatch):
        synth(reviews(61), out="a", budget=budget)
    assert budget.spent() == 0
    with pytest.raises(BudgetExceeded):
        synth(out="b", budget=budget, epsilon=5.0)
    assert len(synth(out="b", budget=budget)) == 12


def test_a_run_killed_between_plan_and_ledger_starts_again():
    os.mkdir("a")
    pathlib.Path("a/plan.json.partial").write_text("{")
    assert len(synth(out="a")) == 12
    assert not os.path.exists("a/plan.json.partial")


def test_a_run_in_memory_that_fails_gives_back_what_it_did_not_spend():
    class Broken(StubGenerator):
        def generate(self, prompts, **more):
            raise OSError("the model is gone")

    budget = hf_dpsynth.PrivacyBudget("b.db", epsilon=4.5, delta=1e-4)
    with pytest.raises(OSError, match="gone"):
        synth(budget=budget, generator=Broken())
    assert budget.spent() < 2.0  # the label counts only
    synth(budget=hf_dpsynth.PrivacyBudget("b.db", epsilon=4.5, delta=1e-4), epsilon=2.0)


def test_methods_are_attached_and_detached_and_foreign_ones_are_kept():
    hf_dpsynth.register()
    hf_dpsynth.unregister()
    try:
        assert not hasattr(Dataset, "synthesize") and not hasattr(DatasetDict, "privacy")
        Dataset.privatize = lambda self: "foreign"
        with pytest.raises(ConfigError, match="HF_DPSYNTH_NO_PATCH"):
            hf_dpsynth.register()
        hf_dpsynth.unregister()
        assert reviews().privatize() == "foreign"
        assert not hasattr(DatasetDict, "synthesize"), "a refused registration attaches nothing"
    finally:
        del Dataset.privatize
        hf_dpsynth.register()
    assert Dataset.synthesize is DatasetDict.synthesize


def test_the_classes_are_left_alone_on_request():
    code = "import hf_dpsynth, datasets; print(hasattr(datasets.Dataset, 'synthesize'))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"HF_DPSYNTH_NO_PATCH": "1"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_hash_of_a_dataset_does_not_change_by_asking_for_its_privacy():
    from datasets.fingerprint import Hasher

    ds = reviews()
    before = Hasher.hash(ds)
    assert ds.privacy is None and Hasher.hash(ds) == before


def test_several_processes_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ConfigError, match="WORLD_SIZE"):
        synth()
