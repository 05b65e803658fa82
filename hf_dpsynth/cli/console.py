"""The application that the verbs hang on, and how they print."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_dpsynth.errors import ConfigError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Param = Annotated[list[str] | None, typer.Option(metavar="k=v", help="A field of the mechanism; repeatable.")]

app = typer.Typer(
    name="hf-dpsynth",
    help="Private text made usable inside the Hugging Face ecosystem.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def say(text: str) -> None:
    """Print a line that every console can show: what it cannot is escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    typer.echo(text.encode(encoding, "backslashreplace").decode(encoding))


def say_table(rows: list[tuple[str, ...]]) -> None:
    """Print rows in columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def fields_of(items: "list[str] | None") -> dict[str, Any]:
    """Return the fields of a mechanism that `--param k=v` names.

    Raises:
        ConfigError: one is not of this form.
    """
    from hf_dpsynth.strict_yaml import parse

    found: dict[str, Any] = {}
    for item in items or ():
        key, equals, text = item.partition("=")
        if not (key and equals):
            raise ConfigError(f"--param {item!r} is not of the form k=v.")
        found[key] = parse(text, f"--param {key}")
    return found


def event_line(event: "DpEvent") -> str:
    """Return an event as its name and numbers."""
    from hf_dpsynth.privacy.event_json import event_fields

    numbers = {name: getattr(event, name) for name in event_fields(type(event))}
    shown = "".join(f", {name} {value:.6g}" for name, value in numbers.items() if isinstance(value, float))
    within = f" of {event_line(numbers['event'])}" if numbers.get("event") is not None else ""
    return type(event).__name__.removesuffix("DpEvent") + shown + within
