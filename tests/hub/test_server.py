"""Real clients, each in a process of its own, come back from the Hub of the tests with what they pushed to it."""

import os

import pytest

from tests.hub.running import ClientError
from tests.hub.server import READ, WRITE

pytestmark = pytest.mark.slow  # libraries alone, against the Hub of the tests

METRIC = """
import datasets
import evaluate


class Length(evaluate.Metric):
    def _info(self):
        text = datasets.Value("string")
        features = datasets.Features({"predictions": text, "references": text})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        return {"length": sum(map(len, predictions))}
"""


def test_a_dataset_comes_back_as_it_was_pushed_with_its_splits_and_configs(hub, client):
    client.call(
        """
from datasets import Dataset, DatasetDict, load_dataset
data = Dataset.from_dict({"text": ["good", "bad", "été"], "label": [1, 0, 1]})
more = Dataset.from_dict({"text": ["new"], "label": [0]})
data.push_to_hub("tester/one", private=True)
assert load_dataset("tester/one", split="train").to_list() == data.to_list()
assert list(load_dataset("tester/one", split="train", streaming=True)) == data.to_list()
DatasetDict(train=data, test=more).push_to_hub("tester/one", config_name="both")
both = load_dataset("tester/one", "both")
assert {name: split.to_list() for name, split in both.items()} == {"train": data.to_list(), "test": more.to_list()}
assert load_dataset("tester/one", "default", split="train").to_list() == data.to_list()
"""
    )
    repo = hub.dataset("tester/one")
    assert {path: file.lfs for path, file in repo.head.files.items() if path != ".gitattributes"} == {
        "README.md": False,
        "data/train-00000-of-00001.parquet": True,
        "both/train-00000-of-00001.parquet": True,
        "both/test-00000-of-00001.parquet": True,
    }
    assert repo.private and repo.shown() == [] and len(repo.history) == 3


def test_a_proposed_dataset_and_one_on_a_branch_leave_the_one_of_main(hub, client):
    client.call(
        """
from datasets import Dataset, load_dataset
data, more = (Dataset.from_dict({"text": [text]}) for text in ("old", "new"))
data.push_to_hub("tester/one")
made = more.push_to_hub("tester/one", create_pr=True)
assert made.pr_num == 1 and made.pr_revision == "refs/pr/1", made
more.push_to_hub("tester/one", revision="next")
for revision in ("refs/pr/1", "next"):
    assert load_dataset("tester/one", split="train", revision=revision).to_list() == more.to_list()
    assert list(load_dataset("tester/one", split="train", revision=revision, streaming=True)) == more.to_list()
assert load_dataset("tester/one", split="train").to_list() == data.to_list()
"""
    )
    repo = hub.dataset("tester/one")
    assert list(repo.refs) == ["refs/heads/main", "refs/pr/1", "refs/heads/next"]
    assert repo.at("refs/pr/1").parent is repo.at("next").parent is repo.head


def test_iterable_and_sharded_datasets_come_back_and_what_is_private_only_with_a_token(hub, client, tmp_path):
    client.call(
        """
from datasets import Dataset, IterableDataset, IterableDatasetDict, load_dataset
rows = [{"text": str(number)} for number in range(20)]
stream = IterableDataset.from_generator(lambda: iter(rows))
stream.push_to_hub("lab/stream", private=True)
assert load_dataset("lab/stream", split="train").to_list() == rows
IterableDatasetDict(test=stream).push_to_hub("lab/stream")
assert list(load_dataset("lab/stream", split="test", streaming=True)) == rows
Dataset.from_list(rows).push_to_hub("lab/shards", num_shards=3)
Dataset.from_list(rows).push_to_hub("lab/shards", num_shards=2)
assert load_dataset("lab/shards", split="train", token=False).to_list() == rows
assert load_dataset("lab/stream", split="test", token="hf_read").to_list() == rows
"""
    )
    for name, token in {"lab/stream": None, "lab/none": WRITE}.items():  # in an empty cache: it is read otherwise
        with pytest.raises(ClientError, match=f"DatasetNotFoundError: Dataset '{name}' doesn't exist on the Hub or"):
            load = f"import datasets; datasets.load_dataset({name!r})"
            client.call(load, HF_TOKEN=token, HF_HOME=tmp_path / "other-home")
    assert sorted(hub.dataset("lab/shards").head.files) == [
        ".gitattributes",
        "README.md",
        "data/train-00000-of-00002.parquet",
        "data/train-00001-of-00002.parquet",
    ]


