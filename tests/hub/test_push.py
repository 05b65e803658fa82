"""Publishing over HTTP: rows land with their card and claim in one commit or not at all, and come back verified."""

import json
import re

import pytest

from tests.hub.running import ClientError

MADE = """
import hf_dpsynth, os
from datasets import load_dataset
from hf_dpsynth.errors import HfDpsynthError
from tests.stubs import reviews, synth

def push(rows, repo="tester/reviews", **more):
    try:
        return hf_dpsynth.push_to_hub(rows, repo, **more)
    except HfDpsynthError as error:
        print(type(error).__name__, "|", error)

rows = synth(out="run")
"""
README = b"---\nlicense: mit\ntags:\n- mine\n---\n\n# About\n\nThese words were here.\n"


def files(hub, name="tester/reviews"):
    return set(hub.dataset(name).head.files)


def test_rows_come_back_with_their_guarantee_and_no_commit_shows_them_without(hub, client):
    client.call(MADE + "commit = push(rows); again = push(rows); assert commit and again")
    repo = hub.dataset("tester/reviews")
    assert repo.private
    written = [set(commit.files) for commit in repo.history]
    whole = {"README.md", "privacy.json", "release.json", "data/train-00000-of-00001.parquet"}
    assert all(not any("parquet" in name for name in names) or whole <= names for names in written)
    assert whole <= files(hub)
    read = client.call(
        MADE
        + """
back = load_dataset("tester/reviews")["train"]
streamed = list(load_dataset("tester/reviews", streaming=True)["train"])
assert back["text"][:] == rows["text"][:] == [row["text"] for row in streamed]
assert back.features["label"] == rows.features["label"]
release = hf_dpsynth.load_privacy("tester/reviews")
assert release.guarantee == rows.privacy.guarantee and release.guarantee_id == rows.privacy.guarantee_id
found = hf_dpsynth.verify("tester/reviews")
assert found.ok and found.files_match, found.findings
assert push(back, "tester/copy", release=release)
from hf_dpsynth import cli
assert cli.call(["push", "run", "tester/by-hand", "--public"]) == 0 and cli.call(["verify", "tester/by-hand"]) == 0
"""
    )
    assert "published:" in read and not hub.dataset("tester/by-hand").private and "files match: yes" in read


def test_what_was_changed_on_the_hub_is_found(hub, client):
    client.call(MADE + "push(rows)")
    repo, ask = hub.dataset("tester/reviews"), """
found = hf_dpsynth.verify("tester/reviews"); print(found.ok, found.findings)
try: hf_dpsynth.load_privacy("tester/reviews"); print("loaded")
except HfDpsynthError as error: print(type(error).__name__, error)
"""  # fmt: skip
    claim = json.loads(repo.head.files["privacy.json"].data)
    repo.tampered("privacy.json", json.dumps(claim | {"parameters": claim["parameters"] | {"epsilon": 0.1}}).encode())
    said = client.call("import hf_dpsynth\nfrom hf_dpsynth.errors import HfDpsynthError\n" + ask)
    assert said.startswith("False") and "parameters.epsilon: claimed 0.1" in said and "do not agree" in said
    repo.tampered("privacy.json", json.dumps(claim, indent=1).encode() + b"\n")
    repo.tampered("data/train-00000-of-00001.parquet", b"PAR1 other rows PAR1")
    said = client.call("import hf_dpsynth\nfrom hf_dpsynth.errors import HfDpsynthError\n" + ask)
    assert "sha256 differs" in said and "PrivacyError data/train-00000-of-00001.parquet" in said


def test_nothing_is_sent_of_what_has_no_guarantee(hub, client):
    said = client.call(
        MADE
        + """
push(reviews()); push(rows.shuffle(seed=1)); push(rows.select(range(3)), release=rows.privacy)
push(synth(insecure_noise_seed=3)); push(rows, "no/such/id"); push(rows, "a b"); push(rows, max_shard_size="much")
os.environ["HF_HUB_OFFLINE"] = "1"
"""
    )
    lines = said.splitlines()
    assert [line.split(" |")[0] for line in lines] == ["ConfigError"] * 3 + ["PrivacyError"] + ["ConfigError"] * 3
    assert "no release" in lines[0] and "not the rows" in lines[2] and "insecure_noise_seed" in lines[3]
    assert "owner/name" in lines[4] and "max_shard_size is 'much'" in lines[6]
    assert not [one for one in hub.requests if one.method != "GET"] and not hub.repos


