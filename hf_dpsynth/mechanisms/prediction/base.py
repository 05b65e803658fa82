"""What the private prediction mechanisms share: prompts, texts in rounds, and public texts in the place of lost ones.

A round makes one text of each label that wants one more, under one charge. A text leaves through the ledger as a
whole; if the process stops between charge and commit it is lost, and the row holds a text of the public prompt. So
does a text that came out blank.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from dp_accounting import DpEvent

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.logging import progress_bar
from hf_dpsynth.mechanisms.base import PublicInputs, check_one, check_whole
from hf_dpsynth.mechanisms.evolution.prompts import describe
from hf_dpsynth.mechanisms.prediction.models import Prompts, TokenModel, token_model
from hf_dpsynth.plans import Plan
from hf_dpsynth.privacy.keys import Key, public_generator
from hf_dpsynth.privacy.predictions import distribution
from hf_dpsynth.privacy.words import at_places, uniforms
from hf_dpsynth.run import Run
from hf_dpsynth.store import Store

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


def texts_in_rounds(
    mechanism: PredictionMechanism,
    model: TokenModel,
    plan: Plan,
    run: Run,
    sizes: Sequence[int],
    event: Callable[[int], DpEvent],
    text: Callable[[Prompt, int, int, Key], str],
) -> list[list[str]]:
    """Return the texts of each label, released round by round.

    Args:
        mechanism (`PredictionMechanism`): the one that is planned.
        model (`TokenModel`): gives logits.
        plan (`Plan`): names the labels.
        run (`Run`): whose ledger every round is released through, as "text-000" and so on.
        sizes (`Sequence[int]`): rows of each label. Public, like the number of rounds.
        event (`Callable[[int], DpEvent]`): of a round.
        text (`Callable[[Prompt, int, int, Key], str]`): draws one text from the prompt and the number of its label,
            the number of the round and a secret key of its own.
    """
    prompts = [Prompt.of(mechanism, model, plan, label) for label in plan.labels]
    made: list[list[str]] = [[] for _ in prompts]
    for number in progress_bar(iterable=range(max(sizes)), desc=f"{mechanism.name} texts", unit="text"):
        wanted = [label for label, size in enumerate(sizes) if size > number]

        def draw(number: int = number, wanted: Sequence[int] = wanted) -> list[str]:
            keys = [run.keys.derive(mechanism.name, number, label) for label in wanted]
            return [text(prompts[label], label, number, key) for label, key in zip(wanted, keys, strict=True)]

        found = run.ledger.release(f"text-{number:03d}", event(number), draw, about={"labels": wanted})
        for label, released in zip(wanted, found or [""] * len(wanted), strict=True):
            place = number * len(prompts) + label
            made[label].append(released or public_text(mechanism, model, prompts[label], plan, place))
    return made
