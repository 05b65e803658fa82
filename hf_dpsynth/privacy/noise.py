"""Noise samplers, each beside the event or the guarantee that accounts for it.

Counts get the discrete Gaussian (exact, OpenDP; Canonne, Kamath & Steinke 2020). The noise of words, of tokens and of
gradients is in `words.py`, `tokens.py` and `sgd.py`. A mechanism never draws its own noise.
"""

import math
from dataclasses import dataclass

import numpy as np
from dp_accounting import DpEvent

from hf_dpsynth.errors import ConfigError


@dataclass(frozen=True)
class DiscreteGaussianDpEvent(DpEvent):  # type: ignore[misc]
    """Adds discrete Gaussian noise to an integer vector.

    For integer vectors h(D), the release is h(D) + Z with independent Z_i on the integers and
    P(Z_i = z) proportional to exp(-z^2 / (2 sigma^2)). Between neighbours h moves by at most `shifts[i]` in distinct
    coordinates: one vote added or removed is `(1,)`, one vote replaced is `(1, 1)`, k-nearest votes are k ones.

    Args:
        sigma (`float`): the parameter of the noise, in counts.
        shifts (`tuple[int, ...]`): the absolute moves of the coordinates, largest case.
    """

    sigma: float
    shifts: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if not (self.sigma > 0 and self.shifts and all(shift >= 1 for shift in self.shifts)):
            raise ConfigError(f"sigma is {self.sigma} and shifts are {self.shifts}; both must be positive")

    @property
    def rho(self) -> float:
        """The zCDP cost |shifts|^2 / (2 sigma^2) (Canonne et al. 2020, Theorem 4)."""
        return sum(shift * shift for shift in self.shifts) / (2 * self.sigma**2)


def discrete_gaussian(counts: np.ndarray, sigma: float) -> np.ndarray:
    """Add discrete Gaussian noise to integer counts; the event is `DiscreteGaussianDpEvent`.

    Args:
        counts (`np.ndarray`): integers, shape (m,). Sensitive.
        sigma (`float`): the parameter of the noise, in counts; 0 adds none (epsilon infinite).
    Returns:
        `np.ndarray`: noisy counts, shape (m,), int64. Public once it is committed to the ledger.
    Sensitivity:
        whatever the caller's event claims in `shifts`; the noise does not depend on it.
    Raises:
        ConfigError: sigma is negative or not finite, or the counts are not integers.
    """
    if not (sigma >= 0 and math.isfinite(sigma)):
        raise ConfigError(f"sigma is {sigma}; it must be a finite number >= 0")
    if not np.issubdtype(counts.dtype, np.integer):
        raise ConfigError(f"counts have type {counts.dtype}; the discrete Gaussian takes integers")
    if sigma == 0 or not len(counts):
        return counts.astype(np.int64)
    import opendp.prelude as opendp

    opendp.enable_features("contrib")
    measure = opendp.m.make_gaussian(
        opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T=float), sigma
    )
    return np.asarray(measure(counts.astype(np.int64).tolist()), dtype=np.int64)
