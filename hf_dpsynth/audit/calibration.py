"""The largest epsilon at which most public words are plausibly deniable.

A quantile q of words is plausibly deniable where quantile_q(N_w) <= 50: that share of words comes out as itself in at
most half of the draws. Found by bisection with common random numbers: every epsilon sees the same words and the same
noise, scaled. For a nearest-word search N_w is then a monotone function of epsilon, for other laws nearly one.
Reads public words only. Source: Arnold et al. 2023, arXiv:2306.01471.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_dpsynth.audit.deniability import Deniability
from hf_dpsynth.audit.words import Source, Study, figures, prepare
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word.base import WordMechanism
from hf_dpsynth.metrics.plausible_deniability import AMONG, MOST_SELF

LEAST, MOST = 1e-3, 1e4
_START, _STEP = 10.0, 4.0


@dataclass(frozen=True)
class Step:
    """One epsilon that was tried, and what it gave.

    Args:
        epsilon (`float`): the scale.
        self_substitution (`float`): the quantile of N_w, in %.
        distinct (`float`): the opposite quantile of S_w.
        holds (`bool`): whether both are within their limits.
    """

    epsilon: float
    self_substitution: float
    distinct: float
    holds: bool


@dataclass(frozen=True, kw_only=True, repr=False)
class Calibration:
    """An epsilon chosen by plausible deniability. Public.

    Args:
        epsilon (`float`): the largest scale found at which the limits hold.
        quantile (`float`): the share of words that they hold for.
        most_self (`float`): the limit of N_w, in %.
        least_distinct (`float`, *optional*): the limit of S_w.
        tolerance (`float`): the relative width of what was left to search.
        trace (`tuple[Step, ...]`): what was tried, in order.
        deniability (`Deniability`): the study at `epsilon`.
    """

    epsilon: float
    quantile: float
    most_self: float
    least_distinct: float | None
    tolerance: float
    trace: tuple[Step, ...]
    deniability: Deniability

    def __repr__(self) -> str:
        return (
            f"Calibration(epsilon={self.epsilon:.4g}: {100 * self.quantile:g} % of words have N_w <= "
            f"{self.most_self:g} %; {len(self.trace)} tried; {self.deniability!r})"
        )


@dataclass(frozen=True, eq=False)
class _Target:
    """What must hold, and the words and noise that it is measured on."""

    study: Study
    quantile: float
    most_self: float
    least_distinct: float | None

    def try_out(self, epsilon: float) -> tuple[Step, np.ndarray]:
        """Return what a scale gives, and its draws."""
        outputs = self.study.outputs(epsilon)
        own, distinct = figures(self.study.rows, outputs)
        high = float(np.quantile(own, self.quantile))
        low = float(np.quantile(distinct, 1 - self.quantile))
        holds = high <= self.most_self and (self.least_distinct is None or low >= self.least_distinct)
        return Step(epsilon, high, low, holds), outputs


def calibrate(
    mechanism: str | WordMechanism,
    *,
    quantile: float = 0.9,
    most_self: float = MOST_SELF,
    least_distinct: float | None = None,
    words: int | Sequence[str] = 250,
    draws: int = 100,
    params: Mapping[str, Any] | None = None,
    vectors: Source | None = None,
    tolerance: float = 0.02,
    seed: int = 0,
) -> Calibration:
    """Find the largest epsilon at which a quantile of public words is plausibly deniable.

    Args:
        mechanism (`str` or an instance): a word mechanism.
        quantile (`float`, defaults to 0.9): the share of words that the limits hold for.
        most_self (`float`, defaults to 50): the most that N_w may be, in %.
        least_distinct (`float`, *optional*): the least that S_w may be, among `draws` draws (at most 100).
        words (`int` or `Sequence[str]`, defaults to 250): how many words to draw in public, or which. Public.
        draws (`int`, defaults to 100): substitutes to draw for each word.
        params (`Mapping`, *optional*): fields of the mechanism, with its name.
        vectors (`str`, path or `WordVectors`, *optional*): the word vectors; `"glove-50d"` when missing. Public.
        tolerance (`float`, defaults to 0.02): the search ends when a scale that is larger by this share fails.
        seed (`int`, defaults to 0): the seed of the public choice of words.
    Returns:
        `Calibration`: the epsilon, what was tried, and the study at it. Another call draws other noise, so its epsilon
        differs by the sampling error of the quantile.
    Raises:
        ConfigError: an argument is out of range, `words` is no public choice, or no epsilon in [0.001, 10000] is on
            the edge: the limits hold at none of them, or at all.
    Examples:
        >>> from hf_dpsynth.audit import calibrate
        >>> found = calibrate("madlib", words=["doctor", "london", "quickly"], draws=20, tolerance=0.5)
        >>> 1 < found.epsilon < 30, found.trace[0].epsilon
        (True, 10.0)
    """
    _check(quantile, most_self, least_distinct, draws, tolerance)
    study = prepare(mechanism, words, draws, params, vectors=vectors, seed=seed, key=None)
    target = _Target(study, quantile, most_self, least_distinct)
    trace: list[Step] = []
    best, failing = _bracket(target, trace)
    low, outputs = best
    while failing > low * (1 + tolerance):
        step, drawn = target.try_out(math.sqrt(low * failing))
        trace.append(step)
        if step.holds:
            low, outputs = step.epsilon, drawn
        else:
            failing = step.epsilon
    return Calibration(
        epsilon=low,
        quantile=quantile,
        most_self=most_self,
        least_distinct=least_distinct,
        tolerance=tolerance,
        trace=tuple(trace),
        deniability=study.at(low, outputs),
    )


def _bracket(target: _Target, trace: list[Step]) -> tuple[tuple[float, np.ndarray], float]:
    """Return a scale at which the limits hold, with its draws, and a larger one at which they do not.

    Raises:
        ConfigError: there are none.
    """
    epsilon = _START
    best: tuple[float, np.ndarray] | None = None
    failing: float | None = None
    while best is None or failing is None:
        step, outputs = target.try_out(epsilon)
        trace.append(step)
        if step.holds:
            best = epsilon, outputs
        else:
            failing = epsilon
        if epsilon in (LEAST, MOST) and (best is None or failing is None):
            _raise_for_edge(target, step)
        epsilon = min(epsilon * _STEP, MOST) if step.holds else max(epsilon / _STEP, LEAST)
    return best, failing


def _raise_for_edge(target: _Target, step: Step) -> None:
    name, share = target.study.mechanism.name, f"{100 * target.quantile:g} %"
    found = f"N_w is {step.self_substitution:.3g} % and S_w {step.distinct:.3g} there"
    if step.holds:
        raise ConfigError(
            f"{name} keeps {share} of words plausibly deniable up to epsilon {MOST:g} ({found}), so deniability sets "
            "no epsilon. Lower most_self=, or raise quantile=."
        )
    raise ConfigError(
        f"{name} keeps {share} of words plausibly deniable at no epsilon down to {LEAST:g} ({found}). Words may be "
        "copied by its parameters, or the vocabulary too small; lower quantile=, raise most_self= or leave "
        "least_distinct= out."
    )


def _check(quantile: float, most_self: float, least_distinct: float | None, draws: int, tolerance: float) -> None:
    """Refuse what is out of range; NaN is in no range."""
    if not 0 <= quantile <= 1:
        raise ConfigError(f"quantile is {quantile}; it lies between 0 and 1")
    if not 0 <= most_self < 100:
        raise ConfigError(f"most_self is {most_self}; it is a share in %, at least 0 and below 100")
    if not 1e-4 <= tolerance < math.inf:
        raise ConfigError(f"tolerance is {tolerance}; it is a relative width of at least 0.0001")
    most = min(draws, AMONG)
    if least_distinct is not None and not 1 <= least_distinct <= most:
        raise ConfigError(f"least_distinct is {least_distinct}; with draws={draws} it lies between 1 and {most}")
