"""What the events of a release read of the private records, and what draws their noise, in words."""

from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent

from hf_dpsynth.privacy.accounting import leaves
from hf_dpsynth.privacy.limited_domain import LimitedDomainDpEvent
from hf_dpsynth.privacy.noise import DiscreteGaussianDpEvent
from hf_dpsynth.privacy.secrets import SecretGaussianDpEvent
from hf_dpsynth.privacy.tokens import TokensDpEvent
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


def access(leaf: DpEvent, count: int, unit: str) -> str:
    """Return in words what a release reads of the privacy units, and how often."""
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
    if isinstance(leaf, SecretGaussianDpEvent):
        moves = f"to which a row adds at most {leaf.norm:.6g} times its weight"
        noise = f"noise of sigma {leaf.sigma:.6g} on a grid of {leaf.grid} steps a unit"
        return f"{count} x a vector of weighted sums, {moves}, with {noise}"
    if isinstance(leaf, PoissonSampledDpEvent) and isinstance(leaf.event, GaussianDpEvent):
        batch = f"a batch that each {unit} enters alone with probability {leaf.sampling_probability:.6g}"
        noise = f"noise multiplier {leaf.event.noise_multiplier:.6g}"
        return f"{count} x the sum of the clipped gradients of {batch}, {noise}"
    if isinstance(leaf, GaussianDpEvent):
        noise = f"noise multiplier {leaf.noise_multiplier:.6g}"
        return f"{count} x a pass over all {unit}s in batches of clipped gradients, {noise}"
    return f"{count} x {type(leaf).__name__}"


def clips_gradients(event: DpEvent) -> bool:
    """Return whether a release is a sum of clipped gradients."""
    return not {type(leaf) for leaf in leaves(event)}.isdisjoint(_GRADIENTS)


def backend(event: DpEvent) -> str:
    """Return what draws the noise; where counts stand beside gradients, what is not exact counts."""
    kinds = {type(leaf) for leaf in leaves(event)}
    if kinds & {*_WORDS, TokensDpEvent, LimitedDomainDpEvent, *_GRADIENTS}:
        return "randomgen"
    return "opendp" if kinds & {DiscreteGaussianDpEvent, SecretGaussianDpEvent} else "none"


def sampling(event: DpEvent, unit: str) -> str:
    """Return how privacy units are drawn, which is what the accountant assumes: sampler and event are one object."""
    kinds = {type(leaf) for leaf in leaves(event)}
    if PoissonSampledDpEvent in kinds:
        return f"Poisson: each {unit} enters each batch alone with a public probability"
    if GaussianDpEvent in kinds:
        return f"shuffled batches: each {unit} is in one batch of each pass, no amplification is claimed"
    return "none: every record is read"
