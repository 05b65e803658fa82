"""Several releases in a repository: their losses add up on the card, and nobody can take one back."""

import json

import pytest
import yaml

from tests.hub.test_push import MADE, README

ASK = "import hf_dpsynth\n"


def text(hub, name, repo="tester/reviews"):
    return hub.dataset(repo).head.files[name].data.decode()


def front(hub, repo="tester/reviews"):
    return yaml.safe_load(text(hub, "README.md", repo).split("---\n")[1])


@pytest.fixture
def twice(hub, client):
    """A repository with two releases of epsilon 4 and 1, the second in place of the first, and one more beside."""
    said = client.call(
        MADE
        + """
push(rows); other = synth(epsilon=1.0); push(other); push(other)
extra = synth(epsilon=2.0, delta=None, num_records=60_000); push(extra, config_name="extra")
print(rows.privacy.guarantee_id, other.privacy.guarantee_id, extra.privacy.guarantee_id)
"""
    )
    return said.split()


def test_losses_add_up_and_rows_of_other_configurations_stay(hub, client, twice):
    first, second, third = twice
    claim = json.loads(text(hub, "privacy.json"))
    held = claim["cumulative"]
    assert [one["guarantee_id"] for one in held["prior_releases"]] == [first, second]
    assert held["epsilon"] == 7 and 2e-4 + 1e-6 <= held["delta"] < 2.1e-4
    assert [len(one["files"]) for one in held["prior_releases"]] == [0, 1] and claim["guarantee_id"] == third
    card = text(hub, "README.md")
    assert "2 earlier releases and this one: DP epsilon = 7" in card and "under zero-out adjacency" in card
    first_words = card.split("\n# ")[1].split("\n")[2]
    assert first_words.startswith(
        "This data set holds rows of 2 releases; together they are differentially private with "
    )
    assert "DP epsilon = 7" in first_words and "if the assumptions of each hold. Of the newest" in first_words
    names = [one["config_name"] for one in front(hub)["configs"]]
    assert names == ["default", "extra"] and front(hub)["differential_privacy"]["epsilon"] == held["epsilon"]
    said = client.call(
        MADE.replace('rows = synth(out="run")', "")
        + """
read = {name: load_dataset("tester/reviews", *name) for name in ((), ("default",), ("extra",))}
assert read[()]["train"]["text"][:] == read[("default",)]["train"]["text"][:] != read[("extra",)]["train"]["text"][:]
found = hf_dpsynth.verify("tester/reviews"); assert found.ok, found.findings
release = hf_dpsynth.load_privacy("tester/reviews")
assert [one.epsilon for one in release.earlier] == [4, 1] and release.guarantee.epsilon == 2
print(push(synth(adjacency="replace-one"), config_name="else"))
for name in ("data", "releases", "a/b", "", 3): push(synth(epsilon=9.0), config_name=name)
"""
    ).splitlines()
    assert said[0].startswith("PrivacyError | the repository holds another release, and its adjacency is ")
    assert said[1] == "None" and [line.split(" is ")[0] for line in said[2:]] == ["ConfigError | config_name"] * 5


def test_a_release_that_is_pushed_again_counts_once(hub, client):
    said = client.call(
        MADE + "one = synth(); push(rows); push(one, config_name='a'); push(rows, config_name='a'); push(rows)"
    )
    assert said.startswith("PrivacyError | tester/reviews holds this release already, in data/")
    held = json.loads(text(hub, "privacy.json"))["cumulative"]
    assert len(held["prior_releases"]) == 1 and held["epsilon"] == 8
    names = [name for name in hub.dataset("tester/reviews").head.files if name.startswith("releases/")]
    assert names == [f"releases/{held['prior_releases'][0]['guarantee_id']}.json"]
    assert client.call(ASK + 'print(hf_dpsynth.verify("tester/reviews").ok)') == "True\n"


