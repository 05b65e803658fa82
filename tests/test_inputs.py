"""One rule for text, whatever the format, and errors that never show a value."""

import csv
import json
import pathlib
import traceback

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_dpsynth.errors import ConfigError, HubError
from hf_dpsynth.inputs import load_input
from tests.stubs import CANARY, toy_vectors

ODD = [
    "", "   ", "NA", "null", "None", "nan", "#N/A", "0", "007", "1e5", "true", "\U0001f600 fine", "שלום עולם",
    "a\x00b", "good " * 40_000, 'say "hi", twice', "line one\nline two", "caf\u00e9", "tab\there", "\u2028 separator",
]  # fmt: skip


def written(suffix, texts, **columns):
    """Write texts, and further columns, in a format."""
    path = pathlib.Path(f"private{suffix}")
    table = {"text": texts, **columns}
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    if suffix in (".csv", ".tsv"):
        with path.open("w", encoding="utf-8", newline="") as handle:
            writer = csv.DictWriter(handle, list(table), delimiter="\t" if suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif suffix == ".json":
        path.write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding="utf-8")
    elif suffix == ".parquet":
        parquet.write_table(pa.table(table), path)
    else:
        path.write_text("".join(text + "\n" for text in texts), encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json", ".parquet"])
def test_odd_text_is_the_same_from_every_format(suffix):
    path = written(suffix, ODD, label=["pos"] * len(ODD))
    found = load_input(path, text_column="text")
    assert found["text"][:] == ODD and found.features == Features({"text": Value("string"), "label": Value("string")})


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_null_stays_null_where_the_format_has_one(suffix):
    found = load_input(written(suffix, ["a", None, ""], label=["x", "y", None]))
    assert found["text"][:] == ["a", None, ""] and found["label"][:] == ["x", "y", None]


def test_a_line_of_a_text_file_is_a_record_even_when_blank():
    path = pathlib.Path("lines.txt")
    for content, texts in (
        (b"a\n\n  \nNA\n", ["a", "", "  ", "NA"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\nlast", ["a", "last"]),
        ("a\u2028b\x0bc\n".encode(), ["a\u2028b\x0bc"]),
        (b"\n", [""]),
    ):
        path.write_bytes(content)
        assert load_input(path)["text"][:] == texts
    assert load_input(path, text_column="review").column_names == ["review"]


def test_an_empty_csv_field_is_blank_quoted_or_not_and_a_blank_line_is_no_record():
    path = pathlib.Path("private.csv")
    path.write_text('text,label\r\n,a\r\n"",b\r\n\r\n"two\r\nlines",\r\n\r\n', newline="")
    found = load_input(path)
    assert found["text"][:] == ["", "", "two\r\nlines"] and found["label"][:] == ["a", "b", ""]
    path.write_text('text\na\n""\n\nb\n')
    assert load_input(path)["text"][:] == ["a", "", "b"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".txt"])
def test_a_byte_order_mark_names_the_encoding_and_is_no_text(encoding, suffix, caplog):
    path = written(suffix, ["caf\u00e9 \U0001f600"])
    path.write_bytes(path.read_text(encoding="utf-8").encode(encoding))
    found = load_input(path)
    assert found.column_names == ["text"] and found["text"][:] == ["caf\u00e9 \U0001f600"] and not caplog.records


def test_latin_1_is_read_with_a_note_that_names_only_the_file(caplog):
    pathlib.Path("old.csv").write_bytes(f"text\ncaf\u00e9 {CANARY}\n".encode("latin-1"))
    assert load_input("old.csv")["text"][:] == [f"caf\u00e9 {CANARY}"]
    assert "old.csv" in caplog.text and CANARY not in caplog.text


@pytest.mark.parametrize(
    ("values", "kind", "read"),
    [
        (["0", "1", "-5"], "int64", [0, 1, -5]),
        (["0.5", "-1.25", "1e-07"], "string", ["0.5", "-1.25", "1e-07"]),
        (["0.5", "-1.25"], "float64", [0.5, -1.25]),
        (["true", "false"], "bool", [True, False]),
        (["True", "False"], "bool", [True, False]),
        (["true", "False"], "string", ["true", "False"]),
        (["1", "007"], "string", ["1", "007"]),
        (["1", ""], "string", ["1", ""]),
        (["1", "0.5"], "string", ["1", "0.5"]),
        (["1.50"], "string", ["1.50"]),
        (["+1"], "string", ["+1"]),
        (["-0"], "string", ["-0"]),
        ([" 1"], "string", [" 1"]),
        (["nan", "inf"], "string", ["nan", "inf"]),
        (["9223372036854775807"], "int64", [2**63 - 1]),
        (["9223372036854775808"], "string", ["9223372036854775808"]),
        (["\u0661"], "string", ["\u0661"]),
    ],
)
def test_a_csv_column_is_a_number_only_when_no_character_is_lost(values, kind, read):
    found = load_input(written(".csv", ["some text"] * len(values), label=values))
    assert found["label"][:] == read and found.features["label"] == Value(kind)


@pytest.mark.parametrize(
    ("suffix", "values", "read"),
    [
        (".csv", ["1", "2"], ["1", "2"]),
        (".jsonl", [1, 2.5, "x", True, None], ["1", "2.5", "x", "true", None]),
        (".parquet", [1, None], ["1", None]),
        (".parquet", [0.5, 1.5], ["0.5", "1.5"]),
        (".parquet", [None, None], [None, None]),
    ],
)
def test_numbers_in_the_named_column_are_text(suffix, values, read):
    assert load_input(written(suffix, values), text_column="text")["text"][:] == read


def test_a_missing_key_is_null_and_half_a_surrogate_pair_is_replaced():
    path = pathlib.Path("private.jsonl")
    path.write_text('{"text": "a"}\n\n{"label": 1, "text": "b\\ud83d"}\r\n{"text": "\\ud83d\\ude00"}\n')
    found = load_input(path)
    assert found["text"][:] == ["a", "b\ufffd", "\U0001f600"] and found["label"][:] == [None, 1, None]


def test_features_and_types_of_parquet_stay_and_the_row_index_of_pandas_goes(tmp_path):
    features = Features({"text": Value("large_string"), "label": ClassLabel(names=["neg", "pos"])})
    Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}, features=features).to_parquet("hf.parquet")
    assert load_input("hf.parquet").features == features
    frame = pytest.importorskip("pandas").DataFrame({"text": ["a", "b", None]}, index=[5, 9, 2])
    frame["kind"] = frame["text"].astype("category")
    frame.to_parquet("pandas.parquet")
    found = load_input("pandas.parquet")
    assert found.column_names == ["text", "kind"] and found["text"][:] == ["a", "b", None]
    assert found["kind"][:] == ["a", "b", None] and found.features["kind"].dtype in ("string", "large_string")
    frame[["text"]].fillna("").to_csv("pandas.csv")
    assert load_input("pandas.csv")["text"][:] == ["a", "b", ""]


