"""sec-pe: plans without an epsilon, one release for all rounds, the faults of the published code, on stub models."""

import json
import math
import re
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset

import hf_dpsynth
from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.mechanisms.evolution import sec_pe
from hf_dpsynth.mechanisms.evolution.sec_pe import SecPE
from hf_dpsynth.plans import Facts
from hf_dpsynth.privacy.accounting import leaves
from hf_dpsynth.privacy.secrets import GRID, reached, secret_allowance, usable
from tests.publish.forging import edit
from tests.stubs import CANARY, StubEmbedder, StubGenerator, files_with, reviews

PAIR = {"p": 1e-4, "r": 1e-3}
SMALL = PAIR | {"clusters": 6, "iterations": 2, "variations": 2}
ETA = secret_allowance(**PAIR)


def public(n=60, labels=("neg", "pos")):
    made = StubGenerator().generate([""] * n, seed=5)
    return Dataset.from_dict({"text": made, "label": [labels[i % len(labels)] for i in range(n)]})


def private(secrets=None, n=40):
    secrets = [[f"{CANARY}s{i % 5}"] if i % 2 else [] for i in range(n)] if secrets is None else secrets
    return reviews(n).add_column("secrets", secrets)


BLANK = Dataset.from_dict({"text": [""] * 40, "label": ["neg"] * 40, "secrets": [["x"]] * 40})


def protect(ds=None, **more):
    """Synthesize with stubs and small settings."""
    settings = {
        "epsilon": None, "text_column": "text", "label_column": "label", "labels": ["neg", "pos"], "num_rows": 10,
        "secrets": "secrets", "public": public(), "generator": StubGenerator(), "embedder": StubEmbedder(),
    }  # fmt: skip
    settings["params"] = SMALL | more.pop("params", {})
    return (private() if ds is None else ds).synthesize("sec-pe", **settings | more)


def committed(out="run"):
    """What the ledger holds, by key."""
    with sqlite3.connect(f"{out}/ledger.db") as database:
        rows = database.execute("SELECT key, value FROM charges ORDER BY number").fetchall()
    database.close()
    return {key: None if value is None else np.asarray(json.loads(value)) for key, value in rows}


def written(name):
    """The texts of a population on disk."""
    lines = Path(f"run/populations/{name}.jsonl").read_text().splitlines()
    return [json.loads(line)["text"] for line in lines]


@pytest.fixture
def drawn(monkeypatch):
    """The arguments of every draw: steps, places, number of places, event, vectors."""
    calls, real = [], sec_pe.noisy_sums
    monkeypatch.setattr(sec_pe, "noisy_sums", lambda *given: (calls.append(given), real(*given))[1])
    return calls


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"p": None}, "needs p and r"), ({"r": None}, "needs p and r"), ({"p": 0.1}, "p is 0.1"), ({"r": 1}, "r is 1"),
        ({"clusters": 0}, "clusters"), ({"release": "twice"}, "release"), ({"centres": "moved"}, "centres"),
        ({"weights": "even"}, "weights"), ({"p": {"email": 1e-5}}, "other"), ({"r": [0.1, 0.2]}, "r is"),
        ({"r": {"other": 1e-3, "email": 1e-4}}, "p is"), ({"iterations": 0}, "sec-pe: iterations"),
    ],
)  # fmt: skip
def test_a_field_out_of_range_is_refused_by_name(params, words):
    with pytest.raises(ConfigError, match=words):
        SecPE(**SMALL | params)


