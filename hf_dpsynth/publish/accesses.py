"""What the events of a release read of the private records, and what draws their noise, in words."""

from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent

from hf_dpsynth.plans import Plan
from hf_dpsynth.privacy.accounting import leaves
from hf_dpsynth.privacy.limited_domain import LimitedDomainDpEvent
from hf_dpsynth.privacy.noise import DiscreteGaussianDpEvent
from hf_dpsynth.privacy.picks import BoundedRangeDpEvent
from hf_dpsynth.privacy.secrets import SecretGaussianDpEvent
from hf_dpsynth.privacy.tokens import TokensDpEvent
from hf_dpsynth.privacy.user_votes import ClippedSumDpEvent
from hf_dpsynth.privacy.words import (
    ExponentialWordDpEvent,
    MultivariateLaplaceDpEvent,
    TagResponseDpEvent,
    TwoSidedGeometricDpEvent,
)

_WORDS: dict[type[DpEvent], str] = {
    MultivariateLaplaceDpEvent: "with noise on its embedding",
    ExponentialWordDpEvent: "in whose place a word is drawn by the exponential mechanism",
    TwoSidedGeometricDpEvent: "with noise on its place in a list of words",
    TagResponseDpEvent: "whose tag is kept or drawn at random",
}
_GRADIENTS = (GaussianDpEvent, PoissonSampledDpEvent)
_COUNTED = ("aug-pe",)  # by several processes, where they run
_PROMPTED = {  # mechanisms whose samples and draws are of prompts, and what one record changes there
    "dp-icl": "each record is in at most one prompt of each sample",
    "invisible-ink": "each record is in one prompt of at most one text, and moves each logit by a clipped amount",
}


def access(leaf: DpEvent, count: int, unit: str, mechanism: str = "") -> str:
    """Return in words what a release reads of the privacy units, and how often."""
    sampled = isinstance(leaf, PoissonSampledDpEvent) and isinstance(leaf.event, GaussianDpEvent)
    if mechanism == "dp-icl" and sampled:
        sample = f"a sample that each {unit} enters alone with probability {leaf.sampling_probability:.6g}"
        noise = f"noise multiplier {leaf.event.noise_multiplier:.6g}"
        return f"{count} x the mean of a model's distributions of next tokens over prompts with {sample}, {noise}"
    if isinstance(leaf, BoundedRangeDpEvent):
        item = "token from clipped logits" if mechanism in _PROMPTED else "pick from a public domain by its score"
        moved = f"of which a {unit} moves the log-ratio of any two by at most {leaf.epsilon:.6g}"
        return f"{count} x a {item}, {moved}"
    if isinstance(leaf, DiscreteGaussianDpEvent):
        moves = "one count" if len(leaf.shifts) == 1 else f"{len(leaf.shifts)} counts"
        return f"{count} x a vector of counts, of which a {unit} moves {moves}, with noise of sigma {leaf.sigma:.6g}"
    if isinstance(leaf, LimitedDomainDpEvent):
        picks = (
            f"at most {leaf.picks} names of the largest counts, each with Gumbel noise at epsilon {leaf.epsilon:.6g}"
        )
        return (
            f"{count} x the order of {picks}, above a threshold that fails with probability {leaf.delta:.6g}, of "
            f"vectors in which a {unit} has one count"
        )
    if type(leaf) in _WORDS:
        return f"{count} x each word of each text, {_WORDS[type(leaf)]} at scale {leaf.epsilon:.6g}"
    if isinstance(leaf, TokensDpEvent):
        tokens = f"at most {leaf.tokens} tokens drawn from clipped logits, each at epsilon {leaf.epsilon:.6g}"
        return f"{count} x each text, {tokens}"
    if isinstance(leaf, (ClippedSumDpEvent, SecretGaussianDpEvent)):
        return f"{count} x {_on_a_grid(leaf, unit)}"
    if sampled:
        batch = f"a batch that each {unit} enters alone with probability {leaf.sampling_probability:.6g}"
        noise = f"noise multiplier {leaf.event.noise_multiplier:.6g}"
        return f"{count} x the sum of the clipped gradients of {batch}, {noise}"
    if isinstance(leaf, GaussianDpEvent):
        noise = f"noise multiplier {leaf.noise_multiplier:.6g}"
        return f"{count} x a pass over all {unit}s in batches of clipped gradients, {noise}"
    return f"{count} x {type(leaf).__name__}"


def _on_a_grid(leaf: ClippedSumDpEvent | SecretGaussianDpEvent, unit: str) -> str:
    """Return in words what a release reads whose sums lie on a grid."""
    sums = f"a vector of weighted sums, to which a row adds at most {leaf.norm:.6g} times its weight"
    if isinstance(leaf, ClippedSumDpEvent):
        sums = f"a vector of scaled counts, which a {unit} moves by at most {leaf.norm:.6g} in L2"
    return f"{sums}, with noise of sigma {leaf.sigma:.6g} on a grid of {leaf.grid} steps a unit"


def backend(event: DpEvent) -> str:
    """Return what draws the noise; where counts stand beside gradients, what is not exact counts."""
    kinds = {type(leaf) for leaf in leaves(event)}
    if kinds & {*_WORDS, BoundedRangeDpEvent, TokensDpEvent, LimitedDomainDpEvent, *_GRADIENTS}:
        return "randomgen"
    return "opendp" if kinds & {ClippedSumDpEvent, DiscreteGaussianDpEvent, SecretGaussianDpEvent} else "none"


def contribution(plan: Plan, unit: str, most: int | None) -> str:
    """Return in words what bounds the part of a record, or of a user with at most so many records."""
    if unit == "user" and not _has_gradients(plan):
        return "the counts of all records of a user are one vector, scaled to norm 1 and truncated toward zero"
    if not _has_gradients(plan):
        return _PROMPTED.get(plan.mechanism, "each record adds at most one unit")
    cut = f", cut at {plan.params['max_tokens']} tokens," if "max_tokens" in plan.params else ""
    if unit == "user":
        mean = f"the mean of the gradients of at most {most} records of each user, drawn in secret"
        return f"{mean} and each{cut or ','} is clipped to a norm, in every batch that the user enters"
    return f"each record{cut} has its gradient clipped to a norm, in every batch that it enters"


def sums_may_travel(plan: Plan) -> bool:
    """Return whether several processes may have summed what the noise of a synthesis is on: gradients or votes."""
    return plan.mechanism in _COUNTED or _has_gradients(plan)


def _has_gradients(plan: Plan) -> bool:
    kinds = {type(leaf) for leaf in leaves(plan.event)}
    return not kinds.isdisjoint(_GRADIENTS) and plan.mechanism not in _PROMPTED


def sampling(event: DpEvent, unit: str) -> str:
    """Return how privacy units are drawn, which is what the accountant assumes: sampler and event are one object."""
    kinds = {type(leaf) for leaf in leaves(event)}
    if PoissonSampledDpEvent in kinds:
        return f"Poisson: each {unit} enters each batch alone with a public probability"
    if GaussianDpEvent in kinds:
        return f"shuffled batches: each {unit} is in one batch of each pass, no amplification is claimed"
    return "none: every record is read"
