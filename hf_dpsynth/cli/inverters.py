"""The verb that trains an inverter: models train-inverter."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from hf_dpsynth.cli.console import say, say_table
from hf_dpsynth.cli.machine import models_app


@models_app.command("train-inverter")
def train_inverter_verb(
    context: typer.Context,
    texts: Annotated[
        list[str],
        typer.Option(metavar="INPUT", help="Public text, repeatable: a file, folder, Hub id or catalogue name."),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The inverter's folder; called again, it goes on.")],
    text_column: Annotated[str | None, typer.Option(help="The column of text.")] = None,
    split: Annotated[str | None, typer.Option(help="The split to read.")] = None,
    encoder: Annotated[str, typer.Option(help="Whose vectors to invert: a short name, Hub id or path.")] = "minilm",
    model: Annotated[str, typer.Option(help="The language model: a short name, Hub id or path.")] = "smollm2-135m",
    steps: Annotated[int, typer.Option(help="Batches to train on.")] = 2000,
    minutes: Annotated[float | None, typer.Option(help="End after so many minutes of training.")] = None,
    batch_size: Annotated[int, typer.Option(help="Texts of a batch.")] = 16,
    learning_rate: Annotated[float, typer.Option(help="The learning rate of Adam.")] = 1e-3,
    prefix_length: Annotated[int, typer.Option(help="Virtual tokens that stand for a vector.")] = 8,
    rank: Annotated[int, typer.Option(help="Rank of the low-rank updates.")] = 16,
    noise_std: Annotated[float, typer.Option(help="Length of the largest noise, beside vectors of length 1.")] = 0.3,
    max_tokens: Annotated[int, typer.Option(help="Cut texts at so many tokens.")] = 64,
    checkpoint_steps: Annotated[int, typer.Option(help="Steps between two checkpoints.")] = 100,
    held_out: Annotated[float, typer.Option(help="The share of texts that is only evaluated.")] = 0.05,
    evaluated: Annotated[int, typer.Option(help="Most held-out texts to invert at the end.")] = 100,
    seed: Annotated[int, typer.Option(help="The seed of public randomness.")] = 0,
) -> None:
    """Train embedding -> text on PUBLIC text.

    The inverter learns its texts: one that was trained on private text voids every guarantee.
    """
    from hf_dpsynth.metrics.reconstruction import evaluate_inverter
    from hf_dpsynth.models import load_embedder, train_inverter
    from hf_dpsynth.models.inverter_settings import InverterTraining
    from hf_dpsynth.models.inverter_training import deal
    from hf_dpsynth.publish.run_files import texts_of

    named = {field.name for field in fields(InverterTraining)}
    training = InverterTraining(**{name: value for name, value in context.params.items() if name in named})
    known, unseen = deal([text for source in texts for text in texts_of(source, text_column, split)], held_out, seed)
    embedder = load_embedder(encoder)
    inverter = train_inverter(known, out=out, encoder=embedder, model=model, held_out=unseen, training=training)
    facts = inverter.config.training
    say(f"trained on {facts['num_texts']} texts: {facts['steps_made']} steps, {facts['seconds']:.0f} s")
    say(f"held-out loss: {facts['held_out_loss_before']:.3f} before, {facts['held_out_loss']:.3f} after")
    found = evaluate_inverter(inverter, unseen[:evaluated], embedder=embedder, seed=seed)
    say_table([("held-out texts", "score"), *((name, f"{value:.4g}") for name, value in found.items())])
    say(f"inverter: {out}")
