"""`audit` on runs: what is found, where it stays, and what the record of the run gets."""

import json
import pathlib
from dataclasses import replace

import numpy as np
import pytest

import hf_dpsynth
from hf_dpsynth import auditing, evaluation, release
from hf_dpsynth.audit import planned
from hf_dpsynth.cli import call
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy import selection
from hf_dpsynth.publish import cumulative
from hf_dpsynth.publish.privacy_json import to_privacy_json
from tests.stubs import CANARY, StubEmbedder, StubGenerator, files_with, reviews, synth, toy_vectors

ROWS = ("membership", "neighbours", "leakage", "secrets")


class Leaky(StubGenerator):
    """Returns private rows."""

    def generate(self, prompts, *, max_new_tokens=32, temperature=1.0, seed=0):
        rows = reviews(60)["text"]
        self.calls += 1
        return [rows[(seed + self.calls + place) % 60] for place in range(len(prompts))]


@pytest.fixture(autouse=True)
def few_runs(monkeypatch):
    """A tenth of the draws of an audit of votes: its power is tested elsewhere."""
    monkeypatch.setattr(planned, "_RUNS", 200)


@pytest.fixture
def run(tmp_path):
    both = reviews(120)
    both.select(range(60)).to_json("real.jsonl")
    both.select(range(60, 120)).to_json("others.jsonl")
    synth(both.select(range(60)), out="run", num_rows=40)
    return pathlib.Path("run")


@pytest.fixture
def privatized(tmp_path):
    reviews(30).to_json("real.jsonl")
    reviews(30).privatize("madlib", epsilon=10, text_column="text", vectors=toy_vectors(), out="words")
    return pathlib.Path("words")


def attacked(run, **more):
    return auditing.audit_run(run, "real.jsonl", holdout="others.jsonl", embedder=StubEmbedder(), **more)


def test_without_real_texts_the_mechanism_is_audited_and_the_record_says_so(run):
    found = auditing.audit_run(run)
    held = hf_dpsynth.load_privacy(run)
    assert not found.violated and found.real is None and not found.skipped
    assert [one.attack for one in held.audits] == [row[0] for row in found.table()[1:]] and len(held.audits) == 2
    assert not any(one.uses_private_data for one in held.audits) and hf_dpsynth.verify(run).ok
    assert "unit audit, votes" in (run / "README.md").read_text()


def test_figures_of_real_texts_stay_beside_the_run_and_hold_none_of_them(run):
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file() and path.suffix != ".db"}
    found = attacked(run, attacks=ROWS)
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.name in before} == before
    assert found.path == pathlib.Path("run.private/audits.json").absolute() and found.published == ()
    assert found.path.stat().st_mode & 0o777 == 0o600 and not found.skipped
    assert {row[0].split(" by ")[0] for row in found.table()[1:]} >= {"membership"} and len(found.results) == 4
    assert files_with("run.private", CANARY) == [] == files_with("run", CANARY)
    assert auditing.held(run).results == found.results or auditing.held(run).table() == found.table()


def test_a_later_audit_of_the_same_texts_keeps_the_earlier_figures_and_of_others_does_not(run):
    first = attacked(run, attacks=["membership"])
    both = attacked(run, attacks=["leakage"])
    assert {one.name for one in both.results} > {one.name for one in first.results}
    other = auditing.audit_run(run, "others.jsonl", holdout="real.jsonl", attacks=["leakage"])
    assert {one.name for one in other.results} == {both.results[-1].name}


def test_what_is_asked_for_by_name_goes_into_the_record_as_not_covered(run):
    attacked(run, attacks=["membership"], publish=["membership"])
    held = hf_dpsynth.load_privacy(run)
    assert {one.metric for one in held.audits} == {"auc", "tpr_at_1_fpr", "empirical_epsilon"}
    assert all(one.uses_private_data and not one.accounted for one in held.audits) and hf_dpsynth.verify(run).ok
    attacked(run, attacks=["membership"], publish=["membership"])
    assert len(hf_dpsynth.load_privacy(run).audits) == 3, "an attack that is made again replaces its figures"


