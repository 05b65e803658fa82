"""Saving and loading a record: only beside its own rows, and with nothing private in it."""

import json
import math
import pickle
import re
import shutil
from dataclasses import replace

import jsonschema
import pytest
from datasets import Dataset, DatasetDict, load_dataset, load_from_disk

import hf_dpsynth
from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.guarantees import SecretProtection
from hf_dpsynth.publish.folder import from_record, to_record
from hf_dpsynth.publish.privacy_json import schema, to_privacy_json
from hf_dpsynth.publish.reading import from_privacy_json
from hf_dpsynth.release import rows_of
from tests.publish import golden
from tests.stubs import CANARY, StubEmbedder, files_with, reviews, synth, toy_vectors

LABEL_CANARY = "zqlabel"
RECORD = ("README.md", "privacy.json", "release.json")


def private(n=60):
    """Reviews with a canary in each text and one undeclared canary label."""
    labels = reviews(n)["label"][:]
    labels[5] = LABEL_CANARY
    return reviews(n).remove_columns("label").add_column("label", labels)


def madlib(ds=None, **more):
    settings = {"epsilon": 7, "text_column": "text", "vectors": toy_vectors()} | more
    return (reviews() if ds is None else ds).privatize("madlib", **settings)


def test_the_schema_is_one_and_closed():
    jsonschema.Draft202012Validator.check_schema(schema())

    def closed(part):
        if isinstance(part, dict):
            if part.get("type") == "object" and "properties" in part:
                assert part["additionalProperties"] is False, part["properties"].keys()
            for value in part.values():
                closed(value)
        elif isinstance(part, list):
            for value in part:
                closed(value)

    closed(schema())


@pytest.mark.parametrize("name", golden.releases())
def test_the_facts_of_every_kind_are_valid_and_come_back(name):
    facts = json.loads(json.dumps(to_privacy_json(golden.releases()[name]), allow_nan=False))
    jsonschema.validate(facts, schema(), jsonschema.Draft202012Validator)
    assert to_privacy_json(from_privacy_json(facts)) == facts
    release = golden.releases()[name]
    assert to_privacy_json(from_record(json.loads(json.dumps(to_record(release))))) == facts


def test_what_each_kind_claims():
    facts = {name: to_privacy_json(release) for name, release in golden.releases().items()}
    found = {name: fact["claim_status"] for name, fact in facts.items() if fact["claim_status"] != "formal_dp"}
    assert found == {
        "aug-pe-zero-out-own-embedder": "formal_dp_conditional",
        "aug-pe-no-privacy": "none",
        "aug-pe-seed": "none",
        "madlib-no-privacy": "none",
        "sec-pe": "formal_secret_protection_conditional",
        "sec-pe-own-bounds": "formal_secret_protection",
    }
    assert facts["aug-pe-no-privacy"]["parameters"]["epsilon"] is None
    assert facts["madlib"]["parameters"]["metric_dp"]["scale"] == 10.0 and facts["madlib"]["model"] == "local"
    assert not facts["madlib"]["randomness"]["float_safe"]
    assert facts["aug-pe-add-remove"]["randomness"]["float_safe"]
    assert facts["aug-pe-add-remove"]["source"]["n_units"] is None
    assert facts["aug-pe-zero-out-own-embedder"]["source"]["n_units"] == 5000
    assert facts["aug-pe-zero-out-own-embedder"]["public_inputs"][1]["overlap_with_private"] == "unknown"


def test_a_mechanism_that_others_wrote_conditions_the_claim():
    release = golden.releases()["aug-pe-add-remove"]
    release = replace(release, plan=replace(release.plan, mechanism="theirs"))
    facts = to_privacy_json(release)
    assert facts["claim_status"] == "formal_dp_conditional" and "not part of hf_dpsynth" in release.card()
    assert to_privacy_json(from_privacy_json(facts)) == facts


def test_a_guarantee_without_a_form_is_refused():
    release = replace(golden.releases()["madlib"], guarantee=SecretProtection(p=0.1, r=0.2))
    with pytest.raises(PrivacyError, match="SecretProtection"):
        to_privacy_json(release)


def test_a_run_directory_loads_as_a_dataset_and_as_a_release(tmp_path):
    out = synth(out=tmp_path / "run")
    assert {*RECORD, "plan.json", "ledger.db", "data", "populations"} == {x.name for x in (tmp_path / "run").iterdir()}
    read = load_dataset(str(tmp_path / "run"), cache_dir=str(tmp_path / "cache"))
    assert read["train"]["text"][:] == out["text"][:]
    release = hf_dpsynth.load_privacy(tmp_path / "run")
    assert release == out.privacy and release.statement() == out.privacy.statement()
    assert [charge.key for charge in release.charges] == ["label-counts", "votes-001", "votes-002", "votes-003"]
    assert release.plan.digest() == out.privacy.plan.digest()
    assert out.privacy.card() == (tmp_path / "run/README.md").read_text()


