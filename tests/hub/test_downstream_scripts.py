"""The two scripts that train on a published data set: they learn from its rows and refuse one that was changed."""

import json
import re
import sys

import pytest
import yaml

from tests.hub.running import ROOT, Client, ClientError, serving

pytestmark = pytest.mark.slow  # minutes of real training
SCRIPTS = ROOT / "recipes" / "downstream"
MADE = r"""
import numpy as np
import hf_dpsynth
from tests.downstream import tiny_models as tiny

words = [*tiny.GOOD, *tiny.BAD, *tiny.EXTRA[:5]]
points = np.random.default_rng(0).normal(size=(len(words), 4)) * 100
with open("vectors.txt", "w") as handle:
    handle.writelines(f"{word} {' '.join(map(str, point))}\n" for word, point in zip(words, points.tolist()))
rows = tiny.rows(120).privatize("madlib", epsilon=1, vectors="vectors.txt", text_column="text", keep_columns=["label"])
assert hf_dpsynth.push_to_hub(rows, "tester/reviews")
test = tiny.rows(40, first=500)
with open("test.csv", "w") as handle:
    handle.write("text,label\n")
    handle.writelines(f"{text},{['neg', 'pos'][label]}\n" for text, label in zip(test["text"], test["label"]))
tiny.save_encoder("encoder")
tiny.save_causal("writer", "llama")
"""
CLASSIFY = ["--test", "test.csv", "--model", "encoder", "--max-steps", "40", "--learning-rate", "5e-3"]
WRITE = ["--test", "test.csv", "--model", "writer", "--max-steps", "30", "--new-tokens", "6"]


def run(client, script, *arguments, **environment):
    return client.run([sys.executable, SCRIPTS / script, "tester/reviews", *arguments], **environment)


def number(said, words):
    return float(re.search(rf"{words}: ([-\d.naif]+)", said)[1])


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A client of a Hub that holds a data set, its test rows and two random models; tests leave the rows as found."""
    with serving() as hub:
        client = Client(hub, tmp_path_factory.mktemp("scripts"))
        client.call(MADE)
        yield client


def test_a_classifier_learns_from_published_rows_and_is_pushed_with_its_source(client):
    said = run(client, "classify_with_trainer.py", *CLASSIFY, "--push", "tester/classifier")
    assert "guarantee of tester/reviews: Metric DP" in said
    assert number(said, "accuracy on 40 test rows") >= 0.9 and number(said, "loss on 120 synthetic rows") < 0.7
    files = client.hub.model("tester/classifier").head.files
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= set(files)
    card = files["README.md"].data.decode()
    front = yaml.safe_load(card.split("---")[1])
    claim = json.loads(client.hub.dataset("tester/reviews").head.files["privacy.json"].data)
    assert front["datasets"] == ["tester/reviews"] and "base_model" not in front
    assert claim["guarantee_id"] in card and "Metric DP" in card and "accuracy" not in card
    assert json.loads(files["config.json"].data)["id2label"] == {"0": "neg", "1": "pos"}
    assert client.hub.model("tester/classifier").private


def test_a_language_model_learns_to_write_a_text_of_a_label(client):
    said = run(client, "sft_with_trl.py", *WRITE, "--push", "tester/writer")
    after, before = (float(loss) for loss in re.search(r"loss on 40 test rows: (\S+), before (\S+)", said).groups())
    assert 0 < after < before - 0.1 and re.search(r"label neg: .*\nlabel pos: ", said)
    files = client.hub.model("tester/writer").head.files
    assert yaml.safe_load(files["README.md"].data.decode().split("---")[1])["datasets"] == ["tester/reviews"]
    assert json.loads(files["adapter_config.json"].data)["base_model_name_or_path"] == "writer"
    assert len(files["adapter_model.safetensors"].data) > 1000


@pytest.mark.parametrize("script", ["classify_with_trainer.py", "sft_with_trl.py"])
def test_a_data_set_that_was_changed_is_refused_before_anything_is_trained(script, client, tmp_path):
    repo, arguments = client.hub.dataset("tester/reviews"), CLASSIFY if script.startswith("c") else WRITE
    name = next(name for name in repo.head.files if name.endswith(".parquet"))
    claim = json.loads(repo.head.files["privacy.json"].data)
    rows = repo.head.files[name].data
    for path, changed in (
        (name, rows.replace(b"film", b"mlif")),
        ("privacy.json", json.dumps(claim | {"guarantee_id": "0" * 36}).encode()),
    ):
        before = repo.head.files[path].data
        repo.tampered(path, changed)
        with pytest.raises(ClientError, match="refused: tester/reviews "):
            run(client, script, *arguments, "--out", "none", HF_HOME=tmp_path / path[:4])
        repo.tampered(path, before)
    client.hub.add("datasets", "tester/plain", {"data/train.csv": b"text,label\ngood film,pos\n"})
    with pytest.raises(ClientError, match=r"refused: tester/plain "):
        client.run([sys.executable, SCRIPTS / script, "tester/plain", *arguments, "--out", "none"])
    assert not (client.folder / "none").exists()


@pytest.mark.parametrize("script", ["classify_with_trainer.py", "sft_with_trl.py"])
def test_each_script_tells_its_defaults(script, client):
    said = " ".join(client.run([sys.executable, SCRIPTS / script, "--help"]).split())
    assert "--push REPO_ID" in said and ("(smollm2-135m)" if script.startswith("sft") else "(minilm)") in said