def test_files_come_back_through_huggingface_hub_small_and_large(hub, client):
    client.call(
        """
import os
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi
from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.errors import HfHubHTTPError
api, kind, big = HfApi(), {"repo_type": "dataset"}, bytes(11 << 20)
assert api.whoami()["name"] == "tester"
assert api.create_repo("one", **kind, private=True).repo_id == "tester/one"
api.create_repo("tester/one", **kind, exist_ok=True)
try:
    api.create_repo("tester/one", **kind)
except HfHubHTTPError as error:
    assert error.response.status_code == 409
api.upload_file(path_or_fileobj=b"hello", path_in_repo="a/b.txt", repo_id="tester/one", **kind)
operations = [CommitOperationAdd("big.txt", big), CommitOperationAdd("c.json", b"{}")]
api.create_commit("tester/one", operations, commit_message="more", commit_description="why", **kind)
names = [".gitattributes", "a/b.txt", "big.txt", "c.json"]
assert api.list_repo_files("tester/one", **kind) == names
folder = snapshot_download("tester/one", **kind)
assert all(os.path.isfile(f"{folder}/{name}") for name in names)
assert open(f"{folder}/big.txt", "rb").read() == big
assert open(hf_hub_download("tester/one", "a/b.txt", **kind)).read() == "hello"
changes = [CommitOperationCopy("big.txt", "copy.txt"), CommitOperationDelete("a/"), CommitOperationDelete("c.json")]
api.create_commit("tester/one", changes, commit_message="less", **kind)
"""
    )
    repo = hub.dataset("tester/one")
    assert [commit.message for commit in repo.history] == ["", "", "why", ""]
    assert {path: file.lfs for path, file in repo.head.files.items()} == {
        ".gitattributes": False,
        "big.txt": True,
        "copy.txt": True,
    }
    client.call("from huggingface_hub import delete_repo; delete_repo('tester/one', repo_type='dataset')")
    assert hub.repos == {}


def test_revisions_cards_and_settings_come_back_through_huggingface_hub(hub, client):
    old = hub.add("datasets", "tester/one", {"a/b.txt": b"hello", "c.parquet": bytes(50)}, private=True).head.sha
    printed = client.call(
        f"""
from huggingface_hub import CommitOperationDelete, DatasetCard, HfApi
from huggingface_hub.errors import RevisionNotFoundError
api, one, kind, old = HfApi(), "tester/one", {{"repo_type": "dataset"}}, "{old}"
api.create_commit(one, [CommitOperationDelete("a/")], commit_message="less", parent_commit=old, **kind)
api.create_tag(one, tag="v1", revision=old, **kind)
api.create_branch(one, branch="x/y", revision="v1", **kind)
for revision in ("v1", "x/y", old):
    assert api.list_repo_files(one, revision=revision, **kind) == [".gitattributes", "a/b.txt", "c.parquet"]
assert api.list_repo_files(one, **kind) == [".gitattributes", "c.parquet"]
assert [commit.title for commit in api.list_repo_commits(one, **kind)] == ["less", "Add files", "initial commit"]
refs = api.list_repo_refs(one, **kind)
assert [ref.name for ref in refs.branches + refs.tags] == ["main", "x/y", "v1"]
(folder, file) = api.get_paths_info(one, ["a", "none", "a/b.txt"], revision="v1", expand=True, **kind)
assert (folder.path, file.size, file.last_commit.title) == ("a", 5, "Add files")
DatasetCard("---\\nlicense: mit\\n---\\n# One").push_to_hub(one)
assert DatasetCard.load(one).data.license == api.dataset_info(one).card_data.license == "mit"
assert api.dataset_info(one, files_metadata=True).siblings[1].lfs.size == 50
api.update_repo_settings(one, private=False, **kind)
assert api.dataset_info(one, token=False).private is False
api.delete_branch(one, branch="x/y", **kind)
api.delete_tag(one, tag="v1", **kind)
try:
    api.dataset_info(one, revision="v1")
except RevisionNotFoundError:
    print("gone")
"""
    )
    assert printed == "gone\n" and list(hub.dataset("tester/one").refs) == ["refs/heads/main"]


