"""Repos of a Hub in memory: files, commits that are whole trees, and refs that point at them.

A commit never changes (but by `Repo.tampered`), so a revision reads the same by its sha, its branch or its tag. Object
ids are git's: sha1("blob N\\0" + data), of the pointer for a file of LFS. What one could see at each moment is kept.
"""

import base64
import datetime
import hashlib
import re
import time
from dataclasses import dataclass, field
from functools import cached_property

import yaml

LFS_NAMES = (".parquet", ".safetensors", ".arrow", ".bin", ".gz", ".zip", ".pt", ".npz", ".pkl", ".msgpack", ".h5")
LFS_SIZE = 10 * 1024 * 1024
ATTRIBUTES = "".join(f"*{name} filter=lfs diff=lfs merge=lfs -text\n" for name in LFS_NAMES).encode()


class Refused(Exception):
    """A status that is not 200, the Hub's code for it and a sentence."""

    def __init__(self, status, message, code=None, headers=None, **body):
        super().__init__(message)
        self.status, self.body = status, {"error": message} | body
        self.headers = {"X-Error-Message": message.split("\n")[0]} | ({"X-Error-Code": code} if code else {})
        self.headers |= headers or {}


def git_oid(kind, data):
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data).hexdigest()


@dataclass(frozen=True)
class File:
    data: bytes
    lfs: bool = False

    @cached_property
    def sha256(self):
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def pointer(self):
        lines = ("version https://git-lfs.github.com/spec/v1", f"oid sha256:{self.sha256}", f"size {len(self.data)}")
        return "".join(f"{line}\n" for line in lines).encode()

    @cached_property
    def oid(self):
        return git_oid("blob", self.pointer if self.lfs else self.data)

    @property
    def etag(self):
        return self.sha256 if self.lfs else self.oid

    def lfs_facts(self, name):
        sizes = {"size": len(self.data), "pointerSize": len(self.pointer)}
        return {"lfs": {name: self.sha256, **sizes}} if self.lfs else {}


@dataclass(frozen=True, eq=False)
class Commit:
    sha: str
    parent: "Commit | None"
    title: str
    message: str
    author: str
    date: str
    files: dict = field(repr=False)

    def ancestry(self):
        """This commit and those before it, newest first."""
        commit = self
        while commit is not None:
            yield commit
            commit = commit.parent

    def last_change(self, path):
        """The commit that gave the file or folder its content."""
        commit = self
        while commit.parent is not None and commit.parent.under(path) == commit.under(path):
            commit = commit.parent
        return commit

    def under(self, path):
        return {name: file.oid for name, file in self.files.items() if name == path or name.startswith(f"{path}/")}

    def folders(self):
        parents = ("/".join(name.split("/")[:depth]) for name in self.files for depth in range(1, name.count("/") + 1))
        return list(dict.fromkeys(parents))

    def entry(self, path, expand=False):
        """What the Hub says about a file or folder; None where there is none."""
        file, inside = self.files.get(path), self.under(path)
        if file is None and not inside:
            return None
        if file is None:
            entry = {"type": "directory", "oid": git_oid("tree", repr(inside).encode()), "size": 0, "path": path}
        else:
            entry = {"type": "file", "oid": file.oid, "size": len(file.data), "path": path, **file.lfs_facts("oid")}
        if expand:
            commit = self.last_change(path)
            entry["lastCommit"] = {"id": commit.sha, "title": commit.title, "date": commit.date}
        return entry

    def tree(self, folder="", recursive=False, expand=False):
        start = f"{folder}/" if folder else ""
        inside = [name for name in (*self.folders(), *self.files) if name.startswith(start)]
        if folder and not inside:
            raise Refused(404, f"{folder} does not exist on {self.sha}", "EntryNotFound")
        return [self.entry(name, expand) for name in inside if recursive or "/" not in name.removeprefix(start)]


def front_matter(content):
    """The metadata of a card, with the Hub's errors and warnings about it."""
    found = re.match(r"\ufeff?---[ \t]*\r?\n(.*?)(?:\r?\n)?---[ \t]*(?:\r?\n|$)", content, re.DOTALL)
    if found is None:
        return {}, [], [{"message": "empty or missing yaml metadata in repo card"}]
    try:
        metadata = yaml.safe_load(found[1]) or {}
    except yaml.YAMLError as error:
        return {}, [{"message": f"YAML Metadata Error: {error}"}], []
    if not isinstance(metadata, dict):
        return {}, [{"message": "YAML Metadata Error: the metadata must be a mapping"}], []
    return metadata, [], []


@dataclass(frozen=True)
class State:
    """What a repo was from this moment on."""

    time: float
    private: bool
    refs: dict


