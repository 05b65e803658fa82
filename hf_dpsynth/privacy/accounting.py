"""Accounting: a tree of events becomes an epsilon, and an epsilon becomes a noise multiplier.

The noise that is drawn is what is accounted: integer votes go through the exact privacy loss distribution (PLD) of the
discrete Gaussian, events of dp-accounting through its own PLD. Every rounding goes against us: epsilon and the noise
multiplier are rounded up. The closed form of Gaussian DP is a starting point and a cross-check, never a claim.
Sources: Koskela, Jalko & Honkela 2020 and Doroshenko et al. 2022 (PLD); Canonne, Kamath & Steinke 2020; Dong, Roth &
Su 2022.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NeighboringRelation,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
)
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq
from scipy.stats import norm

from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.privacy.noise import DiscreteGaussianDpEvent
from hf_dpsynth.privacy.secrets import secret_allowance as secret_allowance

RELATIONS = {
    "add-remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "zero-out": NeighboringRelation.REPLACE_SPECIAL,
    "replace-one": NeighboringRelation.REPLACE_ONE,
}
_ZCDP_ORDERS = 1 + np.geomspace(1e-3, 1e7, 2000)
_RDP_ORDERS = np.unique(np.concatenate([1 + np.geomspace(1e-3, 1.0, 60), np.arange(2.0, 257.0), [384.0, 512.0]]))
_SMALLEST_EPSILON = 1e-4
_LARGEST_MULTIPLIER = 2e5  # the exact law of larger noise takes too long to write down
_SMALLEST_MULTIPLIER = 1e-4


def leaves(event: DpEvent) -> Counter[DpEvent]:
    """Flatten compositions into counts of single events, so that equal trees are accounted equally.

    Raises:
        PrivacyError: the tree has a negative count.
    """
    if isinstance(event, ComposedDpEvent):
        total: Counter[DpEvent] = Counter()
        for part in event.events:
            total.update(leaves(part))
        return total
    if isinstance(event, SelfComposedDpEvent):
        if event.count < 0:
            raise PrivacyError(f"an event is composed {event.count} times; the count must be >= 0")
        return Counter({leaf: count * event.count for leaf, count in leaves(event.event).items()})
    return Counter() if isinstance(event, NoOpDpEvent) else Counter({event: 1})


def extra_delta(event: DpEvent) -> float:
    """Return the probability with which an event promises nothing, which its delta must hold besides."""
    return math.fsum(getattr(leaf, "extra_delta", 0.0) * count for leaf, count in leaves(event).items())


def compose(counts: Counter[DpEvent]) -> DpEvent:
    """Return the composition of counted events: the inverse of `leaves`."""
    parts = [SelfComposedDpEvent(leaf, count) for leaf, count in counts.items() if count]
    return parts[0] if len(parts) == 1 else ComposedDpEvent(parts) if parts else NoOpDpEvent()


def interval(epsilon: float) -> float:
    """Return the discretisation of the loss for a target epsilon: 1e-4, finer below 1, coarser above 10."""
    return 1e-4 * min(1.0, epsilon) if epsilon <= 10 else 1e-5 * epsilon


def epsilon(event: DpEvent, delta: float, *, adjacency: str = "add-remove", discretisation: float = 1e-4) -> float:
    """Return the epsilon of an event at a delta by the privacy loss distribution; pessimistic.

    Args:
        event (`DpEvent`): the full event tree.
        delta (`float`): the probability of a larger loss.
        adjacency (`str`, defaults to `"add-remove"`): the neighbouring relation of events of dp-accounting. Our own
            events carry their relation in their `shifts`.
        discretisation (`float`, defaults to `1e-4`): the interval of the loss.
    Returns:
        `float`: epsilon, or infinity when an event is not private.
    Raises:
        PrivacyError: an event has no PLD under this relation.
    """
    counts = leaves(event)
    if any(isinstance(leaf, NonPrivateDpEvent) for leaf in counts):
        return math.inf
    if not counts:
        return 0.0
    return _pld_epsilon(frozenset(counts.items()), delta, adjacency, discretisation)


@lru_cache(maxsize=1024)
def _pld_epsilon(counts: frozenset[tuple[DpEvent, int]], delta: float, adjacency: str, discretisation: float) -> float:
    epsilon_at, _ = composed(counts, adjacency, discretisation)
    return float(epsilon_at(delta))


def composed(
    counts: frozenset[tuple[DpEvent, int]], adjacency: str, discretisation: float
) -> tuple[Callable[[float], float], Callable[[list[float]], Iterable[float]]]:
    """Return epsilon as a function of delta, and deltas as a function of several epsilons.

    Composed in a fixed order, so that equal events cost exactly the same whichever way their tree was built.
    """
    ordered = sorted(counts, key=repr)
    ours = [(leaf, count) for leaf, count in ordered if isinstance(leaf, DiscreteGaussianDpEvent)]
    others = [(leaf, count) for leaf, count in ordered if not isinstance(leaf, DiscreteGaussianDpEvent)]
    if not ours:
        event = compose(Counter(dict(ordered)))
        accountant = PLDAccountant(RELATIONS[adjacency], value_discretization_interval=discretisation)
        if not accountant.supports(event):
            raise PrivacyError(f"{_names(Counter(dict(others)))} has no privacy loss distribution under {adjacency}.")
        accountant.compose(event)
        return accountant.get_epsilon, accountant.get_delta
    parts = [_discrete_gaussian_pld(leaf, discretisation).self_compose(count) for leaf, count in ours]
    parts += [_gaussian_pld(leaf, adjacency, discretisation).self_compose(count) for leaf, count in others]
    total = reduce(lambda total, part: total.compose(part), parts)
    return total.get_epsilon_for_delta, total.get_delta_for_epsilon


def _names(counts: Counter[DpEvent]) -> str:
    return ", ".join(sorted({type(leaf).__name__ for leaf in counts}))


@lru_cache(maxsize=256)
def _discrete_gaussian_pld(event: DiscreteGaussianDpEvent, discretisation: float) -> Any:
    """One release: the product over the coordinates that move, each exact on the integers."""
    parts = [
        privacy_loss_distribution.from_discrete_gaussian_mechanism(
            event.sigma, sensitivity=shift, value_discretization_interval=discretisation
        )
        for shift in event.shifts
    ]
    return reduce(lambda total, part: total.compose(part), parts)


def _gaussian_pld(event: DpEvent, adjacency: str, discretisation: float) -> Any:
    """Return the PLD of a (Poisson-sampled) Gaussian that stands beside integer votes in one tree."""
    sampled = isinstance(event, PoissonSampledDpEvent)
    inner = event.event if sampled else event
    if not isinstance(inner, GaussianDpEvent) or adjacency == "replace-one":
        raise PrivacyError(f"{_names(Counter([event]))} cannot be accounted beside votes under {adjacency} adjacency.")
    return privacy_loss_distribution.from_gaussian_mechanism(
        inner.noise_multiplier,
        value_discretization_interval=discretisation,
        sampling_prob=event.sampling_probability if sampled else 1.0,
        neighboring_relation=RELATIONS[adjacency],
    )


def rdp_epsilon(event: DpEvent, delta: float, *, adjacency: str = "add-remove") -> float:
    """Return the epsilon of an event by Renyi DP, as budgets across runs add it up.

    Events that have a cost `rho` in zCDP enter with it. What an event says in `extra_delta`, a probability with which
    it promises nothing, is taken off `delta` first.

    Raises:
        PrivacyError: an event has no RDP under this relation.
    """
    counts = leaves(event)
    if any(isinstance(leaf, NonPrivateDpEvent) for leaf in counts):
        return math.inf
    delta -= extra_delta(event)
    if delta <= 0:
        return math.inf
    accountant = rdp_accountant(counts, adjacency)
    return float(accountant.get_epsilon(delta)) if counts else 0.0


def rdp_accountant(counts: Counter[DpEvent], adjacency: str) -> RdpAccountant:
    """Return an accountant that has composed events, each with its cost in zCDP where it has one.

    Raises:
        PrivacyError: an event has no RDP under this relation.
    """
    others = Counter({leaf: count for leaf, count in counts.items() if not hasattr(leaf, "rho")})
    rho = sum(leaf.rho * count for leaf, count in counts.items() if leaf not in others)
    if others and adjacency == "replace-one":
        raise PrivacyError(f"{_names(others)} has no RDP here under replace-one adjacency; use another relation.")
    relation = RELATIONS["zero-out" if adjacency == "replace-one" else adjacency]
    accountant = RdpAccountant(_RDP_ORDERS if others else _ZCDP_ORDERS, relation)
    if rho:
        accountant.compose(ZCDpEvent(rho))
    if not accountant.supports(compose(others)):
        raise PrivacyError(f"{_names(others)} has no RDP under {adjacency} adjacency.")
    absl, kept = logging.getLogger("absl"), lambda record: not str(record.msg).startswith("_compute_log_a_frac")
    absl.addFilter(kept)  # an order that does not converge is left out, and the bound stays valid
    try:
        accountant.compose(compose(others))
    finally:
        absl.removeFilter(kept)
    return accountant


def gaussian_mu(epsilon_target: float, delta: float) -> float:
    """Return mu of Gaussian DP at (epsilon, delta): delta = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2).

    For planning and cross-checks only.
    """

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        first = norm.logcdf(-epsilon_target / mu + mu / 2)
        second = epsilon_target + norm.logcdf(-epsilon_target / mu - mu / 2)
        return float(first + math.log(-math.expm1(min(second - first, -1e-300))) - math.log(delta))

    high = math.log(math.sqrt(2 * epsilon_target) + 10)
    return math.exp(brentq(excess, math.log(1e-12), high, xtol=1e-12))


def target_mu(epsilon_target: float, delta: float | None) -> float | None:
    """Return mu of Gaussian DP at a target, of which shares are given to parts of a mechanism; None without one."""
    return None if math.isinf(epsilon_target) or not delta else gaussian_mu(epsilon_target, delta)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of mu-Gaussian DP at delta: the inverse of `gaussian_mu`. For planning and advice only."""

    def excess(target: float) -> float:
        first = norm.cdf(-target / mu + mu / 2)
        return float(first - math.exp(min(700.0, target + norm.logcdf(-target / mu - mu / 2)))) - delta

    high = 1.0
    while excess(high) > 0:
        high *= 2
    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, high))


