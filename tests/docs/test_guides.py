"""Each guide of docs/ does what it says: its blocks run and print what they show, its links lead somewhere."""

import os
import re
import shlex
import subprocess
import sys

import pytest

import hf_dpsynth
from hf_dpsynth import registry
from tests.docs import blocks, reference
from tests.hub.running import Client, serving

DOCS = blocks.ROOT / "docs"
GUIDES = sorted(path.name for path in DOCS.glob("*.md"))
PAGES = [blocks.ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def text_of(path):
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", GUIDES)
def test_every_block_runs_and_prints_what_it_shows(name):
    os.symlink(blocks.ROOT / "recipes", "recipes")
    names = {}
    for block in blocks.read(text_of(DOCS / name)):
        where = f"docs/{name}:{block.line}"
        if block.reason is not None:
            check_unrun(block, where)
            continue
        assert block.language in ("python", "bash"), f"{where}: a block of {block.language} shows what nobody printed"
        run = blocks.run_commands(block) if block.language == "bash" else blocks.run_python(block, names, where)
        if block.language == "python" or block.shown is not None:  # what a command draws anew need not be shown
            assert run == (block.shown or ""), where


def check_unrun(block, where):
    """What cannot run here is at least written in its language, and names flags that exist."""
    assert block.shown is None, f"{where}: it shows what nobody printed"
    if block.language == "python":
        compile(block.text, where, "exec")
    elif block.language == "bash":
        assert subprocess.run(["bash", "-n", "-c", block.text]).returncode == 0, where
        for words in blocks.commands(block):
            if words[0] == "hf-dpsynth":
                known = re.findall(r"--[\w-]+", helps()[words[1]])
                assert {word for word in words[2:] if word.startswith("--")} <= set(known), where


def test_a_mechanism_of_an_entry_point_is_known_by_its_name(tmp_path, monkeypatch):
    """The class of the guide, installed as its package would be."""
    found = blocks.read(text_of(DOCS / "extending.md"))
    source = next(block.text for block in found if "class NearestPublic" in block.text)
    (table,) = [block.text for block in found if block.language == "toml"]
    (point,) = re.findall(r'^(\S+) = "(.+)"$', table, re.MULTILINE)
    assert re.findall(r'entry-points."(.+)"', table) == [registry.GROUP]
    package = tmp_path / "your_package"
    package.mkdir()
    (package / "nearest_public.py").write_text(source)
    (tmp_path / "your_package-1.dist-info").mkdir()
    (tmp_path / "your_package-1.dist-info" / "METADATA").write_text("Name: your_package\nVersion: 1\n")
    lines = f"[{registry.GROUP}]\n{point[0]} = {point[1]}\naug-pe = {point[1]}\n"
    (tmp_path / "your_package-1.dist-info" / "entry_points.txt").write_text(lines)
    monkeypatch.syspath_prepend(tmp_path)
    assert ("nearest-public", "plugin") in [row[:2] for row in hf_dpsynth.list_mechanisms()]
    assert registry.table()["aug-pe"].kind == "synthesize", "an entry point took the place of a mechanism of ours"
    plan = hf_dpsynth.plan("nearest-public", epsilon=2, delta=1e-4, num_rows=10, params={"floor": 1})
    assert plan.noise_multiplier == 1.7562 and plan.params == {"floor": 1}


@pytest.mark.slow
def test_the_blocks_of_the_hub_run_against_a_hub(tmp_path):
    """What is marked in the guide as needing a token, after the blocks that it follows, on a Hub of the tests."""
    found = blocks.read(text_of(DOCS / "publishing.md"))
    run = next(block.text for block in found if 'out="reviews-dp"' in block.text)
    marked = [(block.language, block.text.replace("me/", "tester/")) for block in found if block.reason]
    python, bash = ("".join(text for language, text in marked if language == kind) for kind in ("python", "bash"))
    with serving() as hub:
        client = Client(hub, tmp_path)
        said = client.call(run + python).splitlines()
        assert said[1:2] == ["True"] and said[2].startswith("This release is (4, 0.0001)-differentially private")
        verbs = [words for words in map(shlex.split, bash.splitlines()) if words[2] != "reviews-lora/adapter"]
        assert [words[1] for words in verbs] == ["push", "verify"], "and a tuned model, which tests/hub pushes"
        for words in verbs:
            client.run([sys.executable, "-m", "hf_dpsynth.cli", *words[1:]])


def helps():
    return dict(re.findall(r"^## hf-dpsynth (\S+)\n\n```text\n(.*?)^```", reference.command_line(), re.M | re.S))


def test_the_guides_are_those_of_the_map():
    linked = {target for _, target in _LINK.findall(text_of(DOCS / "index.md"))}
    assert set(GUIDES) - {"index.md"} | {f"api/{name}" for name in reference.pages()} <= linked


def anchors(path):
    """The anchors that GitHub makes of the headings of a page."""
    found = {}
    for title in re.findall(r"^#+ (.+)$", _FENCED.sub("", text_of(path)), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
        yield slug if not found[slug] else f"{slug}-{found[slug]}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(blocks.ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(path):
    for words, target in _LINK.findall(_FENCED.sub("", text_of(path))):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        there = (path.parent / name).resolve() if name else path
        assert there.exists(), f"{path.name}: {target}"
        assert blocks.ROOT in there.parents, f"{path.name}: {target} leads out of the repository"
        assert not anchor or anchor in set(anchors(there)), f"{path.name}: {target}"
        if words.startswith("test_"):
            assert re.search(rf"^ *def {words}\(", text_of(there), re.MULTILINE), f"{words} is not in {target}"


def test_an_anchor_is_that_of_github():
    assert "after-a-run" in set(anchors(blocks.ROOT / "README.md"))
    assert "hf-dpsynth-models-pull" in set(anchors(DOCS / "api" / "command-line.md"))


def test_the_guide_to_mechanisms_names_each_of_them():
    text = text_of(DOCS / "choosing-a-mechanism.md")
    named = set(re.findall(r"`([^`\n]+)`", text))
    assert {row[0] for row in hf_dpsynth.list_mechanisms() if row[1] != "plugin"} <= named