@pytest.mark.parametrize("kind", ["dataset", "dict", "words"])
def test_rows_saved_to_disk_carry_their_record(tmp_path, kind):
    both = DatasetDict(train=reviews(), test=reviews(10))
    out = {"dataset": synth, "dict": lambda: madlib(both, keep_columns=["label"]), "words": madlib}[kind]()
    out.save_to_disk(tmp_path / "rows")
    out.privacy.save(tmp_path / "rows")
    release = hf_dpsynth.load_privacy(tmp_path / "rows")
    assert release.statement() == out.privacy.statement() and release.charges == out.privacy.charges
    assert hf_dpsynth.verify(tmp_path / "rows").findings == ()
    read = load_from_disk(str(tmp_path / "rows"))
    assert rows_of(dict(read) if kind == "dict" else {release.rows[0].split: read}) == release.rows
    release.save(tmp_path / "rows")
    assert hf_dpsynth.verify(tmp_path / "rows").ok


def test_a_record_is_not_saved_beside_other_rows(tmp_path):
    out = synth()
    for folder, rows in {"less": out.select(range(3)), "other": reviews(), "more": madlib()}.items():
        rows.save_to_disk(tmp_path / folder)
        with pytest.raises(ConfigError, match="did not make"):
            out.privacy.save(tmp_path / folder)
        assert not any((tmp_path / folder / name).exists() for name in RECORD)


@pytest.mark.parametrize("name", ["raw.parquet", "raw.arrow", "data/raw.csv", "data-00001-of-00002.arrow"])
def test_a_file_that_is_no_shard_of_the_rows_is_not_certified(tmp_path, name):
    out = synth()
    out.save_to_disk(tmp_path / "rows")
    (tmp_path / "rows" / name).parent.mkdir(exist_ok=True)
    reviews().to_parquet(str(tmp_path / "rows" / name))
    with pytest.raises(ConfigError, match=name):
        out.privacy.save(tmp_path / "rows")
    assert not any((tmp_path / "rows" / entry).exists() for entry in RECORD)


