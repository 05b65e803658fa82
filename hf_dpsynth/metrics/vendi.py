"""Vendi score: how many different texts a set is worth, between 1 and the number of its rows.

It is the exponential of the entropy of the eigenvalues of K / n, where K holds the cosines of the rows. They are those
of a d x d matrix too, so n rows cost n d^2. The score grows with the number of rows: compare sets of one size only.
Source: Friedman and Dieng 2023, arXiv:2210.02410.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hf_dpsynth.metrics.base import Metric, Result, alike, check_count, check_seed
from hf_dpsynth.metrics.embedding import embed
from hf_dpsynth.metrics.rows import blocks, check_pair, check_rows
from hf_dpsynth.models import load_embedder
from hf_dpsynth.models.base import Embedder
from hf_dpsynth.privacy.keys import public_generator


def vendi(rows: np.ndarray) -> float:
    """Count the effectively different rows of a set.

    Args:
        rows (`np.ndarray`): embeddings, shape (n, d); their lengths do not matter. Rows of zeros are alike and unlike
            all others. Sensitive if they are.
    Returns:
        `float`: from 1, all rows alike, to n, all at right angles. As sensitive as the rows.
    Raises:
        ConfigError: no rows, or values that are not finite.
    Examples:
        >>> import numpy as np
        >>> round(vendi(np.eye(4)), 6), round(vendi(np.ones((4, 2))), 6)
        (4.0, 1.0)
    """
    check_rows(rows, "the set", what="vendi", least=1)
    count, width = len(rows), rows.shape[1] + 1
    if count <= width:
        units = _units(rows)
        gram = units @ units.T
    else:
        gram = np.zeros((width, width))
        for block in blocks(rows):
            units = _units(block)
            gram += units.T @ units
    shares = np.linalg.eigvalsh(gram / count)
    shares = shares[shares > 0]
    shares /= shares.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


@dataclass(frozen=True, kw_only=True)
class Vendi(Metric):
    """The Vendi score of synthetic texts and, for comparison, that of as many real ones.

    Args:
        num_splits (`int`): public random subsets that the scores are averaged over where the sets differ in size.
    """

    name: ClassVar[str] = "vendi"
    description: ClassVar[str] = "the effective number of different texts in a set; higher is more diverse"
    source: ClassVar[str] = "Friedman and Dieng 2023, arXiv:2210.02410"
    higher_is_better: ClassVar[bool | None] = True
    needs_references: ClassVar[bool] = False
    needs_embedder: ClassVar[bool] = True
    num_splits: int = 5

    def __post_init__(self) -> None:
        check_count("num_splits", self.num_splits, 1)

    def compute(
        self,
        *,
        predictions: Sequence[str],
        references: Sequence[str] | None = None,
        embedder: str | Embedder = "minilm",
        seed: int = 0,
        public_references: bool = False,
        cache: str | os.PathLike[str] | None = None,
    ) -> Result:
        """Embed the texts and count the different ones.

        Args:
            predictions (`Sequence[str]`): synthetic texts. Public.
            references (`Sequence[str]`, *optional*): real texts. Both scores are then over as many rows as the
                smaller set has. Sensitive.
            embedder (`str` or object with `.embed`): the model.
            seed (`int`): the seed of the public subsets.
            public_references (`bool`): whether the references are public.
            cache (`str` or path, *optional*): a file that keeps the vectors of `predictions`. Only if they are public.
        Returns:
            `dict`: `vendi`, `references_vendi` where there are references, `num_rows`, `limits` and
            `uses_private_data`. As sensitive as the references, as soon as there are any.
        Raises:
            ConfigError: no texts, a value that is no text, or embeddings that are not finite or of two widths.
        """
        check_seed(seed)
        model = load_embedder(embedder)
        synthetic = embed(predictions, model, what="predictions", public=True, cache=cache)
        if references is None:
            return {
                "vendi": vendi(synthetic),
                "num_rows": len(synthetic),
                "limits": _alike(synthetic, "predictions"),
                "uses_private_data": False,
            }
        real = embed(references, model, what="references", public=public_references)
        check_pair(synthetic, real, what="vendi", least=1)
        size = min(len(synthetic), len(real))
        limits = [] if len(synthetic) == len(real) else [f"both scores are over {size} rows, those of the smaller set"]
        return {
            "vendi": self._mean(synthetic, size, seed, "predictions"),
            "references_vendi": self._mean(real, size, seed, "references"),
            "num_rows": size,
            "limits": [*limits, *_alike(synthetic, "predictions"), *_alike(real, "references")],
            "uses_private_data": not public_references,
        }

    def _mean(self, rows: np.ndarray, size: int, seed: int, what: str) -> float:
        """Return the score of the set, or the mean over public random subsets where it has more rows."""
        if len(rows) == size:
            return vendi(rows)
        draws = [public_generator(seed, "vendi", what, number) for number in range(self.num_splits)]
        return float(np.mean([vendi(rows[rng.permutation(len(rows))[:size]]) for rng in draws]))


def _alike(rows: np.ndarray, what: str) -> list[str]:
    return [f"all texts of {what} are the same to vendi"] if len(rows) > 1 and alike(rows) else []


def _units(rows: np.ndarray) -> np.ndarray:
    """Return rows of length 1 in float64 with one more column, which is the direction of rows of zeros."""
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    return np.hstack([rows / np.where(lengths > 0, lengths, 1), lengths == 0])
