"""The splits of a `datasets` object, and results in the shape of what was given."""

import re
from typing import Any

from hf_dpsynth.errors import ConfigError

_SPLIT_NAME = r"\w+(\.\w+)*"


def splits_of(ds: Any) -> dict[str, Any]:
    """Return the splits of a map-style object that hold rows.

    Raises:
        ConfigError: it is of another type, or a split is empty, of other columns, or has no name of `datasets`.
    """
    from datasets import Dataset, DatasetDict

    if isinstance(ds, DatasetDict):
        splits = dict(ds.items())
    elif isinstance(ds, Dataset):
        plain = re.fullmatch(_SPLIT_NAME, str(ds.split or ""))
        splits = {str(ds.split) if plain else "train": ds}
    else:
        raise ConfigError(f"{type(ds).__name__} is not supported; pass a datasets.Dataset or DatasetDict.")
    if not splits:
        raise ConfigError("the DatasetDict is empty: it has no split.")
    for name, data in splits.items():
        if not re.fullmatch(_SPLIT_NAME, name):
            raise ConfigError(f"split {name!r} is no split name of datasets: letters, digits, '_' and single dots.")
        if not len(data):
            raise ConfigError(f"split {name!r} is empty: it has no rows.")
        if data.features != next(iter(splits.values())).features:
            raise ConfigError(f"split {name!r} has other columns than the first one; make them equal.")
    return splits


def one_split(ds: Any, split: str) -> Any:
    """Return the split of a DatasetDict that is asked for, or the Dataset itself.

    Raises:
        ConfigError: there is no such split, or what `splits_of` raises.
    """
    from datasets import DatasetDict

    if isinstance(ds, DatasetDict):
        if split not in ds:
            raise ConfigError(f"split {split!r} does not exist; the splits are {list(ds)}.")
        ds = ds[split]
    return next(iter(splits_of(ds).values()))


def like(ds: Any, made: dict[str, Any]) -> Any:
    """Return what was made as the kind of object that was given."""
    from datasets import DatasetDict

    return DatasetDict(made) if isinstance(ds, DatasetDict) else next(iter(made.values()))
