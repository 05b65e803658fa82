"""What neither another version nor the loss of the plan excuses."""

import json

import pytest

import hf_dpsynth
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.publish.card import render
from tests.publish.forging import edit, put


def test_another_version_is_judged_by_numbers_and_not_by_words(run):
    folder = run()

    def age(facts):
        facts["tool"]["version"] = facts["mechanisms"][0]["version"] = "0.0.9"
        facts["scope"]["not_covered"] = ["whatever version 0.0.9 said"]

    edit(folder, age)
    card = render(json.loads((folder / "privacy.json").read_text())).replace(
        "## Mechanism", "## How version 0.0.9 did it"
    )
    (folder / "README.md").write_text(card)
    found = hf_dpsynth.verify(folder)
    assert found.ok and any("0.0.9" in line for line in found.not_checkable), found.findings
    assert hf_dpsynth.load_privacy(folder).plan.mechanism == "aug-pe"
    assert not edit(folder, put("parameters.epsilon", 0.5)).ok
    with pytest.raises(ConfigError, match="do not agree"):
        hf_dpsynth.load_privacy(folder)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("DP epsilon = 4 and", "DP epsilon = 0.1 and"),
        ("| DP epsilon | 4 |", "| DP epsilon | 0.1 |"),
        ("| DP epsilon | 4 |", "| DP epsilon | 4 |\n| DP epsilon | 0.1 |"),
        ("| delta | 0.0001 |", "| delta | 1e-09 |"),
        ("| privacy unit | record (", "| privacy unit | user ("),
        ("| adjacency | add_remove", "| adjacency | replace_one"),
    ],
)
def test_a_card_of_another_version_states_the_same_claim(run, old, new):
    folder = run()
    text = (folder / "README.md").read_text()
    assert old in text
    (folder / "README.md").write_text(text.replace(old, new, 1))
    found = edit(folder, put("tool.version", "0.0.9"))
    assert "README.md text: does not state the claim of privacy.json" in found.findings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("evaluation", [{"name": "leaks", "value": 0}]),
        ("audit", [{"name": "attack", "value": 0}]),
        ("scope.unprotected_quantities", ["the number of records"]),
        ("postprocessing", ["whatever"]),
        ("randomness.float_safe", False),
        ("randomness.prng", "quantum"),
    ],
)
@pytest.mark.parametrize("everywhere", [False, True])
def test_another_version_does_not_excuse_what_is_no_wording(run, field, value, everywhere):
    def change(facts):
        facts["tool"]["version"] = "0.0.9"
        put(field, value)(facts)

    found = edit(run(), change, everywhere=everywhere)
    assert not found.ok and any(field.rpartition(".")[2] in line for line in found.findings), found.findings


def without_assumption(word):
    def change(facts):
        held = facts["accounting"]["assumptions"]
        kept = [entry for entry in held if word not in entry["name"]]
        assert len(kept) < len(held)
        facts["accounting"]["assumptions"] = kept

    return change


def less_params(name):
    return lambda facts: facts["mechanisms"][0]["params"].pop(name)


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("madlib", without_assumption("punctuation"), "accounting.assumptions: without"),
        ("madlib", without_assumption("numbers"), "accounting.assumptions: without"),
        ("madlib", put("mechanisms.0.params.punctuation", "drop"), "accounting.assumptions: without"),
        ("madlib", put("mechanisms.0.params.oov", "copy"), "mechanisms[0].params"),
        ("madlib", put("mechanisms.0.params.more", 1), "mechanisms[0].params"),
        ("madlib", less_params("oov"), "mechanisms[0].params"),
        ("madlib", put("parameters.metric_dp.metric", "edit distance"), "parameters.metric_dp"),
        ("clear", put("scope.unprotected_quantities", []), "scope.unprotected_quantities"),
        ("clear", without_assumption("copied in clear"), "accounting.assumptions: without"),
        ("sized", without_assumption("number of records"), "accounting.assumptions: without"),
        ("sized", put("scope.unprotected_quantities", ["the number of records"]), "scope.unprotected_quantities"),
        ("aug-pe", put("mechanisms.0.params.iterations", 2), "accounting.events: not those of aug-pe"),
        ("aug-pe", put("mechanisms.0.params.noise_multiplier", 9.0), "accounting.events: not those of aug-pe"),
        ("aug-pe", put("mechanisms.0.params.noise_multiplier", "9"), "mechanisms[0].params"),
        ("aug-pe", put("mechanisms.0.params.noise_multiplier", None), "mechanisms[0].params"),
        ("aug-pe", put("mechanisms.0.params.noise_multiplier", 1e308), ""),
        ("aug-pe", put("mechanisms.0.params.iterations", 10**30), ""),
        ("aug-pe", put("accounting.events.events.0.count", 1), "accounting.events: not those of aug-pe"),
        ("aug-pe", put("mechanisms.0.name", "madlib"), "mechanisms[0].params"),
        ("aug-pe", less_params("iterations"), "mechanisms[0].params"),
    ],
)
@pytest.mark.parametrize("version", [None, "0.0.9"])
def test_what_the_mechanism_implies_cannot_be_struck_out(run, kind, change, words, version):
    def forge(facts):
        change(facts)
        if version:
            facts["tool"]["version"] = facts["mechanisms"][0]["version"] = version

    found = edit(run(kind), forge, everywhere=True)
    assert any(line.startswith(words) for line in found.findings), found.findings
