"""A tuned model is published with its own card and claim, loads in peft and transformers, and is verified."""

import json

import pytest
import yaml

from tests.hub.test_push import MADE

TUNED = (
    MADE.replace('rows = synth(out="run")', "")
    + """
from huggingface_hub import ModelCard, snapshot_download
from hf_dpsynth import cli
from tests.mechanisms import tiny
base = tiny.save(__import__("pathlib").Path("base"))

def tuned(mechanism, out, **more):
    return reviews().synthesize(
        mechanism, epsilon=8, delta=1e-3, text_column="text", label_column="label", num_rows=2, num_records=60,
        label_proportions={"neg": 0.5, "pos": 0.5}, out=out, generator=str(base),
        params={"steps": 1, "batch_size": 2, "max_tokens": 16, "max_new_tokens": 4},
    )
"""
)


def test_an_adapter_becomes_a_model_repository_with_its_card(hub, client):
    said = client.call(
        TUNED
        + """
rows = tuned("dp-lora", "lora")
assert push("lora/adapter", "tester/lora") and push("lora/adapter", "tester/lora", release=rows.privacy)
assert push(rows, "tester/rows") and hf_dpsynth.verify("tester/rows").ok
found = hf_dpsynth.verify("tester/lora"); assert found.ok, found.findings
release = hf_dpsynth.load_privacy("tester/lora", repo_type="model")
assert release.guarantee == rows.privacy.guarantee and release.is_model
from peft import AutoPeftModelForCausalLM
loaded = AutoPeftModelForCausalLM.from_pretrained(snapshot_download("tester/lora"))
assert any("lora" in name for name, _ in loaded.named_parameters())
assert ModelCard.load("tester/lora").data.library_name == "peft"
push("lora/adapter", "tester/lora", config_name="x"); push("nowhere", "tester/lora"); push("lora", "tester/lora")
push("lora/adapter", "tester/lora", release=synth().privacy); push(loaded, "tester/lora")
with open("lora/adapter/adapter_config.json", "a") as file: file.write(" ")
push("lora/adapter", "tester/lora")
print(cli.call(["verify", "lora"]), cli.call(["push", "lora/adapter", "tester/cli"]))
"""
    )
    lines = said.splitlines()
    assert [line.split(" | ")[0] for line in lines[:6]] == ["ConfigError"] * 6, said
    wanted = ("config_name=", "no folder", "privacy.json", "no model", "PeftModel", "not the file")
    assert all(words in line for line, words in zip(lines, wanted, strict=False)), said
    assert "adapter_config.json: sha256 differs" in said and said.endswith("1 2\n")
    files = hub.model("tester/lora").head.files
    assert {"README.md", "privacy.json", "release.json", "recipe.yaml", "make.py", "adapter_config.json"} <= set(files)
    assert not any(name.endswith(".parquet") for name in files)
    front = yaml.safe_load(files["README.md"].data.decode().split("---\n")[1])
    assert "base_model" not in front and "differential-privacy" in front["tags"]  # a folder of this machine
    claim = json.loads(files["privacy.json"].data)
    assert claim["output"]["n_records"] is None and front["differential_privacy"]["epsilon"] == 8
    assert "adapter_model.safetensors" in {file["path"] for file in claim["output"]["files"]}
    hub.model("tester/lora").tampered("adapter_config.json", b"{}")
    hub.model("tester/lora").tampered("other.safetensors", b"12345678")
    fresh = {"HF_HOME": client.folder / "fresh"}
    said = client.call('import hf_dpsynth; print(hf_dpsynth.verify("tester/lora").findings)', **fresh)
    assert "adapter_config.json: sha256 differs" in said and "other.safetensors: not listed" in said


@pytest.mark.slow
def test_a_whole_model_and_a_second_one_in_its_place(hub, client):
    client.call(
        TUNED
        + """
tuned("dp-full", "one"); tuned("dp-full", "two")
assert cli.call(["push", "one/adapter", "tester/full"]) == 0
assert cli.call(["push", "two/adapter", "tester/full"]) == 0 and cli.call(["verify", "tester/full"]) == 0
from transformers import AutoModelForCausalLM
assert AutoModelForCausalLM.from_pretrained("tester/full")
"""
    )
    claim = json.loads(hub.model("tester/full").head.files["privacy.json"].data)
    assert claim["cumulative"]["epsilon"] == 16 and len(claim["cumulative"]["prior_releases"]) == 1
    assert (
        "1 earlier release and this one: DP epsilon = 16"
        in hub.model("tester/full").head.files["README.md"].data.decode()
    )
