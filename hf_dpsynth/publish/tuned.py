"""A model that DP fine-tuning released, as a model repository: its weights, its card and the claim they carry."""

from dataclasses import replace
from pathlib import Path, PurePosixPath
from shutil import copyfile

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.publish.folder import PRIVACY, existing, load_privacy, write_record
from hf_dpsynth.release import Release
from hf_dpsynth.store import file_digest


def staged(model: Path, release: Release | None, folder: Path) -> Release:
    """Copy a released model and its record into a folder.

    Args:
        model (`Path`): the folder of the model, `RUN/adapter`.
        release (`Release`, *optional*): of the run; that beside the folder when missing.
        folder (`Path`): where to; made.
    Returns:
        `Release`: of the model.
    Raises:
        ConfigError: there is no such folder or no release, or a file is not the one that was released.
    """
    existing(model)
    if release is None:
        if not (model.parent / PRIVACY).is_file():
            raise ConfigError(f"{model.parent} has no {PRIVACY}. Pass release=hf_dpsynth.load_privacy(RUN).")
        release = load_privacy(model.parent)
    files = {PurePosixPath(path).relative_to(PurePosixPath(path).parts[0]): digest for path, digest in release.models}
    if not files:
        raise ConfigError(f"the release of {release.plan.mechanism} holds no model. Push its rows.")
    folder.mkdir(parents=True)
    for name, digest in files.items():
        source = model / name
        if not source.is_file() or file_digest(source) != digest:
            raise ConfigError(
                f"{name} of {model} is not the file that was released. Push the folder that the run wrote, unchanged."
            )
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copyfile(source, folder / name)
    listed = tuple((str(name), digest) for name, digest in files.items())
    found = replace(release, is_model=True, files=listed, models=listed, rows=(), earlier=(), sampler=None)
    write_record(found, folder)
    return found


def is_model_folder(folder: Path) -> bool:
    """Return whether a folder holds a model, and no run."""
    return not (folder / PRIVACY).exists() and any(
        (folder / name).exists() for name in ("adapter_config.json", "config.json")
    )
