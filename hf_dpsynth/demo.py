"""The demonstration behind `make demo`: privatize and synthesize real reviews with the embedded models.

The data set is public; the demonstration treats it as private, so it shows what came out and never what went in.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import hf_dpsynth


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
    parser.add_argument("--out", default="demo-run", help="the run directory; a second start spends nothing")
    options = parser.parse_args(arguments)
    start = time.perf_counter()

    with timed("movie reviews, and models as files (cached after the first time)"):
        reviews = hf_dpsynth.data.load("movie")
        for name in ("glove-50d", "minilm", "smollm2-135m"):
            hf_dpsynth.models.pull(name)
        say(f"{reviews['train'].features}")

    with timed(f"privatize {options.privatize_rows} rows word by word: madlib, epsilon 10 per unit of distance"):
        private = reviews["train"].select(range(options.privatize_rows)).privatize("madlib", epsilon=10)
        for text in private["text"][:4]:
            say(f"   {text}")
        say(private.privacy.statement())

    with timed(f"synthesize {options.rows} labelled rows: aug-pe on SmolLM2-135M, epsilon 4"):
        synth = reviews.synthesize(
            "aug-pe",
            epsilon=4,
            delta=1e-5,
            text_column="text",
            label_column="label",
            num_rows=options.rows,
            out=options.out,
            params={
                "iterations": 4,
                "variations": 3,
                "variation": "paraphrase",
                "subject": "movie review sentence",
                "word_count_std": 4.0,
                "max_new_tokens": 32,
                "temperature": 0.8,
                "variation_temperature": 0.7,
            },
        )["train"]
        names = synth.features["label"].names
        for row in synth.select(range(6)):
            say(f"   [{names[row['label']]}] {row['text']}")

    release = synth.privacy
    cost = release.plan.cost
    say(f"\n{release.statement()}")
    say(f"Noise: discrete Gaussian, sigma {release.plan.noise_multiplier:.4g} votes.")
    say(f"Charges: {', '.join(charge.key for charge in release.charges)}.")
    say(f"At most {cost.lm_calls} prompts, {cost.tokens} tokens, {cost.embeddings} synthetic texts to embed.")
    say(f"Everything in {options.out}/ is public or privatized; {options.out}.private/ stays with you.")
    say(f"Done in {time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    main()
