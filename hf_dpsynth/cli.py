"""The command line `hf-dpsynth`: verbs without logic of their own.

Exit codes: 0 done, 1 failed, 2 configuration or usage. Errors take one line; `HF_DPSYNTH_DEBUG=1` shows the traceback.
"""

import os
import sys
from typing import Annotated

import typer

from hf_dpsynth.errors import ConfigError, HfDpsynthError

app = typer.Typer(
    name="hf-dpsynth",
    help="Private text made usable inside the Hugging Face ecosystem.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
models_app = typer.Typer(no_args_is_help=False, rich_markup_mode=None)
app.add_typer(models_app, name="models", help="List the models of the catalogue, or fetch one.")


def say(text: str) -> None:
    """Print a line that every console can show: what it cannot is escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    typer.echo(text.encode(encoding, "backslashreplace").decode(encoding))


def _table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@app.command("list")
def list_verb() -> None:
    """List the mechanisms with their guarantee and source."""
    from hf_dpsynth.registry import list_mechanisms

    _table([("name", "kind", "guarantee", "source"), *list_mechanisms()])


@app.command("data")
def data_verb(name: Annotated[str, typer.Argument(help="A name of the catalogue, e.g. movie.")]) -> None:
    """Fetch a data set of the catalogue and show its splits."""
    from hf_dpsynth import data

    for split, rows in data.load(name).items():
        say(f"{name}/{split}: {len(rows)} rows, {rows.features}")


@models_app.callback(invoke_without_command=True)
def models_verb(context: typer.Context) -> None:
    """List the models of the catalogue."""
    if context.invoked_subcommand is not None:
        return
    from hf_dpsynth.models import catalog

    rows = [(asset.name, asset.kind, asset.licence, asset.source) for asset in catalog.models()]
    _table([("name", "kind", "licence", "source"), *rows])


@models_app.command("pull")
def pull_verb(name: Annotated[str, typer.Argument(help="A short name, a Hub id or a local path.")]) -> None:
    """Fetch a model and print its folder."""
    from hf_dpsynth import models

    say(models.pull(name))


def main() -> None:
    """Run the command line."""
    try:
        app()
    except HfDpsynthError as error:
        if os.environ.get("HF_DPSYNTH_DEBUG"):
            raise
        sys.stderr.write(f"hf-dpsynth: {' '.join(str(error).split())}\n")
        sys.exit(2 if isinstance(error, ConfigError) else 1)


if __name__ == "__main__":
    main()
