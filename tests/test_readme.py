"""Each block of the README runs, in order, with the real models; its fixed outputs are true."""

import os
import pathlib

from tests.docs import blocks

README = (blocks.ROOT / "README.md").read_text(encoding="utf-8")


def test_every_python_block_runs_and_prints_what_it_shows():
    found = [block for block in blocks.read(README) if block.language == "python"]
    assert len(found) >= 6
    names = {}
    for block in found:
        printed = blocks.run_python(block, names)
        # texts are drawn anew each time; statements, charges, plans and prices are not
        shown = (block.shown or "").splitlines()
        fixed = [line for line in shown if not line.startswith(("the rock", "{'text'"))]
        assert fixed and set(fixed) <= set(printed.splitlines()), block.text


def test_every_shell_block_runs():
    found = [block for block in blocks.read(README) if block.language == "bash" and "make " not in block.text]
    assert found
    os.symlink(blocks.ROOT / "recipes", "recipes")
    for block in found:
        blocks.run_shell(block)
    assert len(pathlib.Path("private.jsonl").read_text().splitlines()) == 2


def test_the_readme_opens_with_the_two_commands():
    assert "make demo" in README[:500] and "make test" in README[:500]
