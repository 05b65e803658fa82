"""Labelled texts in memory, and the split that keeps test texts away from mechanisms.

Labels are compared by name: ClassLabel names, or other values as text. Nothing here is printed, pickled or cached.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from hf_dpsynth import columns
from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.privacy.keys import public_generator
from hf_dpsynth.privacy.records import PrivateTexts

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


@dataclass(frozen=True, eq=False, repr=False)
class Examples:
    """Texts with the numbers of their classes. Sensitive: the representation shows none of it.

    Args:
        texts (`PrivateTexts`): one text an example.
        labels (`np.ndarray`): numbers of classes, shape (n,).
        classes (`tuple[str, ...]`): the names of the classes.
        groups (`tuple[str, ...]`): the subgroup of each example; empty where nobody asked.
        skipped (`int`): rows that were left out because they have no text or no label.
    """

    texts: PrivateTexts
    labels: np.ndarray
    classes: tuple[str, ...]
    groups: tuple[str, ...] = ()
    skipped: int = 0

    def __post_init__(self) -> None:
        if not len(self.texts) == len(self.labels) or len(self.groups) not in (0, len(self.texts)):
            raise ConfigError("texts, labels and groups have different lengths; each example needs one of each")

    @classmethod
    def of(
        cls,
        dataset: "Dataset",
        *,
        label_column: str,
        text_column: str | None = None,
        group_column: str | None = None,
        classes: Sequence[str] | None = None,
    ) -> "Examples":
        """Read a dataset.

        Args:
            dataset (`datasets.Dataset`): rows of texts and labels. Sensitive if they are.
            label_column (`str`): a ClassLabel, string, integer or bool column.
            text_column (`str`, *optional*): the column of text; the only other string column when missing.
            group_column (`str`, *optional*): a column of subgroups.
            classes (`Sequence[str]`, *optional*): the names of the classes; those of the dataset when missing. Plain
                integers are read as numbers of classes whose names are words.
        Raises:
            ConfigError: a column is missing or of the wrong type, or a label is none of the classes.
        Examples:
            >>> from datasets import Dataset
            >>> from hf_dpsynth.downstream import Examples
            >>> Examples.of(Dataset.from_dict({"text": ["so good"], "label": ["pos"]}), label_column="label")
            Examples(<redacted>)
        """
        text, label = read_columns(dataset.features, text_column, label_column, group_column)
        names = class_names(label, dataset) if classes is None else tuple(classes)
        number_of = _numbering(dataset.features[label], names)
        values = [value for (value,) in columns.read_rows(dataset, (label,))]
        texts = columns.read_texts(dataset, text)
        kept = [row for row, value in enumerate(values) if value is not None and texts[row] is not None]
        numbers = [number_of(values[row]) for row in kept]
        if None in numbers:
            raise ConfigError(
                f"label_column={label!r} holds a label that is none of the {len(names)} classes of the real data. "
                "Map the labels to the names of the real ones first."
            )
        groups = [] if group_column is None else columns.read_rows(dataset, (group_column,))
        return cls(
            PrivateTexts(texts[row] for row in kept),
            np.array(numbers, dtype=np.int64),
            names,
            tuple(str(groups[row][0]) for row in kept) if groups else (),
            len(texts) - len(kept),
        )

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return "Examples(<redacted>)"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("examples cannot be pickled: they would outlive the run in a file or another process")

    def take(self, rows: Sequence[int] | np.ndarray) -> "Examples":
        """Return the examples of these rows."""
        groups = tuple(self.groups[row] for row in rows) if self.groups else ()
        texts = PrivateTexts(self.texts[row] for row in rows)
        return Examples(texts, self.labels[np.asarray(rows, dtype=np.int64)], self.classes, groups)

    def absent(self) -> list[str]:
        """Return the classes without an example."""
        return [name for number, name in enumerate(self.classes) if number not in self.labels]

    def set_aside(self, share: float, seed: int) -> tuple["Examples", "Examples"]:
        """Split off a share of the examples for validation, label by label.

        Args:
            share (`float`): above 0 and below 1.
            seed (`int`): seed of the public stream.
        Returns:
            the rest, and the examples set aside, at least one on each side.
        Raises:
            ConfigError: there are fewer than two examples.
        """
        if len(self) < 2:
            raise ConfigError("the training rows are fewer than 2; training and validation need one each. Add rows.")
        chosen = stratified(self.labels, share, public_generator(seed, "set-aside"))
        rest = np.setdiff1d(np.arange(len(self)), chosen)
        return self.take(rest), self.take(chosen)


def split(
    real: "Dataset",
    *,
    label_column: str | None,
    text_column: str | None = None,
    holdout: float = 0.2,
    seed: int = 0,
) -> "DatasetDict":
    """Split real data in two, label by label: "train" for a mechanism, "test" that no mechanism may ever see.

    A synthetic set that is tested on "test" must be made from "train" alone. Rows with the same text go to the same
    side, so that no test text reaches a mechanism by way of its double.

    Args:
        real (`datasets.Dataset`): the real data. Sensitive.
        label_column (`str`, *optional*): the column to stratify by; None deals without regard to labels.
        text_column (`str`, *optional*): the column of text; the only other string column when missing.
        holdout (`float`): the share of the distinct texts that is held out.
        seed (`int`): seed of the public stream; the same data and seed give the same split.
    Returns:
        `datasets.DatasetDict`: "train" and "test". Both as sensitive as the data.
    Raises:
        ConfigError: a column is missing, `holdout` is not between 0 and 1, or there are too few rows to split.
    Examples:
        >>> from datasets import Dataset
        >>> from hf_dpsynth import downstream
        >>> ds = Dataset.from_dict({"text": ["a", "b", "c", "d"], "label": [0, 0, 1, 1]})
        >>> {name: part["text"][:] for name, part in downstream.split(ds, label_column="label", holdout=0.5).items()}
        {'train': ['b', 'c'], 'test': ['a', 'd']}
    """
    from datasets import DatasetDict

    if not 0 < holdout < 1:
        raise ConfigError(f"holdout is {holdout}; it lies between 0 and 1")
    text, label = read_columns(real.features, text_column, label_column, None)
    texts = columns.read_texts(real, text)
    first: dict[Any, int] = {}
    places = [first.setdefault(row if value is None else value, row) for row, value in enumerate(texts)]
    distinct = np.unique(places)
    if len(distinct) < 2:
        raise ConfigError("real= has fewer than 2 distinct texts; training and test need one each. Add rows.")
    labels = columns.read_rows(real, (label,) if label else ())
    kinds = np.array([str(labels[row]) for row in distinct])
    chosen = set(distinct[stratified(kinds, holdout, public_generator(seed, "holdout"))].tolist())
    sides: dict[str, list[int]] = {"train": [], "test": []}
    for row, place in enumerate(places):
        sides["test" if place in chosen else "train"].append(row)
    return DatasetDict({name: real.select(rows) for name, rows in sides.items()})


def stratified(labels: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Choose a share of each label's rows, at least one row in all and never all rows of a label.

    Args:
        labels (`np.ndarray`): shape (n,), n at least 2. Sensitive if they are.
        share (`float`): above 0 and below 1.
        rng (`np.random.Generator`): public randomness.
    Returns:
        `np.ndarray`: ascending row numbers.
    """
    by_label = [rng.permutation(np.flatnonzero(labels == value)) for value in np.unique(labels)]
    chosen = [rows[: min(math.floor(share * len(rows) + 0.5), len(rows) - 1)] for rows in by_label]
    if not any(len(rows) for rows in chosen):
        return np.array([max(by_label, key=len)[0]])
    return np.sort(np.concatenate(chosen))


