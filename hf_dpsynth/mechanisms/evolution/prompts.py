"""Prompts of the evolution mechanisms. Only public words and already privatized text stand in them.

Source of the two kinds of prompt: Xie et al. 2024, arXiv:2403.01749, Section 4; the wording is ours.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.models.base import TextGenerator

STYLES = (
    "in a casual style", "in a plain style", "in a formal style", "in a vivid style", "in a brief style",
    "with a concrete detail", "with an everyday example", "in the first person", "in a thoughtful style",
    "in an enthusiastic style", "in a dry style", "in a conversational style",
)  # fmt: skip
BLANK = "_"
_LEAD = re.compile(
    r"^[^:\n]{0,90}\b(?:sure|okay|certainly|of course|here is|here's|rewrit\w*|reword\w*|blanks?|version|label)\b"
    r"[^:\n]{0,90}:\s*",
    re.IGNORECASE,
)
_ORDINAL = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+")
_QUOTES = "\"'\u201c\u201d\u2018\u2019`* "


def checked(mechanism: str, subject: Any, keywords: Any) -> tuple[str, ...]:
    """Return the keywords that texts may be asked for with; a single one may stand alone.

    Args:
        mechanism (`str`): its name, for the message.
        subject (`str`): what to write.
        keywords (`str` or `Sequence[str]`): words to write about.
    Raises:
        ConfigError: the subject has no word, or the keywords are no list of strings.
    """
    words = [keywords] if isinstance(keywords, str) else keywords
    if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
        raise ConfigError(f"{mechanism}: keywords is {keywords!r}; it must be a list of strings")
    if not isinstance(subject, str) or not subject.strip():
        raise ConfigError(f"{mechanism}: subject is {subject!r}; it must be words, e.g. 'movie review'")
    return tuple(words)


def describe(columns: Sequence[str], label: tuple[Any, ...]) -> str:
    """Return the words that name a label in a prompt, e.g. `"label: positive"`; nothing without labels."""
    return ", ".join(f"{column}: {value}" for column, value in zip(columns, label, strict=True))


def initial(subject: str, label: str, generator: np.random.Generator, keywords: Sequence[str]) -> str:
    """Return a prompt that asks for a new text of a label in a random style, about a random public keyword."""
    about = f" about {generator.choice(list(keywords))}" if keywords else ""
    kind = f" with {label}" if label else ""
    return f"Write one short {subject}{about}{kind}, {generator.choice(STYLES)}. Reply with the {subject} only."


def paraphrase(subject: str, label: str, text: str, words: int, generator: np.random.Generator) -> str:
    """Return a prompt that asks for another wording of a text of about so many words."""
    kind = f" with {label}" if label else ""
    return (
        f"Rewrite this {subject}{kind} in other words, {generator.choice(STYLES)}, in about {words} words. "
        f"Reply with the {subject} only.\n\n{text}"
    )


def fill_blanks(
    subject: str, label: str, text: str, words: int, generator: np.random.Generator, probability: float
) -> str:
    """Return a prompt that asks to fill the blanks of a text in which words were masked at random."""
    tokens = text.split()
    masked = [
        BLANK if hidden else token
        for token, hidden in zip(tokens, generator.random(len(tokens)) < probability, strict=True)
    ]
    kind = f" with {label}" if label else ""
    return (
        f"Fill in the blanks so that this is one {subject}{kind} of about {words} words. "
        f"Reply with the {subject} only.\n\n{' '.join(masked)}"
    )


def clean(text: str) -> str:
    """Return the text of a reply: the first paragraph without a chatty lead, a list number or quotes."""
    text = _LEAD.sub("", text.strip())
    paragraphs = [part.strip() for part in re.split(r"\n\s*\n|\n", text) if part.strip()]
    first = _ORDINAL.sub("", paragraphs[0]) if paragraphs else ""
    first = first.strip(_QUOTES).replace(BLANK, " ")
    return re.sub(r"\s+", " ", first).strip()


def replies(
    generator: TextGenerator, asked: Sequence[str], max_new_tokens: int, temperature: float, seed: int
) -> list[str]:
    """Return one cleaned reply for each prompt.

    Raises:
        ConfigError: the generator returned another number of texts.
    """
    if not asked:
        return []
    made = generator.generate(asked, max_new_tokens=max_new_tokens, temperature=temperature, seed=seed)
    if len(made) != len(asked):
        raise ConfigError(
            f"the generator returned {len(made)} texts for {len(asked)} prompts; it must return one for each"
        )
    return [clean(text) for text in made]
