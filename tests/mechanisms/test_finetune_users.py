"""Fine-tuning that protects users: the public call, its plan, its guarantee and what is refused."""

import json
import math
import pathlib
from collections import Counter

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Value

import hf_dpsynth
from hf_dpsynth import cli, recipe
from hf_dpsynth.errors import ConfigError, ResumeMismatch
from hf_dpsynth.mechanisms.finetune import training
from hf_dpsynth.privacy.accounting import leaves
from hf_dpsynth.privacy.budget import PrivacyBudget
from hf_dpsynth.privacy.records import PrivateRecords
from tests.mechanisms import tiny
from tests.mechanisms.test_dp_eda import eda
from tests.mechanisms.test_finetune import PARAMS, Loop, tune
from tests.stubs import CANARY, files_with, reviews

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
pytestmark = pytest.mark.usefixtures("one_thread")
SETTINGS = {"epsilon": 3.0, "delta": 4e-5, "num_records": 25_000, "params": {"steps": 100, "batch_size": 1024}}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("model"))


def owned(users=32, n=96):
    """Reviews of users: the first of them wrote most."""
    ids = [f"zquser{max(0, number - n + users)}" for number in range(n)]
    return reviews(n).add_column("user_id", ids)


def by_user(model, ds=None, **more):
    return tune(model, ds=owned() if ds is None else ds, unit="user_id", **more)


def test_the_guarantee_is_of_users_and_every_file_says_so(model):
    made = by_user(model, out="run")
    release, plan = made.privacy, made.privacy.plan
    assert (release.guarantee.unit, plan.num_records, plan.unit_column) == ("user", 32, "user_id")
    statement = release.statement()
    assert "(2, 0.01)-differentially private per user under zero-out adjacency" in statement
    for sentence in (
        "the number of users is public", "a user is a value of the column 'user_id'", "at most 8 records of a user",
    ):  # fmt: skip
        assert sentence in statement
    facts = json.loads(pathlib.Path("run/privacy.json").read_text())
    unit = facts["privacy_unit"]
    assert (unit["level"], unit["column"], unit["max_contributions"]) == ("user", "user_id", 8)
    assert "cut at 16 tokens" in unit["contribution_bounding"] and facts["source"]["n_units"] == 32
    assert "per user under zero-out" in release.card() and "one user counts for nothing" in release.card()
    assert "each user enters each batch alone" in facts["accounting"]["sampling"]["actual"]
    assert any("only some records of a user" in item for item in facts["scope"]["not_covered"])
    assert set(made.features) == {"text", "label"}
    assert files_with("run", "zquser") == [] and files_with("run", CANARY) == []
    found = hf_dpsynth.verify("run")
    assert found.ok, found.findings
    again = hf_dpsynth.load_privacy("run")
    assert again.plan.unit_column == "user_id" and again.guarantee == release.guarantee
    assert "per user" in pathlib.Path("run/adapter/README.md").read_text()


def test_what_is_struck_out_of_a_user_release_is_found(model):
    by_user(model, out="run")
    for name in ("plan.json", "ledger.db", "release.json"):
        pathlib.Path("run", name).unlink()
    path = pathlib.Path("run/privacy.json")
    facts = json.loads(path.read_text())
    held = facts["accounting"]["assumptions"]
    for number in range(len(held)):
        fewer = {**facts, "accounting": {**facts["accounting"], "assumptions": held[:number] + held[number + 1 :]}}
        path.write_text(json.dumps(fewer))
        assert any("accounting.assumptions" in line for line in hf_dpsynth.verify("run").findings)
    path.write_text(json.dumps({**facts, "privacy_unit": {**facts["privacy_unit"], "column": "other"}}))
    assert not hf_dpsynth.verify("run").ok


def test_a_release_of_another_mechanism_cannot_claim_users():
    eda(out="run")
    path = pathlib.Path("run/privacy.json")
    facts = json.loads(path.read_text())
    facts["privacy_unit"] |= {"level": "user", "description": "one user"}
    path.write_text(json.dumps(facts))
    assert any("is not offered by dp-eda" in line for line in hf_dpsynth.verify("run").findings)


