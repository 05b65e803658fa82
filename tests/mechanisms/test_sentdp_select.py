"""sentdp-select: plans, picks and stops by law, on stub models."""

import json
import math
import pathlib
import shutil

import numpy as np
import pytest
from datasets import Dataset
from dp_accounting import SelfComposedDpEvent

import hf_dpsynth
from hf_dpsynth.errors import ConfigError, ResumeMismatch
from hf_dpsynth.mechanisms.evolution.sentdp_select import SentDPSelect
from hf_dpsynth.plans import Facts
from hf_dpsynth.privacy import accounting
from hf_dpsynth.privacy.accounting import leaves
from hf_dpsynth.privacy.keys import public_generator
from hf_dpsynth.privacy.ledger import Ledger
from hf_dpsynth.privacy.picks import BoundedRangeDpEvent
from tests.publish.forging import edit, put
from tests.stubs import CANARY, StubEmbedder, StubGenerator, files_with, reviews

EVEN = {"neg": 0.5, "pos": 0.5}


def public(number=120, seed=5):
    texts = StubGenerator().generate([""] * number, seed=seed)
    return Dataset.from_dict({"text": texts, "label": ["pos", "neg"] * (number // 2)})


def made(ds=None, **more):
    settings = {
        "epsilon": 4.0, "delta": 1e-4, "text_column": "text", "label_column": "label", "labels": ["neg", "pos"],
        "label_proportions": EVEN, "num_rows": 8, "embedder": StubEmbedder(), "public": public(),
        "params": {"projections": 20},
    }  # fmt: skip
    return (reviews() if ds is None else ds).synthesize("sentdp-select", **settings | more)


@pytest.mark.parametrize(("field", "value"), [("picks", 0), ("picks", 1.5), ("projections", 0), ("again", 1)])
def test_a_field_out_of_range_is_refused_by_name(field, value):
    with pytest.raises(ConfigError, match=field):
        SentDPSelect(**{field: value})


def test_the_rows_are_public_texts_of_their_label_and_the_picks_cost_the_target():
    out = made(out="run")
    texts = dict(zip(public()["text"], public()["label"], strict=True))
    assert all(texts[text] == label for text, label in zip(out["text"], out["label"], strict=True))
    assert len(set(out["text"])) == 8 and sorted(out["label"]) == ["neg"] * 4 + ["pos"] * 4
    noise = out.privacy.plan.noise_multiplier
    ((leaf, count),) = leaves(out.privacy.plan.event).items()
    assert (leaf, count) == (BoundedRangeDpEvent(1 / noise), 4) and out.privacy.plan.params["picks"] == 4
    rho = 4 / (8 * noise**2)
    assert 3.99 < accounting.rdp_epsilon(out.privacy.plan.event, 1e-4) <= 4.0
    assert sum(one.rho * n for one, n in leaves(out.privacy.plan.event).items()) == pytest.approx(rho)
    assert out.privacy.guarantee.neighbours == "add-remove"
    found = hf_dpsynth.verify("run")
    assert found.ok, found.findings
    facts = json.loads(pathlib.Path("run/privacy.json").read_text())
    assert "pick from a public domain" in facts["scope"]["data_accesses_covered"][0]
    assert facts["randomness"]["prng"].startswith("AES") and files_with(".", CANARY) == []
    assert not edit(pathlib.Path("run"), put("mechanisms.0.params.picks", 3), everywhere=True).ok


def test_without_noise_the_deepest_texts_of_each_label_are_picked():
    out, ds, embedder = made(epsilon=math.inf, num_rows=2, params={"projections": 3}), reviews(), StubEmbedder()
    lines = public_generator(0, "projections").standard_normal((3, 64)).T
    for text, label in zip(out["text"], out["label"], strict=True):
        points = embedder.embed([t for t, own in zip(ds["text"], ds["label"], strict=True) if own == label]) @ lines
        others = [t for t, own in zip(public()["text"], public()["label"], strict=True) if own == label]
        depths = [
            min((points <= place).sum(0).min(), (points >= place).sum(0).min())
            for place in embedder.embed(others) @ lines
        ]
        assert text == others[int(np.argmax(depths))] and max(depths) > np.median(depths)


def test_labels_are_parallel_where_shares_are_declared_and_any_can_have_all_rows_where_they_are_bought():
    asked = {"epsilon": 2.0, "delta": 1e-5, "num_rows": 10}
    declared = hf_dpsynth.plan("sentdp-select", **asked, label_proportions={"a": 0.7, "b": 0.3})
    bought = hf_dpsynth.plan("sentdp-select", **asked, labels=["a", "b"])
    assert (declared.params["picks"], bought.params["picks"]) == (7, 10)
    assert {type(leaf).__name__ for leaf in leaves(bought.event)} == {"BoundedRangeDpEvent", "DiscreteGaussianDpEvent"}
    with pytest.raises(ConfigError, match="num_rows= must be given"):
        hf_dpsynth.plan("sentdp-select", epsilon=2.0, delta=1e-5)


def test_a_replacement_costs_four_times_as_much():
    facts = [Facts(num_rows=5, adjacency=adjacency) for adjacency in ("add-remove", "replace-one")]
    events = [SentDPSelect(picks=5).event(2.0, one) for one in facts]
    one, four = (sum(leaf.rho * count for leaf, count in leaves(event).items()) for event in events)
    assert isinstance(events[0], SelfComposedDpEvent) and four == pytest.approx(4 * one) == pytest.approx(4 * 5 / 32)


def test_fewer_picks_than_rows_are_repeated():
    out = made(params={"picks": 1, "projections": 5})
    assert len(out) == 8 and len(set(out["text"])) == 2
    assert len(made(params={"projections": 5, "again": True})) == 8


def test_the_plan_says_when_depths_drown():
    asked = {"epsilon": 0.5, "delta": 1e-5, "num_rows": 50}
    _, warning = hf_dpsynth.plan("sentdp-select", num_records=500, **asked).warnings
    needed = int(warning.split("About ")[1].split(" records")[0])
    assert len(hf_dpsynth.plan("sentdp-select", num_records=needed, **asked).warnings) == 1


def test_public_texts_are_needed_and_a_user_unit_is_refused():
    with pytest.raises(ConfigError, match="none of the label"):
        made(public=None)
    with pytest.raises(ConfigError, match="not offered"):
        made(reviews().add_column("owner", [str(i) for i in range(60)]), unit="owner")


def test_a_private_vector_that_is_not_finite_adds_to_no_depth():
    class Fragile(StubEmbedder):
        def embed(self, texts):
            rows = super().embed(texts)
            rows[[CANARY in text for text in texts]] = np.nan
            return rows

    assert len(made(epsilon=math.inf, embedder=Fragile())) == 8


def test_a_run_resumes_its_picks_and_refuses_other_public_texts():
    first, embedder = made(out="run"), StubEmbedder()
    shutil.rmtree("run/data")
    assert made(out="run", embedder=embedder)["text"][:] == first["text"][:] and embedder.calls == 0
    shutil.rmtree("run/data")
    with pytest.raises(ResumeMismatch, match="picks"):
        made(out="run", public=public(seed=6))


def test_lost_picks_are_public_texts_and_are_not_drawn_again(monkeypatch):
    class Stopped(BaseException):
        """A kill: nothing catches it."""

    def stop(*_):
        raise Stopped

    original = Ledger.commit
    monkeypatch.setattr(Ledger, "commit", stop)
    with pytest.raises(Stopped):
        made(out="run")
    monkeypatch.setattr(Ledger, "commit", original)
    embedder = StubEmbedder()
    out = made(out="run", embedder=embedder)
    assert embedder.calls == 0 and [charge.key for charge in out.privacy.charges] == ["picks"]
    assert len(set(out["text"])) == 8 and out.privacy.notes[0].startswith("picks was charged and lost")


def test_the_record_says_that_rows_are_public_texts_and_assumes_that_none_is_private():
    out = made(out="run")
    facts = json.loads(pathlib.Path("run/privacy.json").read_text())
    assert any("word for word" in line for line in facts["limitations"])
    assert any(one["name"] == "no row of public= is a private row" for one in facts["accounting"]["assumptions"])
    shutil.copytree("run", "forged")

    def strike(facts):
        held = facts["accounting"]["assumptions"]
        facts["accounting"]["assumptions"] = [one for one in held if "public=" not in one["name"]]

    found = edit(pathlib.Path("forged"), strike, everywhere=True)
    assert any("without 'no row of public= is a private row" in line for line in found.findings), found.findings
    assert hf_dpsynth.verify("run").ok and len(out) == 8
