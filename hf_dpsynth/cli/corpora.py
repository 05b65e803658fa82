"""The verb that compares a public corpus with private texts: contamination."""

import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from hf_dpsynth.cli.console import app, say, say_table
from hf_dpsynth.errors import ConfigError


@app.command("contamination")
def contamination_verb(
    private: Annotated[str, typer.Option(metavar="A", help="The private texts: a file, folder or catalogue name.")],
    public: Annotated[str, typer.Option(metavar="B", help="The public corpus, named in the same way.")],
    window: Annotated[int, typer.Option(help="Tokens in a row that make an overlap.")] = 50,
    mode: Annotated[str, typer.Option(help="report; drop or cut, which also write what is left of B.")] = "report",
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A new file that only you can read: JSON of a report, else rows."),
    ] = None,
    text_column: Annotated[str | None, typer.Option(help="The column of text.")] = None,
    public_column: Annotated[str | None, typer.Option(help="That of B, where it has another name.")] = None,
    split: Annotated[str | None, typer.Option(help="The split of A; all when missing.")] = None,
    public_split: Annotated[str | None, typer.Option(help="The split of B.")] = None,
    short_texts: Annotated[
        str, typer.Option(help="Private texts below the window: exact, ngram, minhash or ignore.")
    ] = "exact",
    ngram: Annotated[int, typer.Option(help="Tokens of a window of --short-texts ngram.")] = 13,
    similarity: Annotated[float, typer.Option(help="Least similarity of --short-texts minhash.")] = 0.8,
    num_proc: Annotated[int | None, typer.Option(help="Worker processes.")] = None,
) -> None:
    """Find what a public corpus shares with private texts."""
    from hf_dpsynth.contamination import find_overlaps

    _check_output(output, mode)
    found = find_overlaps(
        _loaded(private, split, text_column),
        _loaded(public, public_split, public_column or text_column),
        window=window,
        mode=mode,
        text_column=text_column,
        public_column=public_column,
        short_texts=short_texts,
        ngram=ngram,
        similarity=similarity,
        num_proc=num_proc,
    )
    say_table(
        [
            ("public texts", f"{found.num_scanned:,}"),
            ("of them overlap", f"{found.num_documents:,}"),
            ("windows", f"{found.num_windows:,}"),
            ("spans", f"{len(found.spans):,}"),
            ("private texts found", f"{found.num_private:,}"),
            ("private texts below the window", f"{found.num_short:,}"),
        ]
    )
    if output is not None:
        _write(found, output)
        say(f"written: {output}")
    say(found.note)


def _loaded(source: str, split: str | None, column: str | None) -> Any:
    from hf_dpsynth import inputs

    inputs.check_headed(source, column)
    return inputs.load_input(source, split=split, text_column=column)


def _check_output(output: Path | None, mode: str) -> None:
    """Refuse, before anything is read, a file that cannot be written or would be published."""
    from hf_dpsynth.formats import check_output
    from hf_dpsynth.store import check_private_output

    if output is None:
        if mode != "report":
            raise ConfigError(f"--mode {mode} needs --output FILE for what is left of the public corpus.")
        return
    check_private_output(output)
    if mode != "report":
        check_output(output)
    elif output.exists():
        raise ConfigError(f"output {str(output)!r} exists and is not overwritten. Move it away, or pass another file.")


def _write(found: Any, output: Path) -> None:
    """Write a report, or rows, to a file with mode 0600."""
    from hf_dpsynth.formats import write_rows
    from hf_dpsynth.store import write_whole

    if found.dataset is None:
        write_whole(output, found.to_json().encode("ascii"), mode=0o600)
        return
    with tempfile.TemporaryDirectory(dir=output.absolute().parent) as folder:  # which nobody else may open
        made = Path(folder) / output.name
        write_rows(found.dataset, made)
        made.chmod(0o600)
        os.replace(made, output)
