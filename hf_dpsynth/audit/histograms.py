"""Picks from small histograms, enumerated: every output with its probability, the empty one included.

For every histogram of a few votes and every neighbour of it, the least delta at an epsilon is the hockey-stick
divergence of the two laws. Nothing is drawn: what is found is exact. An output is a tuple of the candidates picked, in
order; the empty tuple is an output like any other, and a law that leaves it out is none.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from hf_dpsynth.audit.findings import Finding, check_delta
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import check_count
from hf_dpsynth.privacy.limited_domain import LimitedDomainDpEvent, threshold

Law = Mapping[tuple[int, ...], float]
Votes = tuple[int, ...]
_MOST = 700.0  # above it exp(epsilon) is no float64


def gumbel_law(
    votes: Sequence[int], domain: int, picks: int, scale: float, margin: float
) -> dict[tuple[int, ...], float]:
    """Return the law of picks from the `domain` most voted, each in proportion to exp(votes / scale), in order.

    Picking stops at a threshold that stands among them, `margin` above the first that is out of the domain.

    Args:
        votes (`Sequence[int]`): of each candidate.
        domain (`int`): how many can be picked.
        picks (`int`): how many are picked at most.
        scale (`float`): the scale of the Gumbel noise.
        margin (`float`): the height of the threshold.
    Examples:
        >>> law = gumbel_law((2, 0), 1, 1, 1.0, 2.0)
        >>> {picked: round(share, 3) for picked, share in law.items()}
        {(0,): 0.5, (): 0.5}
    """
    order = sorted(range(len(votes)), key=lambda row: (-votes[row], row))
    ranked = sorted(votes, reverse=True)
    following = ranked[domain] if domain < len(ranked) else 0
    inside = order[:domain]
    weights: dict[int | None, float] = {row: math.exp((votes[row] - following - margin) / scale) for row in inside}
    weights[None] = 1.0
    found: dict[tuple[int, ...], float] = {}

    def walk(left: list[int | None], picked: tuple[int, ...], probability: float) -> None:
        if len(picked) == picks:
            found[picked] = probability
            return
        for row in left:
            share = probability * weights[row] / sum(weights[one] for one in left)
            if row is None:
                found[picked] = share
            else:
                walk([one for one in left if one != row], (*picked, row), share)

    walk([*inside, None], (), 1.0)
    return found


def limited_domain_law(
    votes: Sequence[int], event: LimitedDomainDpEvent, domain: int, labels: int = 1
) -> dict[tuple[int, ...], float]:
    """Return the law of `privacy.limited_domain` of this event, in one of so many histograms."""
    return gumbel_law(votes, domain, event.picks, event.moves / event.epsilon, threshold(event, labels))


def hockey_stick(one: Law, other: Law, epsilon: float) -> float:
    """Return the least delta at an epsilon between two laws, one way."""
    return sum(max(0.0, share - math.exp(epsilon) * other.get(out, 0.0)) for out, share in one.items())


def neighbours(votes: Votes, adjacency: str) -> Iterator[Votes]:
    """Yield the histograms that one vote more gives, or one vote at another candidate under replace-one."""
    for row, other in itertools.product(range(len(votes)), repeat=2):
        more = list(votes)
        more[row] += 1
        if adjacency == "replace-one" and row != other and votes[other]:
            more[other] -= 1
        elif adjacency == "replace-one" or row != other:
            continue
        yield tuple(more)


def audit_histograms(
    law: Callable[[Votes], Law],
    adjacency: str,
    epsilon: float,
    delta: float,
    *,
    candidates: int = 3,
    most: int = 3,
) -> Finding:
    """Return the least delta at an epsilon over all small histograms and all neighbours of them, both ways.

    Args:
        law (`Callable`): the law of a histogram: outputs, the empty tuple among them, with probabilities.
        adjacency (`str`): the neighbouring relation: `"add-remove"`, `"zero-out"` or `"replace-one"`.
        epsilon (`float`): the claim.
        delta (`float`): its delta.
        candidates (`int`, defaults to 3): of a histogram.
        most (`int`, defaults to 3): votes of a candidate.
    Returns:
        `Finding`: exact for these histograms; larger ones are not looked at.
    Raises:
        ConfigError: a law does not sum to 1, as when the empty output was left out, or an argument is out of range.
    Examples:
        >>> from hf_dpsynth.audit import audit_histograms
        >>> from hf_dpsynth.audit.histograms import limited_domain_law
        >>> from hf_dpsynth.privacy.limited_domain import LimitedDomainDpEvent
        >>> event = LimitedDomainDpEvent(1.0, 1, 0.01, 1)
        >>> found = audit_histograms(lambda votes: limited_domain_law(votes, event, 1), "add-remove", 1.0, 0.01)
        >>> round(found.value, 5), found.violated
        (0.0099, False)
    """
    check_delta(delta)
    if not 0 <= epsilon <= _MOST:
        raise ConfigError(f"epsilon is {epsilon}; it is a number from 0 to {_MOST:g}")
    check_count("candidates", candidates, 1)
    check_count("most", most, 1)
    if adjacency not in ("add-remove", "zero-out", "replace-one"):
        raise ConfigError(f"adjacency is {adjacency!r}; it is 'add-remove', 'zero-out' or 'replace-one'")
    known: dict[Votes, Law] = {}

    def of(votes: Votes) -> Law:
        if votes not in known:
            known[votes] = law(votes)
            total = sum(known[votes].values())
            if not abs(total - 1) < 1e-9 or min(known[votes].values()) < 0:
                raise ConfigError(
                    f"the law of the votes {votes} sums to {total:.6g}; it must list every output with its "
                    "probability >= 0, the empty output too"
                )
        return known[votes]

    value, pairs = 0.0, 0
    for votes in itertools.product(range(most + 1), repeat=candidates):
        for other in neighbours(votes, adjacency):
            pairs += 1
            both = of(votes), of(other)
            value = max(value, hockey_stick(*both, epsilon), hockey_stick(*both[::-1], epsilon))
    return Finding(
        attack=f"all histograms of up to {most} votes for {candidates} candidates",
        metric="delta_at_epsilon",
        value=value,
        interval=(value, value),
        n=pairs,
        confidence=1.0,
        delta=delta,
        claimed=delta * (1 + 1e-9) + 1e-12,
        limits=(f"Epsilon is {epsilon:g}; larger histograms were not looked at.",),
    )
