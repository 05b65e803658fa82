"""docs/api is what the docstrings and --help say, and says it of every public name, mechanism and field."""

import dataclasses
import inspect
import re

import pytest

import hf_dpsynth
from hf_dpsynth import audit, downstream, metrics, models
from tests.docs import docstrings, reference

CHECKED = {
    "aug-pe": "iterations variations selection lookahead threshold keep_selected mask_probability",
    "sec-pe": "p r clusters iterations variations release",
    "dp-eda": "iterations parents offspring domain selection smoothing perplexity_limit",
    "dp-lora": "steps batch_size micro_batch_size learning_rate clip_norm rank target_modules max_tokens "
    "max_new_tokens temperature top_k num_decodes prompt_template",
    "dp-prompt-tuning": "steps batch_size learning_rate clip_norm prompt_length max_tokens",
    "dp-full": "steps batch_size learning_rate clip_norm max_tokens",
    "tem": "beta",
    "vickrey": "t",
    "mahalanobis": "lam",
    "syntax-guided": "k tags tag_privacy tag_epsilon",
}


@pytest.fixture(scope="module")
def pages():
    return reference.pages()


def headings(text):
    return re.findall(r"^##+ (.+)$", text, re.MULTILINE)


def test_the_pages_are_what_the_docstrings_render_to(pages):
    on_disk = {path.name: path.read_text(encoding="utf-8") for path in reference.FOLDER.glob("*.md")}
    assert set(on_disk) == set(pages)
    for name, text in pages.items():
        assert on_disk[name] == text, f"docs/api/{name} is of before: python -m tests.docs.reference"


def test_every_public_name_has_a_heading_or_is_named_as_a_module(pages):
    page, measured = pages["hf_dpsynth.md"], headings(pages["measuring.md"])
    for name in hf_dpsynth.__all__:
        module = inspect.ismodule(getattr(hf_dpsynth, name))
        assert (f"`hf_dpsynth.{name}`" in page) if module else name in headings(page), name
    assert {f"models.{name}" for name in models.__all__} <= set(headings(page))
    for module, names in (("downstream", downstream), ("audit", audit), ("metrics", metrics)):
        assert {f"{module}.{name}" for name in names.__all__} <= set(measured)
    assert {f'metrics.load("{name}")' for name in metrics.list_metrics()} <= set(measured)


def test_no_page_names_what_is_private(pages):
    for text in pages.values():
        assert [name for name in headings(text) if re.search(r"(^|\.)_", name)] == []


def test_every_mechanism_stands_on_its_page_with_every_field_described(pages):
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", pages["mechanisms.md"], re.DOTALL | re.MULTILINE))
    assert list(sections) == [row[0] for row in hf_dpsynth.list_mechanisms() if row[1] != "plugin"]
    for entry in reference.ours():
        cls = entry.load()
        named = re.findall(r"^- \*\*(\w+)\*\*", sections[entry.name], re.MULTILINE)
        assert named == [field.name for field in dataclasses.fields(cls) if field.init], entry.name
        assert [name for name in named if docstrings.documentation(cls, name) is None] == [], entry.name
        assert set(CHECKED.get(entry.name, "").split()) <= set(named), entry.name


def test_a_field_of_a_mechanism_has_the_default_that_its_docstring_states():
    stated = 0
    for entry in reference.ours():
        cls = entry.load()
        for field in dataclasses.fields(cls):
            written = re.search(r"defaults to `([^`]*)`", docstrings.documentation(cls, field.name).type_name or "")
            if written:
                stated += 1
                assert written[1] == docstrings.constant(field.default) or float(written[1]) == field.default
    assert stated > 100


def test_every_verb_of_the_command_line_has_its_help(pages):
    shown = headings(pages["command-line.md"])
    verbs = "list plan run privatize synthesize evaluate report card push verify ledger data models doctor deniability"
    assert {f"hf-dpsynth {verb}" for verb in verbs.split()} <= set(shown)
    assert "hf-dpsynth models train-inverter" in shown


def test_a_docstring_becomes_markdown():
    class Box:
        """Holds things.

        Args:
            size (`int`, defaults to `3`): how many
                fit in.
        Sensitivity:
            none.
        Raises:
            ValueError: it is too small.
        Examples:
            >>> 1 + 1
            2
        """

        def __init__(self, size=3):
            self.size = size

    shown = docstrings.block("Box", Box)
    assert shown.startswith(
        "## Box\n\n```py\nBox(size=3)\n```\n\nHolds things.\n\nArgs:\n\n- **size** (`int`, defaults"
    )
    assert "how many fit in." in shown and "Sensitivity: none." in shown and "- `ValueError`: it is" in shown
    assert shown.endswith("```pycon\n>>> 1 + 1\n2\n```")
