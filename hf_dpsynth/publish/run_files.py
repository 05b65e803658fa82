"""What is read of a run after it: its plan, its rows, real texts beside it, and what verbs keep in RUN.private/.

Digests of real texts are keyed by the run's commitment key: equal texts are recognised, and nobody can guess them.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hf_dpsynth import columns, inputs
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.logging import get_logger
from hf_dpsynth.plans import Plan
from hf_dpsynth.publish.folder import load_privacy
from hf_dpsynth.publish.verify import verify
from hf_dpsynth.release import Release
from hf_dpsynth.store import Store

logger = get_logger(__name__)


def checked(folder: Path) -> Release:
    """Return the release of a run whose files of rows are those that it made.

    Raises:
        ConfigError: they are not, so nothing says that they hold no private text.
    """
    release, found = load_privacy(folder), verify(folder)
    if not found.files_match:
        raise ConfigError(
            f"{folder} holds other rows than it released: {found.findings[0]}. Run hf-dpsynth verify to see all."
        )
    return release


def identity(release: Release) -> str:
    """Return the guarantee's id and the digests of the rows of a release."""
    return " ".join((release.guarantee_id, *(digest for _, digest in release.files)))


def commitment(folder: Path, texts: list[str]) -> str | None:
    """Return the keyed digest of real texts, or None where the run's key is gone."""
    store = Store(folder)
    if not (store.beside / "commitment.key").exists():
        return None
    return store.commitment_key(fresh=False).commit(text.encode("utf-8", "surrogatepass") for text in texts)


def held_json(folder: Path, file: str, verb: str, names: Sequence[str]) -> dict[str, Any] | None:
    """Return what a verb kept in RUN.private/, or None where there is nothing of this run. Sensitive.

    Args:
        folder (`Path`): the run directory.
        file (`str`): the name of the file.
        verb (`str`): the verb that writes it.
        names (`Sequence[str]`): its fields, `run` among them.
    Raises:
        ConfigError: the file is none that the verb writes.
    """
    path = Store(folder).beside / file
    if not path.exists():
        return None
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        kept = {name: held[name] for name in names}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is none that hf-dpsynth {verb} writes. Remove it, and {verb} again.") from error
    if kept["run"] != identity(load_privacy(folder)):
        logger.warning("%s is of another run and is not used; %s again", path, verb)
        return None
    return kept


def plan_of(folder: Path) -> Plan | None:
    """Return the plan of a run directory, or None where a path is none.

    Raises:
        ConfigError: there is a plan of another version.
    """
    path = folder / "plan.json"
    if not path.is_file():
        return None
    try:
        return Plan.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not a plan of this version.") from error


def released_texts(folder: Path, plan: Plan, text_column: str | None) -> list[str]:
    """Return the texts of every split that a run released; conversations as they are written out."""
    loaded = inputs.load_input(folder / "data")
    splits = loaded.values() if isinstance(loaded, dict) else [loaded]
    column = text_column or plan.text_column
    return [
        text
        for data in splits
        for text in columns.read_texts(data, columns.text_column(data.features, column, messages=True))
        if text is not None
    ]


def texts_of(
    source: str | os.PathLike[str], text_column: str | None, split: str | None, *, also: str | None = None
) -> list[str]:
    """Return the texts of an input, conversations as they are written out. As sensitive as the input.

    Missing values are left out.

    Args:
        source (`str` or path): a file, a folder of files, a Hub id or a catalogue name.
        text_column (`str`, *optional*): the column of text; the only one when missing.
        split (`str`, *optional*): the split; `train`, or the only one, when missing.
        also (`str`, *optional*): a column to take, where it exists, when `text_column` is missing.
    Raises:
        ConfigError: the input cannot be read, has no such column, or several splits to choose from.
    """
    if also is None:
        inputs.check_headed(source, text_column)
    loaded = inputs.load_input(source, text_column=text_column or also)
    data = one_split(loaded, split, source)
    asked = text_column or (also if also in data.features else None)
    column = columns.text_column(data.features, asked, messages=True)
    return [text for text in columns.read_texts(data, column) if text is not None]


def one_split(loaded: Any, split: str | None, source: str | os.PathLike[str]) -> Any:
    """Return the split of an input that is asked for; `train`, or the only one, when None.

    Raises:
        ConfigError: there is no such split.
    """
    if not isinstance(loaded, dict):
        if split not in (None, "train"):
            raise ConfigError(f"split {split!r} does not exist in {os.fspath(source)!r}; it has train.")
        return loaded
    wanted = split or ("train" if "train" in loaded or len(loaded) > 1 else next(iter(loaded)))
    if wanted not in loaded:
        raise ConfigError(f"split {wanted!r} does not exist in {os.fspath(source)!r}; it has {', '.join(loaded)}.")
    return loaded[wanted]
