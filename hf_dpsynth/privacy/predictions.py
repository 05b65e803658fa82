"""Tokens that private texts in prompts predict, each way to draw one beside the event that accounts for it.

Noisy averages: records are sampled, dealt to M prompts, and the mean of the M distributions of the next token gets
Gaussian noise; a record sits in one prompt, so it moves the mean by at most sqrt(2) / M in L2. Clipped logits: what
each private prompt adds to the logits of a public one is clipped to [-C, C] and divided by a fixed number B, so a
record moves a logit by at most C / B, and the draw of the token is the noise.
Sources: Tang et al. 2023, arXiv:2309.11765, Algorithm 1; Vinod et al. 2025, arXiv:2507.02974. Where we leave the first
one: each sampled record chooses its prompt alone. Dealt in order, one record could move all M prompts.
"""

import math
from dataclasses import dataclass

import numpy as np
from dp_accounting import DpEvent, GaussianDpEvent, NonPrivateDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.picks import BoundedRangeDpEvent
from hf_dpsynth.privacy.words import at_places

_FARTHEST = 1e100  # a logit beyond this counts as this, so that differences are finite


@dataclass(frozen=True, kw_only=True)
class SampledPrompts:
    """Who stands in which prompt, and the noise of the averaged distributions. Sampler and event are one object.

    Args:
        rate (`float`): the probability with which a record is in a sample, alone. Public.
        subsets (`int`): M, the prompts that a sample is dealt to. Public.
        shots (`int`): the most records in a prompt. Public.
        tokens (`int`): tokens of a text. Public.
        kept (`bool`): whether one sample serves all tokens of a text; else each token has a sample of its own.
    Raises:
        ConfigError: the rate is no probability above 0.
    """

    rate: float
    subsets: int
    shots: int
    tokens: int
    kept: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ConfigError(f"the sampling rate is {self.rate}; it must be above 0 and at most 1")

    def event(self, noise_multiplier: float) -> DpEvent:
        """Return the event of one text of each label: no record has two labels. 0 means no noise.

        Args:
            noise_multiplier (`float`): of one token, the deviation of the noise over sqrt(2) / M.
        """
        if noise_multiplier == 0:
            return NonPrivateDpEvent()
        if self.kept:  # so many releases about one sample are one release about it, at less noise
            return PoissonSampledDpEvent(self.rate, GaussianDpEvent(noise_multiplier / math.sqrt(self.tokens)))
        return SelfComposedDpEvent(
            PoissonSampledDpEvent(self.rate, GaussianDpEvent(float(noise_multiplier))), self.tokens
        )

    def deviation(self, noise_multiplier: float) -> float:
        """Return the standard deviation of the noise on each coordinate of the mean: multiplier sqrt(2) / M."""
        return noise_multiplier * math.sqrt(2) / self.subsets

    def draw(self, generator: np.random.Generator, present: int, rate: float) -> list[np.ndarray]:
        """Draw a sample and deal it to the prompts.

        Each record has three draws of its own: whether it is in, its prompt, and its place in the queue for it. So
        another record changes nothing but the one prompt that it stands in, also where that is full.

        Args:
            generator (`np.random.Generator`): a secret stream. Sensitive: who is in is as secret as the noise.
            present (`int`): records to sample from. Sensitive.
            rate (`float`): the probability of each, at most `self.rate`. Public.
        Returns:
            `list[np.ndarray]`: for each prompt the positions of its records. Sensitive.
        Raises:
            ConfigError: the rate is above the one that is accounted.
        """
        if not 0 <= rate <= self.rate:
            raise ConfigError(f"a rate of {rate} is above {self.rate}, which is accounted")
        taken, prompt, queue = generator.random((present, 3)).T
        order = np.argsort(queue, kind="stable")
        order = order[taken[order] < rate]
        chosen = np.floor(prompt[order] * self.subsets)
        return [order[chosen == number][: self.shots] for number in range(self.subsets)]


