"""A repository of the Hub as it was when it was looked at, and one commit upon that.

Rows that no guarantee of ours covers, and claims that cannot be read, are not written over and not stood beside.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hf_dpsynth.errors import ConfigError, HubError, PrivacyError
from hf_dpsynth.publish import accounts
from hf_dpsynth.publish.cumulative import as_earlier, earlier
from hf_dpsynth.publish.folder import CARD, LARGEST_CLAIM, PRIVACY, RELEASE, read_json
from hf_dpsynth.publish.pictures import PRIVACY as PRIVACY_PICTURE
from hf_dpsynth.publish.pictures import SPLIT as SPLIT_PICTURE
from hf_dpsynth.publish.privacy_json import invalid
from hf_dpsynth.publish.readme import with_kept_text
from hf_dpsynth.publish.recipe_text import RECIPE, SCRIPT
from hf_dpsynth.release import Earlier

EARLIER = "releases"  # the folder of the claims of releases that were published before
WEIGHTS = (
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".onnx", ".h5", ".msgpack", ".pkl", ".npz",
)  # fmt: skip
CLAIM = re.compile(rf"{EARLIER}/([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})\.json")
OURS = {RELEASE, RECIPE, SCRIPT, PRIVACY_PICTURE, SPLIT_PICTURE}
_COVERED = {
    "dataset": (
        ".parquet", ".arrow", ".csv", ".tsv", ".jsonl", ".ndjson", ".txt", ".json", ".orc", ".avro", ".xml", ".xlsx",
        ".db", ".sqlite", ".pkl", ".npy", ".npz", ".h5", ".zip", ".gz", ".bz2", ".xz", ".lz4", ".zst", ".7z", ".tar",
        ".tgz",
    ),
    "model": (*WEIGHTS, ".parquet", ".arrow"),  # a tokenizer has .txt and .json files
}  # fmt: skip
_NO_ROWS = {PRIVACY, RELEASE, "dataset_infos.json", "croissant.json"}


def is_rows(name: str, kind: str) -> bool:
    """Return whether a file of a repository may hold rows, or in one of a model weights.

    Args:
        name (`str`): its path.
        kind (`str`): `"dataset"` or `"model"`.
    """
    if name in _NO_ROWS or CLAIM.fullmatch(name):
        return False
    return name.startswith("data/") or Path(name).suffix.lower() in _COVERED[kind]


class Repository:
    """A repository of rows or of a model.

    Args:
        repo_id (`str`): `"owner/name"`.
        kind (`str`): `"dataset"` or `"model"`.
        token (`str`, *optional*): a token with write access.
        revision (`str`, *optional*): the branch.
        create_pr (`bool`): whether a commit opens a pull request.
    """

    def __init__(self, repo_id: str, kind: str, token: str | None, revision: str | None, *, create_pr: bool) -> None:
        from huggingface_hub import HfApi

        self.api, self.id, self.kind = HfApi(token=token), repo_id, kind
        self.revision, self.create_pr = revision, create_pr
        self.sha: str | None = None
        self.private = True
        self.names: set[str] = set()
        self.held: dict[str, Any] | None = None

    def make(self) -> bool:
        """Make the repository, private, and the branch; return whether it is new."""
        from huggingface_hub.errors import RevisionNotFoundError

        fresh = not self.api.repo_exists(self.id, repo_type=self.kind)
        if fresh:
            self.api.create_repo(self.id, repo_type=self.kind, private=True, exist_ok=True)
        if self.revision is not None:
            try:
                self.api.repo_info(self.id, repo_type=self.kind, revision=self.revision)
            except RevisionNotFoundError:
                self.api.create_branch(self.id, branch=self.revision, repo_type=self.kind, exist_ok=True)
        return fresh

    def show(self) -> None:
        """Show the repository to everybody."""
        self.api.update_repo_settings(self.id, private=False, repo_type=self.kind)

    def look(self, place: Path) -> None:
        """Note what lies there, and download card and claim.

        Args:
            place (`Path`): a folder for both.
        Raises:
            PrivacyError: the claim cannot be read or leaves a release out, or other rows or weights lie there.
        """
        info = self.api.repo_info(self.id, repo_type=self.kind, revision=self.revision)
        self.private = bool(getattr(info, "private", False))
        self.sha, self.names = info.sha, {file.rfilename for file in getattr(info, "siblings", None) or ()}
        for name in self.names & {CARD, PRIVACY}:
            self.api.hf_hub_download(self.id, name, repo_type=self.kind, revision=self.sha, local_dir=place)
        if PRIVACY in self.names:
            self.held = _claim(self.id, place / PRIVACY)
        known = {one.guarantee_id for one in self._claims()}
        lost = [name for name in sorted(self.names) if (match := CLAIM.fullmatch(name)) and match[1] not in known]
        if lost:
            raise PrivacyError(
                f"{self.id} holds {lost[0]}, a release that {PRIVACY} there leaves out, whose loss adds to this one. "
                f"Put that {PRIVACY} right, or push to another repository."
            )
        if ".gitignore" in self.names:
            raise PrivacyError(
                f"{self.id} has a .gitignore, by which the Hub may leave out {PRIVACY} without a word. Delete it, or "
                "push to another repository."
            )
        foreign = sorted(self.names & OURS) if self.held is None else []
        if foreign:
            raise PrivacyError(
                f"{self.id} holds {foreign[0]}, which this push would replace and which is not ours. Rename it, or "
                "push to another repository."
            )
        rows = {name for name in self.names if is_rows(name, self.kind)}
        strangers = len(rows - self.listed())
        if strangers:
            what = "rows or weights" if self.kind == "model" else "rows"
            raise PrivacyError(
                f"{self.id} holds {strangers} files of {what} that this guarantee does not cover. Delete them, or "
                "push to another repository."
            )

    def listed(self) -> set[str]:
        """Return the files of rows or weights that the claim there lists, also for earlier releases."""
        return {path for one in self._claims() for path, _ in one.files}

    def _claims(self) -> list[Earlier]:
        """Return what the claim there says of itself and of earlier releases."""
        if self.held is None:
            return []
        return [as_earlier(self.held), *(earlier(entry) for entry in self.held["cumulative"]["prior_releases"])]

    def replaced(self, folder: str, guarantee_id: str) -> set[str]:
        """Return the files of rows that a release takes the place of: those of its folder.

        Raises:
            PrivacyError: it lies in another folder already.
        """
        own = {path for one in self._claims() if one.guarantee_id == guarantee_id for path, _ in one.files}
        elsewhere = sorted(path for path in own if not path.startswith(f"{folder}/")) if folder else []
        if elsewhere:
            raise PrivacyError(
                f"{self.id} holds this release already, in {elsewhere[0].split('/')[0]}/. Push all of its splits at "
                "once, or into that configuration."
            )
        return {name for name in self.listed() if name.startswith(f"{folder}/") or not folder}

    def commit(self, folder: Path, old: Path, stale: set[str], message: str) -> Any:
        """Commit a folder upon what was looked at, without some files.

        Args:
            folder (`Path`): what to add.
            old (`Path`): where card and claim were downloaded to.
            stale (`set[str]`): files that go.
            message (`str`): of the commit.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        if CARD in self.names:
            kept = with_kept_text((folder / CARD).read_text("utf-8"), (old / CARD).read_text("utf-8", "replace"))
            (folder / CARD).write_text(kept, encoding="utf-8")
        files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        operations: list[Any] = [CommitOperationAdd(name, path) for name, path in sorted(files.items())]
        operations += [CommitOperationDelete(name) for name in sorted(stale & self.names - set(files))]
        return self.api.create_commit(
            self.id,
            operations,
            commit_message=message,
            repo_type=self.kind,
            revision=self.revision,
            create_pr=self.create_pr,
            parent_commit=self.sha,
        )


