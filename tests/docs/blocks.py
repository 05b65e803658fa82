"""The code blocks of a Markdown file: what they are, how they run, and what they print."""

import contextlib
import io
import os
import pathlib
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass

from hf_dpsynth import cli

ROOT = pathlib.Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+?) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$"
    r"(?:\n\n?```text\n(?P<shown>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A code block, the text block right after it, why it is not run, and the line that it begins in."""

    language: str
    text: str
    shown: str | None
    reason: str | None
    line: int


def read(text):
    """The code blocks of a Markdown text, in order."""
    return [
        Block(
            language=found["language"],
            text=found["text"],
            shown=found["shown"],
            reason=found["reason"],
            line=text.count("\n", 0, found.start("text")) + 1,
        )
        for found in _BLOCK.finditer(text)
    ]


def run_python(block, names, source="README.md"):
    """Run a block in a namespace and give what it printed."""
    names.setdefault("__name__", "__main__")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * (block.line - 1) + block.text, source, "exec"), names)
    return printed.getvalue()


def run_shell(block):
    """Run a block in bash, with the environment of this process, and give what it printed."""
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    command, environment = ["bash", "-e", "-c", block.text], {**os.environ, "PATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def commands(block):
    """The words of each line of a block, comments left out and continued lines joined."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run_commands(block):
    """Run the `hf-dpsynth` lines of a block in this process, which is faster, and give what they printed."""
    printed = io.StringIO()
    for words in commands(block):
        assert words[0] == "hf-dpsynth", f"{words[0]} is no command of ours: mark the block as not run"
        with contextlib.redirect_stdout(printed):
            assert cli.call(words[1:]) == 0, words
    return printed.getvalue()
