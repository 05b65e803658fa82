"""The card: what it says first, which words it may use, and that no name becomes markup."""

from dataclasses import replace

import pytest

from hf_dpsynth import list_mechanisms
from hf_dpsynth.errors import PrivacyError
from hf_dpsynth.guarantees import ApproxDP, LocalDP, MetricDP, SecretProtection
from hf_dpsynth.publish import accounts, mechanism
from hf_dpsynth.publish.card import claims, number, render
from hf_dpsynth.publish.privacy_json import to_privacy_json
from hf_dpsynth.publish.reading import from_privacy_json
from tests.publish import golden
from tests.publish.reading import HOSTILE, body, front, structure
from tests.stubs import synth

RELEASES = golden.releases()
SECRETS = {"sec-pe", "sec-pe-own-bounds"}  # they promise secret protection, which has no epsilon
VOID = {"aug-pe-no-privacy", "aug-pe-seed", "madlib-no-privacy"}
DP = {name for name, release in RELEASES.items() if isinstance(release.guarantee, ApproxDP)} - VOID


def test_golden_cards_are_what_the_releases_render_to():
    stored = {path.stem: path.read_text(encoding="utf-8") for path in golden.FOLDER.glob("*.md")}
    assert golden.cards() == stored, "python -m tests.publish.golden refreshes the cards"


@pytest.mark.parametrize("name", RELEASES)
def test_the_facts_of_a_golden_card_are_borne_out_by_their_events_and_their_mechanism(name):
    facts = to_privacy_json(RELEASES[name])
    assert [*accounts.check(facts), *mechanism.check(from_privacy_json(facts).plan, [])] == []


def test_every_mechanism_has_a_golden_card():
    assert {release.plan.mechanism for release in RELEASES.values()} == {row[0] for row in list_mechanisms()}


def test_every_kind_of_guarantee_has_a_golden_card():
    facts = [to_privacy_json(release) for release in RELEASES.values()]
    assert {fact["adjacency"] for fact in facts} == {"add_remove", "zero_out", "replace_one", "custom"}
    assert {fact["privacy_unit"]["level"] for fact in facts} == {"record", "user", "token", "secret"}
    assert {fact["accounting"]["accountant"] for fact in facts} == {"pld", "rdp", "zcdp", "closed_form"}
    assert {type(release.guarantee) for release in RELEASES.values()} == {
        ApproxDP, MetricDP, LocalDP, SecretProtection
    }  # fmt: skip
    drawn = {fact["accounting"]["sampling"]["actual"].partition(":")[0] for fact in facts}
    assert drawn == {"Poisson", "shuffled batches", "none"}
    assert {fact["accounting"]["composition"] for fact in facts} == {"fixed", "filter"}
    assert {fact["claim_status"] for fact in facts} == {
        "formal_dp", "formal_dp_conditional", "formal_secret_protection_conditional", "formal_secret_protection",
        "none",
    }  # fmt: skip


@pytest.mark.parametrize("name", RELEASES)
def test_the_first_screen_states_the_claim_and_what_is_not_covered(name):
    text = body(RELEASES[name].card())
    first = text[:800].lower()
    claim = ("guess", "0.0001", "0.001", "secret") if name in SECRETS else ("epsilon", "delta", "adjacency")
    assert all(word in first for word in (*claim, "not covered")) and any(
        unit in first for unit in ("record", "word", "rows")
    )
    order = [
        "What is not covered",
        "All releases",
        "Assumptions",
        "Mechanism",
        "Public models",
        "Load",
    ]
    places = [text.index(f"## {title}") for title in order]
    assert places == sorted(places)


@pytest.mark.parametrize("name", RELEASES)
def test_the_front_matter_mirrors_privacy_json(name):
    facts, head = to_privacy_json(RELEASES[name]), front(RELEASES[name].card())
    claim = head["secret_protection" if name in SECRETS else "differential_privacy"]
    named = facts["parameters"]["secret_protection"] if name in SECRETS else facts["parameters"]
    assert all(claim[key] == named[key] for key in (("p", "r", "kinds") if name in SECRETS else ("epsilon", "delta")))
    assert len({"secret_protection", "differential_privacy"} & set(head)) == 1
    assert claim["adjacency"] == facts["adjacency"] and claim["claim_status"] == facts["claim_status"]
    assert claim["guarantee_id"] == facts["guarantee_id"] and claim["file"] == "privacy.json"
    assert {"synthetic", "privatized"} & set(head["tags"]) and head["tags"][-1] == facts["mechanisms"][0]["name"]
    assert head["configs"][0]["data_files"] == [{"split": "train", "path": "data/train-00000-of-00001.parquet"}]


def test_numbers_are_numbers_in_every_yaml():
    card = RELEASES["aug-pe-add-remove"].card()
    assert front(card)["differential_privacy"]["delta"] == 1e-6 and "delta: 1.0e-06" in card
    assert (number(1e-6), number(4.0), number(0.1 + 0.2)) == ("1e-06", "4", "0.30000000000000004")