def _claim(repo_id: str, path: Path) -> dict[str, Any]:
    """Read the claim that lies in a repository.

    Raises:
        PrivacyError: it is none of ours.
    """
    try:
        held: dict[str, Any] = read_json(path, LARGEST_CLAIM)
        wrong = invalid(held) or accounts.check(held)
    except ConfigError as error:
        raise PrivacyError(f"{PRIVACY} of {repo_id} cannot be read. Push to another repository.") from error
    if wrong:
        raise PrivacyError(f"{PRIVACY} of {repo_id} is none that we write: {wrong[0]}. Push to another repository.")
    return held


@contextmanager
def told(repo_id: str, done: str) -> Iterator[None]:
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
        refused = f"the Hub refused it (HTTP {status}). Look at the arguments and at the repository."
        why = _WHY.get(
            status, refused if status < _SERVER else _LATER.format(what=f"the Hub answered with HTTP {status}")
        )
        raise HubError(f"{repo_id} was not {done}: {why}") from None
    except (HTTPError, errors.LocalEntryNotFoundError, RuntimeError) as error:  # the last of an upload
        raise HubError(f"{repo_id} was not {done}: {_LATER.format(what=_name(error))}") from None


def _name(error: BaseException) -> str:
    return f"the connection failed ({type(error.__cause__ or error).__name__})"


_SERVER = 500
_LATER = "{what}. Call again later; a call that is repeated goes on."
_WHY = {
    401: "the Hub knows no such token or no such repository for it (401). Pass token=, or run hf auth login.",
    403: "the token has no write access there (403). Use one that has.",
    404: "there is no such repository or revision for this token (404). Check the id, the revision and the token.",
    409: "the Hub says that it conflicts with what is there (409). Call again.",
    412: "somebody else committed in the meantime (412). Look at it, and call again.",
}
