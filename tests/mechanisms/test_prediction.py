"""dp-icl and invisible-ink: plans, rounds, batches and stops by law, on a toy model of a known law."""

import json
import math
import pathlib
import shutil
import sqlite3

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NonPrivateDpEvent, NoOpDpEvent, PoissonSampledDpEvent

import hf_dpsynth
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.prediction.dp_icl import DPICL
from hf_dpsynth.mechanisms.prediction.invisible_ink import InvisibleInk
from hf_dpsynth.mechanisms.prediction.models import LocalTokens
from hf_dpsynth.models.causal_lm import CausalLM
from hf_dpsynth.plans import Facts
from hf_dpsynth.privacy import accounting
from hf_dpsynth.privacy.accounting import leaves
from hf_dpsynth.privacy.ledger import Ledger
from hf_dpsynth.privacy.picks import BoundedRangeDpEvent
from hf_dpsynth.privacy.records import PrivateRecords
from tests.mechanisms import tiny
from tests.mechanisms.toy_tokens import END, ToyTokens
from tests.publish.forging import edit, put
from tests.stubs import CANARY, StubEmbedder, StubGenerator, files_with, reviews

SMALL = {
    "dp-icl": {"max_new_tokens": 3, "subsets": 3, "rate": 0.3},
    "invisible-ink": {"max_new_tokens": 4, "batch_size": 4},
}
EVEN = {"neg": 0.5, "pos": 0.5}
NEGATIVE, POSITIVE = set("awful dull slow bad".split()), set("great fun bright good".split())


def made(name, ds=None, **more):
    settings = {
        "epsilon": math.inf, "delta": 1e-4, "text_column": "text", "label_column": "label", "labels": ["neg", "pos"],
        "label_proportions": EVEN, "num_rows": 6, "generator": ToyTokens(), "params": {},
    }  # fmt: skip
    settings |= more
    settings["params"] = SMALL[name] | settings["params"]
    return (reviews() if ds is None else ds).synthesize(name, **settings)


@pytest.mark.parametrize(
    ("cls", "field", "value"),
    [
        (DPICL, "subsets", 0), (DPICL, "shots", 1.5), (DPICL, "sample", "often"), (DPICL, "rate", 0.0),
        (DPICL, "rate", math.nan), (DPICL, "rate", True), (DPICL, "force", 1), (DPICL, "texts", 0),
        (DPICL, "top_k", 0), (DPICL, "subject", " "), (DPICL, "subject", "a\nb"), (DPICL, "rate", [0.1]),
        (InvisibleInk, "batch_size", 0), (InvisibleInk, "temperature", 0.0), (InvisibleInk, "temperature", math.inf),
        (InvisibleInk, "max_new_tokens", 0), (InvisibleInk, "max_tokens", True), (InvisibleInk, "temperature", "1"),
    ],
)  # fmt: skip
def test_a_field_out_of_range_is_refused_by_name(cls, field, value):
    with pytest.raises(ConfigError, match=field):
        cls(**{field: value})


@pytest.mark.parametrize("name", SMALL)
def test_without_noise_the_rows_speak_the_words_of_their_label(name):
    out = made(name)
    for text, label in zip(out["text"], out["label"], strict=True):
        words = [word for word in text.split() if word != "<unk>"]
        own = sum(word in (POSITIVE if label == "pos" else NEGATIVE) for word in words)
        # the toy model likes each word of a prompt as often as it stands there, so 3 of 4 at least
        assert words and own >= 0.5 * len(words)
    assert sorted(out["label"]) == ["neg"] * 3 + ["pos"] * 3


