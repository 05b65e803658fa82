"""The verb that gives a release in the formats of others: export."""

from pathlib import Path
from typing import Annotated

import typer

from hf_dpsynth.cli.console import app, say
from hf_dpsynth.cli.results import Revision, RunOrRepo
from hf_dpsynth.errors import ConfigError


@app.command("export")
def export_verb(
    run: RunOrRepo,
    format: Annotated[
        str,
        typer.Option(
            "--format", help="opendp-registry (YAML), or croissant (JSON-LD; of a run, to lie in its folder)."
        ),
    ],
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="A file, in place of the console.")] = None,
    revision: Revision = None,
) -> None:
    """Describe a release for OpenDP's registry or as Croissant."""
    from hf_dpsynth.publish.exporters import export
    from hf_dpsynth.publish.folder import CARD, PRIVACY, RELEASE
    from hf_dpsynth.store import write_whole

    if output is not None and (not output.absolute().parent.is_dir() or output.is_dir()):
        raise ConfigError(f"{str(output)!r} cannot be written: pass a file in a folder that is there.")
    if output is not None and output.name in (CARD, PRIVACY, RELEASE):
        raise ConfigError(f"{str(output)!r} has the name of a file that belongs to a release. Pass another name.")
    text = export(run, format, revision=revision)
    if output is None:
        say(text.rstrip("\n"))
    else:
        write_whole(output, text.encode("utf-8"))
