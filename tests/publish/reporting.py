"""What the tests of the report pass in, and how they read a page."""

import base64
import html
import json
import re

from hf_dpsynth.publish.report import write_report
from tests.stubs import StubEmbedder, reviews

SECONDS = 4321.5
METRICS = {
    "mauve": {
        "mauve": 0.6217, "mauve_interval": (0.58, 0.66), "mauve_floor": 0.9513, "mauve_floor_interval": (0.93, 0.97),
        "num_rows": 12, "floor_num_rows": 12, "limits": ["zqlimit: few rows"], "uses_private_data": True,
    },
    "distinct_n": {"distinct_n": 0.5, "references_distinct_n": 0.7, "num_rows": 12, "limits": [],
                   "uses_private_data": True},
}  # fmt: skip
STUDY = [
    {"train_on": "real", "learner": "zqlearner", "accuracy": 0.8123, "interval": (0.78, 0.84)},
    {"train_on": "aug-pe", "learner": "zqlearner", "accuracy": 0.6954, "interval": (0.64, 0.73)},
]


def write(folder, **more):
    """Write both pages of a run from everything that can be passed in."""
    beside = folder.with_name(folder.name + ".private")
    beside.mkdir(mode=0o700, exist_ok=True)
    run = json.loads((folder / "privacy.json").read_text())["guarantee_id"]
    (beside / "times.jsonl").write_text(json.dumps({"run": run, "seconds": SECONDS}) + "\n")
    settings = {"real": reviews()["text"][:], "metrics": METRICS, "study": STUDY, "embedder": StubEmbedder()} | more
    return write_report(folder, **settings)


def pictures(page):
    """The SVG texts that a page embeds."""
    return [base64.b64decode(found).decode() for found in re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", page)]


def markup(page):
    """A page without its pictures and its style."""
    return re.sub(r"<style>.*?</style>", "", re.sub(r"data:image/svg\+xml;base64,[\w+/=]+", "", page), flags=re.S)


def words(page):
    """The text that a reader sees."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", markup(page))).split())