def read_columns(
    features: Any, text_column: str | None, label_column: str | None, group_column: str | None
) -> tuple[str, str]:
    """Return the columns of text and label ("" for none); a label or a subgroup is never guessed to be the text.

    Raises:
        ConfigError: a column is missing or of the wrong type.
    """
    others = (label_column, group_column)
    candidates = {name: feature for name, feature in features.items() if text_column or name not in others}
    text = columns.text_column(candidates, text_column, messages=True)
    for column in (name for name in others if name is not None):
        columns.label_columns(features, column, text)
    return text, label_column or ""


def class_names(column: str, *datasets: Any) -> tuple[str, ...]:
    """Return the names of the classes in a label column: those of a ClassLabel, or the values that occur.

    Raises:
        ConfigError: there are fewer than two classes, or so many that the column is no label.
    """
    names = getattr(datasets[0].features[column], "names", None)
    if names is None:
        found = {value for dataset in datasets for (value,) in columns.read_rows(dataset, (column,))} - {None}
        names = [str(value) for value in sorted(found)]
    if not 1 <= len(names) <= columns.MAX_LABELS:
        raise ConfigError(
            f"label_column={column!r} has {'no value' if not names else 'too many distinct values for a label'}; "
            f"the limit is {columns.MAX_LABELS}. Name another column, or group the labels."
        )
    return tuple(names)


def _numbering(feature: Any, classes: tuple[str, ...]) -> Callable[[Any], int | None]:
    """Return what finds the number of a label: by name, or as the number that a plain integer is."""
    numbers = {name: number for number, name in enumerate(classes)}
    kind = str(getattr(feature, "dtype", "")).lstrip("u")
    # where the names are numbers themselves, a number that is none of them is a mistake, not a place in the list
    is_place = kind.startswith("int") and not hasattr(feature, "names") and not any(map(_is_number, classes))

    def number_of(value: Any) -> int | None:
        found = numbers.get(str(value))
        return int(value) if found is None and is_place and 0 <= value < len(classes) else found

    return number_of


def _is_number(name: str) -> bool:
    return name.removeprefix("-").isdigit()