def test_every_charge_of_dp_icl_covers_one_text_of_each_label_and_the_rate_is_declared():
    out = made("dp-icl", epsilon=100.0, out="run")
    noise = out.privacy.plan.noise_multiplier
    token = PoissonSampledDpEvent(0.3, GaussianDpEvent(noise))
    assert [charge.key for charge in out.privacy.charges] == ["text-000", "text-001", "text-002"]
    assert all(leaves(charge.event) == {token: 3} for charge in out.privacy.charges)
    assert leaves(out.privacy.plan.event) == {token: 9} and out.privacy.guarantee.neighbours == "add-remove"
    assert 99.9 < accounting.epsilon(out.privacy.plan.event, 1e-4, discretisation=1e-3) <= 100
    assert hf_dpsynth.verify("run").ok, hf_dpsynth.verify("run").findings
    facts = json.loads(pathlib.Path("run/privacy.json").read_text())
    (read,) = facts["scope"]["data_accesses_covered"]
    assert "distributions of next tokens" in read and "gradient" not in str(facts)
    assert facts["randomness"]["float_safe"] is False
    # a row less, a rate and a number of texts that are not those of the events
    for field, value in (("texts", 2), ("rate", 0.2)):
        shutil.copytree("run", f"forged-{field}")
        found = edit(pathlib.Path(f"forged-{field}"), put(f"mechanisms.0.params.{field}", value), everywhere=True)
        assert any("not those of dp-icl" in line for line in found.findings), found.findings


def test_all_batches_of_invisible_ink_cost_what_one_does():
    out = made("invisible-ink", epsilon=4.0, out="run")
    assert [type(charge.event) is NoOpDpEvent for charge in out.privacy.charges] == [False, True, True]
    ((leaf, count),) = leaves(out.privacy.plan.event).items()
    assert isinstance(leaf, BoundedRangeDpEvent) and count == 4
    rho = 4 * leaf.rho
    assert leaf.epsilon == pytest.approx(2 * math.sqrt(2 * rho / 4))
    assert 3.99 < accounting.rdp_epsilon(out.privacy.plan.event, 1e-4) <= 4.0
    assert out.privacy.guarantee.neighbours == "zero-out" and out.privacy.plan.num_records == 60
    found = hf_dpsynth.verify("run")
    assert found.ok, found.findings
    facts = json.loads(pathlib.Path("run/privacy.json").read_text())
    assert "token from clipped logits" in facts["scope"]["data_accesses_covered"][0]
    assert "at most one text" in facts["privacy_unit"]["contribution_bounding"] and "gradient" not in str(facts)
    found = edit(pathlib.Path("run"), put("mechanisms.0.params.max_new_tokens", 3), everywhere=True)
    assert any("not those of invisible-ink" in line for line in found.findings), found.findings


def test_a_replacement_costs_invisible_ink_four_times_as_much():
    facts = Facts(num_records=60, num_rows=6, adjacency="replace-one")
    one, four = (
        sum(leaf.rho * n for leaf, n in leaves(InvisibleInk().event(2.0, f)).items())
        for f in (Facts(num_records=60, num_rows=6, adjacency="zero-out"), facts)
    )
    assert four == pytest.approx(4 * one)


@pytest.mark.parametrize("name", SMALL)
def test_bought_shares_have_five_percent_of_the_budget_and_every_label_can_have_all_rows(name):
    mechanism = DPICL(rate=0.1) if name == "dp-icl" else InvisibleInk()
    mu = accounting.target_mu(4.0, 1e-5)
    facts = Facts(num_records=60, num_rows=6, labels=(("a",), ("b",)), adjacency="zero-out", mu=mu)
    fitted = mechanism.fitted(facts) if name == "dp-icl" else mechanism
    counts = leaves(fitted.event(2.0, facts))
    (sigma,) = [leaf.sigma for leaf in counts if hasattr(leaf, "sigma")]
    assert 1 / sigma**2 == pytest.approx(0.05 * mu**2)
    if name == "dp-icl":
        assert fitted.texts == 6
        declared = Facts(num_rows=6, labels=facts.labels, proportions=(0.7, 0.3), mu=mu)
        assert mechanism.fitted(declared).texts == 4


