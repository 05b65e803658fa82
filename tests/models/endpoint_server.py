"""A small OpenAI-compatible server that misbehaves on request: in a thread, or as a process that may die."""

import json
import os
import pathlib
import socket
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = "good bad film story actor plot slow bright dull music scene great awful fun script cast".split()


def words(seed):
    """A sentence that depends on the seed alone."""
    return " ".join(WORDS[(seed * 2654435761 >> 3 * place) % len(WORDS)] for place in range(6))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        fault = self.server.received(raw, self.path, dict(self.headers))
        try:
            time.sleep(self.server.delay)
            getattr(self, f"do_{fault[0]}")(json.loads(raw), *fault[1:])
        finally:
            self.server.left()

    def send(self, body, status=200, headers=(), cut=None):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data[:cut])
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True

    def answer(self, content, finish_reason="stop"):
        message = {"role": "assistant", "content": content}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        return {"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}], "usage": usage}

    def do_text(self, body):
        prompt = body["messages"][-1]["content"]
        echoed = prompt.removeprefix("echo ") if prompt.startswith("echo ") else words(body["seed"])
        self.send(self.answer(echoed, "length"))

    def do_content(self, body, content):
        self.send(self.answer(content))

    def do_raw(self, body, data):
        self.send(data)

    def do_status(self, body, status, headers=(), error=None):
        self.send({"error": {"message": body["messages"][-1]["content"]}} if error is None else error, status, headers)

    def do_cut(self, body):
        self.send(self.answer("a text that is cut"), cut=40)

    def do_silent(self, body):
        """Says nothing until the client has hung up."""
        self.connection.recv(1)
        self.close_connection = True

    def do_reset(self, body):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    """Keeps what it received; a list of faults is worked off by the first requests.

    A fault is the name of a `do_` method of the handler and its arguments, e.g. ("status", 500).
    """

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, port=0, faults=(), delay=0.0, log=None, die_after=None):
        super().__init__(("127.0.0.1", port), Handler)
        self.faults, self.delay, self.log, self.die_after = list(faults), delay, log, die_after
        self.bodies, self.paths, self.headers = [], [], []
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def received(self, raw, path, headers):
        with self.lock:
            if self.die_after is not None and len(self.bodies) >= self.die_after:
                os._exit(41)
            self.bodies.append(json.loads(raw))
            self.paths.append(path)
            self.headers.append({name.lower(): value for name, value in headers.items()})
            if self.log:
                with self.log.open("ab") as handle:
                    handle.write(raw + b"\n")
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            return self.faults.pop(0) if self.faults else ("text",)

    def left(self):
        with self.lock:
            self.in_flight -= 1

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), (ConnectionError, ValueError)):
            super().handle_error(request, client_address)


if __name__ == "__main__":
    with Server(int(sys.argv[1]), log=pathlib.Path(sys.argv[2]), die_after=int(sys.argv[3]) or None) as server:
        print(server.server_address[1], flush=True)  # noqa: T201
        server.serve_forever()