@pytest.mark.parametrize(
    ("params", "sigma", "rounds"),
    [
        ({}, 1.0, 1), ({"release": "each-round", "iterations": 9}, 3.0, 9), ({"centres": "updated"}, math.sqrt(2), 1),
        ({"release": "each-round", "iterations": 2, "centres": "updated"}, 2.0, 2), ({"r": 0.9}, 1.0, 1),
        ({"r": 1.01e-4}, 1.0, 1),
    ],
)  # fmt: skip
def test_the_noise_is_a_constant_and_the_plan_says_p_and_r(params, sigma, rounds):
    plan = hf_dpsynth.plan("sec-pe", epsilon=None, num_rows=100, params=PAIR | params)
    ((event, count),) = leaves(plan.event).items()
    assert (plan.noise_multiplier, event.sigma, count) == pytest.approx((sigma, sigma, rounds))
    assert (plan.guarantee.p, plan.guarantee.r) == (1e-4, params.get("r", 1e-3))
    assert plan.delta is None and plan.cost.lm_calls > 0 and "epsilon" not in plan.guarantee.statement().lower()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"epsilon": 1.0}, "epsilon=.*p and"), ({"delta": 1e-6}, "delta="), ({"adjacency": "zero-out"}, "adjacency="),
        ({"unit": "user"}, "unit='user'"), ({"secrets": None}, "needs secrets="), ({"public": None}, "needs public="),
    ],
)  # fmt: skip
def test_what_speaks_of_another_guarantee_or_is_missing_is_an_error(given, words):
    with pytest.raises(ConfigError, match=words):
        protect(**given)


def test_a_budget_is_refused_and_other_mechanisms_need_an_epsilon():
    with pytest.raises(ConfigError, match="sec-pe takes no budget="):
        protect(budget=hf_dpsynth.PrivacyBudget("b.db", epsilon=1, delta=1e-6))
    with pytest.raises(ConfigError, match="epsilon is None"):
        hf_dpsynth.plan("aug-pe", epsilon=None, delta=1e-6)
    with pytest.raises(ConfigError, match="takes no secrets="):
        reviews(4).synthesize("aug-pe", epsilon=1, text_column="text", secrets="regex")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (Dataset.from_dict({"text": [], "label": []}), "no row with text"), (public(4), "distinct public texts"),
        (public(20, ("neg",)), "no row of the label"),
        (Dataset.from_dict({"text": ["same"] * 20, "label": ["neg", "pos"] * 10}), "distinct public texts, 2"),
    ],
)  # fmt: skip
def test_public_rows_that_make_no_clusters_are_an_error_before_anything_is_spent(rows, words):
    with pytest.raises(ConfigError, match=words):
        protect(public=rows, out="run")


def test_duplicated_public_texts_count_once(drawn):
    twice = Dataset.from_dict({name: public(20)[name][:] * 2 for name in ("text", "label")})
    protect(public=twice, params={"clusters": 20})
    assert drawn[0][2] == 20


def test_rows_come_with_their_labels_and_without_the_secrets():
    out = protect(out="run")
    assert len(out) == 10 and out.column_names == ["text", "label"] and set(out["label"]) <= {"neg", "pos"}
    assert [charge.key for charge in out.privacy.charges] == ["counts"]
    assert protect(label_proportions={"neg": 0.7, "pos": 0.3})["label"][:].count("neg") == 7


def test_each_round_releases_once_a_round():
    out = protect(params={"release": "each-round", "iterations": 3, "centres": "updated", "lookahead": 1})
    assert [charge.key for charge in out.privacy.charges] == ["counts-001", "counts-002", "counts-003"]
    assert len(out) == 10


def test_one_allowance_holds_over_the_rows_of_all_labels(drawn):
    ds = private([["the same"]] * 40)  # a solve for each label would let the secret weigh twice its allowance
    protect(ds)
    steps, places, *_ = drawn[0]
    assert 0.98 * ETA * GRID < steps.sum() <= ETA * GRID
    assert places.min() < 3 <= places.max(), "rows of both labels are counted, each for clusters of its label"


def test_rows_are_weighted_as_charged_and_not_drawn_by_chance(drawn):
    for _ in range(2):
        protect(private([["one"]] * 20 + [[]] * 20))
    (first, *_), (second, *_) = drawn
    assert (first == second).all() and set(np.unique(first)) == {first.min(), GRID} and 0 < first.min() < GRID


