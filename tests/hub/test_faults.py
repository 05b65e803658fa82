import pytest

from tests.hub.running import ClientError

UPLOAD = """
from huggingface_hub import CommitOperationAdd, HfApi
files = {"README.md": b"# card", "data.parquet": bytes(300_000)}
operations = [CommitOperationAdd(path, content) for path, content in files.items()]
HfApi().create_commit("lab/one", operations, commit_message="push", repo_type="dataset")
"""
DOWNLOAD = """
from huggingface_hub import hf_hub_download
data = open(hf_hub_download("lab/one", "data.parquet", repo_type="dataset"), "rb").read()
assert data == bytes(range(256)) * 45_000, len(data)
"""
DATA = bytes(range(256)) * 45_000


@pytest.fixture
def repo(hub):
    return hub.add("datasets", "lab/one", {"old.txt": b"old"})


def published(repo):
    return sorted(repo.head.files) == [".gitattributes", "README.md", "data.parquet", "old.txt"]


@pytest.mark.parametrize(
    "action, said",
    [
        (("status", 500), "injected 500"),
        (("status", 401, {"X-Error-Message": "Invalid credentials in Authorization header"}), "401"),
        (("status", 404, {"X-Error-Code": "RepoNotFound"}), "RepositoryNotFoundError"),
        (("status", 409, {}, {"error": "another commit is in progress"}), "another commit is in progress"),
        (("status", 412), "injected 412"),
        (("cut", 60), "Error"),
        (("cut", 0), "Error"),
    ],
)
def test_a_commit_that_fails_changes_nothing_and_its_retry_completes(hub, client, repo, action, said):
    hub.fail("POST", "/commit/", *action)
    with pytest.raises(ClientError, match=said):
        client.call(UPLOAD)
    assert len(repo.history) == 2 and len(hub.asked("POST", "/commit/")) == 1
    client.call(UPLOAD)
    assert len(repo.history) == 3 and published(repo)
    assert [request.fault for request in hub.asked("POST", "/commit/")] == [action[0], None]


@pytest.mark.parametrize("action", [("status", 503), ("cut", 100_000)])
def test_an_upload_that_fails_once_is_sent_again_by_the_client(hub, client, repo, action):
    hub.fail("PUT", "/lfs/", *action)
    client.call(UPLOAD)
    assert [request.fault for request in hub.asked("PUT")] == [action[0], None] and published(repo)


def test_a_commit_whose_answer_is_lost_is_there_and_its_retry_adds_no_other(hub, client, repo):
    hub.fail("POST", "/commit/", "cut-response", 5)
    with pytest.raises(ClientError, match="RemoteProtocolError"):
        client.call(UPLOAD)
    assert published(repo) and len(repo.history) == 3
    client.call(UPLOAD)
    assert len(repo.history) == 3


def test_a_download_that_is_cut_goes_on_after_the_last_whole_block_of_the_client(hub, client, repo):
    """It keeps blocks of 10 MiB: a cut within the first starts again, a later one asks for the rest as a range."""
    repo.write({"data.parquet": DATA})
    hub.fail("GET", "/resolve/.*data.parquet", "cut-response", 400_000)
    hub.fail("GET", "/resolve/.*data.parquet", "cut-response", 11_000_000)
    client.call(DOWNLOAD)
    answers = [(request.status, request.fault) for request in hub.asked("GET", "/resolve/")]
    assert answers == [(200, "cut-response"), (200, "cut-response"), (206, None)]


def test_a_slow_answer_is_too_late_for_one_request_and_asked_for_again_by_a_download(hub, client, repo):
    repo.write({"data.parquet": DATA})
    hub.fail("GET", "/api/datasets/lab/one$", "slow", 20)
    hub.fail("HEAD", "/resolve/", "slow", 20)
    with pytest.raises(ClientError, match="ReadTimeout"):
        client.call("from huggingface_hub import HfApi; HfApi().dataset_info('lab/one', timeout=0.5)")
    client.call(DOWNLOAD, HF_HUB_ETAG_TIMEOUT=1)
    assert [request.fault for request in hub.asked("HEAD", "/resolve/")] == ["slow", None]


def test_a_fault_meets_its_method_and_path_as_often_as_was_said(hub, client, repo):
    hub.fail("GET|HEAD", r"/resolve/main/old\.txt$", "status", 403, {"X-Error-Message": "not today"}, times=2)
    client.call(
        """
from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import LocalEntryNotFoundError
assert HfApi().list_repo_files("lab/one", repo_type="dataset") == [".gitattributes", "old.txt"]
for expected in (False, False, True):
    try:
        path = hf_hub_download("lab/one", "old.txt", repo_type="dataset")
    except LocalEntryNotFoundError as error:
        assert not expected and "not today" in str(error.__cause__), repr(error.__cause__)
    else:
        assert expected and open(path).read() == "old"
"""
    )


def test_a_client_that_fails_says_so(client):
    with pytest.raises(ClientError, match="ZeroDivisionError"):
        client.call("1 / 0")
    show = "import os; print(os.environ.get('HF_TOKEN'), os.environ.get('X'))"
    assert client.call(show) == "hf_test None\n" and client.call(show, HF_TOKEN=None, X=1) == "None 1\n"
