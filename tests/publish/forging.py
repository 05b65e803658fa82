"""What a forger does to the facts of a release."""

import functools
import json

import hf_dpsynth
from hf_dpsynth.publish.card import render


def edit(folder, change, *, everywhere=False):
    """Change the facts; and, as a careful forger would, the card and whatever else repeats them."""
    facts = json.loads((folder / "privacy.json").read_text())
    change(facts)
    (folder / "privacy.json").write_text(json.dumps(facts))
    if everywhere:
        for name in ("release.json", "plan.json", "ledger.db"):
            (folder / name).unlink()
        (folder / "README.md").write_text(render(facts))
    return hf_dpsynth.verify(folder)


def put(path, value):
    """Return a change of one field, named as in the findings."""

    def change(facts):
        *places, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        functools.reduce(lambda at, part: at[part], places, facts)[last] = value

    return change