def test_a_plan_of_users_is_a_plan_of_as_many_records():
    records, users = (hf_dpsynth.plan("dp-lora", **SETTINGS, unit=unit) for unit in ("record", "user"))
    assert users.noise_multiplier == records.noise_multiplier and users.event == records.event
    assert (users.num_rows, records.num_rows) == (None, 25_000)
    assert "a user is a value of the column 'user'" in users.guarantee.statement()
    more = hf_dpsynth.plan("dp-lora", **SETTINGS, unit="author", num_rows=10)
    assert "of the column 'author'" in more.guarantee.statement()
    assert more.cost.training_tokens == 8 * records.cost.training_tokens
    assert hf_dpsynth.plan("dp-lora", **SETTINGS | {"delta": None}, unit="user").delta == 1e-6


def test_unit_user_names_the_column_of_that_name_in_a_plan_and_in_a_run(model):
    ds = owned().rename_column("user_id", "user")
    made = tune(model, ds=ds, unit="user")
    settings = {"epsilon": 2.0, "delta": 1e-2, "num_records": 32, "num_rows": 4, "params": PARAMS}
    planned = hf_dpsynth.plan("dp-lora", **settings, unit="user")
    assert made.privacy.guarantee.unit == "user" and planned.unit_column == made.privacy.plan.unit_column == "user"
    assert planned.guarantee == made.privacy.guarantee and "column 'user'" in made.privacy.statement()
    with pytest.raises(ConfigError, match="unit='user' names no column"):
        tune(model, ds=owned(), unit="user")


@pytest.mark.parametrize(
    ("more", "numbers"),
    [({"num_records": 60}, "60.*64 records"), ({"unit": "user_id", "num_records": 31}, "31.*32 users")],
)
def test_shuffled_batches_refuse_a_declared_number_below_the_one_that_is_there(model, more, numbers):
    ds = owned(n=64) if "unit" not in more else owned()
    with pytest.raises(ConfigError, match=rf"num_records is {numbers}.*Declare num_records="):
        tune(model, ds=ds, params={**PARAMS, "sampling": "shuffle"}, out="run", **more)
    assert not pathlib.Path("run").exists()
    number = more["num_records"] + (4 if "unit" not in more else 1)
    made = tune(model, ds=ds, params={**PARAMS, "sampling": "shuffle"}, **{**more, "num_records": number})
    assert made.privacy.plan.num_records == number


def test_a_smaller_declared_number_is_what_poisson_batches_are_drawn_by(model):
    made = tune(model, ds=owned(n=64), num_records=60)
    assert made.privacy.plan.num_records == 60 and made.privacy.guarantee.neighbours == "zero-out"


def test_recipes_take_the_unit(model):
    owned().to_csv("rows.csv")
    params = {name: value for name, value in PARAMS.items() if name != "dtype"}
    text = json.dumps({
        "mechanism": "dp-lora", "epsilon": 2.0, "delta": 1e-2, "text_column": "text", "unit": "user_id", "num_rows": 4,
        "num_records": 32, "generator": model, "params": params, "out": "run", "data": {"path": "rows.csv"},
    })  # fmt: skip
    pathlib.Path("r.yaml").write_text(text)
    found = recipe.load("r.yaml")
    rows, release = found.run()
    assert release.guarantee == found.plan().guarantee and rows.column_names == ["text"]


def test_the_command_line_takes_the_unit(model, capsys):
    owned().to_csv("rows.csv")
    flags = {
        "mechanism": "dp-lora", "epsilon": 2, "delta": 1e-2, "text-column": "text", "unit": "user_id", "num-rows": 4,
        "generator": model, "out": "run",
    }  # fmt: skip
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    words += [f"--param={name}={value}" for name, value in PARAMS.items()]
    assert cli.call(["synthesize", "rows.csv", *words]) == 0
    assert "per user under zero-out" in capsys.readouterr().out
    assert hf_dpsynth.load_privacy("run").plan.num_records == 32
    pathlib.Path("r.yaml").write_text("mechanism: dp-lora\nepsilon: 1\ndelta: 1e-5\nnum_records: 1000\n")
    assert cli.call(["plan", "r.yaml", "--unit", "user"]) == 0
    out = capsys.readouterr().out
    assert "per user" in out and "a user is a value of the column 'user'" in out


def test_users_of_a_csv_file_stay_as_they_are_written(model):
    pathlib.Path("rows.csv").write_text("text,id\na,1\nb,01\n")
    text = "mechanism: dp-lora\nepsilon: 1\ndelta: 1e-5\ntext_column: text\nunit: id\ndata: rows.csv\n"
    pathlib.Path("r.yaml").write_text(text)
    assert recipe.load("r.yaml").read()["id"][:] == ["1", "01"]


