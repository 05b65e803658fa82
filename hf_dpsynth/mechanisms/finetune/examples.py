"""Records as examples: a public prefix that names the labels, the text, and the end, in at most `max_tokens` tokens.

One record is one example: longer text is cut at the public length, never split over examples and never packed with
another. Cut text has no end token, so that a model does not learn to stop there. Padding is masked by length, not by
a token's number: for many models the padding token is the end token, and masking it would unlearn the end.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.plans import Label

_LEAST_TARGET = 2


@dataclass(frozen=True)
class Example:
    """Tokens of one record. Sensitive.

    Args:
        tokens (`list[int]`): prefix, text, end.
        prefix (`int`): how many of them are the prefix, at least 1.
    """

    tokens: list[int]
    prefix: int

    def __repr__(self) -> str:
        return "Example(<redacted>)"


def prefix_text(template: str, columns: Sequence[str], label: Label) -> str:
    r"""Return the words that name a label.

    Args:
        template (`str`): words with `{column}` where a value stands; empty for `column: value` lines and `text:`.
        columns (`Sequence[str]`): the conditioning columns.
        label (`tuple`): their values.
    Examples:
        >>> prefix_text("", ("label",), ("pos",))
        'label: pos\ntext:'
        >>> prefix_text("A {label} review:", ("label",), ("good",))
        'A good review:'
    """
    named = dict(zip(columns, label, strict=True))
    if not template:
        return "".join(f"{name}: {value}\n" for name, value in named.items()) + "text:"
    return template.format_map({name: str(value) for name, value in named.items()})


def check_template(template: str, columns: Sequence[str] | None) -> None:
    """Refuse a template with fields that are no conditioning column.

    Args:
        template (`str`): the template.
        columns (`Sequence[str]`, *optional*): the conditioning columns; None checks the form alone.
    Raises:
        ConfigError: the template cannot be read, or names something else.
    """
    try:
        parts = [part for part in string.Formatter().parse(template) if part[1] is not None]
    except ValueError as error:
        raise ConfigError(f"prompt_template is no format string ({error}). Double a brace that is meant.") from error
    for _, name, specification, conversion in parts:
        if specification or conversion or not name or not name.replace("_", "a").isalnum():
            raise ConfigError(
                f"prompt_template has a field {name!r}; a field is the name of a column, e.g. {{label}}."
            )
        if columns is not None and name not in columns:
            raise ConfigError(
                f"prompt_template names {name!r}, which is no label column; those are {', '.join(columns) or 'none'}."
            )


class Encoder:
    """Turns records into examples by public rules.

    Args:
        tokenizer (`transformers.PreTrainedTokenizerBase`): the model's tokenizer. Public.
        template (`str`): the prompt template.
        columns (`Sequence[str]`): the conditioning columns.
        labels (`Sequence[tuple]`): the declared domain.
        max_tokens (`int`): most tokens of an example.
    Raises:
        ConfigError: a prefix leaves no room for text, two labels have the same prefix, or there is no end token.
    """

    ends: frozenset[int] | None = None  # tokens at which sampling stops; the model's own when None

    def __init__(
        self, tokenizer: Any, template: str, columns: Sequence[str], labels: Sequence[Label], max_tokens: int
    ) -> None:
        check_template(template, columns)
        if tokenizer.eos_token_id is None:
            raise ConfigError("the model's tokenizer has no end-of-sequence token, so no text could end.")
        self._tokenizer, self._max_tokens, self.end = tokenizer, max_tokens, int(tokenizer.eos_token_id)
        self.prefixes = [self._prefix(prefix_text(template, columns, label)) for label in labels]
        longest = max(map(len, self.prefixes))
        if longest + _LEAST_TARGET > max_tokens:
            raise ConfigError(
                f"max_tokens is {max_tokens} and the longest prefix has {longest} tokens; text and end need "
                f"{_LEAST_TARGET} more. Raise max_tokens, or shorten prompt_template."
            )
        if len({tuple(prefix) for prefix in self.prefixes}) < len(self.prefixes):
            raise ConfigError("prompt_template gives two labels the same prefix; name every label column in it.")

    def _prefix(self, text: str) -> list[int]:
        start = self._tokenizer.bos_token_id
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ([] if start is None else [int(start)]) + tokens or [self.end]

    def example(self, label: int, text: str) -> Example:
        """Return the example of a record.

        Args:
            label (`int`): the number of its label in the domain.
            text (`str`): its text. Sensitive.
        """
        prefix = self.prefixes[label]
        return Example([*prefix, *self.target(text)[: self._max_tokens - len(prefix)]], len(prefix))

    def target(self, text: str) -> list[int]:
        """Return the tokens of a record's text and of its end. Sensitive."""
        # not verbose: a tokenizer's warning of a text beyond the context gives its number of tokens
        tokens: list[int] = self._tokenizer(" " + text.strip(), add_special_tokens=False, verbose=False)["input_ids"]
        return [*tokens, self.end]

    def decoded(self, tokens: Sequence[int]) -> str:
        """Return the text of sampled tokens. As public as they are."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True)).strip()

    def sample(self, text: str) -> str:
        """Return a public text as a record."""
        return text
