"""Reading the members of a package as it lies on an index: a wheel, a tarball of npm, a package of Debian."""

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO

Member = tuple[str, Callable[[], IO[bytes]]]
UNREADABLE = (
    zipfile.BadZipFile, zipfile.LargeZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, NotImplementedError,
    EOFError, ValueError,
)  # fmt: skip
_AR, _AR_HEADER = b"!<arch>\n", 60


@contextmanager
def members(archive: Path) -> Iterator[Iterator[Member]]:
    """Open a package and iterate over its files: a name, and what opens it until the next one is asked for.

    Args:
        archive (`Path`): a file whose name ends with .whl, .tgz or .deb. Of a .deb, the files that it installs.
    Raises:
        one of `UNREADABLE`: it is no such archive, or is damaged.
    """
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            yield ((name, _opener(wheel, name)) for name in wheel.namelist())
        return
    source = BytesIO(_installed(archive.read_bytes())) if archive.suffix == ".deb" else None
    with tarfile.open(None if source else archive, "r:*", fileobj=source) as tar:
        yield ((entry.name.removeprefix("./"), _reader(tar, entry)) for entry in tar if entry.isreg())


def _opener(wheel: zipfile.ZipFile, name: str) -> Callable[[], IO[bytes]]:
    return lambda: wheel.open(name)


def _reader(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> Callable[[], IO[bytes]]:
    def read() -> IO[bytes]:
        content = tar.extractfile(entry)
        if content is None:
            raise ValueError(f"{entry.name} is no file")
        return content

    return read


def _installed(package: bytes) -> bytes:
    """Return the tarball of a Debian package that holds its files: the member data.tar.* of an ar archive, deb(5)."""
    if not package.startswith(_AR):
        raise ValueError("no ar archive")
    place = len(_AR)
    while place + _AR_HEADER <= len(package):
        header = package[place : place + _AR_HEADER]
        size = int(header[48:58])
        start = place + _AR_HEADER
        if header[:16].decode("ascii", "replace").strip().rstrip("/").startswith("data.tar"):
            return package[start : start + size]
        place = start + size + size % 2
    raise ValueError("no data.tar in the ar archive")
