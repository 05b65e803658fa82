"""Verbs that measure: what a mechanism does, deniability; what a run shows, audit."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hf_dpsynth.cli.console import Param, app, fields_of, say, say_table
from hf_dpsynth.errors import ConfigError

if TYPE_CHECKING:
    from hf_dpsynth.audit import Deniability

_EPSILONS = "5,10,25"


@app.command("deniability")
def deniability_verb(
    mechanism: Annotated[str, typer.Argument(metavar="MECHANISM", help="A word mechanism of `hf-dpsynth list`.")],
    epsilon: Annotated[
        str | None, typer.Option(metavar="a,b", help=f"The scales; {_EPSILONS} without --quantile.")
    ] = None,
    quantile: Annotated[
        float | None, typer.Option(help="Also find the largest epsilon at which this share of words has N_w <= 50 %.")
    ] = None,
    words: Annotated[str, typer.Option(help="How many public words to draw, or which: a,b.")] = "250",
    draws: Annotated[int, typer.Option(help="Substitutes to draw for each word.")] = 100,
    param: Param = None,
    vectors: Annotated[str | None, typer.Option(help="Word vectors: a short name, a path or a Hub id.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of the choice of words; never of noise.")] = 0,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="A folder for figures and numbers.")] = None,
) -> None:
    """Measure how often public words come out unchanged."""
    from hf_dpsynth.audit import calibrate
    from hf_dpsynth.audit.words import prepare
    from hf_dpsynth.models.word_vectors import load_vectors

    scales = [] if epsilon is None and quantile is not None else _scales(_EPSILONS if epsilon is None else epsilon)
    params, chosen = fields_of(param), int(words) if words.isdigit() else [word.strip() for word in words.split(",")]
    loaded = load_vectors(vectors or "glove-50d")
    study = prepare(mechanism, chosen, draws, params, vectors=loaded, seed=seed, key=None)
    found = [study.at(scale) for scale in scales]
    if quantile is not None:
        best = calibrate(
            mechanism, quantile=quantile, words=chosen, draws=draws, params=params, vectors=loaded, seed=seed
        )
        found.append(best.deniability)
    say_table([("epsilon", "N mean", "N 90 %", "S mean", "S 10 %", "tags kept"), *map(_row, found)])
    say("")
    say_table(
        [("epsilon", "ranks", "words", "N mean", "S mean", "tags kept"), *(r for one in found for r in _bands(one))]
    )
    say("")
    if quantile is not None:
        say(f"calibrated: epsilon {best.epsilon:.4g} ({100 * quantile:g} % of words have N_w <= 50 %)")
    say("N: % of draws that return the word. S: different words that come out. Measured on public words: not a proof.")
    for one in found if out is not None else ():
        assert out is not None
        say(f"figures: {one.save(out / f'epsilon-{one.epsilon:.4g}')}")


def _scales(text: str) -> list[float]:
    """Return the scales that a flag lists."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--epsilon {text!r} is no list of numbers such as {_EPSILONS}.") from None


def _row(found: "Deniability") -> tuple[str, ...]:
    values = (
        found.self_substitution.mean(),
        found.self_quantile(0.9),
        found.distinct.mean(),
        found.distinct_quantile(0.1),
    )
    return (f"{found.epsilon:.4g}", *(f"{value:.1f}" for value in values), f"{100 * found.tags_kept:.1f} %")


def _bands(found: "Deniability") -> list[tuple[str, ...]]:
    return [
        (
            f"{found.epsilon:.4g}",
            f"{band.first:,} to {band.last:,}",
            f"{band.num_words:,}",
            f"{band.self_substitution:.1f}",
            f"{band.distinct:.1f}",
            f"{100 * band.tags_kept:.1f} %",
        )
        for band in found.bands
    ]


@app.command("audit")
def audit_verb(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory.")],
    real: Annotated[
        str | None,
        typer.Option(metavar="B", help="The real texts of the run; without them only the mechanism is audited."),
    ] = None,
    holdout: Annotated[
        str | None,
        typer.Option(metavar="C", help="Like texts that the run did not read; the test split of B when missing."),
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(help="An attack; repeatable. All that fit the run and load no large model when missing."),
    ] = None,
    publish: Annotated[
        list[str] | None,
        typer.Option(help="An attack whose figures go into the record though they read real texts; repeatable."),
    ] = None,
    embedder: Annotated[str, typer.Option(help="A model: short name, Hub id or path.")] = "minilm",
    vectors: Annotated[str | None, typer.Option(help="Word vectors of the run; by the plan when missing.")] = None,
    text_column: Annotated[str | None, typer.Option(help="The column of text of the real data.")] = None,
    split: Annotated[str | None, typer.Option(help="The split of the real data that the run read.")] = None,
    confidence: Annotated[float, typer.Option(help="That of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(help="The seed of public randomness.")] = 0,
) -> None:
    """Attack a run; exit 1 if its claim is refuted, or an attack that was asked for or all could not be made."""
    from hf_dpsynth.auditing import audit_run

    found = audit_run(
        run,
        real,
        holdout=holdout,
        attacks=attack,
        publish=publish or (),
        embedder=embedder,
        vectors=vectors,
        text_column=text_column,
        split=split,
        confidence=confidence,
        seed=seed,
    )
    say_table(found.table())
    for name, reason in found.skipped.items():
        say(f"{name}: not made. {reason}")
    for line in dict.fromkeys(limit for one in found.results for part in one.findings for limit in part.limits):
        say(f"limit: {line}")
    say(f"confidence {found.confidence:g}. An audit is not a proof: a better attack may find more.")
    earlier = [one.name for one in found.results if one.name not in found.made]
    if earlier:
        say(f"of earlier audits: {', '.join(earlier)}")
    if any(part.uses_private_data for one in found.results for part in one.findings):
        say("Figures that read real texts: no guarantee covers them. Do not publish them with the run.")
    say(f"kept in {found.path}")
    say(f"in the record of the run: {len(found.published)} figures")
    if found.violated:
        say("refuted: a figure is above the claim.")
    if found.violated or not found.made or any(name in found.skipped for name in attack or ()):
        raise typer.Exit(1)
