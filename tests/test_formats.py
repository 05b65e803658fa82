"""Formats: what released rows look like in a file."""

import csv
import json
import pathlib

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from hf_dpsynth import formats

TURN = {"role": Value("string"), "content": Value("string")}
TALK = [{"role": "user", "content": 'Say "hi", caf\u00e9\n'}, {"role": "assistant", "content": "it's Hi"}]


def test_conversations_are_json_in_a_csv_file():
    features = Features({"messages": List(TURN), "topic": ClassLabel(names=["film", "food"])})
    ds = Dataset.from_dict({"messages": [TALK, [], None], "topic": [1, 0, 1]}, features=features)
    formats.write_rows(ds, pathlib.Path("rows.csv"))
    with open("rows.csv", encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [json.loads(row["messages"]) if row["messages"] else None for row in rows] == [TALK, [], None]
    assert [row["topic"] for row in rows] == ["food", "film", "food"]
    assert "caf\u00e9" in pathlib.Path("rows.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_conversations_come_back_from_formats_with_types(suffix):
    from hf_dpsynth.inputs import load_input

    ds = Dataset.from_dict({"messages": [TALK]}, features=Features({"messages": List(TURN)}))
    formats.write_rows(ds, pathlib.Path(f"rows{suffix}"))
    assert load_input(f"rows{suffix}")["messages"][:] == [TALK]
