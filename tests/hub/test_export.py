"""Exports of a repository: read over HTTP, described by its address, and refused where the rows are others."""

import json

import pytest
import yaml

from tests.hub.test_push import MADE

SHOW = """
from hf_dpsynth.publish.exporters import export
from hf_dpsynth.errors import HfDpsynthError
def show(*arguments, **more):
    try: print(export(*arguments, **more))
    except HfDpsynthError as error: print(type(error).__name__, "|", error)
"""


def test_a_repository_is_exported_with_the_addresses_of_its_files(hub, client):
    client.call(MADE + "push(rows)")
    repo = hub.dataset("tester/reviews")
    claim = repo.head.files["privacy.json"]
    found = json.loads(client.call(SHOW + "show('tester/reviews', 'croissant')"))
    page = f"{hub.url}/datasets/tester/reviews"
    assert found["url"] == page
    files = {file["name"]: (file["contentUrl"], file["sha256"]) for file in found["distribution"]}
    name = "data/train-00000-of-00001.parquet"
    assert files == {
        name: (f"{page}/resolve/main/{name}", repo.head.files[name].sha256),
        "privacy.json": (f"{page}/resolve/main/privacy.json", claim.sha256),
    }
    assert [field["name"] for field in found["recordSet"][0]["field"]] == ["text", "label"]
    at = client.call(SHOW + "show('tester/reviews', 'croissant', revision='main')")
    assert json.loads(at) == found
    code = (
        "from hf_dpsynth import cli\nassert cli.call(['export', 'tester/reviews', '--format', 'opendp-registry']) == 0"
    )
    record = yaml.safe_load(client.call(code))
    assert record["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 4.0, "delta": 1e-4}


@pytest.mark.slow
def test_a_repository_that_is_missing_or_was_changed_is_not_exported(hub, client):
    client.call(MADE + "push(rows)")
    hub.dataset("tester/reviews").tampered("data/train-00000-of-00001.parquet", b"PAR1 other rows PAR1")
    said = client.call(SHOW + "show('tester/reviews', 'croissant'); show('tester/none', 'croissant')")
    assert said.startswith("PrivacyError | data/train-00000-of-00001.parquet") and "HubError | " in said