def test_bought_shares_run_to_the_end_and_are_one_charge():
    out = made("dp-icl", label_proportions=None, params={"texts": 4})
    assert out.privacy.charges[0].key == "label-counts"
    assert len(out) == 6 and max(np.bincount([label == "pos" for label in out["label"]])) <= 4


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("generator", [StubGenerator(), "http://127.0.0.1:9/v1#model"])
def test_a_generator_without_logits_is_refused_before_anything_is_spent(name, generator):
    with pytest.raises(ConfigError, match="local causal model alone"):
        made(name, generator=generator, out="run")
    shutil.rmtree("run")


@pytest.mark.parametrize("name", SMALL)
def test_users_embedders_and_short_contexts_are_refused(name):
    ds = reviews().add_column("owner", [str(i % 7) for i in range(60)])
    with pytest.raises(ConfigError, match="unit='owner' is not offered"):
        made(name, ds, unit="owner")
    with pytest.raises(ConfigError, match="takes no embedder"):
        made(name, embedder=StubEmbedder())
    model = ToyTokens()
    model.context = 60
    with pytest.raises(ConfigError, match="the model takes 60"):
        made(name, generator=model)


def test_relations_that_do_not_hold_are_refused():
    with pytest.raises(ConfigError, match="replace-one' is not offered by dp-icl"):
        made("dp-icl", adjacency="replace-one")
    with pytest.raises(ConfigError, match="add-remove"):
        made("invisible-ink", adjacency="add-remove")
    with pytest.raises(ConfigError, match="num_records"):
        hf_dpsynth.plan("dp-icl", epsilon=1, delta=1e-5, num_rows=4)


def test_work_out_of_proportion_is_refused_unless_it_is_meant():
    asked = {"epsilon": math.inf, "num_rows": 2000, "num_records": 9000}
    with pytest.raises(ConfigError, match="880000 times for 2000 rows"):
        hf_dpsynth.plan("dp-icl", **asked)
    assert hf_dpsynth.plan("dp-icl", **asked, params={"force": True}).cost.lm_calls == 880_000
    small = hf_dpsynth.plan("dp-icl", epsilon=math.inf, num_rows=3, num_records=9000)
    assert small.cost.lm_calls == 3 * 40 * 11 and small.cost.tokens == 120
    assert small.params["rate"] == pytest.approx(20 / 9000) and "force" not in small.params


def test_the_plan_says_when_the_noise_drowns_and_batches_stay_empty():
    found = DPICL().warnings(20.0, 1.0, 1e-5, Facts(num_rows=3))
    assert len(found) == 1 and "almost at random" in found[0] and DPICL().warnings(1.0, 1.0, 1e-5, Facts()) == ()
    asked = {"epsilon": 4.0, "delta": 1e-5, "num_records": 1000}
    (warning,) = hf_dpsynth.plan("invisible-ink", num_rows=500, **asked).warnings
    assert "Up to 125 rows" in warning
    assert hf_dpsynth.plan("invisible-ink", num_rows=125, **asked).warnings == ()


def test_no_record_is_in_two_batches_and_its_batch_is_a_function_of_its_place():
    mechanism, label = InvisibleInk(batch_size=4), ("a",)
    texts = [f"t{place}" if place % 9 else None for place in range(200)]
    labels = [("a",) if place % 3 else ("b",) for place in range(200)]
    plan = hf_dpsynth.plan("invisible-ink", epsilon=math.inf, num_records=200, num_rows=20)
    batches = mechanism.batches(PrivateRecords(texts, labels), plan, label, (20, 0.66))
    members = [text for batch in batches for text in batch]
    assert len(batches) == 20 and len(members) == len(set(members)) and 2 < len(members) / 20 < 6
    other = [text and ("null" if place == 7 else text.upper()) for place, text in enumerate(texts)]
    again = mechanism.batches(PrivateRecords(other, labels), plan, label, (20, 0.66))
    same = [[text.upper() for text in batch if text != "t7"] for batch in batches]
    assert [[text for text in batch if text != "null"] for batch in again] == same
    gone = [None if place == 7 else text for place, text in enumerate(texts)]
    moved = [("b",) if place == 7 else own for place, own in enumerate(labels)]
    for private in (PrivateRecords(gone, labels), PrivateRecords(texts, moved)):
        found = mechanism.batches(private, plan, label, (20, 0.66))
        assert found == [[text for text in batch if text != "t7"] for batch in batches]


