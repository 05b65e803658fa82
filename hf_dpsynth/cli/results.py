"""Verbs on what a run left: card, verify, ledger."""

from pathlib import Path
from typing import Annotated

import typer

from hf_dpsynth.cli.console import app, event_line, say

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
        events = "; ".join(f"{count} x {event_line(leaf)}" for leaf, count in leaves(event).items())
        say(f"run: {mechanism}, {state}, {day}: {events or 'nothing'}")
    say(f"spent: epsilon {found.spent():.6g}")
    say(f"remaining: epsilon {found.remaining():.6g}")
