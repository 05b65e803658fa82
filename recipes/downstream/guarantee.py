"""What both scripts need: rows of a data set that agrees with its guarantee, and the card of a model made of them."""

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import yaml
from datasets import Dataset, load_dataset
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError

import hf_dpsynth
from hf_dpsynth import inputs
from hf_dpsynth.errors import HfDpsynthError
from hf_dpsynth.models import catalog
from hf_dpsynth.release import Release


def stop(reason: str) -> NoReturn:
    """End the script with one line on standard error and exit code 1."""
    sys.exit(f"refused: {reason}")


def checked_rows(repo_id: str, revision: str | None, split: str) -> tuple[Dataset, Release, str]:
    """Return the rows of a published data set, its release and the commit that was checked, or end the script.

    Args:
        repo_id (`str`): the data set on the Hub.
        revision (`str`, *optional*): a branch, tag or commit; what is checked and what is read is one commit of it.
        split (`str`): the split to read.
    """
    try:
        commit = HfApi().dataset_info(repo_id, revision=revision).sha
        found = hf_dpsynth.verify(repo_id, revision=commit)
        if not found.ok:
            stop(f"{repo_id} does not agree with its own guarantee: {'; '.join(found.findings)}")
        release = hf_dpsynth.load_privacy(repo_id, revision=commit)
        rows = load_dataset(repo_id, revision=commit, split=split)
    except (HfDpsynthError, HfHubHTTPError, ValueError, OSError) as error:
        stop(f"{repo_id} cannot be used: {str(error).splitlines()[0]}")
    print(f"guarantee of {repo_id}: {release.statement()}")
    return rows, release, str(commit)


def examples(rows: Any, text_column: str, label_column: str) -> tuple[list[str], list[str]]:
    """Return the texts that are not blank and the names of their labels, or end the script."""
    for column in (text_column, label_column):
        if column not in rows.features:
            stop(f"there is no column {column!r}; the columns are {', '.join(rows.features)}")
    kind = rows.features[label_column]
    pairs = [
        (text, kind.int2str(label) if hasattr(kind, "int2str") and not isinstance(label, str) else str(label))
        for text, label in zip(rows[text_column][:], rows[label_column][:], strict=True)
        if text and not text.isspace() and label is not None
    ]
    if not pairs:
        stop("no row has a text and a label")
    texts, labels = zip(*pairs, strict=True)
    return list(texts), list(labels)


def test_examples(source: str, split: str, text_column: str, label_column: str) -> tuple[list[str], list[str]]:
    """Return the texts and labels of a test set: a file, a folder, a Hub id or a name of the catalogue."""
    try:
        found = inputs.load_input(source, text_column=text_column, label_columns=(label_column,))
    except HfDpsynthError as error:
        stop(str(error))
    if isinstance(found, dict):
        if split not in found:
            stop(f"{source} has no split {split!r}, but {', '.join(found)}")
        found = found[split]
    return examples(found, text_column, label_column)


def model_folder(name: str) -> str:
    """Return a folder for a name of the catalogue; a path or a Hub id as it is."""
    return str(hf_dpsynth.models.pull(name)) if name in _sources() else name


def public_name(name: str) -> str:
    """Return the Hub id of a base model; the last name of a folder, whose path is nobody else's business."""
    source = _sources().get(name, name).removeprefix("https://huggingface.co/")
    return Path(source).name if Path(source).is_dir() else source


def _sources() -> dict[str, str]:
    return {asset.name: asset.source for asset in catalog.models()}


def write_card(
    folder: str | os.PathLike[str], repo_id: str, commit: str, release: Release, base: str, about: dict[str, Any]
) -> None:
    """Write the README.md of a model: what it is, its data set and the guarantee that stands there.

    Args:
        folder (`str` or path): of the model.
        repo_id (`str`): the data set on the Hub.
        commit (`str`): the commit of the data set.
        release (`Release`): of the data set.
        base (`str`): the public name of the model that was tuned.
        about (`dict`): further front matter, with a title.
    """
    title = about.pop("title")
    named = {"base_model": base} if catalog.HUB_ID.fullmatch(base) else {}
    front = {**named, **about, "datasets": [repo_id], "tags": ["trained-on-synthetic-data", release.plan.mechanism]}
    text = f"""---
{yaml.safe_dump(front, sort_keys=False).strip()}
---

# {title}

Trained on the rows of [{repo_id}](https://huggingface.co/datasets/{repo_id}) at commit `{commit}`, and no others.
The guarantee of those rows, `{release.guarantee_id}`:

> {release.statement()}

Training on these rows is post-processing: it adds no loss of privacy to theirs. This says nothing of what the base
model had read before, and nothing of test sets that the model was measured on.
"""
    Path(folder, "README.md").write_text(text, encoding="utf-8")


def push(folder: str | os.PathLike[str], repo_id: str, public: bool) -> None:
    """Upload a model and its card in one commit, or end the script."""
    try:
        api = HfApi()
        api.create_repo(repo_id, private=not public, exist_ok=True)
        done = api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Model and card")
    except (HfHubHTTPError, ValueError, OSError) as error:
        stop(f"{repo_id} was not pushed: {str(error).splitlines()[0]}")
    print(f"pushed: {done.commit_url}")
