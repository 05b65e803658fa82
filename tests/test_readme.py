"""Each Python block of the README runs, in order, with the real models; its fixed outputs are true."""

import contextlib
import io
import pathlib
import re

README = pathlib.Path(__file__).parents[1] / "README.md"


def test_every_python_block_runs_and_prints_what_it_shows():
    text = README.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", text, re.DOTALL)
    assert len(blocks) >= 4
    names = {}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        # texts are drawn anew each time; statements, charges and plans are not
        fixed = [line for line in shown.splitlines() if line.startswith(("This", "Metric", "[", "13", "0.0"))]
        assert fixed and set(fixed) <= set(printed.getvalue().splitlines())


def test_the_readme_opens_with_the_two_commands():
    head = README.read_text(encoding="utf-8")[:500]
    assert "make demo" in head and "make test" in head