@pytest.mark.parametrize("name", SMALL)
def test_what_a_prompt_holds_is_cut_and_the_public_one_holds_nothing(name):
    ds, model = reviews(20), ToyTokens()
    long = ds.map(lambda row: {"text": row["text"] * 50 + "\n\nExample: film"}, load_from_cache_file=False)
    made(name, long, generator=model, params={"max_tokens": 8, "rate": 1.0} if name == "dp-icl" else {"max_tokens": 8})
    sizes = {len(middle) for opened in model.opened for middle in opened}
    shown = 2 if name == "dp-icl" else 1
    assert 0 in sizes and max(sizes) <= shown * (1 + 8 + 1)
    assert all(middle.count(2) <= shown for opened in model.opened for middle in opened), "lines of a text are joined"


@pytest.mark.parametrize("name", SMALL)
def test_nothing_private_is_in_the_run_directory_and_the_number_of_records_only_where_it_is_public(name, caplog):
    made(name, reviews(977), epsilon=100.0, out="run")
    assert files_with(".", CANARY) == [] and CANARY not in caplog.text
    plan = pathlib.Path("run/plan.json").read_text()
    assert ("977" in plan) == (name == "invisible-ink")


class Stopped(BaseException):
    """A kill: nothing catches it."""


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("where", ["charge", "commit"])
def test_stopped_anywhere_a_run_ends_with_its_rows_and_within_its_plan(name, where, monkeypatch):
    original, lost = getattr(Ledger, where), 0
    for limit in (0, 2):
        calls = 0

        def counted(self, *args, **more):
            nonlocal calls
            calls += 1
            if calls > limit:  # noqa: B023
                raise Stopped
            return original(self, *args, **more)

        monkeypatch.setattr(Ledger, where, counted)
        with pytest.raises(Stopped):
            made(name, out=f"run{limit}")
        monkeypatch.setattr(Ledger, where, original)
        out = made(name, out=f"run{limit}")
        assert len(out) == 6 and all(out["text"])
        assert [charge.key for charge in out.privacy.charges] == ["text-000", "text-001", "text-002"]
        spent = sum((leaves(charge.event) for charge in out.privacy.charges), leaves(NoOpDpEvent()))
        assert all(count <= leaves(out.privacy.plan.event)[leaf] for leaf, count in spent.items())
        assert {type(leaf) for leaf in spent} == {NonPrivateDpEvent}
        lost += len(out.privacy.notes)
    assert (lost > 0) == (where == "commit"), "only a stop between charge and commit loses a text"


@pytest.mark.parametrize("name", SMALL)
def test_a_committed_text_is_never_drawn_again(name):
    first, model = made(name, out="run"), ToyTokens()
    shutil.rmtree("run/data")
    again = made(name, out="run", generator=model)
    assert again["text"][:] == first["text"][:] and model.opened == [] and model.steps == 0


def test_a_lost_text_is_a_public_one_and_the_release_says_so(monkeypatch):
    original = Ledger.commit
    monkeypatch.setattr(Ledger, "commit", lambda *_: (_ for _ in ()).throw(Stopped))
    with pytest.raises(Stopped):
        made("invisible-ink", out="run")
    monkeypatch.setattr(Ledger, "commit", original)
    model = ToyTokens()
    out = made("invisible-ink", out="run", generator=model)
    assert out.privacy.notes[0].startswith("text-000 was charged and lost")
    with sqlite3.connect("run/ledger.db") as database:
        rows = database.execute("SELECT key, state FROM charges ORDER BY number").fetchall()
    database.close()
    assert rows == [("text-000", "charged"), ("text-001", "committed"), ("text-002", "committed")]
    assert len(out) == 6 and all(out["text"])


