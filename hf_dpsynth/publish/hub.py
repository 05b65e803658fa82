"""Publishing on the Hub and reading it back: rows, card and claim land in one commit, or nothing does.

A repository of rows is written by a single commit upon the revision that was looked at, so at no moment does it show
rows without their guarantee. Whatever else lies there stays; rows that no guarantee of ours covers are refused.
"""

import math
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hf_dpsynth.errors import ConfigError, HubError, PrivacyError
from hf_dpsynth.logging import get_logger
from hf_dpsynth.publish.folder import CARD, LARGEST_CLAIM, PRIVACY, read_json, save
from hf_dpsynth.publish.readme import with_kept_text
from hf_dpsynth.release import Release, release_of, rows_of
from hf_dpsynth.splits import splits_of

SHARD = "500MB"
_ROWS = (".parquet", ".arrow", ".csv", ".tsv", ".jsonl", ".txt", ".zip", ".gz", ".zst", ".tar")
_OWNER_AND_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_KIND = "dataset"
logger = get_logger(__name__)


def push_to_hub(
    dataset: Any,
    repo_id: str,
    *,
    release: Release | None = None,
    private: bool = True,
    token: str | None = None,
    revision: str | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
    max_shard_size: int | str = SHARD,
) -> Any:
    """Publish rows with their card and privacy.json, in one commit.

    Args:
        dataset (`Dataset` or `DatasetDict`): what `privatize` or `synthesize` returned, or the same rows loaded again.
        repo_id (`str`): `"owner/name"` of a dataset repository; it is made when missing. A README.md that lies there
            keeps its text below the card.
        release (`Release`, *optional*): the release of these rows, `load_privacy(folder)`; `dataset.privacy` when
            missing.
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
        PrivacyError: the noise came from a seed, or the repository holds other rows or another claim.
        HubError: the Hub refused or was out of reach; nothing was published, and another call goes on.
    """
    found = _release(dataset, release)
    _check_id(repo_id)
    with tempfile.TemporaryDirectory(prefix="hf_dpsynth-push-") as place:
        folder = Path(place) / "new"
        _write_rows(splits_of(dataset), folder / "data", max_shard_size)
        save(found, folder)
        message = commit_message or f"Rows of {found.plan.mechanism}, their card and their guarantee"
        with _told(repo_id, "published"):
            repository = _Repository(repo_id, token, revision, create_pr=create_pr)
            fresh = repository.make()
            commit = repository.commit(folder, Path(place) / "old", message)
            if fresh and not private:
                repository.api.update_repo_settings(repo_id, private=False, repo_type=_KIND)
    logger.info("published %s", commit.commit_url)
    return commit


@contextmanager
def downloaded(repo_id: str, revision: str | None = None) -> Iterator[Path]:
    """Download a repository of rows into a folder that is gone afterwards.

    Args:
        repo_id (`str`): `"owner/name"`.
        revision (`str`, *optional*): a branch, tag or commit.
    Raises:
        HubError: there is no such repository for this token, or the Hub is out of reach.
    """
    from huggingface_hub import snapshot_download

    with tempfile.TemporaryDirectory(prefix="hf_dpsynth-pull-") as place:
        with _told(repo_id, "read"):
            snapshot_download(repo_id, repo_type=_KIND, revision=revision, local_dir=place)
        yield Path(place)


def is_repository(path: Any) -> bool:
    """Return whether a text that names no folder here has the form of a repository's id."""
    return isinstance(path, str) and not Path(path).exists() and bool(_OWNER_AND_NAME.fullmatch(path))


def _release(dataset: Any, release: Release | None) -> Release:
    """Return the release of these very rows.

    Raises:
        ConfigError: there is none, or it made other rows.
        PrivacyError: its noise came from a seed.
    """
    found = release_of(dataset) if release is None else release
    if found is None:
        raise ConfigError(
            "this dataset has no release, so there is no guarantee to publish with it. Push what privatize or "
            "synthesize returned, unchanged; of rows that were saved, pass release=hf_dpsynth.load_privacy(folder)."
        )
    if found.plan.insecure_noise:
        raise PrivacyError(
            "the noise of this release came from insecure_noise_seed=: it is for tests, not to publish."
        )
    known = {rows.sha256 for rows in found.rows if rows.sha256}
    if not known:
        raise ConfigError(
            "this release has no digests of its rows, as that of a stream: nobody could tell that these are the rows. "
            "Privatize a Dataset, or save the run in a directory."
        )
    if any(rows.sha256 not in known for rows in rows_of(splits_of(dataset))):
        raise ConfigError("these are not the rows that the release made. Push the dataset that has it, unchanged.")
    return found


def _check_id(repo_id: Any) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(repo_id)
    except (HFValidationError, TypeError) as error:
        raise ConfigError(f"repo_id is {repo_id!r}; it must be 'owner/name' ({error}).") from None


