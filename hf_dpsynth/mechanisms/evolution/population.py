"""One run of evolution: a population that is asked for, voted on, selected and varied. Only a vote reads private rows.

Populations are written before a vote and read again at a resume. Who votes is up to the mechanism. Where several
processes run, the first one evolves and the others take shares: a block of texts to make, a stretch of texts to embed.
A block has its own seed, so its texts are those that one process makes.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.logging import progress_bar
from hf_dpsynth.mechanisms.base import PublicInputs, Row, largest_remainder
from hf_dpsynth.mechanisms.evolution import prompts
from hf_dpsynth.mechanisms.evolution.crew import Crew
from hf_dpsynth.mechanisms.evolution.embeddings import different, embedded_public
from hf_dpsynth.mechanisms.evolution.evolving import BLOCK, Evolving
from hf_dpsynth.mechanisms.evolution.ranking import select
from hf_dpsynth.mechanisms.rounds import rows_of
from hf_dpsynth.models.endpoint import Endpoint
from hf_dpsynth.plans import Plan
from hf_dpsynth.privacy.keys import public_generator, public_seed
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.run import Run


class Evolution:
    """One run of a mechanism that evolves texts.

    Args:
        mechanism (`Evolving`): the hyper-parameters.
        private (`PrivateRecords`): the records. Sensitive.
        public (`PublicInputs`): the models.
        plan (`Plan`): the plan.
        run (`Run`): ledger and store.
    Raises:
        ConfigError: the plan says no number of rows.
    """

    def __init__(
        self, mechanism: Evolving, private: PrivateRecords, public: PublicInputs, plan: Plan, run: Run
    ) -> None:
        if plan.num_rows is None or plan.noise_multiplier is None:
            raise ConfigError(f"{mechanism.name} needs num_rows=: the number of rows to make")
        self.mechanism, self.private, self.public, self.plan, self.run = mechanism, private, public, plan, run
        self.num_rows, self.sigma = plan.num_rows, plan.noise_multiplier
        self.bounds = [0]
        self.names = [prompts.describe(plan.label_columns, label) for label in plan.labels]
        self.crew = Crew(run.devices, {"reply": self._own_replies, "embed": self._own_vectors, **self.tasks()})
        # an endpoint is asked by one process: its limits, its price and its cache are those of one caller
        self._writers = 1 if isinstance(public.generator, Endpoint) else run.devices.world_size

    def tasks(self) -> dict[str, Callable[..., Any]]:
        """Return what a process can be asked for besides texts and their embeddings, by name."""
        return {}

    def rows(self, shares: Sequence[float]) -> Iterator[Row]:
        """Evolve a population with declared or privatized shares of the labels, and yield its rows in random order.

        The first process yields them; the others work for it.
        """
        self.bounds = [0, *accumulate(largest_remainder(self.num_rows, shares))]
        texts = self.crew.all_do(self.texts)
        if self.run.devices.is_main:
            yield from rows_of(self.plan, [texts[start:stop] for start, stop in pairwise(self.bounds)])

    def vote(self, number: int, name: str, texts: list[str]) -> np.ndarray | None:
        """Return votes for a population, shape (rows,), -inf for texts that stand for an earlier one.

        Args:
            number (`int`): the round, from 1.
            name (`str`): the population, which is on disk.
            texts (`list[str]`): its texts. Public.
        Returns:
            `np.ndarray`: noisy votes; None when the round was lost.
        """
        raise NotImplementedError

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
        rounds = progress_bar(total=self.mechanism.iterations, desc=f"{self.mechanism.name} rounds", unit="round")
        for number in range(1, self.mechanism.iterations + 1):
            scores = self.vote(number, name, texts)
            if scores is not None:  # a lost charge is a lost round: the population stays
                name = f"population-{number:03d}"
                texts = self._next(name, number, texts, scores)
            rounds.update()
        rounds.close()
        return texts

    def kept(self, groups: list[np.ndarray], texts: list[str]) -> list[np.ndarray]:
        """Return, by label, the positions of the candidates that stand for no earlier text or embedding."""
        return [
            np.asarray(different(texts[start:stop], group), dtype=np.int64)
            for group, (start, stop) in zip(groups, pairwise(self.bounds), strict=True)
        ]

    def scores(self, released: Sequence[Sequence[Any]]) -> np.ndarray:
        """Return votes by label, as pairs of positions and values, as one score a text; -inf for the others."""
        scores = np.full(self.bounds[-1], -np.inf)
        for start, (rows, votes) in zip(self.bounds, released, strict=False):
            scores[start + np.asarray(rows, dtype=np.int64)] = votes
        return scores

    def candidates(self, number: int, name: str, texts: list[str]) -> tuple[Callable[[], np.ndarray], dict[str, Any]]:
        """Return what embeds the candidates, and the digests of the texts behind them."""
        about = {"population": self.run.store.digest(name)}
        degree = self.mechanism.lookahead
        if not degree:
            return lambda: self.embed(texts), about
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
        return lambda: self.embed(varied).reshape(len(texts), degree, -1).mean(axis=1), about

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
            blocks = []
            for first in range(start, stop, BLOCK):
                rows = range(first, min(stop, first + BLOCK))
                asked = [prompt(position) for position in rows if copied[position] is None]
                blocks.append((asked, public_seed(self.plan.seed, name, first)))
            made = (text for own in self.crew.ask("reply", blocks, temperature) for text in own)
            # an empty reply is replaced by its parent, so that a population never shrinks
            texts = zip(copied[start:stop], fallback[start:stop], strict=True)
            return [next(made) or parent if text is None else text for text, parent in texts]

        return self.run.store.grow(name, len(copied), BLOCK * self._writers, make)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embed public texts, a stretch of them in each process."""
        parts = self.crew.ask("embed", list(texts))
        return np.concatenate([part for part in parts if part is not None])

    def _own_replies(self, blocks: Sequence[tuple[list[str], int]], temperature: float) -> list[str]:
        """Return the replies to the block of prompts that is this process's, in the order of ranks."""
        rank = self.run.devices.rank
        if rank >= len(blocks):
            return []
        asked, seed = blocks[rank]
        return self.mechanism.replies(self.public.generator, asked, temperature, seed)

    def _own_vectors(self, texts: list[str]) -> np.ndarray | None:
        """Embed this process's stretch of public texts, if it has any."""
        own = texts[self.crew.share(len(texts))]
        return embedded_public(self.public.embedder, own) if own else None
