"""What a metric is: a frozen dataclass of public options, texts as arguments, and a dict of figures as the answer.

A score alone says little: two halves of the same real data do not score perfectly either, and how far they fall short
depends on the number of rows. So every two-sample metric scores synthetic against real and real against real at the
same number of rows, over several public splits, and says which rows it could not use.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral
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

    @property
    def least_rows(self) -> int:
        """Return the fewest rows that a side may have."""
        return _LEAST_ROWS

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
            ConfigError: too few rows on one side, rows of two widths, or a score that is not finite.
        """
        check_count("num_splits", num_splits, 1)
        check_seed(seed)
        if holdout is not None and not len(holdout):
            raise ConfigError("holdout= is empty; pass real texts, or leave it out to split the references")
        splits = Splits(len(predictions), len(references), num_splits, seed, 0 if holdout is None else len(holdout))
        self._check(splits, holdout is not None)
        scores, floors = self._scored(splits, predictions, references, holdout, equal_size=equal_size)
        limits = [*self.limits(splits.size), *self._alike(predictions, references, holdout)]
        if not equal_size:
            limits.append(
                f"score over {len(predictions)} synthetic and {len(references)} real rows, floor over {splits.size} "
                "on each side: not comparable; pass equal_size=True"
            )
        found = {
            **_summary(scores, ""),
            **_summary(floors, "_floor"),
            "num_rows": splits.size if equal_size else min(len(predictions), len(references)),
            "floor_num_rows": splits.size,
            "limits": limits,
            "uses_private_data": not public_references,
        }
        self.after(found, predictions, references, seed=seed)
        return found

    def after(self, found: Result, predictions: np.ndarray, references: np.ndarray, *, seed: int) -> None:
        """Add to what `compare` has found; a metric with more to say than scores and floors overrides it.

        Args:
            found (`dict`): the result, changed in place. As sensitive as the references.
            predictions (`np.ndarray`): all rows of the synthetic texts. Public.
            references (`np.ndarray`): all rows of the real texts. Sensitive.
            seed (`int`): the seed of public randomness.
        """

    def limits(self, size: int) -> list[str]:
        """Return what a reader must know about a score over so many rows on each side."""
        return []

    def _scored(
        self,
        splits: Splits,
        predictions: np.ndarray,
        references: np.ndarray,
        holdout: np.ndarray | None,
        *,
        equal_size: bool,
    ) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
        """Return the figures of score and floor for each split."""
        scores, floors = [], []
        for seed, (left, right, other) in enumerate(splits.draw(), start=splits.seed):
            real = references[right]
            rest = references[other] if holdout is None else holdout[other]
            floors.append(self._named(self.score(rest, real, seed=seed)))
            pair = (predictions[left], real) if equal_size else (predictions, references)
            scores.append(self._named(self.score(*pair, seed=seed)))
        return scores, floors

    def _alike(self, *sides: np.ndarray | None) -> list[str]:
        return [
            f"all {what} texts are the same to {self.name}: a good score says nothing then"
            for what, rows in zip(("synthetic", "real", "holdout"), sides, strict=True)
            if rows is not None and alike(rows)
        ]

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
        wrong = [key for key, value in named.items() if not np.isfinite(value)]
        if wrong:
            raise ConfigError(
                f"{wrong[0]} is NaN or infinite for these rows. Check that they are finite and not huge."
            )
        return named


def _summary(values: Sequence[dict[str, float]], suffix: str) -> dict[str, Any]:
    """Return mean, and smallest and largest, of every figure over the splits."""
    found: dict[str, Any] = {}
    for key in values[0]:
        figures = [float(value[key]) for value in values]
        found[f"{key}{suffix}"] = float(np.mean(figures))
        found[f"{key}{suffix}_interval"] = (min(figures), max(figures))
    return found


def alike(rows: np.ndarray) -> bool:
    """Return whether all rows of a set are equal; reads no further than the first that is not.

    Args:
        rows (`np.ndarray`): rows on axis 0, numbers or objects that hold arrays. Sensitive if they are.
    """
    if rows.dtype == object:
        return all(all(map(np.array_equal, row, rows[0])) for row in rows)
    return all(np.array_equal(row, rows[0]) for row in rows)


def check_count(name: str, value: Any, least: int, more: str = "") -> None:
    """Refuse an option that is no whole number or too small.

    Args:
        name (`str`): the option.
        value (`Any`): its value. Public.
        least (`int`): the smallest that is accepted.
        more (`str`): the end of the message, e.g. what else is accepted.
    Raises:
        ConfigError: it is no whole number of at least `least`.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ConfigError(f"{name} is {value!r}; it is a whole number of at least {least}{more}")


def check_seed(seed: Any) -> None:
    """Refuse a seed that is no whole number.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise ConfigError(f"seed is {seed!r}; it is a whole number")


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