def distribution(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities of logits in float64, row by row; NaN counts as the least of all.

    Args:
        logits (`np.ndarray`): shape (..., V). As sensitive as what was read.
    """
    scores = _finite(logits)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def mean_distribution(distributions: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Average the distributions of the prompts over the allowed tokens, without making them sum to 1 again.

    Args:
        distributions (`np.ndarray`): of each prompt, shape (M, V), rows that sum to at most 1. Sensitive.
        allowed (`np.ndarray`): tokens, shape (K,). Public.
    Returns:
        `np.ndarray`: shape (K,), float64. Sensitive: add noise before use.
    Sensitivity:
        L2 <= sqrt(2) / M under add-remove and zero-out, as one row changes.
    """
    return np.asarray(distributions[:, allowed].astype(np.float64).mean(axis=0))


def noisy_largest(generator: np.random.Generator, mean: np.ndarray, deviation: float) -> int:
    """Return the place of the largest entry after Gaussian noise on each; the event is that of `SampledPrompts`.

    Args:
        generator (`np.random.Generator`): a secret stream of `keys.Key`.
        mean (`np.ndarray`): of `mean_distribution`, shape (K,). Sensitive.
        deviation (`float`): of `SampledPrompts.deviation`.
    """
    return int(np.argmax(mean + generator.normal(0.0, deviation, len(mean)) if deviation else mean))


@dataclass(frozen=True, kw_only=True)
class ClippedLogits:
    """Draws of tokens from a public prompt's logits, moved by private prompts that are clipped.

    Args:
        batch_size (`int`): B, by which the sum over private prompts is divided, however many there are. Public.
        temperature (`float`): divides the logits. Public.
        tokens (`int`): T, tokens of a text. Public.
        top_k (`int`): how many likeliest tokens of the public prompt the drawn set begins with. Public.
    """

    batch_size: int
    temperature: float
    tokens: int
    top_k: int

    def bound(self, noise_multiplier: float) -> float:
        """Return C = temperature B / (multiplier sqrt(T)): a text costs 1 / (2 multiplier^2) in zCDP; 0: no clip."""
        if noise_multiplier == 0:
            return math.inf
        return self.temperature * self.batch_size / (noise_multiplier * math.sqrt(self.tokens))

    def event(self, noise_multiplier: float, adjacency: str) -> DpEvent:
        """Return the event of all texts: no two of them read the same record. 0 means no privacy.

        A record moves each logit by at most C / B, so the log-ratio of two tokens by 2 C / (B temperature): the range
        of one draw, whose cost is (C / (B temperature))^2 / 2. Replaced by another record, by twice the range; and by
        twice the cost where the other one has another label, which then moves a text of each.
        """
        if noise_multiplier == 0:
            return NonPrivateDpEvent()
        moved = 2 * self.bound(noise_multiplier) / (self.batch_size * self.temperature)
        return SelfComposedDpEvent(
            BoundedRangeDpEvent(2 * moved if adjacency == "replace-one" else moved), self.tokens
        )

    def moved(self, private: np.ndarray, public: np.ndarray, bound: float) -> np.ndarray:
        """Return the public logits moved by the private ones.

        Args:
            private (`np.ndarray`): of each private prompt, shape (b, V), b of any size. Sensitive.
            public (`np.ndarray`): of the prompt without a record, shape (V,). Public.
            bound (`float`): C.
        Returns:
            `np.ndarray`: shape (V,), float64. Sensitive: a token is drawn from it, nothing else is done with it.
        Sensitivity:
            each coordinate <= C / B when a row is added, removed or becomes the public one; <= 2 C / B when replaced.
        """
        base = _finite(public)
        steps = np.clip(_finite(private) - base, -bound, bound)
        return np.asarray(base + steps.sum(axis=0) / self.batch_size)

    def allowed(self, public: np.ndarray, bound: float) -> np.ndarray:
        """Return the tokens that may be drawn: those that a move of 2 C / B could lift among the public top k.

        Args:
            public (`np.ndarray`): logits of the prompt without a record, shape (V,). One of -inf is ruled out before
                the top k are taken, so that something is left of them. Public.
            bound (`float`): C.
        """
        ruled_in = np.flatnonzero(public != -math.inf)
        scores = _finite(public[ruled_in])
        least = np.sort(scores)[-min(self.top_k, len(scores))]
        return np.asarray(ruled_in[scores >= least - 2 * bound / self.batch_size])

    def draw(self, place: float, logits: np.ndarray, allowed: np.ndarray) -> int:
        """Draw one of the allowed tokens from softmax(logits / temperature) in float64.

        Args:
            place (`float`): a secret uniform place in [0, 1), of `words.uniforms`. Sensitive.
            logits (`np.ndarray`): of `moved`, shape (V,). Sensitive.
            allowed (`np.ndarray`): of `allowed`. Public.
        """
        scores = logits[allowed] / self.temperature
        return int(allowed[at_places(np.exp(scores - scores.max()), np.array([place]))[0]])


def _finite(logits: np.ndarray) -> np.ndarray:
    return np.nan_to_num(logits.astype(np.float64), nan=-_FARTHEST).clip(-_FARTHEST, _FARTHEST)
