"""Publishing on the Hub and reading it back: rows, card and claim land in one commit, or nothing does.

A repository is written by a single commit upon the revision that was looked at, so at no moment does it show rows or a
model without their guarantee. Whatever else lies there stays; rows that no guarantee of ours covers are refused.
"""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.logging import get_logger
from hf_dpsynth.publish import cumulative, tuned
from hf_dpsynth.publish.beside import has_pictures
from hf_dpsynth.publish.folder import CARD, PRIVACY, RELEASE, read_json, save, splits_in, write_record
from hf_dpsynth.publish.model_card import card_of
from hf_dpsynth.publish.pictures import FIGURES, pictures
from hf_dpsynth.publish.pictures import PRIVACY as PRIVACY_PICTURE
from hf_dpsynth.publish.pictures import SPLIT as SPLIT_PICTURE
from hf_dpsynth.publish.privacy_json import to_privacy_json
from hf_dpsynth.publish.recipe_text import RECIPE, SCRIPT, SCRIPT_TEXT, recipe_text
from hf_dpsynth.publish.repository import EARLIER, Repository, told
from hf_dpsynth.publish.shards import limit_of, write_rows
from hf_dpsynth.release import STREAM_NOTES, Release, release_of, rows_of
from hf_dpsynth.splits import splits_of

SHARD = "500MB"
OF_A_STREAM = "The rows were read from a stream when they were published."
_DEFAULT, _DATA = "default", "data"
_OWNER_AND_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_CONFIG = re.compile(r"\w[\w.-]*")
_TAKEN = ("data", FIGURES, "adapter", EARLIER, CARD, PRIVACY, RELEASE, RECIPE, SCRIPT)
logger = get_logger(__name__)


def push_to_hub(
    dataset: Any,
    repo_id: str,
    config_name: str = _DEFAULT,
    *,
    release: Release | None = None,
    postprocessing: str | Sequence[str] | None = None,
    private: bool = True,
    token: str | None = None,
    revision: str | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
    max_shard_size: int | str = SHARD,
) -> Any:
    """Publish rows, or a tuned model, with their card and privacy.json, in one commit.

    A repository that holds another release keeps its claim in `releases/`, and the losses of both are summed on the
    card, also where its rows are replaced. The recipe of the release and a script that runs it lie beside the rows.

    Args:
        dataset (`Dataset`, `DatasetDict`, `IterableDataset`, `IterableDatasetDict` or path): what `privatize` or
            `synthesize` returned, or the same rows loaded again; a stream is read once. A path is the folder of a
            model that was tuned, as `RUN/adapter`, which becomes a model repository.
        repo_id (`str`): `"owner/name"`; it is made when missing. A README.md that lies there keeps its text below the
            card.
        config_name (`str`, defaults to `"default"`): the configuration of the rows, those of which are replaced;
            others stay.
        release (`Release`, *optional*): the release of these rows, `load_privacy(folder)`; `dataset.privacy` when
            missing.
        postprocessing (`str` or `Sequence[str]`, *optional*): what was done to the rows since, where they are not
            those that the release made: filtered, mapped, relabelled. The claim is then conditional on this having
            used no private data. A column that the release did not make must be named in it.
        private (`bool`, defaults to `True`): whether a repository that is made stays private. One that exists stays
            as visible as it is.
        token (`str`, *optional*): a token with write access; that of `hf auth login` when missing.
        revision (`str`, *optional*): the branch to write to, made when missing; the main one by default.
        create_pr (`bool`, defaults to `False`): whether to open a pull request instead.
        commit_message (`str`, *optional*): the message of the commit.
        max_shard_size (`int` or `str`, defaults to `"500MB"`): the size of a file of rows, in memory.
    Returns:
        `huggingface_hub.CommitInfo`: of the commit.
    Raises:
        ConfigError: the rows have no release or are not those that it made, or an argument is wrong; nothing was sent.
        PrivacyError: the noise came from a seed, an audit refutes the claim, or the repository holds rows without a
            guarantee, or a release whose loss does not add to this one.
        HubError: the Hub refused or was out of reach; nothing was published, and another call goes on.
    """
    _check_id(repo_id)
    model = isinstance(dataset, (str, os.PathLike))
    with tempfile.TemporaryDirectory(prefix="hf_dpsynth-push-") as place:
        folder, old = Path(place) / "new", Path(place) / "old"
        if model:
            if config_name != _DEFAULT or postprocessing is not None:
                raise ConfigError("config_name= and postprocessing= are for rows; leave them out for a model.")
            found, part = tuned.staged(Path(dataset), release, folder), ""
        else:
            part = _folder_of(config_name)
            found = _staged(dataset, release, _notes(postprocessing), folder, part, limit_of(max_shard_size))
        check_fit(found)
        if found.charges:  # privacy.json alone holds a part of the plan
            (folder / RECIPE).write_text(recipe_text(found.plan), encoding="utf-8")
            (folder / SCRIPT).write_text(SCRIPT_TEXT, encoding="utf-8")
        what = "A model" if model else "Rows"
        message = commit_message or f"{what} of {found.plan.mechanism}, the card and the guarantee"
        with told(repo_id, "published"):
            repository = Repository(repo_id, "model" if model else "dataset", token, revision, create_pr=create_pr)
            fresh = repository.make()
            repository.look(old)
            stale = _add_earlier(repository, found, folder, old, part) | _draw(repository, folder)
            commit = repository.commit(folder, old, stale, message)
        if fresh and not private:
            with told(repo_id, "shown to everybody: it is published, and private"):
                repository.show()
        elif not private and repository.private:
            logger.warning("%s was there before and stays private; its settings can show it to everybody", repo_id)
    logger.info("published %s", commit.commit_url)
    return commit