def test_differential_privacy_is_said_of_finite_approximate_dp_alone():
    tagged = {name: "differential-privacy" in front(release.card())["tags"] for name, release in RELEASES.items()}
    said = {name: "differentially private" in release.card().lower() for name, release in RELEASES.items()}
    assert tagged == said == {name: name in DP for name in RELEASES}
    assert {"dp-lora", "dp-full", "dp-icl", "aug-pe-budget"} < DP and not {"madlib", "dp-mlm", "sec-pe"} & DP
    assert all("No privacy" in RELEASES[name].card() for name in VOID)


def test_an_unknown_assumption_stands_in_bold_and_conditions_the_claim():
    card = RELEASES["aug-pe-zero-out-own-embedder"].card()
    assert "**the embedder embeds each row independently of the others: unknown**" in card
    assert "if the unknown assumptions below hold" in body(card)[:400]


def test_an_insecure_seed_leaves_no_claim():
    plan = replace(RELEASES["aug-pe-add-remove"].plan, insecure_noise=True)
    card = golden.fixed(plan, 500).card()
    assert front(card)["differential_privacy"]["epsilon"] is None and "differential-privacy" not in front(card)["tags"]
    assert "No privacy" in card and "operating system: false**" in card and "differentially private" not in card


@pytest.mark.parametrize("field", ["level", "description", "adjacency"])
def test_no_epsilon_without_unit_and_adjacency(field):
    facts = to_privacy_json(RELEASES["aug-pe-add-remove"])
    (facts if field == "adjacency" else facts["privacy_unit"])[field] = ""
    with pytest.raises(PrivacyError, match="adjacency"):
        render(facts)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_name_becomes_markup(text):
    plan = RELEASES["madlib"].plan
    plan = replace(
        plan, mechanism=text, params={text: text}, kept_columns=(text,), model_ids={"vectors": text}, warnings=(text,)
    )
    card = golden.fixed(plan, 5, notes=(text,)).card()
    card.encode("utf-8")
    head = front(card)
    assert list(head) == ["pretty_name", "tags", "size_categories", "configs", "differential_privacy"]
    assert isinstance(head["tags"][-1], str) and head["differential_privacy"]["epsilon"] is None
    plain = golden.fixed(replace(plan, mechanism="m", params={"p": 1}, model_ids={"v": "w"}), 5, notes=("n",)).card()
    assert structure(body(card)) == structure(body(plain))
    for sign in ("<", "{{", "](", "~~", "\x00", "\u202e", "://", "www.", "@"):
        assert sign not in body(card)


def found_facts(**lists):
    return {**to_privacy_json(RELEASES["aug-pe-add-remove"]), **lists}


def test_a_metric_on_private_data_is_marked_and_an_audit_is_called_no_proof():
    metrics = [
        {"metric": "mauve", "value": 0.62, "uses_private_data": True, "accounted": False},
        {"metric": "noisy accuracy", "value": 0.8, "uses_private_data": True, "accounted": True},
        {"metric": "self-bleu", "value": 0.3, "uses_private_data": False, "accounted": False},
    ]
    attack = {"attack": "canaries", "metric": "lower bound", "value": 0.1, "ci": [0.05, 0.2]}
    audits = [attack | metrics[0] | {"metric": "TPR"}, attack | {"ci": None, "uses_private_data": False}]
    text = body(render(found_facts(evaluation=metrics, audit=audits)))
    assert "| mauve | 0.62 | not covered by the guarantee |" in text
    assert "| noisy accuracy | 0.8 | its loss is accounted for |" in text
    assert "| self&#45;bleu | 0.3 | uses no private data |" in text or "| self-bleu | 0.3 | uses no private" in text
    assert "| canaries | TPR | 0.62 | 0.05 to 0.2 | not covered by the guarantee |" in text
    assert "| canaries | lower bound | 0.1 | none | uses no private data |" in text
    assert "An audit is not a proof" in text and "A small lower bound proves nothing" in text
    places = [text.index(part) for part in ("## Mechanism", "## Evaluation", "## Audits", "## Load and verify")]
    assert places == sorted(places)


def test_a_metric_that_lacks_a_field_claims_nothing():
    text = body(render(found_facts(evaluation=[{"name": "leaks", "value": 0}], audit=[{"attack": "canaries"}])))
    assert "| unnamed | 0 | not covered by the guarantee |" in text
    assert "| canaries | unnamed | none | none | not covered by the guarantee |" in text


def test_without_metrics_and_audits_a_card_has_no_empty_section():
    text = render(found_facts(evaluation=[], audit=[]))
    assert text == RELEASES["aug-pe-add-remove"].card() and "## Evaluation" not in text and "## Audits" not in text


def test_a_card_of_a_release_in_memory_names_no_files():
    assert "configs" not in front(synth().privacy.card())


@pytest.mark.parametrize("name", RELEASES)
def test_every_card_states_its_claim_for_other_versions_too(name):
    facts = to_privacy_json(RELEASES[name])
    metric = {"metric": "DP epsilon", "value": 0.1, "uses_private_data": True, "accounted": False}
    assert claims(RELEASES[name].card(), facts)
    measured = {**facts, "evaluation": [metric, {**metric, "metric": "delta"}]}
    assert claims(render(measured), measured)
