"""Each block of the README runs, in order, with the real models; its fixed outputs are true."""

import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_python_block_runs_and_prints_what_it_shows():
    blocks = re.findall(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", README, re.DOTALL)
    assert len(blocks) >= 6
    names = {}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        # texts are drawn anew each time; statements, charges, plans and prices are not
        fixed = [line for line in shown.splitlines() if not line.startswith(("the rock", "{'text'"))]
        assert fixed and set(fixed) <= set(printed.getvalue().splitlines()), code


def test_every_shell_block_runs():
    blocks = [block for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) if "make " not in block]
    assert blocks
    os.symlink(ROOT / "recipes", "recipes")
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    for block in blocks:
        done = subprocess.run(
            ["bash", "-e", "-c", block], env={**os.environ, "PATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-2000:]
    assert len(pathlib.Path("private.jsonl").read_text().splitlines()) == 2


def test_the_readme_opens_with_the_two_commands():
    assert "make demo" in README[:500] and "make test" in README[:500]
