"""The reference in docs/api, from docstrings and --help alone. Refresh: python -m tests.docs.reference"""

import importlib
import inspect
import pathlib
from contextlib import redirect_stderr
from dataclasses import fields
from io import StringIO

import typer

import hf_dpsynth
from hf_dpsynth import (
    audit,
    contamination,
    data,
    downstream,
    errors,
    evaluation,
    guarantees,
    metrics,
    models,
    plans,
    registry,
    release,
    streams,
)
from hf_dpsynth import secrets as found
from hf_dpsynth.cli import app
from hf_dpsynth.compute import nearest
from hf_dpsynth.models import base
from hf_dpsynth.privacy import accounting, secrets
from hf_dpsynth.publish.verify import Verification
from tests.docs.docstrings import block, class_block, described, documentation, entries

FOLDER = pathlib.Path(__file__).parents[2] / "docs" / "api"
_MADE = "<!-- Written by `python -m tests.docs.reference` from the docstrings. Change those instead. -->"
_CALLS = ("privatize", "synthesize", "plan", "list_mechanisms", "PrivacyBudget", "load_privacy", "verify")
_CALLS += ("push_to_hub", "register", "unregister")
_WIDTH = 100


def pages():
    """The pages by the name of their file."""
    return {
        "hf_dpsynth.md": package(),
        "mechanisms.md": mechanisms(),
        "measuring.md": measuring(),
        "errors.md": page("Errors", described(errors), *(block(name, cls) for name, cls in errors_of())),
        "command-line.md": command_line(),
    }


def page(title, *parts):
    """A page with a title, the note that it is made, and a line end."""
    return "\n\n".join(part for part in (f"# {title}", _MADE, *parts) if part) + "\n"


def package():
    """What `import hf_dpsynth` offers, what its calls return, and its modules."""
    modules = [name for name in sorted(hf_dpsynth.__all__) if inspect.ismodule(getattr(hf_dpsynth, name))]
    returned = (release.Release, release.Rows, plans.Plan, plans.Cost, Verification)
    promises = (guarantees.ApproxDP, guarantees.MetricDP, guarantees.LocalDP, guarantees.SecretProtection)
    protocols = (base.TextGenerator, base.Embedder, base.Tagger, base.Inverter)
    detectors = (found.RegexDetector, found.SpacyDetector, found.PresidioDetector)
    counted = (accounting.calibrate, accounting.epsilon, secrets.secret_allowance)
    loaded = [(f"models.{name}", getattr(models, name)) for name in models.__all__]
    return page(
        "hf_dpsynth",
        described(hf_dpsynth),
        "Modules: " + ", ".join(f"`hf_dpsynth.{name}`" for name in modules) + ".",
        *(block(name, getattr(hf_dpsynth, name)) for name in _CALLS),
        *(block(cls.__name__, cls) for cls in returned),
        *(block(cls.__name__, cls) for cls in promises),
        block("data.load", data.load),
        *(block(name, thing) for name, thing in loaded),
        *(block(f"models.base.{cls.__name__}", cls) for cls in protocols),
        *(f"## {module.__name__}\n\n{described(module)}" for module in (streams, found)),
        *(block(f"secrets.{cls.__name__}", cls) for cls in detectors),
        *(block(f"privacy.{of.__module__.rpartition('.')[2]}.{of.__name__}", of) for of in counted),
        *(block(f"compute.nearest.{of.__name__}", of) for of in (nearest.votes, nearest.top_k)),
    )


def ours():
    """The rows of the table less those of other packages."""
    return [entry for entry in registry.table().values() if entry.kind != "plugin"]


def mechanisms():
    """Every mechanism of the table with its law, its guarantee, its source and its fields."""
    text = "Fields are passed as `params={...}`, or to the class; `hf_dpsynth.list_mechanisms()` lists the names."
    return page("Mechanisms", text, *(_mechanism(entry) for entry in ours()))


def _mechanism(entry):
    cls = entry.load()
    module = importlib.import_module(cls.__module__)
    line = f"`.{entry.kind}()`, {entry.guarantee}. Source: {entry.source}. Class: `{cls.__module__}.{cls.__name__}`."
    return "\n\n".join((f"## {entry.name}", line, described(cls), described(module), f"Fields:\n\n{entries(cls)}"))


def undocumented():
    """Fields of mechanisms that no docstring describes."""
    rows = [(entry.name, entry.load()) for entry in ours()]
    return [(name, f.name) for name, cls in rows for f in fields(cls) if f.init and documentation(cls, f.name) is None]


def measuring():
    """Metrics, the evaluation of runs, downstream studies, audits and contamination."""
    named = [(f"metrics.{name}", getattr(metrics, name)) for name in metrics.__all__]
    runs = [(f"evaluation.{name}", getattr(evaluation, name)) for name in ("evaluate", "report", "Evaluation")]
    trained = [(f"downstream.{name}", getattr(downstream, name)) for name in downstream.__all__]
    audits = [(f"audit.{name}", getattr(audit, name)) for name in audit.__all__]
    shared = [(f"contamination.{name}", getattr(contamination, name)) for name in contamination.__all__]
    return page(
        "Metrics, downstream and audits",
        described(metrics),
        *(block(name, thing) for name, thing in named),
        *_metrics(),
        *(block(name, thing) for name, thing in runs),
        described(downstream),
        *(block(name, thing) for name, thing in trained),
        described(audit),
        *(block(name, thing) for name, thing in audits),
        described(contamination),
        *(block(name, thing) for name, thing in shared if not isinstance(thing, str)),
    )


def _metrics():
    """Each metric with its options; a call that several share is shown once."""
    shown = {}
    for name in metrics.list_metrics():
        title, cls = f'metrics.load("{name}")', type(metrics.load(name))
        calls = [call for call in ("compute", "compare") if hasattr(cls, call)]
        firsts = {call: shown.setdefault(getattr(cls, call), title) for call in calls}
        yield class_block(title, cls, only=[call for call in calls if firsts[call] == title])
        if firsts["compute"] != title:
            yield f"`compute` is that of `{firsts['compute']}`."


def errors_of():
    """The classes of errors, the root first."""
    return [(name, value) for name, value in vars(errors).items() if inspect.isclass(value)]


def command_line():
    """What --help says of every verb."""
    root = typer.main.get_command(app)
    intro = "Exit codes: 0 done, 1 failed or not verified, 2 configuration or usage, 130 interrupted."
    return page("Command line", intro, *(f"## {name}\n\n```text\n{text}\n```" for name, text in _helps(root)))


def _helps(command, name="hf-dpsynth", parent=None):
    with redirect_stderr(StringIO()):
        context = type(command).context_class(command, info_name=name.split()[-1], parent=parent)
    context.terminal_width = _WIDTH
    yield name, "\n".join(line.rstrip() for line in command.get_help(context).strip().split("\n"))
    for verb, inner in getattr(command, "commands", {}).items():
        yield from _helps(inner, f"{name} {verb}", context)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        FOLDER.joinpath(name).write_text(text, encoding="utf-8")
