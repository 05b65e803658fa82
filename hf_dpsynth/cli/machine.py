"""Verbs on this machine: list, data, models, doctor."""

from typing import Annotated

import typer

from hf_dpsynth.cli.console import app, say, say_table

models_app = typer.Typer(no_args_is_help=False, rich_markup_mode=None)
app.add_typer(models_app, name="models", help="List the models, fetch one, or train an inverter.")


@app.command("list")
def list_verb() -> None:
    """List the mechanisms with their guarantee and source."""
    from hf_dpsynth.registry import list_mechanisms

    say_table([("name", "kind", "guarantee", "source"), *list_mechanisms()])


@app.command("data")
def data_verb(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of the catalogue, e.g. movie.")],
) -> None:
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
    say_table([("name", "kind", "licence", "source"), *rows])


@models_app.command("pull")
def pull_verb(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A short name, a Hub id or a local path.")],
) -> None:
    """Fetch a model and print its folder."""
    from hf_dpsynth import models

    say(models.pull(name))


@app.command("doctor")
def doctor_verb(
    network: Annotated[bool, typer.Option("--network", help="Also ask whether the Hub can be reached.")] = False,
) -> None:
    """Show versions, threads, models and cache, and what to do."""
    from hf_dpsynth.doctor import examine

    for line in examine(network=network):
        say(f"{line.what}: {line.found}" + (f" -> {line.todo}" if line.todo else ""))
