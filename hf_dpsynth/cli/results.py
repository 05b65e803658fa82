"""Verbs on what a run left: card, verify, ledger, evaluate."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hf_dpsynth.cli.console import app, event_line, say, say_table
from hf_dpsynth.metrics import list_metrics

RunFolder = Annotated[str, typer.Argument(metavar="RUN", help="A run directory, or a folder with privacy.json.")]
RunOrRepo = Annotated[str, typer.Argument(metavar="RUN_OR_REPO", help="The same, or the id of a repository.")]
Revision = Annotated[str | None, typer.Option(help="A branch, tag or commit of the repository.")]


@app.command("card")
def card_verb(run: RunFolder) -> None:
    """Print the card of a run."""
    import hf_dpsynth

    say(hf_dpsynth.load_privacy(run).card())


@app.command("verify")
def verify_verb(
    run: RunOrRepo,
    revision: Revision = None,
    repo_type: Annotated[str | None, typer.Option(help="dataset or model, where both have this id.")] = None,
) -> None:
    """Check schema, accounting, files of a run; exit 1 if wrong."""
    import hf_dpsynth

    found = hf_dpsynth.verify(run, revision=revision, repo_type=repo_type)
    for what in ("schema", "accounting_recomputed", "files_match"):
        say(f"{what.replace('_', ' ')}: {'yes' if getattr(found, what) else 'no'}")
    for line in found.findings:
        say(f"wrong: {line}")
    for line in found.not_checkable:
        say(f"not checkable: {line}")
    if not found.ok:
        raise typer.Exit(1)


@app.command("push")
def push_verb(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run directory, a folder with privacy.json, or RUN/adapter.")
    ],
    repo_id: Annotated[str, typer.Argument(metavar="REPO_ID", help="The repository: owner/name.")],
    config_name: Annotated[str | None, typer.Option(help="The configuration of the rows.")] = None,
    postprocessing: Annotated[
        str | None, typer.Option(help="What was done to the rows since the run, where they are others.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The rows, where they are not those of the run: a file or folder."),
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="Show a repository that is made to everybody.")] = False,
    revision: Annotated[str | None, typer.Option(help="The branch to write to; made when missing.")] = None,
    create_pr: Annotated[bool, typer.Option("--create-pr", help="Open a pull request instead.")] = False,
    commit_message: Annotated[str | None, typer.Option(help="The message of the commit.")] = None,
) -> None:
    """Publish rows or a model, card and claim in one commit."""
    import hf_dpsynth
    from hf_dpsynth.inputs import load_input
    from hf_dpsynth.publish.folder import rows_in
    from hf_dpsynth.publish.tuned import is_model_folder

    settings: dict[str, Any] = {
        "private": not public, "revision": revision, "create_pr": create_pr, "commit_message": commit_message,
        **({} if config_name is None else {"config_name": config_name}),
        **({} if postprocessing is None else {"postprocessing": postprocessing}),
    }  # fmt: skip
    if data is None and is_model_folder(Path(run)):
        commit = hf_dpsynth.push_to_hub(run, repo_id, **settings)
    else:
        rows = rows_in(run) if data is None else load_input(data)
        commit = hf_dpsynth.push_to_hub(rows, repo_id, release=hf_dpsynth.load_privacy(run), **settings)
    say(f"published: {commit.pr_url or commit.commit_url}")


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
        events = "; ".join(f"{count} x {event_line(leaf)}" for leaf, count in leaves(event).items())
        say(f"run: {mechanism}, {state}, {day}: {events or 'nothing'}")
    say(f"spent: epsilon {found.spent():.6g}")
    say(f"remaining: epsilon {found.remaining():.6g}")


@app.command("evaluate")
def evaluate_verb(
    synthetic: Annotated[
        str, typer.Option(metavar="A", help="A run directory, file, folder or Hub id.", show_default=False)
    ],
    real: Annotated[
        str | None, typer.Option(metavar="B", help="The real texts; without them metrics of one set are computed.")
    ] = None,
    metrics: Annotated[str | None, typer.Option(metavar="m,n", help=f"Which of {', '.join(list_metrics())}.")] = None,
    embedder: Annotated[str, typer.Option(help="A model: short name, Hub id or path.")] = "minilm",
    text_column: Annotated[str | None, typer.Option(help="The column of text.")] = None,
    split: Annotated[str | None, typer.Option(help="The split of the real data.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of public randomness.")] = 0,
    output: Annotated[Path | None, typer.Option(metavar="FILE.json", help="A file for the figures.")] = None,
) -> None:
    """Compare synthetic with real texts, each score beside its floor."""
    from hf_dpsynth.evaluation import evaluate
    from hf_dpsynth.metrics.suite import DEFAULT
    from hf_dpsynth.store import check_private_output, write_whole

    if output is not None:
        check_private_output(output)
    found = evaluate(
        synthetic,
        real,
        metrics=DEFAULT if metrics is None else [name.strip() for name in metrics.split(",")],
        embedder=embedder,
        text_column=text_column,
        split=split,
        seed=seed,
    )
    say_table(found.table())
    for name, result in found.results.items():
        for limit in result.get("limits", ()):
            say(f"{name}: {limit}")
    if output is not None:
        write_whole(output, found.to_json().encode(), mode=0o600 if found.uses_private_data else 0o644)
    if found.uses_private_data:
        say("These figures read real texts: no guarantee covers them. Do not publish them with the run.")
    if found.path is not None:
        say(f"kept in {found.path}")
    if any("error" in result for result in found.results.values()):
        raise typer.Exit(1)


@app.command("report")
def report_verb(
    run: RunFolder,
    real: Annotated[
        str | None, typer.Option(metavar="B", help="The real texts, for a second page that stays with you.")
    ] = None,
    text_column: Annotated[str | None, typer.Option(help="The column of text of the real data.")] = None,
    split: Annotated[str | None, typer.Option(help="The split of the real data.")] = None,
    embedder: Annotated[str, typer.Option(help="A model for the map of both sets.")] = "minilm",
) -> None:
    """Write the report of a run, a page to publish; with real texts or an evaluation also a private one."""
    from hf_dpsynth.evaluation import report

    written = report(run, real, text_column=text_column, split=split, embedder=embedder)
    say(f"report: {written.public}")
    if written.private is not None:
        say(f"report of private figures: {written.private}")
        say("That page reads real texts: no guarantee covers it. Keep it.")