@contextmanager
def downloaded(repo_id: str, revision: str | None = None, repo_type: str | None = None) -> Iterator[Path]:
    """Download a repository into a folder that is gone afterwards.

    Args:
        repo_id (`str`): `"owner/name"`.
        revision (`str`, *optional*): a branch, tag or commit.
        repo_type (`str`, *optional*): `"dataset"` or `"model"`; the first of them that there is when missing.
    Raises:
        HubError: there is no such repository for this token, or the Hub is out of reach.
    """
    from huggingface_hub import HfApi, snapshot_download

    if repo_type not in (None, "dataset", "model"):
        raise ConfigError(f"repo_type is {repo_type!r}; it is 'dataset' or 'model'.")
    with tempfile.TemporaryDirectory(prefix="hf_dpsynth-pull-") as place:
        with told(repo_id, "read"):
            if repo_type is None:
                is_model = not HfApi().repo_exists(repo_id, repo_type="dataset") and HfApi().repo_exists(repo_id)
                repo_type = "model" if is_model else "dataset"
            snapshot_download(repo_id, repo_type=repo_type, revision=revision, local_dir=place)
        yield Path(place)


def is_repository(path: Any) -> bool:
    """Return whether a text that names no folder here has the form of a repository's id."""
    return isinstance(path, str) and not Path(path).exists() and bool(_OWNER_AND_NAME.fullmatch(path))


def check_fit(release: Release) -> None:
    """Refuse what must not be published.

    Raises:
        PrivacyError: the noise came from a seed, or an audit refutes the claim.
    """
    if release.plan.insecure_noise:
        raise PrivacyError(
            "the noise of this release came from insecure_noise_seed=: it is for tests, not to publish."
        )
    for line in cumulative.refuted(to_privacy_json(release)):
        raise PrivacyError(f"{line}: the claim does not hold. Find out why before anything of it is published.")


def _staged(
    dataset: Any, release: Release | None, notes: tuple[str, ...], folder: Path, part: str, limit: int
) -> Release:
    """Write rows and their record into a folder, and return the release of these very rows.

    Raises:
        ConfigError: there is no release, or it made other rows and no note says what was done to them.
    """
    found = _release(dataset, release)
    check_fit(found)
    found = replace(found, earlier=())  # those of the repository that it comes from; this one has its own
    splits = splits_of(dataset, streams=True)
    stream = any(not hasattr(rows, "__len__") for rows in splits.values())
    if stream and release_of(dataset) is None and not notes:
        raise ConfigError("a stream is pushed with its own release: push what privatize returned, unchanged.")
    changed = not stream and _changed(splits, found, notes)
    write_rows(splits, folder / part, limit)
    written = splits_in(folder)
    if notes:
        after, added = (*found.postprocessing, *notes), _added(found, written, notes)
        found = replace(found, postprocessing=after, added_columns=(*found.added_columns, *added))
    if stream or changed:
        kept = tuple(note for note in found.notes if note not in (STREAM_NOTES[0], OF_A_STREAM))
        kept = (*kept, OF_A_STREAM) if stream else kept
        found = replace(found, rows=rows_of(written), notes=kept, sampler=None)
    save(found, folder)
    return found


def _release(dataset: Any, release: Release | None) -> Release:
    """Return the release that is given, or that of the rows.

    Raises:
        ConfigError: there is none.
    """
    if hasattr(dataset, "save_pretrained"):
        raise ConfigError(f"a {type(dataset).__name__} is pushed by the folder that the run wrote: 'RUN/adapter'.")
    own = release_of(dataset)
    if own is not None and release is not None and own.guarantee_id != release.guarantee_id:
        raise ConfigError("these rows have a release of their own, and release= is another one. Leave it out.")
    found = own if release is None else release
    if found is None:
        raise ConfigError(
            "this dataset has no release, so there is no guarantee to publish with it. Push what privatize or "
            "synthesize returned, unchanged; of rows that were saved, pass release=hf_dpsynth.load_privacy(folder); "
            "of rows that were changed, pass the release and postprocessing='what was done'."
        )
    return found


