"""Checking what lies beside the rows: claims of earlier releases, the recipe and its script, a tuned model."""

from pathlib import Path
from typing import Any

from hf_dpsynth.publish import accounts, cumulative, mechanism
from hf_dpsynth.publish.accounts import READING, short
from hf_dpsynth.publish.folder import LARGEST_BYTES, LARGEST_CLAIM, PRIVACY, read_json
from hf_dpsynth.publish.pictures import PRIVACY as PRIVACY_PICTURE
from hf_dpsynth.publish.pictures import SPLIT as SPLIT_PICTURE
from hf_dpsynth.publish.pictures import pictures
from hf_dpsynth.publish.privacy_json import MOST_FINDINGS, invalid, to_privacy_json
from hf_dpsynth.publish.reading import from_privacy_json, without_words
from hf_dpsynth.publish.recipe_text import RECIPE, SCRIPT, SCRIPT_TEXT, recipe_text
from hf_dpsynth.publish.repository import CLAIM, EARLIER
from hf_dpsynth.release import Release
from hf_dpsynth.store import file_digest

_MOST_RECOMPUTED = 50
_ROUNDING = 1 + 1e-4  # what was spent is rounded up


def earlier(folder: Path, facts: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return what is wrong with the claims of earlier releases, and what of them was not looked at.

    Args:
        folder (`Path`): of the files.
        facts (`dict`): privacy.json, valid by its schema.
    """
    entries = facts["cumulative"]["prior_releases"]
    named = {entry["guarantee_id"] for entry in entries} | {facts["guarantee_id"]}
    found = [] if len(named) == len(entries) + 1 else ["cumulative.prior_releases: one release stands there twice"]
    there = {f"{EARLIER}/{path.name}" for path in (folder / EARLIER).glob("*.json")}
    strangers = sorted(name for name in there if (match := CLAIM.fullmatch(name)) and match[1] not in named)
    found += [f"{name}: cumulative.prior_releases has no such release" for name in strangers]
    for at, entry in enumerate(entries[:_MOST_RECOMPUTED]):
        path = folder / EARLIER / f"{entry['guarantee_id']}.json"
        found += [f"{EARLIER}/{path.name}: {line}" for line in _one(path, facts, entry, named, at)]
    unseen = len(entries) - _MOST_RECOMPUTED
    return found[:MOST_FINDINGS], [f"the claims of {unseen} earlier releases: not recomputed"] if unseen > 0 else []


def _one(path: Path, facts: dict[str, Any], entry: dict[str, Any], named: set[str], at: int) -> list[str]:
    """Compare the claim of an earlier release with its entry, its events, and what it lists itself."""
    try:
        held = read_json(path, LARGEST_CLAIM)
        wrong = invalid(held) or accounts.check(held)
        base = from_privacy_json(held)
        wrong = wrong or mechanism.check(base.plan, (), base.added_columns) or cumulative.refuted(held)
        if wrong or without_words(to_privacy_json(base)) != without_words(held):
            return list(wrong) or ["contradicts itself"]
        stated = cumulative.earlier(entry)
        implied = cumulative.as_earlier(held)
        pairs = {name: (value, getattr(implied, name)) for name, value in vars(stated).items() if name != "files"}
        place = f"cumulative.prior_releases[{at}]"
        found = [f"{place}.{name} contradicts it" for name, (first, second) in pairs.items() if first != second]
        if not set(stated.files) <= set(implied.files):
            found.append(f"{place}.files contradicts it")
        lost = {one["guarantee_id"] for one in held["cumulative"]["prior_releases"]} - named
        found += [f"names {name}, which cumulative.prior_releases leaves out" for name in sorted(lost)]
        return found + cumulative.clashes(held, facts)
    except READING as error:
        return [short(error)]


def budget(facts: dict[str, Any]) -> list[str]:
    """Return what is wrong with the stated budget, as far as the facts show it."""
    held, filtered = facts["cumulative"]["budget"], facts["accounting"]["composition"] == "filter"
    if held is None:
        return ["cumulative.budget: missing, although accounting.composition is filter"] if filtered else []
    most = held["epsilon"] * _ROUNDING
    return [f"cumulative.budget: {held['spent']:g} of {held['epsilon']:g} is spent"] if held["spent"] > most else []


def recipe(folder: Path, release: Release | None) -> tuple[list[str], list[str]]:
    """Compare the recipe and its script with the plan of release.json; without that, the recipe cannot be seen."""
    found, unseen = [], []
    script = _text(folder / SCRIPT)
    if script not in (None, SCRIPT_TEXT):
        found.append(f"{SCRIPT}: not the script that runs {RECIPE}")
    held = _text(folder / RECIPE)
    if held is not None and release is None:
        unseen.append(f"{RECIPE}: there is no release.json to compare it with")
    elif held is not None and release is not None and held != recipe_text(release.plan):
        found.append(f"{RECIPE}: not the recipe of the plan in release.json")
    return found, unseen


def _text(path: Path) -> str | None:
    if not path.is_file():
        return None
    return path.read_bytes()[:LARGEST_BYTES].decode("utf-8", "replace").replace("\r\n", "\n")


def models(folder: Path, release: Release | None) -> list[str]:
    """Compare a model that was released with the rows with its digests; one that lies elsewhere is not looked for."""
    if release is None or release.is_model:
        return []
    held = [(name, digest, folder / name) for name, digest in release.models if ".." not in Path(name).parts]
    there = [one for one in held if one[2].is_file() and not one[2].is_symlink()]
    if there and len(there) != len(release.models):
        return ["release.json: a file of the model is missing"]
    return [f"{short(name)}: sha256 differs" for name, digest, path in there if file_digest(path) != digest]


def has_pictures(folder: Path) -> bool:
    """Return whether pictures of a card lie beside it."""
    return any((folder / name).is_file() for name in (PRIVACY_PICTURE, SPLIT_PICTURE))


def drawn(folder: Path, facts: dict[str, Any]) -> list[str]:
    """Compare the pictures of a card with what the facts draw."""
    if not has_pictures(folder):
        return []
    implied, found = pictures(facts), []
    for name in (PRIVACY_PICTURE, SPLIT_PICTURE):
        path, svg = folder / name, implied.get(name)
        held = path.read_bytes()[:LARGEST_BYTES] if path.is_file() and not path.is_symlink() else None
        if held != svg:
            found.append(f"{name}: {'missing' if held is None else f'not what {PRIVACY} draws'}")
    return found
