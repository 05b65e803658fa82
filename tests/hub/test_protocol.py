import hashlib
import http.client
import json
import shutil
import subprocess

import pytest

from tests.hub.repos import LFS_SIZE, File
from tests.hub.server import READ, WRITE

CARD = b"---\nlicense: mit\ntags:\n- text\n---\n# Card\n"
EMPTY_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n"


@pytest.fixture
def ask(hub):
    """One request on a connection of its own: status, headers and body (read as JSON where it is)."""

    def send(method, path, body=None, token=WRITE, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", hub.server_port, timeout=20)
        try:
            headers |= {"Authorization": f"Bearer {token}"} if token else {}
            chunked = body is not None and not isinstance(body, (str, bytes, dict))
            data = json.dumps(body) if isinstance(body, dict) else body
            connection.request(method, path, data, headers, encode_chunked=chunked)
            answer = connection.getresponse()
            content = answer.read()
            is_json = "json" in answer.headers["Content-Type"]
            return answer.status, answer.headers, json.loads(content) if is_json and content else content
        finally:
            connection.close()

    return send


def lines(*operations, parent=None):
    header = {"key": "header", "value": {"summary": "a change"} | ({"parentCommit": parent} if parent else {})}
    return "\n".join(json.dumps(one) for one in (header, *operations)).encode()


def added(path, content="aGk="):
    return {"key": "file", "value": {"path": path, "content": content, "encoding": "base64"}}


def test_object_ids_are_those_of_git():
    # git hash-object of "test content\n": Pro Git, 2nd edition, chapter 10.2
    assert File(b"test content\n").oid == "d670460b4b4aece5915caf5c68d12f560a9fe3e4"
    pointer = EMPTY_POINTER % (hashlib.sha256(b"data").hexdigest(), 4)
    assert File(b"data", lfs=True).pointer.decode() == pointer
    if shutil.which("git"):
        hashed = subprocess.run(["git", "hash-object", "--stdin"], input=pointer.encode(), capture_output=True)
        assert File(b"data", lfs=True).oid == hashed.stdout.decode().strip()


def test_a_file_answers_by_branch_tag_pull_request_and_sha_with_the_headers_of_the_hub(hub, ask):
    repo = hub.add("datasets", "lab/one", {"a b/é.txt": b"0123456789", "x.parquet": b"PAR1"})
    sha = repo.head.sha
    repo.point("refs/tags/v1", repo.head)
    ask("POST", "/api/datasets/lab/one/commit/main?create_pr=1", lines(added("new.txt")))
    paths = ["main", "v1", sha, sha[:8], "refs%2Fheads%2Fmain", "refs%2Fpr%2F1", "refs/pr/1"]
    for revision in paths:
        status, headers, body = ask("GET", f"/datasets/lab/one/resolve/{revision}/a%20b/%C3%A9.txt")
        assert (status, body, headers["Content-Length"]) == (200, b"0123456789", "10")
        assert headers["ETag"] == f'"{File(body).oid}"' and headers["X-Linked-Etag"] is None
        assert (headers["X-Repo-Commit"] == sha) == ("pr" not in revision)
    status, headers, body = ask("HEAD", "/datasets/lab/one/resolve/main/x.parquet")
    digest = hashlib.sha256(b"PAR1").hexdigest()
    assert (status, body, headers["ETag"], headers["X-Linked-Etag"]) == (200, b"", f'"{digest}"', f'"{digest}"')
    assert headers["Content-Length"] == headers["X-Linked-Size"] == "4"


def test_a_range_is_answered_with_its_part_and_one_outside_with_416(hub, ask):
    hub.add("models", "lab/m", {"f": b"0123456789"})
    for asked, first, content in [("2-4", 2, b"234"), ("7-", 7, b"789"), ("-3", 7, b"789"), ("8-99", 8, b"89")]:
        status, headers, body = ask("GET", "/lab/m/resolve/main/f", Range=f"bytes={asked}")
        place = f"bytes {first}-{first + len(content) - 1}/10"
        assert (status, body, headers["Content-Range"]) == (206, content, place)
    status, headers, _ = ask("GET", "/lab/m/resolve/main/f", Range="bytes=10-")
    assert (status, headers["Content-Range"]) == (416, "bytes */10")


def test_what_is_missing_is_named_by_its_code(hub, ask):
    sha = hub.add("datasets", "lab/one", {"f": b""}).head.sha
    for path, code in {
        "/datasets/lab/one/resolve/main/g": "EntryNotFound",
        "/api/datasets/lab/one/tree/main/g": "EntryNotFound",
        "/datasets/lab/one/resolve/other/f": "RevisionNotFound",
        "/api/datasets/lab/one/revision/other": "RevisionNotFound",
        "/datasets/lab/two/resolve/main/f": "RepoNotFound",
        "/lab/one/resolve/main/f": "RepoNotFound",
        "/api/spaces/lab/one": "RepoNotFound",
        "/api/nothing": None,
    }.items():
        status, headers, body = ask("GET", path)
        assert (status, headers["X-Error-Code"]) == (404, code) and body["error"]
        assert headers["X-Repo-Commit"] == (sha if path.endswith("resolve/main/g") else None)


def test_a_private_repo_does_not_exist_without_a_token_of_its_namespace(hub, ask):
    hub.add("datasets", "lab/one", {"f": b"1"}, private=True)
    hub.add("datasets", "stranger/one", {"f": b"1"}, private=True)
    places = ["/api/datasets/{}/one", "/datasets/{}/one/resolve/main/f", "/api/datasets/{}/one/tree/main"]
    for path in places:
        statuses = [ask("GET", path.format("lab"), token=token)[0] for token in (WRITE, READ, None, "hf_wrong")]
        assert statuses == [200, 200, 404, 401]
        assert ask("GET", path.format("stranger"))[0] == 404
    assert ask("PUT", "/api/datasets/lab/one/settings", {"visibility": "public"})[0] == 200
    assert [ask("GET", path.format("lab"), token=None)[0] for path in places] == [200] * 3
    assert ask("GET", "/api/datasets/lab/one", token=None)[2]["private"] is False


def test_only_a_write_token_of_the_namespace_changes_a_repo(hub, ask):
    own, other = (hub.add("datasets", f"{name}/one", {"f": b"1"}) for name in ("lab", "stranger"))
    writes = [
        ("POST", "/api/datasets/{}/one/commit/main", lines(added("g"))),
        ("POST", "/api/datasets/{}/one/preupload/main", {"files": []}),
        ("POST", "/api/datasets/{}/one/branch/dev", {}),
        ("POST", "/api/datasets/{}/one/tag/main", {"tag": "v1"}),
        ("PUT", "/api/datasets/{}/one/settings", {"visibility": "private"}),
        ("POST", "/api/repos/create", {"name": "two", "organization": "{}", "type": "dataset"}),
        ("DELETE", "/api/repos/delete", {"name": "one", "organization": "{}", "type": "dataset"}),
    ]
    refusals = [("lab", READ, 403), ("lab", None, 401), ("lab", "hf_no", 401), ("stranger", WRITE, 403)]
    for method, path, body in writes:
        for namespace, token, expected in refusals:
            sent = {k: namespace if v == "{}" else v for k, v in body.items()} if isinstance(body, dict) else body
            status, _, answer = ask(method, path.format(namespace), sent, token)
            assert (status, bool(answer["error"])) == (expected, True)
    assert len(own.states) == len(other.states) == 2 and not own.private
    assert ask("POST", "/api/datasets/stranger/one/commit/main?create_pr=1", lines(added("g")))[0] == 200
    assert list(other.refs) == ["refs/heads/main", "refs/pr/1"] and "g" not in other.head.files
    assert {request.token for request in hub.requests} == {"read", "none", "invalid", "write"}


def test_a_commit_is_a_whole_tree_and_is_applied_whole_or_not_at_all(hub, ask):
    repo = hub.add("models", "lab/m", {"a/b.txt": b"1", "a/c.txt": b"2", "d.txt": b"3"})
    before, path = repo.head, "/api/models/lab/m/commit/main"
    lfs = {"key": "lfsFile", "value": {"path": "w.safetensors", "oid": "0" * 64, "size": 3}}
    for bad, expected in {
        lines(added("x"), {"key": "deletedFile", "value": {"path": "none.txt"}}): 404,
        lines(added("x"), lfs): 400,
        lines(added("x"), added("README.md", "LS0tCmE6IFsKLS0tCg==")): 400,
        lines(added("x"), {"key": "renamed", "value": {"path": "d.txt"}}): 400,
        lines(added("x"), parent="0" * 40): 412,
    }.items():
        assert ask("POST", path, bad)[0] == expected
    assert repo.head is before and len(repo.history) == 2
    changes = [{"key": "deletedFolder", "value": {"path": "a/"}}, {"key": "deletedFile", "value": {"path": "d.txt"}}]
    status, _, answer = ask("POST", path, lines(*changes, added("e"), parent=before.sha[:10]))
    assert (status, answer["commitOid"], repo.head.parent) == (200, repo.head.sha, before)
    assert sorted(repo.head.files) == [".gitattributes", "e"]
    assert sorted(before.files) == [".gitattributes", "a/b.txt", "a/c.txt", "d.txt"]
    assert ask("GET", f"/lab/m/resolve/{before.sha}/d.txt")[2] == b"3"


def test_an_object_of_lfs_is_stored_when_its_content_has_its_name(hub, ask):
    repo = hub.add("datasets", "lab/one", {})
    digest = hashlib.sha256(b"data").hexdigest()
    batch = {"operation": "upload", "objects": [{"oid": digest, "size": 4}]}
    where = "/datasets/lab/one.git/info/lfs/objects/batch"
    actions = ask("POST", where, batch)[2]["objects"][0]["actions"]
    upload, verify = (actions[name]["href"].removeprefix(hub.url) for name in ("upload", "verify"))
    assert ask("PUT", upload, b"datb", token=None)[0] == 400 and repo.objects == {}
    assert ask("POST", verify, {"oid": digest, "size": 4})[0] == 404
    assert ask("PUT", "/lfs/guessed", b"data", token=None)[0] == 403
    assert ask("PUT", upload, iter([b"da", b"", b"ta"]), token=None)[0] == 200 and repo.objects == {digest: b"data"}
    assert ask("POST", verify, {"oid": digest, "size": 4})[0] == 200
    assert "actions" not in ask("POST", where, batch)[2]["objects"][0]
    sizes = {"a.txt": 5, "b.txt": LFS_SIZE + 1, "c.parquet": 5, "d.safetensors": 5}
    files = {"files": [{"path": path, "size": size, "sample": ""} for path, size in sizes.items()]}
    modes = ask("POST", "/api/datasets/lab/one/preupload/main", files)[2]["files"]
    assert [mode["uploadMode"] for mode in modes] == ["regular", "lfs", "lfs", "lfs"]


def test_the_metadata_of_a_card_are_checked_and_shown(hub, ask):
    hub.add("datasets", "lab/one", {"README.md": CARD})
    assert ask("GET", "/api/datasets/lab/one")[2]["cardData"] == {"license": "mit", "tags": ["text"]}
    for content, expected in {
        CARD.decode(): (200, 0, 0),
        "# no metadata": (200, 0, 1),
        "---\na: [\n---\n": (400, 1, 0),
        "---\n- a\n---\n": (400, 1, 0),
    }.items():
        status, _, said = ask("POST", "/api/validate-yaml", {"content": content, "repoType": "dataset"}, token=None)
        assert (status, len(said["errors"]), len(said["warnings"])) == expected


def test_what_the_public_could_see_is_kept_state_by_state(hub, ask):
    ask("POST", "/api/repos/create", {"name": "one", "type": "dataset", "visibility": "private"})
    repo = hub.dataset("tester/one")
    ask("POST", "/api/datasets/tester/one/commit/main", lines(added("data.txt")))
    assert repo.shown() == []
    ask("POST", "/api/datasets/tester/one/commit/main", lines(added("privacy.json")))
    ask("PUT", "/api/datasets/tester/one/settings", {"private": False})
    ask("POST", "/api/datasets/tester/one/branch/old", {"startingPoint": repo.history[1].sha})
    first, second = [{ref: sorted(one.files) for ref, one in state.items()} for state in repo.shown()]
    assert first == {"refs/heads/main": [".gitattributes", "data.txt", "privacy.json"]}
    assert second["refs/heads/old"] == [".gitattributes", "data.txt"]
    times = [request.time for request in hub.requests]
    assert times == sorted(times) and times[0] < repo.states[0].time < times[1] < repo.states[1].time


def test_a_tampered_file_differs_in_the_newest_commit_alone(hub, ask):
    repo = hub.add("datasets", "lab/one", {"a.txt": b"1", "b.txt": b"2"})
    before = repo.head
    newest = repo.write({"b.txt": b"3"})
    repo.tampered("a.txt", b"forged")
    assert ask("GET", "/datasets/lab/one/resolve/main/a.txt")[2] == b"forged"
    assert ask("GET", f"/datasets/lab/one/resolve/{before.sha}/a.txt")[2] == b"1"
    assert repo.head is newest and len(repo.history) == 3 and repo.head.files["b.txt"].data == b"3"
    repo.tampered("new.txt", b"added")
    assert ask("GET", "/datasets/lab/one/resolve/main/new.txt")[2] == b"added" and len(repo.history) == 3
