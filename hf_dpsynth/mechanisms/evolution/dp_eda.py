"""`dp-eda`: evolution of embeddings. Private records vote, the most voted are parents, a Gaussian makes offspring.

Each round releases one choice of parents for all labels through the ledger; decoding, the filter and the offspring are
post-processing. Source: Gao et al., "Generate Synthetic Text Approximating the Private Distribution with Differential
Privacy", Algorithms 1 to 3. Where we leave it: noise on all votes instead of a limited domain, unless it is asked for;
that one accounted in zCDP with a threshold that holds; texts are embedded again after decoding, so that the votes are
about what can be released; and a search of each label alone.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from dp_accounting import ComposedDpEvent, DpEvent, SelfComposedDpEvent

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.base import PublicInputs, Row, check_choice, check_number, check_whole
from hf_dpsynth.mechanisms.evolution import eda_run, prompts
from hf_dpsynth.mechanisms.rounds import LABEL_SHARE
from hf_dpsynth.models.catalog import model_id
from hf_dpsynth.plans import Cost, Facts, Plan
from hf_dpsynth.privacy.accounting import calibrate
from hf_dpsynth.privacy.limited_domain import LimitedDomainDpEvent, limited_domain_event, paper_noise, threshold
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.privacy.selection import count_event
from hf_dpsynth.run import Run
from hf_dpsynth.store import Store

GAUSSIAN, LIMITED = "gaussian-top-k", "limited-domain"


def _calibrated(mechanism: "DPEDA", epsilon: float, delta: float, facts: Facts) -> float | None:
    """Return the noise of a selection; None where it is out of the range that is drawn."""
    account = mechanism.account or "pld"
    try:
        return calibrate(
            lambda noise: mechanism.event(noise, facts), epsilon, delta, adjacency=facts.adjacency, account=account
        )
    except ConfigError:
        return None


def _public_name(inverter: str | None) -> str | None:
    return None if inverter is None else model_id(inverter)


@dataclass(frozen=True, kw_only=True)
class DPEDA:
    """Evolution of embeddings by an estimated distribution.

    The first population are public texts (`public=`), at most `num_initial`, or texts that the generator is asked for.

    Args:
        iterations (`int`, defaults to `7`): rounds of voting; each spends an equal part of the budget.
        parents (`int`, defaults to `30`): how many texts of each label are selected in a round, at most.
        offspring (`int`, defaults to `3000`): texts of the next population, alike for each label.
        domain (`int`, defaults to `300`): with `"limited-domain"`, how many of the most voted of a label can be
            selected.
        selection (`str`, defaults to `"gaussian-top-k"`): `"gaussian-top-k"` adds noise to all votes and takes the
            best; `"limited-domain"` is that of the paper: it may select fewer, and at the same guarantee its noise is
            larger.
        smoothing (`float`, defaults to `0.1`): how far the offspring's law moves from that of all parents to the best.
        components (`int`, defaults to `1`): Gaussians that stand for the parents of a label.
        perplexity_limit (`float`, *optional*, defaults to `50.0`): parents of at least this perplexity are left out,
            where the generator has `.perplexity`; None leaves the filter out.
        num_initial (`int`, defaults to `1000`): texts of the first population, alike for each label.
        inverter (`str`, *optional*): the folder of a trained inverter of the embedder; without one the generator
            paraphrases the first 200 words of the nearest text of the first population.
        samples (`int`, defaults to `8`): texts that a trained inverter samples for an embedding; the closest is kept.
        max_new_tokens (`int`, defaults to `64`): the longest of the first texts, in tokens of the generator.
        temperature (`float`, defaults to `1.2`): of the first texts.
        subject (`str`, defaults to `"text"`): what to write, e.g. `"movie review"`. Public.
        keywords (`tuple[str, ...]`): words to write about at random. Public.
    Examples:
        >>> DPEDA(parents=10).selection
        'gaussian-top-k'
    """

    name: ClassVar[str] = "dp-eda"
    kind: ClassVar[str] = "synthesize"
    takes: ClassVar[tuple[str, ...]] = ("public",)

    iterations: int = 7
    parents: int = 30
    offspring: int = 3000
    domain: int = 300
    selection: str = GAUSSIAN
    smoothing: float = 0.1
    components: int = 1
    perplexity_limit: float | None = 50.0
    num_initial: int = 1000
    inverter: str | None = field(default=None, metadata={"public": _public_name})
    samples: int = 8
    max_new_tokens: int = 64
    temperature: float = 1.2
    subject: str = "text"
    keywords: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "keywords", prompts.checked(self.name, self.subject, self.keywords))
        if not (self.inverter is None or isinstance(self.inverter, str)):
            raise ConfigError(
                f"dp-eda: inverter is of type {type(self.inverter).__name__}; it must be a folder's path"
            )
        for name in (
            "iterations",
            "parents",
            "offspring",
            "domain",
            "components",
            "num_initial",
            "samples",
            "max_new_tokens",
        ):
            check_whole(self.name, name, getattr(self, name), 1)
        for name, low, high in (("smoothing", 0.0, 1.0), ("perplexity_limit", 1.0, 1e9), ("temperature", 0.0, 100.0)):
            if name != "perplexity_limit" or self.perplexity_limit is not None:
                check_number(self.name, name, getattr(self, name), low, high)
        check_choice(self.name, "selection", self.selection, (GAUSSIAN, LIMITED))
        if self.selection == LIMITED and self.parents > self.domain:
            raise ConfigError(f"dp-eda: parents is {self.parents}; of a domain of {self.domain} no more can be picked")

    @property
    def further_ids(self) -> dict[str, str]:
        """The public name of the inverter, where there is one."""
        return {} if self.inverter is None else {"inverter": model_id(self.inverter)}

    @property
    def account(self) -> str | None:
        """How the events are accounted, where they leave no choice."""
        return "zcdp" if self.selection == LIMITED else None

    def round_event(self, noise_multiplier: float, adjacency: str, delta: float | None) -> DpEvent:
        """Return the event of one round, of all labels; half of delta is what the thresholds of all rounds may fail.

        The multiplier is the standard deviation of the noise of a count; of Gumbel noise for a replacement half of it.
        """
        if self.selection == GAUSSIAN:
            return count_event(noise_multiplier, adjacency)
        share = None if delta is None else float(f"{delta / (2 * self.iterations):.6g}")
        return limited_domain_event(noise_multiplier, self.parents, share, adjacency)

    def label_noise(self, noise_multiplier: float, adjacency: str, delta: float | None) -> float:
        """Return the noise of the label histogram, which gets 5 % of rho, and so of mu squared."""
        rho = getattr(self.round_event(noise_multiplier, adjacency, delta), "rho", math.inf) * self.iterations
        moved = 2 if adjacency == "replace-one" else 1
        return math.sqrt(moved * (1 - LABEL_SHARE) / (2 * LABEL_SHARE * rho))

    def event(self, noise_multiplier: float, facts: Facts) -> DpEvent:
        """Return T rounds of votes and, where proportions are bought, one histogram of labels."""
        one = self.round_event(noise_multiplier, facts.adjacency, facts.delta)
        rounds = SelfComposedDpEvent(one, self.iterations)
        if not facts.buys_proportions:
            return rounds
        noise = self.label_noise(noise_multiplier, facts.adjacency, facts.delta)
        return ComposedDpEvent([rounds, count_event(noise, facts.adjacency)])

    def per_label(self, total: int, labels: int) -> int:
        """Return how many texts each label has in a population of so many."""
        return max(2, math.ceil(total / labels))

    def cost(self, facts: Facts) -> Cost:
        """Return an upper bound on texts that a language model writes or scores, tokens, and texts to embed."""
        labels, rows = len(facts.labels), facts.num_rows or 0
        first = labels * self.per_label(self.num_initial, labels)
        decoded = (self.iterations - 1) * labels * self.per_label(self.offspring, labels) + rows
        tries, trained = (self.samples, 1) if self.inverter is not None else (1, 0)
        chosen = labels * self.parents * (self.iterations + 1)
        scored = 0 if self.perplexity_limit is None else chosen + rows + eda_run.SCORED
        calls = first + decoded * tries + scored
        embeddings = 2 * first + decoded * (1 + trained * tries) + chosen + (facts.num_records or 0)
        return Cost(lm_calls=calls, tokens=calls * self.max_new_tokens, embeddings=embeddings)

    def warnings(self, noise_multiplier: float, epsilon: float, delta: float | None, facts: Facts) -> tuple[str, ...]:
        """Compare the noise with that of the other selection and of the paper, and say where votes would drown."""
        found = []
        if self.perplexity_limit is not None:
            found.append(
                f"perplexity_limit={self.perplexity_limit:g} works with a generator that has .perplexity, as local "
                "models have; with any other the filter is off."
            )
        if noise_multiplier == 0 or delta is None:
            return tuple(found)
        return (*found, self._noises(noise_multiplier, epsilon, delta, facts), *self._drowned(noise_multiplier, facts))

    def _noises(self, noise_multiplier: float, epsilon: float, delta: float, facts: Facts) -> str:
        """Print the noise of both selections, and that of the paper's accounting."""
        unit = 2 if facts.adjacency == "replace-one" else 1
        words = {}
        for selection in (GAUSSIAN, LIMITED):
            one = replace(self, selection=selection, domain=max(self.domain, self.parents))
            noise = noise_multiplier if selection == self.selection else _calibrated(one, epsilon, delta, facts)
            gumbel = unit if selection == LIMITED else 1
            words[selection] = "none that can be drawn" if noise is None else f"{noise * gumbel:.3g}"
        paper = paper_noise(epsilon, delta, self.parents, self.iterations)
        return (
            f"at this guarantee the standard deviation of a vote's noise is {words[GAUSSIAN]} with {GAUSSIAN}, and "
            f"{words[LIMITED]} with {LIMITED} accounted in zCDP; the paper's accounting gives {paper * unit:.3g}."
        )

    def _drowned(self, noise_multiplier: float, facts: Facts) -> tuple[str, ...]:
        """Say when a candidate's expected votes are below the noise, or below the threshold of the limited domain."""
        if facts.num_records is None:
            return ()
        expected = facts.num_records / self.offspring
        one = self.round_event(noise_multiplier, facts.adjacency, facts.delta)
        limited = isinstance(one, LimitedDomainDpEvent)
        needed = threshold(one, len(facts.labels)) if limited else noise_multiplier
        if expected >= needed:
            return ()
        what = (
            f"the threshold lies {needed:.3g} votes above the candidates that cannot be picked: few or none may be"
            if limited
            else f"the noise has a standard deviation of {needed:.3g}: the votes drown"
        )
        return (
            f"a candidate expects {expected:.3g} votes and {what}. About {math.ceil(self.offspring * needed)} "
            "records, or a larger epsilon, or fewer offspring or iterations would do.",
        )

    def prepare(self, public: PublicInputs, plan: Plan, store: Store) -> None:
        """Check the public inputs of a new run, and say what they leave out.

        Raises:
            ConfigError: a label has no public text, or the inverter is of another embedder.
        """
        eda_run.check_public(self, public, plan)

    def run(self, private: PrivateRecords, public: PublicInputs, plan: Plan, run: Run) -> Iterator[Row]:
        """Search and yield the rows: the text column and the conditioning columns."""
        return eda_run.Search(self, private, public, plan, run).rows()

    def sampler(self, public: PublicInputs, plan: Plan, store: Store) -> Any:
        """Return what makes further rows: offspring of the last selected texts. Post-processing, no charge."""
        return partial(eda_run.more, self, public, plan, eda_run.selected(plan, store))
