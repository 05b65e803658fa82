"""What the Hub answers, endpoint by endpoint, as the client of `huggingface_hub` 2.4 asks.

A repo that a token may not read does not exist for it. Reading needs no token where the repo is public; writing needs
a token of the role write and a namespace of its own; a pull request needs the token only.
"""

import dataclasses
import json
import re
import secrets
import urllib.parse
from dataclasses import dataclass, field

from tests.hub.repos import LFS_NAMES, LFS_SIZE, File, Refused, Repo, front_matter

USER, ORGANISATIONS = "tester", ("lab",)
NAMESPACES = (USER, *ORGANISATIONS)
KINDS = {"model": "models", "dataset": "datasets", "space": "spaces", None: "models"}
REPO = r"/api/(?P<kind>models|datasets|spaces)/(?P<name>[^/]+/[^/]+)"
REVISION = r"(?P<revision>refs/(?:pr|convert)/[^/]+|[^/]+)"
ROUTES = []


@dataclass(frozen=True)
class Answer:
    body: object = b""
    status: int = 200
    headers: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """One request: what its path names, what it asks for and with which token."""

    hub: object
    method: str
    parts: dict
    query: dict
    headers: object
    body: bytes
    token: str

    @property
    def json(self):
        return json.loads(self.body or b"{}")

    def flag(self, name):
        return self.query.get(name, ["false"])[0].lower() in ("1", "true")

    def authenticate(self, write=False):
        if self.token == "none":
            raise Refused(401, "Invalid username or password.")
        if write and self.token == "read":
            raise Refused(403, "Forbidden: you must use a write token to upload to a repository.")

    def repo(self, write=False, pull=False):
        """The repo that the path names, if the token may read it, or write to it, or propose a change to it."""
        kind, name = self.parts["kind"] or "models", self.parts["name"]
        repo, own = self.hub.repos.get((kind, name)), name.split("/")[0] in NAMESPACES
        if repo is None or (repo.private and not (own and self.token in ("read", "write"))):
            raise Refused(404, "Repository not found", "RepoNotFound")
        if write:
            self.authenticate(write=True)
        if write and not (own or pull):
            raise Refused(403, f"Forbidden: you don't have the rights to write to {name}.")
        return repo

    def commit(self, repo):
        return repo.at(self.parts.get("revision") or "main")


def route(methods, pattern):
    def register(function):
        ROUTES.append((methods.split(), re.compile(pattern), function))
        return function

    return register


def answered(hub, method, target, headers, body, token):
    """The answer to a request; `Refused` where it is none of 200."""
    path, _, query = target.partition("?")
    if token == "invalid":
        raise Refused(401, "Invalid credentials in Authorization header")
    for methods, pattern, function in ROUTES:
        if method in methods and (found := pattern.fullmatch(path)):
            parts = {name: value and urllib.parse.unquote(value) for name, value in found.groupdict().items()}
            return function(Call(hub, method, parts, urllib.parse.parse_qs(query), headers, body, token))
    raise Refused(404, f"The test Hub has no {method} {path}")


@route("GET", "/api/whoami-v2")
def whoami(call):
    call.authenticate()
    orgs = [{"type": "org", "name": name, "fullname": name, "roleInOrg": "write"} for name in ORGANISATIONS]
    auth = {"type": "access_token", "accessToken": {"displayName": call.token, "role": call.token}}
    who = {"type": "user", "id": "0" * 24, "name": USER, "fullname": USER, "email": f"{USER}@example.org"}
    return Answer({**who, "isPro": False, "orgs": orgs, "auth": auth})


@route("GET", "/api/agent-harnesses")
def agent_harnesses(call):
    """Asked by each process that finds no answer in its cache; without any, the command line speaks to people."""
    return Answer({"standardEnvVars": [], "harnesses": {}})


@route("POST", "/api/validate-yaml")
def validate_yaml(call):
    _, errors, warnings = front_matter(call.json["content"])
    return Answer({"errors": errors, "warnings": warnings}, 400 if errors else 200)


@route("POST", "/api/repos/create")
def create(call):
    call.authenticate(write=True)
    asked = call.json
    namespace, kind = asked.get("organization") or USER, KINDS[asked.get("type")]
    if namespace not in NAMESPACES:
        raise Refused(403, f'You don\'t have the rights to create a {kind[:-1]} under the namespace "{namespace}"')
    name = f"{namespace}/{asked['name']}"
    url = f"{call.hub.url}/{name if kind == 'models' else f'{kind}/{name}'}"
    if (kind, name) in call.hub.repos:
        raise Refused(409, f"You already created this {kind[:-1]} repo: {name}", url=url)
    private = asked.get("private") or asked.get("visibility") == "private"
    call.hub.repos[kind, name] = Repo(kind, name, bool(private), sdk=asked.get("sdk"))
    return Answer({"url": url, "name": name, "id": name})


