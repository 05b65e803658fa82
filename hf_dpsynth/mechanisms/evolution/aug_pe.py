"""`aug-pe`: augmented private evolution. Texts that private records vote for survive and are varied.

Each round releases one noisy vote vector through the ledger; prompting, selection and variation are post-processing.
Source: Xie et al. 2024, arXiv:2403.01749, Algorithm 1. Where we leave the paper: one vote vector with one noise for
all labels, label proportions declared or bought from the budget instead of read, candidates that are almost equal
merged before the vote, and clean votes that are never stored.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent, SelfComposedDpEvent

from hf_dpsynth.mechanisms.base import PublicInputs, Row, label_shares
from hf_dpsynth.mechanisms.evolution.embeddings import embedded_private
from hf_dpsynth.mechanisms.evolution.evolving import Evolving
from hf_dpsynth.mechanisms.evolution.population import Evolution
from hf_dpsynth.mechanisms.rounds import LABEL_SHARE
from hf_dpsynth.plans import Facts, Plan
from hf_dpsynth.privacy.accounting import gaussian_epsilon
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.privacy.selection import count_event, noisy_votes
from hf_dpsynth.run import Run


@dataclass(frozen=True, kw_only=True)
class AugPE(Evolving):
    """Augmented private evolution; its fields are those of `Evolving`. Each round spends an equal part of the budget.

    Examples:
        >>> AugPE(iterations=3).variations
        7
    """

    name: ClassVar[str] = "aug-pe"

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
        evolution = _Votes(self, private, public, plan, run)
        return evolution.rows(label_shares(private, plan, run, self.label_noise(evolution.sigma)))


class _Votes(Evolution):
    """One run of `AugPE`; holds the private embeddings, in memory only."""

    _private_embeddings: list[np.ndarray] | None = None

    def vote(self, number: int, name: str, texts: list[str]) -> np.ndarray | None:
        """Release noisy votes of the private records."""
        key = f"votes-{number:03d}"
        candidates, about = self.candidates(number, name, texts)
        groups: list[np.ndarray] = []
        private: list[np.ndarray] = []
        kept: list[np.ndarray] = []
        if self.run.ledger.state(key) is None:  # embed before the charge, so that a failure costs nothing
            groups, private = np.split(candidates(), self.bounds[1:-1]), self._embedded_private()
            kept = self.kept(groups, texts)

        def draw() -> list[list[list[int]]]:
            rivals = [group[rows] for group, rows in zip(groups, kept, strict=True)]
            noisy = noisy_votes(private, rivals, self.sigma)
            return [[rows.tolist(), votes.tolist()] for rows, votes in zip(kept, noisy, strict=True)]

        released = self.run.ledger.release(key, count_event(self.sigma, self.plan.adjacency), draw, about=about)
        return None if released is None else self.scores(released)

    def _embedded_private(self) -> list[np.ndarray]:
        """Embed the private texts once, label by label. Sensitive."""
        if self._private_embeddings is None:
            width = self.embed(["width"]).shape[1]
            texts = (self.private.of_label(label) for label in self.plan.labels)
            self._private_embeddings = [embedded_private(self.public.embedder, own, width) for own in texts]
        return self._private_embeddings