def folder(**files):
    made = pathlib.Path("folder")
    made.mkdir()
    for name, content in files.items():
        (made / name.replace("_", ".", 1)).write_text(content, encoding="utf-8")
    return made


def test_a_folder_is_one_data_set_with_the_columns_of_all_its_files():
    made = folder(a_csv="text,label\nx,1\n", b_csv="label,text,more\n2,y,z\n", c_jsonl='{"text": null}\n', README="no")
    found = load_input(made)
    assert found["text"][:] == ["x", "y", None] and found["more"][:] == [None, "z", None]
    assert found["label"][:] == [1, 2, None], "a column that only CSV files hold is typed as a whole"


def test_a_csv_column_of_a_folder_is_typed_over_all_files():
    made = folder(a_csv="text,label\nx,1\n", b_csv="text,label\ny,002\n")
    assert load_input(made)["label"][:] == ["1", "002"]


def test_files_named_after_splits_are_splits():
    made = folder(train_csv="text\na\n", test_csv="text\nb\n")
    (made / "train-1.csv").write_text("text\nc\n")
    found = load_input(made)
    assert type(found) is DatasetDict and {name: rows["text"][:] for name, rows in found.items()} == {
        "train": ["c", "a"], "test": ["b"],
    }  # fmt: skip
    assert load_input(made, split="test")["text"][:] == ["b"]
    with pytest.raises(ConfigError, match="split 'dev' does not exist"):
        load_input(made, split="dev")


def test_a_column_of_another_type_in_a_later_file_is_refused_by_file_and_column():
    made = folder(a_jsonl=f'{{"text": "{CANARY}", "label": 1}}', b_jsonl=f'{{"text": "x", "label": "{CANARY}"}}')
    with pytest.raises(ConfigError, match=r"b\.jsonl.*'label'"):
        load_input(made)


def test_integers_and_numbers_of_several_files_have_a_common_type():
    assert load_input(folder(a_jsonl='{"text": "x", "n": 1}', b_jsonl='{"text": "y", "n": 0.5}'))["n"][:] == [1, 0.5]


BROKEN = {
    "private.csv": {
        f'text,label\na,b\n"{CANARY}" x,c\n': "line 3",
        f"text,label\na,b\nc,{CANARY},d\n": "line 3: 3 fields",
        f"text,label\na,b\n{CANARY}\n": "line 3: 1 fields",
        f'text,label\na,b\n"{CANARY}\n\n\n': "line 3",
        f"text,text\n{CANARY},b\n": "column 2 stands twice",
        f"{'a private record ' * 5}{CANARY},1\nb,2\n": "Is there a header?",
        f"text,\n{CANARY},b\n": "column 2 has no name",
        "": "empty",
    },
    "private.jsonl": {
        f'{{"text": "a"}}\n{{"text": {CANARY}}}\n': "line 2",
        f'{{"text": "a"}}\n["{CANARY}"]\n': "line 2: no JSON object",
        f'{{"text": "a"}}\n\n{{"text": ["{CANARY}"]}}\n': "line 3: column 'text' is a list here",
        f'{{"text": "{CANARY}", "n": 123456789012345678901234567890}}\n': "column 'n'",
        f'{{"text": "{CANARY}", "n": [1, "a"]}}\n': "column 'n'",
        "\n": "no records",
        "[" * 100_000: "no JSON",
    },
    "private.json": {f'[{{"text": "{CANARY}"}}, 3]': "record 2", f'[{{"text": "{CANARY}"}}': "no JSON"},
    "private.parquet": {f"PAR1{CANARY}": "no Parquet"},
    "private.xlsx": {CANARY: "no known format"},
}