@route("DELETE", "/api/repos/delete")
def delete(call):
    asked = call.json
    parts = {"kind": KINDS[asked.get("type")], "name": f"{asked.get('organization') or USER}/{asked['name']}"}
    repo = dataclasses.replace(call, parts=parts).repo(write=True)
    del call.hub.repos[repo.kind, repo.name]
    return Answer()


@route("PUT", f"{REPO}/settings")
def settings(call):
    repo, asked = call.repo(write=True), call.json
    if "visibility" in asked or "private" in asked:
        repo.private = asked.get("private", asked.get("visibility") == "private")
    repo.gated = asked.get("gated", repo.gated)
    repo.changed()
    return Answer({"private": repo.private, "gated": repo.gated})


@route("GET", f"{REPO}/auth-check")
def auth_check(call):
    call.repo()
    return Answer({})


@route("GET", f"{REPO}(?:/revision/{REVISION})?")
def info(call):
    repo = call.repo()
    commit = call.commit(repo)
    card = front_matter(commit.files["README.md"].data.decode())[0] if "README.md" in commit.files else {}
    facts = {"_id": "0" * 24, "id": repo.name, "author": repo.name.split("/")[0], "sha": commit.sha, "cardData": card}
    facts |= {"private": repo.private, "gated": repo.gated, "disabled": False, "downloads": 0, "likes": 0}
    facts |= {"createdAt": repo.created, "lastModified": commit.date, "tags": card.get("tags") or []}
    facts |= {name: card[name] for name in ("library_name", "pipeline_tag") if name in card}
    facts |= {"sdk": repo.sdk} if repo.kind == "spaces" else {}
    siblings = [_sibling(name, file, call.flag("blobs")) for name, file in commit.files.items()]
    return Answer({**facts, "siblings": siblings})


def _sibling(name, file, full):
    facts = {"size": len(file.data), "blobId": file.oid, **file.lfs_facts("sha256")} if full else {}
    return {"rfilename": name, **facts}


@route("GET", f"{REPO}/tree/{REVISION}(?:/(?P<path>.+))?")
def tree(call):
    commit = call.commit(call.repo())
    return Answer(commit.tree(call.parts["path"] or "", call.flag("recursive"), call.flag("expand")))


@route("POST", f"{REPO}/paths-info/{REVISION}")
def paths_info(call):
    commit = call.commit(call.repo())
    if "json" in call.headers.get("Content-Type", ""):
        paths, expand = call.json["paths"], bool(call.json.get("expand"))
    else:
        form = urllib.parse.parse_qs(call.body.decode())
        paths, expand = form.get("paths", []), form.get("expand", ["false"])[0].lower() == "true"
    entries = [commit.entry(path.rstrip("/"), expand) for path in paths]
    return Answer([entry for entry in entries if entry])


@route("POST", f"{REPO}/preupload/{REVISION}")
def preupload(call):
    commit = call.commit(call.repo(write=True, pull=call.flag("create_pr")))
    files = []
    for asked in call.json["files"]:
        lfs = asked["path"].endswith(LFS_NAMES) or asked["size"] > LFS_SIZE
        present = commit.files.get(asked["path"])
        mode = {"uploadMode": "lfs" if lfs else "regular", "shouldIgnore": False}
        files.append({"path": asked["path"], **mode, **({"oid": present.etag} if present else {})})
    return Answer({"files": files})


@route("POST", r"/(?:(?P<kind>datasets|spaces)/)?(?P<name>[^/]+/[^/]+)\.git/info/lfs/objects/batch")
def lfs_batch(call):
    call.authenticate(write=True)
    repo, objects = call.repo(), []
    for asked in call.json["objects"]:
        found = {"oid": asked["oid"], "size": asked["size"]}
        if asked["oid"] not in repo.objects:
            ticket = secrets.token_hex(16)
            call.hub.tickets[ticket] = (repo, asked["oid"])
            href = f"{call.hub.url}/lfs/{ticket}"
            found["actions"] = {"upload": {"href": href, "header": {}}, "verify": {"href": f"{href}/verify"}}
        objects.append(found)
    return Answer({"transfer": "basic", "objects": objects})


