"""Released rows as Parquet files, and files as fresh datasets: never by `map` or `select` from a private object."""

from pathlib import Path
from typing import Any

from hf_dpsynth.errors import PrivacyError


def parquet_writer(features: Any, values: dict[str, list[Any]]) -> Any:
    """Return a function that writes columns to a Parquet file with their features in its schema."""
    import pyarrow.parquet as parquet
    from datasets import Dataset

    def write(path: Path) -> None:
        # encoded by `datasets`, whose own writer would count the rows in a log
        parquet.write_table(Dataset.from_dict(values, features=features).data.table, path)

    return write


def read_rows(path: Path) -> Any:
    """Return a fresh Dataset of released rows."""
    import pyarrow.parquet as parquet

    if not path.exists():
        raise PrivacyError(f"the rows of {path} are gone, and so is the key of their noise. Pass another out=.")
    return fresh(parquet.read_table(path))


def fresh(table: Any) -> Any:
    """Return a Dataset with a random fingerprint and a DatasetInfo of features only."""
    import secrets

    from datasets import Dataset, DatasetInfo, Features
    from datasets.table import InMemoryTable

    info = DatasetInfo(features=Features.from_arrow_schema(table.schema))
    return Dataset(InMemoryTable(table), info=info, fingerprint=secrets.token_hex(8))