def test_no_release_can_be_taken_back_on_the_hub(hub, client, twice):
    """Each change by hand is found, also one that is consistent with the rest of the claim."""
    first, second, _ = twice
    repo, ask = hub.dataset("tester/reviews"), ASK + 'print(hf_dpsynth.verify("tester/reviews").findings)'
    whole = {name: file.data for name, file in repo.head.files.items()}
    claim = json.loads(whole["privacy.json"])

    def with_claim(change):
        copy = json.loads(whole["privacy.json"])
        change(copy["cumulative"])
        return json.dumps(copy).encode()

    def forget(held):
        held["prior_releases"] = held["prior_releases"][1:]
        held["epsilon"] = 3.0

    def shrink(held):
        held["prior_releases"][0]["epsilon"] = 0.5
        held["epsilon"] = 3.5

    extra = next(name for name in whole if name.startswith("data/"))
    for name, data, words in (
        ("privacy.json", with_claim(forget), f"releases/{first}.json: cumulative.prior_releases has no such release"),
        ("privacy.json", with_claim(shrink), "cumulative.prior_releases[0].epsilon contradicts it"),
        ("privacy.json", with_claim(lambda held: held.update(epsilon=2.0)), "cumulative.epsilon: 2.0, but "),
        (f"releases/{first}.json", b"{}", f"releases/{first}.json: "),
        (extra, b"PAR1 others PAR1", f"{extra}: sha256 differs"),
    ):
        repo.tampered(name, data)
        said = client.call(ask)
        assert words in said, said
        repo.tampered(name, whole[name])
    repo.tampered("privacy.json", with_claim(forget))  # who pushes next must not wipe it out
    said = client.call(MADE + "push(rows)", HF_HOME=client.folder / "fresh")
    assert said.startswith(f"PrivacyError | tester/reviews holds releases/{first}.json, a release that ")
    repo.tampered("privacy.json", whole["privacy.json"])
    assert claim["cumulative"]["prior_releases"][1]["guarantee_id"] == second
    assert client.call(ask) == "()\n"


def test_rows_that_were_changed_are_published_with_a_note_and_no_column_by_accident(hub, client):
    hub.add("datasets", "tester/reviews", {"README.md": README})
    said = client.call(
        MADE
        + """
short = rows.filter(lambda row: len(row["text"]) > 5).map(lambda row: {"length": len(row["text"])})
push(short); push(short, release=rows.privacy)
push(short, release=rows.privacy, postprocessing="short texts left out")
push(short, release=rows.privacy, postprocessing=["", "length"])
push(short, release=rows.privacy, postprocessing=["texts of 5 letters left out", "length: letters of the text"])
found = hf_dpsynth.verify("tester/reviews"); assert found.ok, found.findings
release = hf_dpsynth.load_privacy("tester/reviews")
assert release.added_columns == ("length",) and release.guarantee == rows.privacy.guarantee
assert "texts of 5 letters left out" in release.statement()
back = load_dataset("tester/reviews")["train"]
assert back.column_names == short.column_names and short.privacy is None
push(back, "tester/copy", release=release)
push(back.select(range(3)), "tester/few", release=release, postprocessing="the first 3 rows")
assert hf_dpsynth.verify("tester/few").ok and len(hf_dpsynth.load_privacy("tester/few").postprocessing) == 3
"""
    ).splitlines()
    assert [line.split(" | ")[0] for line in said] == ["ConfigError"] * 4
    assert "no release" in said[0] and "postprocessing=" in said[1] and "'length'" in said[2] and "in words" in said[3]
    claim = json.loads(text(hub, "privacy.json"))
    assert claim["claim_status"] == "formal_dp_conditional"
    unknown = [one["name"] for one in claim["accounting"]["assumptions"] if one["holds"] == "unknown"]
    assert unknown[-1] == "post-processing used no private data"
    card = text(hub, "README.md")
    assert "**post-processing used no private data: unknown**" in card and "texts of 5 letters left out" in card
    assert "if the unknown assumptions below hold" in card and "These words were here." in card