@pytest.mark.parametrize(
    "ds", [private([[]] * 40), private([[f"s{i}"] for i in range(40)]), private([["x"]], n=1), BLANK],
    ids=["no secret", "a secret in every row", "one row", "no text"]
)  # fmt: skip
def test_there_is_noise_whatever_is_counted(ds, drawn):
    out = protect(ds, out="run")
    (steps, places, size, event, _), (noisy,) = drawn[0], committed().values()
    clean = np.bincount(places, weights=steps, minlength=size) / GRID
    assert len(out) == 10 and event.sigma == 1.0 and (noisy != clean).all()
    assert 0.2 < np.std(noisy - clean) < 2.2  # six draws of N(0, 1): outside once in 10,000


def test_rows_that_cannot_vote_keep_their_part_of_the_weights(drawn):
    # whether a text is blank may depend on the value of its secret, so no other weight may depend on it
    rows = private([["one"]] * 40)
    blank = rows.map(lambda row, at: {"text": "" if at < 10 else row["text"]}, with_indices=True)
    for ds in (rows, blank):
        protect(ds)
    assert len(drawn[0][0]) == 40 and len(drawn[1][0]) == 30
    assert set(drawn[0][0]) == set(drawn[1][0])


def test_a_private_vector_that_is_not_finite_counts_for_nothing_and_raises_no_error(drawn):
    class Fragile(StubEmbedder):
        def embed(self, texts):
            rows = super().embed(texts)
            rows[[f"{CANARY}3" in text for text in texts]] = np.nan
            return rows

    protect(embedder=Fragile())
    assert len(drawn[0][0]) == 40 - 11  # 3 and 30 to 39


def test_kinds_have_an_allowance_of_their_own(drawn):
    pairs = [[{"kind": "email", "value": "a"}]] * 20 + [[{"kind": "city", "value": "b"}]] * 20
    params = {"r": {"email": 2e-4, "other": 1e-3}}
    out = protect(private(pairs), params=params)
    steps = np.sort(drawn[0][0])
    assert steps[:20].sum() <= secret_allowance(1e-4, 2e-4) * GRID < steps[20:].sum() <= ETA * GRID
    assert out.privacy.guarantee.kinds == (("email", 1e-4, 2e-4),) and "email" in out.privacy.card()


@pytest.mark.parametrize("centres", ["counts", "updated"])
def test_public_rows_and_noisy_weights_vote_for_the_nearest_text(centres, monkeypatch):
    cast, real = [], sec_pe.Evolution.scores
    monkeypatch.setattr(sec_pe.Evolution, "scores", lambda self, votes: (cast.append(votes), real(self, votes))[1])
    noisy_sums = sec_pe.noisy_sums  # sums so large that centres which did not move would vote for other texts
    monkeypatch.setattr(sec_pe, "noisy_sums", lambda *given: 1000 * noisy_sums(*given))
    protect(out="run", params={"centres": centres}, label_proportions={"neg": 0.5, "pos": 0.5})
    released = committed()["counts"].reshape(6, -1)
    sizes = np.maximum(0, released[:, 0]).sum() + len(set(zip(public()["text"], public()["label"], strict=True)))
    for votes in cast:
        assert sum(part.sum() for _, part in votes) == pytest.approx(sizes)
    population = written("population-000")
    texts, embedder = population[:5], StubEmbedder()  # those of the first label
    members = [int(text) for text in written("public-clusters")]
    rows = list(dict.fromkeys(t for t, own in zip(public()["text"], public()["label"], strict=True) if own == "neg"))
    vectors, expected = embedder.embed(rows), dict.fromkeys(texts, 0.0)
    for cluster, noisy in enumerate(released[: len(set(members[: len(rows)]))]):
        mine = vectors[[at for at, own in enumerate(members[: len(rows)]) if own == cluster]]
        centre = mine.sum(axis=0) / np.linalg.norm(mine.sum(axis=0)) * (len(mine) if centres == "updated" else 1)
        moved = centre + (noisy[1:] if centres == "updated" else 0)
        expected[texts[int((embedder.embed(texts) @ moved).argmax())]] += len(mine) + max(0.0, noisy[0])
    (kept, votes), _ = cast[0]
    assert dict(zip((texts[at] for at in kept), votes, strict=True)) == pytest.approx(expected)


