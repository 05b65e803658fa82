"""What mechanisms of evolution share: how texts are asked for, varied and selected. Public, or post-processing.

Source: Xie et al. 2024, arXiv:2403.01749, Algorithm 1.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from hf_dpsynth.mechanisms.base import (
    PublicInputs,
    Row,
    check_choice,
    check_number,
    check_whole,
    largest_remainder,
)
from hf_dpsynth.mechanisms.evolution import prompts
from hf_dpsynth.models.base import TextGenerator
from hf_dpsynth.plans import Cost, Facts, Label, Plan
from hf_dpsynth.privacy.keys import public_generator, public_seed
from hf_dpsynth.store import Store

BLOCK = 256


@dataclass(frozen=True, kw_only=True)
class Evolving:
    """The fields of a mechanism that evolves texts.

    Args:
        iterations (`int`, defaults to `10`): rounds of voting.
        variations (`int`, defaults to `7`): L: the best 1/L of the texts are kept, each gets L - 1 variations.
        selection (`str`, defaults to `"rank"`): `"rank"` keeps the texts with most noisy votes, `"proportional"`
            draws them with probability proportional to their votes.
        lookahead (`int`, defaults to `0`): vote for the mean embedding of so many variations of a text instead of
            the text itself; costs so many more texts a round.
        threshold (`float`, defaults to `0.0`): noisy votes are clipped at this value from below, then lowered by it.
        keep_selected (`bool`, defaults to `True`): whether voted texts stay beside their variations.
        variation (`str`, defaults to `"fill-blanks"`): `"fill-blanks"` masks words and has them filled,
            `"paraphrase"` asks for other words.
        mask_probability (`float`, defaults to `0.5`): the share of words that is masked.
        word_count_std (`float`, defaults to `40.0`): a variation aims at its parent's words + N(0, std).
        min_words (`int`, defaults to `5`): the shortest length to aim at.
        max_new_tokens (`int`, defaults to `64`): the longest text, in tokens of the generator.
        temperature (`float`, defaults to `1.2`): of the first texts.
        variation_temperature (`float`, defaults to `1.0`): of the variations.
        subject (`str`, defaults to `"text"`): what to write, e.g. `"movie review"`. Public.
        keywords (`tuple[str, ...]`): words to write about at random. Public.
    """

    name: ClassVar[str] = ""
    kind: ClassVar[str] = "synthesize"

    iterations: int = 10
    variations: int = 7
    selection: str = "rank"
    lookahead: int = 0
    threshold: float = 0.0
    keep_selected: bool = True
    variation: str = "fill-blanks"
    mask_probability: float = 0.5
    word_count_std: float = 40.0
    min_words: int = 5
    max_new_tokens: int = 64
    temperature: float = 1.2
    variation_temperature: float = 1.0
    subject: str = "text"
    keywords: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "keywords", prompts.checked(self.name, self.subject, self.keywords))
        for name, least in (
            ("iterations", 1), ("variations", 2), ("lookahead", 0), ("min_words", 1), ("max_new_tokens", 1)
        ):  # fmt: skip
            check_whole(self.name, name, getattr(self, name), least)
        for name, low, high in (
            ("threshold", 0.0, 1e12),
            ("mask_probability", 0.0, 1.0),
            ("word_count_std", 0.0, 1e4),
            ("temperature", 0.0, 100.0),
            ("variation_temperature", 0.0, 100.0),
        ):
            check_number(self.name, name, getattr(self, name), low, high)
        for name, known in (("selection", ("rank", "proportional")), ("variation", ("fill-blanks", "paraphrase"))):
            check_choice(self.name, name, getattr(self, name), known)

    def cost(self, facts: Facts) -> Cost:
        """Return an upper bound on prompts, tokens and synthetic texts to embed."""
        rows = facts.num_rows or 0
        kept = math.ceil(rows / self.variations) if self.keep_selected else 0
        calls = rows + self.iterations * (rows - kept + rows * self.lookahead)
        private = (facts.num_records or 0) if facts.unit == "record" else 0  # nobody declares the records of users
        embeddings = self.iterations * rows * max(1, self.lookahead) + private
        return Cost(lm_calls=calls, tokens=calls * self.max_new_tokens, embeddings=embeddings)

    def sampler(self, public: PublicInputs, plan: Plan, store: Store) -> Any:
        """Return what makes further rows: variations of released ones. Post-processing, no charge."""
        return partial(self.more, public.generator, plan)

    def more(
        self, generator: TextGenerator, plan: Plan, released: Sequence[tuple[str, Label]], num_rows: int, seed: int
    ) -> Iterator[Row]:
        """Yield variations of released rows, in the shares their labels have; another seed gives other rows."""
        by_label = [[text for text, own in released if own == label] for label in plan.labels]
        parts = largest_remainder(num_rows, [float(len(texts)) for texts in by_label])
        for label, texts, part in zip(plan.labels, by_label, parts, strict=True):
            name = prompts.describe(plan.label_columns, label)
            for start in range(0, part, BLOCK):
                parents = [texts[row % len(texts)] for row in range(start, min(part, start + BLOCK))]
                streams = [public_generator(seed, "more", name, start + i) for i in range(len(parents))]
                asked = [self.variation_prompt(t, name, s) for t, s in zip(parents, streams, strict=True)]
                stream = public_seed(seed, "more", name, start)
                made = self.replies(generator, asked, self.variation_temperature, stream)
                for text, parent in zip(made, parents, strict=True):
                    yield {plan.text_column: text or parent, **dict(zip(plan.label_columns, label, strict=True))}

    def variation_prompt(self, text: str, label: str, generator: np.random.Generator) -> str:
        """Return the prompt that asks for a variation of a public text."""
        aim = len(text.split()) + generator.normal(0.0, self.word_count_std)
        words = max(self.min_words, round(aim))
        if self.variation == "paraphrase":
            return prompts.paraphrase(self.subject, label, text, words, generator)
        return prompts.fill_blanks(self.subject, label, text, words, generator, self.mask_probability)

    def replies(self, generator: TextGenerator, asked: list[str], temperature: float, seed: int) -> list[str]:
        """Return one cleaned reply for each prompt.

        Raises:
            ConfigError: the generator returned another number of texts.
        """
        return prompts.replies(generator, asked, self.max_new_tokens, temperature, seed)
