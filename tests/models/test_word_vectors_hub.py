import json
import os
import subprocess
import sys

import pytest

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.models.word_vectors import load_vectors
from tests.models.hub_server import COMMIT, serving

TEXT = b"the 1 2\nof 3 4\nand 5 6\n"
CODE = """
import json, sys
from hf_dpsynth.errors import HfDpsynthError
from hf_dpsynth.models.word_vectors import load_vectors
for name in sys.argv[1:]:
    try:
        found = load_vectors(name)
        print(json.dumps([found.id, found.words, found.vectors.tolist()]))
    except HfDpsynthError as error:
        print(json.dumps([type(error).__name__, str(error)]))
"""


def loaded(cache, names, url="http://127.0.0.1:9", **environment):
    """What a fresh process gets for each name from the Hub at this address."""
    inherited = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    settings = {"HF_ENDPOINT": url, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *names],
        env=inherited | settings | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_hub_id_is_fetched_once_and_then_found_without_a_network(tmp_path):
    files = {
        "vectors.txt": TEXT,
        "README.md": b"---\n---\n",
        "LICENSE.txt": b"Public Domain Dedication and License\n",
        "pytorch_model.bin": b"0" * 10,
        "more/other.txt": TEXT,
    }
    with serving("org/tiny", files) as hub:
        (first,) = loaded(tmp_path, ["org/tiny"], hub.url)
        fetched = {line.rsplit("/", 1)[1] for line in hub.requests if line.startswith("GET /org/tiny/resolve")}
    assert first == [f"org/tiny@{COMMIT[:12]}", ["the", "of", "and"], [[1, 2], [3, 4], [5, 6]]]
    assert fetched == {"vectors.txt", "LICENSE.txt"}
    assert loaded(tmp_path, ["org/tiny"], HF_HUB_OFFLINE="1") == [first]


def test_a_hub_repo_without_one_file_of_vectors_is_refused(tmp_path):
    with serving("org/two", {"a.txt": TEXT, "b.vec": TEXT, "config.json": b"{}"}) as hub:
        two, missing = loaded(tmp_path, ["org/two", "org/missing"], hub.url)
    assert two[0] == "ConfigError" and "org/two@" in two[1] and "holds 2 files of vectors (a.txt, b.vec)" in two[1]
    assert "What counts" in two[1] and "Pass the path of one file" in two[1]
    assert missing[0] == "AssetError" and "could not fetch org/missing from the Hub" in missing[1]
    with serving("org/none", {"config.json": b"{}", "vectors.zip": b"PK"}) as hub:
        (none,) = loaded(tmp_path, ["org/none"], hub.url)
    assert none[0] == "ConfigError" and "holds 0 files of vectors;" in none[1]


def test_a_hub_id_that_is_not_in_the_cache_is_refused_without_a_network(tmp_path):
    with serving("org/tiny", {"vectors.txt": TEXT}) as hub:
        for variable in ("HF_HUB_OFFLINE", "HF_DPSYNTH_OFFLINE"):
            (answer,) = loaded(tmp_path, ["org/tiny"], hub.url, **{variable: "1"})
            assert answer[0] == "AssetError" and "could not fetch org/tiny from the Hub" in answer[1]
    assert hub.requests == []


def test_a_path_that_is_not_there_is_not_asked_of_the_hub(tmp_path):
    for source in ("data/reviews.txt", "data/glove.npy"):
        with pytest.raises(ConfigError, match="is no file, folder or short name"):
            load_vectors(source)
