"""`aug-pe`: augmented private evolution. Texts that private records vote for survive and are varied.

Each round releases one noisy vote vector through the ledger; prompting, selection and variation are post-processing.
Source: Xie et al. 2024, arXiv:2403.01749, Algorithm 1. Where we leave the paper: one vote vector with one noise for
all labels, label proportions declared or bought from the budget instead of read, candidates that are almost equal
merged before the vote, and clean votes that are never stored. At a user unit the votes of all records of a user, over
all labels, are one vector of norm 1 (`privacy/user_votes.py`); the paper knows no users.

In several processes each one embeds a stretch of the private texts of each label and counts their votes. The counts
are added in the first process, which draws the noise: whole numbers, and a record's vote does not depend on who counts
it, so the sums are exactly the votes of one process. Votes of users are counted by the first process alone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent, SelfComposedDpEvent

from hf_dpsynth.mechanisms.base import PublicInputs, Row, label_shares
from hf_dpsynth.mechanisms.evolution.embeddings import embedded, embedded_private
from hf_dpsynth.mechanisms.evolution.evolving import Evolving
from hf_dpsynth.mechanisms.evolution.population import Evolution
from hf_dpsynth.mechanisms.rounds import LABEL_SHARE
from hf_dpsynth.plans import Facts, Plan
from hf_dpsynth.privacy.accounting import gaussian_epsilon
from hf_dpsynth.privacy.records import PrivateRecords, PrivateTexts
from hf_dpsynth.privacy.selection import count_event, noisy_counts, vote_counts
from hf_dpsynth.privacy.user_votes import noisy_user_votes, user_count_event
from hf_dpsynth.run import Run


@dataclass(frozen=True, kw_only=True)
class AugPE(Evolving):
    """Augmented private evolution; its fields are those of `Evolving`. Each round spends an equal part of the budget.

    Examples:
        >>> AugPE(iterations=3).variations
        7
    """

    name: ClassVar[str] = "aug-pe"
    units: ClassVar[tuple[str, ...]] = ("record", "user")
    user_account: ClassVar[str] = "zcdp"
    of_a_user: ClassVar[str] = "the votes of all records of a user, over all labels, are one vector of norm at most 1"
    distributed: ClassVar[bool] = True

    def event(self, noise_multiplier: float, facts: Facts) -> DpEvent:
        """Return T rounds of votes and, where proportions are bought, one histogram of labels.

        The histogram gets 5 % of mu squared: sigma_labels = sigma_votes sqrt(0.95 / (0.05 T)).
        """
        of_counts = user_count_event if facts.unit == "user" else count_event
        votes = SelfComposedDpEvent(of_counts(noise_multiplier, facts.adjacency), self.iterations)
        if not facts.buys_proportions:
            return votes
        labels = of_counts(self.label_noise(noise_multiplier), facts.adjacency)
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
            f"{noise_multiplier:.3g}: the votes drown. About {needed} {facts.unit}s, or epsilon "
            f"{gaussian_epsilon(mu, delta):.3g}, or fewer num_rows or iterations would do.",
        )

    def run(self, private: PrivateRecords, public: PublicInputs, plan: Plan, run: Run) -> Iterator[Row]:
        """Evolve a population and yield its rows: the text column and the conditioning columns."""
        evolution = _Votes(self, private, public, plan, run)
        sigma, scaled = self.label_noise(evolution.sigma), plan.unit_column is not None
        return evolution.rows(label_shares(private, plan, run, sigma, scaled=scaled))


class _Votes(Evolution):
    """One run of `AugPE`; holds the private embeddings, in memory only."""

    _private_embeddings: list[np.ndarray] | None = None
    _users: tuple[list[np.ndarray], list[np.ndarray]] | None = None
    _embedded_by_all = False

    def tasks(self) -> dict[str, Callable[..., Any]]:
        """Return what each process does with its share of the private records."""
        return {"embed private": self._embed_private, "count": self._count}

    def vote(self, number: int, name: str, texts: list[str]) -> np.ndarray | None:
        """Release noisy votes of the private records, or of the users behind them."""
        key, users = f"votes-{number:03d}", self.plan.unit_column is not None
        candidates, about = self.candidates(number, name, texts)
        groups: list[np.ndarray] = []
        kept: list[np.ndarray] = []
        if self.run.ledger.state(key) is None:  # embed before the charge, so that a failure costs nothing
            groups = np.split(candidates(), self.bounds[1:-1])
            if users:
                self._users = self._users or self._of_users()
            elif not self._embedded_by_all:
                self.crew.ask("embed private", groups[0].shape[1])
                self._embedded_by_all = True
            kept = self.kept(groups, texts)

        def draw() -> list[list[list[Any]]]:
            rivals = [group[rows] for group, rows in zip(groups, kept, strict=True)]
            if users:
                noisy: Sequence[np.ndarray] = noisy_user_votes(*(self._users or ([], [])), rivals, self.sigma)
            else:
                counts = [sum(parts) for parts in zip(*self.crew.ask("count", rivals), strict=True)]
                noisy = noisy_counts(counts, self.sigma)
            return [[rows.tolist(), votes.tolist()] for rows, votes in zip(kept, noisy, strict=True)]

        event = (user_count_event if users else count_event)(self.sigma, self.plan.adjacency)
        released = self.run.ledger.release(key, event, draw, about=about)
        return None if released is None else self.scores(released)

    def _embed_private(self, width: int) -> None:
        """Embed this process's stretch of the private texts of each label, once. Sensitive; it stays here."""
        texts = (self.private.of_label(label) for label in self.plan.labels)
        shares = (PrivateTexts(own[self.crew.share(len(own))]) for own in texts)
        self._private_embeddings = [embedded_private(self.public.embedder, own, width) for own in shares]

    def _count(self, rivals: list[np.ndarray]) -> list[np.ndarray]:
        """Return the votes of this process's records by label, without noise. Sensitive."""
        return vote_counts(self._private_embeddings or [], rivals)

    def _of_users(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Embed the texts of users once, and say whose each is, both label by label. Sensitive.

        A vector that is not finite adds nothing: an error would tell that such a record is there.
        """
        width = self.embed(["width"]).shape[1]
        held: list[PrivateTexts] = [PrivateTexts() for _ in self.plan.labels]
        whose: list[list[int]] = [[] for _ in self.plan.labels]
        for owner, records in enumerate(self.private.by_unit(self.plan.labels)):
            for label, text in records:
                held[label].append(text)
                whose[label].append(owner)
        none = np.zeros((0, width), dtype=np.float32)
        rows = [embedded(self.public.embedder, texts) if texts else none for texts in held]
        finite = [np.isfinite(own).all(axis=1) for own in rows]
        owners = [np.asarray(own, dtype=np.int64)[kept] for own, kept in zip(whose, finite, strict=True)]
        return [own[kept] for own, kept in zip(rows, finite, strict=True)], owners
