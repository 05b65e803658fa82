"""Membership from a prompt: whether the likelihood of its label tells whose text a prompt was made from.

A prompt holds demonstrations: of the private rows themselves, or made ones in their place. The score of a text is the
probability of its true label behind the prompt. Where real rows are shown, the member is the row that stands in it.
The model is an argument: what fits labelled rows and then gives log-probabilities of classes. Source: Duan et al.
2023, arXiv:2305.15594; "Generate Synthetic Text Approximating the Private Distribution with Differential Privacy",
IJCAI 2024, Figure 5.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, Self

import numpy as np
from scipy.stats import t as student

from hf_dpsynth.audit.attacks import AttackResult
from hf_dpsynth.audit.findings import Finding, check_confidence, check_delta
from hf_dpsynth.audit.separation import discrimination
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import check_count, check_seed
from hf_dpsynth.privacy.keys import public_generator

NAME = "prompts"
MEMBERS, OTHERS = "label_probability_of_members", "label_probability_of_others"
_LEAST_PROMPTS = 10
_REPEATED = "Prompts draw rows with replacement, and all texts behind a prompt share it: scores are not independent."
_ONE_MODEL = "Another model, more shots or another score may tell more."


class LabelledRows(Protocol):
    """Texts with the numbers of their classes, such as `hf_dpsynth.downstream.Examples`."""

    @property
    def texts(self) -> Sequence[str]:
        """Return the texts. Sensitive if they are."""
        ...

    @property
    def labels(self) -> np.ndarray:
        """Return the numbers of classes, shape (n,)."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes."""
        ...

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def take(self, rows: Sequence[int] | np.ndarray) -> Self:
        """Return these rows."""
        ...


class Prompted(Protocol):
    """A model behind a prompt."""

    def log_probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """Return the log-probability of each class, shape (n, classes)."""
        ...


class PromptModel(Protocol):
    """A model whose prompt holds demonstrations, such as `hf_dpsynth.downstream.InContext`."""

    def fit(self, train: Any, *, seed: int = 0) -> Prompted:
        """Return the model behind a prompt with rows of `train`."""
        ...


def audit_prompts(
    rows: LabelledRows,
    members: LabelledRows,
    others: LabelledRows,
    *,
    model: PromptModel,
    shown: bool = False,
    resamples: int = 100,
    others_per_prompt: int = 8,
    confidence: float = 0.95,
    delta: float = 1e-5,
    seed: int = 0,
) -> AttackResult:
    """Say how well the probability of its label behind a prompt tells a private text from another.

    Power: with 100 prompts and 8 other texts behind each, the area of scores that know nothing has a standard error of
    .03. A model that gives the label of the row in its prompt more than that of any other has an area of 1.

    Args:
        rows (`Examples`): what demonstrations are drawn from, one a prompt, where `shown` is False. Public.
        members (`Examples`): labelled texts that the run read. Sensitive.
        others (`Examples`): labelled texts of the same kind that it did not read. Sensitive.
        model (`PromptModel`): `InContext(shots=1)`, or another object with `fit` and `log_probabilities`. Each prompt
            is fitted with the number of the prompt as its seed.
        shown (`bool`, defaults to `False`): whether the member itself stands in the prompt, in place of a row of
            `rows`: what the attack finds where nothing protects.
        resamples (`int`, defaults to 100): prompts, at least 10, each with a member of its own.
        others_per_prompt (`int`, defaults to 8): other texts that are scored behind each prompt.
        confidence (`float`, defaults to 0.95): that of each interval alone.
        delta (`float`, defaults to 1e-5): the delta of the empirical epsilon.
        seed (`int`, defaults to 0): of the public draws.
    Returns:
        `AttackResult`: the figures of `discrimination`, and the mean probability of the true label of both kinds
        with Student's interval over prompts. Sensitive.
    Raises:
        ConfigError: a side is empty or holds only texts of the other, the classes differ, the model gives no
            probabilities or always the same, or an argument is out of range.
    """
    check_confidence(confidence)
    check_delta(delta)
    check_seed(seed)
    check_count("resamples", resamples, _LEAST_PROMPTS)
    check_count("others_per_prompt", others_per_prompt, 1)
    _check_model(model)
    _check_classes(rows, members, others)
    inside, outside, limits = _apart(members, others)
    if not shown and not len(rows):
        raise ConfigError("rows= is empty; a prompt shows one of them. Pass released rows with labels.")
    found: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for number in range(resamples):
        rng = public_generator(seed, "membership", number)
        member = inside.take([int(rng.integers(len(inside)))])
        prompt = member if shown else rows.take([int(rng.integers(len(rows)))])
        strangers = outside.take(rng.permutation(len(outside))[:others_per_prompt])
        fitted = model.fit(prompt, seed=number)
        for examples, kept in zip((member, strangers), found, strict=True):
            kept.append(_of_true_label(fitted, examples))
    ours, theirs = (np.concatenate(side) for side in found)
    told = discrimination(ours, theirs, attack=NAME, confidence=confidence, delta=delta, limits=limits, seed=seed)
    means = (
        _mean(metric, side, len(scores), confidence, limits)
        for metric, side, scores in zip((MEMBERS, OTHERS), found, (ours, theirs), strict=True)
    )
    return replace(told, findings=(*told.findings, *means))


