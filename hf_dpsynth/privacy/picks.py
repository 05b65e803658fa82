"""Picks from a public domain by the scores that private records give it, each sampler beside its event."""

import math
from dataclasses import dataclass

import numpy as np
from dp_accounting import DpEvent, NonPrivateDpEvent

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.words import at_places, uniforms


@dataclass(frozen=True)
class BoundedRangeDpEvent(DpEvent):  # type: ignore[misc]
    """Draws one item of a public domain with probability proportional to exp(epsilon score).

    Between neighbours every score moves by 0 to 1 in one direction, or the scores are read so that the log-ratio of
    the probabilities of any two outputs moves by at most `epsilon`: the range of the privacy loss. Such a pick is
    epsilon-DP and costs epsilon squared / 8 in zCDP.
    Sources: Durfee & Rogers 2019, arXiv:1905.04273; Cesar & Rogers 2021, arXiv:2004.07223, Lemma 3.4.

    Args:
        epsilon (`float`): the range of the privacy loss of one pick.
    """

    epsilon: float

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise ConfigError(f"the range of a pick is {self.epsilon}; it must be a finite number > 0")

    @property
    def rho(self) -> float:
        """The zCDP cost epsilon^2 / 8."""
        return self.epsilon**2 / 8


def pick_event(noise_multiplier: float, adjacency: str) -> DpEvent:
    """Return the event of one of `picks`, whose scores a record moves by 0 to 1 (0: no privacy).

    A replaced record moves scores in both directions, which doubles the range. So it costs four times as much; where
    it leaves one label for another it moves the scores of both, each in one direction: twice as much, which is less.
    """
    if noise_multiplier == 0:
        return NonPrivateDpEvent()
    return BoundedRangeDpEvent((2 if adjacency == "replace-one" else 1) / noise_multiplier)


def picks(
    generator: np.random.Generator, scores: np.ndarray, noise_multiplier: float, count: int, *, again: bool = False
) -> np.ndarray:
    """Pick items, each with probability proportional to exp(score / noise_multiplier); the event is `pick_event`.

    Without `again` each pick is among those that are left: the largest scores after Gumbel noise on each, which is the
    same law (Durfee & Rogers 2019, Lemma 4.2). Either way `count` picks cost `count` events.

    Args:
        generator (`np.random.Generator`): a secret stream of `keys.Key`.
        scores (`np.ndarray`): shape (m,), m >= 1; between neighbours all move by 0 to 1 in one direction. Sensitive.
        noise_multiplier (`float`): 1 / epsilon of a pick; 0 takes the largest scores, the first of equal ones.
        count (`int`): how many.
        again (`bool`, defaults to `False`): whether an item can be picked again.
    Returns:
        `np.ndarray`: positions in the order of the picks, shape (count,); (min(count, m),) without `again`.
    """
    if noise_multiplier == 0:
        best = np.argsort(-scores, kind="stable")
        return np.repeat(best[:1], count) if again else best[:count]
    scaled = scores.astype(np.float64) / noise_multiplier
    if again:
        return at_places(np.exp(scaled - scaled.max()), uniforms(generator, count))
    return np.argsort(-(scaled + generator.gumbel(size=len(scaled))), kind="stable")[:count]
