"""Are released texts nearer to the private texts than to a hold-out of the same number? By chance, half of them are.

Under a fair split of N private texts into halves each was as likely on either side. Let c be the number of released
rows that each is nearest to. The share of rows nearer to members is then that of a random half, with the variance
N s^2 / (4 sum(c)^2), where s^2 is the variance of c. So the interval is that of sum(c)^2 / (N s^2) independent rows,
never more than there are: many rows that have one neighbour are one trial.
Sources: Platzer & Reutterer 2021, arXiv:2104.00635 (the share); Cochran 1977, Sampling Techniques (the variance of a
total under simple random sampling).
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.stats import beta

from hf_dpsynth.audit.attacks import AttackResult
from hf_dpsynth.audit.findings import Finding, check_confidence, check_delta
from hf_dpsynth.audit.separation import LEAST, discrimination
from hf_dpsynth.audit.sides import BY_CHANCE, INSIDE, OUTSIDE, Sides, both, kept, left_on_both, normal
from hf_dpsynth.compute.candidates import Candidates
from hf_dpsynth.compute.nearest import top_k
from hf_dpsynth.compute.unit_rows import unit_rows
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import check_count, check_seed
from hf_dpsynth.metrics.embedding import embed
from hf_dpsynth.models import load_embedder
from hf_dpsynth.models.base import Embedder
from hf_dpsynth.privacy.records import PrivateTexts

ATTACK = "nearest neighbours"
CLOSER = "closer_to_members"
_BLOCK = 1 << 14  # released texts whose vectors are held at once
_QUANTILES = (("distance_1_percent", 0.01), ("distance_5_percent", 0.05))
_TRIALS = "The interval is that of {trials:.0f} independent rows: many with one neighbour are one. Ties count half."
_DISTANCE = "Cosine distance of the nearest {side} text, at this quantile of the released rows; small ones are copies."


def audit_neighbours(
    synthetic: Sequence[str],
    members: Sequence[str],
    others: Sequence[str],
    *,
    embedder: str | Embedder = "minilm",
    splits: int = 5,
    confidence: float = 0.95,
    delta: float = 1e-5,
    seed: int = 0,
) -> AttackResult:
    """Compare how near released texts are to the texts that a run read and to as many that it did not read.

    Texts that are on both sides, less differences in case, spaces and Unicode forms, are left out; equal ones of one
    side are one. Memory: the vectors of the private texts and of 16,384 released ones, and what `top_k` takes.

    Args:
        synthetic (`Sequence[str]`): released texts. Public.
        members (`Sequence[str]`): texts that the run read; missing and blank ones are left out. Sensitive.
        others (`Sequence[str]`): texts of the same kind that it did not read. Sensitive.
        embedder (`str` or object with `.embed`): the model that says what is near.
        splits (`int`, defaults to 5): where one side is larger, over how many draws of it the share is averaged.
        confidence (`float`, defaults to 0.95): that of each interval.
        delta (`float`, defaults to 1e-5): the delta of the empirical epsilon.
        seed (`int`, defaults to 0): of the rows that are drawn. Public.
    Returns:
        `AttackResult`: `closer_to_members`, .5 where nothing leaks; `distance_1_percent` and `distance_5_percent` of
        the released rows from members, and from the hold-out (`_holdout`); and the figures of `discrimination` for
        private texts by their distance to the released ones. Sensitive.
    Raises:
        ConfigError: fewer than 10 different texts are left on a side, all are equally near, or an argument is out of
            range.
    """
    check_confidence(confidence)
    check_delta(delta)
    check_seed(seed)
    check_count("splits", splits, 1)
    model = load_embedder(embedder)
    released = Counter(kept(synthetic, "synthetic"))
    sides, texts = _sides(members, others)
    marks = [left_on_both(sides.marks(seed, split), LEAST) for split in range(splits if sides.uneven else 1)]
    vectors = unit_rows(embed(texts, model, what="members", public=False))
    pairs = [_Pair(vectors, one) for one in marks]
    weights = np.array(list(released.values()), np.float64)
    for start, block in _blocks(list(released), model, vectors.shape[1]):
        for number, pair in enumerate(pairs):
            pair.add(block, weights[start : start + len(block)])
            if number == 0:
                pair.approach(block)
    limits = (BY_CHANCE, *sides.limits("text"))
    near = discrimination(
        *(-one for one in pairs[0].nearest),
        attack=ATTACK,
        confidence=confidence,
        delta=delta,
        limits=limits,
        seed=seed,
    )
    findings = (_share(pairs, sum(released.values()), confidence, limits), *_quantiles(pairs[0], weights, limits))
    return AttackResult(name=ATTACK, findings=(*findings, *near.findings), curve=near.curve)


class _Pair:
    """One draw of both sides, and the released texts that are near to either. Sensitive.

    Args:
        vectors (`np.ndarray`): of the private texts, of length 1, shape (n, d). Sensitive.
        marks (`np.ndarray`): the sides of each, uint8. Sensitive.
    """

    def __init__(self, vectors: np.ndarray, marks: np.ndarray) -> None:
        self._tables = [Candidates(vectors[marks & side > 0]) for side in (INSIDE, OUTSIDE)]
        self._counts = [np.zeros(len(one.vectors)) for one in self._tables]
        self.distances: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        self.nearest = [np.full(len(one.vectors), np.inf) for one in self._tables]

    def add(self, block: np.ndarray, weights: np.ndarray) -> None:
        """Count the released texts of a block for their neighbours."""
        found = [top_k(block, one, 1) for one in self._tables]
        near, far = (distances[:, 0] for _, distances in found)
        for side, (share, (indices, distances)) in enumerate(zip((near < far, far < near), found, strict=True)):
            np.add.at(self._counts[side], indices[:, 0], weights * np.where(near == far, 0.5, share))
            self.distances[side].append(distances[:, 0] / 2)

    def approach(self, block: np.ndarray) -> None:
        """Measure how near a block of released texts comes to each private text."""
        table = Candidates(block)
        for side, one in enumerate(self._tables):
            self.nearest[side] = np.minimum(self.nearest[side], top_k(one.vectors, table, 1)[1][:, 0] / 2)

    @property
    def share(self) -> float:
        """The share of released rows that are nearer to members."""
        inside, outside = (float(one.sum()) for one in self._counts)
        return inside / (inside + outside)

    @property
    def trials(self) -> float:
        """How many independent rows would vary as much from split to split."""
        counts = np.concatenate(self._counts)
        total, spread = float(counts.sum()), len(counts) * float(counts.var(ddof=1))
        return total if spread <= total else total**2 / spread


def _sides(members: Sequence[str], others: Sequence[str]) -> tuple[Sides, PrivateTexts]:
    """Return the sides, and one of the texts as they are for each kind."""
    rows = both(members, others)
    first: dict[str, str] = {}
    keys = [PrivateTexts(normal(text) for text in side) for side in rows]
    for side, names in zip(rows, keys, strict=True):
        for text, name in zip(side, names, strict=True):
            first.setdefault(name, text)
    return Sides(*([(name,) for name in names] for names in keys)), PrivateTexts(first.values())


def _blocks(texts: list[str], model: Embedder, width: int) -> Iterator[tuple[int, np.ndarray]]:
    for start in range(0, len(texts), _BLOCK):
        block = embed(texts[start : start + _BLOCK], model, what="synthetic", public=True)
        if block.shape[1] != width:
            raise ConfigError(f"the embedder gave vectors of width {width}, then {block.shape[1]}")
        yield start, unit_rows(block)


def _share(pairs: list[_Pair], rows: int, confidence: float, limits: tuple[str, ...]) -> Finding:
    value, trials = (float(np.mean([getattr(one, name) for one in pairs])) for name in ("share", "trials"))
    miss, right = (1 - confidence) / 2, value * trials
    low = float(beta.ppf(miss, right, trials - right + 1)) if value > 0 else 0.0
    high = float(beta.isf(miss, right + 1, trials - right)) if value < 1 else 1.0
    return Finding(
        attack=ATTACK,
        metric=CLOSER,
        value=value,
        interval=(low, high),
        n=rows,
        confidence=confidence,
        delta=None,
        limits=(_TRIALS.format(trials=trials), *limits),
        uses_private_data=True,
    )


def _quantiles(pair: _Pair, weights: np.ndarray, limits: tuple[str, ...]) -> list[Finding]:
    times, found = weights.astype(np.int64), []
    for end, side, parts in (("", "member", pair.distances[0]), ("_holdout", "hold-out", pair.distances[1])):
        distances = np.repeat(np.concatenate(parts), times)
        for metric, quantile in _QUANTILES:
            found.append(
                Finding(
                    attack=ATTACK,
                    metric=f"{metric}{end}",
                    value=float(np.quantile(distances, quantile)),
                    interval=None,
                    n=len(distances),
                    confidence=1.0,
                    delta=None,
                    limits=(_DISTANCE.format(side=side), *limits),
                    uses_private_data=True,
                )
            )
    return found