@pytest.mark.slow
def test_a_stream_is_read_once_and_published_as_rows(hub, client):
    said = client.call(
        MADE
        + """
from datasets import IterableDataset, IterableDatasetDict
source = reviews(2500).to_iterable_dataset(num_shards=3)
from datasets import Dataset
values = ["a good film", "a bad film", "a long film"]
def read():
    for value in values: yield {"text": value}
moving = IterableDataset.from_generator(read).privatize("madlib", epsilon=9, text_column="text")
assert push(moving, "tester/moving"); assert push(moving, "tester/moving")
values.insert(0, "one more"); push(moving, "tester/moving")
secret = moving.map(lambda row: {"ssn": row["text"]}, remove_columns=["text"])
push(secret, "tester/secret", release=moving.privacy, postprocessing="texts of the stream")
stream = source.privatize("madlib", epsilon=9, text_column="text", keep_columns=["label"])
push(stream.take(5)); push(stream.take(5), release=stream.privacy)
commit = push(stream, max_shard_size=20_000); assert commit
back = load_dataset("tester/reviews")["train"]
assert back["text"][:] == [row["text"] for row in stream] and len(back) == 2500
found = hf_dpsynth.verify("tester/reviews"); assert found.ok, found.findings
release = hf_dpsynth.load_privacy("tester/reviews")
assert release.rows[0].number == 2500 and len(release.files) > 1 and "read from a stream" in release.notes[-1]
assert any("one more release of it" in note for note in release.notes)
assert push(back, "tester/copy", release=release)
both = IterableDatasetDict(train=source, test=reviews(20).to_iterable_dataset())
both = both.privatize("madlib", epsilon=9, text_column="text"); assert push(both, "tester/both")
assert {name: len(part) for name, part in load_dataset("tester/both").items()} == {"train": 2500, "test": 20}
"""
    ).splitlines()
    assert len(said) == 4 and "the stream gives other rows" in said[0] and "the column 'ssn'" in said[1]
    assert "no release" in said[2] and "its own release" in said[3] and "tester/secret" not in str(hub.repos)


def test_the_recipe_and_its_script_lie_beside_the_rows_and_are_checked(hub, client):
    said = client.call(
        MADE
        + """
rows = synth(labels=None, label_proportions={"neg": 0.25, "pos": 0.75}); push(rows)
from huggingface_hub import snapshot_download
from hf_dpsynth import recipe
folder = snapshot_download("tester/reviews", repo_type="dataset")
plan, own = recipe.load(folder + "/recipe.yaml", []).plan(), rows.privacy.plan
assert plan.guarantee.epsilon == 4 and plan.event == own.event  # the stubs add an assumption and have no repository
assert set(plan.differences(own)) <= {"guarantee", "model_ids", "label_columns"}
import subprocess, sys
done = subprocess.run([sys.executable, folder + "/make.py", "nowhere.csv", "new"], capture_output=True, text=True)
print(done.returncode, done.stderr)
"""
    )
    assert said.startswith("2 ") and "nowhere.csv" in said and "Traceback" not in said
    repo, ask = hub.dataset("tester/reviews"), ASK + 'print(hf_dpsynth.verify("tester/reviews").findings)'
    repo.tampered("recipe.yaml", text(hub, "recipe.yaml").replace("epsilon: 4.0", "epsilon: 0.1").encode())
    repo.tampered("make.py", b"import os\n")
    said = client.call(ask, HF_HOME=client.folder / "another")
    assert "recipe.yaml: not the recipe of the plan" in said and "make.py: not the script" in said


def test_an_audit_that_refutes_the_claim_stops_a_push_and_is_found(hub, client):
    said = client.call(
        MADE
        + """
from dataclasses import replace
from hf_dpsynth.release import Audit
def audited(value):
    found = Audit(attack="one_run", metric="epsilon_lower", value=value, ci=(0.0, 9.0), uses_private_data=True)
    return replace(rows.privacy, audits=(found,))
push(rows, release=audited(4.5)); assert push(rows, release=audited(1.5))
audited(4.5).save("run"); print(hf_dpsynth.verify("run").findings)
"""
    )
    first, second = said.splitlines()
    found = "audit[0]: one_run shows an epsilon of at least 4.5, 4 is claimed"
    assert first.startswith(f"PrivacyError | {found}: the claim does not hold.")
    assert found in second
    held = json.loads(text(hub, "privacy.json"))["audit"]
    assert held[0]["value"] == 1.5 and held[0]["ci"] == [0.0, 9.0]
    assert client.call(ASK + 'print(hf_dpsynth.verify("tester/reviews").ok)') == "True\n"


