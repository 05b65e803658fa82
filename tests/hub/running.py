"""A Hub in a thread, and its clients in processes of their own: their libraries read the address when imported."""

import contextlib
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.hub.server import WRITE, Hub

ROOT = Path(__file__).parents[2]
INHERITED_NOT = ("HF_", "HUGGING", "TRANSFORMERS_")
SETTINGS = {
    "HF_TOKEN": WRITE,
    "HF_HUB_DISABLE_XET": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_UPDATE_DOWNLOAD_COUNTS": "0",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
}


@contextlib.contextmanager
def serving():
    """A Hub that answers in a thread."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield hub
    finally:
        hub.closing.set()
        hub.shutdown()
        thread.join()
        hub.server_close()


@dataclass(frozen=True)
class Client:
    """Runs code against a Hub in a folder, where the caches of the libraries lie too (`HF_HOME`)."""

    hub: Hub
    folder: Path
    timeout_seconds: float = 180

    def call(self, code, **environment):
        """Run Python code in a process of its own; give what it printed, or fail with what it said of its error.

        The environment adds to or replaces what is set; None takes a variable away, as HF_TOKEN=None.
        """
        return self.run([sys.executable, "-c", code], **environment)

    def hf(self, *arguments, **environment):
        """Run the command line of `huggingface_hub`."""
        return self.run([sys.executable, "-m", "huggingface_hub.cli.hf", *arguments], **environment)

    def run(self, command, **environment):
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.folder,
            env=self.environment(environment),
            capture_output=True,
            text=True,
            timeout=self.timeout_seconds,
        )
        if done.returncode != 0:
            raise ClientError(done.stderr)
        return done.stdout

    def environment(self, changes):
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(INHERITED_NOT) and not name.lower().endswith("_proxy")
        }
        kept |= SETTINGS | {"HF_ENDPOINT": self.hub.url, "HF_HOME": str(self.folder / "hf-home")} | changes
        return {name: str(value) for name, value in kept.items() if value is not None}


class ClientError(Exception):
    """A client ended with an error; this is what it printed of it."""
