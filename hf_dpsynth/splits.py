"""The splits of a `datasets` object, and results in the shape of what was given."""

import re
from typing import Any

from hf_dpsynth.errors import ConfigError

_SPLIT_NAME = r"\w+(\.\w+)*"


def splits_of(ds: Any, *, streams: bool = False) -> dict[str, Any]:
    """Return the splits of an object, which hold rows; those of streams only where they may be.

    Raises:
        ConfigError: it is of another type, or a split is empty, of other columns, or has no name of `datasets`.
    """
    from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict

    if isinstance(ds, (DatasetDict, IterableDatasetDict) if streams else DatasetDict):
        splits = dict(ds.items())
    elif isinstance(ds, (Dataset, IterableDataset) if streams else Dataset):
        plain = re.fullmatch(_SPLIT_NAME, str(ds.split or ""))
        splits = {str(ds.split) if plain else "train": ds}
    else:
        raise ConfigError(f"{type(ds).__name__} is not supported; pass a datasets.Dataset or DatasetDict.")
    if not splits:
        raise ConfigError(f"the {type(ds).__name__} is empty: it has no split.")
    for name, data in splits.items():
        if not re.fullmatch(_SPLIT_NAME, name):
            raise ConfigError(f"split {name!r} is no split name of datasets: letters, digits, '_' and single dots.")
        if not isinstance(data, IterableDataset) and not len(data):
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