@pytest.mark.slow
def test_a_budget_across_runs_stands_on_the_card(hub, client):
    client.call(
        MADE
        + """
budget = hf_dpsynth.PrivacyBudget("b.db", epsilon=8, delta=1e-4)
first = synth(epsilon=2.0, budget=budget); push(first)
second = synth(epsilon=3.0, budget=budget, out="two"); push(second, "tester/second")
from hf_dpsynth import cli
assert cli.call(["push", "two", "tester/again"]) == 0
again = synth(epsilon=3.0, budget=budget, out="two"); assert again.privacy.budget == second.privacy.budget
found = hf_dpsynth.verify("tester/second"); assert found.ok and any("budget" in line for line in found.not_checkable)
"""
    )
    held = json.loads(text(hub, "privacy.json", "tester/second"))["cumulative"]["budget"]
    assert held["epsilon"] == 8 and held["delta"] == 1e-4 and held["runs"] == 2 and 3 < held["spent"] <= 5.5
    card = text(hub, "README.md", "tester/again")
    assert "stay within DP epsilon = 8 at delta = 0.0001 together" in card and "2 runs had reserved or spent" in card


@pytest.mark.slow
def test_names_that_yaml_would_change_stay_names(hub, client):
    names = ["on", "1e-06", "null", "2024-01-01", "jä.1"]
    client.call(
        MADE
        + f"""
names = {names!r}
for name in names: assert push(synth(), config_name=name)
assert push(rows, "tester/splits", config_name="no")
from datasets import DatasetDict
for name in names: assert load_dataset("tester/reviews", name)["train"].num_rows == 12
assert load_dataset("tester/splits")["train"].num_rows == 12
assert hf_dpsynth.verify("tester/reviews").ok
"""
    )
    configs = front(hub)["configs"]
    assert [one["config_name"] for one in configs] == names and configs[0]["default"] is True


def test_what_lies_in_a_repository_is_not_written_over_or_trusted(hub, client):
    """Ignored files, files of ours that are not ours, rows of any format, a forged or dropped claim."""
    for name, files in {
        "ignores": {".gitignore": b"*.json\n"}, "script": {"make.py": b"mine"}, "json": {"train.json": b"[]"},
        "upper": {"more/rows.PARQUET": b"PAR1"}, "bom": {"README.md": b"\xef\xbb\xbf" + README},
        "and": {"README.md": README.replace(b"mit", b"mit\npretty_name: R&D")},
    }.items():  # fmt: skip
        hub.add("datasets", f"tester/{name}", files)
    said = client.call(
        MADE
        + """
for name in ("ignores", "script", "json", "upper"): push(rows, "tester/" + name)
assert push(rows, "tester/bom") and push(rows, "tester/and") and push(rows, "tester/bom", private=False)
push(rows, "noowner"); push(rows, config_name="README.md")
other = synth(epsilon=1.0); push(rows, release=other.privacy, postprocessing="white space cleaned")
inf = synth(epsilon=float("inf"), delta=None); push(inf, "tester/inf"); push(rows, "tester/inf", config_name="extra")
assert hf_dpsynth.verify("tester/inf").ok and hf_dpsynth.verify("tester/bom").ok
back = load_dataset("tester/inf", "extra")["train"]
assert push(back, "tester/fresh", release=hf_dpsynth.load_privacy("tester/inf"))
assert hf_dpsynth.verify("tester/fresh").ok
words = reviews(40).privatize("madlib", epsilon=9, text_column="text", keep_columns=["label"])
halves = words.train_test_split(0.5)
push(halves, "tester/halves", release=words.privacy, postprocessing="split in two")
assert hf_dpsynth.verify("tester/halves").ok, hf_dpsynth.verify("tester/halves").findings
"""
    ).splitlines()
    wanted = (
        ".gitignore", "make.py, which this push would replace", "1 files of rows", "1 files of rows", "no owner",
        "config_name is 'README.md'", "a release of their own",
    )  # fmt: skip
    assert len(said) == len(wanted), said
    assert all(words in line for words, line in zip(wanted, said, strict=True)), said
    for name in ("bom", "and"):
        assert front(hub, f"tester/{name}")["license"] == "mit"
        assert "publisher's own text" in text(hub, "README.md", f"tester/{name}")
    several = front(hub, "tester/inf")
    assert several["differential_privacy"]["epsilon"] is None and "differential-privacy" not in several["tags"]
    assert several["differential_privacy"]["claim_status"] == "none"
    assert "no guarantee holds for all of it" in text(hub, "README.md", "tester/inf")
    repo = hub.dataset("tester/bom")
    repo.tampered("leak.csv", b"text")
    asked = client.call(ASK + 'print(hf_dpsynth.verify("tester/bom").findings)', HF_HOME=client.folder / "new")
    assert "leak.csv: not listed" in asked
