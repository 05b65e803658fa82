"""Croissant: the library of MLCommons finds nothing wrong, and reads the very rows where they lie."""

import json
import math
import pathlib
import shutil

import mlcroissant
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

import hf_dpsynth
from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.publish.exporters import export
from hf_dpsynth.publish.exporters.croissant import CONFORMS_TO, CONTEXT, Column, Place, columns_of, to_croissant
from tests.publish.test_exporters import EACH, facts_of
from tests.stubs import reviews, synth, toy_vectors

pytestmark = [  # of rdflib and pandas, when that library calls them
    pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame.reset_index:DeprecationWarning"),
]
TRAIN = "data/train-00000-of-00001.parquet"
LEFT_OUT = {"citeAs", "datePublished", "license", "version"}  # recommended, and in no facts


def read(folder):
    """What the library reads of a folder, described by a file in it."""
    pathlib.Path(folder, "croissant.json").write_text(export(folder, "croissant"))
    return mlcroissant.Dataset(str(pathlib.Path(folder, "croissant.json")))


def rows(dataset, record_set):
    """The records of a set as rows of columns; texts are bytes there."""
    plain = [{name.split("/")[1]: value for name, value in one.items()} for one in dataset.records(record_set)]
    return [
        {name: value.decode() if isinstance(value, bytes) else value for name, value in one.items()} for one in plain
    ]


@EACH
def test_the_library_finds_nothing_wrong(name, caplog):
    facts = facts_of(name)
    columns = {TRAIN: (Column(name="text", data_type="sc:Text"), Column(name="other", data_type=None))}
    metadata = mlcroissant.Dataset(to_croissant(facts, columns, Place(claim_sha256="1" * 64))).metadata
    issues = metadata.ctx.issues
    assert issues.errors == set() and len(issues.warnings) == len(LEFT_OUT)
    assert all(any(f'/{word}" is recommended' in line for word in LEFT_OUT) for line in issues.warnings)
    assert "not standard" not in caplog.text
    assert list(CONFORMS_TO) == metadata.conforms_to and str(metadata.date_created).startswith(facts["created"])
    assert len(metadata.data_limitations) >= len(facts["scope"]["not_covered"])
    assert metadata.personal_sensitive_information[0] in metadata.description
    assert metadata.data_preprocessing_protocol and metadata.data_collection and metadata.data_collection_raw_data
    assert (metadata.data_use_cases, metadata.creators, metadata.publisher, metadata.url) == (None, [], [], None)
    assert [field.name for field in metadata.record_sets[0].fields] == ["text"]
    assert metadata.record_sets[0].description.endswith("not described, for want of a type: other")


def test_the_library_can_find_something_wrong():
    facts = facts_of("dp-eda")
    description = to_croissant(facts)
    del description["distribution"][0]["sha256"]
    with pytest.raises(mlcroissant.ValidationError, match="sha256"):
        mlcroissant.Dataset(description)


def test_the_context_is_that_of_the_library():
    from mlcroissant._src.core.context import Context, CroissantVersion
    from mlcroissant._src.core.rdf import make_context

    assert make_context(Context(conforms_to=CroissantVersion.V_1_1)) == CONTEXT


@pytest.mark.parametrize("epsilon", [4.0, math.inf])
def test_synthetic_rows_of_a_run_are_read_where_they_lie(epsilon):
    made = synth(out="run", epsilon=epsilon, delta=1e-4 if epsilon == 4 else None)
    found = read("run")
    assert rows(found, "train") == made.to_list() and len(made) == 12
    assert hf_dpsynth.verify("run").ok
    path = pathlib.Path("run", TRAIN)
    Dataset.from_dict({"text": ["other"], "label": ["neg"]}).to_parquet(str(path))
    with pytest.raises(mlcroissant.GenerationError) as refused:
        rows(mlcroissant.Dataset("run/croissant.json"), "train")
    assert "is not identical with the reference" in str(refused.value.__cause__)
    with pytest.raises(PrivacyError, match=rf"{TRAIN} of run is not the file that was released"):
        export("run", "croissant")
    path.unlink()
    assert export("run", "opendp-registry")


