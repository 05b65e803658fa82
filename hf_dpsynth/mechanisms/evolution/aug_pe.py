"""`aug-pe`: augmented private evolution. Texts that private records vote for survive and are varied.

Each round releases one noisy vote vector through the ledger; prompting, selection and variation are post-processing.
Source: Xie et al. 2024, arXiv:2403.01749, Algorithm 1. Where we leave the paper: one vote vector with one noise for
all labels, label proportions declared or bought from the budget instead of read, candidates that are almost equal
merged before the vote, and clean votes that are never stored.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, ClassVar

import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent, SelfComposedDpEvent

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.logging import progress_bar
from hf_dpsynth.mechanisms.base import (
    PublicInputs,
    Row,
    check_choice,
    check_one,
    check_whole,
    label_shares,
    largest_remainder,
)
from hf_dpsynth.mechanisms.evolution import prompts
from hf_dpsynth.mechanisms.evolution.ranking import select
from hf_dpsynth.models.base import TextGenerator
from hf_dpsynth.plans import Cost, Facts, Label, Plan
from hf_dpsynth.privacy.accounting import gaussian_epsilon
from hf_dpsynth.privacy.keys import public_generator, public_seed
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.privacy.selection import count_event, distinct, noisy_votes
from hf_dpsynth.run import Run
from hf_dpsynth.store import Store

LABEL_SHARE = 0.05
_BLOCK = 256


@dataclass(frozen=True, kw_only=True)
class AugPE:
    """Augmented private evolution.

    Args:
        iterations (`int`, defaults to `10`): rounds of voting; each spends an equal part of the budget.
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
    Examples:
        >>> AugPE(iterations=3).variations
        7
    """

    name: ClassVar[str] = "aug-pe"
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
        words = [self.keywords] if isinstance(self.keywords, str) else self.keywords
        if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
            raise ConfigError(f"aug-pe: keywords is {self.keywords!r}; it must be a list of strings")
        object.__setattr__(self, "keywords", tuple(words))
        if not isinstance(self.subject, str) or not self.subject.strip():
            raise ConfigError(f"aug-pe: subject is {self.subject!r}; it must be words, e.g. 'movie review'")
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
            value = getattr(self, name)
            check_one(self.name, name, value)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
                raise ConfigError(f"aug-pe: {name} is {value!r}; it must be a number from {low:g} to {high:g}")
        for name, known in (("selection", ("rank", "proportional")), ("variation", ("fill-blanks", "paraphrase"))):
            check_choice(self.name, name, getattr(self, name), known)

    def event(self, noise_multiplier: float, facts: Facts) -> DpEvent:
        """Return T rounds of votes and, where proportions are bought, one histogram of labels.

        The histogram gets 5 % of mu squared: sigma_labels = sigma_votes sqrt(0.95 / (0.05 T)).
        """
        votes = SelfComposedDpEvent(count_event(noise_multiplier, facts.adjacency), self.iterations)
        if not facts.buys_proportions:
            return votes
        labels = count_event(self.label_noise(noise_multiplier), facts.adjacency)
        return ComposedDpEvent([votes, labels])

    def label_noise(self, noise_multiplier: float) -> float:
        """Return the noise parameter of the label histogram beside votes at `noise_multiplier`."""
        return noise_multiplier * math.sqrt((1 - LABEL_SHARE) / (LABEL_SHARE * self.iterations))

    def cost(self, facts: Facts) -> Cost:
        """Return an upper bound on prompts, tokens and synthetic texts to embed."""
        rows = facts.num_rows or 0
        kept = math.ceil(rows / self.variations) if self.keep_selected else 0
        calls = rows + self.iterations * (rows - kept + rows * self.lookahead)
        embeddings = self.iterations * rows * max(1, self.lookahead) + (facts.num_records or 0)
        return Cost(lm_calls=calls, tokens=calls * self.max_new_tokens, embeddings=embeddings)

    def warnings(self, noise_multiplier: float, epsilon: float, delta: float | None, facts: Facts) -> tuple[str, ...]:
        """Say when a candidate's expected votes drown in the noise, and the smallest n or epsilon that would do."""
        if facts.num_records is None or facts.num_rows is None or noise_multiplier == 0 or delta is None:
            return ()
        expected = facts.num_records / facts.num_rows
        if expected >= noise_multiplier:
            return ()
        needed = math.ceil(facts.num_rows * noise_multiplier)
        share = (1 - LABEL_SHARE) if facts.buys_proportions else 1.0
        mu = math.sqrt(self.iterations / share) / expected * (math.sqrt(2) if facts.adjacency == "replace-one" else 1)
        return (
            f"a candidate expects {expected:.3g} votes and the noise has a standard deviation of "
            f"{noise_multiplier:.3g}: the votes drown. About {needed} records, or epsilon "
            f"{gaussian_epsilon(mu, delta):.3g}, or fewer num_rows or iterations would do.",
        )

    def run(self, private: PrivateRecords, public: PublicInputs, plan: Plan, run: Run) -> Iterator[Row]:
        """Evolve a population and yield its rows: the text column and the conditioning columns."""
        evolution = _Evolution(self, private, public, plan, run)
        texts = evolution.texts()
        for position in public_generator(plan.seed, "row order").permutation(len(texts)).tolist():
            label = plan.labels[evolution.label_of(position)]
            yield {plan.text_column: texts[position], **dict(zip(plan.label_columns, label, strict=True))}

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
            for start in range(0, part, _BLOCK):
                parents = [texts[row % len(texts)] for row in range(start, min(part, start + _BLOCK))]
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
        if not asked:
            return []
        made = generator.generate(asked, max_new_tokens=self.max_new_tokens, temperature=temperature, seed=seed)
        if len(made) != len(asked):
            raise ConfigError(
                f"the generator returned {len(made)} texts for {len(asked)} prompts; it must return one for each"
            )
        return [prompts.clean(text) for text in made]