@pytest.mark.parametrize("kind", ["int64", "bool", "class", "null"])
def test_users_are_values_of_any_label_like_column(model, kind):
    numbers = [number % 24 for number in range(96)]
    ds = reviews(96).add_column("user_id", [n % 2 == 0 for n in numbers] if kind == "bool" else numbers)
    expected = {"int64": 24, "bool": 2, "class": 24, "null": 23}[kind]
    if kind == "class":
        ds = ds.cast_column("user_id", ClassLabel(names=[f"u{number}" for number in range(24)]))
    if kind == "null":
        ids = [None if number == 3 else f"u{number}" for number in numbers]
        ds = ds.remove_columns("user_id").add_column("user_id", ids)
    made = by_user(model, ds=ds, params={**PARAMS, "batch_size": 2, "steps": 2})
    assert made.privacy.plan.num_records == expected


def test_proportions_of_users_can_be_bought(model):
    made = by_user(model, label_proportions=None, labels=["pos", "neg"], out="run")
    assert made.privacy.charges[0].key == "label-counts" and hf_dpsynth.verify("run").ok
    assert "of which a user moves one count" in made.privacy.card()


def test_killed_and_resumed_with_users_nothing_is_charged_twice(model, monkeypatch):
    taken, step = [], training.Training._step

    def dies(self, engine, number):
        taken.append(number)
        if number == 3 and len(taken) == 4:
            raise KeyboardInterrupt
        step(self, engine, number)

    monkeypatch.setattr(training.Training, "_step", dies)
    with pytest.raises(KeyboardInterrupt):
        by_user(model, out="run")
    with pytest.raises(ResumeMismatch):
        tune(model, ds=owned(), out="run")
    other = owned().remove_columns("user_id").add_column("user_id", [f"zquser{n % 32}" for n in range(96)])
    with pytest.raises(ResumeMismatch, match="another data"):
        by_user(model, ds=other, out="run")
    made = by_user(model, out="run")
    assert len(taken) == len(set(taken)) and "steps-000003-000004 was charged and lost" in made.privacy.statement()
    spent = sum((leaves(charge.event) for charge in made.privacy.charges), Counter())
    assert spent == leaves(made.privacy.plan.event) and hf_dpsynth.verify("run").ok


class Users(Loop):
    """A training over users whose batches take everybody."""

    def __init__(self, model, texts, users, **options):
        super().__init__(model, texts, sigma=0.0, **options)
        everybody = PrivateRecords(texts, units=users).by_unit(((),))
        most, keys = self.mechanism.max_contributions, self.training._run.keys
        self.training._units = self.training._shard = training.capped(everybody, most, keys)
        self.training._batches = type("All", (), {"batch": lambda *_: np.arange(len(everybody))})()

    def sum(self):
        return self.step() * self.mechanism.batch_size


def test_users_with_1_and_100_records_move_the_update_by_at_most_the_clip_norm(model):
    others, clip = (["good film", "dull"], ["a", "b"]), 0.01
    without = Users(model, *others, clip_norm=clip).sum()
    moves = []
    for count in (1, 100):
        texts, users = others[0] + ["great awful fun"] * count, others[1] + ["new"] * count
        moves.append(Users(model, texts, users, clip_norm=clip).sum() - without)
    assert all(clip * 0.99 < np.linalg.norm(move) <= clip * (1 + 1e-5) for move in moves)
    assert np.allclose(*moves, atol=1e-6)


@pytest.mark.parametrize("engine", ["loop", "hooks"])
def test_a_user_with_more_records_than_a_micro_batch_moves_by_the_clipped_mean(model, engine):
    texts = ["good film", "bad plot", "dull", "great awful fun", "slow bright story", "cast", "bad"]
    loop = Users(model, texts, ["u"] * 7, clip_norm=0.05, micro_batch_size=2, engine=engine)
    found = training.per_example.engine(engine, loop.trainable.module, loop.trainable.losses, micro_batch_size=2)
    loop.training._step(found, 0)
    found.close()
    flat = []
    for text in texts:
        part = loop.trainable.losses([loop.training._encoder.example(0, text)])[0]
        flat.append(torch.cat([g.flatten() for g in torch.autograd.grad(part, loop.training._parameters)]).double())
    mean = sum(flat) / 7
    wanted = mean * min(1.0, 0.05 / mean.norm().item()) / loop.mechanism.batch_size
    moved = torch.cat([part.flatten() for part in loop.kept[-1]]).double()
    assert torch.allclose(moved, wanted, atol=1e-6)