@pytest.mark.parametrize(
    ("name", "content", "words"), [(n, c, w) for n, cases in BROKEN.items() for c, w in cases.items()]
)
def test_a_broken_file_is_refused_by_file_and_line_and_no_value_is_shown(name, content, words):
    pathlib.Path(name).write_text(content)
    with pytest.raises(ConfigError) as caught:
        load_input(name)
    assert words in str(caught.value) and name in str(caught.value)
    assert CANARY not in "".join(traceback.format_exception(caught.value, chain=True)).replace(content, "")


def test_parquet_that_is_not_utf_8_is_refused_without_its_bytes():
    column = pa.StringArray.from_buffers(1, *pa.array([b"\xff" + CANARY.encode()], pa.binary()).buffers()[1:])
    parquet.write_table(pa.table({"text": column}), "bad.parquet")
    with pytest.raises(ConfigError, match="'text' holds text that is not UTF-8") as caught:
        load_input("bad.parquet")
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("moovie", "did you mean 'movie'"),
        ("missing.csv", "does not exist"),
        ("no/such/folder", "does not exist"),
        ("folder", "holds no file"),
    ],
)
def test_a_source_that_is_not_there_is_refused(source, words):
    folder(README="no data")
    with pytest.raises(ConfigError, match=words):
        load_input(source)


def test_a_folder_does_not_mix_lines_and_columns():
    with pytest.raises(ConfigError, match=r"\.txt beside"):
        load_input(folder(a_txt="x", b_csv="text\ny"))


def test_a_catalogue_name_gives_its_splits_and_takes_no_configuration():
    assert list(load_input("movie")) == ["train", "test"] and len(load_input("movie", split="test")) > 100
    with pytest.raises(ConfigError, match="no configurations"):
        load_input("movie", name="default")


def test_a_hub_id_goes_to_datasets_and_its_failure_is_one_of_ours(monkeypatch):
    import datasets

    asked = []

    def load_dataset(path, name, *, split):
        asked.append((path, name, split))
        if path == "org/gone":
            raise datasets.exceptions.DatasetNotFoundError("gone")
        return Dataset.from_dict({"text": ["a"]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert load_input("org/data", name="plain", split="train")["text"][:] == ["a"]
    assert asked == [("org/data", "plain", "train")]
    with pytest.raises(HubError, match="org/gone"):
        load_input("org/gone")


def test_reading_files_leaves_no_copy_in_a_cache_and_no_limit_behind(tmp_path, monkeypatch):
    before = csv.field_size_limit()
    for suffix in (".csv", ".jsonl", ".parquet"):
        found = load_input(written(suffix, ["text " + "x" * 200_000]))
        assert found.cache_files == []
    assert csv.field_size_limit() == before


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_odd_text_is_privatized_row_by_row(suffix):
    private = load_input(written(suffix, [*ODD, "good film"], label=["x"] * (len(ODD) + 1)), text_column="text")
    out = private.privatize("madlib", epsilon=5, text_column="text", keep_columns=["label"], vectors=toy_vectors())
    assert len(out) == len(private) and out["text"][0] == out["text"][1] == "" and out.features == private.features


RARE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(ODD[:13])


@RARE
@given(texts=st.lists(TEXT, min_size=1, max_size=8), suffix=st.sampled_from([".csv", ".tsv", ".jsonl", ".json"]))
def test_whatever_is_written_is_read_again(texts, suffix):
    path = written(suffix, texts, number=[str(i) for i in range(len(texts))])
    assert load_input(path, text_column="text")["text"][:] == texts


@RARE
@given(
    start=st.sampled_from(["", "text\n", '{"text": "', '[{"text": 1}, ', '"', "\xff\xfe", "text,label\n1,"]),
    noise=st.binary(max_size=60),
    suffix=st.sampled_from([".csv", ".tsv", ".jsonl", ".json", ".parquet", ".txt"]),
)
def test_any_bytes_are_read_or_refused_by_a_library_error(start, noise, suffix):
    path = pathlib.Path(f"noise{suffix}")
    path.write_bytes(start.encode("latin-1") + noise)
    try:
        load_input(path)
    except ConfigError as error:
        assert str(path) in str(error)


def test_a_key_that_stands_twice_and_a_folder_in_a_folder_are_refused(tmp_path):
    (tmp_path / "twice.jsonl").write_text('{"text": "zqprivate", "text": "b"}\n')
    with pytest.raises(ConfigError) as caught:
        load_input(tmp_path / "twice.jsonl")
    assert "zqprivate" not in str(caught.value)
    (tmp_path / "deep" / "inner").mkdir(parents=True)
    (tmp_path / "deep" / "a.txt").write_text("a\n")
    with pytest.raises(ConfigError, match="holds folders"):
        load_input(tmp_path / "deep")
