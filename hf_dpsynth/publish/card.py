"""The dataset card, README.md, rendered from privacy.json alone: nobody can type an epsilon into it.

Every value is escaped, so that no name can become Markdown, HTML or front matter. The words follow the definition:
"differentially private" is said of approximate DP only.
"""

import json
import re
import unicodedata
from functools import lru_cache
from importlib import resources
from typing import Any

import yaml
from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from hf_dpsynth.errors import PrivacyError
from hf_dpsynth.guarantees import digits
from hf_dpsynth.publish import cumulative, protection
from hf_dpsynth.publish.pictures import captions
from hf_dpsynth.publish.privacy_json import is_model, to_privacy_json
from hf_dpsynth.publish.shortened import LONGEST, MOST, kinds, shortened
from hf_dpsynth.release import Release

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./*-]*( [A-Za-z0-9_./*<-]+)*")
_YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}
_FENCE = "---"
_CARD = "card.md.jinja"  # the template that others extend
# a split that `datasets` knows no such name for would keep it from reading any
_SPLIT = re.compile(r"([^/]+)/(\w+(?:\.\w+)*)-\d{5}-of-\d{5}\.parquet")
_LOSS = re.compile(r"DP epsilon( =| is|:|&#58;) *\d", re.IGNORECASE)  # a number beside those of the claim
_DEFAULT = "data"  # the folder of the configuration that is called default
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_ADJACENCY = {
    "add_remove": "neighbouring data sets differ by one record that is there or not",
    "zero_out": "neighbouring data sets have the same public number of records, and one record counts for nothing",
    "replace_one": "neighbouring data sets differ in the value of one unit",
    "custom": "see the assumptions",
}


class Dumper(yaml.SafeDumper):
    """Quotes every text that another YAML version could read as something else."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(value) and value.lower() not in _YAML_WORDS and _FENCE not in value
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else '"')


Dumper.add_representer(str, _text)


def render_release(release: Release) -> str:
    """Return the card of a release."""
    return render(to_privacy_json(release))


def render(facts: dict[str, Any], *, pictures: bool = False) -> str:
    """Return the card of the facts in a privacy.json.

    Args:
        facts (`dict`): what `to_privacy_json` made.
        pictures (`bool`, defaults to `False`): whether it shows those of `pictures.pictures`, which must lie beside
            it then.
    Returns:
        `str`: front matter and Markdown. Public.
    Raises:
        PrivacyError: the facts state an epsilon without a unit or an adjacency.
    """
    return rendered(_CARD, facts, front_matter(facts), title=title(facts), sentence=sentence(facts), pictures=pictures)


def rendered(
    template: str,
    facts: dict[str, Any],
    front: dict[str, Any],
    *,
    title: str,
    sentence: str,
    pictures: bool = False,
    **more: Any,
) -> str:
    """Return a card, of rows or of a model, from its template.

    Args:
        template (`str`): the name of the file in `templates/`.
        facts (`dict`): what `to_privacy_json` made.
        front (`dict`): the front matter.
        title (`str`): the heading of the card.
        sentence (`str`): the claim.
        pictures (`bool`, defaults to `False`): whether it shows pictures.
        **more (`Any`): what a template needs besides.
    Raises:
        PrivacyError: the facts state an epsilon without a unit or an adjacency.
    """
    if not (facts["privacy_unit"]["level"] and facts["privacy_unit"]["description"] and facts["adjacency"]):
        raise PrivacyError("a card states epsilon only with its privacy unit and adjacency; one of them is missing.")
    sources = tuple((name, _template(name)) for name in dict.fromkeys((_CARD, template)))
    shown = {Markup(name): words for name, words in captions(facts).items()} if pictures else {}
    stated = {"front_matter": Markup(_front_matter(front)), "title": title, "sentence": sentence, "pictures": shown}
    return _environment(sources).get_template(template).render(_context(facts) | stated | more)


def _context(facts: dict[str, Any]) -> dict[str, Any]:
    """Return what every template needs of the facts."""
    parameters = shortened(facts)["parameters"]
    metric = parameters["metric_dp"]
    return {
        "facts": shortened(facts),
        "cumulative": cumulative.sentence(facts, number),
        "budget": cumulative.budget_sentence(facts, number),
        "several": bool(cumulative.beside(facts)),
        "places": places,
        "epsilon": number(parameters["epsilon"]),
        "delta": number(parameters["delta"]),
        "metric": metric,
        "secret": parameters["secret_protection"],
        "scale": None if metric is None else number(metric["scale"]),
        "adjacency": adjacency(facts),
        "number": number,
        "covered": covered,
        "interval": interval,
        "synthetic": is_synthetic(facts),
        "drawn": facts["mechanisms"][0]["backend"] != "none",
        "load": _load(facts),
    }


@lru_cache(maxsize=4)
def _environment(sources: tuple[tuple[str, str], ...]) -> Environment:
    """Return an environment of templates by name; compiled once."""
    loader = DictLoader(dict(sources))
    return Environment(
        loader=loader, autoescape=True, finalize=_escaped, undefined=StrictUndefined, keep_trailing_newline=True
    )


def _template(name: str) -> str:
    return resources.files("hf_dpsynth.publish").joinpath(f"templates/{name}").read_text(encoding="utf-8")


def claims(text: str, facts: dict[str, Any]) -> bool:
    """Return whether a card, of whatever version, states the claim of the facts and no other in its place."""
    lines = text.split("\n")
    for row in _other_rows(facts):  # a parameter or a metric may have the name of a part of the claim
        if row in lines:
            lines.remove(row)
    secret = facts["parameters"]["secret_protection"]
    named = {"p": "p", "r": "r"} if secret else {"DP epsilon": "epsilon", "delta": "delta"}
    held = secret or facts["parameters"]
    rows = {
        **{f"| {shown} |": f" {_escaped(number(held[name]))} |" for shown, name in named.items()},
        "| privacy unit |": f" {facts['privacy_unit']['level']} ({_escaped(facts['privacy_unit']['description'])}",
        "| adjacency |": f" {_escaped(facts['adjacency'])}: ",
    }
    stated = {start: [line.removeprefix(start) for line in lines if line.startswith(start)] for start in rows}
    fits = all(len(found) == 1 and found[0].startswith(rows[start]) for start, found in stated.items())
    return fits and _says_all(lines, facts)


def _says_all(lines: list[str], facts: dict[str, Any]) -> bool:
    """Return whether a card states what weakens the claim, and no loss besides those of the facts."""
    shown, whole = shortened(facts), "\n".join(lines)
    claimed = [sentence(facts), cumulative.sentence(facts, number), cumulative.budget_sentence(facts, number)]
    doubts = [one["name"] for one in shown["accounting"]["assumptions"] if one["holds"] is not True]
    prior = [one["guarantee_id"] for one in facts["cumulative"]["prior_releases"]]
    named = (*claimed, *shown["scope"]["not_covered"], *doubts, *prior)
    rest = whole
    for words in filter(None, claimed):
        rest = rest.replace(_escaped(words), "")
    return all(_escaped(words) in whole for words in named) and not _LOSS.search(rest)


def _other_rows(facts: dict[str, Any]) -> list[str]:
    """Return the rows of the tables that state parameters of mechanisms and metrics."""
    short = shortened(facts)
    params = [(name, number(value)) for one in short["mechanisms"] for name, value in one["params"].items()]
    metrics = [(one["metric"], number(one["value"]), covered(one)) for one in short["evaluation"]]
    return [f"| {' | '.join(map(_escaped, cells))} |" for cells in (*params, *metrics)]


def number(value: Any) -> str:
    """Return a value as text: numbers with all their digits, so that no claim is rounded down."""
    if value is None:
        return "none"
    if isinstance(value, float):
        return digits(value)
    return value if isinstance(value, str) else json.dumps(value)


def covered(item: dict[str, Any]) -> str:
    """Return in words what the guarantee says of a metric or an audit."""
    if not item["uses_private_data"]:
        return "uses no private data"
    return "its loss is accounted for" if item["accounted"] else "not covered by the guarantee"


def interval(ends: list[float] | None) -> str:
    """Return a confidence interval in words."""
    return " to ".join(number(end) for end in ends) if ends else "none"


def _escaped(value: Any) -> Markup:
    """Write every character that Markdown or HTML could read as a sign as an entity, on one line."""
    if isinstance(value, Markup):
        return value
    given = str(value)
    if len(given) > LONGEST:
        given = f"{given[:LONGEST]} (and {len(given) - LONGEST} more characters, in privacy.json)"
    text = "".join(" " if unicodedata.category(sign)[0] in "CZ" else sign for sign in given).strip()
    text = text or ("?" if given else "")  # a blank value would leave marks around nothing
    return Markup("".join(sign if _is_harmless(text, at) else f"&#{ord(sign)};" for at, sign in enumerate(text)))


def _is_harmless(text: str, at: int) -> bool:
    """Return whether a character can start no list, link, emphasis or other structure where it stands."""
    sign, before, after = text[at], text[:at], text[at + 1 : at + 2]
    if sign.isalnum():
        return True
    if not before:
        return sign in ",;(/"
    if before.isdigit() and sign in ".)" and not after.strip():
        return False
    if sign in ".:":
        return not before.lower().endswith("www") and after != "/"
    if sign in "_'":
        return before[-1].isalnum() and after.isalnum()
    return sign in " ,()=-/;"


def is_synthetic(facts: dict[str, Any]) -> bool:
    """Return whether the rows are new, not one for each private row."""
    return str(facts["scope"]["released_artifacts"][0]).startswith("synthetic")


def _is_dp(facts: dict[str, Any]) -> bool:
    return (
        facts["definition"] == "approximate_dp"
        and facts["parameters"]["epsilon"] is not None
        and str(facts["claim_status"]).startswith("formal_dp")
        and not protection.fails(facts)
    )


def front_matter(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the card's front matter: a summary of privacy.json, tags, and where the rows lie."""
    tags = ["synthetic" if is_synthetic(facts) else "privatized"]
    beside = cumulative.beside(facts)
    held = facts["cumulative"] if beside else facts["parameters"]  # of all rows that lie there
    if _is_dp(facts) and cumulative.status(facts) != "none" and held["epsilon"] is not None:
        tags.append("differential-privacy")
    configs = _configs(facts)
    rows = None if beside else facts["output"]["n_records"]
    secret = facts["parameters"]["secret_protection"]
    numbers = {"epsilon": held["epsilon"], "delta": held["delta"]}
    if secret is not None:
        numbers = {**secret, "kinds": kinds(secret["kinds"])}
    return {
        "pretty_name": title(facts),
        "tags": [*tags, *_mechanisms(facts)],
        **(
            {}
            if rows is None
            else {"size_categories": [next((name for limit, name in _SIZES if rows < limit), "n>1M")]}
        ),
        **({"configs": configs} if configs else {}),
        ("differential_privacy" if secret is None else "secret_protection"): {
            "guarantee_id": facts["guarantee_id"],
            "claim_status": cumulative.status(facts),
            "definition": facts["definition"],
            **numbers,
            "privacy_unit": facts["privacy_unit"]["level"],
            "adjacency": cumulative.adjacency(facts) if beside else facts["adjacency"],
            "file": "privacy.json",
        },
    }


def _configs(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return where the rows of each configuration lie, the oldest first, which is loaded when none is named."""
    found: dict[str, dict[str, list[str]]] = {}
    for holder in (*facts["cumulative"]["prior_releases"], facts["output"]):
        for path in (file["path"] for file in holder["files"]):
            match = _SPLIT.fullmatch(path)
            if match:
                found.setdefault(match[1], {}).setdefault(match[2], []).append(path)
    first = len(found) > 1 and _DEFAULT not in found
    return [
        {
            "config_name": "default" if name == _DEFAULT else name,
            "data_files": [
                {"split": split, "path": _place(f"{name}/{split}", paths)} for split, paths in splits.items()
            ],
            **({"default": True} if first and not at else {}),
        }
        for at, (name, splits) in enumerate(found.items())
    ]


def places(entry: dict[str, Any]) -> str:
    """Return in which configurations rows of an earlier release lie."""
    found = dict.fromkeys(file["path"].split("/")[0] for file in entry["files"])
    return ", ".join("default" if name == _DEFAULT else name for name in found) or "replaced"


def _place(start: str, paths: list[str]) -> str | list[str]:
    """Return the files of a split by name, so that one which is added is not loaded; of very many their pattern."""
    if len(paths) > MOST:
        return f"{start}-*.parquet"
    return paths if len(paths) > 1 else paths[0]


def _front_matter(front: dict[str, Any]) -> str:
    text: str = yaml.dump(front, Dumper=Dumper, sort_keys=False, width=10**9, allow_unicode=False)
    return text.replace(_FENCE, r"\x2d\x2d\x2d")


def title(facts: dict[str, Any]) -> str:
    """Return what the rows are and what made them."""
    if is_model(facts):
        return f"A language model tuned with {', '.join(_mechanisms(facts))}"
    kind = "Synthetic" if is_synthetic(facts) else "Privatized"
    return f"{kind} text made with {', '.join(_mechanisms(facts))}"


def _mechanisms(facts: dict[str, Any]) -> list[str]:
    """Return the mechanisms that made the rows that lie there."""
    names = [one["name"] for one in facts["mechanisms"]]
    return list(dict.fromkeys((*names, *(entry["mechanism"] for entry in cumulative.beside(facts)))))


def sentence(facts: dict[str, Any]) -> str:
    """Return the one sentence that states the claim: definition, epsilon, delta, unit, adjacency.

    Where rows of earlier releases lie beside those of this one, what holds for all of them comes first.
    """
    whole = cumulative.whole(facts, number)
    return f"{whole} Of the newest one alone: {_own_sentence(facts)}" if whole else _own_sentence(facts)


def _own_sentence(facts: dict[str, Any]) -> str:
    parameters, unit = facts["parameters"], facts["privacy_unit"]
    if facts["definition"] == protection.DEFINITION:
        return protection.sentence(facts)
    of = "model" if is_model(facts) else "data set"
    under = f"per {unit['level']} under {facts['adjacency'].replace('_', '-')} adjacency"
    if facts["claim_status"] == "none":
        why = "epsilon is infinite, no noise was added"
        if facts["randomness"]["seed_source"] == "user_seed":
            why = "the noise was drawn from a seed that anybody can use again, so no epsilon holds"
        return f"No privacy, {under}: {why}, and no delta is claimed."
    if parameters["metric_dp"] is not None:
        metric, scale = parameters["metric_dp"], number(parameters["metric_dp"]["scale"])
        return (
            f"Metric DP at scale {scale} per {metric['unit']} under {facts['adjacency'].replace('_', '-')} adjacency, "
            f"without a delta: the loss between two {metric['unit']}s is epsilon = {scale} times their "
            f"distance ({metric['metric']}). This is not anonymisation and protects no person as a whole."
        )
    if facts["definition"] == "local_dp":
        return (
            f"Local DP with DP epsilon = {number(parameters['epsilon'])} and delta = 0 {under}: the loss between any "
            f"two values of {unit['description']}. It protects no person with several texts as a whole."
        )
    so_far = "" if facts["claim_status"] == "formal_dp" else ", if the unknown assumptions below hold"
    if so_far and protection.fails(facts):
        so_far = ", under the assumptions below, of which at least one is false"
    return (
        f"This {of} is differentially private with DP epsilon = {number(parameters['epsilon'])} and "
        f"delta = {number(parameters['delta'])} (approximate DP) {under}{so_far}."
    )


def adjacency(facts: dict[str, Any]) -> str:
    """Return in words which data sets are neighbours."""
    if facts["definition"] == protection.DEFINITION:
        return protection.ADJACENCY
    words = _ADJACENCY[facts["adjacency"]]
    return words.replace("record", "user") if facts["privacy_unit"]["level"] == "user" else words


def _load(facts: dict[str, Any]) -> Markup:
    """Return how to load the rows; fixed text."""
    arrow = any(entry["path"].endswith(".arrow") for entry in facts["output"]["files"])
    name = "load_from_disk" if arrow else "load_dataset"
    return Markup(f'import datasets, hf_dpsynth\n\nrows = datasets.{name}("FOLDER")\n') + Markup(
        'print(hf_dpsynth.load_privacy("FOLDER").statement())'
    )
