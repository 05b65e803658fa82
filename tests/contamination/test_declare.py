"""What was measured reaches a record when somebody asks for it, and by no other way; then it survives as it is."""

import functools
import json
from pathlib import Path

import pytest
from datasets import Dataset

import hf_dpsynth
from hf_dpsynth.contamination import find_overlaps
from hf_dpsynth.contamination.overlaps import COUNTS
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.publish.privacy_json import invalid, to_privacy_json
from hf_dpsynth.publish.reading import from_privacy_json, without_words
from tests.stubs import CANARY, WORDS, StubEmbedder, files_with, reviews, toy_vectors

PUBLIC = [f"a {word} story" for word in WORDS]


@functools.cache
def measured(mode="report"):
    """Overlaps of one of 16 public texts, with numbers that nothing else in a record has."""
    ds = reviews(41)
    copy = f"see {ds['text'][3]} there"
    return find_overlaps(ds, [copy, *PUBLIC] * 7919, window=3, mode=mode, text_column="text")


def privatized(**more):
    return Dataset.from_dict({"text": ["good film"] * 3}).privatize(
        "madlib", epsilon=10, vectors=toy_vectors(), **more
    )


def numbers(found):
    return {str(getattr(found, name)) for name in ("num_scanned", "num_documents", "num_windows")}


@pytest.mark.parametrize("mode", ["report", "drop"])
def test_nothing_measured_reaches_a_run_or_a_card_by_itself(mode):
    found = measured(mode)
    public = found.dataset.select(range(30)) if mode == "drop" else PUBLIC
    ds = reviews(41).remove_columns("label")
    settings = {"epsilon": 4.0, "delta": 1e-4, "num_rows": 3, "embedder": StubEmbedder(), "out": "run"}
    rows = ds.synthesize("sentdp-select", public=public, **settings)
    record = [*Path("run").rglob("*.json"), Path("run/README.md"), Path("run/ledger.db")]
    assert len(record) > 3 and rows.privacy.contamination == ()
    for number in numbers(found):
        assert len(number) > 3 and not [path for path in record if number.encode() in path.read_bytes()]
    assert "contamination" not in json.loads(Path("run/privacy.json").read_text())
    assert not files_with("run", "measured")
    found.declare(rows, corpus="found again").save("run")
    assert {path.name for path in files_with("run", "measured")} >= {"README.md", "privacy.json"}, (
        "so it could be seen"
    )


def test_what_is_declared_survives_saving_reading_and_verifying():
    found, rows = measured("drop"), privatized()
    release = found.declare(rows.privacy, corpus="a mirror of forums")
    assert rows.privacy.contamination == (), "a release is a value: only the new one has the counts"
    release.save("record")
    facts = json.loads(Path("record/privacy.json").read_text())
    assert invalid(facts) == [] and hf_dpsynth.verify("record").ok
    (entry,) = facts["contamination"]
    assert entry == {
        "corpus": "a mirror of forums", "mode": "drop", "uses_private_data": True,
        **{name: getattr(found, name) for name in COUNTS},
    }  # fmt: skip
    for read in (hf_dpsynth.load_privacy("record"), from_privacy_json(facts)):
        assert read.contamination == release.contamination
    Path("record/release.json").unlink()
    assert hf_dpsynth.load_privacy("record").contamination == release.contamination and hf_dpsynth.verify("record").ok


def test_the_card_and_the_scope_show_the_evidence_as_not_covered():
    found = measured()
    release = found.declare(privatized().privacy, corpus="forums")
    uncovered = release.card().split("## What is not covered")[1].split("\n## ")[0]
    line = next(line for line in uncovered.split("\n") if "measured" in line)
    said = to_privacy_json(release)["scope"]["not_covered"][-1]
    for words in ("mode report", "window 3", "no guarantee covers them", *numbers(found)):
        assert words in line and words in said
    assert CANARY not in json.dumps(to_privacy_json(release)) + release.card()
    assert to_privacy_json(release)["claim_status"] == to_privacy_json(privatized().privacy)["claim_status"]


def test_a_record_whose_evidence_was_struck_out_is_found():
    measured().declare(privatized().privacy, corpus="forums").save("record")
    place = Path("record/privacy.json")
    facts = json.loads(place.read_text())
    place.write_text(json.dumps({**facts, "contamination": [{**facts["contamination"][0], "num_documents": 0}]}))
    assert not hf_dpsynth.verify("record").ok
    whole = without_words(facts)
    facts["scope"]["not_covered"].pop()
    del facts["contamination"]
    place.write_text(json.dumps(facts))
    said = " ".join(hf_dpsynth.verify("record").findings)
    assert "README.md" in said and "contamination" in said
    assert without_words(facts) != whole, "also where another version wrote it"


def test_rows_carry_what_was_declared_and_a_second_measurement_takes_the_place_of_the_first():
    rows = privatized(out="run")
    measured().declare(rows, corpus="forums")
    measured("drop").declare(rows, corpus="forums")
    measured().declare(rows, corpus="news")
    assert [(one.corpus, one.mode) for one in rows.privacy.contamination] == [("forums", "drop"), ("news", "report")]
    rows.privacy.save("run")
    again = privatized(out="run")
    assert again.privacy.contamination == rows.privacy.contamination, "a later opening keeps it"
    assert hf_dpsynth.verify("run").ok


@pytest.mark.parametrize("corpus", ["", "  ", "two\nlines", 3, None, "x" * 201])
def test_a_name_that_is_none_is_refused(corpus):
    with pytest.raises(ConfigError, match="corpus="):
        measured().declare(privatized(), corpus=corpus)


def test_what_has_no_release_is_refused():
    with pytest.raises(ConfigError, match="a Dataset without a release was given"):
        measured().declare(reviews(2), corpus="forums")


def test_the_schema_refuses_counts_that_claim_to_use_no_private_data():
    facts = to_privacy_json(measured().declare(privatized().privacy, corpus="forums"))
    assert invalid(facts) == []
    facts["contamination"][0]["uses_private_data"] = False
    assert "contamination" in invalid(facts)[0]