def round_up(value: float, digits: int = 5) -> float:
    """Round a positive number up to significant digits."""
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    rounded = float(f"{math.ceil(value / step) * step:.{digits}g}")
    return rounded if rounded >= value else float(f"{rounded + step:.{digits}g}")


def calibrate(
    make_event: Callable[[float], DpEvent],
    epsilon_target: float,
    delta: float,
    *,
    adjacency: str = "add-remove",
    account: str = "pld",
    start: float | None = None,
) -> float:
    """Return the smallest noise multiplier, rounded up, whose event costs at most epsilon at delta.

    Args:
        make_event (`Callable[[float], DpEvent]`): noise multiplier -> event; more noise must cost less.
        epsilon_target (`float`): the epsilon to reach.
        delta (`float`): the delta to reach it at.
        adjacency (`str`, defaults to `"add-remove"`): the neighbouring relation.
        account (`str`, defaults to `"pld"`): `"pld"`, `"zcdp"`, or `"rdp"` under a budget across runs.
        start (`float`, *optional*): a guess; from the closed form of Gaussian DP when missing.
    Returns:
        `float`: the noise multiplier with five significant digits.
    Raises:
        ConfigError: epsilon is below 1e-4, or no multiplier between 1e-4 and 2e5 reaches it.
    """
    if epsilon_target < _SMALLEST_EPSILON:
        raise ConfigError(
            f"epsilon is {epsilon_target:g}; the least that is resolved is {_SMALLEST_EPSILON:g}. Raise epsilon=."
        )
    discretisation = interval(epsilon_target)

    def cost(multiplier: float) -> float:
        if account in ("rdp", "zcdp"):
            return rdp_epsilon(make_event(multiplier), delta, adjacency=adjacency)
        return epsilon(make_event(multiplier), delta, adjacency=adjacency, discretisation=discretisation)

    fixed = (leaf.sigma for leaf in leaves(make_event(1.0)) if isinstance(leaf, DiscreteGaussianDpEvent))
    if max(fixed, default=0.0) > _LARGEST_MULTIPLIER:  # its table of probabilities would not fit into memory
        raise _too_much_noise(epsilon_target)
    if start is None:
        start = _guess(make_event(1.0), gaussian_mu(epsilon_target, delta))
    multiplier = round_up(_root(cost, epsilon_target, start))
    while cost(multiplier) > epsilon_target:
        multiplier = round_up(multiplier * (1 + 1e-5))
    return multiplier


