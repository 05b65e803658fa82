"""What the private prediction mechanisms share: prompts, texts in rounds, and public texts in the place of lost ones.

A round makes one text of each label that wants one more, under one charge: labels have no record in common, so they
are accounted in parallel. A text leaves through the ledger as a whole; if the process stops between charge and commit
it is lost, and the row holds a text of the public prompt. So does a text that came out blank.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent, NonPrivateDpEvent

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.base import PublicInputs, Row, check_one, check_whole, label_shares, largest_remainder
from hf_dpsynth.mechanisms.evolution.prompts import describe
from hf_dpsynth.mechanisms.prediction.models import Prompts, TokenModel, token_model
from hf_dpsynth.plans import Facts, Plan
from hf_dpsynth.privacy.accounting import target_mu
from hf_dpsynth.privacy.keys import public_generator
from hf_dpsynth.privacy.predictions import distribution
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.privacy.selection import count_event
from hf_dpsynth.privacy.words import at_places, uniforms
from hf_dpsynth.run import Run
from hf_dpsynth.store import Store

LABEL_SHARE = 0.05
_MARK, _BETWEEN = "Example:", "\n\n"
_TRIES = 3  # of a public text that must not be blank


@dataclass(frozen=True, kw_only=True)
class PredictionMechanism:
    """The fields of every private prediction mechanism.

    Args:
        max_new_tokens (`int`): the longest text that is made, in tokens; the budget pays for all of them.
        max_tokens (`int`): tokens of a private text that are read; the rest is cut off.
        top_k (`int`): how many likeliest tokens of the public prompt the next one is taken from.
        subject (`str`): what the texts are, e.g. `"text message"`. Public.
    """

    name: ClassVar[str]
    kind: ClassVar[str] = "synthesize"
    models_used: ClassVar[tuple[str, ...]] = ("generator",)
    reads_private: ClassVar[tuple[str, ...]] = ("generator",)

    max_new_tokens: int = 40
    max_tokens: int = 64
    top_k: int = 100
    subject: str = "text"

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "max_tokens", "top_k"):
            check_whole(self.name, name, getattr(self, name), 1)
        check_one(self.name, "subject", self.subject)
        if not isinstance(self.subject, str) or not self.subject.strip() or "\n" in self.subject:
            raise ConfigError(f"{self.name}: subject is {self.subject!r}; it must be words, e.g. 'text message'")

    @property
    def shown(self) -> int:
        """The most private texts in one prompt."""
        return 1

    def prepare(self, public: PublicInputs, plan: Plan, store: Store) -> None:
        """Refuse a model without logits or with too short a context, before anything is reserved.

        Raises:
            ConfigError: it is such a model.
        """
        model = token_model(self.name, public.generator)
        for label in plan.labels:
            prompt = Prompt.of(self, model, plan, label)
            needed = len(prompt.head) + prompt.most + len(prompt.tail) + self.max_new_tokens
            if needed > model.context:
                raise ConfigError(
                    f"{self.name} needs {needed} tokens a prompt; the model takes {model.context}. Lower max_tokens, "
                    "max_new_tokens or the number of texts in a prompt."
                )


@dataclass(frozen=True)
class Prompt:
    """The public tokens around private texts.

    Args:
        head (`list[int]`): what all prompts of a label begin with.
        mark (`list[int]`): what stands before each text.
        end (`list[int]`): what stands behind it.
        tail (`list[int]`): what the text to be made follows.
        length (`int`): the most tokens of a text.
        shown (`int`): the most texts in a prompt.
    """

    head: list[int]
    mark: list[int]
    end: list[int]
    tail: list[int]
    length: int
    shown: int

    @classmethod
    def of(cls, mechanism: PredictionMechanism, model: TokenModel, plan: Plan, label: tuple[Any, ...]) -> "Prompt":
        """Return the prompt of a label."""
        kind = describe(plan.label_columns, label)
        intro = f"Each example is one {mechanism.subject}{f' with {kind}' if kind else ''}.{_BETWEEN}"
        head, mark, end = (model.read([part], 10_000)[0] for part in (intro, _MARK, _BETWEEN))
        return cls([*model.start, *head], mark, end, mark, mechanism.max_tokens, mechanism.shown)

    @property
    def most(self) -> int:
        """The most tokens between head and tail."""
        return self.shown * (len(self.mark) + self.length + len(self.end))

    def pieces(self, model: TokenModel, texts: Sequence[str]) -> list[list[int]]:
        """Return each private text as it stands in a prompt, on one line. Sensitive."""
        read = model.read([" " + " ".join(text.split()) for text in texts], self.length)
        return [[*self.mark, *tokens, *self.end] for tokens in read]

    def open(self, model: TokenModel, middles: Sequence[Sequence[int]], made: Sequence[int], room: int) -> Prompts:
        """Return prompts that a text has begun behind. Sensitive where the middles are."""
        return model.open(self.head, middles, [*self.tail, *made], most=self.most, room=room)

    def public(self, model: TokenModel, room: int) -> Prompts:
        """Return the prompt without a private text. Public."""
        return self.open(model, [[]], [], room)


def likeliest(model: TokenModel, logits: np.ndarray, made: Sequence[int]) -> np.ndarray:
    """Return public logits of which an end token is never the first of a text."""
    scores = logits.astype(np.float64)
    if not made:
        scores[list(model.ends)] = -math.inf
    return scores


def text_of(model: TokenModel, made: Sequence[int]) -> str:
    """Return the first line of what was made."""
    return model.write(made).strip().partition("\n")[0].strip()


def is_over(model: TokenModel, made: Sequence[int]) -> bool:
    """Return whether a released text has ended: by an end token, or a line break behind some words."""
    return bool(made) and (made[-1] in model.ends or "\n" in model.write(made).lstrip())


def public_text(mechanism: PredictionMechanism, model: TokenModel, prompt: Prompt, plan: Plan, place: int) -> str:
    """Return a text of the public prompt by public randomness, which stands where a private one was lost or blank."""
    for attempt in range(_TRIES):
        places = uniforms(public_generator(plan.seed, "public text", place, attempt), mechanism.max_new_tokens)
        prompts, made = prompt.public(model, mechanism.max_new_tokens), list[int]()
        for step, at in enumerate(places):
            scores = likeliest(model, prompts.logits[0], made)
            kept = np.argsort(-scores, kind="stable")[: mechanism.top_k]
            made.append(int(kept[at_places(distribution(scores[kept]), np.array([at]))[0]]))
            if is_over(model, made) or step + 1 == len(places):
                break
            prompts.feed(made[-1])
        if text := text_of(model, made):
            return text
    return mechanism.subject


def with_labels(texts: DpEvent, noise_multiplier: float, facts: Facts) -> DpEvent:
    """Return the event of texts and, where proportions are bought, one histogram of labels with 5 % of mu squared."""
    if not facts.buys_proportions:
        return texts
    sigma = label_noise(noise_multiplier, facts.mu)
    return ComposedDpEvent([texts, NonPrivateDpEvent() if sigma == 0 else count_event(sigma, facts.adjacency)])


def label_noise(noise_multiplier: float, mu: float | None) -> float:
    """Return the noise of a bought label histogram: 5 % of the target's mu squared; 0 without privacy."""
    return 0.0 if noise_multiplier == 0 or mu is None else 1 / (math.sqrt(LABEL_SHARE) * mu)


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
    target = float(getattr(plan.guarantee, "epsilon", math.inf))
    sigma = label_noise(plan.noise_multiplier or 0.0, target_mu(target, plan.delta))
    weights = np.clip(np.asarray(label_shares(private, plan, run, sigma), dtype=np.float64), 0, None)
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