def test_a_generator_that_returns_private_rows_is_found(tmp_path):
    both = reviews(120)
    both.select(range(60)).to_json("real.jsonl")
    both.select(range(60, 120)).to_json("others.jsonl")
    synth(both.select(range(60)), out="run", num_rows=40, generator=Leaky())
    results = {one.name: one for one in attacked("run", attacks=ROWS).results}
    assert results["membership by ngram"]["auc"].value > 0.7
    figures = {row[1]: float(row[2]) for result in results.values() for row in result.rows()}
    assert (
        figures["exact_copies"] > 0.9
        and figures["exact_copies_holdout"] == 0
        and figures["exact_copies_p_value"] < 0.01
    )
    assert figures["closer_to_members"] > 0.9


def test_a_claim_that_is_refuted_ends_with_exit_code_1(run, monkeypatch, capsys):
    assert call(["audit", "run"]) == 0
    monkeypatch.setattr(selection, "discrete_gaussian", lambda counts, sigma: np.asarray(counts))
    assert call(["audit", "run"]) == 1
    assert "refuted: a figure is above the claim" in capsys.readouterr().out


def test_the_verb_prints_the_table_and_says_what_it_does_not_show(run, capsys):
    flags = "--real real.jsonl --holdout others.jsonl --attack membership --attack leakage"
    assert call(["audit", "run", *flags.split()]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["attack", "metric", "value", "interval", "n"]
    for words in ("tpr_at_1_fpr", "exact_copies", "not a proof", "no guarantee covers them", "kept in"):
        assert words in out
    assert CANARY not in out


def test_attacks_that_lack_something_are_named_with_the_way_out(run, privatized, capsys):
    found = auditing.audit_run(run, "real.jsonl", attacks=["membership", "inversion"])
    assert "--holdout" in found.skipped["membership"] and "same place" in found.skipped["inversion"]
    assert call(["audit", "run", "--attack", "membership"]) == 1
    assert "membership: not made. this attack needs --real" in capsys.readouterr().out
    assert call(["audit", "run", "--attack", "menbership"]) == 2
    assert "did you mean 'membership'" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"plan\.json"):
        auditing.audit_run(hf_dpsynth.load_privacy(run).save("saved") or "saved")


def test_a_run_without_privacy_has_no_claim_to_audit(tmp_path):
    synth(out="open", epsilon=float("inf"), delta=None)
    found = auditing.audit_run("open")
    assert "no claim to audit" in found.skipped["mechanism"] and found.table() == [auditing.COLUMNS]


def test_privatized_rows_are_attacked_at_their_place(privatized):
    found = auditing.audit_run(privatized, "real.jsonl", vectors=toy_vectors())
    assert not found.violated and {one.name for one in found.results} >= {"unit audit of the mechanism"}
    assert any("recovered" in row[1] for row in found.table())
    short = auditing.audit_run(privatized, reviews(29)["text"][:], attacks=["inversion"], vectors="toy.txt")
    assert "released 30 rows and --real has 29" in short.skipped["inversion"]


def test_the_report_shows_published_figures_on_one_page_and_all_on_the_other(run):
    pytest.importorskip("matplotlib")
    auditing.audit_run(run)
    attacked(run, attacks=["membership"])
    written = evaluation.report(run, "real.jsonl", embedder=StubEmbedder())
    public, private = (path.read_text() for path in (written.public, written.private))
    assert "unit audit" in public and "tpr_at_1_fpr" not in public
    assert "tpr_at_1_fpr" in private and "Who was among the records" in private and CANARY not in public


def test_a_file_that_is_none_of_ours_is_named(run):
    path = auditing.audit_run(run).path
    path.write_text(json.dumps({"run": "?"}))
    with pytest.raises(ConfigError, match="audit again"):
        auditing.held(run)


