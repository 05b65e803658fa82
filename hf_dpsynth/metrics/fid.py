"""Fréchet distance between embeddings: how far apart two Gaussians with the sets' means and covariances are.

FID = |m1 - m2|^2 + tr S1 + tr S2 - 2 tr (S1 S2)^(1/2), with unbiased covariances. For factors with S = F' F the last
trace is the sum of the singular values of F1 F2', so no matrix root is taken. A factor is the centred rows where there
are fewer rows than columns, and the scaled eigenvectors of the covariance otherwise. Finite samples push FID up by
about 1/n, so two sets of real rows do not reach 0; `fid_infinity` extrapolates to infinitely many rows.
Source: Heusel et al. 2017, arXiv:1706.08500; Chong and Forsyth 2020, arXiv:1911.07023 (extrapolation).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hf_dpsynth.metrics.base import check_count
from hf_dpsynth.metrics.embedding import EmbeddingMetric
from hf_dpsynth.metrics.rows import blocks, check_pair
from hf_dpsynth.privacy.keys import public_generator

_SMALLEST_SHARE = 0.25  # the fewest rows that the extrapolation reads, as a share of all
_FEW_ROWS = 1000


def fid(p: np.ndarray, q: np.ndarray) -> float:
    """Measure the Fréchet distance between two sets of rows.

    Args:
        p (`np.ndarray`): embeddings, shape (m, d); computed in float64. Public.
        q (`np.ndarray`): embeddings, shape (n, d); computed in float64. Sensitive.
    Returns:
        `float`: the squared distance, 0 or more, in squared units of the rows. As sensitive as `q`.
    Raises:
        ConfigError: fewer than two rows, two widths, or values that are not finite.
    Examples:
        >>> import numpy as np
        >>> rows = np.eye(3)
        >>> round(fid(rows, rows + 2.0), 6)
        12.0
    """
    check_pair(p, q, what="fid", least=2)
    return _fid(p, q)


def fid_infinity(p: np.ndarray, q: np.ndarray, *, num_sizes: int = 4, seed: int = 0) -> float:
    """Extrapolate the Fréchet distance to infinitely many rows: a line through FID against 1/n.

    The sizes run from a quarter of the smaller set to all of it, evenly in 1/n; the rows of each are a public random
    subset. The line is right where n is well above d; with n near d or below, the intercept is too high. It scatters
    around 0 for two sets of one law, so it may be negative.

    Args:
        p (`np.ndarray`): embeddings, shape (m, d). Public.
        q (`np.ndarray`): embeddings, shape (n, d). Sensitive.
        num_sizes (`int`): sizes that the line goes through.
        seed (`int`): the seed of the public subsets.
    Returns:
        `float`: the intercept of the least-squares line. As sensitive as `q`.
    Raises:
        ConfigError: fewer than eight rows, `num_sizes` below 2, two widths, or values that are not finite.
    """
    check_count("num_sizes", num_sizes, 2, ": a line needs as many")
    check_pair(p, q, what="fid_infinity", least=8)
    return _extrapolated(p, q, num_sizes, seed)[0]


@dataclass(frozen=True, kw_only=True)
class FID(EmbeddingMetric):
    """Fréchet distance with its floor, and its extrapolation to infinitely many rows.

    Args:
        num_sizes (`int`): sizes that the extrapolation reads; 0 leaves `fid_infinity` out and is several times faster.
    """

    name: ClassVar[str] = "fid"
    description: ClassVar[str] = "Fréchet distance between the embeddings of two sets, with its floor; lower is better"
    source: ClassVar[str] = "Heusel et al. 2017, arXiv:1706.08500; Chong and Forsyth 2020, arXiv:1911.07023"
    higher_is_better: ClassVar[bool | None] = False
    num_sizes: int = 4

    def __post_init__(self) -> None:
        if self.num_sizes != 0:
            check_count("num_sizes", self.num_sizes, 2, ", or 0 for no extrapolation")

    def score(self, predictions: np.ndarray, references: np.ndarray, *, seed: int) -> float | dict[str, float]:
        """Return the distance, and its extrapolation where there are rows enough for one."""
        if not self.num_sizes or min(len(predictions), len(references)) < 8:
            return fid(predictions, references)
        check_pair(predictions, references, what="fid", least=2)
        infinity, largest = _extrapolated(predictions, references, self.num_sizes, seed)
        full = largest if len(predictions) == len(references) else _fid(predictions, references)
        return {"fid": full, "fid_infinity": infinity}

    def limits(self, size: int) -> list[str]:
        """Say how far the number of rows moves the distance."""
        said = []
        if self.num_sizes and size < 8:
            said.append("fid_infinity is left out: it needs 8 rows on each side")
        if size < _FEW_ROWS:
            said.append(
                f"{size} rows on each side: fid lies well above its value for many rows, so read it beside fid_floor; "
                "fid_infinity needs several times as many rows as the embedding has dimensions"
            )
        return said


def _extrapolated(p: np.ndarray, q: np.ndarray, num_sizes: int, seed: int) -> tuple[float, float]:
    """Return the intercept of FID against 1/n, and FID at the largest size, which is all of the smaller set."""
    rng = public_generator(seed, "fid-infinity")
    count = min(len(p), len(q))
    left, right = rng.permutation(len(p)), rng.permutation(len(q))
    inverses = np.linspace(1 / count, 1 / max(2.0, _SMALLEST_SHARE * count), num_sizes)
    sizes = np.maximum(2, np.rint(1 / inverses).astype(int))
    # different stretches of the permutations, so that the sizes share as few rows as they can
    starts = [int(rng.integers(0, count - size + 1)) for size in sizes]
    values = [
        _fid(p[left[start : start + size]], q[right[start : start + size]])
        for start, size in zip(starts, sizes, strict=True)
    ]
    _, intercept = np.polyfit(1 / sizes, values, 1)
    return float(intercept), values[0]


def _fid(p: np.ndarray, q: np.ndarray) -> float:
    """Measure the distance between checked sets."""
    left, right = _moments(p), _moments(q)
    shift = left[0] - right[0]
    overlap = np.linalg.svd(left[1] @ right[1].T, compute_uv=False).sum()
    traces = np.square(left[1]).sum() + np.square(right[1]).sum()
    return max(0.0, float(shift @ shift + traces - 2 * overlap))


def _moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean, shape (d,), and a factor F of the unbiased covariance F'F, shape (min(n, d), d); float64."""
    count, width = rows.shape
    mean = np.sum([block.sum(axis=0, dtype=np.float64) for block in blocks(rows)], axis=0) / count
    if count < width:
        return mean, (rows - mean) / np.sqrt(count - 1)
    covariance = np.zeros((width, width))
    for block in blocks(rows):
        centred = block - mean
        covariance += centred.T @ centred
    values, vectors = np.linalg.eigh(covariance / (count - 1))
    return mean, np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