def _changed(splits: dict[str, Any], release: Release, notes: tuple[str, ...]) -> bool:
    """Return whether rows are others than those of the release.

    Raises:
        ConfigError: they are, or nobody can tell, and no note says what was done to them.
    """
    known = {one.sha256 for one in release.rows if one.sha256}
    if not known and not notes:
        raise ConfigError(
            "this release has no digests of its rows, as that of a stream: nobody could tell that these are the rows. "
            "Push the stream itself, privatize a Dataset, or pass postprocessing='read from the stream'."
        )
    changed = any(one.sha256 not in known for one in rows_of(splits))
    if changed and not notes:
        raise ConfigError(
            "these are not the rows that the release made. Push the dataset that has it, unchanged, or say what was "
            "done to them since: postprocessing='rows of more than 50 words left out'."
        )
    return changed


def _notes(postprocessing: Any) -> tuple[str, ...]:
    notes = (postprocessing,) if isinstance(postprocessing, str) else tuple(postprocessing or ())
    if not all(isinstance(note, str) and note.strip() for note in notes):
        raise ConfigError("postprocessing= must say in words what was done to the rows, in one text or several.")
    return notes


def _added(release: Release, splits: dict[str, Any], notes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that the release did not make, each of which a note names.

    Raises:
        ConfigError: one is not named: it may be a column of the private data.
    """
    plan = release.plan
    made = {plan.text_column, *plan.label_columns, *plan.kept_columns, *release.added_columns}
    names = dict.fromkeys(name for rows in splits.values() for name in rows.column_names)
    added = tuple(name for name in names if name not in made)
    words = " ".join(notes)
    silent = [name for name in added if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", words)]
    if silent:
        raise ConfigError(
            f"the release did not make the column {silent[0]!r}; its columns are {', '.join(sorted(made))}. Drop it, "
            "above all if it comes from the private data, or name it in postprocessing=: 'length: words of the text'."
        )
    return added


def _folder_of(config_name: Any) -> str:
    if config_name == _DEFAULT:
        return _DATA
    if not isinstance(config_name, str) or not _CONFIG.fullmatch(config_name) or config_name in _TAKEN:
        raise ConfigError(
            f"config_name is {config_name!r}; it is letters, digits, '_', '-' and '.', none of {', '.join(_TAKEN)}."
        )
    return config_name


def _check_id(repo_id: Any) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(repo_id)
        if "/" not in repo_id:
            raise HFValidationError("it has no owner")
    except (HFValidationError, TypeError) as error:
        raise ConfigError(f"repo_id is {repo_id!r}; it must be 'owner/name' ({error}).") from None


def _add_earlier(repository: Repository, found: Release, folder: Path, old: Path, part: str) -> set[str]:
    """Write into the record what was published there before, and return the files that go.

    Raises:
        PrivacyError: the losses do not add up.
    """
    stale = repository.replaced(part, found.guarantee_id)
    held = repository.held
    if held is None:
        return stale
    facts = read_json(folder / PRIVACY)
    if OF_A_STREAM in found.notes and not found.postprocessing:
        _check_stream(held, facts)
    before = cumulative.before(held, facts, stale)
    if before:
        write_record(replace(found, earlier=before, files=_files(facts)), folder)
        if held["guarantee_id"] != found.guarantee_id:
            (folder / EARLIER).mkdir()
            (folder / EARLIER / f"{held['guarantee_id']}.json").write_bytes((old / PRIVACY).read_bytes())
    return stale | {f"{EARLIER}/{found.guarantee_id}.json"}  # it is no earlier one now


def _check_stream(held: dict[str, Any], facts: dict[str, Any]) -> None:
    """Refuse a stream that gives other rows than those of it that were published: they are one more release.

    Raises:
        PrivacyError: the files differ.
    """
    for one in (cumulative.as_earlier(held), *map(cumulative.earlier, held["cumulative"]["prior_releases"])):
        if one.guarantee_id == facts["guarantee_id"] and one.files and one.files != _files(facts):
            raise PrivacyError(
                "the stream gives other rows than those of it that lie there: its source changed, or max_shard_size "
                "did. Other rows of it are one more release, which nothing counts: privatize the source again."
            )


def _draw(repository: Repository, folder: Path) -> set[str]:
    """Write the pictures of the card and the card that shows them; return pictures of before."""
    facts = read_json(folder / PRIVACY)
    for name, svg in pictures(facts).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(svg)
    (folder / CARD).write_text(card_of(facts, pictures=has_pictures(folder)), encoding="utf-8")
    return repository.names & {PRIVACY_PICTURE, SPLIT_PICTURE}


def _files(facts: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((file["path"], file["sha256"]) for file in facts["output"]["files"])