def test_wrong_input_is_told_before_an_attack_is_made(run):
    mixed = ["a text", 5, *["another"] * 20]
    wrong = (
        ({"real": mixed}, "holds a value of type int"),
        ({"real": {"train": ["a text"] * 20}}, "pass a list of texts"),
        ({"real": reviews(60)}, "holds a value of type dict"),
        ({"holdout": "gone.jsonl"}, "does not exist"),
        ({"holdout": mixed}, "holds a value of type int"),
        ({"confidence": 95}, "confidence is 95"),
        ({"attacks": ["leakage"], "publish": ["membership"]}, "not made here"),
    )
    for change, said in wrong:
        with pytest.raises(ConfigError, match=said):
            auditing.audit_run(run, **{"real": "real.jsonl", "holdout": "others.jsonl", **change})
    assert not pathlib.Path("run.private/audits.json").exists() and hf_dpsynth.load_privacy(run).audits == ()


def test_where_nothing_could_be_made_the_exit_code_is_1(tmp_path, capsys):
    synth(out="open", epsilon=float("inf"), delta=None)
    assert call(["audit", "open"]) == 1
    assert "no claim to audit" in capsys.readouterr().out


def test_the_split_test_alone_is_no_hold_out_of_itself(run):
    folder = pathlib.Path("one")
    folder.mkdir()
    pathlib.Path("real.jsonl").rename(folder / "test.jsonl")
    found = auditing.audit_run(run, folder, attacks=["secrets"], embedder=StubEmbedder())
    assert "--holdout" in found.skipped["secrets"] and found.results == ()


def test_without_the_key_of_the_run_figures_of_other_texts_are_never_mixed(run):
    pathlib.Path("run.private/commitment.key").unlink()
    attacked(run, attacks=["mechanism", "membership"])
    other = auditing.audit_run(run, "others.jsonl", holdout="real.jsonl", attacks=["leakage"])
    assert [one.name for one in other.results] == ["unit audit of the mechanism", "copies of private texts"]


def test_figures_of_an_earlier_audit_are_named_as_such(run, capsys):
    attacked(run, attacks=["membership"])
    assert call(["audit", "run"]) == 0
    out = capsys.readouterr().out
    assert "of earlier audits: membership by ngram" in out and "no guarantee covers them" in out


def test_an_audit_keeps_what_another_wrote_into_the_record_meanwhile(run, monkeypatch):
    attack = auditing._attacked

    def slow(*arguments):
        monkeypatch.setattr(auditing, "_attacked", attack)
        attacked(run, attacks=["membership"], publish=["membership"])
        return attack(*arguments)

    monkeypatch.setattr(auditing, "_attacked", slow)
    found = auditing.audit_run(run)
    assert {one.metric for one in hf_dpsynth.load_privacy(run).audits} > {"epsilon_lower", "auc"}
    assert len(found.results) == 2


def test_a_report_of_other_texts_than_the_audited_ones_is_refused(run):
    attacked(run, attacks=["membership"])
    with pytest.raises(ConfigError, match="Audit again"):
        evaluation.report(run, ["a text"] * 3, embedder=StubEmbedder())


def test_figures_that_can_refute_a_claim_share_the_confidence_of_the_audit(run):
    (result,) = auditing.audit_run(run, confidence=0.9).results
    assert [round(one.confidence, 6) for one in result.findings] == [0.95, 0.95]
    assert all(any("share 1 - confidence" in line for line in one.limits) for one in result.findings)


def test_a_word_mechanism_that_is_refuted_is_not_published(privatized):
    held = hf_dpsynth.load_privacy(privatized)
    for value, refused in ((9.9, False), (10.1, True)):
        found = release.Audit(attack="draws", metric="epsilon_lower", value=value, uses_private_data=False)
        said = cumulative.refuted(to_privacy_json(replace(held, audits=(found,))))
        line = "audit[0]: draws shows a loss for each unit of distance of at least 10.1, 10 is claimed"
        assert said == [line] * refused
