"""`sentdp-select`: public texts that lie deep among the private ones, picked by the exponential mechanism.

A public text's score is its Tukey depth among the private embeddings of its label along public random directions, not
divided by anything, so that one record moves it by 0 or 1. What comes out are public texts as they are. Source: Meehan
et al. 2022, arXiv:2205.04605, whose candidates stand for the sentences of one document; ours are rows of a data set,
as in the baseline of "Generate Synthetic Text Approximating the Private Distribution with Differential Privacy".
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from dp_accounting import DpEvent, SelfComposedDpEvent

from hf_dpsynth.compute.depth import tukey_depths
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.base import PublicInputs, Row, check_flag, check_whole, texts_by_label
from hf_dpsynth.mechanisms.evolution.embeddings import embedded_private, embedded_public
from hf_dpsynth.mechanisms.rounds import rounds_of, rows_of, sizes_and_shares, with_labels
from hf_dpsynth.plans import Cost, Facts, Plan
from hf_dpsynth.privacy.keys import public_generator
from hf_dpsynth.privacy.picks import pick_event, picks
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.run import Run
from hf_dpsynth.store import Store

_VERBATIM = "the rows are texts of public=, word for word."


@dataclass(frozen=True, kw_only=True)
class SentDPSelect:
    """Selection of public texts by their depth among private ones.

    All picks of a label cost picks times eps0^2 / 8 in zCDP, at a noise multiplier of 1 / eps0; labels have no record
    in common, so the largest one is what is paid for.

    Args:
        picks (`int`, *optional*): texts picked of each label at most; what `num_rows` and the declared shares need
            when missing. Where shares are bought, any label may need all rows. With fewer picks than rows a label's
            texts are repeated.
        projections (`int`, defaults to `20`): public random directions along which depth is measured. More of them
            tell deep from shallow texts better, and make all depths smaller, so that the noise weighs more.
        again (`bool`, defaults to `False`): whether a text can be picked more than once.
    Examples:
        >>> SentDPSelect(projections=50).again
        False
    """

    name: ClassVar[str] = "sentdp-select"
    kind: ClassVar[str] = "synthesize"
    account: ClassVar[str] = "zcdp"
    takes: ClassVar[tuple[str, ...]] = ("public",)
    needs_public: ClassVar[bool] = True
    models_used: ClassVar[tuple[str, ...]] = ("embedder",)

    picks: int | None = None
    projections: int = 20
    again: bool = False

    def __post_init__(self) -> None:
        for name in ("projections", *(() if self.picks is None else ("picks",))):
            check_whole(self.name, name, getattr(self, name), 1)
        check_flag(self.name, "again", self.again)

    def fitted(self, facts: Facts) -> "SentDPSelect":
        """Return the mechanism with the number of picks that follows from what is declared.

        Raises:
            ConfigError: nothing was declared that it follows from.
        """
        return self if self.picks is not None else replace(self, picks=rounds_of("picks", None, facts))

    def event(self, noise_multiplier: float, facts: Facts) -> DpEvent:
        """Return the picks and, where proportions are bought, one histogram of labels."""
        picked = SelfComposedDpEvent(pick_event(noise_multiplier, facts.adjacency), self.picks or 1)
        return with_labels(picked, noise_multiplier, facts)

    def cost(self, facts: Facts) -> Cost:
        """Return the private texts to embed; the public ones come on top."""
        return Cost(embeddings=facts.num_records or 0)

    def warnings(self, noise_multiplier: float, epsilon: float, delta: float | None, facts: Facts) -> tuple[str, ...]:
        """Say what the rows are, and when depths drown: no text is deeper than half of the records of its label."""
        if facts.num_records is None or noise_multiplier == 0:
            return (_VERBATIM,)
        deepest = facts.num_records / (2 * len(facts.labels))
        if deepest >= 10 * noise_multiplier:
            return (_VERBATIM,)
        return (
            _VERBATIM,
            f"depths reach at most about {deepest:.3g} and the noise of a pick has scale {noise_multiplier:.3g}: the "
            f"picks are almost random. About {int(20 * noise_multiplier * len(facts.labels)) + 1} records, fewer "
            "picks or a larger epsilon would do.",
        )

    def prepare(self, public: PublicInputs, plan: Plan, store: Store) -> None:
        """Refuse a run without public texts of each label, before anything is reserved.

        Raises:
            ConfigError: a label has none.
        """
        for label, texts in zip(plan.labels, texts_by_label(public.dataset, plan.labels), strict=True):
            if not texts:
                raise ConfigError(f"sentdp-select picks public texts; public= has none of the label {label!r}.")

    def run(self, private: PrivateRecords, public: PublicInputs, plan: Plan, run: Run) -> Iterator[Row]:
        """Pick and yield the rows."""
        held = SentDPSelect(**plan.params)
        candidates = texts_by_label(public.dataset, plan.labels)
        sizes, _ = sizes_and_shares(private, plan, run)
        counts = [min(size, held.picks or 1) for size in sizes]
        depths: list[np.ndarray] = []
        if run.ledger.state("picks") is None:  # embed before the charge, so that a failure costs nothing
            depths = held.depths(private, public, plan, candidates)

        def draw() -> list[list[int]]:
            return [
                picks(
                    run.keys.generator("picks", label), scores, plan.noise_multiplier or 0.0, count, again=held.again
                ).tolist()
                for label, (scores, count) in enumerate(zip(depths, counts, strict=True))
            ]

        digest = hashlib.sha256(json.dumps(candidates).encode()).hexdigest()
        event = SelfComposedDpEvent(pick_event(plan.noise_multiplier or 0.0, plan.adjacency), held.picks or 1)
        picked = run.ledger.release("picks", event, draw, about={"candidates": digest})
        if picked is None:  # lost: public texts in a public random order
            orders = (public_generator(plan.seed, "lost picks", label) for label in range(len(candidates)))
            picked = [order.permutation(len(texts)).tolist() for order, texts in zip(orders, candidates, strict=True)]
        yield from rows_of(
            plan,
            [
                [texts[places[row % len(places)]] for row in range(size)]
                for texts, places, size in zip(candidates, picked, sizes, strict=True)
            ],
        )

    def depths(
        self, private: PrivateRecords, public: PublicInputs, plan: Plan, candidates: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        """Return the depths of the public texts of each label. Sensitive.

        Raises:
            ConfigError: the embedder does not return one vector for each text, or one of a public text is not finite.
        """
        found = []
        for label, texts in zip(plan.labels, candidates, strict=True):
            places = embedded_public(public.embedder, texts, "public")
            points = embedded_private(public.embedder, private.of_label(label), places.shape[1])
            lines = public_generator(plan.seed, "projections").standard_normal((self.projections, places.shape[1]))
            found.append(tukey_depths(points, places, lines))
        return found