class Ending(ToyTokens):
    """Would end every text before its first word."""

    def open(self, *args, **more):
        prompts = super().open(*args, **more)
        prompts.logits[:, END] = 60.0
        return prompts


@pytest.mark.parametrize("epsilon", [0.5, math.inf])
@pytest.mark.parametrize("name", SMALL)
def test_a_model_that_would_end_at_once_begins_with_its_likeliest_other_token(name, epsilon):
    out = made(name, epsilon=epsilon, generator=Ending(), params={"top_k": 1}, out="run")
    assert len(out) == 6 and all(out["text"])
    with sqlite3.connect("run/ledger.db") as database:
        states = [state for (state,) in database.execute("SELECT state FROM charges")]
    database.close()
    assert states == ["committed"] * 3


@pytest.mark.parametrize(("sample", "samples"), [("fresh", 3), ("kept", 1)])
def test_a_sample_serves_one_token_or_the_whole_text(sample, samples):
    model = ToyTokens()
    made("dp-icl", generator=model, num_rows=1, label_proportions={"neg": 1.0, "pos": 0.0}, params={"sample": sample})
    private = [opened for opened in model.opened if any(opened)]
    assert len(private) == samples
    facts = Facts(num_rows=1)
    counts = leaves(DPICL(sample=sample, rate=0.3, texts=1, max_new_tokens=4).event(2.0, facts))
    noise = {"fresh": 2.0, "kept": 1.0}[sample]
    assert counts == {PoissonSampledDpEvent(0.3, GaussianDpEvent(noise)): 4 if sample == "fresh" else 1}


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    return LocalTokens(CausalLM(tiny.save(tmp_path_factory.mktemp("model")), dtype="float32"))


def test_kept_keys_and_values_give_the_logits_of_whole_prompts(local):
    head, tail = [*local.start, 4, 5], [6, 7]
    middles = [[8, 9, 10], [], [11] * 20]
    prompts = local.open(head, middles, tail, most=24, room=2)
    for token in (12, 13):
        prompts.feed(token)
    whole = local.open(head, middles, [*tail, 12, 13], most=24, room=0)
    assert prompts.logits.shape == whole.logits.shape == (3, local._local.loaded.vocabulary)
    assert np.abs(prompts.logits - whole.logits).max() < 1e-4 < np.abs(np.diff(whole.logits, axis=0)).max()


def test_a_prompt_has_the_same_logits_to_the_last_bit_whatever_stands_in_the_others(local):
    rng = np.random.default_rng(0)
    own, tail = [8, 9, 10], [6]
    alone = local.open([4], [own], tail, most=24, room=1)
    alone.feed(12)
    for others in (1, 7, 9):
        middles = [rng.integers(4, 20, rng.integers(0, 24)).tolist() for _ in range(others)]
        prompts = local.open([4], [*middles, own], tail, most=24, room=1)
        prompts.feed(12)
        assert np.array_equal(prompts.logits[-1], alone.logits[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_smollm2_writes_messages_of_sms_spam(name):
    ds = hf_dpsynth.data.load("sms-spam")["train"].select(range(200))
    params = {"subject": "text message", "max_new_tokens": 6, "max_tokens": 24}
    params |= {"subsets": 2, "shots": 1} if name == "dp-icl" else {"batch_size": 4}
    out = ds.synthesize(
        name, epsilon=8, delta=1e-3, label_column="label", label_proportions={"ham": 0.5, "spam": 0.5}, num_rows=2,
        params=params, generator="smollm2-135m", out="run",
    )  # fmt: skip
    assert len(out) == 2 and all(out["text"]) and hf_dpsynth.verify("run").ok
    assert out.privacy.guarantee.assumptions == ("the number of records is public, not protected",)
