"""Conversations as examples: written as the tokenizer's chat template writes them, and read back by its marks.

The marks are what the template puts before, between and after contents that are known, so that any template works: one
for each role at the start, for each two roles in a row, and for each role at the end. A conversation is put together
from them, which never fails and reads nothing but roles; sampled text is taken apart by them. Contents are stripped.

The end of a conversation is not the end of a message: in many templates the end-of-sequence token closes each message,
and a model that stopped there would write one turn. The end is the end-of-sequence token where the template does not
use it, else the first special token that it does not use; sampling stops at that token alone.

A template that writes the date of today is given a fixed one: with the day of the call in it the prefix of a model
would change between its training and its next rows.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import pairwise
from typing import Any

from jinja2 import TemplateError

from hf_dpsynth.columns import ROLES, read_messages, write_messages
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.logging import get_logger
from hf_dpsynth.mechanisms.finetune.examples import Encoder
from hf_dpsynth.plans import Label

_LEADS: tuple[tuple[str, ...], ...] = ((), ("user",), ("user", "assistant"), ("system",), ("system", "user"))
_NEXT: tuple[tuple[str, ...], ...] = ((), ("user",), ("assistant",), ("user", "assistant"))
_ODD = "\x00 \ufffd \U00013000 \ue000"  # what a vocabulary of words or of a few bytes does not hold
_DAY = date(2024, 7, 26)  # any day would do
_REPLACED = "".join(f"|replace('%{code}', '{_DAY.strftime('%' + code)}')" for code in "aAbBdHIjmMpSyY")
# what transformers hands to templates reads the clock; "+" keeps the line break that a template may begin with
_FIXED_DATE = f"{{% macro strftime_now(format) %}}{{{{ format{_REPLACED} }}}}{{% endmacro +%}}"

logger = get_logger(__name__)
Message = dict[str, str]


class ChatTemplate:
    """The marks of a tokenizer's chat template. Public.

    Args:
        tokenizer (`transformers.PreTrainedTokenizerBase`): the tokenizer.
    Raises:
        ConfigError: it has no chat template, the template marks no turns, or no special token is left for the end.
    """

    def __init__(self, tokenizer: Any) -> None:
        if tokenizer.chat_template is None:
            raise ConfigError(
                "the model's tokenizer has no chat template, so conversations cannot be written for it. Pass a "
                "generator= that has one, or a column of strings."
            )
        self._tokenizer = tokenizer
        self._specials = _special_tokens(tokenizer)
        self.heads = _told_apart(dict(self._marks(1, lambda role: [(0, (role, *after)) for after in _NEXT])))
        self.tails = dict(self._marks(1, lambda role: [(len(lead) + 1, (*lead, role)) for lead in _LEADS]))
        between = dict(
            self._marks(2, lambda *two: [(len(a) + 1, (*a, *two, *b)) for a in _LEADS for b in _NEXT], blank=False)
        )
        self.between = {
            (a, b): mark
            for a in ROLES
            for b, mark in _told_apart({two[1]: mark for two, mark in between.items() if two[0] == a}).items()
        }
        if not self.heads or not self.tails or not self.between:
            raise ConfigError("the model's chat template marks no turns, so conversations cannot be read back.")
        missing = [" ".join(two) for two in _orders(2) if two not in self.between]
        if missing:
            logger.warning("the chat template has no form for %s: such conversations are blank", ", ".join(missing))
        self._patterns = {mark: re.compile(self._pattern(mark)) for mark in self._all()}
        self.end = self._end()

    def _marks(self, number: int, places: Any, *, blank: bool = True) -> Iterator[tuple[Any, str]]:
        """Yield the mark of each order of roles, from the first conversation that the template takes."""
        for roles in _orders(number):
            for place, conversation in places(*roles):
                pieces = self._pieces(conversation)
                if pieces is not None and (blank or pieces[place].strip()):
                    yield roles if number > 1 else roles[0], pieces[place]
                    break

    def _pieces(self, roles: Sequence[str]) -> list[str] | None:
        """Return what the template writes around the contents of a conversation, or None where it refuses it."""
        contents = [f"zq{number}content{number}qz" for number in range(len(roles))]
        messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
        try:
            template = _FIXED_DATE + self._tokenizer.get_chat_template()
            text = str(self._tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False))
        except (TemplateError, TypeError, ValueError):
            return None
        pieces = []
        for content in contents:
            before, found, text = text.partition(content)
            if not found:
                return None
            pieces.append(before)
        return [*pieces, text]

    def _all(self) -> set[str]:
        return {*self.heads.values(), *self.tails.values(), *self.between.values()}

    def _pattern(self, mark: str) -> str:
        """Return the expression of a mark: white space may differ, since tokenizers add and drop it around tokens."""
        specials = "|".join(re.escape(token) for token in sorted(self._specials.values(), key=len, reverse=True))
        parts = [part for part in re.split(rf"(\s+|{specials})" if specials else r"(\s+)", mark) if part]
        made = [r"\s*"]
        for before, part in zip(["", *parts], parts, strict=False):
            if part.isspace():
                # "user" and a line break are no part of "username"
                made.append(r"(?:\s+|\Z)" if before[-1:].isalnum() else r"\s*")
            else:
                made += [re.escape(part)] if before.isspace() or not before else [r"\s*", re.escape(part)]
        return "".join([*made, r"\s*"])

    def _end(self) -> int:
        used: set[int] = set()
        for mark in self._all():
            used.update(self._tokenizer(mark, add_special_tokens=False)["input_ids"])
        used.update(self._tokenizer(_ODD, add_special_tokens=False)["input_ids"])
        used.add(-1 if self._tokenizer.bos_token_id is None else int(self._tokenizer.bos_token_id))
        for token in (self._tokenizer.eos_token_id, *sorted(self._specials)):
            if token is not None and token not in used:
                return int(token)
        raise ConfigError(
            "the model's tokenizer has no special token that its chat template leaves, so no conversation could end."
        )

    def render(self, messages: Sequence[Message]) -> str | None:
        """Write a conversation; None where the template has no form for its order of roles. As sensitive as it."""
        roles = [message["role"] for message in messages]
        if not roles or roles[0] not in self.heads or roles[-1] not in self.tails:
            return None
        marks = [self.between.get(two) for two in pairwise(roles)]
        if None in marks:
            return None
        parts = [self.heads[roles[0]]]
        for message, mark in zip(messages, [*marks, self.tails[roles[-1]]], strict=True):
            parts += [message["content"].strip(), mark or ""]
        return "".join(parts)

    def parse(self, text: str) -> list[Message]:
        """Read a conversation; empty where the text does not begin as one. A last message that was cut is kept."""
        starts = [(match.end(), role) for role, mark in self.heads.items() if (match := self._at(mark, text))]
        if not starts:
            return []
        at, role = max(starts, key=lambda start: start[0])
        found: list[Message] = []
        while True:
            marks: list[tuple[str, str | None]] = [
                (mark, two[1]) for two, mark in self.between.items() if two[0] == role
            ]
            if self.tails.get(role, "").strip():
                marks.append((self.tails[role], None))
            places = [(match, after) for mark, after in marks if (match := self._patterns[mark].search(text, at))]
            if not places:
                last = self._message(role, self._uncut(role, text[at:]))
                return [*found, last] if last["content"] else found
            match, after = min(places, key=lambda place: (place[0].start(), -place[0].end()))
            found.append(self._message(role, text[at : match.start()]))
            if after is None:
                return found
            at, role = match.end(), after

    def _at(self, mark: str, text: str) -> re.Match[str] | None:
        return self._patterns[mark].match(text)

    def _uncut(self, role: str, text: str) -> str:
        """Take away the beginning of a mark at the end of a text."""
        mark = self.tails.get(role, "").strip()
        lengths = (length for length in range(len(mark), 0, -1) if text.endswith(mark[:length]))
        return text[: len(text) - next(lengths, 0)]

    def _message(self, role: str, content: str) -> Message:
        return {"role": role, "content": self.plain(content)}

    def plain(self, text: str) -> str:
        """Return a text without special tokens."""
        for token in self._specials.values():
            text = text.replace(token, "")
        return text.strip()


def _orders(number: int) -> list[tuple[str, ...]]:
    return [(a,) for a in ROLES] if number == 1 else [(a, b) for a in ROLES for b in ROLES]


def _told_apart(marks: dict[str, str]) -> dict[str, str]:
    """Leave out roles that a template writes as it writes a more likely one, since they could not be read back."""
    found: dict[str, str] = {}
    for role in ("user", "assistant", "system"):
        if role in marks and marks[role].strip() not in map(str.strip, found.values()):
            found[role] = marks[role]
    return found


def _shared(texts: Sequence[str]) -> str:
    """Return what all texts begin with."""
    least, most = min(texts), max(texts)
    length = next((at for at, sign in enumerate(least) if not most.startswith(sign, at)), len(least))
    return least[:length]


def _special_tokens(tokenizer: Any) -> dict[int, str]:
    """Return the special tokens by their numbers."""
    added = {int(number): str(token) for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | dict(zip(tokenizer.all_special_ids, map(str, tokenizer.all_special_tokens), strict=True))


class ChatEncoder(Encoder):
    """Turns conversations into examples: the prefix, the conversation as the template writes it, the end.

    The prefix is the plain text that names the labels, and what the template begins every conversation with. A
    conversation for which the template has no form has no target, and so no gradient. Sampled text that is no
    conversation becomes one message of a user.

    Args:
        tokenizer (`transformers.PreTrainedTokenizerBase`): the model's tokenizer. Public.
        template (`str`): the prompt template of the prefix, which stands before the conversation as plain text.
        columns (`Sequence[str]`): the conditioning columns.
        labels (`Sequence[tuple]`): the declared domain.
        max_tokens (`int`): most tokens of an example.
    Raises:
        ConfigError: as `Encoder` and `ChatTemplate`.
    """

    def __init__(
        self, tokenizer: Any, template: str, columns: Sequence[str], labels: Sequence[Label], max_tokens: int
    ) -> None:
        self.chat = ChatTemplate(tokenizer)
        self._head = _shared(list(self.chat.heads.values()))
        super().__init__(tokenizer, template, columns, labels, max_tokens)
        self.end = self.chat.end
        self.ends = frozenset({self.end})

    def _prefix(self, text: str) -> list[int]:
        head: list[int] = self._tokenizer(self._head, add_special_tokens=False)["input_ids"]
        return [*super()._prefix(text), *head]

    def target(self, text: str) -> list[int]:
        """Return the tokens of a written conversation and of its end. Sensitive."""
        rendered = self.chat.render(read_messages(text))
        if rendered is None:
            return []
        rest = rendered.removeprefix(self._head)
        tokens: list[int] = self._tokenizer(rest, add_special_tokens=False, verbose=False)["input_ids"]
        return [*tokens, self.end]

    def decoded(self, tokens: Sequence[int]) -> str:
        """Return the written form of a sampled conversation. As public as its tokens."""
        text = self._tokenizer.decode(tokens, skip_special_tokens=False)
        found = self.chat.parse(self._head + text)
        if not any(message["content"] for message in found):
            found = [{"role": "user", "content": self.chat.plain(text)}]
        return write_messages(found) or ""

    def sample(self, text: str) -> str:
        """Return a public text as a record."""
        return write_messages([{"role": "user", "content": text}, {"role": "assistant", "content": text}]) or ""
