"""The verb `contamination`: counts on the console, files that only their owner can read, nothing else."""

import json
import pathlib
import stat

import pytest

from hf_dpsynth.contamination import find_overlaps
from hf_dpsynth.inputs import load_input
from tests.stubs import CANARY

WORDS = [f"w{number}" for number in range(70)]


@pytest.fixture
def files(tmp_path):
    private, public = tmp_path / "private.txt", tmp_path / "public.jsonl"
    private.write_text(" ".join(WORDS) + f"\n{CANARY} short\n")
    texts = [" ".join(["before", *WORDS[5:60], "behind"]), "kept", " ".join(WORDS[:49])]
    public.write_text("".join(json.dumps({"body": text, "n": row}) + "\n" for row, text in enumerate(texts)))
    return "--private", private, "--public", public, "--public-column", "body"


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_report_counts_and_says_what_the_counts_are(call, files):
    code, out, err = call("contamination", *files)
    assert code == 0 and err == "" and CANARY not in out
    lines = dict(line.rsplit(None, 1) for line in out.splitlines()[:6])
    assert lines == {
        "public texts": "3", "of them overlap": "1", "windows": "6", "spans": "1", "private texts found": "1",
        "private texts below the window": "1",
    }  # fmt: skip
    assert "no guarantee covers them" in out and "formal_dp_conditional" not in out
    assert sorted(path.name for path in pathlib.Path().iterdir()) == ["private.txt", "public.jsonl"]


def test_files_are_new_and_only_for_their_owner(call, files):
    report, rows = pathlib.Path("report.json"), pathlib.Path("rows.jsonl")
    assert call("contamination", *files, "--output", report)[0] == 0
    assert json.loads(report.read_text())["spans"] == [
        {"row": 0, "start": 1, "end": 56, "start_character": 7, "end_character": 7 + len(" ".join(WORDS[5:60]))}
    ]
    code, out, _ = call("contamination", *files, "--mode", "cut", "--output", rows, "--num-proc", 2)
    assert code == 0 and "formal_dp_conditional" in out
    cut = load_input(rows).to_dict()
    assert cut == {"body": ["before behind", "kept", " ".join(WORDS[:49])], "n": [0, 1, 2]}
    assert cut == find_overlaps(files[1], files[3], public_column="body", mode="cut").dataset.to_dict()
    assert mode_of(report) == mode_of(rows) == 0o600
    for path, more in ((report, ()), (rows, ("--mode", "drop"))):
        code, out, err = call("contamination", *files, *more, "--output", path)
        assert (code, out) == (2, "") and "is not overwritten" in err
    assert sorted(path.name for path in pathlib.Path().iterdir()) == [
        "private.txt", "public.jsonl", "report.json", "rows.jsonl",
    ]  # fmt: skip


def test_what_cannot_be_is_refused_on_one_line(call, files, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "plan.json").write_text("{}")
    (tmp_path / "head.csv").write_text(f"{CANARY} one,1\n{CANARY} two,2\n")
    for more, said in (
        (("--mode", "drop"), "needs --output"),
        (("--output", tmp_path / "run" / "report.json"), "which may be published"),
        (("--mode", "cut", "--output", "rows.html"), "no known format"),
        (("--mode", "erase", "--output", "rows.csv"), "report, drop, cut"),
        (("--window", "0"), "window is 0"),
        (("--private", "head.csv"), "text_column must name"),
        (("--split", "test"), "split 'test' does not exist"),
    ):
        code, out, err = call("contamination", *files, *more)
        assert (code, out, len(err.splitlines())) == (2, "", 1) and said in err and CANARY not in err, (more, err)