def _guess(unit_event: DpEvent, mu: float) -> float:
    """Guess the noise multiplier that reaches mu of Gaussian DP, from the event at multiplier 1.

    The squared mu of releases of counts and of Gaussian steps add up; many sampled Gaussian steps tend to
    mu = q sqrt(T (e^(1/s^2) - 1)).
    """
    counts = leaves(unit_event)
    sampled = sum(
        leaf.sampling_probability**2 * count
        for leaf, count in counts.items()
        if isinstance(leaf, PoissonSampledDpEvent)
    )
    if sampled:
        # the noise of a step is a public multiple of the multiplier
        inner = (leaf.event for leaf in counts if isinstance(leaf, PoissonSampledDpEvent))
        unit = min(getattr(event, "noise_multiplier", 1.0) for event in inner)
        return 1 / (unit * math.sqrt(math.log1p(mu**2 / sampled)))
    steps = sum(count for leaf, count in counts.items() if isinstance(leaf, GaussianDpEvent))
    votes = sum(2 * getattr(leaf, "rho", 0.0) * count for leaf, count in counts.items())
    return math.sqrt((votes + steps) or 1.0) / mu


def _root(cost: Callable[[float], float], target: float, start: float) -> float:
    """Solve cost(multiplier) = target: a secant in logarithms, where cost is nearly linear, else bisection."""
    if start > _LARGEST_MULTIPLIER:
        raise _too_much_noise(target)
    x, step = math.log(start), 0.01
    value = _log_ratio(cost(start), target)
    for _ in range(8):
        nearer = x + step
        if not abs(nearer - math.log(start)) < 1.0:
            break
        following = _log_ratio(cost(math.exp(nearer)), target)
        if not math.isfinite(following - value) or following == value:
            break
        x, step = nearer, -following * step / (following - value)
        value = following
        if abs(step) < 2e-6:
            return math.exp(x + step)
    low, high = _bracket(cost, target, start)
    return math.exp(brentq(lambda log: cost(math.exp(log)) - target, math.log(low), math.log(high), xtol=2e-6))


def _too_much_noise(target: float) -> ConfigError:
    return ConfigError(
        f"epsilon={target:.6g} needs a noise multiplier above {_LARGEST_MULTIPLIER:g}. Raise epsilon= or delta=."
    )


def _log_ratio(cost: float, target: float) -> float:
    return math.log(cost / target) if 0 < cost < math.inf else math.nan


def _bracket(cost: Callable[[float], float], target: float, start: float) -> tuple[float, float]:
    """Return multipliers whose costs lie above and below the target, near the start."""
    low, high, factor = start / 1.02, start * 1.02, 1.05
    while cost(high) > target:
        low, high, factor = high, high * factor, factor**2
        if high > _LARGEST_MULTIPLIER:
            raise _too_much_noise(target)
    factor = 1.05
    while cost(low) <= target:
        if low < _SMALLEST_MULTIPLIER:
            raise ConfigError(f"epsilon={target:.6g} needs next to no noise. Use epsilon=float('inf') to say so.")
        low, high, factor = low / factor, low, factor**2
    return low, high
