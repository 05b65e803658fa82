"""Verbs that plan and run: plan, run, privatize, synthesize."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_dpsynth.cli.console import Param, app, event_line, fields_of, say
from hf_dpsynth.errors import ConfigError

if TYPE_CHECKING:
    from hf_dpsynth.recipe import Recipe

RecipeFile = Annotated[Path, typer.Argument(metavar="RECIPE", help="A YAML file.", show_default=False)]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="a.b=c", help="Set one value of the recipe.")]


Unit = Annotated[str | None, typer.Option(help="Whose contribution is protected: record, or a column of users.")]


@app.command("plan")
def plan_verb(recipe: RecipeFile, assign: Set = None, unit: Unit = None) -> None:
    """Show noise, guarantee and cost of a recipe, without data."""
    import json

    from dp_accounting import PoissonSampledDpEvent

    from hf_dpsynth.privacy.accounting import leaves, rdp_epsilon, round_up
    from hf_dpsynth.recipe import load

    plan = load(recipe, [*(assign or ()), *([] if unit is None else [f"unit={json.dumps(unit)}"])]).plan()
    say(f"mechanism: {plan.mechanism}")
    if plan.noise_multiplier is not None:
        say(f"noise multiplier: {plan.noise_multiplier:.6g}")
    say(f"guarantee: {plan.guarantee.statement()}")
    for leaf, count in leaves(plan.event).items():
        say(f"event: {count} x {event_line(leaf)}")
    if plan.cost is not None:
        say(
            f"cost: at most {plan.cost.lm_calls} prompts, {plan.cost.tokens} tokens, {plan.cost.embeddings} embeddings"
        )
    if plan.cost is not None and plan.cost.training_tokens:
        say(f"training: {plan.cost.training_tokens} tokens expected")
    if any(isinstance(leaf, PoissonSampledDpEvent) for leaf in leaves(plan.event)) and plan.adjacency != "replace-one":
        renyi = rdp_epsilon(plan.event, plan.delta or 0.0, adjacency=plan.adjacency)
        say(f"by Renyi DP, for comparison with papers: epsilon {round_up(renyi):g}")
    for warning in plan.warnings:
        say(f"warning: {warning}")


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
    """Run, write the rows to a file where one is named, and say the guarantee and where the rows are.

    Of several processes, the first one alone writes and says it.
    """
    from hf_dpsynth.devices import Devices
    from hf_dpsynth.formats import check_output, write_rows

    if recipe.out is None and output is None:
        raise ConfigError("nowhere to write: pass --out FOLDER (can resume) or --output FILE, or both.")
    if output is not None:
        check_output(output)
    private = recipe.read()
    if output is not None and recipe.kind == "privatize" and isinstance(private, dict) and len(private) > 1:
        raise ConfigError(f"--output takes one split; pass --split, one of {', '.join(private)}, or --out alone.")
    rows, release = recipe.run(private)
    if not Devices.current().is_main:
        return
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
Budget = Annotated[str | None, typer.Option(help="A budget's file, or {path: FILE, epsilon: 8, delta: 1e-6}.")]
Out = Annotated[str | None, typer.Option(help="The run directory; can resume.")]
Output = Annotated[Path | None, typer.Option(help="A .csv, .jsonl or .parquet file for the rows.")]
Name = Annotated[str | None, typer.Option(help="The configuration of a data set of the Hub.")]
Split = Annotated[str | None, typer.Option(help="The split to read.")]


@app.command("privatize")
def privatize_verb(
    context: typer.Context,
    input: Input,
    epsilon: Epsilon,
    mechanism: Annotated[str, typer.Option(help="A name of `hf-dpsynth list`.")] = "syntax-guided",
    text_column: TextColumn = None,
    keep_columns: Annotated[str | None, typer.Option(help="Columns to copy in clear: a,b.")] = None,
    param: Param = None,
    vectors: Annotated[str | None, typer.Option(help="Word vectors: a short name, a path or a Hub id.")] = None,
    generator: Annotated[
        str | None, typer.Option(help="The local model that rewrites: a name, path or Hub id.")
    ] = None,
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
    epsilon: Annotated[float | None, typer.Option(help="The privacy loss; sec-pe has p and r instead.")] = None,
    mechanism: Annotated[str, typer.Option(help="A name of `hf-dpsynth list`.")] = "aug-pe",
    delta: Annotated[float | None, typer.Option(help="The probability of a larger loss.")] = None,
    text_column: TextColumn = None,
    label_column: Annotated[str | None, typer.Option(help="The conditioning columns: a,b.")] = None,
    labels: Annotated[str | None, typer.Option(help="The label domain, declared public: a,b.")] = None,
    num_rows: Annotated[int | None, typer.Option(help="Rows to make.")] = None,
    num_records: Annotated[int | None, typer.Option(help="The number of records or users, declared public.")] = None,
    unit: Unit = None,
    label_proportions: Annotated[str | None, typer.Option(help="Shares of the labels: a: 0.4, b: 0.6")] = None,
    public: Annotated[str | None, typer.Option(help="Public text, named as INPUT is.")] = None,
    secrets: Annotated[str | None, typer.Option(help="A column of lists, or regex, spacy or presidio.")] = None,
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
    from hf_dpsynth.recipe import build

    values = {name: value for name, value in flags.items() if value is not None}
    for name in ("input", "name", "output", "param", *data):
        values.pop(name, None)
    lists = {"labels": "[]", "keep_columns": "[]", "label_column": "[]"}
    for name, brackets in {**lists, "budget": "", "public": ""}.items():
        if name in values:
            values[name] = _value(values[name], f"--{name.replace('_', '-')}", brackets)
    if "label_proportions" in values:
        values["label_proportions"] = _value(values["label_proportions"], "--label-proportions", "{}")
    params = fields_of(flags.get("param"))
    return build({**values, "data": data, **({"params": params} if params else {})})


def _value(text: str, flag: str, brackets: str) -> Any:
    from hf_dpsynth.strict_yaml import parse

    bare = brackets and not text.lstrip().startswith(("[", "{"))
    return parse(f"{brackets[0]}{text}{brackets[1]}" if bare else text, flag)
