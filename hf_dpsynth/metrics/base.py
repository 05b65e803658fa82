"""What a metric is: a frozen dataclass of public options, texts as arguments, and a dict of figures as the answer.

A score alone says little: two halves of the same real data do not score perfectly either, and how far they fall short
depends on the number of rows. So every two-sample metric scores synthetic against real and real against real at the
same number of rows, over several public splits, and says which rows it could not use.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.keys import public_generator
from hf_dpsynth.registry import closest

Result = dict[str, Any]
_LEAST_ROWS = 2


@dataclass(frozen=True, kw_only=True)
class Metric(ABC):
    """A metric. Its fields are public options; texts and models are arguments of `compute`, never fields."""

    name: ClassVar[str]
    description: ClassVar[str]
    source: ClassVar[str]
    higher_is_better: ClassVar[bool | None]
    needs_references: ClassVar[bool] = True
    needs_embedder: ClassVar[bool] = False

    @classmethod
    def options(cls) -> list[str]:
        """List the options."""
        return [field.name for field in fields(cls)]

    def with_params(self, params: Mapping[str, Any]) -> Self:
        """Return the same metric with other options.

        Args:
            params (`Mapping`): values of fields.
        Raises:
            ConfigError: there is no such option; the closest one is named.
        """
        for name in params:
            if name not in self.options():
                raise ConfigError(f"{self.name} has no option {name!r}{closest(name, self.options())}")
        return replace(self, **params)


@dataclass(frozen=True)
class Splits:
    """Public random halves of the references, and as many rows of the predictions: what a score and its floor read.

    Args:
        num_predictions (`int`): rows of the synthetic set.
        num_references (`int`): rows of the real set.
        num_splits (`int`): how many halves to draw.
        seed (`int`): the seed of public randomness.
        num_holdout (`int`): rows of a second real set that takes the place of one half; 0 when there is none.
    """

    num_predictions: int
    num_references: int
    num_splits: int
    seed: int
    num_holdout: int = 0

    @property
    def size(self) -> int:
        """Return the number of rows on each side of every comparison."""
        real = min(self.num_references, self.num_holdout) if self.num_holdout else self.num_references // 2
        return min(self.num_predictions, real)

    def draw(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the rows of the predictions, of the references, and of the other half (or holdout) for each split."""
        for number in range(self.num_splits):
            rng = public_generator(self.seed, "metric-split", str(number))
            predictions = rng.permutation(self.num_predictions)[: self.size]
            references = rng.permutation(self.num_references)
            other = rng.permutation(self.num_holdout) if self.num_holdout else references[self.size :]
            yield predictions, references[: self.size], other[: self.size]