def _check_model(model: Any) -> None:
    if isinstance(model, str) or not callable(getattr(model, "fit", None)):
        raise ConfigError(
            f"model= is a {type(model).__name__}; it is an object with .fit, such as "
            "hf_dpsynth.downstream.InContext(shots=1, model='smollm2-135m')"
        )


def _check_classes(*sides: LabelledRows) -> None:
    for name, side in zip(("rows", "members", "others"), sides, strict=True):
        if not all(hasattr(side, field) for field in ("texts", "labels", "classes", "take")):
            raise ConfigError(
                f"{name}= is a {type(side).__name__}; it is labelled texts, such as hf_dpsynth.downstream.Examples.of"
                "(dataset, label_column='label')"
            )
    if len({tuple(side.classes) for side in sides}) > 1:
        sizes = ", ".join(str(len(side.classes)) for side in sides)
        raise ConfigError(
            f"rows=, members= and others= have different classes ({sizes} of them). Read all with the classes= of one."
        )


def _apart(members: LabelledRows, others: LabelledRows) -> tuple[LabelledRows, LabelledRows, tuple[str, ...]]:
    """Return both sides without the texts that stand on both, and what the figures say of it."""
    both = set(members.texts) & set(others.texts)
    kept = []
    for name, side in (("members", members), ("others", others)):
        rows = [row for row, text in enumerate(side.texts) if text not in both]
        if not rows:
            raise ConfigError(
                f"{name}= has no text that the other side lacks. Pass texts that the run read as members= and others "
                "of the same kind that it did not read as others=."
            )
        kept.append(side.take(rows) if both else side)
    said = (f"{len(both)} texts that are on both sides are left out.",) if both else ()
    return kept[0], kept[1], (_REPEATED, _ONE_MODEL, *said)


def _of_true_label(fitted: Prompted, examples: LabelledRows) -> np.ndarray:
    """Return the probability of each row's label, shape (n,)."""
    scores = np.exp(np.asarray(fitted.log_probabilities(examples.texts), dtype=np.float64))
    if scores.shape != (len(examples), len(examples.classes)) or not np.isfinite(scores).all():
        raise ConfigError(
            f"the model gave numbers of shape {scores.shape}, or not finite ones; a log-probability is needed for "
            f"each of {len(examples.classes)} classes"
        )
    return np.asarray(scores[np.arange(len(examples)), examples.labels])


def _mean(metric: str, prompts: Sequence[np.ndarray], n: int, confidence: float, limits: tuple[str, ...]) -> Finding:
    """Return the mean over texts, with Student's interval of the means over prompts, which weigh the same."""
    means = np.array([scores.mean() for scores in prompts])
    value = float(np.concatenate(list(prompts)).mean())
    reach = float(student.isf((1 - confidence) / 2, len(means) - 1) * means.std(ddof=1) / math.sqrt(len(means)))
    return Finding(
        attack=NAME,
        metric=metric,
        value=value,
        interval=(max(0.0, value - reach), min(1.0, value + reach)),
        n=n,
        confidence=confidence,
        delta=None,
        limits=limits,
        uses_private_data=True,
    )
