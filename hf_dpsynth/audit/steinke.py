"""The one-run audit: many canaries, each included or not by a fair coin, and one run that all of them share.

An attacker guesses some coins, and abstains from the others. Under (epsilon, delta)-DP the number of right ones is
hardly more than that of a randomized response. With r guesses on m canaries, q = e^epsilon / (1 + e^epsilon),
W ~ Binomial(r, q), at least v are right with probability at most

    P(W >= v) + 2 m delta max_{1 <= i <= v} P(v - i <= W < v) / i,

and the bound is the largest epsilon for which that is below 1 - confidence. The number of guesses is fixed before
scores are seen, or several numbers share 1 - confidence (a union bound). A canary that stands for k records is a
group: under (epsilon, delta)-DP of a record it has k epsilon and delta (1 + e^epsilon + ... + e^((k - 1) epsilon)),
and those take the place of both above, so that the bound is still one for a record. Source: Steinke, Nasr &
Jagielski 2023, arXiv:2305.08846, section 5 and Appendix D; the number of guesses by a public rule is ours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binom

from hf_dpsynth.audit.findings import EPSILON_LOWER, Finding, check_confidence, check_delta, numbers
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import check_count, check_seed
from hf_dpsynth.privacy.keys import public_generator

_SHARE, _LEAST_GUESSES = 10, 20
_MOST = 100.0
_UNFAIR = 1e-9


@dataclass(frozen=True, kw_only=True)
class OneRun(Finding):
    """A lower bound on epsilon from one run. `n` is the number of canaries.

    Args:
        m (`int`): canaries.
        guesses (`int`): how many of them were guessed.
        correct (`int`): how many guesses were right.
        tried (`tuple[int, ...]`): the numbers of guesses that share the confidence.
    """

    m: int
    guesses: int
    correct: int
    tried: tuple[int, ...]

    @property
    def epsilon_lower(self) -> float:
        """The bound on epsilon at delta."""
        return self.value


def one_run(
    scores: Sequence[float] | np.ndarray,
    included: Sequence[bool] | np.ndarray,
    delta: float,
    confidence: float,
    *,
    guesses: int | Sequence[int] | None = None,
    claimed_epsilon: float | None = None,
    included_share: float = 0.5,
    copies: int = 1,
    seed: int = 0,
    uses_private_data: bool = True,
) -> OneRun:
    """Bound epsilon from the scores of canaries after one run, where a larger score says that it was included.

    Half of the guesses, for the largest scores, say included, the other half, for the smallest, left out, and what
    lies between is not guessed; another share by `included_share`. Equal scores are taken in a public random order.

    Every canary must have been included by a fair coin of its own, and the scores be made from the run's output alone.

    Power: a Gaussian mechanism of epsilon 4 at delta 1e-5 with 1000 canaries that do not disturb each other gives, in
    2000 simulated audits at confidence 0.95, 1.53 on average with 100 guesses, 1.52 with 50, 1.40 with 200, 0.63 with
    1000; at confidence 0.99 and 100 guesses 1.33. Most of what is missing to 4 is missing whatever the number of
    canaries.

    Args:
        scores (`Sequence[float]`): of the m canaries, shape (m,).
        included (`Sequence[bool]`): their coins, shape (m,).
        delta (`float`): the delta; 0 is allowed.
        confidence (`float`): e.g. 0.95.
        guesses (`int` or `Sequence[int]`, *optional*): how many canaries to guess, chosen before any score is seen; of
            several numbers the best counts, and each has an equal share of 1 - confidence. When missing, a tenth of
            the canaries, at least 20: a rule that reads m alone.
        claimed_epsilon (`float`, *optional*): the claim at delta, for one record.
        included_share (`float`, defaults to 0.5): the share of the guesses that say included. 1 where a large score
            is a sure sign and a small one says little. Chosen before any score is seen.
        copies (`int`, defaults to 1): records that an included canary stands for.
        seed (`int`, defaults to 0): of the order of equal scores. Public.
        uses_private_data (`bool`, defaults to `True`): whether the scores come from private records.
    Returns:
        `OneRun`: the bound, and the guesses that it rests on.
    Raises:
        ConfigError: scores are equal or not finite, no fair coins were thrown, or an argument is out of range.
    Examples:
        >>> from hf_dpsynth.audit import one_run
        >>> coins = [bool(place % 3) for place in range(60)]
        >>> found = one_run(scores=[float(coin) for coin in coins], included=coins, delta=1e-5, confidence=0.95)
        >>> found.guesses, found.correct, round(found.epsilon_lower, 3)
        (20, 20, 1.821)
    """
    check_delta(delta)
    check_confidence(confidence)
    check_seed(seed)
    check_count("copies", copies, 1)
    if isinstance(included_share, bool) or not 0 <= included_share <= 1:
        raise ConfigError(f"included_share is {included_share!r}; it is a number from 0 to 1")
    values, coins = _checked(scores, included)
    m = len(values)
    tried = _tried(guesses, m)
    order = public_generator(seed, "one-run-ties").permutation(m)
    order = order[np.argsort(values[order], kind="stable")]
    found = []
    for number in tried:
        low = int(number * (1 - included_share))
        high = number - low
        correct = int((~coins[order[:low]]).sum() + coins[order[m - high :]].sum())
        found.append(
            (epsilon_bound(m, number, correct, delta, (1 - confidence) / len(tried), copies), number, correct)
        )
    value, number, correct = max(found, key=lambda one: one[0])
    return OneRun(
        attack="one run with canaries",
        metric=EPSILON_LOWER,
        value=value,
        interval=(value, math.inf),
        n=m,
        confidence=confidence,
        delta=delta,
        claimed=claimed_epsilon,
        limits=_limits(m, tried, delta, confidence, copies),
        uses_private_data=uses_private_data,
        m=m,
        guesses=number,
        correct=correct,
        tried=tried,
    )


def p_value(m: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Bound the probability of so many right guesses under (epsilon, delta)-DP.

    Args:
        m (`int`): canaries.
        guesses (`int`): r.
        correct (`int`): v.
        epsilon (`float`): the claim.
        delta (`float`): its delta.
    """
    q = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(correct - 1, guesses, q))
    if delta == 0 or correct == 0:
        return tail
    below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, q))
    return min(1.0, tail + 2 * m * delta * float((below / np.arange(1, correct + 1)).max()))


