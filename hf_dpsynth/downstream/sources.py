"""What a study trains on, and the rule that keeps its test rows from the mechanisms.

Either the caller split the real data before making anything, or the synthetic sets are functions, which are given the
training part and nothing else. A ready set beside unsplit real data would have seen the rows it is tested on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_dpsynth import columns
from hf_dpsynth.downstream.examples import Examples, class_names, read_columns, split
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.guarantees import ApproxDP, Guarantee, LocalDP, MetricDP, SecretProtection, digits

REAL, DP_ON_REAL = "real", "DP-on-real"


@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """One set of training rows.

    Args:
        name (`str`): "real", or the name of a synthetic set.
        guarantee (`str`): what it promises, in short.
        examples (`Examples`): the rows. Sensitive if they are real.
        test_copies (`int`): rows whose text is exactly a test text.
    """

    name: str
    guarantee: str
    examples: Examples
    test_copies: int

    def limits(self) -> tuple[str, ...]:
        """Return what a reader must know about these rows."""
        said = []
        if self.examples.absent():
            said.append(f"{self.name} has no row of the class {', '.join(self.examples.absent())}")
        if self.examples.skipped:
            said.append(f"{self.examples.skipped} rows of {self.name} have no text or no label and are left out")
        if self.test_copies:
            said.append(f"{self.test_copies} rows of {self.name} are exact copies of a test text")
        return tuple(said)


@dataclass(frozen=True, eq=False, repr=False)
class Material:
    """Everything that a study reads.

    Args:
        test (`Examples`): the real test rows. Sensitive.
        sources (`tuple[Source, ...]`): the real training rows first, then each synthetic set.
    """

    test: Examples
    sources: tuple[Source, ...]

    @property
    def real(self) -> Examples:
        """Return the real training rows. Sensitive."""
        return self.sources[0].examples

    def notes(self) -> tuple[str, ...]:
        """Return what a reader must know about the test rows."""
        absent = self.test.absent()
        said = [f"the test rows have no row of the class {', '.join(absent)}"] if absent else []
        if self.test.skipped:
            said.append(f"{self.test.skipped} test rows have no text or no label and are left out")
        return tuple(said)


def gather(
    real: Any,
    synthetic: Mapping[str, Any],
    *,
    label_column: str,
    text_column: str | None,
    group_column: str | None,
    holdout: float,
    seed: int,
) -> Material:
    """Split the real data, call the functions that make synthetic sets, and read all of them.

    Args:
        real (`Dataset` or `DatasetDict`): the real data, or its splits "train" and "test". Sensitive.
        synthetic (`Mapping[str, Any]`): sets, or functions from the training part to a set, by name.
        label_column (`str`): the column of labels.
        text_column (`str`, *optional*): the column of text; the only other string column when missing.
        group_column (`str`, *optional*): the column of subgroups in the test rows.
        holdout (`float`): the share that is held out of a single Dataset.
        seed (`int`): seed of the public streams.
    Raises:
        ConfigError: the data do not fit together; nothing was made when an argument alone shows it.
    """
    check_data(real, synthetic)
    features = (real["test"] if isinstance(real, dict) else real).features
    text, label = read_columns(features, text_column, label_column, group_column)
    train, test = _halves(real, label_column=label, text_column=text, holdout=holdout, seed=seed)
    read_columns(train.features, text, label, None)
    classes = class_names(label, train, test)
    if len(classes) < 2:
        raise ConfigError(f"label_column={label!r} has a single class in the real data; a classifier needs two.")
    tested = Examples.of(test, text_column=text, label_column=label, group_column=group_column, classes=classes)
    trained = Examples.of(train, text_column=text, label_column=label, classes=classes)
    if not len(tested) or not len(trained):
        raise ConfigError(
            f"the real {'test' if not len(tested) else 'training'} split has no row with a text and a label. Pass "
            "DatasetDict({'train': ..., 'test': ...}) of labelled rows."
        )
    if len(set(tested.groups)) > columns.MAX_LABELS:
        raise ConfigError(f"subgroup_column= has too many distinct values; the limit is {columns.MAX_LABELS}.")
    sources = {}
    # ready sets first: a mistake in one of them must not cost what a mechanism spends
    for name, value in sorted(synthetic.items(), key=lambda item: callable(item[1])):
        made = one_split(value(train) if callable(value) else value, name)
        rows = _read_synthetic(made, name, text, label, classes)
        sources[name] = Source(name, guarantee_of(made), rows, _copies(rows, tested))
    real_rows = Source(REAL, "none", trained, _copies(trained, tested))
    return Material(tested, (real_rows, *(sources[name] for name in synthetic)))


def _read_synthetic(made: Any, name: str, text: str, label: str, classes: tuple[str, ...]) -> Examples:
    """Read a synthetic set, and name it where it does not fit."""
    try:
        rows = Examples.of(made, text_column=text, label_column=label, classes=classes)
    except ConfigError as error:
        raise ConfigError(f"synthetic[{name!r}]: {error}") from None
    if not len(rows):
        raise ConfigError(f"synthetic[{name!r}] has no row with a text and a label; make some first.")
    return rows


def one_split(value: Any, name: str) -> Any:
    """Return the rows of a synthetic set: a Dataset, or the split "train" or the only split of a DatasetDict.

    Raises:
        ConfigError: it is something else.
    """
    from datasets import Dataset, DatasetDict

    if isinstance(value, DatasetDict) and (len(value) == 1 or "train" in value):
        value = value["train"] if "train" in value else next(iter(value.values()))
    if not isinstance(value, Dataset):
        raise ConfigError(
            f"synthetic[{name!r}] is a {type(value).__name__}; it is a Dataset, a DatasetDict with a split 'train', "
            "or a function from the real training split to one of them. Collect a stream with "
            "Dataset.from_list(list(stream))."
        )
    return value


def guarantee_of(dataset: Any) -> str:
    """Return in short what the release of a dataset promises; "unknown" where none is remembered."""
    release = getattr(dataset, "privacy", None)
    if release is None:
        return "unknown"
    if release.plan.insecure_noise:
        return "none: insecure noise"
    return in_short(release.guarantee)


def in_short(guarantee: Guarantee) -> str:
    """Return in short what a guarantee promises.

    Examples:
        >>> in_short(ApproxDP(epsilon=3.0, delta=1e-5))
        '(3, 1e-05)-DP per record'
        >>> in_short(ApproxDP(epsilon=1.00049, delta=1.049e-5))
        '(1.00049, 1.049e-05)-DP per record'
    """
    words: dict[type[Any], Callable[[Any], str]] = {
        ApproxDP: lambda g: f"({digits(g.epsilon)}, {digits(g.delta)})-DP per {g.unit}",
        MetricDP: lambda g: f"metric DP at scale {digits(g.epsilon)} per {g.unit}",
        LocalDP: lambda g: f"local DP with epsilon {digits(g.epsilon)} per {g.unit}",
        SecretProtection: lambda g: f"({digits(g.p)}, {digits(g.r)})-secret protection, not differential privacy",
    }
    if getattr(guarantee, "epsilon", None) == float("inf"):
        return "none"
    return words[type(guarantee)](guarantee)


def check_data(real: Any, synthetic: Any) -> None:
    """Refuse what shows before anything is split, made or spent.

    Raises:
        ConfigError: real or synthetic data have a wrong type, name or splits.
    """
    from datasets import Dataset, DatasetDict

    if not isinstance(synthetic, Mapping) or not all(isinstance(name, str) for name in synthetic):
        raise ConfigError(f"synthetic= is a {type(synthetic).__name__}; pass a dict from name to set or function.")
    for name in (REAL, DP_ON_REAL):
        if name in synthetic:
            raise ConfigError(f"synthetic= has a set named {name!r}, which is the real rows' name; give it another.")
    if isinstance(real, DatasetDict):
        if not {"train", "test"} <= set(real):
            raise ConfigError(
                f"real= has the splits {sorted(map(str, real))}; it needs 'train' and 'test'. Pass "
                "DatasetDict({'train': ..., 'test': ...}), or a single Dataset, which is split."
            )
    elif not isinstance(real, Dataset):
        raise ConfigError(f"real= is a {type(real).__name__}; pass a Dataset, or a DatasetDict with train and test.")
    for name, value in synthetic.items():
        if callable(value):
            continue
        if not isinstance(real, DatasetDict):
            raise ConfigError(
                f"synthetic[{name!r}] is ready-made while real= is not split yet: it would have seen the rows it is "
                "tested on. Call parts = downstream.split(real, label_column=...), make the set from parts['train'] "
                "alone and pass real=parts; or pass a function: lambda train: train.privatize(...)."
            )
        one_split(value, name)


def _halves(real: Any, *, label_column: str, text_column: str | None, holdout: float, seed: int) -> tuple[Any, Any]:
    """Return the training part and the test part of the real data."""
    from datasets import DatasetDict

    if not isinstance(real, DatasetDict):
        real = split(real, label_column=label_column, text_column=text_column, holdout=holdout, seed=seed)
    return real["train"], real["test"]


def _copies(rows: Examples, test: Examples) -> int:
    """Count the rows whose text is exactly a test text. Sensitive."""
    tested = set(test.texts)
    return int(np.sum([text in tested for text in rows.texts]))