def test_rows_and_claims_that_lie_there_are_not_stood_beside(hub, client):
    hub.add("datasets", "tester/reviews", {"data/train.csv": b"text\nprivate\n"})
    hub.add("datasets", "tester/broken", {"privacy.json": b"{}"})
    said = client.call(
        MADE
        + """
push(rows); push(rows, "tester/broken"); push(rows, "tester/other"); push(rows, "tester/other")
push(reviews().privatize("madlib", epsilon=9, text_column="text"), "tester/other")
"""
    )
    assert re.fullmatch(
        r"PrivacyError \| tester/reviews holds 1 files of rows .*\n"
        r"PrivacyError \| privacy.json of tester/broken is none that we write: .*\n"
        r"PrivacyError \| the repository holds another release, and its definition is approximate_dp, .*\n",
        said,
    )
    assert files(hub) == {".gitattributes", "data/train.csv"}
    assert len(hub.dataset("tester/other").history) == 2  # what is there already makes no commit


def test_a_readme_that_was_there_stands_below_the_card(hub, client):
    hub.add("datasets", "tester/reviews", {"README.md": README, "notes.md": b"mine"})
    client.call(MADE + 'push(rows); push(rows); assert hf_dpsynth.verify("tester/reviews").ok')
    text = hub.dataset("tester/reviews").head.files["README.md"].data.decode()
    assert text.count("These words were here.") == 1 and text.count("license: mit") == 1
    assert text.index("not part of the card") < text.index("# About") and "notes.md" in files(hub)
    forged = text.replace("# About", "# About\n\nepsilon is 0.1").replace("DP epsilon | 4", "DP epsilon | 1")
    hub.dataset("tester/reviews").tampered("README.md", forged.encode())
    said = client.call('import hf_dpsynth; print(hf_dpsynth.verify("tester/reviews").findings)')
    assert "README.md text: not what privacy.json renders to" in said


FAULTS = {
    ("status", 401): "(401)",
    ("status", 403): "(403)",
    ("status", 404): "(404)",
    ("status", 409): "(409)",
    ("status", 412): "(412)",
    ("status", 418): "HTTP 418",
    ("status", 500): "HTTP 500",
    ("cut", 100): "the connection failed",
}


@pytest.mark.parametrize("where", ["/commit/", "/preupload/"])
def test_a_fault_publishes_nothing_says_what_to_do_and_a_retry_completes(where, hub, client):
    # before the commit the client asks again by itself where the connection failed, or the Hub did
    asked = (("cut", 100), ("status", 500)) if where == "/preupload/" else ()
    faults = {action: words for action, words in FAULTS.items() if action not in asked}
    for action in faults:
        hub.fail("POST", where, *action)
    lines = client.call(MADE + f"for _ in range({len(faults)}): push(rows)").splitlines()
    for line, words in zip(lines, faults.values(), strict=True):
        assert line.startswith("HubError | tester/reviews was not published: ") and words in line, line
        assert "hf_test" not in line
    assert not any("parquet" in name or "json" in name for name in files(hub))
    client.call(MADE + "assert push(rows)")
    assert "privacy.json" in files(hub)


def test_a_cut_upload_and_a_lost_answer_leave_nothing_half(hub, client):
    hub.fail("PUT", "", "cut", 10, times=6)  # the client asks six times
    hub.fail("POST", "/commit/", "cut-response", 0)
    said = client.call(
        MADE + "import time; time.sleep = lambda seconds: None\npush(rows)\npush(rows)\nassert push(rows)"
    )
    assert said.count("the connection failed") == 2
    for commit in hub.dataset("tester/reviews").history:
        held = set(commit.files)
        assert ("privacy.json" in held) == any(name.endswith(".parquet") for name in held)


def test_tokens_branches_and_pull_requests(hub, client):
    said = client.call(
        MADE
        + """
push(rows, token="hf_read"); push(rows, token="hf_wrong")
assert push(rows, revision="draft") and push(rows, create_pr=True).pr_url
assert hf_dpsynth.verify("tester/reviews", revision="draft").ok
assert hf_dpsynth.load_privacy("tester/reviews", revision="refs/pr/1").guarantee == rows.privacy.guarantee
"""
    )
    assert "(403)" in said and "(401)" in said
    assert not any("parquet" in name for name in files(hub))
    with pytest.raises(ClientError, match=r"HubError: tester/reviews was not read.*404|HubError: .*\(401\)"):
        client.call("import hf_dpsynth; hf_dpsynth.load_privacy('tester/reviews')", HF_TOKEN=None)
