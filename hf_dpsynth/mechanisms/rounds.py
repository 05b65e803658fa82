"""Rows of labels: how many of each, what a bought histogram costs, their order, and rounds of labels in parallel.

No record has two labels, so under add-remove and zero-out a round that reads all of them costs what one label does.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent, NonPrivateDpEvent

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.base import Row, label_shares, largest_remainder
from hf_dpsynth.plans import Facts, Plan
from hf_dpsynth.privacy.accounting import target_mu
from hf_dpsynth.privacy.keys import public_generator
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.privacy.selection import count_event
from hf_dpsynth.run import Run

LABEL_SHARE = 0.05


def with_labels(texts: DpEvent, noise_multiplier: float, facts: Facts) -> DpEvent:
    """Return the event of texts and, where proportions are bought, one histogram of labels with 5 % of mu squared."""
    if not facts.buys_proportions:
        return texts
    sigma = label_noise(noise_multiplier, facts.mu)
    return ComposedDpEvent([texts, NonPrivateDpEvent() if sigma == 0 else count_event(sigma, facts.adjacency)])


def label_noise(noise_multiplier: float, mu: float | None) -> float:
    """Return the noise of a bought label histogram: 5 % of the target's mu squared; 0 without privacy."""
    return 0.0 if noise_multiplier == 0 or mu is None else 1 / (math.sqrt(LABEL_SHARE) * mu)


def planned_noise(plan: Plan) -> float:
    """Return the noise of the label histogram that a plan holds."""
    target = float(getattr(plan.guarantee, "epsilon", math.inf))
    return label_noise(plan.noise_multiplier or 0.0, target_mu(target, plan.delta))


def sizes_and_shares(
    private: PrivateRecords, plan: Plan, run: Run, most: int | None = None
) -> tuple[list[int], list[float]]:
    """Return the rows of each label, and its share: declared, or bought from the budget.

    Args:
        private (`PrivateRecords`): the records. Sensitive.
        plan (`Plan`): holds what is declared.
        run (`Run`): whose ledger a bought histogram is released through.
        most (`int`, *optional*): the most rows of a label; what is above goes to labels with room.
    """
    weights = np.clip(np.asarray(label_shares(private, plan, run, planned_noise(plan)), dtype=np.float64), 0, None)
    shares = weights / weights.sum() if weights.sum() > 0 else np.full(len(weights), 1 / len(weights))
    sizes = largest_remainder(plan.num_rows or 0, shares.tolist())
    if most is not None:
        over = sum(max(0, size - most) for size in sizes)
        sizes = [min(size, most) for size in sizes]
        for _ in range(over):
            sizes[int(np.argmin(sizes))] += 1
    return sizes, shares.tolist()


def most_of_a_label(facts: Facts) -> int | None:
    """Return the most rows that a label can have: of declared shares, or all where shares are bought."""
    if facts.num_rows is None or facts.buys_proportions:
        return facts.num_rows
    return max(largest_remainder(facts.num_rows, facts.proportions or (1.0,)))


def rounds_of(name: str, given: int | None, facts: Facts) -> int:
    """Return how often the largest label is drawn for.

    Args:
        name (`str`): of the field.
        given (`int`, *optional*): what the user chose.
        facts (`Facts`): what is declared.
    Raises:
        ConfigError: nothing was chosen and nothing follows, or the rows do not fit.
    """
    needed = most_of_a_label(facts)
    if given is None:
        if needed is None:
            raise ConfigError(f"num_rows= must be given: the noise depends on it, unless {name} is.")
        return needed
    if facts.num_rows is not None and given * len(facts.labels) < facts.num_rows:
        raise ConfigError(
            f"{name} is {given}: {len(facts.labels)} labels with as many make fewer rows than num_rows="
            f"{facts.num_rows}. Raise {name} or lower num_rows."
        )
    return given


def rows_of(plan: Plan, made: Sequence[Sequence[str]]) -> Iterator[Row]:
    """Yield the rows of the texts of each label in a public random order."""
    pairs = [(label, text) for label, texts in zip(plan.labels, made, strict=True) for text in texts]
    for place in public_generator(plan.seed, "row order").permutation(len(pairs)).tolist():
        label, text = pairs[place]
        yield {plan.text_column: text, **dict(zip(plan.label_columns, label, strict=True))}