def test_privatized_rows_of_several_types_are_read():
    features = Features({
        "text": Value("large_string"), "note": Value("string"), "label": ClassLabel(names=["neg", "pos"]),
        "score": Value("float32"), "kept": Value("bool"), "tags": List(Value("string")), "more": {"a": Value("int8")},
        "a b/ü %": Value("int64"),
    })  # fmt: skip
    private = Dataset.from_dict(
        {
            "text": ["good film", "bad fun"], "note": ["x", None], "label": [1, 0], "score": [0.5, None],
            "kept": [True, False], "tags": [["p", "q"], []], "more": [{"a": 1}, {"a": 2}], "a b/ü %": [3, 4],
        },
        features=features,
    )  # fmt: skip
    keep = [name for name in features if name != "text"]
    made = private.privatize(
        "madlib", epsilon=7, text_column="text", vectors=toy_vectors(), keep_columns=keep, out="run"
    )
    found = read("run")
    records = list(found.records("train"))
    tags = [[tag.decode() for tag in one.pop("train/tags")] for one in records]
    assert tags == made["tags"][:]
    for one, row in zip(records, made, strict=True):
        assert one.pop("train/a%20b%2F%C3%BC%20%25") == row["a b/ü %"]
        assert one.pop("train/text").decode() == row["text"]
        note = one.pop("train/note")
        assert (note and note.decode()) == row["note"]
        assert one == {f"train/{name}": row[name] for name in ("label", "score", "kept")}
    (described,) = found.metadata.record_sets
    assert described.description.endswith("not described, for want of a type: more")


def test_each_part_of_a_split_is_a_record_set():
    made = reviews(10).privatize(
        "madlib", epsilon=7, text_column="text", vectors=toy_vectors(), keep_columns=["label"]
    )
    pathlib.Path("rows/data").mkdir(parents=True)
    for number in range(2):
        part = made.shard(2, number, contiguous=True)
        part.to_parquet(f"rows/data/train-0000{number}-of-00002.parquet")
    made.privacy.save("rows")
    found = read("rows")
    names = [records.name for records in found.metadata.record_sets]
    assert names == ["train-00000-of-00002", "train-00001-of-00002"]
    assert [row for name in names for row in rows(found, name)] == made.to_list()


def test_rows_of_arrow_files_are_listed_and_not_described():
    made = synth()
    made.save_to_disk("rows")
    made.privacy.save("rows")
    description = json.loads(export("rows", "croissant"))
    kinds = {file["name"]: file["encodingFormat"] for file in description["distribution"]}
    assert kinds.pop("privacy.json") == "application/json" and "recordSet" not in description
    assert set(kinds.values()) == {"application/vnd.apache.arrow.stream"}
    assert mlcroissant.Dataset(description).metadata.ctx.issues.errors == set()


def test_a_file_that_is_gone_or_a_link_is_not_described():
    synth(out="run")
    shutil.move(pathlib.Path("run", TRAIN), "other.parquet")
    pathlib.Path("run", TRAIN).symlink_to(pathlib.Path("other.parquet").absolute())
    with pytest.raises(PrivacyError, match="Run hf-dpsynth verify"):
        export("run", "croissant")
    pathlib.Path("run", TRAIN).unlink()
    pathlib.Path("run/data/test-00000-of-00001.parquet").write_bytes(b"x")
    with pytest.raises(PrivacyError, match="Run hf-dpsynth verify"):
        export("run", "croissant")


def test_columns_of_what_is_no_parquet_file_are_refused():
    pathlib.Path("x.parquet").write_bytes(b"PAR1 no PAR1")
    with pytest.raises(ConfigError, match=r"x\.parquet is no Parquet file"):
        columns_of(pathlib.Path("x.parquet"))


def test_a_repository_is_named_by_its_address():
    place = Place(page="https://hub/datasets/a/b", files_at="https://hub/datasets/a/b/resolve/main/")
    description = to_croissant(facts_of("madlib"), place=place)
    assert description["url"] == place.page
    assert description["distribution"][0]["contentUrl"] == f"{place.files_at}{TRAIN}"
    assert mlcroissant.Dataset(description).metadata.url == place.page
