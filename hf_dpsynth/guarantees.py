"""Guarantees as values: what a release promises, in the words a card may use.

The kinds are not ordered and not convertible. "Differentially private" is said of `ApproxDP` only; metric, local and
secret guarantees have sentences of their own.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from hf_dpsynth.errors import ConfigError

NEIGHBOURS = ("add-remove", "zero-out", "replace-one")
DECLARED = ": declared, not checked"  # ends an assumption that is the publisher's word
FALSE = ": false"  # ends an assumption that fails


def digits(value: float) -> str:
    """Return a number of a guarantee with all its digits: a shorter one could be a smaller loss than the true one.

    Examples:
        >>> digits(8.0), digits(1e-05), digits(1.23449e-06)
        ('8', '1e-05', '1.23449e-06')
    """
    return repr(float(value)).removesuffix(".0")


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise ConfigError(f"{name} is {value}; it must be a number > 0")


@dataclass(frozen=True, kw_only=True)
class ApproxDP:
    """(epsilon, delta)-differential privacy for one unit under one neighbouring relation.

    Args:
        epsilon (`float`): the privacy loss; infinite means no privacy.
        delta (`float`): the probability that the loss is larger.
        unit (`str`, defaults to `"record"`): whose contribution is protected: a record, or a column of user ids.
        neighbours (`str`, defaults to `"add-remove"`): `"add-remove"`, `"zero-out"` or `"replace-one"`.
        assumptions (`tuple[str, ...]`): sentences that must hold for the claim.
    """

    epsilon: float
    delta: float
    unit: str = "record"
    neighbours: str = "add-remove"
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _positive("epsilon", self.epsilon)
        if not 0 <= self.delta < 1:
            raise ConfigError(f"delta is {self.delta}; it must be in [0, 1)")
        if self.neighbours not in NEIGHBOURS:
            raise ConfigError(f"adjacency {self.neighbours!r} is unknown; use one of {', '.join(NEIGHBOURS)}")

    def statement(self) -> str:
        """Return the one sentence that states this guarantee."""
        if math.isinf(self.epsilon):
            return "No privacy: epsilon is infinite, so this release is not differentially private."
        return (
            f"This release is ({digits(self.epsilon)}, {digits(self.delta)})-differentially private "
            f"per {self.unit} under {self.neighbours} adjacency." + _assuming(self.assumptions)
        )


@dataclass(frozen=True, kw_only=True)
class MetricDP:
    """Metric differential privacy: outputs of two inputs differ by at most exp(epsilon d(input, input')).

    Args:
        epsilon (`float`): privacy loss for each unit of distance.
        metric (`str`): the distance, in words.
        unit (`str`, defaults to `"word"`): what is replaced by a neighbour.
        assumptions (`tuple[str, ...]`): sentences that must hold for the claim.
    """

    epsilon: float
    metric: str
    unit: str = "word"
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _positive("epsilon", self.epsilon)

    def statement(self) -> str:
        """Return the sentences that state this guarantee and what it is not."""
        if math.isinf(self.epsilon):
            return "No privacy: the scale is infinite, so no noise was added."
        return (
            f"Metric DP at scale {digits(self.epsilon)} per {self.unit} in {self.metric}: the loss between two "
            f"{self.unit}s is {digits(self.epsilon)} times their distance. Not anonymised: this is not eps-DP for "
            "individuals; measured plausible deniability (N_w and S_w) is empirical, not a proof."
            + _assuming(self.assumptions)
        )


@dataclass(frozen=True, kw_only=True)
class LocalDP:
    """Pure local differential privacy of each unit, sampled by a local model.

    Args:
        epsilon (`float`): the loss for a whole unit.
        unit (`str`, defaults to `"record"`): what is protected.
        assumptions (`tuple[str, ...]`): sentences that must hold for the claim.
    """

    epsilon: float
    unit: str = "record"
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _positive("epsilon", self.epsilon)

    def statement(self) -> str:
        """Return the one sentence that states this guarantee."""
        if math.isinf(self.epsilon):
            return "No privacy: epsilon is infinite, so this release is not locally private."
        return f"Local DP with epsilon {digits(self.epsilon)} per {self.unit}." + _assuming(self.assumptions)


@dataclass(frozen=True, kw_only=True)
class SecretProtection:
    """(p, r)-secret protection of listed secrets; it has no epsilon and is not differential privacy.

    It speaks of the value of each secret alone: not of its presence, not of several together, not of other rows. The
    attacker knows all else: where two secrets tell of each other, as a name and its e-mail address do, knowing one
    raises the guess of the other before the release, and p must cover that guess.

    Args:
        p (`float`): the largest probability with which an attacker who knows all other secrets and rows guesses a
            secret beforehand.
        r (`float`): the bound on that probability after the release.
        kinds (`tuple[tuple[str, float, float], ...]`): kinds of secrets with a p and an r of their own; `p` and `r`
            are those of all others.
        assumptions (`tuple[str, ...]`): sentences that must hold for the claim.
    """

    unit: ClassVar[str] = "secret"

    p: float
    r: float
    kinds: tuple[tuple[str, float, float], ...] = ()
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", tuple((kind, p, r) for kind, p, r in self.kinds))
        for of, p, r in (("", self.p, self.r), *((f" of {kind!r}", p, r) for kind, p, r in self.kinds)):
            if not 0 < p < r < 1:
                raise ConfigError(f"p{of} is {p} and r{of} is {r}; they must satisfy 0 < p < r < 1")

    def statement(self) -> str:
        """Return the sentences that state this guarantee and what it is not."""
        own = "".join(f"; of kind {kind}: ({digits(p)}, {digits(r)})" for kind, p, r in self.kinds)
        return (
            f"({digits(self.p)}, {digits(self.r)})-secret protection, not differential privacy: whoever guesses a "
            f"listed secret with probability at most {digits(self.p)} beforehand, all other secrets and rows known, "
            f"guesses it with probability at most {digits(self.r)} after the release{own}. It speaks of the value of "
            "each secret alone, not of its presence and not of several together. Rows without a listed secret get no "
            "protection." + _assuming(self.assumptions)
        )


Guarantee = ApproxDP | MetricDP | LocalDP | SecretProtection
_KINDS: dict[str, type[Guarantee]] = {kind.__name__: kind for kind in (ApproxDP, MetricDP, LocalDP, SecretProtection)}


def _assuming(assumptions: tuple[str, ...]) -> str:
    return f" Assumptions: {'; '.join(assumptions)}." if assumptions else ""


def to_json(guarantee: Guarantee) -> dict[str, Any]:
    """Return a guarantee as JSON values; an infinite epsilon becomes null."""
    fields = {name: None if value == math.inf else value for name, value in asdict(guarantee).items()}
    if isinstance(guarantee, SecretProtection):
        fields["kinds"] = [list(kind) for kind in guarantee.kinds]
    return {"kind": type(guarantee).__name__, **fields, "assumptions": list(guarantee.assumptions)}


def from_json(data: dict[str, Any]) -> Guarantee:
    """Read a guarantee that `to_json` wrote.

    Raises:
        ConfigError: the kind is unknown.
    """
    fields = dict(data)
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        raise ConfigError(f"guarantee kind {kind!r} is unknown; known are {', '.join(_KINDS)}")
    if "epsilon" in fields and fields["epsilon"] is None:
        fields["epsilon"] = math.inf
    return _KINDS[kind](**{**fields, "assumptions": tuple(fields["assumptions"])})
