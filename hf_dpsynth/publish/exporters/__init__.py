"""Exporters: the facts of a release in the formats of others, and nothing that the facts do not say.

They read privacy.json, and for Croissant the columns of the rows. They check that the facts agree with each other and
that these rows are the released ones; whether the events bear the claim is for `verify`.
"""

import os
from pathlib import Path
from typing import Any

from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.publish.accounts import READING
from hf_dpsynth.publish.exporters.croissant import Column, Place, columns_of, to_croissant, to_json
from hf_dpsynth.publish.exporters.registry import to_registry, to_yaml
from hf_dpsynth.publish.folder import LARGEST_CLAIM, PRIVACY, data_files, existing, read_json
from hf_dpsynth.publish.hub import downloaded, is_repository
from hf_dpsynth.publish.privacy_json import invalid, is_model, to_privacy_json
from hf_dpsynth.publish.reading import from_privacy_json, without_words
from hf_dpsynth.registry import closest
from hf_dpsynth.store import file_digest

REGISTRY, CROISSANT = "opendp-registry", "croissant"
FORMATS = (REGISTRY, CROISSANT)
_VERIFY = "Run hf-dpsynth verify to see all."


def export(path_or_repo: str | os.PathLike[str], format: str, *, revision: str | None = None) -> str:
    """Return a release in the format of others.

    Args:
        path_or_repo (`str` or path): a run directory, a folder with a privacy.json, or the id of a dataset repository
            on the Hub, which is downloaded.
        format (`str`): `"opendp-registry"`, YAML for the registry of deployments of OpenDP, or `"croissant"`,
            JSON-LD of MLCommons, which is meant to lie beside privacy.json, unless it is of a repository.
        revision (`str`, *optional*): a branch, tag or commit of the repository.
    Returns:
        `str`: YAML or JSON. What the facts do not name, as curators and uses, is null or left out.
    Raises:
        ConfigError: no such folder or format, or its privacy.json is none that we write.
        PrivacyError: a file of rows is missing, or is not the one that was released.
        HubError: the repository cannot be read.
    Examples:
        >>> import tempfile, yaml
        >>> from datasets import Dataset
        >>> from hf_dpsynth.publish.exporters import export
        >>> private = Dataset.from_dict({"text": ["a good film"]}).privatize("madlib", epsilon=10)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     private.save_to_disk(folder)
        ...     private.privacy.save(folder)
        ...     found = yaml.safe_load(export(folder, "opendp-registry"))["deployment"]
        >>> found["dp_variant"]["variant_name"], found["privacy_loss"]["privacy_parameters"]
        ('Custom', {})
    """
    if format not in FORMATS:
        raise ConfigError(f"format {format!r} is unknown{closest(str(format), list(FORMATS))}")
    if not is_repository(path_or_repo):
        return _exported(existing(path_or_repo), format, None, None)
    with downloaded(str(path_or_repo), revision) as folder:
        return _exported(folder, format, str(path_or_repo), revision)


def _exported(folder: Path, format: str, repo_id: str | None, revision: str | None) -> str:
    facts = _facts(folder)
    if format == REGISTRY:
        return to_yaml(to_registry(facts))
    place = _place(repo_id, revision, file_digest(folder / PRIVACY), model=is_model(facts))
    return to_json(to_croissant(facts, _columns(folder, facts), place))


def _facts(folder: Path) -> dict[str, Any]:
    """Return the facts in a folder, which agree with each other.

    Raises:
        ConfigError: they are none that we write.
    """
    facts: dict[str, Any] = read_json(folder / PRIVACY, LARGEST_CLAIM)
    wrong = invalid(facts)
    if wrong:
        raise ConfigError(f"{PRIVACY} of {folder} is none that we write: {wrong[0]}. {_VERIFY}")
    try:
        agrees = without_words(to_privacy_json(from_privacy_json(facts))) == without_words(facts)
    except READING as error:
        raise ConfigError(f"{PRIVACY} of {folder} cannot be read ({type(error).__name__}). {_VERIFY}") from error
    if not agrees:
        raise ConfigError(f"{PRIVACY} of {folder} contradicts itself. {_VERIFY}")
    return facts


def _place(repo_id: str | None, revision: str | None, digest: str, *, model: bool) -> Place:
    if repo_id is None:
        return Place(claim_sha256=digest)
    from huggingface_hub import constants, hf_hub_url

    files_at = hf_hub_url(repo_id, "_", repo_type="dataset", revision=revision).removesuffix("_")
    return Place(
        page=f"{constants.ENDPOINT}/{'' if model else 'datasets/'}{repo_id}", files_at=files_at, claim_sha256=digest
    )


def _columns(folder: Path, facts: dict[str, Any]) -> dict[str, tuple[Column, ...]]:
    """Return the columns of the Parquet files; none where the facts lie without any rows.

    Raises:
        PrivacyError: a file of rows is missing, or is not the one that was released.
    """
    there = {path.relative_to(folder).as_posix(): path for path in data_files(folder)}
    found = {}
    for entry in facts["output"]["files"] if there else ():
        path = there.get(entry["path"])
        if path is None or path.is_symlink() or file_digest(path) != entry["sha256"]:
            raise PrivacyError(
                f"{entry['path']} of {folder} is not the file that was released with its guarantee. {_VERIFY}"
            )
        if path.suffix == ".parquet":
            found[entry["path"]] = columns_of(path)
    return found
