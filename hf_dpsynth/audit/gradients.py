"""A gradient canary against DP-SGD: one record of a tiny linear model whose gradient is a Dirac, huge in one place.

No other record touches that place, so the attacker reads the clipped canary and the noise alone. Looked at: how far
the canary moves the sum before noise (at most C), the scale of the noise, whether steps share noise, and the epsilon
of a step by the error rates of a threshold. Steps of any other model and record are read along the direction in which
the record moves the sum. Source: Nasr et al. 2023, arXiv:2302.07956 (Dirac canaries).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import chi2

from hf_dpsynth.audit.findings import check_confidence, check_delta
from hf_dpsynth.audit.laws import audit_independence
from hf_dpsynth.audit.rates import RatesFinding, gaussian_epsilon, rates_finding
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.metrics.base import check_count, check_seed
from hf_dpsynth.privacy.keys import public_generator
from hf_dpsynth.privacy.sgd import noisy_mean

if TYPE_CHECKING:
    import torch

Mean = Callable[..., Sequence["torch.Tensor"]]
Step = Callable[[bool, float, int], np.ndarray]
_WIDTH, _RECORDS = 16, 8
_ROUNDING = 1e-4


@dataclass(frozen=True, kw_only=True)
class GradientFinding(RatesFinding):
    """What a gradient canary found. `value` is the lower bound on the epsilon of one step without sampling.

    Args:
        moved (`float`): how far the canary moves the sum before noise, in clip norms.
        noise_interval (`tuple[float, float]`): where the standard deviation of the noise lies, in those claimed.
        shared (`float`): the p-value that noise of different steps was drawn apart.
        faults (`tuple[str, ...]`): what is not as claimed, a sentence each.
    """

    moved: float
    noise_interval: tuple[float, float]
    shared: float
    faults: tuple[str, ...]

    @property
    def violated(self) -> bool:
        """Whether anything is not as claimed."""
        return bool(self.faults)

    def _verdict(self) -> str:
        found = super()._verdict()
        return " ".join([found, *self.faults])


def audit_gradients(
    mean: Mean = noisy_mean,
    *,
    clip_norm: float = 1.0,
    noise_multiplier: float = 1.0,
    steps: int = 1000,
    delta: float = 1e-5,
    confidence: float = 0.99,
    seed: int = 0,
) -> GradientFinding:
    """Take many steps from the same parameters with and without the canary, and compare them with what is claimed.

    Power: with 1000 steps at noise multiplier 1 the scale of the noise is known to 1.1 %, so that 5 % off is found
    nearly always; a canary that is not clipped, missing noise and noise that two steps share always are. The bound on
    mu lies .25 below the truth of 1 on average.

    Args:
        mean (`Callable`, defaults to `privacy.sgd.noisy_mean`): what is audited; it is called as that is.
        clip_norm (`float`, defaults to 1): C.
        noise_multiplier (`float`, defaults to 1): noise in C; > 0.
        steps (`int`, defaults to 1000): on each side.
        delta (`float`, defaults to 1e-5): of the epsilon.
        confidence (`float`, defaults to 0.99): the probability with which right code is not accused, at least.
        seed (`int`, defaults to 0): of the model, the records and the noise: a public simulation.
    Returns:
        `GradientFinding`: `faults` is empty where all is as claimed.
    Raises:
        ConfigError: an argument is out of range.
        MissingExtra: torch is not installed.
    """
    check_seed(seed)
    return audit_steps(
        _model(mean, clip_norm, seed),
        clip_norm=clip_norm,
        noise_multiplier=noise_multiplier,
        steps=steps,
        delta=delta,
        confidence=confidence,
    )


def audit_steps(
    step: Step,
    *,
    clip_norm: float,
    noise_multiplier: float,
    steps: int = 1000,
    delta: float = 1e-5,
    confidence: float = 0.99,
) -> GradientFinding:
    """Take steps of a training of yours with and without one record, and compare them with what is claimed.

    Power: that of `audit_gradients`, with as many numbers for the scale of the noise as there are parameters.

    Args:
        step (`Callable`): `step(present, noise_multiplier, number)` returns the noisy sum of clipped gradients at
            parameters that are always the same, shape (n,): what an optimizer gets, times the expected batch size. It
            is called with noise multiplier 0 too. Its batch is everybody.
        clip_norm (`float`): C.
        noise_multiplier (`float`): noise in C; > 0.
        steps (`int`, defaults to 1000): on each side.
        delta (`float`, defaults to 1e-5): of the epsilon.
        confidence (`float`, defaults to 0.99): the probability with which right code is not accused, at least.
    Returns:
        `GradientFinding`: `faults` is empty where all is as claimed.
    Raises:
        ConfigError: an argument is out of range.
    Examples:
        >>> import numpy as np
        >>> from hf_dpsynth.audit import audit_steps
        >>> from hf_dpsynth.privacy.keys import public_generator
        >>> def step(present, noise_multiplier, number):
        ...     noise = public_generator(0, "doc", int(present), number).standard_normal(8)
        ...     return present * np.eye(8)[3] + noise_multiplier * noise
        >>> audit_steps(step, clip_norm=1.0, noise_multiplier=1.0, steps=200).violated
        False
        >>> audit_steps(step, clip_norm=0.5, noise_multiplier=2.0, steps=200).faults[0]
        'The canary moves the sum by 2 clip norms; at most 1 is accounted.'
    """
    check_delta(delta, least=1e-300)
    check_confidence(confidence)
    check_count("steps", steps, 20)
    if not (0 < clip_norm < math.inf and 0 < noise_multiplier < math.inf):
        raise ConfigError(f"clip_norm is {clip_norm}, noise_multiplier {noise_multiplier}; both are positive numbers")
    clean = [step(present, 0.0, 0) for present in (False, True)]
    noise = np.stack(
        [[step(present, noise_multiplier, number) for number in range(steps)] for present in (False, True)]
    )
    noise -= np.stack(clean)[:, None]
    scale = clip_norm * noise_multiplier
    away = clean[1] - clean[0]
    moved = float(np.linalg.norm(away))
    along = noise @ (away / max(moved, 1e-300))
    share = 1 - (1 - confidence) / 3
    rates = rates_finding(
        along[0],
        along[1] + moved,
        clip_norm / 2,
        attack="gradient canary",
        delta=delta,
        confidence=share,
        gaussian=True,
        claimed=gaussian_epsilon(1 / noise_multiplier, delta),
        limits=("Epsilon is that of one step whose batch is everybody.",),
    )
    low, high = _deviation(noise / scale, 1 - share)
    shared = audit_independence(noise.reshape(-1, noise.shape[2]), share)
    faults = _faults(rates, moved / clip_norm, (low, high), shared.violated)
    known = {name: getattr(rates, name) for name in RatesFinding.__dataclass_fields__}
    known |= {"confidence": confidence, "metric": "step_epsilon_lower"}  # no epsilon of a run, whose batches are drawn
    return GradientFinding(
        **known, moved=moved / clip_norm, noise_interval=(low, high), shared=shared.value, faults=faults
    )


def _model(mean: Mean, clip_norm: float, seed: int) -> Step:
    """Return a step of a linear model with squared loss: the gradient of a record (x, y) is (x.w - y) x."""
    torch: Any = need("torch", extra="models", what="the audit of gradients")
    draws = public_generator(seed, "gradient-audit", "records")
    weights = torch.zeros(_WIDTH)
    rows = draws.standard_normal((_RECORDS, _WIDTH))
    rows[:, 0] = 0.0
    answers = draws.standard_normal(_RECORDS)
    canary = np.zeros((1, _WIDTH))
    canary[0, 0] = 1.0

    def step(present: bool, noise_multiplier: float, number: int) -> np.ndarray:
        inputs = np.concatenate([rows, canary]) if present else rows
        wanted = np.append(answers, -1000.0 * clip_norm) if present else answers
        x, y = (torch.from_numpy(part).float() for part in (inputs, wanted))
        found = mean(
            [[(x @ weights - y)[:, None] * x]],
            [weights],
            clip_norm=clip_norm,
            noise_multiplier=noise_multiplier,
            batch_size=_RECORDS,
            generator=public_generator(seed, "gradient-audit", int(present), number),
        )
        return np.asarray(torch.cat([part.flatten() for part in found]).double().numpy() * _RECORDS)

    return step


def _deviation(draws: np.ndarray, miss: float) -> tuple[float, float]:
    """Return the interval of the standard deviation of normal noise of mean 0."""
    total, n = float((draws**2).sum()), draws.size
    return math.sqrt(total / chi2.isf(miss / 2, n)), math.sqrt(total / chi2.ppf(miss / 2, n))


def _faults(rates: RatesFinding, moved: float, noise: tuple[float, float], shared: bool) -> tuple[str, ...]:
    said = []
    if not moved <= 1 + _ROUNDING:
        said.append(f"The canary moves the sum by {moved:.4g} clip norms; at most 1 is accounted.")
    if not noise[0] <= 1 <= noise[1]:
        said.append(f"The noise has {noise[0]:.4g} to {noise[1]:.4g} times the standard deviation that is accounted.")
    if shared:
        said.append("Steps share noise, so that their difference has none.")
    if rates.violated:
        said.append(f"A step shows an epsilon of at least {rates.value:.4g}; {rates.claimed:.4g} is claimed.")
    return tuple(said)