def test_the_file_system_lists_reads_writes_and_removes(hub, client):
    hub.add("datasets", "tester/one", {"data/a.txt": b"0123456789", "README.md": b"# One"})
    client.call(
        """
from huggingface_hub import HfFileSystem
files, root = HfFileSystem(), "datasets/tester/one"
assert files.ls(root, detail=False) == [f"{root}/{name}" for name in ("data", ".gitattributes", "README.md")]
with files.open(f"{root}/data/a.txt", "rb") as file:
    file.seek(4)
    assert file.read(3) == b"456"
with files.open(f"{root}@main/data/a.txt", "rb", block_size=0) as file:
    assert file.read(3) + file.read() == b"0123456789"
with files.open(f"{root}/data/b.txt", "w") as file:
    file.write("written")
assert files.read_text(f"{root}/data/b.txt") == "written"
assert files.glob(f"{root}/**/*.txt") == [f"{root}/data/a.txt", f"{root}/data/b.txt"]
assert files.info(f"{root}/data/b.txt")["size"] == 7 and not files.exists(f"{root}/data/c.txt")
files.rm(f"{root}/data/a.txt")
"""
    )
    assert sorted(hub.dataset("tester/one").head.files) == [".gitattributes", "README.md", "data/b.txt"]


def test_the_command_line_creates_uploads_downloads_and_deletes(hub, client, tmp_path):
    for name in ("up/a.txt", "up/sub/b.parquet", "one.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    dataset = ("--repo-type", "dataset")
    assert "lab/one" in client.hf("repos", "create", "lab/one", *dataset, "--private")
    client.hf("upload", "lab/one", "up", ".", *dataset)
    client.hf("upload", "lab/one", "one.txt", "x/one.txt", *dataset, "--create-pr", "--commit-message", "propose")
    repo = hub.dataset("lab/one")
    assert (repo.private, repo.head.files["sub/b.parquet"].lfs, repo.at("refs/pr/1").title) == (True, True, "propose")
    client.hf("download", "lab/one", "x/one.txt", *dataset, "--revision", "refs/pr/1", "--local-dir", "got")
    client.hf("download", "lab/one", *dataset, "--local-dir", "got")
    got = {os.path.relpath(path, tmp_path / "got") for path in (tmp_path / "got").rglob("*.*") if path.is_file()}
    assert {"a.txt", "sub/b.parquet", "x/one.txt"} <= got
    client.hf("repos", "settings", "lab/one", *dataset, "--public")
    assert sorted(repo.shown()[0]["refs/heads/main"].files) == [".gitattributes", "a.txt", "sub/b.parquet"]
    with pytest.raises(ClientError, match="write token"):
        client.hf("upload", "lab/one", "one.txt", *dataset, HF_TOKEN=READ)
    client.hf("repos", "delete", "lab/one", *dataset, "--yes")
    assert hub.repos == {}


def test_models_and_adapters_come_back_with_their_weights(hub, client):
    client.call(
        """
import torch
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
sizes = dict(vocab_size=32, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
ids = torch.tensor([[1, 2, 3]])
model = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
model.push_to_hub("tester/tiny")
back = AutoModelForCausalLM.from_pretrained("tester/tiny")
assert torch.equal(back(ids).logits, model(ids).logits)
adapted = get_peft_model(back, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)).eval()
assert not torch.equal(adapted(ids).logits, model(ids).logits)
adapted.push_to_hub("lab/adapter", private=True)
loaded = AutoPeftModelForCausalLM.from_pretrained("lab/adapter")
for found in (loaded, PeftModel.from_pretrained(model, "lab/adapter")):
    assert torch.equal(found(ids).logits, adapted(ids).logits)
arguments = TrainingArguments("out", hub_model_id="lab/trained", push_to_hub=True, max_steps=1, use_cpu=True)
trainer = Trainer(back, arguments, train_dataset=[{"input_ids": ids[0], "labels": ids[0]}])
trainer.train()
trainer.push_to_hub()
assert AutoModelForCausalLM.from_pretrained("lab/trained").config.hidden_size == 8
"""
    )
    model, adapter = hub.model("tester/tiny"), hub.model("lab/adapter")
    assert model.head.files["model.safetensors"].lfs and not model.private
    assert adapter.head.files["adapter_model.safetensors"].lfs and adapter.private
    assert "README.md" in adapter.head.files


def test_a_metric_that_is_a_space_is_loaded_and_computes(hub, client):
    hub.add("spaces", "lab/length", {"length.py": METRIC.encode()})
    printed = client.call(
        """
import evaluate
print(evaluate.load("lab/length").compute(predictions=["ab", "c"], references=["", ""]))
"""
    )
    assert printed == "{'length': 3}\n"
