"""What takes minutes: the demonstration as a user starts it, and every asset fetched into an empty cache."""

import os
import pathlib
import subprocess
import sys

import pytest

from hf_dpsynth import data
from hf_dpsynth.models import catalog
from tests.stubs import files_with


@pytest.mark.slow
def test_the_demonstration_runs_and_its_second_start_spends_nothing(tmp_path):
    def demo():
        done = subprocess.run(
            [sys.executable, "-m", "hf_dpsynth.demo", "--rows", "20"], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return [line for line in done.stdout.splitlines() if line.startswith(("   [", "Charges", "This release"))]

    first = demo()
    assert len(first) == 8 and first == demo()
    for text in data.load("movie")["train"].select(range(300))["text"]:
        assert files_with(tmp_path / "demo-run", text) == []


@pytest.mark.slow
@pytest.mark.network
def test_every_asset_is_fetched_into_an_empty_cache_and_works_offline_afterwards(tmp_path):
    script = (
        "from hf_dpsynth import data, models; from hf_dpsynth.models import catalog\n"
        "print([models.pull(a.name) for a in catalog.models()], [len(data.load(a.name)) for a in catalog.datasets()])"
    )
    environment = {**os.environ, "HF_DPSYNTH_CACHE": str(tmp_path / "cache")}
    online = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert online.returncode == 0, online.stderr[-2000:]
    offline = subprocess.run(
        [sys.executable, "-c", script], env={**environment, "HF_DPSYNTH_OFFLINE": "1"}, capture_output=True, text=True
    )
    assert offline.returncode == 0 and offline.stdout == online.stdout
    assert len(catalog.models()) == 4 and len(catalog.datasets()) == 3
    assert not list(pathlib.Path(tmp_path / "cache").rglob("*.partial"))