@route("PUT", "/lfs/(?P<ticket>[^/]+)")
def lfs_upload(call):
    """The address is the permission, as of a signed one: the client sends no token here."""
    if call.parts["ticket"] not in call.hub.tickets:
        raise Refused(403, "The address of this upload was never given out")
    repo, oid = call.hub.tickets[call.parts["ticket"]]
    if File(call.body).sha256 != oid:
        raise Refused(400, f"The content has the SHA-256 {File(call.body).sha256}; {oid} was announced")
    repo.objects[oid] = call.body
    return Answer()


@route("POST", "/lfs/(?P<ticket>[^/]+)/verify")
def lfs_verify(call):
    repo, oid = call.hub.tickets[call.parts["ticket"]]
    if len(repo.objects.get(oid, b"")) != call.json["size"]:
        raise Refused(404, f"No object {oid} of {call.json['size']} bytes")
    return Answer({})


@route("POST", f"{REPO}/commit/{REVISION}")
def commit(call):
    pull = call.flag("create_pr")
    repo = call.repo(write=True, pull=pull)
    header, *operations = (json.loads(line) for line in call.body.splitlines())
    made, ref = repo.commit(call.parts["revision"], header["value"], operations, USER, pull)
    url = f"{call.hub.url}/{repo.url}"
    answer = {"success": True, "commitUrl": f"{url}/commit/{made.sha}", "commitOid": made.sha}
    proposal = {"pullRequestUrl": f"{url}/discussions/{ref.rsplit('/', 1)[1]}"} if pull else {}
    return Answer({**answer, **proposal, "hookOutput": ""})


@route("POST DELETE", f"{REPO}/branch/(?P<branch>.+)")
def branch(call):
    repo, ref = call.repo(write=True), f"refs/heads/{call.parts['branch']}"
    if call.method == "DELETE" and ref == "refs/heads/main":
        raise Refused(403, "The branch main cannot be deleted")
    start = None if call.method == "DELETE" else repo.at(call.json.get("startingPoint") or "main")
    repo.point(ref, start, new=call.method == "POST")
    return Answer()


@route("POST DELETE", f"{REPO}/tag/{REVISION}")
def tag(call):
    repo, new = call.repo(write=True), call.method == "POST"
    name = call.json["tag"] if new else call.parts["revision"]
    repo.point(f"refs/tags/{name}", call.commit(repo) if new else None, new)
    return Answer()


@route("GET", f"{REPO}/refs")
def refs(call):
    repo = call.repo()
    places = {"branches": "refs/heads/", "converts": "refs/convert/", "tags": "refs/tags/"}
    places |= {"pullRequests": "refs/pr/"} if call.flag("include_prs") else {}
    listed = {
        place: [
            {"name": ref if place == "pullRequests" else ref.removeprefix(start), "ref": ref, "targetCommit": sha}
            for ref, sha in repo.refs.items()
            if ref.startswith(start)
        ]
        for place, start in places.items()
    }
    return Answer(listed)


@route("GET", f"{REPO}/commits/{REVISION}")
def commits(call):
    listed = []
    for one in call.commit(call.repo()).ancestry():
        facts = {"id": one.sha, "title": one.title, "message": one.message, "date": one.date}
        formatted = {"formatted": {"title": one.title, "message": one.message}} if "expand[]" in call.query else {}
        listed.append({**facts, "authors": [{"user": one.author}], **formatted})
    return Answer(listed)


@route("GET HEAD", f"/(?:(?P<kind>datasets|spaces)/)?(?P<name>[^/]+/[^/]+)/resolve/{REVISION}/(?P<path>.+)")
def resolve(call):
    found, file = call.repo().file(call.parts["revision"], call.parts["path"])
    headers = {"X-Repo-Commit": found.sha, "ETag": f'"{file.etag}"', "Accept-Ranges": "bytes"}
    if file.lfs:
        headers |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(len(file.data))}
    asked = call.headers.get("Range")
    if asked is None or call.method == "HEAD":
        return Answer(file.data, headers=headers)
    size = len(file.data)
    first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", asked.strip()).groups()
    start = int(first) if first else max(0, size - int(last))
    stop = min(size, int(last) + 1) if first and last else size
    if start >= size:
        raise Refused(416, f"{asked} is outside of {size} bytes", headers={"Content-Range": f"bytes */{size}"})
    return Answer(file.data[start:stop], 206, {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{size}"})
