"""Maximum mean discrepancy: how far two sets are apart to a Gaussian kernel, and whether chance could explain it.

MMD^2 = E k(x, x') + E k(y, y') - 2 E k(x, y) without the diagonal, so that it is unbiased: 0 on average for two
samples of one law, and often below 0. The p-value counts how often a random relabelling of the rows scores as high.
Its width is the median distance of the pooled rows. Kernel blocks are used as they are made; no n x n matrix is kept.
Source: Gretton et al. 2012 (JMLR 13), sections 2.2 and 8.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import Result, check_count
from hf_dpsynth.metrics.embedding import EmbeddingMetric
from hf_dpsynth.metrics.rows import check_pair
from hf_dpsynth.privacy.keys import public_generator

_BLOCK = 1024
_MOST_PAIRS = 1 << 25  # of a block, in float32
_MEDIAN_ROWS = 2000


class MMDResult(NamedTuple):
    """What `mmd` returns; as sensitive as the real rows.

    Args:
        mmd (`float`): the unbiased estimate of MMD^2.
        p_value (`float`): share of relabellings that score as high, the one at hand included; 1 without relabellings.
        bandwidth (`float`): width of the kernel, in units of the rows.
    """

    mmd: float
    p_value: float
    bandwidth: float


def mmd(
    p: np.ndarray,
    q: np.ndarray,
    *,
    bandwidth: float | None = None,
    num_permutations: int = 0,
    seed: int = 0,
) -> MMDResult:
    """Estimate MMD^2 under the kernel exp(-|x - y|^2 / (2 h^2)).

    Args:
        p (`np.ndarray`): embeddings, shape (m, d); computed in float32. Public.
        q (`np.ndarray`): embeddings, shape (n, d); computed in float32. Sensitive.
        bandwidth (`float`, *optional*): h; the median distance of the pooled rows when missing (of 2000 public random
            ones where there are more), or their mean distance where more than half of the rows are equal.
        num_permutations (`int`): relabellings for the p-value; 0 for none.
        seed (`int`): the seed of the public relabellings.
    Returns:
        `MMDResult`: the estimate, its p-value and h. As sensitive as `q`.
    Raises:
        ConfigError: an option is out of range, fewer than two rows in a set, or rows that cannot be compared.
    Examples:
        >>> import numpy as np
        >>> rows = np.array([[0.0], [1.0]])
        >>> round(mmd(rows, rows + 100.0, bandwidth=1.0).mmd, 4)
        1.2131
    """
    _check_options(bandwidth, num_permutations)
    check_pair(p, q, what="mmd", least=2)
    rows = np.concatenate([p, q], dtype=np.float32, casting="same_kind")
    rows -= rows.mean(axis=0, dtype=np.float64).astype(np.float32)  # nearer to 0, so that products lose less
    width = _median_distance(rows, seed) if bandwidth is None else bandwidth
    if width == 0:  # all rows are equal
        return MMDResult(0.0, 1.0, 0.0)
    labels = np.zeros((len(rows), num_permutations + 1), dtype=np.float32)
    labels[: len(p)] = 1
    rng = public_generator(seed, "mmd-permutations")
    for column in range(1, num_permutations + 1):
        labels[:, column] = rng.permutation(labels[:, 0])
    values = _statistics(rows / np.float32(width), labels, len(p))
    as_high = int(np.count_nonzero(values >= values[0] - 1e-12))
    return MMDResult(float(values[0]), as_high / len(values), float(width))


@dataclass(frozen=True, kw_only=True)
class MMD(EmbeddingMetric):
    """Unbiased MMD^2 with its floor, and one permutation test on all rows.

    Args:
        bandwidth (`float`, *optional*): width of the kernel; the median distance when missing.
        num_permutations (`int`): relabellings of the test; 0 leaves `mmd_p_value` out.
        test_rows (`int`): the test reads at most so many public random rows of each set.
    """

    name: ClassVar[str] = "mmd"
    description: ClassVar[str] = "unbiased MMD^2 of two sets of texts, with its floor and a p-value; lower is better"
    source: ClassVar[str] = "Gretton et al. 2012 (JMLR 13)"
    higher_is_better: ClassVar[bool | None] = False
    bandwidth: float | None = None
    num_permutations: int = 500
    test_rows: int = 5000

    def __post_init__(self) -> None:
        _check_options(self.bandwidth, self.num_permutations)
        check_count("test_rows", self.test_rows, 2)

    def score(self, predictions: np.ndarray, references: np.ndarray, *, seed: int) -> float:
        """Return the estimate alone."""
        return mmd(predictions, references, bandwidth=self.bandwidth, seed=seed).mmd

    def after(self, found: Result, predictions: np.ndarray, references: np.ndarray, *, seed: int) -> None:
        """Test all rows once, `mmd_p_value`."""
        if self.num_permutations:
            rng = public_generator(seed, "mmd-test-rows")
            left, right = (rows[rng.permutation(len(rows))[: self.test_rows]] for rows in (predictions, references))
            found["mmd_p_value"] = mmd(
                left, right, bandwidth=self.bandwidth, num_permutations=self.num_permutations, seed=seed
            ).p_value
            if max(len(predictions), len(references)) > self.test_rows:
                found["limits"].append(f"mmd_p_value reads {self.test_rows} public random rows of the larger sets")


def _check_options(bandwidth: float | None, num_permutations: int) -> None:
    if bandwidth is not None and not 0 < bandwidth < float("inf"):
        raise ConfigError(f"bandwidth is {bandwidth}; it is a positive number, or None for the median distance")
    check_count("num_permutations", num_permutations, 0)


def _median_distance(rows: np.ndarray, seed: int) -> float:
    """Return the median distance of pairs of rows, or the mean where the median is 0."""
    if len(rows) > _MEDIAN_ROWS:
        rows = rows[public_generator(seed, "mmd-bandwidth").permutation(len(rows))[:_MEDIAN_ROWS]]
    parts = [
        squared[np.arange(len(rows)) > start + np.arange(len(squared))[:, None]] for start, squared in _gaps(rows)
    ]
    distances = np.sqrt(np.concatenate(parts))
    return float(np.median(distances)) or float(distances.mean(dtype=np.float64))


def _gaps(rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield squared distances of blocks of rows to all rows, exactly 0 on the diagonal and never below 0."""
    lengths = np.einsum("ij,ij->i", rows, rows)
    step = max(1, min(_BLOCK, _MOST_PAIRS // len(rows)))
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        squared = block @ rows.T
        squared *= -2
        squared += lengths[start : start + step, None]
        squared += lengths
        np.maximum(squared, 0, out=squared)
        squared[np.arange(len(block)), start + np.arange(len(block))] = 0
        yield start, squared


def _statistics(rows: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    """Return MMD^2 under the kernel of width 1 for each column of labels, which are 1 in `count` of the rows."""
    inside, crossing, total = np.zeros(labels.shape[1]), np.zeros(labels.shape[1]), 0.0
    for start, squared in _gaps(rows):
        kernel = np.exp(np.multiply(squared, -0.5, out=squared), out=squared)
        mine = labels[start : start + len(kernel)]
        inside += np.einsum("ij,ij->j", mine, kernel @ labels, dtype=np.float64)
        sums = kernel.sum(axis=1, dtype=np.float64)
        crossing += sums @ mine
        total += float(sums.sum())
    other = len(rows) - count
    between = crossing - inside
    outside = total - 2 * crossing + inside
    first, second = (inside - count) / (count * (count - 1)), (outside - other) / (other * (other - 1))
    values: np.ndarray = first + second - 2 * between / (count * other)
    return values
