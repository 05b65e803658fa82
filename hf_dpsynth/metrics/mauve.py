"""MAUVE: the divergence frontier of two sets of embeddings, put into the buckets of one k-means on both.

Rows are scaled to length 1, rotated and cut to the directions with 90 % of the variance, and clustered. The area below
the frontier of the two histograms is 1 for sets that fill the buckets alike. How far two halves of one set fall short
of 1 depends on rows and buckets, so a score is read beside its floor. Rows are put into an order of their own before
anything is drawn: neither their order nor which set comes first can move the score.
Source: Pillutla et al. 2021, arXiv:2102.01454; Pillutla et al. 2023, arXiv:2212.14578 (the smoothed score).
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from hf_dpsynth.compute.kmeans import kmeans
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import Result, check_count
from hf_dpsynth.metrics.divergence import frontier_area
from hf_dpsynth.metrics.embedding import EmbeddingMetric
from hf_dpsynth.metrics.rows import check_pair
from hf_dpsynth.privacy.keys import public_generator

MOST_BUCKETS = 500
_ROWS_PER_BUCKET = 10
_STAR = 0.5  # added to every count: the estimator of Krichevsky and Trofimov


class MauveResult(NamedTuple):
    """What `mauve` returns; as sensitive as the real rows.

    Args:
        mauve (`float`): the mean over the k-means seeds, in [0, 1].
        mauve_star (`float`): the same with 0.5 added to every count, which shrinks the cost of few rows.
        by_seed (`tuple[float, ...]`): the score of each k-means seed.
        num_buckets (`int`): buckets asked for.
        num_filled (`float`): buckets that got rows, the mean over the seeds.
    """

    mauve: float
    mauve_star: float
    by_seed: tuple[float, ...]
    num_buckets: int
    num_filled: float


def mauve(
    p: np.ndarray,
    q: np.ndarray,
    *,
    num_buckets: int | None = None,
    scaling: float = 5.0,
    explained_variance: float = 0.9,
    num_seeds: int = 3,
    smoothing: float = 0.0,
    seed: int = 0,
) -> MauveResult:
    """Compare two sets of embeddings.

    Args:
        p (`np.ndarray`): embeddings, shape (m, d); computed in float32. Public.
        q (`np.ndarray`): embeddings, shape (n, d); computed in float32. Sensitive.
        num_buckets (`int`, *optional*): buckets of k-means; a tenth of the smaller set when missing, at least 2 and
            at most 500.
        scaling (`float`): c of the divergence frontier.
        explained_variance (`float`): share of the variance that the directions kept hold.
        num_seeds (`int`): k-means runs that the score is the mean of.
        smoothing (`float`): what is added to every count of `mauve`; 0 is the published score.
        seed (`int`): the seed of the public k-means starts.
    Returns:
        `MauveResult`: the scores. As sensitive as `q`.
    Raises:
        ConfigError: an option is out of range, there are fewer rows than buckets, or the rows cannot be compared.
    Examples:
        >>> import numpy as np
        >>> rows = np.random.Generator(np.random.PCG64(0)).standard_normal((40, 3))
        >>> found = mauve(rows, rows)
        >>> round(found.mauve, 6), found.num_buckets
        (1.0, 4)
    """
    _check_options(num_buckets, scaling, explained_variance, num_seeds, smoothing)
    check_pair(p, q, what="mauve", least=2)
    buckets = num_buckets or automatic_buckets(min(len(p), len(q)))
    if buckets > len(p) + len(q):
        raise ConfigError(f"num_buckets is {buckets}, more than there are rows. Lower it, or pass more texts.")
    rows, is_first = _ordered(p, q)
    features = _main_directions(rows, explained_variance)
    scores, stars, filled = [], [], []
    for number in range(num_seeds):
        labels = kmeans(features, buckets, public_generator(seed, "mauve-k-means", number))
        first = np.bincount(labels[is_first], minlength=buckets)
        second = np.bincount(labels[~is_first], minlength=buckets)
        scores.append(frontier_area(first + smoothing, second + smoothing, scaling=scaling))
        stars.append(frontier_area(first + _STAR, second + _STAR, scaling=scaling))
        filled.append(np.count_nonzero(first + second))
    return MauveResult(float(np.mean(scores)), float(np.mean(stars)), tuple(scores), buckets, float(np.mean(filled)))


@dataclass(frozen=True, kw_only=True)
class Mauve(EmbeddingMetric):
    """MAUVE with its floor, and `mauve_star`, the smoothed score, beside it; every split has k-means seeds of its own.

    Args:
        num_buckets (`int`, *optional*): buckets of k-means; a tenth of the rows of a side when missing, at most 500.
        scaling (`float`): c of the divergence frontier.
        explained_variance (`float`): share of the variance that is kept.
        num_seeds (`int`): k-means runs for each split.
        smoothing (`float`): what is added to every count of `mauve`.
    """

    name: ClassVar[str] = "mauve"
    description: ClassVar[str] = "area below the divergence frontier of two sets of texts, with its floor; 1 is best"
    source: ClassVar[str] = "Pillutla et al. 2021, arXiv:2102.01454; Pillutla et al. 2023, arXiv:2212.14578"
    higher_is_better: ClassVar[bool | None] = True
    num_buckets: int | None = None
    scaling: float = 5.0
    explained_variance: float = 0.9
    num_seeds: int = 3
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        _check_options(self.num_buckets, self.scaling, self.explained_variance, self.num_seeds, self.smoothing)

    def score(self, predictions: np.ndarray, references: np.ndarray, *, seed: int) -> dict[str, float]:
        """Return both scores and how many buckets got rows."""
        found = mauve(
            predictions,
            references,
            num_buckets=self.num_buckets,
            scaling=self.scaling,
            explained_variance=self.explained_variance,
            num_seeds=self.num_seeds,
            smoothing=self.smoothing,
            seed=seed,
        )
        return {"mauve": found.mauve, "mauve_star": found.mauve_star, "mauve_buckets": found.num_filled}

    def after(self, found: Result, predictions: np.ndarray, references: np.ndarray, *, seed: int) -> None:
        """Say when there was nothing to cluster."""
        for figure, rows in (("mauve", "rows of both sets"), ("mauve_floor", "real rows")):
            filled = found[figure.replace("mauve", "mauve_buckets")]
            if filled < 2:
                runs = "" if filled == 1 else " in some runs"
                found["limits"].append(
                    f"{figure}: all {rows} fell into one bucket{runs}, so they could not be told apart"
                )

    def limits(self, size: int) -> list[str]:
        """Say how many rows a bucket has, which sets how far the floor lies below 1."""
        buckets = self.num_buckets or automatic_buckets(size)
        if size >= _ROWS_PER_BUCKET * (buckets - 0.5):  # what the automatic number rounds to
            return []
        return [
            f"{buckets} buckets for {size} rows on each side: with so few rows a bucket, mauve lies well below 1 for "
            "two sets of one law too; read it beside mauve_floor, or mauve_star"
        ]


def automatic_buckets(size: int) -> int:
    """Return the number of buckets for two sets of which the smaller has so many rows."""
    return min(MOST_BUCKETS, max(2, round(size / _ROWS_PER_BUCKET)))


def _check_options(
    num_buckets: int | None, scaling: float, explained_variance: float, num_seeds: int, smoothing: float
) -> None:
    if num_buckets is not None:
        check_count("num_buckets", num_buckets, 2, ", or None for a tenth of the rows")
    if not 0 < scaling < float("inf"):
        raise ConfigError(f"scaling is {scaling}; it is a positive number")
    if not 0 < explained_variance <= 1:
        raise ConfigError(f"explained_variance is {explained_variance}; it is above 0 and at most 1")
    check_count("num_seeds", num_seeds, 1)
    if not 0 <= smoothing < float("inf"):
        raise ConfigError(f"smoothing is {smoothing}; it is 0 or a positive number")


def _ordered(p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of both sets, float32, in the order of their bytes, and which of them are of the first set."""
    rows = np.concatenate([p, q], dtype=np.float32, casting="same_kind")
    order = np.argsort(rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize)))[:, 0], kind="stable")
    return rows[order], order < len(p)


def _main_directions(rows: np.ndarray, explained_variance: float) -> np.ndarray:
    """Scale rows to length 1 and centre them in place; return their main directions, ready for k-means."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(lengths > 0, lengths, 1)
    rows -= rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    values, vectors = np.linalg.eigh((rows.T @ rows).astype(np.float64))
    shares = np.cumsum(np.maximum(values[::-1], 0))
    kept = int(np.searchsorted(shares, explained_variance * shares[-1])) + 1
    directions = np.zeros((rows.shape[1], kept + 1), dtype=np.float32)
    directions[:, :-1] = vectors[:, ::-1][:, :kept]
    main: np.ndarray = rows @ directions
    main[:, -1] = 1  # what `with_ones` adds, without a copy
    return main