class _Evolution:
    """One run of `AugPE`; holds the private embeddings, in memory only."""

    def __init__(self, mechanism: AugPE, private: PrivateRecords, public: PublicInputs, plan: Plan, run: Run) -> None:
        if plan.num_rows is None or plan.noise_multiplier is None:
            raise ConfigError("aug-pe needs num_rows=: the number of rows to make")
        self.mechanism, self.private, self.public, self.plan, self.run = mechanism, private, public, plan, run
        self.sigma = plan.noise_multiplier
        self._private_embeddings: list[np.ndarray] | None = None
        shares = label_shares(private, plan, run, mechanism.label_noise(self.sigma))
        sizes = largest_remainder(plan.num_rows, shares)
        self.bounds = [0, *accumulate(sizes)]
        self.names = [prompts.describe(plan.label_columns, label) for label in plan.labels]

    def label_of(self, position: int) -> int:
        """Return the number of the label that a position of the population belongs to."""
        return int(np.searchsorted(self.bounds, position, side="right")) - 1

    def texts(self) -> list[str]:
        """Return the last population."""
        name = "population-000"
        rows = self.bounds[-1]
        texts = self._grow(
            name, self._initial(name), self.mechanism.temperature, copied=[None] * rows, fallback=[""] * rows
        )
        rounds = progress_bar(total=self.mechanism.iterations, desc="aug-pe rounds", unit="round")
        for number in range(1, self.mechanism.iterations + 1):
            scores = self._vote(number, name, texts)
            if scores is not None:  # a lost charge is a lost round: the population stays
                name = f"population-{number:03d}"
                texts = self._next(name, number, texts, scores)
            rounds.update()
        rounds.close()
        return texts

    def _vote(self, number: int, name: str, texts: list[str]) -> np.ndarray | None:
        """Return noisy votes, shape (rows,), -inf for texts that stand for an earlier one; None when lost."""
        key = f"votes-{number:03d}"
        candidates, about = self._candidates(number, name, texts)
        groups: list[np.ndarray] = []
        private: list[np.ndarray] = []
        kept: list[np.ndarray] = []
        if self.run.ledger.state(key) is None:  # embed before the charge, so that a failure costs nothing
            groups, private = np.split(candidates(), self.bounds[1:-1]), self._embedded_private()
            kept = [
                np.asarray([row for row in distinct(group) if row in first], dtype=np.int64)
                for group, first in zip(groups, self._first(texts), strict=True)
            ]

        def draw() -> list[list[list[int]]]:
            rivals = [group[rows] for group, rows in zip(groups, kept, strict=True)]
            noisy = noisy_votes(private, rivals, self.sigma)
            return [[rows.tolist(), votes.tolist()] for rows, votes in zip(kept, noisy, strict=True)]

        released = self.run.ledger.release(key, count_event(self.sigma, self.plan.adjacency), draw, about=about)
        if released is None:
            return None
        scores = np.full(len(texts), -np.inf)
        for start, (rows, votes) in zip(self.bounds, released, strict=False):
            scores[start + np.asarray(rows, dtype=np.int64)] = votes
        return scores

    def _first(self, texts: list[str]) -> list[set[int]]:
        """Return, by label, the positions at which a text stands for the first time."""
        return [
            set({text: row for row, text in reversed(list(enumerate(texts[start:stop])))}.values())
            for start, stop in pairwise(self.bounds)
        ]

    def _candidates(self, number: int, name: str, texts: list[str]) -> tuple[Callable[[], np.ndarray], dict[str, Any]]:
        """Return what embeds the candidates, and the digests of the texts behind them."""
        about = {"population": self.run.store.digest(name)}
        degree = self.mechanism.lookahead
        if not degree:
            return lambda: self._embed(texts), about
        ahead = f"lookahead-{number:03d}"
        parents = [position for position in range(len(texts)) for _ in range(degree)]
        varied = self._grow(
            ahead,
            self._variation(ahead, texts, parents),
            self.mechanism.variation_temperature,
            copied=[None] * len(parents),
            fallback=[texts[row] for row in parents],
        )
        about["lookahead"] = self.run.store.digest(ahead)
        return lambda: self._embed(varied).reshape(len(texts), degree, -1).mean(axis=1), about

    def _next(self, name: str, number: int, texts: list[str], scores: np.ndarray) -> list[str]:
        """Select by noisy votes and vary: post-processing."""
        mechanism = self.mechanism
        generator = public_generator(self.plan.seed, "selection", number)
        copied: list[int | None] = []
        parents: list[int] = []
        for start, stop in pairwise(self.bounds):
            size = stop - start
            selected = start + select(
                scores[start:stop],
                math.ceil(size / mechanism.variations),
                mechanism.selection,
                mechanism.threshold,
                generator,
            )
            kept = selected.tolist() if mechanism.keep_selected else []
            varied = [int(selected[i % len(selected)]) for i in range(size - len(kept))]
            copied += [*kept, *([None] * len(varied))]
            parents += [*kept, *varied]
        return self._grow(
            name,
            self._variation(name, texts, parents),
            mechanism.variation_temperature,
            copied=[None if row is None else texts[row] for row in copied],
            fallback=[texts[row] for row in parents],
        )

    def _initial(self, name: str) -> Callable[[int], str]:
        def prompt(position: int) -> str:
            generator = public_generator(self.plan.seed, name, position)
            label = self.names[self.label_of(position)]
            return prompts.initial(self.mechanism.subject, label, generator, self.mechanism.keywords)

        return prompt

    def _variation(self, name: str, texts: list[str], parents: list[int]) -> Callable[[int], str]:
        def prompt(position: int) -> str:
            generator = public_generator(self.plan.seed, name, position)
            label = self.names[self.label_of(parents[position])]
            return self.mechanism.variation_prompt(texts[parents[position]], label, generator)

        return prompt

    def _grow(
        self,
        name: str,
        prompt: Callable[[int], str],
        temperature: float,
        *,
        copied: Sequence[str | None],
        fallback: Sequence[str],
    ) -> list[str]:
        """Return a stored population: the copied texts, and generated ones where none is copied."""

        def make(start: int, stop: int) -> list[str]:
            missing = [position for position in range(start, stop) if copied[position] is None]
            asked, seed = [prompt(position) for position in missing], public_seed(self.plan.seed, name, start)
            made = iter(self.mechanism.replies(self.public.generator, asked, temperature, seed))
            # an empty reply is replaced by its parent, so that a population never shrinks
            texts = zip(copied[start:stop], fallback[start:stop], strict=True)
            return [next(made) or parent if text is None else text for text, parent in texts]

        return self.run.store.grow(name, len(copied), _BLOCK, make)

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embed public texts."""
        embeddings = self._shaped(self.public.embedder.embed(texts), len(texts))
        if not np.isfinite(embeddings).all():
            raise ConfigError("the embedder returned a vector of a synthetic text that is not finite")
        return embeddings

    @staticmethod
    def _shaped(embeddings: Any, number: int) -> np.ndarray:
        rows = np.asarray(embeddings, dtype=np.float32)
        if rows.ndim != 2 or len(rows) != number:
            raise ConfigError("the embedder must return one vector for each text, shape (n, d)")
        return rows

    def _embedded_private(self) -> list[np.ndarray]:
        """Embed the private texts once, label by label. Sensitive.

        A vector that is not finite casts no vote: an error would tell that such a record is there.
        """
        if self._private_embeddings is None:
            width = self._embed(["width"]).shape[1]
            self._private_embeddings = []
            for label in self.plan.labels:
                texts = self.private.of_label(label)
                rows = np.zeros((0, width), dtype=np.float32)
                if len(texts):
                    rows = self._shaped(self.public.embedder.embed(texts), len(texts))
                self._private_embeddings.append(rows[np.isfinite(rows).all(axis=1)])
        return self._private_embeddings