@dataclass(frozen=True, kw_only=True)
class TwoSampleMetric(Metric):
    """A metric that compares two sets of rows; `prepare` turns texts into rows, `score` compares two sets of them."""

    least_rows: ClassVar[int] = _LEAST_ROWS

    @abstractmethod
    def score(self, predictions: np.ndarray, references: np.ndarray, *, seed: int) -> float | dict[str, float]:
        """Compare two sets of rows.

        Args:
            predictions (`np.ndarray`): rows of the synthetic texts, axis 0 of length m. Public.
            references (`np.ndarray`): rows of the real texts, axis 0 of length n. Sensitive.
            seed (`int`): the seed of public randomness, e.g. of k-means.
        Returns:
            `float` or `dict[str, float]`: the score, or the score under the metric's name and further figures by name.
        """

    def compare(
        self,
        predictions: np.ndarray,
        references: np.ndarray,
        *,
        holdout: np.ndarray | None = None,
        equal_size: bool = True,
        num_splits: int = 5,
        seed: int = 0,
        public_references: bool = False,
    ) -> Result:
        """Score prepared rows, with the floor of real against real at the same number of rows.

        Args:
            predictions (`np.ndarray`): rows of the synthetic texts, axis 0 of length m. Public.
            references (`np.ndarray`): rows of the real texts, axis 0 of length n. Sensitive.
            holdout (`np.ndarray`, *optional*): further real rows for the floor, so that no half of `references` is
                given up for it. Sensitive.
            equal_size (`bool`): score as many rows as the floor has; False scores all rows, and the floor then has
                another number of rows, which is said under `limits`.
            num_splits (`int`): public random halves that score and floor are averaged over.
            seed (`int`): the seed of public randomness.
            public_references (`bool`): whether the references are public; then nothing private is read.
        Returns:
            `dict`: the score under the metric's name, the floor under `{name}_floor`, the smallest and the largest
            value over the splits under `{name}_interval` and `{name}_floor_interval`, `num_rows` and
            `floor_num_rows` per side, `limits` (sentences) and `uses_private_data`. As sensitive as the references.
        Raises:
            ConfigError: too few rows on one side, rows of two widths, or a score that is not a number.
        """
        if not num_splits >= 1:
            raise ConfigError(f"num_splits is {num_splits}; it is at least 1")
        if holdout is not None and not len(holdout):
            raise ConfigError("holdout= is empty; pass real texts, or leave it out to split the references")
        splits = Splits(len(predictions), len(references), num_splits, seed, 0 if holdout is None else len(holdout))
        self._check(splits, holdout is not None)
        scores, floors = [], []
        for number, (left, right, other) in enumerate(splits.draw()):
            real = references[right]
            rest = references[other] if holdout is None else holdout[other]
            floors.append(self._named(self.score(rest, real, seed=seed + number)))
            if equal_size:
                scores.append(self._named(self.score(predictions[left], real, seed=seed + number)))
            else:
                scores.append(self._named(self.score(predictions, references, seed=seed + number)))
        limits = self.limits(splits.size)
        if not equal_size:
            limits.append(
                f"score over {len(predictions)} synthetic and {len(references)} real rows, floor over {splits.size} "
                "on each side: not comparable; pass equal_size=True"
            )
        rows = splits.size if equal_size else min(len(predictions), len(references))
        return {
            **_summary(scores, ""),
            **_summary(floors, "_floor"),
            "num_rows": rows,
            "floor_num_rows": splits.size,
            "limits": limits,
            "uses_private_data": not public_references,
        }

    def limits(self, size: int) -> list[str]:
        """Return what a reader must know about a score over so many rows on each side."""
        return []

    def _check(self, splits: Splits, has_holdout: bool) -> None:
        if splits.size < self.least_rows:
            need = self.least_rows if has_holdout else 2 * self.least_rows
            raise ConfigError(
                f"{self.name} needs {self.least_rows} synthetic and {need} real texts (the floor compares two halves "
                f"of the real ones); there are {splits.num_predictions} synthetic texts"
                + ("" if splits.num_predictions < self.least_rows else ", and too few real ones")
                + ". Pass more."
            )

    def _named(self, score: float | dict[str, float]) -> dict[str, float]:
        named = score if isinstance(score, dict) else {self.name: score}
        wrong = [key for key, value in named.items() if np.isnan(value)]
        if wrong:
            raise ConfigError(f"{wrong[0]} is not a number for these rows. Check that the embeddings are finite.")
        return named


def _summary(values: Sequence[dict[str, float]], suffix: str) -> dict[str, Any]:
    """Return mean, and smallest and largest, of every figure over the splits."""
    found: dict[str, Any] = {}
    for key in values[0]:
        figures = [float(value[key]) for value in values]
        found[f"{key}{suffix}"] = float(np.mean(figures))
        found[f"{key}{suffix}_interval"] = (min(figures), max(figures))
    return found


def check_texts(texts: Any, what: str) -> list[str]:
    """Return texts as a list.

    Args:
        texts (`Sequence[str]` or a column of a dataset): texts. Sensitive if they are.
        what (`str`): the name of the argument, for the message.
    Raises:
        ConfigError: it is a single text, or holds something else than text; never shows a text.
    """
    if isinstance(texts, (str, bytes)) or not hasattr(texts, "__iter__"):
        raise ConfigError(f"{what}= is of type {type(texts).__name__}; pass a list of texts")
    rows = list(texts)
    wrong = next((row for row in rows if not isinstance(row, str)), "")
    if not isinstance(wrong, str):
        raise ConfigError(
            f"{what}= holds a value of type {type(wrong).__name__}; every row must be a text. Drop missing values."
        )
    return rows