def test_nothing_private_lies_in_the_run_directory():
    out = protect(private([[f"{CANARY}s{i % 5}"] for i in range(40)]), out="run", secrets="secrets")
    assert not files_with("run", CANARY) and CANARY not in out.privacy.card() + repr(out.privacy)
    steps = sec_pe.secret_weights(sec_pe.incidence([[("other", str(i % 5))] for i in range(40)]), {"other": ETA})
    for needle in (str(steps[0]), str(steps[0] / GRID), str(steps[0] * 8)):
        assert not files_with("run", needle)


def test_the_plan_does_not_depend_on_the_data():
    one, other = protect().privacy.plan, protect(private([["x", "y"]] * 7, n=7)).privacy.plan
    assert one == other
    assert protect(num_rows=None).privacy.plan.num_records == 40


def test_a_run_that_stopped_anywhere_ends_with_rows_and_one_charge(monkeypatch):
    class Stops(StubGenerator):
        def generate(self, prompts, **more):
            if self.calls == self.crash_after:
                raise KeyboardInterrupt
            return super().generate(prompts, **more)

    values = []
    for calls in (0, 1, 1):  # a population that is there is not made again
        generator = Stops()
        generator.crash_after = calls
        with pytest.raises(KeyboardInterrupt):
            protect(out="run", generator=generator)
        values.append(committed()["counts"])
    seen, real = [], StubEmbedder.embed
    monkeypatch.setattr(StubEmbedder, "embed", lambda self, texts: (seen.extend(texts), real(self, texts))[1])
    out = protect(out="run", generator=Stops())
    assert not any(CANARY in text for text in seen), "a committed release reads no private text again"
    assert len(out) == 10 and len(out.privacy.charges) == 1 and not out.privacy.notes
    assert all((value == values[0]).all() for value in [*values, committed()["counts"]])


@pytest.mark.parametrize("release", ["once", "each-round"])
def test_a_draw_that_was_lost_stays_lost(release, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    more = {"out": "run", "params": {"release": release}}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sec_pe, "noisy_sums", stopped)
        protect(**more)
    out = protect(**more)
    keys = [charge.key for charge in out.privacy.charges]
    assert keys == (["counts"] if release == "once" else ["counts-001", "counts-002"]) and len(out) == 10
    assert committed()[keys[0]] is None and keys[0] in out.privacy.notes[0]
    # one lost round is skipped; where the only release was lost, the public rows vote alone
    assert Path("run/populations/population-001.jsonl").exists() == (release == "once")
    assert hf_dpsynth.verify("run").ok
    # other secrets are other data
    with pytest.raises(hf_dpsynth.errors.ResumeMismatch):
        protect(private([["other"]] * 40), **more)


def test_more_rows_cost_nothing():
    out = protect()
    assert len(out.privacy.more(5)) == 5


def test_the_record_states_secret_protection_and_nothing_else():
    out = protect(out="run", secrets=lambda text: text.split()[:1])
    facts = json.loads(Path("run/privacy.json").read_text())
    assert facts["parameters"]["secret_protection"] == {"p": 1e-4, "r": 1e-3, "kinds": []}
    assert facts["claim_status"] == "formal_secret_protection_conditional" and facts["parameters"]["epsilon"] is None
    card = out.privacy.card().lower()
    assert "epsilon" not in card and "differential-privacy" not in card and "no listed secret" in card
    assert (
        "not differential privacy" in card and "presence of secrets" in card and "does not depend on the value" in card
    )
    assert hf_dpsynth.verify("run").ok and hf_dpsynth.load_privacy("run").guarantee == out.privacy.guarantee
    out.privacy.save("alone")
    assert hf_dpsynth.verify("alone").ok


