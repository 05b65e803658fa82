"""Pictures of a card, from the facts alone: what the claim means, and what its loss was spent on.

Everything is computed from the events of privacy.json and drawn as SVG text, so who has the facts has the pictures. No
name that a user chose stands in one.
"""

import math
from collections import Counter
from functools import lru_cache
from typing import Any

from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent

from hf_dpsynth.figures.vector import Axis, bars, curve
from hf_dpsynth.guarantees import digits
from hf_dpsynth.privacy.accounting import compose, epsilon, leaves, rdp_epsilon, round_up
from hf_dpsynth.privacy.event_json import event_from_json
from hf_dpsynth.privacy.limited_domain import LimitedDomainDpEvent
from hf_dpsynth.privacy.noise import DiscreteGaussianDpEvent
from hf_dpsynth.privacy.picks import BoundedRangeDpEvent
from hf_dpsynth.privacy.profiles import profile
from hf_dpsynth.privacy.secrets import reached
from hf_dpsynth.privacy.user_votes import ClippedSumDpEvent
from hf_dpsynth.publish import accounts, protection

FIGURES = "figures"
PRIVACY, SPLIT = f"{FIGURES}/privacy.svg", f"{FIGURES}/split.svg"
_STEPS = 48
_COARSER = 5
_MOST_BARS = 8
_LEAST = 1e-12  # below it, a delta is the rounding of a transform
_ODDS = 4  # powers of ten of the odds that are shown at least
_READABLE = math.log(1e7)
_Picture = tuple[bytes, str]


def pictures(facts: dict[str, Any]) -> dict[str, bytes]:
    """Return the pictures of a release by their path beside its card.

    Args:
        facts (`dict`): the content of a privacy.json that `accounts.check` found nothing wrong with.
    Returns:
        `dict[str, bytes]`: SVG; none where nothing is claimed. Public.
    """
    return {name: svg for name, (svg, _) in _drawn(facts).items()}


def captions(facts: dict[str, Any]) -> dict[str, str]:
    """Return what each picture of `pictures` shows, in words."""
    return {name: words for name, (_, words) in _drawn(facts).items()}


def _drawn(facts: dict[str, Any]) -> dict[str, _Picture]:
    if facts["claim_status"] == "none":
        return {}
    event = event_from_json(facts["accounting"]["events"])
    parameters = facts["parameters"]
    found: dict[str, _Picture | None] = {}
    if parameters["metric_dp"] is not None:
        found[PRIVACY] = _odds(parameters["metric_dp"]["scale"], parameters["metric_dp"]["unit"])
    elif facts["definition"] == protection.DEFINITION:
        stated = parameters[protection.DEFINITION]
        found[PRIVACY] = _guesses(stated["p"], stated["r"], event)
    elif facts["definition"] == "approximate_dp" and not accounts.excess(leaves(event), _interval(facts)):
        claim = (parameters["epsilon"], parameters["delta"])
        account = (facts["accounting"]["accountant"], facts["adjacency"].replace("_", "-"), _interval(facts))
        counts = frozenset(leaves(event).items())
        found[PRIVACY], found[SPLIT] = _profile(counts, claim, account), _split(counts, claim, account)
    return {name: drawn for name, drawn in found.items() if drawn is not None}


def _interval(facts: dict[str, Any]) -> float:
    """Return a coarser interval than that of the claim: pessimistic by a few tenths of a percent, and faster."""
    return _COARSER * float(facts["accounting"]["discretisation"]["interval"] or 1e-4)


def _shown(value: float) -> str:
    """Return a number with two digits, rounded up."""
    return "0" if value == 0 else digits(round_up(value, 2))


def _powers(low: int, high: int) -> tuple[tuple[float, str], ...]:
    """Return at most eight ticks at powers of ten of an axis of logarithms."""
    step = max(1, math.ceil((high - low) / 8))
    powers = range(high, low - 1, -step)
    return tuple((float(power), digits(10.0**power) if abs(power) < 5 else f"1e{power}") for power in powers)


