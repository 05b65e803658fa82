"""Canaries in texts and labels must not appear in a file, a log, an exception, a repr or a prompt."""

import contextlib
import fcntl
import io
import logging
import os
import pathlib
import pickle
import pty
import re
import sqlite3
import struct
import subprocess
import sys
import termios
import textwrap
import traceback

import pytest

import hf_dpsynth
from hf_dpsynth.compute import nearest
from tests.stubs import CANARY, StubEmbedder, StubGenerator, files_with, reviews, synth

LABEL_CANARY = "zqlabel"
ROOT = pathlib.Path(__file__).parents[1]


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


@pytest.mark.parametrize("calls", [0, 2, 3])
def test_our_frames_show_no_private_text_in_their_locals(calls):
    """Tracebacks with locals, as rich and sentry print them, show redacted records where we hold them."""

    class Broken(StubEmbedder):
        def embed(self, texts):
            if self.calls == calls:
                raise RuntimeError("no model")
            return super().embed(texts)

    with pytest.raises(RuntimeError) as caught:
        synth(private(), embedder=Broken())
    frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True).stack
    ours = [frame for frame in frames if str(pathlib.Path(hf_dpsynth.__file__).parent) in frame.filename]
    assert len(ours) >= 4
    for frame in ours:
        assert CANARY not in str(frame.locals) and LABEL_CANARY not in str(frame.locals), frame.name


def test_a_terminal_shows_no_number_of_private_texts():
    """On a terminal, with the real embedder and progress bars on: 97 records of one label, 3 of the other."""
    script = textwrap.dedent("""
        import hf_dpsynth
        from tests.stubs import StubGenerator, reviews, synth
        ds = reviews(194)
        labels = [label if i < 6 else "pos" for i, label in enumerate(ds["label"][:])]
        ds = ds.remove_columns("label").add_column("label", labels)
        synth(ds, embedder="minilm", params={"iterations": 1})
    """)
    environment = {k: v for k, v in os.environ.items() if k != "HF_DATASETS_DISABLE_PROGRESS_BARS"}
    primary, secondary = pty.openpty()
    fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, stdout=secondary, stderr=secondary
    )
    os.close(secondary)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal closes with the process
        while chunk := os.read(primary, 4096):
            shown += chunk
    os.close(primary)
    assert process.wait() == 0, shown[-2000:]
    assert b"aug-pe rounds" in shown, "the test sees progress bars"
    assert not re.search(rb"\b(194|191|190|3/|6/|4/)\b", shown), shown


def test_private_labels_that_were_not_declared_are_dropped_in_silence(tmp_path):
    out = synth(private(), out=tmp_path / "run")
    assert set(out["label"][:]) == {"neg", "pos"}


def test_the_noise_changes_from_run_to_run():
    """Equal plans, models and data: the first votes are counted over equal candidates and differ by their noise."""
    values = []
    for folder in ("a", "b"):
        synth(out=folder, label_proportions={"neg": 0.5, "pos": 0.5}, epsilon=0.5)
        with sqlite3.connect(f"{folder}/ledger.db") as database:
            values.append(database.execute("SELECT about, value FROM charges WHERE key = 'votes-001'").fetchone())
        database.close()
    assert values[0][0] == values[1][0] and values[0][1] != values[1][1]


def test_the_release_holds_nothing_that_a_pickle_could_leak():
    data = pickle.dumps(synth(private()).privacy)
    assert CANARY.encode() not in data and LABEL_CANARY.encode() not in data
