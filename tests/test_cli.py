import os
import subprocess
import sys

import hf_dpsynth


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "hf_dpsynth.cli", *arguments],
        capture_output=True, text=True, env={**os.environ, **environment},
    )  # fmt: skip


def test_list_names_every_mechanism_with_guarantee_and_source_on_any_console():
    done = run("list", PYTHONIOENCODING="cp1252")
    assert done.returncode == 0
    for row in hf_dpsynth.list_mechanisms():
        assert all(cell in done.stdout for cell in row)


def test_models_lists_the_catalogue_and_pull_prints_a_folder(tmp_path):
    assert "smollm2-135m" in run("models").stdout
    assert run("models", "pull", str(tmp_path)).stdout.strip() == str(tmp_path)


def test_data_shows_the_splits_and_no_row():
    done = run("data", "movie")
    assert done.returncode == 0 and "movie/train" in done.stdout and "ClassLabel" in done.stdout


def test_an_error_takes_one_line_and_a_traceback_only_on_request():
    done = run("data", "movies")
    assert done.returncode != 0 and len(done.stderr.strip().splitlines()) == 1 and "movie" in done.stderr
    assert "Traceback" in run("data", "movies", HF_DPSYNTH_DEBUG="1").stderr


def test_a_wrong_verb_is_a_usage_error():
    assert run("lst").returncode == 2
    assert run("data").returncode == 2