@lru_cache(maxsize=64)
def _profile(
    counts: frozenset[tuple[DpEvent, int]], claim: tuple[float, float], account: tuple[str, str, float]
) -> _Picture | None:
    """Draw delta against epsilon: the claim is one point of the curve, or lies above it."""
    stated, delta = claim
    kind, adjacency, interval = account
    most = 2 * stated
    at = tuple(most * step / _STEPS for step in range(_STEPS + 1))
    found = profile(compose(Counter(dict(counts))), at, adjacency=adjacency, account=kind, discretisation=interval)
    low = max(math.floor(math.log10(max(delta, _LEAST))) - 2, round(math.log10(_LEAST)))
    points = [(x, math.log10(max(y, 10.0**low / 10))) for x, y in zip(at, found, strict=True)]
    inside = [point for point in points if point[1] >= low]
    quarter, half = (found[_STEPS * share // 8] for share in (1, 2))
    alt = (
        "Delta against DP epsilon, by the events of this release. The claim is the marked point: DP epsilon = "
        f"{digits(stated)} at delta = {digits(delta)}. The same release has delta {_shown(half)} at half of that "
        f"epsilon and {_shown(quarter)} at a quarter of it."
    )
    across = Axis(name="DP epsilon", low=0.0, high=most, ticks=tuple((x, f"{x:.3g}") for x in at[:: _STEPS // 4]))
    up = Axis(name="delta", low=low, high=0, ticks=_powers(low, 0))
    mark = (stated, math.log10(delta), "the claim")
    return (curve("Privacy profile", alt, across, up, inside, mark), alt) if len(inside) > 1 else None


@lru_cache(maxsize=64)
def _split(
    counts: frozenset[tuple[DpEvent, int]], claim: tuple[float, float], account: tuple[str, str, float]
) -> _Picture | None:
    """Draw what each kind of event would cost alone, above what all cost together."""
    if len(counts) < 2:
        return None
    # a part costs at most what all cost, which a coarser interval may hide
    costs = [(min(claim[0], _cost(leaf, count, claim[1], account)), _name(leaf, count)) for leaf, count in counts]
    costs.sort(key=lambda pair: (-round(pair[0], 6), pair[1]))
    rows = [(name, cost, _shown(cost)) for cost, name in costs[:_MOST_BARS]]
    together = ("all together (the claim)", claim[0], digits(claim[0]))
    more = f" and {len(costs) - len(rows)} more kinds" if len(costs) > len(rows) else ""
    listed = "; ".join(f"{name}: {shown}" for name, _, shown in rows)
    alt = (
        f"DP epsilon at delta = {digits(claim[1])} that each kind of event would cost alone. {listed}{more}. Together "
        f"they cost at most {digits(claim[0])}, the claim: losses do not add up."
    )
    return bars("What the loss was spent on", alt, "DP epsilon alone", [*rows, together]), alt


def _cost(leaf: DpEvent, count: int, delta: float, account: tuple[str, str, float]) -> float:
    kind, adjacency, interval = account
    event = compose(Counter({leaf: count}))
    if kind != "pld":
        return rdp_epsilon(event, delta, adjacency=adjacency)
    return epsilon(event, delta, adjacency=adjacency, discretisation=interval)


def _name(leaf: DpEvent, count: int) -> str:
    """Return in a few words what an event is."""
    if isinstance(leaf, PoissonSampledDpEvent) and isinstance(leaf.event, GaussianDpEvent):
        return f"{count} x a sampled sum, noise {leaf.event.noise_multiplier:.4g}"
    if isinstance(leaf, GaussianDpEvent):
        return f"{count} x a pass, noise {leaf.noise_multiplier:.4g}"
    if isinstance(leaf, DiscreteGaussianDpEvent):
        return f"{count} x counts, sigma {leaf.sigma:.4g}"
    if isinstance(leaf, ClippedSumDpEvent):
        return f"{count} x counts of users, sigma {leaf.sigma:.4g}"
    if isinstance(leaf, BoundedRangeDpEvent):
        return f"{count} x a pick, range {leaf.epsilon:.4g}"
    if isinstance(leaf, LimitedDomainDpEvent):
        return f"{count} x an order, {leaf.epsilon:.4g} a pick"
    return f"{count} x {type(leaf).__name__.removesuffix('DpEvent')}"


def _odds(scale: float, unit: str) -> _Picture:
    """Draw the worst odds of metric DP against distance."""
    most = max(_ODDS * math.log(10) / scale, 1.0)
    high = math.ceil(scale * most / math.log(10) - 1e-9)
    # a round distance that lies on the line
    step = float(f"{most / 4:.1g}")
    ticks = tuple((step * at, f"{step * at:.3g}") for at in range(5) if step * at <= most)
    near, far = ticks[1][0], ticks[-1][0]
    alt = (
        f"Worst odds against distance: how many times likelier an output is for one {_PLAIN.get(unit, 'unit')} than "
        f"for another. They are exp({digits(scale)} x distance): {_large(scale * near)} at distance {near:.3g} and "
        f"{_large(scale * far)} at distance {far:.3g}. Nothing bounds them at large distances."
    )
    across = Axis(name="distance", low=0.0, high=most, ticks=ticks)
    up = Axis(name="worst odds", low=0, high=high, ticks=_powers(0, high))
    points = [(0.0, 0.0), (most, scale * most / math.log(10))]
    return curve("Worst odds of metric DP", alt, across, up, points), alt


_PLAIN = {"word": "word", "text": "text"}


def _large(loss: float) -> str:
    """Return exp(loss), rounded up."""
    if loss > _READABLE:
        return f"10^{math.ceil(loss / math.log(10))}"
    return f"{math.ceil(math.exp(loss) * 10) / 10:,.1f}"


def _guesses(p: float, r: float, event: DpEvent) -> _Picture | None:
    """Draw the bound on a guess of a secret after the release against the guess before it."""
    allowances = [leaf.allowances[0] for leaf in leaves(event) if getattr(leaf, "allowances", ())]
    if not allowances:
        return None
    low = math.floor(math.log10(p)) - 1
    before = [low - low * step / _STEPS for step in range(_STEPS + 1)]
    points = [(x, math.log10(min(1.0, reached(10.0**x, max(allowances), event)))) for x in before]
    alt = (
        "The bound on guessing a listed secret after the release against the guess before it, both on a scale of "
        f"powers of ten. The claim is the marked point: at most {digits(p)} before and at most {digits(r)} after."
    )
    across = Axis(name="probability of a guess before", low=low, high=0, ticks=_powers(low, 0))
    up = Axis(name="probability after, at most", low=low, high=0, ticks=_powers(low, 0))
    return curve("Guesses of a secret", alt, across, up, points, (math.log10(p), math.log10(r), "the claim")), alt
