"""`sec-pe`: secret-protected evolution. Noisy weighted counts of private rows near public clusters, then evolution.

Private rows are counted once for the public cluster they are nearest to, each with a weight that no secret exceeds its
allowance by; the noisy counts vote for synthetic texts in every round, which is post-processing. Its guarantee is
(p, r)-secret protection of listed secrets, not differential privacy.
Source: Wang et al. 2025, arXiv:2510.10990. Where we leave the paper: one release for all rounds (`release="once"`),
the sum of the programme runs over the rows of a secret, one solve and one noise for all labels, weights as charged and
not as chances of being drawn, noise of a constant scale that is always there, and embeddings compared by cosine.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from dp_accounting import DpEvent, SelfComposedDpEvent

from hf_dpsynth.compute import nearest
from hf_dpsynth.compute.unit_rows import unit_rows
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.guarantees import DECLARED, SecretProtection
from hf_dpsynth.mechanisms.base import PUBLIC_ROWS, PublicInputs, Row, check_choice, check_whole
from hf_dpsynth.mechanisms.evolution.clusters import clustered, distinct_texts
from hf_dpsynth.mechanisms.evolution.embeddings import embedded
from hf_dpsynth.mechanisms.evolution.evolving import Evolving
from hf_dpsynth.mechanisms.evolution.population import Evolution
from hf_dpsynth.plans import Facts, Plan
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.privacy.secret_weights import OTHER, WAYS, incidence, secret_weights
from hf_dpsynth.privacy.secrets import GRID, SecretGaussianDpEvent, noisy_sums, usable_by_kind
from hf_dpsynth.run import Run
from hf_dpsynth.store import Store

Probability = float | Mapping[str, float]
INCIDENCE = (
    "which rows hold which listed secret is known to an attacker and does not depend on the value of the secret"
    + DECLARED
)


@dataclass(frozen=True, kw_only=True)
class SecPE(Evolving):
    """Secret-protected evolution; its further fields are those of `Evolving`.

    Args:
        p (`float` or `dict[str, float]`): the largest probability with which an attacker guesses a secret beforehand;
            by kind of secret, where `"other"` stands for all kinds that are not named. Public, and needed.
        r (`float` or `dict[str, float]`): the bound on that probability after the release. Public, and needed.
        clusters (`int`, defaults to `600`): clusters of the public rows, over all labels.
        release (`str`, defaults to `"once"`): `"once"`, or `"each-round"` with noise that is larger by the square
            root of the number of rounds.
        centres (`str`, defaults to `"counts"`): `"counts"`, or `"updated"`, which also moves the centres to private
            rows, with noise that is larger by sqrt(2) and drowns them in high dimensions.
        weights (`str`, defaults to `"flattened"`): how rows with secrets are weighted, or `"closed"`: each secret
            gives all of its rows the same share.
    Examples:
        >>> SecPE(p=1e-4, r=1e-3).noise_multiplier()
        1.0
    """

    name: ClassVar[str] = "sec-pe"
    takes: ClassVar[tuple[str, ...]] = ("public", "secrets")
    needs_public: ClassVar[bool] = True

    p: Probability | None = None
    r: Probability | None = None
    clusters: int = 600
    release: str = "once"
    centres: str = "counts"
    weights: str = "flattened"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.name, "clusters", self.clusters, 1)
        for name, known in (
            ("release", ("once", "each-round")),
            ("centres", ("counts", "updated")),
            ("weights", WAYS),
        ):
            check_choice(self.name, name, getattr(self, name), known)
        for name in ("p", "r"):
            value = getattr(self, name)
            if isinstance(value, Mapping):
                object.__setattr__(self, name, dict(value))
                if OTHER not in value or not all(isinstance(kind, str) and kind for kind in value):
                    raise ConfigError(f"sec-pe: {name} by kind needs {OTHER!r}, for all kinds that are not named")
            elif value is None:
                raise ConfigError("sec-pe needs p and r in params, e.g. {'p': 1e-4, 'r': 1e-3}")
        self.allowances()

    def pairs(self) -> dict[str, tuple[float, float]]:
        """Return p and r by kind of secret."""
        held = [value if isinstance(value, Mapping) else {OTHER: value} for value in (self.p, self.r)]
        kinds = [OTHER, *sorted({*held[0], *held[1]} - {OTHER})]
        by_kind: dict[str, Any] = {kind: tuple(value.get(kind, value[OTHER]) for value in held) for kind in kinds}
        return by_kind

    def allowances(self) -> dict[str, float]:
        """Return how much weight the rows of a secret may have together, by kind.

        Raises:
            ConfigError: not 0 < p < r < 1.
        """
        noise = SecretGaussianDpEvent(self.noise_multiplier(), self.norm, GRID)
        return usable_by_kind(self.pairs(), SelfComposedDpEvent(noise, self.rounds))

    @property
    def rounds(self) -> int:
        """How often noisy sums are released."""
        return 1 if self.release == "once" else self.iterations

    @property
    def norm(self) -> float:
        """The norm of what a row of weight 1 adds to a release."""
        return 1.0 if self.centres == "counts" else math.sqrt(2)

    def noise_multiplier(self) -> float:
        """Return the noise of each release, in rows: sqrt(T) c, whatever the data and the secrets are."""
        return math.sqrt(self.rounds) * self.norm

    def single(self, noise_multiplier: float) -> SecretGaussianDpEvent:
        """Return the event of one release, with the allowances that weights keep to."""
        return SecretGaussianDpEvent(float(noise_multiplier), self.norm, GRID, tuple(self.allowances().values()))

    def event(self, noise_multiplier: float, facts: Facts) -> DpEvent:
        """Return the releases: one, or one a round."""
        return SelfComposedDpEvent(self.single(noise_multiplier), self.rounds)

    def protection(self, assumptions: tuple[str, ...] = ()) -> SecretProtection:
        """Return what a run promises."""
        (p, r), *_ = self.pairs().values()
        kinds = tuple((kind, *pair) for kind, pair in self.pairs().items() if kind != OTHER)
        return SecretProtection(p=p, r=r, kinds=kinds, assumptions=(INCIDENCE, PUBLIC_ROWS, *assumptions))

    def warnings(self, noise_multiplier: float, epsilon: float, delta: float | None, facts: Facts) -> tuple[str, ...]:
        """Say when the rows of a cluster drown in the noise, from declared facts alone."""
        if facts.num_records is None or facts.num_records >= noise_multiplier * self.clusters:
            return ()
        return (
            f"a cluster expects {facts.num_records / self.clusters:.3g} records, fewer where they hold secrets, and "
            f"the noise has a standard deviation of {noise_multiplier:.3g}: lower clusters.",
        )

    def prepare(self, public: PublicInputs, plan: Plan, store: Store) -> None:
        """Refuse public rows of which no clusters can be made, before anything is charged."""
        distinct_texts(public.dataset, plan.labels, self.clusters)

    def run(self, private: PrivateRecords, public: PublicInputs, plan: Plan, run: Run) -> Iterator[Row]:
        """Release noisy counts, evolve a population by them and yield its rows."""
        evolution = _Represented(self, private, public, plan, run)
        return evolution.rows(evolution.shares())


class _Represented(Evolution):
    """One run of `SecPE`: public centres vote, each with its public rows and the noisy weight of private ones."""

    def __init__(self, mechanism: SecPE, private: PrivateRecords, public: PublicInputs, plan: Plan, run: Run) -> None:
        super().__init__(mechanism, private, public, plan, run)
        self.protecting = mechanism
        texts = distinct_texts(public.dataset, plan.labels, mechanism.clusters)
        self.clusters = clustered(texts, mechanism.clusters, self.embed, run.store, plan.seed)
        self._sums: tuple[np.ndarray, np.ndarray, np.ndarray | None] | None = None

    def shares(self) -> list[float]:
        """Return declared shares of the labels, or those of the first noisy counts: no further release is needed."""
        if self.plan.proportions is not None:
            return list(self.plan.proportions)
        released = self._release(1)
        if released is None:
            return [1.0] * len(self.plan.labels)
        return [float(part[:, 0].sum()) for part in released]

    def vote(self, number: int, name: str, texts: list[str]) -> np.ndarray | None:
        """Let the representatives vote: post-processing of the noisy counts."""
        released = self._release(number)
        if released is None and self.protecting.release == "each-round":
            return None
        candidates, _ = self.candidates(number, name, texts)
        groups = np.split(unit_rows(candidates()), self.bounds[1:-1])
        votes: list[tuple[np.ndarray, np.ndarray]] = []
        for label, (group, rows) in enumerate(zip(groups, self.kept(groups, texts), strict=True)):
            if not len(rows):
                votes.append((rows, np.zeros(0)))
                continue
            centres, sizes = self._representatives(label, None if released is None else released[label])
            chosen = nearest.assign(centres, group[rows])
            votes.append((rows, np.bincount(chosen, weights=sizes, minlength=len(rows))))
        return self.scores(votes)

    def _representatives(self, label: int, released: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return centres and how many votes each casts; public ones alone where the only release was lost."""
        centres, sizes = self.clusters.centres[label], self.clusters.sizes[label]
        if released is None:
            return centres, sizes
        if released.shape[1] > 1:
            centres = unit_rows(sizes[:, None] * centres + released[:, 1:])
        return centres, sizes + np.maximum(0.0, released[:, 0])

    def _release(self, number: int) -> list[np.ndarray] | None:
        """Return the noisy sums of a round by label, shape (k_l, 1 or 1 + d); None when they were lost."""
        key = "counts" if self.protecting.release == "once" else f"counts-{number:03d}"
        ends = np.cumsum([len(part) for part in self.clusters.sizes])
        event = self.protecting.single(self.sigma)
        if self.run.ledger.state(key) is None and self._sums is None:
            self._sums = self._weighted(ends)  # before the charge, so that a failure costs nothing

        def draw() -> list[list[float]]:
            steps, places, vectors = self._sums or self._weighted(ends)
            noisy: list[list[float]] = noisy_sums(steps, places, int(ends[-1]), event, vectors).tolist()
            return noisy

        released = self.run.ledger.release(key, event, draw, about=self.clusters.about)
        if released is None:
            return None
        return np.split(np.asarray(released, dtype=np.float64).reshape(int(ends[-1]), -1), ends[:-1])

    def _weighted(self, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return the weight and the place of each private row, and where centres move its embedding. Sensitive.

        Weights follow from the incidence of all rows, blank ones included. A vector that is not finite adds nothing:
        an error would tell that such a record is there.
        """
        mechanism, width = self.protecting, self.clusters.centres[0].shape[1]
        steps = secret_weights(incidence(self.private.secrets()), mechanism.allowances(), mechanism.weights)
        usable = self.private.usable(self.plan.labels)
        embeddings = np.zeros((0, width), dtype=np.float32)
        if usable:
            texts = type(usable)(text for _, _, text in usable)
            embeddings = embedded(self.public.embedder, texts)
        finite = np.isfinite(embeddings).all(axis=1)
        embeddings = unit_rows(embeddings[finite])
        held = np.asarray([(row, label) for row, label, _ in usable], dtype=np.int64).reshape(-1, 2)[finite]
        places = np.zeros(len(held), dtype=np.int64)
        for label, (centres, start) in enumerate(zip(self.clusters.centres, [0, *ends], strict=False)):
            own = held[:, 1] == label
            places[own] = start + nearest.assign(embeddings[own], centres)
        return steps[held[:, 0]], places, None if mechanism.centres == "counts" else embeddings
