"""Whole sources of a public corpus, removed by name: the choice looks at no private text."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hf_dpsynth import registry
from hf_dpsynth.errors import ConfigError


def remove_sources(public: Any, column: str, names: Sequence[str]) -> Any:
    """Return a public corpus without the rows of some sources.

    This is the safe way to keep public material apart from private texts: what is left depends on names that anybody
    could write down, not on what the private texts hold. Decide by where texts come from, e.g. remove the site that
    the private texts were copied from, and not by the result of `find_overlaps`.

    Args:
        public (`Dataset`, `DatasetDict`, `IterableDataset` or `IterableDatasetDict`): the corpus. Public.
        column (`str`): the column that names the source of each row: strings, numbers or a ClassLabel.
        names (`Sequence[str]`): the sources to remove.
    Returns:
        an object of the class of `public`; rows without a source stay.
    Raises:
        ConfigError: the corpus is of another type, the column does not exist, or no row is of one of the sources (not
            checked in a stream, which is filtered when it is read).
    Examples:
        >>> from datasets import Dataset
        >>> corpus = Dataset.from_dict({"text": ["a", "b", "c"], "site": ["news", "reviews", "news"]})
        >>> remove_sources(corpus, "site", ["reviews"])["text"][:]
        ['a', 'c']
    """
    from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict

    if isinstance(names, str) or not names:
        raise ConfigError("names= is a list of sources, at least one.")
    splits = public if isinstance(public, (DatasetDict, IterableDatasetDict)) else {"": public}
    for split in splits.values():
        if not isinstance(split, (Dataset, IterableDataset)):
            raise ConfigError(f"public= is {type(split).__name__}; pass a data set or a stream of `datasets`.")
        if split.features is not None and column not in split.features:
            raise ConfigError(f"column {column!r} does not exist{registry.closest(column, list(split.features))}")
    _check_known(splits.values(), column, names)
    made = {name: _without(split, column, names) for name, split in splits.items()}
    return type(public)(made) if "" not in made else made[""]


def _check_known(splits: Any, column: str, names: Sequence[str]) -> None:
    """Refuse a name that no row has: a slip of the pen would leave the source in."""
    from datasets import Dataset

    if not all(isinstance(split, Dataset) for split in splits):
        return
    known = {value for split in splits for value in _wanted(split, column, split.unique(column), back=True)}
    for name in names:
        if name not in known:
            raise ConfigError(f"no row is of the source {name!r}{registry.closest(str(name), list(map(str, known)))}")


def _wanted(split: Any, column: str, values: Any, *, back: bool = False) -> set[Any]:
    """Return names as a column holds them, or the other way round."""
    feature: Any = (split.features or {}).get(column)
    if not hasattr(feature, "names"):
        return set(values)
    named = [value for value in values if value is not None]
    for value in [] if back else named:
        if value not in feature.names:
            raise ConfigError(f"no source is named {value!r}{registry.closest(str(value), feature.names)}")
    return {feature.int2str(value) if back else feature.str2int(value) for value in named}


def _without(split: Any, column: str, names: Sequence[str]) -> Any:
    from datasets import Dataset

    wanted = _wanted(split, column, names)
    if isinstance(split, Dataset):
        sources = split.with_format(None)[column][:]
        return split.select(np.flatnonzero([source not in wanted for source in sources]))
    return split.filter(lambda source: source not in wanted, input_columns=column)
