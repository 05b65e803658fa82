"""The limited domain: the most voted of all candidates, picked without knowing which candidates were voted for.

Only the K candidates with most votes can be picked, and a threshold a little above the next one stands among them:
what lies below it could be out of the K for a neighbour, so picking stops there.
Source: Durfee & Rogers 2019, arXiv:1905.04273, Algorithm 1, for records that cast one vote. We account k picks in zCDP
and not by the paper's composition, and set the noise and the threshold of a replacement so that their claim holds.

Why it holds. Let h and h' be the votes of neighbours, in one histogram. Their K most voted differ in at most one
candidate, X there and Y here: a record moves one vote, or takes one from a candidate and gives it to another. Call
both by one name. Then the K and the threshold have the same names on both sides, and each score moves by 0 to 1 in one
direction (one vote), or by at most 1 (a replacement): h'(Y) - h(X) too, as X left and Y came. So each pick has a loss
of range epsilon: Gumbel noise of scale 1/epsilon gives the exponential mechanism, 2/epsilon where scores move both
ways. The true names differ only where X or Y is picked: it must beat a threshold that is 1 + ln(1/delta)/epsilon
(2 + 2 ln(1/delta)/epsilon) above a candidate that is at most 1 (2) votes below it, which has probability <= delta on
either side. Histograms of several labels compose in parallel, as a record votes in one. A replacement that changes its
label moves one vote in each of two, which has half the range in both, at most half of rho together, and picks X or Y
in either: there each threshold has delta/2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from dp_accounting import DpEvent, NonPrivateDpEvent
from scipy.optimize import brentq

from hf_dpsynth.compute import nearest
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.keys import Key

GUMBEL_DEVIATION = math.pi / math.sqrt(6)


@dataclass(frozen=True)
class LimitedDomainDpEvent(DpEvent):  # type: ignore[misc]
    """Picks at most `picks` of the candidates with most votes, in order, and stops at a threshold.

    One record casts one vote in one histogram. The scale of the noise and the height of the threshold follow from
    `moves`, which the neighbouring relation sets; `epsilon` and `delta` are what they give.

    Args:
        epsilon (`float`): the range of the privacy loss of one pick.
        picks (`int`): how many are picked at most.
        delta (`float`): the probability that a candidate beats the threshold which a neighbour could not pick.
        moves (`int`): how many counts a neighbour moves by 1: one, or the two of a replacement.
    """

    epsilon: float
    picks: int
    delta: float
    moves: int

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf or not 0 < self.delta < 1:
            raise ConfigError(
                f"the limited domain has epsilon {self.epsilon} and delta {self.delta}; epsilon must be a finite "
                "number > 0, delta between 0 and 1"
            )
        if isinstance(self.picks, bool) or not isinstance(self.picks, int) or not self.picks >= 1:
            raise ConfigError(f"the limited domain has {self.picks} picks; it must be a whole number >= 1")
        if isinstance(self.moves, bool) or not isinstance(self.moves, int) or self.moves not in (1, 2):
            raise ConfigError(f"the limited domain has {self.moves} moves; a neighbour moves 1 count, or 2")

    @property
    def rho(self) -> float:
        """The zCDP cost of all picks, picks epsilon^2 / 8 (Cesar & Rogers 2021, arXiv:2004.07223, Lemma 3.4)."""
        return self.picks * self.epsilon**2 / 8

    @property
    def extra_delta(self) -> float:
        """The probability with which this promises nothing."""
        return self.delta


def limited_domain_event(noise: float, picks: int, delta: float | None, adjacency: str) -> DpEvent:
    """Return the event of one release by `limited_domain`.

    Args:
        noise (`float`): the standard deviation of the Gumbel noise in votes, of a replacement half of it; 0: no
            privacy.
        picks (`int`): how many are picked at most.
        delta (`float`, *optional*): the probability that the threshold fails; read only with noise.
        adjacency (`str`): the neighbouring relation.
    """
    if noise == 0 or delta is None:
        return NonPrivateDpEvent()
    moves = 2 if adjacency == "replace-one" else 1
    return LimitedDomainDpEvent(GUMBEL_DEVIATION / noise, picks, delta, moves)


def threshold(event: DpEvent, labels: int = 1) -> float:
    """Return how far the threshold lies above the votes of the first candidate that is out of the domain, in votes."""
    if not isinstance(event, LimitedDomainDpEvent):
        return 1.0
    delta = event.delta / 2 if event.moves == 2 and labels > 1 else event.delta
    return event.moves + event.moves * math.log(1 / delta) / event.epsilon


def most_voted(
    private: Sequence[np.ndarray],
    candidates: Sequence[np.ndarray],
    event: DpEvent,
    *,
    picks: int,
    domain: int,
    key: Key,
) -> list[list[int]]:
    """Pick, label by label, the candidates that most private rows are nearest to; see `limited_domain`.

    Args:
        private (`Sequence[np.ndarray]`): embeddings by label, each of shape (n_l, d), float32. Sensitive.
        candidates (`Sequence[np.ndarray]`): embeddings by label, each of shape (m_l, d), m_l >= 1, float32. Public.
        event (`DpEvent`): like all that follows, as for `limited_domain`.
        picks (`int`): k.
        domain (`int`): K.
        key (`Key`): secret randomness of this release alone.
    Returns:
        `list[list[int]]`: row numbers by label, best first. Public once it is committed.
    """
    counts = [nearest.votes(rows, group) for rows, group in zip(private, candidates, strict=True)]
    return limited_domain(counts, event, picks=picks, domain=domain, key=key)


def limited_domain(
    counts: Sequence[np.ndarray], event: DpEvent, *, picks: int, domain: int, key: Key
) -> list[list[int]]:
    """Pick, label by label, candidates of most votes, best first; the event is `LimitedDomainDpEvent`.

    Nothing but the order of names comes out; no noisy count does. Where there are no more candidates than the domain
    holds, all can be picked and the threshold stands above 0 votes.

    Args:
        counts (`Sequence[np.ndarray]`): votes by label, integers, each of shape (m_l,). Sensitive.
        event (`DpEvent`): what it is accounted by, and all that noise and threshold follow from;
            `NonPrivateDpEvent` adds no noise.
        picks (`int`): k, how many are picked at most for each label.
        domain (`int`): K, how many of the most voted can be picked.
        key (`Key`): secret randomness of this release alone.
    Returns:
        `list[list[int]]`: row numbers by label, at most `picks`, possibly none. Public once it is committed.
    Sensitivity:
        a record casts one vote: one count moves by 1 under add-remove and zero-out, two by 1 under replace-one. The
        event's `moves` is that number.
    Raises:
        ConfigError: the event is of another number of picks.
    """
    private = isinstance(event, LimitedDomainDpEvent)
    if private and event.picks != picks:
        raise ConfigError(f"the event accounts {event.picks} picks, not {picks}")
    scale = event.moves / event.epsilon if private else 0.0
    margin = threshold(event, len(counts))
    return [
        _picked(votes, picks, domain, margin, scale, key.generator("gumbel", number))
        for number, votes in enumerate(counts)
    ]


def _picked(
    votes: np.ndarray, picks: int, domain: int, margin: float, scale: float, generator: np.random.Generator
) -> list[int]:
    order = np.argsort(-votes, kind="stable")  # ties by place, which is public
    following = float(votes[order[domain]]) if domain < len(votes) else 0.0
    inside = order[:domain]
    noise = generator.gumbel(size=len(inside) + 1) * scale
    scores = votes[inside] + noise[1:]
    ranked = np.argsort(-scores, kind="stable")
    above = ranked[scores[ranked] > following + margin + noise[0]]
    return [int(row) for row in inside[above[:picks]]]


def paper_noise(epsilon: float, delta: float, picks: int, rounds: int) -> float:
    """Return the noise in votes that the source's two nested compositions ask for; printed, never a claim.

    A round is (e, d + d')-DP with e the least of k e0, k e0 (exp(e0) - 1) / (exp(e0) + 1) + e0 sqrt(2 k ln(1/d')) and
    k e0^2 / 2 + e0 sqrt(k ln(1/d') / 2); T rounds are the lesser of T e and e sqrt(2 T ln(1/d'')) + T e (exp(e) - 1),
    with delta T (d + d') + d''. Half of delta is d'', the other half is shared alike.

    Args:
        epsilon (`float`): the target.
        delta (`float`): its delta.
        picks (`int`): k.
        rounds (`int`): T.
    Returns:
        `float`: the standard deviation of Gumbel noise of scale 1/e0.
    Examples:
        >>> round(paper_noise(1.0, 1 / 120000, picks=30, rounds=7), 1)
        136.1
    """
    inner, outer = math.log(4 * rounds / delta), math.log(2 / delta)

    def total(log: float) -> float:
        one = math.exp(log)
        odds = math.tanh(one / 2)  # (exp(e) - 1) / (exp(e) + 1)
        advanced = picks * one * odds + one * math.sqrt(2 * picks * inner)
        round_ = min(picks * one, advanced, picks * one**2 / 2 + one * math.sqrt(picks * inner / 2))
        nested = round_ * math.sqrt(2 * rounds * outer) + rounds * round_ * math.expm1(min(round_, 700.0))
        return min(rounds * round_, nested) - epsilon

    return GUMBEL_DEVIATION / math.exp(brentq(total, -60.0, math.log(epsilon) + 5.0))
