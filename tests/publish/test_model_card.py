"""The card of a tuned model: the same facts in the same order, and what the Hub reads of a model."""

import json
import re

import pytest
import yaml
from huggingface_hub import ModelCard

from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.publish.model_card import model_front_matter, render_model
from hf_dpsynth.publish.privacy_json import to_privacy_json
from tests.publish import golden

TUNED = golden.tuned_facts()
EACH = pytest.mark.parametrize("name", TUNED)


def sections(text):
    return re.findall("^## (.*)$", text, flags=re.MULTILINE)


@EACH
def test_it_has_the_sections_of_the_card_of_the_rows_in_their_order(name):
    model, rows = render_model(TUNED[name], base="org/base"), golden.releases()[name].card()
    assert sections(model) == sections(rows)
    for line in rows.split("## Load")[0].split("---\n", 2)[2].split("\n"):
        if not re.match("# Synthetic|This data set is|A public model", line):
            assert line in model.split("\n"), line


@EACH
@pytest.mark.parametrize("base", ["org/base", "gpt2", None])
def test_the_hub_reads_its_front_matter_as_it_was_meant(name, base):
    text = render_model(TUNED[name], base=base)
    data = ModelCard(text).data.to_dict()
    assert data == yaml.safe_load(text.split("---\n")[1]) == model_front_matter(TUNED[name], base=base)
    assert data.get("base_model") == base and data["pipeline_tag"] == "text-generation"
    assert data["library_name"] == ("transformers" if name == "dp-full" else "peft")
    assert {"differential-privacy", name} <= set(data["tags"])
    claim = data["differential_privacy"]
    assert (claim["epsilon"], claim["delta"], claim["file"]) == (4.0, 1e-5, "privacy.json")
    assert (claim["privacy_unit"], claim["adjacency"]) == ("record", "zero_out")


@EACH
def test_it_says_how_to_load_it_in_code_that_is_python(name):
    for base in ("org/base", None):
        code = re.search("```python\n(.*?)\n```", render_model(TUNED[name], base=base), flags=re.DOTALL)[1]
        compile(code, "card", "exec")
        loader = "AutoModelForCausalLM" if name == "dp-full" else "AutoPeftModelForCausalLM"
        assert f'{loader}.from_pretrained("FOLDER")' in code
        assert ("AutoTokenizer" in code) == (name == "dp-full" or base is not None)


@EACH
def test_it_says_what_is_not_covered_and_that_sampling_costs_nothing(name):
    text = render_model(TUNED[name], base="org/base")
    not_covered = text.split("## What is not covered")[1].split("## ")[0]
    assert "the base model org/base learned from its own training data" in not_covered
    assert "sampling is post-processing" in text and "This model is differentially private" in text
    assert not re.search(r"(?<!DP )epsilon = ", text) and "| DP epsilon | 4 |" in text


def test_a_model_without_a_claim_has_no_tag_and_no_epsilon():
    facts = json.loads(json.dumps(TUNED["dp-lora"]))
    facts["claim_status"], facts["parameters"]["epsilon"], facts["parameters"]["delta"] = "none", None, None
    text = render_model(facts, base="org/base")
    data = ModelCard(text).data.to_dict()
    assert "differential-privacy" not in data["tags"] and data["differential_privacy"]["epsilon"] is None
    assert "No privacy" in text and "differentially private" not in text


@pytest.mark.parametrize(
    "base", ["/home/me/model", "./model", "a/b/c", "org/ba se", "", 'x")\nimport os', "a/..", "é/b"]
)
def test_a_base_that_is_no_repository_is_refused(base):
    with pytest.raises(ConfigError, match="repository of the Hub"):
        render_model(TUNED["dp-lora"], base=base)


@pytest.mark.parametrize("name", ["aug-pe-add-remove", "madlib", "sec-pe"])
def test_a_release_that_tuned_nothing_has_no_such_card(name):
    with pytest.raises(ConfigError, match="tunes no model"):
        render_model(to_privacy_json(golden.releases()[name]), base="org/base")


def test_no_epsilon_without_unit_and_adjacency():
    with pytest.raises(PrivacyError, match="adjacency"):
        render_model({**TUNED["dp-lora"], "adjacency": ""}, base="org/base")
