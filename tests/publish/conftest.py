"""Runs of each kind, made once and copied for each test."""

import math
import shutil

import pytest

import hf_dpsynth
from tests.stubs import reviews, synth, toy_vectors


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """One run of each kind, copied for each test."""
    folder = tmp_path_factory.mktemp("made")
    synth(out=folder / "aug-pe")
    synth(reviews(24), num_rows=None, out=folder / "sized")
    synth(epsilon=math.inf, delta=None, out=folder / "infinite")
    budget = hf_dpsynth.PrivacyBudget(folder / "b.db", epsilon=5, delta=1e-4)
    synth(out=folder / "budget", budget=budget)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        vectors = toy_vectors()
        reviews().privatize("madlib", epsilon=7, text_column="text", vectors=vectors, out=folder / "madlib")
        clear = {"keep_columns": ["label"], "out": folder / "clear"}
        reviews().privatize("madlib", epsilon=7, text_column="text", vectors=vectors, **clear)
    return folder


@pytest.fixture
def run(made, tmp_path):
    def copy(kind="aug-pe"):
        shutil.copytree(made / kind, tmp_path / "run")
        return tmp_path / "run"

    return copy
