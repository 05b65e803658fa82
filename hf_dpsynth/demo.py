"""The demonstration behind `make demo`: privatize, synthesize and evaluate real reviews with the embedded models.

The data set is public; the demonstration treats it as private, so it shows what came out and never what went in.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import hf_dpsynth

_AUG_PE = {
    "iterations": 4,
    "variations": 3,
    "variation": "paraphrase",
    "subject": "movie review sentence",
    "word_count_std": 4.0,
    "max_new_tokens": 32,
    "temperature": 0.8,
    "variation_temperature": 0.7,
}


def say(text: str = "") -> None:
    """Print a line that every console can show."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()


@contextmanager
def timed(title: str) -> Iterator[None]:
    """Print a title, and how long what follows took."""
    say(f"\n== {title}")
    start = time.perf_counter()
    yield
    say(f"-- {time.perf_counter() - start:.1f} s")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(prog="python -m hf_dpsynth.demo", description=__doc__)
    parser.add_argument("--rows", type=int, default=100, help="synthetic rows to make")
    parser.add_argument("--privatize-rows", type=int, default=200, help="rows to privatize word by word")
    parser.add_argument("--evaluate-rows", type=int, default=1000, help="real rows to compare with")
    parser.add_argument("--out", default="demo-run", help="the run directory; a second start spends nothing")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    with timed("movie reviews, and models as files (cached after the first time)"):
        reviews = hf_dpsynth.data.load("movie")
        for name in ("glove-50d", "minilm", "smollm2-135m"):
            hf_dpsynth.models.pull(name)
        say(f"{reviews['train'].features}; the test split is kept for the evaluation")
    private = privatize(reviews["train"].shuffle(seed=1).select(range(options.privatize_rows)))
    synth = synthesize(reviews, options.rows, options.out)
    evaluate(reviews, {"madlib": private, "aug-pe": synth}, options.evaluate_rows, options.out)
    say(f"Done in {time.perf_counter() - start:.0f} s.")


def privatize(rows: Any) -> Any:
    """Show `madlib` on rows, and return what it made."""
    with timed(f"privatize {len(rows)} rows word by word: madlib, epsilon 10 per unit of distance"):
        private = rows.privatize("madlib", epsilon=10, keep_columns=["label"])
        for text in private["text"][:4]:
            say(f"   {text}")
        say(private.privacy.statement())
    return private


def synthesize(reviews: Any, num_rows: int, out: str) -> Any:
    """Show `aug-pe` on the training split, and return what it made."""
    with timed(f"synthesize {num_rows} labelled rows: aug-pe on SmolLM2-135M, epsilon 4"):
        synth = reviews.synthesize(
            "aug-pe",
            epsilon=4,
            delta=1e-5,
            text_column="text",
            label_column="label",
            num_rows=num_rows,
            out=out,
            params=_AUG_PE,
        )["train"]
        names = synth.features["label"].names
        for row in synth.select(range(min(6, len(synth)))):
            say(f"   [{names[row['label']]}] {row['text']}")
    release = synth.privacy
    cost = release.plan.cost
    say(f"\n{release.statement()}")
    say(f"Noise: discrete Gaussian, sigma {release.plan.noise_multiplier:.4g} votes.")
    say(f"Charges: {', '.join(charge.key for charge in release.charges)}.")
    say(f"At most {cost.lm_calls} prompts, {cost.tokens} tokens, {cost.embeddings} synthetic texts to embed.")
    return synth


def evaluate(reviews: Any, synthetic: dict[str, Any], num_rows: int, out: str) -> None:
    """Compare with real rows, train on synthetic and test on real ones, and write the report."""
    from datasets import DatasetDict

    from hf_dpsynth import evaluation

    real = reviews["train"].shuffle(seed=0).select(range(num_rows))
    with timed(f"evaluate: each score beside that of real against real at the same size, {num_rows} real rows"):
        found = evaluation.evaluate(out, real["text"][:])
        for row in found.table():
            say(
                "   " + "  ".join(cell.ljust(width) for cell, width in zip(row, (12, 8, 20, 8, 20, 5, 6), strict=True))
            )
    with timed(f"train on synthetic rows, test on {len(reviews['test'])} real ones that no mechanism saw"):
        study = hf_dpsynth.downstream.study(
            real=DatasetDict(train=real, test=reviews["test"]),
            synthetic=synthetic,
            label_column="label",
            models=("word-cnn", "minilm"),
            seeds=1,
        )
        say(study.table())
    with timed("report"):
        written = evaluation.report(out, real["text"][:], study=study)
        say(f"{written.public}: released and public material only")
        say(f"{written.private}: reads real texts, stays with you")
    say(f"\nEverything in {out}/ is public or privatized; {out}.private/ stays with you.")


if __name__ == "__main__":
    main()
