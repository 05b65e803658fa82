"""Canaries in texts and labels must not appear in a file, a log, an exception, a repr or a prompt."""

import io
import logging
import pathlib
import pickle
import sqlite3
import traceback

import numpy as np
import pytest

import hf_dpsynth
from hf_dpsynth.compute import nearest
from tests.stubs import CANARY, StubEmbedder, StubGenerator, files_with, reviews, synth

LABEL_CANARY = "zqlabel"


def private(n=60):
    """Reviews with a canary in each text and one undeclared canary label."""
    ds = reviews(n)
    labels = ds["label"][:]
    labels[5] = LABEL_CANARY
    return ds.remove_columns("label").add_column("label", labels)


@pytest.fixture
def log():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    loggers = [logging.getLogger(), logging.getLogger("hf_dpsynth")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    yield stream
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_no_canary_in_any_file_log_or_output(tmp_path, log, capfd, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_DATASETS_DISABLE_PROGRESS_BARS", raising=False)
    out = synth(
        private(), out=tmp_path / "run", budget=hf_dpsynth.PrivacyBudget(tmp_path / "b.db", epsilon=5, delta=1e-4)
    )
    seen = log.getvalue() + "".join(capfd.readouterr()) + repr(out) + repr(out.privacy) + out.privacy.statement()
    seen += str(out.privacy.to_json())
    for canary in (CANARY, LABEL_CANARY):
        assert files_with(tmp_path, canary) == []
        assert canary not in seen


def test_the_number_of_records_is_not_written_where_the_plan_does_not_use_it(tmp_path):
    out = synth(reviews(977), out=tmp_path / "run")
    text = str(out.privacy.to_json()) + (tmp_path / "run" / "plan.json").read_text()
    assert "977" not in text


def test_clean_votes_are_never_written(tmp_path, monkeypatch):
    """Noise of a scale that cannot return clean integers shows every clean vector that was stored by mistake."""
    clean = []

    def spy(rows, candidates):
        counts = votes(rows, candidates)
        clean.append(counts)
        return counts

    votes = nearest.votes
    monkeypatch.setattr(nearest, "votes", spy)
    shares = {"neg": 0.5, "pos": 0.5}
    synth(private(400), out=tmp_path / "run", epsilon=0.05, label_proportions=shares)
    assert len(clean) == 6
    with sqlite3.connect(tmp_path / "run" / "ledger.db") as database:
        stored = " ".join(str(row) for row in database.execute("SELECT * FROM charges"))
    database.close()
    for label in range(2):
        for counts in clean[label::2]:
            assert ",".join(map(str, counts.tolist())) not in stored


@pytest.mark.parametrize("moment", ["generator", "embedder", "votes", "commit"])
def test_an_error_in_the_middle_shows_no_private_text(tmp_path, monkeypatch, moment):
    generator, embedder = StubGenerator(), StubEmbedder()

    def fail(*args, **more):
        raise RuntimeError("the machine is on fire")

    if moment == "generator":
        generator.generate = fail
    elif moment == "embedder":
        embedder.embed = fail
    elif moment == "votes":
        monkeypatch.setattr(nearest, "votes", fail)
    else:
        monkeypatch.setattr("hf_dpsynth.privacy.ledger.Ledger.commit", fail)
    with pytest.raises(RuntimeError) as caught:
        synth(private(), out=tmp_path / "run", generator=generator, embedder=embedder)
    trace = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=False).format())
    assert CANARY not in trace and LABEL_CANARY not in trace
    assert files_with(tmp_path, CANARY) == []


def test_the_run_shows_no_private_text_in_the_locals_of_our_frames(tmp_path):
    """Tracebacks with locals, as rich and sentry print them, show redacted records where we hold them."""

    class Broken(StubGenerator):
        def generate(self, prompts, **more):
            raise RuntimeError("no model")

    with pytest.raises(RuntimeError) as caught:
        synth(private(), generator=Broken())
    trace = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    for frame in trace.stack:
        if f"{pathlib.Path(hf_dpsynth.__file__).parent}" in frame.filename:
            assert CANARY not in str(frame.locals)


def test_private_labels_that_were_not_declared_are_dropped_in_silence(tmp_path):
    out = synth(private(), out=tmp_path / "run")
    assert set(out["label"][:]) == {"neg", "pos"}


def test_the_noise_changes_from_process_start_to_process_start():
    first, second = (synth().privacy for _ in range(2))
    assert first.plan.digest() == second.plan.digest()


def test_the_release_holds_nothing_that_a_pickle_could_leak():
    data = pickle.dumps(synth(private()).privacy)
    assert CANARY.encode() not in data and LABEL_CANARY.encode() not in data


def test_the_vote_of_each_record_is_one_whatever_the_others_are():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((50, 8)).astype(np.float32)
    assert nearest.votes(rows, rows[:7]).sum() == 50