@pytest.mark.parametrize("name", ["private.arrow", "data/private.parquet"])
def test_a_file_beside_a_run_is_never_recorded(tmp_path, name):
    out = synth(out=tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(b"private rows")
    again = synth(out=tmp_path / "run")
    assert again.privacy.files == out.privacy.files
    (tmp_path / "run/privacy.json").unlink()
    synth(out=tmp_path / "run")
    assert f"{name}: not listed in output.files" in hf_dpsynth.verify(tmp_path / "run").findings


def test_one_split_of_several_may_be_saved_alone(tmp_path):
    out = madlib(DatasetDict(train=reviews(), test=reviews(10)))
    out["test"].save_to_disk(tmp_path / "rows")
    out.privacy.save(tmp_path / "rows")
    assert hf_dpsynth.verify(tmp_path / "rows").findings == ()


@pytest.mark.parametrize("name", ["other.arrow", "../other.arrow", "/tmp/other.arrow", 3, None])
def test_a_saved_dataset_that_loads_other_files_is_found(tmp_path, name):
    out = madlib()
    out.save_to_disk(tmp_path / "rows")
    out.privacy.save(tmp_path / "rows")
    state = json.loads((tmp_path / "rows/state.json").read_text())
    state["_data_files"] = [{"filename": name}] if name else name
    (tmp_path / "rows/state.json").write_text(json.dumps(state))
    found = hf_dpsynth.verify(tmp_path / "rows")
    assert not found.files_match and found.findings[0].startswith("state.json: "), found.findings


@pytest.mark.parametrize("text", ['"4"', "true", "1" + "0" * 400, "[]", "1e400"])
@pytest.mark.parametrize("old", ['"epsilon": 4.0', '"n_records": 12'])
@pytest.mark.parametrize("alone", [False, True])
def test_a_value_of_another_kind_is_refused_at_loading(tmp_path, made, text, old, alone):
    shutil.copytree(made / "aug-pe", tmp_path / "run")
    facts = (tmp_path / "run/privacy.json").read_text()
    assert old in facts
    (tmp_path / "run/privacy.json").write_text(facts.replace(old, old.split()[0] + text))
    if alone:
        (tmp_path / "run/release.json").unlink()
    with pytest.raises(ConfigError, match=r"privacy\.json"):
        hf_dpsynth.load_privacy(tmp_path / "run")
    assert not hf_dpsynth.verify(tmp_path / "run").ok


def test_a_readme_of_the_user_is_kept(tmp_path):
    (tmp_path / "README.md").write_text("# Mine\n")
    with pytest.raises(ConfigError, match="no card of ours"):
        synth().privacy.save(tmp_path)
    assert (tmp_path / "README.md").read_text() == "# Mine\n" and not (tmp_path / "privacy.json").exists()


def test_a_record_alone_says_that_no_rows_are_listed(tmp_path):
    synth().privacy.save(tmp_path / "record")
    found = hf_dpsynth.verify(tmp_path / "record")
    assert found.ok and any("lists none" in line for line in found.not_checkable)


def test_privacy_json_alone_is_a_release_without_charges(tmp_path):
    out = synth(out=tmp_path / "run")
    for name in ("release.json", "plan.json", "ledger.db"):
        (tmp_path / "run" / name).unlink()
    release = hf_dpsynth.load_privacy(tmp_path / "run")
    assert release.guarantee == out.privacy.guarantee and release.charges == ()
    assert release.plan.event == from_privacy_json(to_privacy_json(out.privacy)).plan.event
    assert hf_dpsynth.verify(tmp_path / "run").ok


def test_files_that_contradict_each_other_are_not_loaded(tmp_path):
    synth(out=tmp_path / "a")
    synth(out=tmp_path / "b")
    (tmp_path / "a/release.json").write_bytes((tmp_path / "b/release.json").read_bytes())
    with pytest.raises(ConfigError, match="do not agree"):
        hf_dpsynth.load_privacy(tmp_path / "a")
    for path in ("./owner/name", "owner/name/more"):
        with pytest.raises(ConfigError, match="no folder"):
            hf_dpsynth.load_privacy(path)


def test_rows_that_were_replaced_are_not_taken_for_released_ones(tmp_path):
    out = madlib(out=tmp_path / "run")
    path = tmp_path / "run/data/train-00000-of-00001.parquet"
    Dataset.from_dict({"text": ["other"] * len(out)}).to_parquet(str(path))
    with pytest.raises(PrivacyError, match="not those that were released"):
        madlib(out=tmp_path / "run")


def test_a_record_that_was_lost_is_written_again(tmp_path):
    synth(out=tmp_path / "run")
    before = {name: (tmp_path / "run" / name).read_bytes() for name in RECORD}
    for name in RECORD:
        (tmp_path / "run" / name).unlink()
        synth(out=tmp_path / "run")
        assert {name: (tmp_path / "run" / name).read_bytes() for name in RECORD} == before


def test_nothing_is_written_without_a_folder(tmp_path):
    synth()
    assert list(tmp_path.iterdir()) == []


def test_no_canary_in_the_record(tmp_path):
    out = synth(private(), out=tmp_path / "run")
    shown = out.privacy.card() + repr(out.privacy) + json.dumps(to_privacy_json(out.privacy))
    shown += repr(hf_dpsynth.verify(tmp_path / "run"))
    madlib(private(), out=tmp_path / "words")
    for canary in (CANARY, LABEL_CANARY):
        assert canary not in shown
        assert files_with(tmp_path, canary) == []


def test_the_number_of_records_is_written_only_where_it_is_public(tmp_path):
    synth(reviews(977), out=tmp_path / "hidden")
    for name in RECORD:
        assert not re.search(r"(?<![0-9a-f])977(?![0-9a-f])", (tmp_path / "hidden" / name).read_text()), name
    synth(reviews(977), num_records=977, out=tmp_path / "public")
    assert "| number of records | 977 |" in (tmp_path / "public/README.md").read_text()


def test_the_record_holds_no_time_and_no_noise_seed(tmp_path):
    synth(out=tmp_path / "run", insecure_noise_seed=8_675_309)
    for name in RECORD:
        text = (tmp_path / "run" / name).read_text()
        assert "8675309" not in text and not re.search(r"\d\d:\d\d:\d\d|T\d\d:\d\d", text)
    facts = json.loads((tmp_path / "run/privacy.json").read_text())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", facts["created"])
    assert facts["claim_status"] == "none" and facts["parameters"]["epsilon"] is None
    assert hf_dpsynth.verify(tmp_path / "run").ok


def test_an_infinite_epsilon_is_null_and_verified_as_no_claim(tmp_path):
    madlib(epsilon=math.inf, out=tmp_path / "words")
    facts = json.loads((tmp_path / "words/privacy.json").read_text())
    assert facts["claim_status"] == "none" and facts["parameters"]["metric_dp"]["scale"] is None
    assert hf_dpsynth.verify(tmp_path / "words").findings == ()


def test_a_replaced_record_is_accounted_as_such(tmp_path):
    synth(adjacency="replace-one", out=tmp_path / "run")
    assert hf_dpsynth.verify(tmp_path / "run").findings == ()
    assert json.loads((tmp_path / "run/privacy.json").read_text())["adjacency"] == "replace_one"


def test_a_release_can_be_pickled_and_says_when_it_cannot_make_more():
    release = replace(synth(embedder=StubEmbedder()).privacy, sampler=lambda rows, seed: reviews(rows + seed))
    assert len(release.more(3, seed=5)) == 8
    copy = pickle.loads(pickle.dumps(release))
    assert copy == release
    with pytest.raises(ConfigError, match="cannot make more rows"):
        copy.more(3)
