"""The card of a tuned model, README.md, rendered from privacy.json as that of the rows is, in the same order.

It states the loss as "DP epsilon": a card that a trainer writes holds the epsilon of Adam, which is no privacy loss.
"""

import re
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.publish import card
from hf_dpsynth.publish.privacy_json import base_of, is_model

_REPOSITORY = re.compile(r"[A-Za-z0-9_](?:[\w.-]{0,94}[\w])?(/[A-Za-z0-9_](?:[\w.-]{0,94}[\w])?)?", re.ASCII)


@dataclass(frozen=True)
class _Form:
    """What a mechanism releases, and which library loads it."""

    what: str
    library: str
    loader: str
    tags: tuple[str, ...] = ()


_FORMS = {
    "dp-lora": _Form("low-rank updates of", "peft", "AutoPeftModelForCausalLM", ("lora",)),
    "dp-prompt-tuning": _Form("virtual tokens for", "peft", "AutoPeftModelForCausalLM", ("prompt-tuning",)),
    "dp-full": _Form("all parameters of", "transformers", "AutoModelForCausalLM"),
}


def render_model(facts: dict[str, Any], *, base: str | None, pictures: bool = False) -> str:
    """Return the card of a model that a release tuned.

    Args:
        facts (`dict`): what `to_privacy_json` made of a release of `dp-lora`, `dp-prompt-tuning` or `dp-full`.
        base (`str`, *optional*): the base model, a repository of the Hub; None where it is a folder of this machine,
            whose name is of no use to others.
        pictures (`bool`, defaults to `False`): whether it shows those of `pictures.pictures`.
    Returns:
        `str`: front matter and Markdown. Public.
    Raises:
        ConfigError: the release tuned no model, or `base` names no repository.
        PrivacyError: the facts state an epsilon without a unit or an adjacency.
    """
    form = _form(facts)
    if base is not None and not _is_repository(base):
        raise ConfigError(
            f"base is {base!r}; it must be a repository of the Hub, or None for a folder of this machine"
        )
    return card.rendered(
        "model_card.md.jinja",
        facts,
        model_front_matter(facts, base=base),
        title=f"Language model tuned with {facts['mechanisms'][0]['name']}",
        sentence=card.sentence(facts),
        pictures=pictures,
        base=base,
        adapter=form.library == "peft",
        what=f"The files hold {form.what} a language model.",
        load_model=_load(form, base),
    )


def card_of(facts: dict[str, Any], *, pictures: bool = False) -> str:
    """Return the card of a release, of rows or of a model.

    Args:
        facts (`dict`): what `to_privacy_json` made.
        pictures (`bool`, defaults to `False`): whether it shows those of `pictures.pictures`.
    """
    if is_model(facts):
        return render_model(facts, base=base_of(facts), pictures=pictures)
    return card.render(facts, pictures=pictures)


def front_of(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the front matter of that card."""
    return model_front_matter(facts, base=base_of(facts)) if is_model(facts) else card.front_matter(facts)


def model_front_matter(facts: dict[str, Any], *, base: str | None) -> dict[str, Any]:
    """Return the front matter of the card: what the Hub reads of a model, and a summary of privacy.json.

    Args:
        facts (`dict`): what `to_privacy_json` made.
        base (`str`, *optional*): the base model, a repository of the Hub.
    """
    form, summary = _form(facts), card.front_matter(facts)
    private = [tag for tag in summary["tags"] if tag == "differential-privacy"]
    return {
        **({} if base is None else {"base_model": base}),
        "library_name": form.library,
        "pipeline_tag": "text-generation",
        "tags": [*private, facts["mechanisms"][0]["name"], *form.tags],
        "differential_privacy": summary["differential_privacy"],
    }


def _form(facts: dict[str, Any]) -> _Form:
    name = facts["mechanisms"][0]["name"]
    if name not in _FORMS:
        raise ConfigError(f"{name} tunes no model that could have a card; {', '.join(_FORMS)} do.")
    return _FORMS[name]


def _is_repository(base: Any) -> bool:
    return isinstance(base, str) and bool(_REPOSITORY.fullmatch(base)) and ".." not in base and "--" not in base


def _load(form: _Form, base: str | None) -> Markup:
    """Return how to load the model; fixed text but for a name that was checked."""
    lines = [f"from {form.library} import {form.loader}", "", f'model = {form.loader}.from_pretrained("FOLDER")']
    tokenizer = "FOLDER" if form.library == "transformers" else base
    if tokenizer is not None:
        lines.insert(1 if form.library == "peft" else 0, "from transformers import AutoTokenizer")
        lines.append(f'tokenizer = AutoTokenizer.from_pretrained("{tokenizer}")')
    if form.library == "transformers":
        lines[:2] = [f"from transformers import {form.loader}, AutoTokenizer"]
    return Markup("\n".join(lines))
