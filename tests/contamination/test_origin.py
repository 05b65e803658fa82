"""A release that is made with what find_overlaps left is conditional, and says which assumption fails, to the end."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from datasets import Dataset, DatasetDict, IterableDataset, concatenate_datasets, load_from_disk

import hf_dpsynth
from hf_dpsynth.contamination import ASSUMPTION, find_overlaps, remove_sources
from hf_dpsynth.contamination.origin import assumed
from hf_dpsynth.errors import ConfigError, ResumeMismatch
from hf_dpsynth.publish import accounts
from hf_dpsynth.publish.privacy_json import to_privacy_json
from hf_dpsynth.publish.reading import from_privacy_json
from tests.stubs import WORDS, StubEmbedder, StubGenerator

LETTER = " ".join(f"word{number}" for number in range(60))


def private():
    return Dataset.from_dict({"text": [LETTER, *(f"{word} film" for word in WORDS)]})


def corpus():
    texts = [f"so: {LETTER}", *(f"a {word} story" for word in WORDS)]
    return Dataset.from_dict({"text": texts, "site": ["mirror", *["news"] * len(WORDS)]})


def picked(public, **more):
    settings = {"epsilon": 4.0, "delta": 1e-4, "text_column": "text", "num_rows": 3, "embedder": StubEmbedder()}
    return private().synthesize("sentdp-select", public=public, **(settings | more)).privacy


def left(mode="drop", public=None):
    return find_overlaps(private(), corpus() if public is None else public, mode=mode, text_column="text").dataset


DERIVED = {
    "itself": lambda rows, folder: rows,
    "selected": lambda rows, folder: rows.select(range(4)),
    "filtered": lambda rows, folder: rows.filter(lambda row: "film" not in row["text"]),
    "mapped": lambda rows, folder: rows.map(lambda row: {"text": row["text"].upper()}),
    "shuffled": lambda rows, folder: rows.shuffle(seed=0),
    "a split": lambda rows, folder: rows.train_test_split(0.5, seed=0)["train"],
    "joined": lambda rows, folder: concatenate_datasets([corpus().select([1]), rows]),
    "without sources": lambda rows, folder: remove_sources(
        rows.add_column("k", ["a", *["b"] * (len(rows) - 1)]), "k", ["a"]
    ),
    "from disk": lambda rows, folder: (rows.save_to_disk(folder), load_from_disk(folder))[1],
}


@pytest.mark.parametrize("derive", DERIVED.values(), ids=DERIVED)
@pytest.mark.parametrize("mode", ["drop", "cut"])
def test_what_is_left_and_what_is_made_of_it_keeps_its_mark(mode, derive, tmp_path):
    assert assumed(derive(left(mode), str(tmp_path / "rows"))) == (ASSUMPTION,)


def test_streams_keep_their_mark_and_a_corpus_that_no_private_text_touched_has_none():
    stream = left("cut", corpus().to_iterable_dataset())
    assert assumed(stream) == assumed(stream.filter(lambda row: True)) == (ASSUMPTION,)
    clean = remove_sources(corpus(), "site", ["mirror"])
    splits = remove_sources(DatasetDict(a=corpus()), "site", ["mirror"])
    assert assumed(clean) == assumed(splits["a"]) == assumed(corpus()) == assumed(None) == assumed(["a"]) == ()


def test_a_report_marks_nothing_and_does_not_touch_the_corpus():
    public = corpus()
    find_overlaps(private(), public, text_column="text")
    find_overlaps(private(), public, text_column="text", mode="drop")
    assert assumed(public) == ()


@pytest.mark.parametrize("mode", ["drop", "cut"])
def test_a_release_with_what_is_left_is_conditional_in_every_record_of_it(mode, tmp_path):
    release = picked(left(mode), out="run")
    facts = json.loads(Path("run/privacy.json").read_text())
    assert release.guarantee.assumptions[-1] == ASSUMPTION and ASSUMPTION in release.statement()
    assert facts["claim_status"] == "formal_dp_conditional"
    holds = {one["name"]: one["holds"] for one in facts["accounting"]["assumptions"]}
    assert holds[ASSUMPTION.removesuffix(": false")] is False
    card = Path("run/README.md").read_text()
    assert f"**{ASSUMPTION}**" in card and "of which at least one is false" in card
    assert "differential-privacy" not in card.split("---")[1], "no tag for a claim with a false assumption"
    assert hf_dpsynth.verify("run").ok
    assert hf_dpsynth.load_privacy("run").guarantee == from_privacy_json(facts).guarantee == release.guarantee


def test_the_safe_way_needs_no_assumption():
    release = picked(remove_sources(corpus(), "site", ["mirror"]))
    assert release.guarantee == picked(corpus()).guarantee and ASSUMPTION not in release.guarantee.assumptions
    held = to_privacy_json(release)["accounting"]["assumptions"]
    assert False not in [one["holds"] for one in held] and "is false" not in release.card()


def test_the_assumption_alone_makes_a_claim_conditional():
    release = picked(corpus())
    for assumptions, status in (((), "formal_dp"), ((ASSUMPTION,), "formal_dp_conditional")):
        claim = replace(release, guarantee=replace(release.guarantee, assumptions=assumptions))
        assert to_privacy_json(claim)["claim_status"] == status


def test_secret_protection_has_the_assumption_too():
    ds = private().add_column("secrets", [["word1"], *[[]] * len(WORDS)])
    settings = {"epsilon": None, "secrets": "secrets", "text_column": "text", "num_rows": 3, "num_records": len(ds)}
    params = {"p": 1e-4, "r": 1e-3, "clusters": 4, "iterations": 1, "variations": 2}
    models = {"generator": StubGenerator(), "embedder": StubEmbedder()}
    release = ds.synthesize("sec-pe", public=left(), params=params, **settings, **models).privacy
    assert to_privacy_json(release)["claim_status"] == "formal_secret_protection_conditional"
    assert "of which at least one is false" in release.card()


def test_a_run_is_not_continued_with_a_corpus_of_another_origin():
    picked(corpus().select(range(1, 9)), out="run")
    with pytest.raises(ResumeMismatch):
        picked(left().select(range(8)), out="run")


def test_a_claim_that_hides_the_failing_assumption_is_found():
    facts = to_privacy_json(picked(left()))
    assert accounts.check(facts) == []
    assert "formal_dp_conditional is right" in accounts.check(facts | {"claim_status": "formal_dp"})[0]
    facts["accounting"]["assumptions"][-1]["name"] = "anything else"
    assert "although an assumption fails" in accounts.check(facts)[0]


def test_a_stream_is_refused_as_public_rows_and_a_data_set_of_its_rows_is_read():
    stream = left("cut", corpus().to_iterable_dataset())
    with pytest.raises(ConfigError, match=r"public= is IterableDataset; pass a Dataset \(one split\)"):
        picked(stream)
    rows = Dataset.from_list(list(corpus().to_iterable_dataset().take(9)))
    assert picked(left("cut", rows)).guarantee.assumptions[-1] == ASSUMPTION


def test_texts_and_files_lose_the_mark(tmp_path):
    rows = left()
    rows.to_parquet(tmp_path / "rows.parquet")
    for copy in (
        rows["text"][:],
        Dataset.from_parquet(str(tmp_path / "rows.parquet")),
        IterableDataset.from_generator(lambda: iter(rows)),
    ):
        assert assumed(copy) == ()
