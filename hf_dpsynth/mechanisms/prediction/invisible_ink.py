"""`invisible-ink`: each text drawn token by token from clipped logits of the private texts of one batch.

Private prompts of one text each move the logits of a public prompt by a bounded amount; the draw of the token is the
noise. Every record is in at most one batch, by its place in the data and never by what it holds, and a batch makes one
text: all texts together cost what one does. Source: Vinod et al. 2025, arXiv:2507.02974. Where we leave the paper:
logits enter the clip as log-probabilities, because a constant that a model adds to all of them says nothing and would
fill the clip; a batch has about B records, divided by B whatever their number.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from dp_accounting import DpEvent, NoOpDpEvent

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.base import PublicInputs, Row, check_one, check_whole
from hf_dpsynth.mechanisms.prediction.base import (
    PredictionMechanism,
    Prompt,
    is_over,
    likeliest,
    text_of,
    texts_in_rounds,
)
from hf_dpsynth.mechanisms.prediction.models import TokenModel, token_model
from hf_dpsynth.mechanisms.rounds import rows_of, sizes_and_shares, with_labels
from hf_dpsynth.plans import Cost, Facts, Plan
from hf_dpsynth.privacy.keys import Key, public_generator
from hf_dpsynth.privacy.predictions import ClippedLogits, distribution
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.privacy.words import uniforms
from hf_dpsynth.run import Run

_SMALLEST = 1e-300


@dataclass(frozen=True, kw_only=True)
class InvisibleInk(PredictionMechanism):
    """Private generation of one text from each of many disjoint batches.

    A label can have about as many texts as B fits into its records; with more, batches hold fewer than B records and
    move the logits less. Each token costs one pass for each record of the batch and the public prompt.

    Args:
        max_new_tokens, max_tokens, top_k, subject: as in every private prediction (`PredictionMechanism`).
        batch_size (`int`, defaults to `8`): B, the expected records in a batch, and what their sum is divided by.
        temperature (`float`, defaults to `1.0`): divides the logits; a higher one allows a wider clip.
    Examples:
        >>> InvisibleInk(batch_size=16).temperature
        1.0
    """

    name: ClassVar[str] = "invisible-ink"
    uses_num_records: ClassVar[bool] = True
    account: ClassVar[str] = "zcdp"

    batch_size: int = 8
    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.name, "batch_size", self.batch_size, 1)
        check_one(self.name, "temperature", self.temperature)
        if isinstance(self.temperature, bool) or not isinstance(self.temperature, (int, float)):
            raise ConfigError(f"invisible-ink: temperature is {self.temperature!r}; it must be a positive number")
        if not 0 < self.temperature < math.inf:
            raise ConfigError(f"invisible-ink: temperature is {self.temperature!r}; it must be a positive number")

    def clipping(self) -> ClippedLogits:
        """Return how logits are clipped and tokens drawn, which is also the event."""
        return ClippedLogits(
            batch_size=self.batch_size,
            temperature=float(self.temperature),
            tokens=self.max_new_tokens,
            top_k=self.top_k,
        )

    def event(self, noise_multiplier: float, facts: Facts) -> DpEvent:
        """Return all texts and, where proportions are bought, one histogram of labels."""
        return with_labels(self.clipping().event(noise_multiplier, facts.adjacency), noise_multiplier, facts)

    def cost(self, facts: Facts) -> Cost:
        """Return calls and tokens where batches have B records: a call is one prompt in one pass."""
        tokens = (facts.num_rows or 0) * self.max_new_tokens
        return Cost(lm_calls=tokens * (self.batch_size + 1), tokens=tokens)

    def warnings(self, noise_multiplier: float, epsilon: float, delta: float | None, facts: Facts) -> tuple[str, ...]:
        """Say when there are too few records for the batches."""
        if facts.num_records is None or facts.num_rows is None:
            return ()
        expected = facts.num_records / facts.num_rows
        if expected >= self.batch_size:
            return ()
        return (
            f"a batch expects {expected:.3g} records of batch_size {self.batch_size}: private texts move the logits "
            f"less than they could. Up to {facts.num_records // self.batch_size} rows have full batches.",
        )

    def run(self, private: PrivateRecords, public: PublicInputs, plan: Plan, run: Run) -> Iterator[Row]:
        """Make a text of each batch and yield the rows."""
        held, model = InvisibleInk(**plan.params), token_model(self.name, public.generator)
        sizes, shares = sizes_and_shares(private, plan, run)
        batches = [
            held.batches(private, plan, label, (size, share))
            for label, size, share in zip(plan.labels, sizes, shares, strict=True)
        ]
        clipping, noise = held.clipping(), plan.noise_multiplier or 0.0

        def event(number: int) -> DpEvent:
            # the first charge pays for all batches: no record is in two of them
            return NoOpDpEvent() if number else clipping.event(noise, plan.adjacency)

        def text(prompt: Prompt, label: int, number: int, key: Key) -> str:
            pieces = prompt.pieces(model, batches[label][number])
            return held.text(model, prompt, pieces, (clipping, clipping.bound(noise)), key)

        yield from rows_of(plan, texts_in_rounds(held, model, plan, run, sizes, event, text))

    def batches(
        self, private: PrivateRecords, plan: Plan, label: tuple[object, ...], wanted: tuple[int, float]
    ) -> list[list[str]]:
        """Return the private texts of the batches of a label: as many as there are rows, of about B records each.

        A record's batch is a function of its place in the data, of the seed and of public numbers. Which place is in
        which batch is public; nothing rests on its secrecy. A start after a kill deals them out alike.

        Args:
            private (`PrivateRecords`): the records. Sensitive.
            plan (`Plan`): holds the seed and the number of records.
            label (`tuple`): a declared label.
            wanted (`tuple[int, float]`): rows of the label, and its public share.
        """
        rows, share = wanted
        groups = max(rows, math.floor((plan.num_records or 0) * share / self.batch_size), 1)
        order = public_generator(plan.seed, "batches").permutation(private.places())
        found: list[list[str]] = [[] for _ in range(rows)]
        for place, text in private.placed(label):
            batch = int(order[place]) % groups
            if batch < rows:
                found[batch].append(text)
        return found

    def text(
        self,
        model: TokenModel,
        prompt: Prompt,
        pieces: list[list[int]],
        options: tuple[ClippedLogits, float],
        key: Key,
    ) -> str:
        """Return one text of one batch: a draw, as its event says.

        Args:
            model (`TokenModel`): gives logits.
            prompt (`Prompt`): of the label. Public.
            pieces (`list[list[int]]`): the private texts of the batch as they stand in a prompt. Sensitive.
            options (`tuple[ClippedLogits, float]`): the clip, and its bound C. Public.
            key (`Key`): secret randomness of this text.
        """
        clipping, bound = options
        places = uniforms(key.generator("tokens"), self.max_new_tokens)
        public, made = prompt.public(model, self.max_new_tokens), list[int]()
        private = prompt.open(model, pieces, [], self.max_new_tokens)
        for step, place in enumerate(places):
            base = _log_probabilities(public.logits)[0]
            allowed = clipping.allowed(likeliest(model, base, made), bound)
            moved = clipping.moved(_log_probabilities(private.logits), base, bound)
            made.append(clipping.draw(float(place), moved, allowed))
            if is_over(model, made) or step + 1 == self.max_new_tokens:
                break
            public.feed(made[-1])
            private.feed(made[-1])
        return text_of(model, made)


def _log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Return logits less their logarithmic sum, each row a function of itself. As sensitive as they are."""
    return np.asarray(np.log(np.maximum(distribution(logits), _SMALLEST))) if len(logits) else logits
