"""One run of `dp-eda`: rounds of votes, parents, decoded offspring, and the rows that come out of the last parents.

Populations lie on disk before they are voted on, and what a round kept is written too, so that a resume repeats no
model's call. Only a vote reads private rows.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from hf_dpsynth.compute.unit_rows import unit_rows
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.logging import get_logger, progress_bar
from hf_dpsynth.mechanisms.base import PublicInputs, Row, label_shares, largest_remainder, texts_by_label
from hf_dpsynth.mechanisms.evolution import prompts
from hf_dpsynth.mechanisms.evolution.decoding import can_score, decoded, readable
from hf_dpsynth.mechanisms.evolution.embeddings import different, embedded_private, embedded_public
from hf_dpsynth.mechanisms.evolution.gaussian_search import Gaussians
from hf_dpsynth.mechanisms.rounds import rows_of
from hf_dpsynth.models.base import Inverter
from hf_dpsynth.models.inverter import load_inverter
from hf_dpsynth.plans import Label, Plan
from hf_dpsynth.privacy.keys import public_generator, public_seed
from hf_dpsynth.privacy.limited_domain import most_voted
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.privacy.selection import noisy_votes
from hf_dpsynth.run import Run
from hf_dpsynth.store import Store

if TYPE_CHECKING:
    from hf_dpsynth.mechanisms.evolution.dp_eda import DPEDA

_BLOCK = 256
SCORED = 64  # public texts on which the filter is tried
logger = get_logger(__name__)


def check_public(mechanism: "DPEDA", public: PublicInputs, plan: Plan) -> None:
    """Check what a new run starts from, and say what is missing.

    Raises:
        ConfigError: `public=` has no text of a declared label, or the inverter is of another embedder.
    """
    if mechanism.inverter is not None:
        load_inverter(mechanism.inverter, encoder=public.embedder, generator=public.generator, public_texts=())
    if mechanism.perplexity_limit is not None and not can_score(public.generator):
        logger.warning("the generator has no .perplexity: the perplexity filter of dp-eda is off.")
    wanted = mechanism.per_label(mechanism.num_initial, len(plan.labels))
    texts = texts_by_label(public.dataset, plan.labels if public.dataset else ())
    for label, own in zip(plan.labels, texts, strict=False):
        found, name = len(own), prompts.describe(plan.label_columns, label)
        if not found:
            raise ConfigError(
                f"public= has no text with {name}, so its search cannot start. Add some, or leave it out."
            )
        if found < wanted:
            of = f" with {name}" if name else ""
            logger.warning("public= has %d different texts%s; the first population has no more.", found, of)
    _check_limit(mechanism, public, [text for own in texts for text in own])


def _check_limit(mechanism: "DPEDA", public: PublicInputs, texts: list[str]) -> None:
    """Say how many public texts the perplexity filter would leave out, where most: it then searches almost nowhere."""
    order = public_generator(0, "scored").permutation(len(texts))[:SCORED].tolist()
    good = readable(public.generator, [texts[place] for place in order], mechanism.perplexity_limit)
    if 2 * sum(good) < len(good):
        logger.warning(
            "perplexity_limit=%g leaves out %d of %d public texts: with this generator and such texts a larger one, "
            "or None, keeps more parents.",
            mechanism.perplexity_limit,
            len(good) - sum(good),
            len(good),
        )


def public_texts(public: PublicInputs, label: Label) -> list[str]:
    """Return the different public texts of a label, in order."""
    return texts_by_label(public.dataset, [label])[0]


def selected(plan: Plan, store: Store) -> list[list[str]]:
    """Return the last selected texts by label, best first, as a run left them in its directory."""
    return [store.grow(f"selected-{number:02d}", 0, 1, lambda start, stop: []) for number in range(len(plan.labels))]


class Offspring:
    """What comes after parents: a law around their embeddings, and texts that are decoded from it. Post-processing.

    Args:
        mechanism (`DPEDA`): the hyper-parameters.
        public (`PublicInputs`): the models.
        decoder (`Inverter`): turns embeddings into texts.
        parents (`Sequence[str]`): texts, best first, at least one. Privatized.
    """

    def __init__(self, mechanism: "DPEDA", public: PublicInputs, decoder: Inverter, parents: Sequence[str]) -> None:
        self.mechanism, self.public, self.decoder, self.parents = mechanism, public, decoder, list(parents)
        self.law = Gaussians(embed(public, self.parents), mechanism.smoothing, mechanism.components)

    def texts(self, number: int, seed: int, *labels: str | int) -> list[str]:
        """Return so many offspring of a named public stream."""
        targets = self.law.draw(number, public_generator(seed, "offspring", *labels))
        return decoded(self.decoder, targets, self.parents, public_seed(seed, "decoded", *labels))

    def rows(self, number: int, seed: int, *labels: str | int) -> list[str]:
        """Return offspring to release; in place of one that cannot be read there is a parent."""
        made = self.texts(number, seed, *labels)
        good = readable(self.public.generator, made, self.mechanism.perplexity_limit)
        parents = (self.parents[row % len(self.parents)] for row in range(number))
        return [text if fine else parent for text, fine, parent in zip(made, good, parents, strict=True)]


class Search:
    """One run of `DPEDA`; holds the private embeddings, in memory only."""

    def __init__(
        self, mechanism: "DPEDA", private: PrivateRecords, public: PublicInputs, plan: Plan, run: Run
    ) -> None:
        if plan.num_rows is None or plan.noise_multiplier is None:
            raise ConfigError("dp-eda needs num_rows=: the number of rows to make")
        self.mechanism, self.private, self.public, self.plan, self.run = mechanism, private, public, plan, run
        self.sigma = plan.noise_multiplier
        noise = mechanism.label_noise(self.sigma, plan.adjacency, plan.delta)
        self.parts = largest_remainder(plan.num_rows, label_shares(private, plan, run, noise))
        self.names = [prompts.describe(plan.label_columns, label) for label in plan.labels]
        self.event = mechanism.round_event(self.sigma, plan.adjacency, plan.delta)
        self.decoder_of = cache(self._decoder)
        self._private: list[np.ndarray] | None = None
        self._first: list[list[str]] = []

    def rows(self) -> Iterator[Row]:
        """Search, then yield the rows of all labels in a public random order."""
        made = []
        for number, (found, part) in enumerate(zip(self._searched(), self.parts, strict=True)):
            texts = found[:part]
            if part > len(texts):
                texts = [*texts, *self._further(number, found, part - len(texts))]
            made.append(texts)
        yield from rows_of(self.plan, made)

    def _searched(self) -> list[list[str]]:
        """Return the last texts that each label selected, best first; of its first ones where it selected none."""
        self._first = [self._initial(number) for number in range(len(self.names))]
        files = [f"population-000-{number:02d}" for number in range(len(self.names))]
        population, good = self._first, [texts[: self.mechanism.parents] for texts in self._first]
        rounds = progress_bar(total=self.mechanism.iterations, desc="dp-eda rounds", unit="round")
        for step in range(1, self.mechanism.iterations + 1):
            released = self._vote(step, files, population)
            rounds.update()
            if released is None:  # a lost charge is a lost round: the population stays
                continue
            kept = [self._kept(step, number, population[number], ranked) for number, ranked in enumerate(released)]
            if not any(kept):
                break
            good = [texts or before for texts, before in zip(kept, good, strict=True)]
            if step < self.mechanism.iterations:
                # a label that selected nothing votes on the same population again
                files = [f"population-{step:03d}-{n:02d}" if texts else files[n] for n, texts in enumerate(kept)]
                population = [
                    self._grown(files[n], n, texts) if texts else population[n] for n, texts in enumerate(kept)
                ]
        rounds.close()
        for number, texts in enumerate(good):
            self._written(f"selected-{number:02d}", texts)
        return good

    def _vote(self, step: int, files: list[str], population: list[list[str]]) -> list[list[int]] | None:
        """Return the positions of the parents of each label, best first; None when the round was lost."""
        key, store = f"votes-{step:03d}", self.run.store
        about = {"populations": [store.digest(name) for name in files]}
        groups: list[np.ndarray] = []
        kept: list[list[int]] = []
        private: list[np.ndarray] = []
        if self.run.ledger.state(key) is None:  # embed before the charge, so that a failure costs nothing
            vectors = [embed(self.public, texts) for texts in population]
            kept = [different(texts, rows) for texts, rows in zip(population, vectors, strict=True)]
            groups = [rows[places] for rows, places in zip(vectors, kept, strict=True)]
            private = self._embedded_private(groups[0].shape[1])

        def draw() -> list[list[list[int]]]:
            if self.mechanism.account is None:
                noisy = noisy_votes(private, groups, self.sigma)
                return [[places, votes.tolist()] for places, votes in zip(kept, noisy, strict=True)]
            picked = most_voted(
                private,
                groups,
                self.event,
                picks=self.mechanism.parents,
                domain=self.mechanism.domain,
                key=self.run.keys.derive(key),
            )
            return [[[places[row] for row in rows]] for places, rows in zip(kept, picked, strict=True)]

        released = self.run.ledger.release(key, self.event, draw, about=about)
        return None if released is None else [self._ranked(step, number, one) for number, one in enumerate(released)]

    def _ranked(self, step: int, number: int, released: list[list[int]]) -> list[int]:
        """Order what was released, best first: post-processing. Ties of noisy votes are broken by a public stream."""
        if len(released) == 1:
            return released[0]
        places, votes = (np.asarray(one, dtype=np.int64) for one in released)
        ties = public_generator(self.plan.seed, "selection", step, number).random(len(votes))
        return [int(place) for place in places[np.lexsort((ties, -votes))[: self.mechanism.parents]]]

    def _kept(self, step: int, number: int, texts: list[str], ranked: list[int]) -> list[str]:
        """Return the selected texts that can be read, ranked anew; the best of them where none can."""

        def filtered() -> list[str]:
            chosen = [texts[place] for place in ranked]
            good = readable(self.public.generator, chosen, self.mechanism.perplexity_limit)
            worded = (text for text in chosen if text and not text.isspace())
            return [text for text, fine in zip(chosen, good, strict=True) if fine] or [next(worded, chosen[0])]

        if not ranked:
            return []
        name = f"kept-{step:03d}-{number:02d}"
        (line,) = self.run.store.grow(name, 1, 1, lambda start, stop: [json.dumps(filtered())])
        kept: list[str] = json.loads(line)
        return kept

    def _grown(self, name: str, number: int, parents: list[str]) -> list[str]:
        """Return the stored offspring of parents, as the next population of a label."""
        offspring = cache(lambda: Offspring(self.mechanism, self.public, self.decoder_of(number), parents))
        total = self.mechanism.per_label(self.mechanism.offspring, len(self.names))

        def make(start: int, stop: int) -> list[str]:
            return offspring().texts(stop - start, self.plan.seed, name, start)

        return self.run.store.grow(name, total, _BLOCK, make)

    def _further(self, number: int, parents: list[str], total: int) -> list[str]:
        """Return the stored further rows of a label: offspring of its last parents."""
        name = f"further-{number:02d}"
        offspring = cache(lambda: Offspring(self.mechanism, self.public, self.decoder_of(number), parents))

        def make(start: int, stop: int) -> list[str]:
            return offspring().rows(stop - start, self.plan.seed, name, start)

        return self.run.store.grow(name, total, _BLOCK, make)

    def _written(self, name: str, texts: list[str]) -> None:
        self.run.store.grow(name, len(texts), len(texts), lambda start, stop: texts[start:stop])

    def _initial(self, number: int) -> list[str]:
        """Return the first population of a label: public texts, or what the generator writes when it is asked."""
        name, label = f"population-000-{number:02d}", self.plan.labels[number]
        wanted = self.mechanism.per_label(self.mechanism.num_initial, len(self.names))
        if self.public.dataset:
            texts = public_texts(self.public, label)
            order = public_generator(self.plan.seed, name).permutation(len(texts))[:wanted].tolist()
            return self.run.store.grow(
                name, len(order), _BLOCK, lambda start, stop: [texts[place] for place in order[start:stop]]
            )

        def make(start: int, stop: int) -> list[str]:
            streams = [public_generator(self.plan.seed, name, place) for place in range(start, stop)]
            subject, words = self.mechanism.subject, self.mechanism.keywords
            asked = [prompts.initial(subject, self.names[number], stream, words) for stream in streams]
            return self._asked(asked, public_seed(self.plan.seed, name, start))

        return self.run.store.grow(name, wanted, _BLOCK, make)

    def _asked(self, asked: list[str], seed: int) -> list[str]:
        """Return one text a prompt; in place of a blank reply one of the others.

        Raises:
            ConfigError: the generator returned another number of texts, or blank ones alone.
        """
        most, temperature = self.mechanism.max_new_tokens, self.mechanism.temperature
        texts = prompts.replies(self.public.generator, asked, most, temperature, seed)
        worded = [text for text in texts if text]
        if not worded:
            raise ConfigError(
                f"the generator answered {len(asked)} prompts with blank texts. Pass public= to start from."
            )
        return [text or worded[row % len(worded)] for row, text in enumerate(texts)]

    def _decoder(self, number: int) -> Inverter:
        """Return what decodes embeddings of a label; a trained inverter serves all labels."""
        if self.mechanism.inverter is not None and number:
            return self.decoder_of(0)
        return decoder(self.mechanism, self.public, self._first[number])

    def _embedded_private(self, width: int) -> list[np.ndarray]:
        """Embed the private texts once, label by label. Sensitive.

        Among candidates of length 1 the nearest one is that of the largest cosine, whatever the length of the private
        vector.
        """
        if self._private is None:
            texts = (self.private.of_label(label) for label in self.plan.labels)
            self._private = [embedded_private(self.public.embedder, own, width) for own in texts]
        return self._private


def decoder(mechanism: "DPEDA", public: PublicInputs, texts: Sequence[str]) -> Inverter:
    """Return what turns embeddings into texts, with the public texts that it may fall back to."""
    return load_inverter(
        mechanism.inverter,
        encoder=public.embedder,
        generator=public.generator,
        public_texts=texts,
        samples=mechanism.samples,
    )


def more(
    mechanism: "DPEDA",
    public: PublicInputs,
    plan: Plan,
    parents: list[list[str]],
    released: Sequence[tuple[str, Label]],
    num_rows: int,
    seed: int,
) -> Iterator[Row]:
    """Yield further offspring of the last selected texts, in the shares that labels have among the released rows."""
    counts = [float(sum(own == label for _, own in released)) for label in plan.labels]
    for number, (label, part) in enumerate(zip(plan.labels, largest_remainder(num_rows, counts), strict=True)):
        if not part:
            continue
        texts = [*dict.fromkeys([*parents[number], *(text for text, own in released if own == label)])]
        offspring = Offspring(mechanism, public, decoder(mechanism, public, texts), parents[number])
        columns = dict(zip(plan.label_columns, label, strict=True))
        for start in range(0, part, _BLOCK):
            for text in offspring.rows(min(_BLOCK, part - start), seed, "more", number, start):
                yield {plan.text_column: text, **columns}


def embed(public: PublicInputs, texts: Sequence[str]) -> np.ndarray:
    """Embed public or privatized texts as unit rows.

    Raises:
        ConfigError: the embedder returned another number of rows, or one that is not finite.
    """
    return unit_rows(embedded_public(public.embedder, texts))
