"""`dp-icl`: a few demonstrations, each token the noisy winner among prompts that hold private texts.

A sample of the records is dealt to M prompts; the mean of their distributions of the next token over the likeliest
tokens of a public prompt gets Gaussian noise, and the largest entry is the token. Source: Tang et al. 2023,
arXiv:2309.11765, Algorithm 1. Where we leave the paper: each sampled record chooses its prompt alone (dealt in order,
one record could move all prompts), the mean is never made to sum to 1 again, and the sampling rate is a public number.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from dp_accounting import DpEvent, SelfComposedDpEvent

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.base import PublicInputs, Row, check_choice, check_flag, check_one, check_whole
from hf_dpsynth.mechanisms.prediction.base import (
    PredictionMechanism,
    Prompt,
    is_over,
    likeliest,
    text_of,
    texts_in_rounds,
)
from hf_dpsynth.mechanisms.prediction.models import Prompts, TokenModel, token_model
from hf_dpsynth.mechanisms.rounds import rounds_of, rows_of, sizes_and_shares, with_labels
from hf_dpsynth.plans import Cost, Facts, Plan
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.predictions import SampledPrompts, distribution, mean_distribution, noisy_largest
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.run import Run

MOST_CALLS = 250_000  # of the language model: beyond, hours at best


@dataclass(frozen=True, kw_only=True)
class DPICL(PredictionMechanism):
    """Private few-shot generation of a handful of demonstrations.

    Each token costs one pass of the model for each of the M prompts and the public one. The budget is spent by the
    texts of the largest label times `max_new_tokens`; a text that ends early has paid for all of its tokens.

    Args:
        max_new_tokens, max_tokens, top_k, subject: as in every private prediction (`PredictionMechanism`).
        subsets (`int`, defaults to `10`): M, the prompts whose distributions are averaged.
        shots (`int`, defaults to `2`): the most private texts in a prompt.
        sample (`str`, defaults to `"fresh"`): `"fresh"` draws a sample for each token; `"kept"` draws one for each
            text, which is faster as prompts are read once, and needs several times the noise.
        rate (`float`, *optional*): the probability with which a record is in a sample; what fills all prompts in
            expectation if all labels were equally common, when missing, which publishes the number of records.
        texts (`int`, *optional*): the most texts of a label, which are paid for; what `num_rows` and the declared
            shares need when missing. Where shares are bought, any label may need all rows: choose fewer then.
        force (`bool`, defaults to `False`): whether more than 250,000 calls of the model are meant.
    Examples:
        >>> DPICL(subsets=4).shots
        2
    """

    name: ClassVar[str] = "dp-icl"

    subsets: int = 10
    shots: int = 2
    sample: str = "fresh"
    rate: float | None = None
    texts: int | None = None
    force: bool = field(default=False, metadata={"planned": False})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("subsets", "shots", *(() if self.texts is None else ("texts",))):
            check_whole(self.name, name, getattr(self, name), 1)
        check_choice(self.name, "sample", self.sample, ("fresh", "kept"))
        check_flag(self.name, "force", self.force)
        check_one(self.name, "rate", self.rate)
        rate = 1.0 if self.rate is None else self.rate
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate <= 1:
            raise ConfigError(f"dp-icl: rate is {self.rate!r}; it must be a probability above 0")

    @property
    def shown(self) -> int:
        """The most private texts in one prompt."""
        return self.shots

    @property
    def uses_num_records(self) -> bool:
        """Whether the plan is a function of the number of records."""
        return self.rate is None

    def fitted(self, facts: Facts) -> "DPICL":
        """Return the mechanism with the rate and the number of texts that follow from what is declared.

        Raises:
            ConfigError: a number is missing, the relation is not offered, or the work is out of proportion.
        """
        if facts.adjacency == "replace-one":
            raise ConfigError(
                "adjacency='replace-one' is not offered by dp-icl: its labels are accounted in parallel, and a record "
                "that changes its label is in two of them. Leave it out."
            )
        expected = self.subsets * self.shots * len(facts.labels) / (facts.num_records or 1)
        made = replace(
            self,
            rate=min(1.0, expected) if self.rate is None else float(self.rate),
            texts=rounds_of("texts", self.texts, facts),
        )
        calls = made.cost(facts).lm_calls
        if calls > MOST_CALLS and not self.force:
            raise ConfigError(
                f"dp-icl would call the model {calls} times for {facts.num_rows} rows; it is meant for a handful, up "
                f"to {MOST_CALLS} calls. Lower num_rows, max_new_tokens or subsets, or pass force=True in params=."
            )
        return made

    def sampling(self) -> SampledPrompts:
        """Return who stands in which prompt, which is also the event of a text. Of a fitted mechanism."""
        return SampledPrompts(
            rate=1.0 if self.rate is None else self.rate,
            subsets=self.subsets,
            shots=self.shots,
            tokens=self.max_new_tokens,
            kept=self.sample == "kept",
        )

    def event(self, noise_multiplier: float, facts: Facts) -> DpEvent:
        """Return the texts of the largest label and, where proportions are bought, one histogram of labels."""
        texts = SelfComposedDpEvent(self.sampling().event(noise_multiplier), self.texts or 1)
        return with_labels(texts, noise_multiplier, facts)

    def cost(self, facts: Facts) -> Cost:
        """Return an upper bound on calls and tokens: a call is one prompt in one pass."""
        tokens = (facts.num_rows or 0) * self.max_new_tokens
        return Cost(lm_calls=tokens * (self.subsets + 1), tokens=tokens)

    def warnings(self, noise_multiplier: float, epsilon: float, delta: float | None, facts: Facts) -> tuple[str, ...]:
        """Say when the noise is larger than any probability, and what bought shares cost."""
        found = []
        largest = self.sampling().deviation(noise_multiplier) * math.sqrt(2 * math.log(max(2, self.top_k)))
        if largest >= 1:
            found.append(
                f"the largest noise among {self.top_k} tokens is about {largest:.3g} and no probability exceeds 1: "
                "tokens are drawn almost at random. More subsets, fewer texts or tokens, a lower top_k or a larger "
                "epsilon would do."
            )
        if facts.buys_proportions and facts.num_rows is not None and self.texts == facts.num_rows > 1:
            found.append(
                f"shares of the labels are bought, so each label has paid for all {self.texts} rows. Declare "
                "label_proportions=, or choose texts, and the noise is less."
            )
        return tuple(found)

    def run(self, private: PrivateRecords, public: PublicInputs, plan: Plan, run: Run) -> Iterator[Row]:
        """Make the texts round by round and yield the rows."""
        held, model = DPICL(**plan.params), token_model(self.name, public.generator)
        sizes, shares = sizes_and_shares(private, plan, run, held.texts)
        sampling, noise = held.sampling(), plan.noise_multiplier or 0.0

        def text(prompt: Prompt, label: int, number: int, key: Key) -> str:
            pieces = prompt.pieces(model, private.of_label(plan.labels[label]))
            return held.text(model, prompt, pieces, (sampling, held.rate_of(plan, shares[label]), noise), key)

        made = texts_in_rounds(held, model, plan, run, sizes, lambda number: sampling.event(noise), text)
        yield from rows_of(plan, made)

    def rate_of(self, plan: Plan, share: float) -> float:
        """Return the public sampling rate of a label: what fills all prompts, at most the rate that is paid for."""
        rate, members = self.sampling().rate, (plan.num_records or 0) * share
        return rate if members <= 0 else min(rate, self.subsets * self.shots / members)

    def text(
        self,
        model: TokenModel,
        prompt: Prompt,
        pieces: list[list[int]],
        options: tuple[SampledPrompts, float, float],
        key: Key,
    ) -> str:
        """Return one text of one label: a draw, as its event says.

        Args:
            model (`TokenModel`): gives logits.
            prompt (`Prompt`): of the label. Public.
            pieces (`list[list[int]]`): the private texts of the label as they stand in a prompt. Sensitive.
            options (`tuple[SampledPrompts, float, float]`): sampler, rate of the label, noise multiplier. Public.
            key (`Key`): secret randomness of this text.
        """
        sampling, rate, noise = options
        public, made = prompt.public(model, self.max_new_tokens), list[int]()
        opened: tuple[list[int], Prompts] | None = None
        for step in range(self.max_new_tokens):
            if opened is None or not sampling.kept:
                sample = sampling.draw(key.generator("sample", step), len(pieces), rate)
                middles = [[token for row in rows for token in pieces[row]] for rows in sample]
                filled = [number for number, middle in enumerate(middles) if middle]
                room = self.max_new_tokens if sampling.kept else 1
                opened = filled, prompt.open(model, [middles[number] for number in filled], made, room)
            filled, private = opened
            rows = np.tile(distribution(public.logits[0]), (self.subsets, 1))
            rows[filled] = distribution(private.logits) if filled else rows[filled]
            scores = likeliest(model, public.logits[0], made)
            allowed = np.argsort(-scores, kind="stable")[: self.top_k]
            allowed = allowed[np.isfinite(scores[allowed])]
            mean = mean_distribution(rows, allowed)
            best = noisy_largest(key.generator("noise", step), mean, sampling.deviation(noise))
            made.append(int(allowed[best]))
            if is_over(model, made) or step + 1 == self.max_new_tokens:
                break
            public.feed(made[-1])
            if sampling.kept and filled:
                private.feed(made[-1])
        return text_of(model, made)
