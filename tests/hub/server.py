"""A Hugging Face Hub on loopback, in memory: its HTTP, its tokens, what it was asked and how it fails on request.

It speaks the protocol of `huggingface_hub` 2.4 without Xet. Its repos are plain objects that a test reads and changes:
`hub.dataset("tester/name").history`. `tests.hub.running` starts it and runs clients against it.
"""

import json
import re
import socket
import struct
import sys
import threading
import time
import urllib.parse
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.hub.repos import Refused, Repo
from tests.hub.routes import Answer, answered

WRITE, READ = "hf_test", "hf_read"
TOKENS = {WRITE: "write", READ: "read"}
BLOCK = 1 << 16


@dataclass
class Request:
    """What was asked, when (monotonic seconds), by which kind of token, and the status of the answer."""

    method: str
    path: str
    token: str
    time: float
    status: int | None = None
    fault: str | None = None


@dataclass
class Fault:
    """The next `times` requests of a method (a regex) whose path and query hold a regex get the action instead.

    Actions: ("status", code, headers, body), the last two optional, and nothing is done; ("cut", n), the connection is
    reset once n bytes of the request's body were read; ("cut-response", n), what was asked is done, and the connection
    ends n bytes into the body of the answer (before the answer where it has no body); ("slow", seconds), done then.
    """

    method: str
    path: str
    action: tuple
    times: int = 1

    def takes(self, method, path):
        return self.times > 0 and re.fullmatch(self.method, method) and re.search(self.path, path)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_request(self):
        authorization = self.headers.get("Authorization", "")
        token = TOKENS.get(authorization.removeprefix("Bearer "), "invalid") if authorization else "none"
        record, (fault, *details) = self.server.received(self.command, self.path, token)
        if fault == "cut":
            return self.cut(*details)
        body = b"".join(self.blocks())
        if fault == "slow":
            self.server.closing.wait(*details)
        answer = status(*details) if fault == "status" else self.routed(body, token)
        record.status = answer.status
        self.answer(answer, details[0] if fault == "cut-response" else None)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_request

    def routed(self, body, token):
        try:
            with self.server.lock:
                return answered(self.server, self.command, self.path, self.headers, body, token)
        except Refused as refusal:
            return Answer(refusal.body, refusal.status, refusal.headers)

    def blocks(self, most=BLOCK):
        """The body of the request, of announced length or in chunks."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        left = int(self.headers.get("Content-Length", 0))
        while left > 0:
            yield self.read(min(left, most))
            left -= most

    def read(self, size):
        data = self.rfile.read(size)
        if len(data) < size:
            raise ConnectionAbortedError("the client hung up within its request")
        return data

    def cut(self, size):
        """Read this much of the body, then reset the connection."""
        blocks = self.blocks(max(1, min(size, BLOCK)))
        while size > 0 and (block := next(blocks, None)) is not None:
            size -= len(block)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def answer(self, answer, cut=None):
        raw = isinstance(answer.body, bytes)
        data = answer.body if raw else json.dumps(answer.body).encode()
        silent = self.command == "HEAD" or not data
        self.close_connection |= cut is not None
        if cut is not None and silent:
            return
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/octet-stream" if raw else "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if not silent:
            self.wfile.write(data[:cut])

    def log_message(self, *_):
        pass


def status(code, headers=None, body=None):
    return Answer({"error": f"injected {code}"} if body is None else body, code, dict(headers or {}))


class Hub(ThreadingHTTPServer):
    """The repos by (kind, name), the requests in the order of their arrival, and the faults yet to come."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos, self.requests, self.faults, self.tickets = {}, [], [], {}
        self.lock, self.closing = threading.RLock(), threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def model(self, name):
        return self.repos["models", name]

    def dataset(self, name):
        return self.repos["datasets", name]

    def space(self, name):
        return self.repos["spaces", name]

    def add(self, kind, name, files, private=False):
        """A repo that is there before the test, with these files (path: bytes), in any namespace."""
        repo = self.repos[kind, name] = Repo(kind, name, private, author=name.split("/")[0])
        repo.write(files)
        return repo

    def fail(self, method, path, *action, times=1):
        """Inject a `Fault`, e.g. `hub.fail("POST", "/commit/", "status", 500)`."""
        self.faults.append(Fault(method, path, action, times))

    def asked(self, method=".*", path=""):
        """The requests of a method (a regex) whose path holds a regex."""
        return [one for one in self.requests if re.fullmatch(method, one.method) and re.search(path, one.path)]

    def received(self, method, target, token):
        path = urllib.parse.unquote(target)
        record = Request(method, path, token, time.monotonic())
        with self.lock:
            self.requests.append(record)
            fault = next((one for one in self.faults if one.takes(method, path)), None)
            if fault is None:
                return record, (None,)
            fault.times -= 1
            record.fault = fault.action[0]
            return record, fault.action

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