def _write_rows(splits: dict[str, Any], folder: Path, most: int | str) -> None:
    """Write the files of rows, `split-00000-of-00001.parquet`."""
    from datasets.utils.py_utils import convert_file_size_to_int

    try:
        limit = convert_file_size_to_int(most)
    except ValueError:
        limit = 0
    if not limit > 0:
        raise ConfigError(f"max_shard_size is {most!r}; it is a number of bytes, or text such as '500MB'.")
    folder.mkdir(parents=True)
    for split, rows in splits.items():
        size = rows.data.nbytes * len(rows) / max(1, rows.data.num_rows)
        number = max(1, min(len(rows), math.ceil(size / limit)))
        for at in range(number):
            part = rows.shard(number, at, contiguous=True)
            part.to_parquet(str(folder / f"{split}-{at:05d}-of-{number:05d}.parquet"))


class _Repository:
    """A dataset repository, as it was when it was looked at."""

    def __init__(self, repo_id: str, token: str | None, revision: str | None, *, create_pr: bool) -> None:
        from huggingface_hub import HfApi

        self.api, self.id, self.revision, self.create_pr = HfApi(token=token), repo_id, revision, create_pr

    def make(self) -> bool:
        """Make the repository, private, and the branch; return whether it is new."""
        from huggingface_hub.errors import RevisionNotFoundError

        fresh = not self.api.repo_exists(self.id, repo_type=_KIND)
        if fresh:
            self.api.create_repo(self.id, repo_type=_KIND, private=True, exist_ok=True)
        if self.revision is not None:
            try:
                self.api.dataset_info(self.id, revision=self.revision)
            except RevisionNotFoundError:
                self.api.create_branch(self.id, branch=self.revision, repo_type=_KIND, exist_ok=True)
        return fresh

    def commit(self, folder: Path, old: Path, message: str) -> Any:
        """Commit a folder upon the revision that is there, less the rows that it replaces.

        Raises:
            PrivacyError: rows or a claim are there that are not replaced.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        info = self.api.dataset_info(self.id, revision=self.revision)
        names = {file.rfilename for file in info.siblings or ()}
        files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        for name in names & {CARD, PRIVACY}:
            self.api.hf_hub_download(self.id, name, repo_type=_KIND, revision=info.sha, local_dir=old)
        stale = _replaced(self.id, names, old / PRIVACY, read_json(folder / PRIVACY)) - set(files)
        if CARD in names:
            kept = with_kept_text((folder / CARD).read_text("utf-8"), (old / CARD).read_text("utf-8", "replace"))
            (folder / CARD).write_text(kept, encoding="utf-8")
        operations: list[Any] = [CommitOperationAdd(name, path) for name, path in sorted(files.items())]
        operations += [CommitOperationDelete(name) for name in sorted(stale)]
        return self.api.create_commit(
            self.id,
            operations,
            commit_message=message,
            repo_type=_KIND,
            revision=self.revision,
            create_pr=self.create_pr,
            parent_commit=info.sha,
        )


def _replaced(repo_id: str, names: set[str], claim: Path, facts: dict[str, Any]) -> set[str]:
    """Return the files of rows that a release of before lists, which this one replaces.

    Raises:
        PrivacyError: it is another release, or other rows lie there.
    """
    listed: set[str] = set()
    if claim.exists():
        try:
            held = read_json(claim, LARGEST_CLAIM)
            listed, other = {str(entry["path"]) for entry in held["output"]["files"]}, held["guarantee_id"]
        except (ConfigError, KeyError, TypeError) as error:
            raise PrivacyError(f"{PRIVACY} of {repo_id} cannot be read. Push to another repository.") from error
        if other != facts["guarantee_id"]:
            raise PrivacyError(
                f"{repo_id} holds another release: two releases of the same records add up, and this claim would "
                "stand in the place of that one. Push to another repository."
            )
    rows = {name for name in names if name.startswith("data/") or Path(name).suffix.lower() in _ROWS}
    if rows - listed:
        raise PrivacyError(
            f"{repo_id} holds {len(rows - listed)} files of rows that this guarantee does not cover. Delete them, or "
            "push to another repository."
        )
    return listed & names


@contextmanager
def _told(repo_id: str, done: str) -> Iterator[None]:
    """Raise what the Hub refuses in one line that names the way out and no token."""
    from huggingface_hub import errors
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        yield
    except errors.OfflineModeIsEnabled:
        raise HubError(f"{repo_id} was not {done}: HF_HUB_OFFLINE is set. Unset it.") from None
    except errors.LocalTokenNotFoundError:
        raise HubError(f"{repo_id} was not {done}: there is no token. Pass token=, or run hf auth login.") from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        why = _WHY.get(status, _LATER.format(what=f"the Hub answered with HTTP {status}"))
        raise HubError(f"{repo_id} was not {done}: {why}") from None
    except (HTTPError, errors.LocalEntryNotFoundError, RuntimeError) as error:  # the last of an upload
        raise HubError(f"{repo_id} was not {done}: {_LATER.format(what=_name(error))}") from None


def _name(error: BaseException) -> str:
    return f"the connection failed ({type(error.__cause__ or error).__name__})"


_LATER = "{what}. Call again later; a call that is repeated goes on."
_WHY = {
    401: "the Hub knows no such token or no such repository for it (401). Pass token=, or run hf auth login.",
    403: "the token has no write access there (403). Use one that has.",
    404: "there is no such repository or revision for this token (404). Check the id, the revision and the token.",
    409: "the Hub says that it conflicts with what is there (409). Call again.",
    412: "somebody else committed in the meantime (412). Look at it, and call again.",
}