def test_a_secret_release_cannot_be_stated_as_another():
    from dataclasses import replace

    from hf_dpsynth.guarantees import ApproxDP

    with pytest.raises(PrivacyError, match="ApproxDP"):
        replace(protect().privacy, guarantee=ApproxDP(epsilon=1.0, delta=1e-5)).card()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f["parameters"]["secret_protection"].update(r=2e-4), "secret_protection"),
        (lambda f: f["parameters"].update(epsilon=1.0), "epsilon"),
        (lambda f: f.update(claim_status="formal_dp"), "claim_status"),
        (lambda f: f.update(definition="approximate_dp"), "definition|claim_status"),
        (lambda f: f["accounting"]["events"]["event"].update(sigma=(0.9).hex()), "less noise"),
        (lambda f: f["accounting"]["events"].update(count=2), "less noise"),
        (lambda f: f["accounting"]["events"]["event"].update(allowances=[]), "not one allowance for each of 1"),
        (lambda f: f["accounting"]["events"]["event"].update(allowances=[(1.0).hex()]), "the events 0.00"),
        (lambda f: f["accounting"]["events"]["event"].update(allowances=[(0.5).hex()]), "not those of sec-pe"),
        (lambda f: f["accounting"]["events"]["event"].update(allowances=[(-1.0).hex()]), "allowances"),
        (lambda f: f["accounting"]["assumptions"].pop(0), "without 'which rows"),
        (lambda f: f["accounting"]["assumptions"][-1].update(holds=True), "claim_status"),
    ],
)
def test_verify_finds_a_forged_claim(change, words):
    protect(out="run", params={"iterations": 1})
    facts = json.loads(Path("run/privacy.json").read_text())
    change(facts)
    Path("run/privacy.json").write_text(json.dumps(facts))
    found = hf_dpsynth.verify("run")
    assert not found.ok and any(re.search(words, finding) for finding in found.findings), found.findings


def test_a_smaller_bound_is_not_claimed_of_the_weights_of_a_larger_one():
    protect(out="run")

    def forge(facts):
        facts["parameters"]["secret_protection"]["r"] = 1.02e-4
        facts["mechanisms"][0]["params"]["r"] = 1.02e-4

    found = edit(Path("run"), forge, everywhere=True)
    assert any("r is 0.000102, the events 0.001" in line for line in found.findings), found.findings


def test_what_nobody_checks_is_the_publishers_word():
    protect(out="run")
    found = {one["name"]: one for one in json.loads(Path("run/privacy.json").read_text())["accounting"]["assumptions"]}
    public = found["no row of public= is a private row"]
    assert public["holds"] is True and "nothing checks it" in public["note"]
    assert "no row of public= is a private row (declared by the publisher" in Path("run/README.md").read_text()
    assert not any("by construction" in one["note"] for one in found.values() if "secret" in one["name"])


def test_two_secrets_that_tell_of_each_other_need_a_prior_that_knows_the_other():
    event = SecPE(**PAIR).event(1.0, Facts())
    assert reached(1e-4, 2 * usable(1e-4, 1e-3, event), event) > 6e-3  # whoever knows neither gains from both
    assert "all other secrets and rows known" in protect().privacy.guarantee.statement()


def test_recipes_and_flags_plan_without_an_epsilon(call):
    from hf_dpsynth import recipe

    values = {"mechanism": "sec-pe", "num_rows": 10, "secrets": "regex", "params": {"p": 1e-4, "r": 1e-3}}
    assert recipe.build(values).plan().guarantee.r == 1e-3
    with pytest.raises(ConfigError, match="epsilon is missing"):
        recipe.build({"mechanism": "aug-pe", "num_rows": 10})
    Path("r.yaml").write_text(json.dumps(values))
    code, out, _ = call("plan", "r.yaml")
    assert code == 0 and "secret protection" in out and "epsilon" not in out and "noise multiplier: 1" in out
    code, _, err = call("synthesize", "nowhere.csv", "--mechanism", "sec-pe", "--param", "p=1e-4", "--out", "o")
    assert code == 2 and "needs p and r" in err
