"""Picks from a public domain by the scores that private records give it, each sampler beside its event."""

import math
from dataclasses import dataclass

from dp_accounting import DpEvent

from hf_dpsynth.errors import ConfigError


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
