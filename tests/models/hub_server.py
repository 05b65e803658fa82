"""A Hub on loopback that holds one model repo of one commit, for the client of `huggingface_hub`."""

import contextlib
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = hashlib.sha1(b"commit").hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        hub, path = self.server, self.path.split("?")[0]
        hub.requests.append(f"{self.command} {path}")
        api, files = f"/api/models/{hub.repo}", f"/{hub.repo}/resolve/{COMMIT}/"
        if path in (api, f"{api}/revision/main"):
            return self.answer({"id": hub.repo, "sha": COMMIT, "siblings": [{"rfilename": n} for n in hub.files]})
        if path.startswith(f"{api}/tree/{COMMIT}"):
            entries = [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in hub.files.items()
            ]
            return self.answer(entries)
        if path.startswith(files) and path.removeprefix(files) in hub.files:
            return self.answer(hub.files[path.removeprefix(files)])
        return self.answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET

    def answer(self, content, status=200, headers=()):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/octet-stream" if content is body else "application/json")
        self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(repo, files):
    """Serve the files (name: bytes) of a repo; gives the server, with `.url` and the `.requests` it has had."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.repo, server.files, server.requests = repo, files, []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