class Repo:
    """A repo of one kind ("models", "datasets", "spaces"), with its whole past."""

    def __init__(self, kind, name, private=False, author="tester", sdk=None):
        self.kind, self.name, self.private, self.gated, self.sdk = kind, name, private, False, sdk
        self.refs, self.commits, self.objects, self.states = {}, {}, {}, []
        self.author, self.created = author, _now()
        self._add("refs/heads/main", None, {".gitattributes": File(ATTRIBUTES)}, "initial commit", "", author)

    @property
    def history(self):
        """All commits of all branches, oldest first."""
        return list(self.commits.values())

    @property
    def head(self):
        return self.at("main")

    @property
    def url(self):
        return self.name if self.kind == "models" else f"{self.kind}/{self.name}"

    def shown(self):
        """What someone without a token could have read, one state after another: each ref's commit."""
        public = [state for state in self.states if not state.private]
        return [{ref: self.commits[sha] for ref, sha in state.refs.items()} for state in public]

    def at(self, revision):
        """The commit of a branch, a tag, a full ref or a sha."""
        for ref in (f"refs/heads/{revision}", f"refs/tags/{revision}", revision):
            if ref in self.refs:
                return self.commits[self.refs[ref]]
        found = [commit for sha, commit in self.commits.items() if len(revision) >= 7 and sha.startswith(revision)]
        if len(found) != 1:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return found[0]

    def file(self, revision, path):
        commit = self.at(revision)
        if path not in commit.files:
            raise Refused(404, "Entry not found", "EntryNotFound", {"X-Repo-Commit": commit.sha})
        return commit, commit.files[path]

    def point(self, ref, commit, new=False):
        """Make a ref point at a commit, or at nothing."""
        if new and ref in self.refs:
            raise Refused(409, f"Reference {ref} already exists")
        if commit is None:
            if ref not in self.refs:
                raise Refused(404, f"Invalid rev id: {ref}", "RevisionNotFound")
            del self.refs[ref]
        else:
            self.refs[ref] = commit.sha
        self.changed()

    def changed(self):
        self.states.append(State(time.monotonic(), self.private, dict(self.refs)))

    def commit(self, revision, header, operations, author, pull=False):
        """One commit on a branch, or on a new pull request; gives it and its ref. Refused, it changes nothing."""
        ref = revision if revision.startswith("refs/") else f"refs/heads/{revision}"
        if ref not in self.refs:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        base, parent = self.at(ref), header.get("parentCommit")
        if pull:
            base = self.at(parent or ref)
            ref = f"refs/pr/{1 + sum(name.startswith('refs/pr/') for name in self.refs)}"
        elif parent and not base.sha.startswith(parent):
            raise Refused(412, "A commit has happened since. Please refresh and try again.")
        files = dict(base.files)
        for operation in operations:
            self._apply(files, operation["key"], operation["value"])
        return self._add(ref, base, files, header["summary"], header.get("description", ""), author), ref

    def write(self, files, title="Add files"):
        """A commit on main by this process: path -> bytes, of LFS where the Hub would say so."""
        added = {path: File(data, path.endswith(LFS_NAMES) or len(data) > LFS_SIZE) for path, data in files.items()}
        self.objects |= {file.sha256: file.data for file in added.values() if file.lfs}
        return self._add("refs/heads/main", self.head, self.head.files | added, title, "", self.author)

    def tampered(self, path, data):
        """Replace the content of a file in the newest commit of main, which keeps its sha, date and message."""
        held = self.head.files.get(path)
        self.head.files[path] = File(data, held is not None and held.lfs)

    def _apply(self, files, kind, value):
        path = value["path"].rstrip("/")
        if kind == "file":
            files[path] = File(base64.b64decode(value["content"]))
            errors = front_matter(files[path].data.decode())[1] if path == "README.md" else []
            if errors:
                raise Refused(400, f"Invalid metadata in README.md: {errors[0]['message']}")
        elif kind == "lfsFile":
            if value["oid"] not in self.objects:
                raise Refused(400, f"LFS pointer of {path} points to {value['oid']}, which was not uploaded")
            files[path] = File(self.objects[value["oid"]], lfs=True)
        elif kind in ("deletedFile", "deletedFolder"):
            gone = [name for name in files if (name == path if kind == "deletedFile" else name.startswith(f"{path}/"))]
            if not gone:
                word = "file" if kind == "deletedFile" else "folder"
                raise Refused(404, f"A {word} with this name doesn't exist: {path}", "EntryNotFound")
            for name in gone:
                del files[name]
        else:
            raise Refused(400, f"unknown operation {kind}")

    def _add(self, ref, parent, files, title, message, author):
        tree = "".join(f"{name}\0{file.oid}\n" for name, file in sorted(files.items()))
        before = parent.sha if parent else ""
        text = f"{self.kind}/{self.name} {len(self.commits)} {before} {author} {title}\n{message}\n{tree}"
        commit = Commit(git_oid("commit", text.encode()), parent, title, message, author, _now(), files)
        self.commits[commit.sha] = commit
        self.point(ref, commit)
        return commit


def _now():
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
