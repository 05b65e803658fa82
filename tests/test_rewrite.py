"""Rewriting from a Dataset to a verified folder: the claim, budgets, workers, the command line, and the real model."""

import json
import pathlib

import pytest
from datasets import Dataset, DatasetDict

import hf_dpsynth
from hf_dpsynth import PrivacyBudget, cli
from hf_dpsynth.errors import BudgetExceeded, ConfigError
from tests.mechanisms import tiny
from tests.stubs import CANARY, files_with

TEXTS = [f"good film {CANARY}", None, "", "bad plot slow story", f"{CANARY} great fun"] * 4
SMALL = {"dp-prompt": {"max_tokens": 16, "max_new_tokens": 6}, "dp-mlm": {"max_tokens": 16}}
DRAWS = {"dp-prompt": 6, "dp-mlm": 16}
MECHANISMS = ["dp-prompt", "dp-mlm"]


def private(texts=TEXTS):
    return Dataset.from_dict({"text": texts})


def model(kind="llama"):
    if not pathlib.Path(kind).exists():
        tiny.save_masked(kind) if kind == "bert" else tiny.save(kind, kind)
    return kind


@pytest.mark.parametrize(("mechanism", "kind"), [("dp-prompt", "gpt2"), ("dp-mlm", "llama"), ("dp-mlm", "bert")])
def test_a_saved_run_verifies_and_holds_no_private_text(mechanism, kind):
    made = private().privatize(mechanism, epsilon=30, params=SMALL[mechanism], generator=model(kind), out="run")
    assert made.column_names == ["text"] and [text is None for text in made["text"]] == [
        text is None for text in TEXTS
    ]
    release = made.privacy
    assert (release.guarantee.epsilon, release.guarantee.unit) == (30.0, "text")
    assert release.plan.model_ids["generator"].startswith(f"{kind}@")
    found = hf_dpsynth.verify("run")
    assert found.ok and found.findings == ()
    facts = json.loads(pathlib.Path("run/privacy.json").read_text())
    assert (facts["definition"], facts["claim_status"], facts["parameters"]["epsilon"]) == (
        "local_dp",
        "formal_dp",
        30,
    )
    assert facts["mechanisms"][0]["name"] == mechanism
    assert files_with("run", CANARY) == files_with("run.private", CANARY) == []
    facts["parameters"]["epsilon"] = 29
    pathlib.Path("run/privacy.json").write_text(json.dumps(facts))
    assert any("epsilon claimed 29" in finding for finding in hf_dpsynth.verify("run").findings)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_batches_do_not_change_the_rows(mechanism):
    options = {"epsilon": 90, "params": SMALL[mechanism], "generator": model(), "insecure_noise_seed": 3}
    one = private().privatize(mechanism, **options)
    assert one["text"] == private().privatize(mechanism, batch_size=3, **options)["text"]
    assert one["text"] != private().privatize(mechanism, **(options | {"insecure_noise_seed": 4}))["text"]
    assert one.privacy.statement().startswith("NOT PRIVATE")
    one.privacy.save("rows")
    assert hf_dpsynth.verify("rows").ok


def test_workers_do_not_change_the_rows():
    options = {"epsilon": 90, "params": SMALL["dp-prompt"], "generator": model(), "insecure_noise_seed": 3}
    one, two = (private().privatize("dp-prompt", num_proc=workers, **options)["text"] for workers in (1, 2))
    assert one == two and len(set(one)) > 5


def test_a_release_of_odd_parts_is_the_same_when_it_is_made_again_from_its_events():
    params = {"max_tokens": 16, "max_new_tokens": 7}
    made = private().privatize(
        "dp-prompt", epsilon=10, params=params, generator=model(), out="run", insecure_noise_seed=1
    )
    assert made.privacy.guarantee.assumptions
    assert hf_dpsynth.verify("run").findings == ()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_budget_adds_up_the_epsilons_of_texts(mechanism):
    budget = PrivacyBudget("texts.db", epsilon=70, delta=0, unit="text")
    options = {"epsilon": 30, "params": SMALL[mechanism], "generator": model(), "budget": budget}
    private().privatize(mechanism, **options)
    assert budget.spent() == 30
    private().privatize(mechanism, **options)
    assert budget.spent() == 60
    with pytest.raises(BudgetExceeded):
        private().privatize(mechanism, **options)
    both = DatasetDict({"train": private(), "test": private()})
    made = both.privatize(mechanism, **(options | {"epsilon": 5}))
    assert budget.spent() == 70 and made.privacy.guarantee.epsilon == 5


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_plan_says_what_a_text_and_a_token_cost(mechanism):
    plan = hf_dpsynth.plan(mechanism, epsilon=480, params=SMALL[mechanism])
    draws = DRAWS[mechanism]
    assert plan.event.event.tokens == draws and plan.event.event.epsilon == 480 / draws
    statement = plan.guarantee.statement()
    for words in ("epsilon 480 per text", f"epsilon {480 // draws} each", f"{draws}"):
        assert words in statement


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_does_not_fit_is_refused_before_anything_is_charged(mechanism):
    budget = PrivacyBudget("texts.db", epsilon=70, delta=0, unit="text")
    for options in [
        {"generator": "http://127.0.0.1:9/v1#model"},
        {
            "generator": model(),
            "params": {"max_tokens": 60, **({"max_new_tokens": 6} if mechanism == "dp-prompt" else {})},
        },
        {"generator": model(), "vectors": "glove-50d"},
        {"generator": model(), "unit": "word"},
    ]:
        with pytest.raises(ConfigError) as error:
            private().privatize(mechanism, epsilon=30, budget=budget, **options)
        assert CANARY not in str(error.value)
    assert budget.spent() == 0
    with pytest.raises(ConfigError, match="takes no generator="):
        private().privatize("madlib", epsilon=5, generator=model())


def test_the_command_line_rewrites_a_file(capsys):
    pathlib.Path("private.txt").write_text("".join(f"{text or ''}\n" for text in TEXTS))
    command = [
        "privatize", "private.txt", "--mechanism", "dp-prompt", "--generator", model(), "--epsilon", "30", "--output",
        "rows.jsonl", "--param", "max_tokens=16", "--param", "max_new_tokens=6", "--param", "logit_range=[-8, 0]",
    ]  # fmt: skip
    assert cli.call(command) == 0
    assert "Local DP with epsilon 30 per text" in capsys.readouterr().out
    rows = [json.loads(line) for line in pathlib.Path("rows.jsonl").read_text().splitlines()]
    assert len(rows) > 10 and CANARY not in str(rows)
    assert cli.call([*command[:5], "https://example.org/v1#m", *command[6:9], "no.jsonl"]) == 2
    assert "sent nowhere" in capsys.readouterr().err


def test_the_embedded_model_rewrites_texts():
    texts = ["The train from the coast was two hours late.", "Please send me the invoice for the blue chair."]
    params = {"max_tokens": 16, "max_new_tokens": 8}
    made = private(texts).privatize("dp-prompt", epsilon=800, params=params, out="run")
    assert all(made["text"]) and made.privacy.plan.model_ids == {"generator": "smollm2-135m"}
    assert hf_dpsynth.verify("run").ok
    exact = private(texts).privatize("dp-mlm", epsilon=float("inf"), params={"max_tokens": 16})
    assert exact["text"] == texts, "at an infinite epsilon the model repeats what it was shown"
    assert exact.privacy.statement().startswith("No privacy")