def epsilon_bound(m: int, guesses: int, correct: int, delta: float, miss: float, copies: int = 1) -> float:
    """Return the largest epsilon that so many right guesses refute with error probability `miss`; 0 where none is.

    Args:
        m (`int`): canaries.
        guesses (`int`): r.
        correct (`int`): v.
        delta (`float`): of one record.
        miss (`float`): the probability of being wrong.
        copies (`int`, defaults to 1): records that a canary stands for.
    """

    def refuted(epsilon: float) -> bool:
        return p_value(m, guesses, correct, copies * epsilon, group_delta(delta, epsilon, copies)) < miss

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, _MOST / copies
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def group_delta(delta: float, epsilon: float, copies: int) -> float:
    """Return the delta of `copies` records together, at `copies` epsilon, where one has (epsilon, delta); at most 1.

    Examples:
        >>> round(group_delta(1e-5, 1.0, 3), 7)
        0.0001111
    """
    return min(1.0, delta * sum(math.exp(min(place * epsilon, _MOST)) for place in range(copies)))


def _checked(scores: Any, included: Any) -> tuple[np.ndarray, np.ndarray]:
    values, coins = numbers("scores", scores), np.asarray(included)
    if values.ndim != 1 or values.shape != coins.shape or not len(values):
        raise ConfigError(f"scores= has shape {values.shape}, included= {coins.shape}; each canary has one of both")
    if not np.isfinite(values).all():
        raise ConfigError("scores= holds a number that is not finite. Leave out no canary: give it a score.")
    if coins.dtype != np.bool_ and not np.isin(coins, (0, 1)).all():
        raise ConfigError("included= holds something else than True and False")
    coins, m = coins.astype(np.bool_), len(values)
    inside = int(coins.sum())
    if inside in (0, m):
        raise ConfigError(
            f"{inside} of {m} canaries were included, so there is nothing to guess. Include each by a fair coin."
        )
    if 2 * binom.cdf(min(inside, m - inside), m, 0.5) < _UNFAIR:
        raise ConfigError(
            f"{inside} of {m} canaries were included; fair coins do that less than once in 10^9 runs. The bound holds "
            "for canaries that were each included by a fair coin."
        )
    if np.ptp(values) == 0:
        raise ConfigError("all scores are equal: they tell nothing of who was included. Pass another score.")
    return values, coins


def _tried(guesses: Any, m: int) -> tuple[int, ...]:
    if guesses is None:
        return (min(m, max(_LEAST_GUESSES, m // _SHARE)),)
    numbers = tuple(guesses) if isinstance(guesses, (list, tuple, range)) else (guesses,)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or not 1 <= number <= m:
            raise ConfigError(
                f"guesses= holds {number!r}; there are {m} canaries, so it is a whole number from 1 to {m}"
            )
    if not numbers:
        raise ConfigError("guesses= is empty; pass a number of canaries to guess, or several")
    return tuple(sorted({int(number) for number in numbers}))


def _limits(m: int, tried: tuple[int, ...], delta: float, confidence: float, copies: int) -> tuple[str, ...]:
    said = []
    if len(tried) > 1:
        said.append(f"The best of {len(tried)} numbers of guesses, which share 1 - confidence.")
    if copies > 1:
        said.append(f"Each canary stands for {copies} records; the bound is for one, by group privacy.")
    if all(epsilon_bound(m, number, number, delta, (1 - confidence) / len(tried), copies) == 0 for number in tried):
        said.append(
            f"{m} canaries with {tried[-1]} guesses are too few for any claim at this delta and confidence: had every "
            "guess been right, the bound would still be 0."
        )
    return tuple(said)
