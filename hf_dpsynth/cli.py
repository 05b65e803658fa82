"""The command line `hf-dpsynth`: verbs without logic of their own.

Exit codes: 0 done, 1 failed or not verified, 2 configuration or usage, 130 interrupted. Errors take one line;
`HF_DPSYNTH_DEBUG=1` shows the traceback. Nothing is reported to anybody.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_dpsynth.errors import ConfigError, HfDpsynthError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from hf_dpsynth.recipe import Recipe

app = typer.Typer(
    name="hf-dpsynth",
    help="Private text made usable inside the Hugging Face ecosystem.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
models_app = typer.Typer(no_args_is_help=False, rich_markup_mode=None)
app.add_typer(models_app, name="models", help="List the models of the catalogue, or fetch one.")

_ClickError: type[Exception] = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")


def say(text: str) -> None:
    """Print a line that every console can show: what it cannot is escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    typer.echo(text.encode(encoding, "backslashreplace").decode(encoding))


def _table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Private text made usable inside the Hugging Face ecosystem."""
    if context.invoked_subcommand is None:
        say(context.get_help())
        raise typer.Exit(2)


@app.command("list")
def list_verb() -> None:
    """List the mechanisms with their guarantee and source."""
    from hf_dpsynth.registry import list_mechanisms

    _table([("name", "kind", "guarantee", "source"), *list_mechanisms()])


RecipeFile = Annotated[Path, typer.Argument(metavar="RECIPE", help="A YAML file.", show_default=False)]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="a.b=c", help="Set one value of the recipe.")]


@app.command("plan")
def plan_verb(recipe: RecipeFile, assign: Set = None) -> None:
    """Show noise, guarantee and cost of a recipe, without data."""
    from hf_dpsynth.privacy.accounting import leaves
    from hf_dpsynth.recipe import load

    plan = load(recipe, assign or ()).plan()
    say(f"mechanism: {plan.mechanism}")
    if plan.noise_multiplier is not None:
        say(f"noise multiplier: {plan.noise_multiplier:.6g}")
    say(f"guarantee: {plan.guarantee.statement()}")
    for leaf, count in leaves(plan.event).items():
        say(f"event: {count} x {_event(leaf)}")
    if plan.cost is not None:
        say(
            f"cost: at most {plan.cost.lm_calls} prompts, {plan.cost.tokens} tokens, {plan.cost.embeddings} embeddings"
        )
    for warning in plan.warnings:
        say(f"warning: {warning}")


def _event(event: "DpEvent") -> str:
    """Return an event as its name and numbers."""
    numbers = getattr(event, "__dict__", {})
    shown = ", ".join(f"{name} {value:.6g}" for name, value in numbers.items() if isinstance(value, float))
    return type(event).__name__.removesuffix("DpEvent") + (f", {shown}" if shown else "")


@app.command("run")
def run_verb(
    recipe: RecipeFile,
    assign: Set = None,
    resume: Annotated[bool | None, typer.Option(help="Whether a run directory that exists is continued.")] = None,
) -> None:
    """Run a recipe; a second run spends nothing."""
    from hf_dpsynth.recipe import load

    found = load(recipe, assign or ())
    if found.out is None:
        raise ConfigError("the recipe names no out; add it, or pass --set out=FOLDER.")
    if resume is False and Path(found.out, "ledger.db").exists():
        raise ConfigError(f"{found.out} holds a run and --no-resume is given. Pass --set out=FOLDER, or --resume.")
    _run(found, None)


def _run(recipe: "Recipe", output: Path | None) -> None:
    """Run, write the rows to a file where one is named, and say the guarantee and where the rows are."""
    from hf_dpsynth.formats import check_output, write_rows

    if recipe.out is None and output is None:
        raise ConfigError("nowhere to write: pass --out FOLDER (can resume) or --output FILE, or both.")
    if output is not None:
        check_output(output)
    private = recipe.read()
    if output is not None and recipe.kind == "privatize" and isinstance(private, dict) and len(private) > 1:
        raise ConfigError(f"--output takes one split; pass --split, one of {', '.join(private)}, or --out alone.")
    rows, release = recipe.run(private)
    if output is not None:
        write_rows(next(iter(rows.values())) if isinstance(rows, dict) else rows, output)
    say(release.statement())
    if recipe.out is not None:
        say(f"rows: {Path(recipe.out) / 'data'}")
        say(f"keep {recipe.out.rstrip('/')}.private/ to yourself; {recipe.out} holds no private text.")
    if output is not None:
        say(f"rows: {output}")


Input = Annotated[
    str,
    typer.Argument(
        metavar="INPUT",
        help="A Hub id, a name of the catalogue, a .csv, .tsv, .jsonl, .json, .parquet or .txt file, or a folder.",
    ),
]
Epsilon = Annotated[float, typer.Option(help="The privacy loss.", show_default=False)]
TextColumn = Annotated[str | None, typer.Option(help="The column of text.")]
Param = Annotated[list[str] | None, typer.Option(metavar="k=v", help="A field of the mechanism; repeatable.")]
Budget = Annotated[str | None, typer.Option(help="A budget's file, or {path: FILE, epsilon: 8, delta: 1e-6}.")]
Unit = Annotated[str | None, typer.Option(help="Whose contribution is protected.")]
Out = Annotated[str | None, typer.Option(help="The run directory; can resume.")]
Output = Annotated[Path | None, typer.Option(help="A .csv, .jsonl or .parquet file for the rows.")]
Name = Annotated[str | None, typer.Option(help="The configuration of a data set of the Hub.")]
Split = Annotated[str | None, typer.Option(help="The split to read.")]


@app.command("privatize")
def privatize_verb(
    context: typer.Context,
    input: Input,
    epsilon: Epsilon,
    mechanism: Annotated[str, typer.Option(help="A name of `hf-dpsynth list`.")] = "madlib",
    text_column: TextColumn = None,
    keep_columns: Annotated[str | None, typer.Option(help="Columns to copy in clear: a,b.")] = None,
    param: Param = None,
    vectors: Annotated[str | None, typer.Option(help="Word vectors: a short name or a path.")] = None,
    budget: Budget = None,
    unit: Unit = None,
    out: Out = None,
    output: Output = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows to search at a time.")] = None,
    num_proc: Annotated[int | None, typer.Option(help="Worker processes.")] = None,
    name: Name = None,
    split: Split = None,
) -> None:
    """Replace the words of each text by noisy neighbours."""
    _run(_from_flags(context.params, {"path": input, "name": name, "split": split}), output)


@app.command("synthesize")
def synthesize_verb(
    context: typer.Context,
    input: Input,
    epsilon: Epsilon,
    mechanism: Annotated[str, typer.Option(help="A name of `hf-dpsynth list`.")] = "aug-pe",
    delta: Annotated[float | None, typer.Option(help="The probability of a larger loss.")] = None,
    text_column: TextColumn = None,
    label_column: Annotated[str | None, typer.Option(help="The conditioning columns: a,b.")] = None,
    labels: Annotated[str | None, typer.Option(help="The label domain, declared public: a,b.")] = None,
    num_rows: Annotated[int | None, typer.Option(help="Rows to make.")] = None,
    num_records: Annotated[int | None, typer.Option(help="The number of records, declared public.")] = None,
    unit: Unit = None,
    label_proportions: Annotated[str | None, typer.Option(help="Shares of the labels: a: 0.4, b: 0.6")] = None,
    param: Param = None,
    generator: Annotated[str | None, typer.Option(help="A model: short name, Hub id or path.")] = None,
    embedder: Annotated[str | None, typer.Option(help="A model: short name, Hub id or path.")] = None,
    budget: Budget = None,
    out: Out = None,
    output: Output = None,
    resume: Annotated[bool | None, typer.Option(help="Whether a directory that exists is continued.")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of public randomness; never of noise.")] = None,
    split: Split = None,
    adjacency: Annotated[str | None, typer.Option(help="add-remove, zero-out or replace-one.")] = None,
    name: Name = None,
) -> None:
    """Make a new data set like the private one, with DP."""
    _run(_from_flags(context.params, {"path": input, "name": name}), output)


def _from_flags(flags: dict[str, Any], data: dict[str, str | None]) -> "Recipe":
    """Return the recipe that flags spell; lists and mappings may leave out their brackets."""
    from hf_dpsynth.recipe import build, parse

    values = {name: value for name, value in flags.items() if value is not None}
    for name in ("input", "name", "output", "param", *data):
        values.pop(name, None)
    for name, brackets in (("labels", "[]"), ("keep_columns", "[]"), ("label_column", "[]"), ("budget", "")):
        if name in values:
            values[name] = _value(values[name], f"--{name.replace('_', '-')}", brackets)
    if "label_proportions" in values:
        values["label_proportions"] = _value(values["label_proportions"], "--label-proportions", "{}")
    params: dict[str, Any] = {}
    for item in flags.get("param") or ():
        key, equals, text = item.partition("=")
        if not (key and equals):
            raise ConfigError(f"--param {item!r} is not of the form k=v.")
        params[key] = parse(text, f"--param {key}")
    return build({**values, "data": data, **({"params": params} if params else {})})


def _value(text: str, flag: str, brackets: str) -> Any:
    from hf_dpsynth.recipe import parse

    bare = brackets and not text.lstrip().startswith(("[", "{"))
    return parse(f"{brackets[0]}{text}{brackets[1]}" if bare else text, flag)


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
    _table([("name", "kind", "licence", "source"), *rows])


@models_app.command("pull")
def pull_verb(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A short name, a Hub id or a local path.")],
) -> None:
    """Fetch a model and print its folder."""
    from hf_dpsynth import models

    say(models.pull(name))


RunFolder = Annotated[str, typer.Argument(metavar="RUN", help="A run directory, or a folder with privacy.json.")]


@app.command("card")
def card_verb(run: RunFolder) -> None:
    """Print the card of a run."""
    import hf_dpsynth

    say(hf_dpsynth.load_privacy(run).card())


@app.command("verify")
def verify_verb(run: RunFolder) -> None:
    """Check schema, accounting and files of a run; exit 1 if wrong."""
    import hf_dpsynth

    found = hf_dpsynth.verify(run)
    for what in ("schema", "accounting_recomputed", "files_match"):
        say(f"{what.replace('_', ' ')}: {'yes' if getattr(found, what) else 'no'}")
    for line in found.findings:
        say(f"wrong: {line}")
    for line in found.not_checkable:
        say(f"not checkable: {line}")
    if not found.ok:
        raise typer.Exit(1)


@app.command("ledger")
def ledger_verb(budget: Annotated[Path, typer.Argument(metavar="BUDGET.db", help="A budget's file.")]) -> None:
    """Show limits, runs, spent and remaining of a budget."""
    from hf_dpsynth.privacy.accounting import leaves
    from hf_dpsynth.privacy.budget import PrivacyBudget

    found = PrivacyBudget.open(budget)
    say(
        f"limits: epsilon {found.epsilon:.6g}, delta {found.delta:.3g}, unit {found.unit}, {found.adjacency} adjacency"
    )
    for mechanism, state, day, event in found.runs():
        events = "; ".join(f"{count} x {_event(leaf)}" for leaf, count in leaves(event).items())
        say(f"run: {mechanism}, {state}, {day}: {events or 'nothing'}")
    say(f"spent: epsilon {found.spent():.6g}")
    say(f"remaining: epsilon {found.remaining():.6g}")


@app.command("doctor")
def doctor_verb(
    network: Annotated[bool, typer.Option("--network", help="Also ask whether the Hub can be reached.")] = False,
) -> None:
    """Show versions, threads, models and cache, and what to do."""
    from hf_dpsynth.doctor import examine

    for line in examine(network=network):
        say(f"{line.what}: {line.found}" + (f" -> {line.todo}" if line.todo else ""))


def call(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments (`Sequence[str]`, *optional*): the words after `hf-dpsynth`; those of the process when missing.
    Returns:
        `int`: 0, 1, 2 or 130; what went wrong stands on standard error, on one line.
    """
    try:
        code = app(args=arguments, prog_name="hf-dpsynth", standalone_mode=False)
    except Exception as error:  # the last door: a stranger's message may hold private text
        if os.environ.get("HF_DPSYNTH_DEBUG"):
            raise
        code, line = _explained(error)
        _complain(line)
    else:
        code = code if isinstance(code, int) else 0
        if code == 130:
            _complain("interrupted; a run with --out continues when it is called again.")
    return code


def _explained(error: Exception) -> tuple[int, str]:
    """Return the exit code and the line for an error."""
    if isinstance(error, HfDpsynthError):
        return (2 if isinstance(error, ConfigError) else 1), str(error)
    if isinstance(error, _ClickError):
        return 2, f"{error.format_message().rstrip('.')}. See --help."  # type: ignore[attr-defined]
    if isinstance(error, OSError) and error.strerror:
        return 1, f"{error.filename or 'a file'}: {error.strerror}"
    return 1, f"failed with {type(error).__name__}; HF_DPSYNTH_DEBUG=1 shows where, and may show private text."


def _complain(line: str) -> None:
    encoding = getattr(sys.stderr, "encoding", None) or "ascii"
    text = f"hf-dpsynth: {' '.join(line.split())}\n"
    sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))


def main() -> None:
    """Run the command line as a process, without any progress bar where those of `datasets` are switched off."""
    if os.environ.get("HF_DATASETS_DISABLE_PROGRESS_BARS", "").upper() in {"1", "ON", "YES", "TRUE"}:
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
    sys.exit(call())


if __name__ == "__main__":
    main()