def test_a_user_with_one_record_that_is_not_finite_changes_nothing(model):
    def summed(texts, users):
        loop = Users(model, texts, users)
        losses = loop.trainable.losses
        broken = len(loop.training._encoder.example(0, "script script script").tokens)
        loop.trainable.losses = lambda rows: losses(rows) * (math.nan if len(rows[0].tokens) == broken else 1.0)
        return loop.sum()

    mixed = summed(["good", "dull", "script script script", "bad"], ["u", "v", "v", "v"])
    assert np.array_equal(mixed, summed(["good"], ["u"]))


def test_the_cap_is_the_declared_one(model):
    loop = Users(model, ["good"] * 50 + ["bad"], ["u"] * 50 + ["v"], max_contributions=3)
    assert [len(unit) for unit in loop.training._units] == [3, 1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"unit": "nobody"}, "unit='nobody' names no column"),
        ({"unit": "text"}, "unit='text' cannot name the users"),
        ({"unit": "label"}, "unit='label' cannot name the users"),
        ({"unit": "score"}, "unit='score' cannot name the users"),
        ({"num_rows": None}, "num_rows= must be given with a user unit"),
        ({"delta": None}, "delta= must be given"),
        ({"adjacency": "add-remove"}, "reads a public share"),
        ({"params": {**PARAMS, "max_contributions": 0}}, "max_contributions is 0"),
        ({"params": {**PARAMS, "batch_size": 33}}, "batch_size is 33 and the data has 32 privacy units"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_spent(model, more, message):
    ds = owned().add_column("score", [0.5] * 96)
    with pytest.raises(ConfigError, match=message):
        by_user(model, **{"ds": ds, "out": "run", **more}) if "unit" not in more else tune(model, ds=ds, **more)
    assert not pathlib.Path("run/ledger.db").exists()


@pytest.mark.parametrize("unit", ["user_id", "user", 3])
def test_other_mechanisms_refuse_users(unit):
    ds = owned()
    with pytest.raises(ConfigError, match=r"unit=.* is not offered by dp-eda"):
        ds.synthesize("dp-eda", epsilon=1.0, delta=1e-5, text_column="text", num_rows=4, unit=unit)
    with pytest.raises(ConfigError, match=r"unit=.* is not offered by dp-eda"):
        hf_dpsynth.plan("dp-eda", epsilon=1.0, delta=1e-5, unit=unit)
    with pytest.raises(ConfigError, match=r"unit=.* is not offered by madlib"):
        ds.privatize("madlib", epsilon=1.0, text_column="text", unit=unit)


def test_budgets_of_users_and_records_do_not_mix(model):
    users = PrivacyBudget("u.db", epsilon=9.0, delta=1e-2, unit="user")
    by_user(model, budget=users, delta=None)
    assert 0 < users.spent() <= 9.0
    with pytest.raises(ConfigError, match="unit is 'record', the budget's is 'user'"):
        tune(model, budget=users)
    with pytest.raises(ConfigError, match="unit is 'user', the budget's is 'record'"):
        by_user(model, budget=PrivacyBudget("r.db", epsilon=9.0, delta=1e-2))


def test_a_budget_does_not_add_users_of_two_columns(model):
    budget = PrivacyBudget("u.db", epsilon=9.0, delta=1e-2, unit="user")
    ds = owned().add_column("house", [f"h{number % 40}" for number in range(96)])
    by_user(model, ds=ds, budget=budget, delta=None)
    spent = budget.spent()
    with pytest.raises(
        ConfigError, match=r"users of the column 'user_id'.*those of 'house'.*a budget for each column"
    ):
        tune(model, ds=ds, unit="house", budget=PrivacyBudget.open("u.db"), delta=None, out="run")
    assert budget.spent() == spent and not pathlib.Path("run").exists()
    by_user(model, ds=ds, budget=budget, delta=None)
    assert budget.spent() > spent


def test_the_plan_of_another_column_is_another_plan():
    plans = [hf_dpsynth.plan("dp-lora", **SETTINGS, unit=unit) for unit in (None, "user", "a", "b")]
    assert len({plan.digest() for plan in plans}) == 4 and len({plan.noise_multiplier for plan in plans}) == 1


def test_rows_without_any_user_are_refused(model):
    nobody = Dataset.from_dict({"u": [None] * 64}).cast_column("u", Value("string"))["u"][:]
    ds = reviews(64).add_column("user_id", nobody, feature=Value("string"))
    with pytest.raises(ConfigError, match="num_records is 0"):
        by_user(model, ds=ds)
