"""Precision, recall, density and coverage: whether synthetic text is like the real text, and like all of it.

Every row has a ball that reaches to its k-th neighbour within its own set. Precision is the share of synthetic rows in
some real ball, recall that of real rows in some synthetic ball. Density counts the real balls a synthetic row lies in,
over k, and may exceed 1; coverage is the share of real balls that hold a synthetic row. The last two are robust to
single rows far out. A row on the rim of a ball is inside.
Source: Kynkäänniemi et al. 2019, arXiv:1904.06991 (precision, recall); Naeem et al. 2020, arXiv:2002.09797.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from hf_dpsynth.compute.nearest import top_k
from hf_dpsynth.metrics.base import check_count
from hf_dpsynth.metrics.embedding import EmbeddingMetric
from hf_dpsynth.metrics.rows import check_pair

_BLOCK = 1024
_MOST_PAIRS = 1 << 24  # of a block, in float64
_SLACK = 1e-6  # of a squared radius: more than products in float64 and radii in float32 lose
_FEW_ROWS = 100


class PRDCResult(NamedTuple):
    """What `prdc` returns; as sensitive as the real rows.

    Args:
        precision (`float`): share of synthetic rows that lie among the real ones.
        recall (`float`): share of real rows that lie among the synthetic ones.
        density (`float`): mean number of real balls around a synthetic row, over k.
        coverage (`float`): share of real rows with a synthetic row in their ball.
    """

    precision: float
    recall: float
    density: float
    coverage: float

    @property
    def f1(self) -> float:
        """Return the harmonic mean of precision and recall, 0 where both are."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def prdc(p: np.ndarray, q: np.ndarray, *, k: int = 5) -> PRDCResult:
    """Compare the neighbourhoods of two sets of rows.

    Args:
        p (`np.ndarray`): embeddings, shape (m, d). Public.
        q (`np.ndarray`): embeddings, shape (n, d). Sensitive.
        k (`int`): the neighbour within the own set that a ball reaches to.
    Returns:
        `PRDCResult`: the four figures. As sensitive as `q`.
    Raises:
        ConfigError: k below 1, a set of k rows or fewer, or rows that cannot be compared.
    Examples:
        >>> import numpy as np
        >>> rows = np.arange(10.0)[:, None]
        >>> prdc(rows + 0.1, rows, k=1).coverage
        1.0
    """
    check_count("k", k, 1)
    check_pair(p, q, what="prdc", least=k + 1)
    left, right = _radii(p, k), _radii(q, k)
    centre = q.mean(axis=0, dtype=np.float64)
    p, q = p - centre, q - centre
    lengths = np.einsum("ij,ij->i", q, q)
    caught, balls = 0, 0
    recalled, covered = np.zeros(len(q), dtype=bool), np.zeros(len(q), dtype=bool)
    step = max(1, min(_BLOCK, _MOST_PAIRS // len(q)))
    for start in range(0, len(p), step):
        block = p[start : start + step]
        squared = np.einsum("ij,ij->i", block, block)[:, None] + lengths - 2 * block @ q.T
        inside = squared <= right
        caught += int(np.count_nonzero(inside.any(axis=1)))
        balls += int(np.count_nonzero(inside))
        covered |= inside.any(axis=0)
        recalled |= (squared <= left[start : start + step, None]).any(axis=0)
    return PRDCResult(caught / len(p), float(recalled.mean()), balls / (k * len(p)), float(covered.mean()))


@dataclass(frozen=True, kw_only=True)
class PRDC(EmbeddingMetric):
    """Precision, recall, density and coverage with their floors; `prdc` is the harmonic mean of the first two.

    Args:
        k (`int`): the neighbour that a ball reaches to.
    """

    name: ClassVar[str] = "prdc"
    description: ClassVar[str] = "precision, recall, density and coverage of synthetic texts, with floors; 1 is best"
    source: ClassVar[str] = "Kynkäänniemi et al. 2019, arXiv:1904.06991; Naeem et al. 2020, arXiv:2002.09797"
    higher_is_better: ClassVar[bool | None] = True
    k: int = 5

    def __post_init__(self) -> None:
        check_count("k", self.k, 1)

    @property
    def least_rows(self) -> int:
        """Return one row more than a ball reaches over."""
        return self.k + 1

    def score(self, predictions: np.ndarray, references: np.ndarray, *, seed: int) -> dict[str, float]:
        """Return the four figures and the single one."""
        found = prdc(predictions, references, k=self.k)
        return {"prdc": found.f1, **{f"prdc_{name}": value for name, value in found._asdict().items()}}

    def limits(self, size: int) -> list[str]:
        """Say what few rows do to balls."""
        if size >= _FEW_ROWS:
            return []
        return [
            f"{size} rows on each side: balls that reach to the {self.k}th neighbour are then wide, and precision and "
            "recall high for unlike sets too; read coverage, and the floors"
        ]


def _radii(rows: np.ndarray, k: int) -> np.ndarray:
    """Return the squared distance of each row to its k-th neighbour, itself not counted; float64, shape (n,)."""
    _, squared = top_k(rows, rows, k + 1)
    radii: np.ndarray = squared[:, k].astype(np.float64)
    scale = float(np.square(rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)).sum(axis=1).mean())
    return radii * (1 + _SLACK) + scale * 1e-12
