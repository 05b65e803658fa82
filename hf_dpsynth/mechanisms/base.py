"""What a mechanism is: the protocols, and the public side of a run.

A mechanism is the frozen dataclass of its hyper-parameters. It names its events; the plan fixes the noise; `run` gets
the private side, the public side, the plan and a `Run`. Whatever it releases goes through `run.ledger`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from dp_accounting import DpEvent

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.guarantees import DECLARED, Guarantee
from hf_dpsynth.models.base import Embedder, TextGenerator
from hf_dpsynth.plans import Cost, Facts, Label, Plan
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.privacy.selection import count_event, noisy_label_counts
from hf_dpsynth.privacy.units import label_counts
from hf_dpsynth.privacy.user_votes import noisy_user_labels, user_count_event
from hf_dpsynth.run import Run

Row = dict[str, Any]
PUBLIC_ROWS = f"no row of public= is a private row{DECLARED}"


@dataclass(frozen=True, kw_only=True)
class PublicInputs:
    """The public side of a run. Models are arguments, not fields of a mechanism.

    Args:
        generator (`TextGenerator`): makes texts from prompts.
        embedder (`Embedder`): embeds private and synthetic texts.
        dataset (`Sequence[tuple[Label, str]]`): public records, each a declared label and a text; empty without
            `public=`.
    """

    generator: TextGenerator
    embedder: Embedder
    dataset: Sequence[tuple[Label, str]] = ()


def texts_by_label(rows: Sequence[tuple[Label, str]], labels: Sequence[Label]) -> list[list[str]]:
    """Return the different texts of public rows by declared label, in their order. Public."""
    texts: dict[Label, dict[str, None]] = {label: {} for label in labels}
    for label, text in rows:
        if label in texts:
            texts[label][text] = None
    return [list(own) for own in texts.values()]


class Synthesizer(Protocol):
    """A mechanism that makes a new data set.

    One that runs in several processes has an attribute `distributed = True` and asks `run.devices` who does what;
    `folders` names what its sampler reads of a run directory.
    """

    name: str
    kind: str

    def event(self, noise_multiplier: float, facts: Facts) -> DpEvent:
        """Return the full event tree at a noise multiplier; 0 means no noise."""
        ...

    def cost(self, facts: Facts) -> Cost:
        """Return an upper bound on the work."""
        ...

    def warnings(self, noise_multiplier: float, epsilon: float, delta: float | None, facts: Facts) -> tuple[str, ...]:
        """Return what a user should know before running, from declared facts alone."""
        ...

    def run(self, private: PrivateRecords, public: PublicInputs, plan: Plan, run: Run) -> Iterator[Row]:
        """Yield the synthetic rows."""
        ...

    # A mechanism whose events have no privacy loss distribution has account = "zcdp"; None leaves the choice.
    # A mechanism that protects users as well as records has units = ("record", "user") and max_contributions, or the
    # sentence of_a_user on what bounds their part; user_account = "zcdp" where that alone accounts for users.
    # A mechanism that reads columns of conversations has reads_messages = True and yields them as
    # `columns.write_messages` does.
    # A mechanism that can be told that its public inputs do not fit has prepare(public, plan, store), which a new run
    # calls before anything is reserved or charged.
    # A mechanism some of whose fields follow from declared facts when missing has fitted(facts), which returns the one
    # that is planned: its event is then a function of its fields alone, and its run reads them off the plan.
    # A mechanism that shows private text to a model names its role in `reads_private`, ("embedder",) when missing.
    # A mechanism that takes `public=` names it in `takes`; one that cannot do without has needs_public = True,
    # one that makes nothing of them but a report has plans_public = False.
    # A mechanism one of whose fields names a model has further_ids, the public name of that model by its role.
    # A mechanism that can make further rows from what it released also has
    # sampler(public, plan, store) -> Callable[[released rows, number of rows, seed], rows].


class Privatizer(Protocol):
    """A mechanism that turns each text into another text.

    Its attribute `reads` says what its public input is: `"vectors"`, word vectors, or `"generator"`, a local language
    model; word vectors when missing. `units` names what it protects: a word, or a whole text. A mechanism that keeps
    something of the texts from batch to batch has `forget(public)`; one that uses further models has `models()`, their
    public names by role; one that copies more than the user asked for has `in_clear()`, in words.
    """

    name: str
    kind: str

    def guarantee(self, epsilon: float) -> Guarantee:
        """Return what one release of a text promises."""
        ...

    def event(self, epsilon: float) -> DpEvent:
        """Return the event of one release of the data set."""
        ...

    def privatize(
        self,
        texts: Sequence[str | None],
        public: Any,
        epsilon: float,
        generators: Callable[[int], np.random.Generator],
    ) -> list[str | None]:
        """Return one text a text; `generators(i)` is the secret stream of the i-th."""
        ...


def input_role(mechanism: Privatizer) -> str:
    """Return what a privatizing mechanism reads besides texts: `"vectors"` or `"generator"`."""
    return getattr(mechanism, "reads", "vectors")


def further_models(mechanism: Privatizer) -> dict[str, str]:
    """Return the public names of what a privatizing mechanism uses besides its public input, by role."""
    found: dict[str, str] = mechanism.models() if hasattr(mechanism, "models") else {}
    return found


def check_protected(mechanism: Privatizer, unit: str | None) -> str:
    """Return what a privatizing mechanism protects, each word or each text.

    Raises:
        ConfigError: another unit is asked for.
    """
    protected = str(getattr(mechanism, "units", ("word",))[0])
    if unit not in (None, protected):
        raise ConfigError(f"unit={unit!r} is not offered by {mechanism.name}; it protects each {protected}.")
    return protected


def label_shares(
    private: PrivateRecords, plan: Plan, run: Run, sigma: float, *, scaled: bool = False
) -> Sequence[float]:
    """Return declared proportions of the labels, or noisy ones that are bought from the budget.

    At a user unit each user adds one count: the label of one of its usable records, drawn in secret. So what a user
    moves, and the event, are those of one record; the shares are those of users. Where `scaled`, each user adds the
    counts of all of its records instead, as one vector of norm 1, whose event is `user_count_event`.

    Args:
        private (`PrivateRecords`): the records. Sensitive.
        plan (`Plan`): holds what is declared.
        run (`Run`): whose ledger the histogram is released through, as "label-counts".
        sigma (`float`): the noise of a bought histogram, in privacy units.
        scaled (`bool`, defaults to `False`): whether a user counts with all of its records.
    Returns:
        `Sequence[float]`: one weight a label; all alike where a bought histogram was lost.
    """
    if plan.proportions is not None or len(plan.labels) == 1:
        return plan.proportions or (1.0,)

    def draw() -> list[float]:
        if scaled:
            found = noisy_user_labels(private.by_unit(plan.labels), len(plan.labels), sigma)
        else:
            found = noisy_label_counts(label_counts(private, plan.labels, run.keys), sigma)
        counts: list[float] = found.tolist()
        return counts

    event = (user_count_event if scaled else count_event)(sigma, plan.adjacency)
    counts = run.devices.lead(lambda: run.ledger.release("label-counts", event, draw))
    return [1.0] * len(plan.labels) if counts is None else counts


def check_one(mechanism: str, name: str, value: Any) -> None:
    """Refuse several values where a field takes one: that would be a search on private data.

    Args:
        mechanism (`str`): its name.
        name (`str`): the field.
        value (`Any`): what the user passed. Public.
    Raises:
        ConfigError: the value is a list or the like.
    """
    if isinstance(value, (list, tuple, set, frozenset, dict, range, np.ndarray)):
        raise ConfigError(
            f"{mechanism}: {name} is {value!r}; it takes one value. A search over several on private data would need "
            "an accounting of its own and is not offered. Tune on public or synthetic data, which is free "
            "(hf_dpsynth.downstream.rank), or run each setting under one PrivacyBudget, where every run is charged."
        )


def check_whole(mechanism: str, name: str, value: Any, least: int) -> None:
    """Refuse a field of a mechanism that is no whole number or too small.

    Raises:
        ConfigError: it is not.
    """
    check_one(mechanism, name, value)
    if isinstance(value, bool) or not isinstance(value, int) or not value >= least:
        raise ConfigError(f"{mechanism}: {name} is {value!r}; it must be a whole number >= {least}")


def check_number(mechanism: str, name: str, value: Any, low: float, high: float) -> None:
    """Refuse a field of a mechanism that is no number or out of its range.

    Raises:
        ConfigError: it is.
    """
    check_one(mechanism, name, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ConfigError(f"{mechanism}: {name} is {value!r}; it must be a number from {low:g} to {high:g}")


def check_choice(mechanism: str, name: str, value: Any, known: Sequence[str]) -> None:
    """Refuse a field of a mechanism that is none of its choices.

    Raises:
        ConfigError: it is not.
    """
    check_one(mechanism, name, value)
    if value not in known:
        raise ConfigError(f"{mechanism}: {name} is {value!r}; it must be one of {', '.join(known)}")


def check_flag(mechanism: str, name: str, value: Any) -> None:
    """Refuse a field of a mechanism that is not true or false.

    Raises:
        ConfigError: it is not.
    """
    check_one(mechanism, name, value)
    if not isinstance(value, bool):
        raise ConfigError(f"{mechanism}: {name} is {value!r}; it must be true or false")


def largest_remainder(total: int, shares: Sequence[float]) -> list[int]:
    """Split a total into whole numbers by shares; ties go to the earlier one.

    Args:
        total (`int`): what to split.
        shares (`Sequence[float]`): public or privatized weights; negative ones count as 0, all zero as equal.
    Returns:
        `list[int]`: parts that sum to `total`.
    Examples:
        >>> largest_remainder(10, [0.55, 0.45, -1.0])
        [6, 4, 0]
    """
    weights = np.clip(np.asarray(shares, dtype=np.float64), 0, None)
    weights = np.full(len(weights), 1 / len(weights)) if weights.sum() == 0 else weights / weights.sum()
    exact = total * weights
    parts = np.floor(exact + 1e-9).astype(int)
    order = np.argsort(-(exact - parts), kind="stable")
    parts[order[: total - int(parts.sum())]] += 1
    return [int(part) for part in parts]
