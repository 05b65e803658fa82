import json

import numpy as np
import pytest

WORDS = ("good", "bad", "film", "actor", "seven", "quickly")


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "six.txt"
    rows = np.random.default_rng(0).standard_normal((len(WORDS), 3))
    path.write_text("".join(f"{w} {' '.join(map(str, row))}\n" for w, row in zip(WORDS, rows.tolist(), strict=True)))
    return path


def test_scales_stand_in_a_table_and_by_frequency(call, vectors):
    code, out, err = call("deniability", "madlib", "--words", "6", "--draws", "40", "--vectors", vectors)
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert rows[0][:4] == ["epsilon", "N", "mean", "N"]
    assert [row[0] for row in rows[1:4]] == ["5", "10", "25"]
    own = [float(row[1]) for row in rows[1:4]]
    assert own == sorted(own)
    assert rows[5][:2] == ["epsilon", "ranks"] and rows[6][:5] == ["5", "1", "to", "6", "6"]
    assert "not a proof" in out and "calibrated" not in out


def test_a_quantile_gives_an_epsilon_and_figures_can_be_kept(call, vectors, tmp_path):
    options = ("--words", "good,film", "--draws", "50", "--param", "punctuation=drop", "--out", tmp_path / "figures")
    code, out, _ = call("deniability", "madlib", "--quantile", "0.5", "--vectors", vectors, *options)
    assert code == 0
    (line,) = [line for line in out.splitlines() if line.startswith("calibrated")]
    (folder,) = (tmp_path / "figures").iterdir()
    kept = json.loads((folder / "deniability.json").read_text())
    assert folder.name == f"epsilon-{line.split()[2]}" and f"{kept['epsilon']:.4g}" == line.split()[2]
    assert kept["params"]["punctuation"] == "drop" and [row["word"] for row in kept["words"]] == ["good", "film"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("madlib", "--epsilon", "5,x"), "no list of numbers"),
        (("madlib", "--epsilon", ""), "no list of numbers"),
        (("madlib", "--epsilon", "-1", "--words", "6"), "epsilon is -1"),
        (("madlib", "--words", "0"), "words is 0"),
        (("madlib", "--words", "secret"), "reads public words only"),
        (("madlib", "--quantile", "2", "--words", "6"), "quantile is 2"),
        (("madlib", "--param", "k"), "not of the form k=v"),
        (("madlip",), "did you mean 'madlib'"),
        (("aug-pe",), "of kind 'synthesize'"),
        ((), "Missing argument"),
    ],
)
def test_wrong_arguments_take_one_line(call, vectors, arguments, said):
    code, out, err = call("deniability", *arguments, *(("--vectors", vectors) if arguments else ()))
    assert (code, out, len(err.splitlines())) == (2, "", 1), (out, err)
    assert said in err and "secret" not in err
