"""Logits of the next token after prompts that hold private text, from a model on this machine.

The one rule: the logits of a prompt are a function of its own tokens and of public inputs, and private text stays in
this process: no endpoint, no file, and keys and values only in memory, as long as the text that they serve.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.mechanisms.rewrite.fixed_shapes import Rows, blocks, laid_out
from hf_dpsynth.mechanisms.rewrite.local_model import LocalModel
from hf_dpsynth.models.causal_lm import CausalLM

_ROWS = 8


class Prompts(Protocol):
    """Prompts that grow together, each by the same tokens."""

    logits: np.ndarray
    """Of the next token after each prompt, shape (prompts, V). As sensitive as the prompts."""

    def feed(self, token: int) -> None:
        """Append a released token to each prompt."""
        ...


@runtime_checkable
class TokenModel(Protocol):
    """A causal language model on this machine that gives the logits of the next token."""

    start: list[int]
    ends: frozenset[int]
    context: int

    def read(self, texts: Sequence[str], most: int) -> list[list[int]]:
        """Return the first tokens of each text."""
        ...

    def write(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        ...

    def open(
        self, head: Sequence[int], middles: Sequence[Sequence[int]], tail: Sequence[int], *, most: int, room: int
    ) -> Prompts:
        """Return prompts [head, middle, tail] with room for further tokens.

        Args:
            head (`Sequence[int]`): tokens that all prompts begin with. Public.
            middles (`Sequence[Sequence[int]]`): what stands in each prompt, at most `most` tokens. Sensitive.
            tail (`Sequence[int]`): tokens behind it. Public.
            most (`int`): the public largest length of a middle.
            room (`int`): tokens that will be fed.
        """
        ...


def token_model(mechanism: str, generator: Any) -> TokenModel:
    """Return what gives the logits of a generator.

    Args:
        mechanism (`str`): its name.
        generator (`Any`): what the user passed.
    Raises:
        ConfigError: it is an endpoint or another object without logits.
        AssetError: the model could not be fetched.
    """
    if isinstance(generator, CausalLM):
        return LocalTokens(generator)
    if isinstance(generator, TokenModel):
        return generator
    raise ConfigError(
        f"{mechanism} shows private text to its model and draws from its logits, so generator= takes a local causal "
        f"model alone: a short name, a folder or a Hub id. It is of type {type(generator).__name__}, which gives no "
        "logits; private text is sent nowhere."
    )


class LocalTokens:
    """A `CausalLM` as a `TokenModel`: in shapes that no other prompt moves, with its keys and values kept in memory.

    Args:
        generator (`CausalLM`): loaded here.
    """

    def __init__(self, generator: CausalLM) -> None:
        self._local = LocalModel.of(generator.model, *generator.load())
        loaded = self._local.loaded
        self.ends, self.context = loaded.ends, loaded.context
        start = loaded.tokenizer.bos_token_id
        self.start = [] if start is None else [int(start)]

    def read(self, texts: Sequence[str], most: int) -> list[list[int]]:
        """Return the first tokens of each text; what stands in it is never taken for a special token."""
        return self._local.read(texts, most)

    def write(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens without special ones."""
        return self._local.write(tokens)

    def open(
        self, head: Sequence[int], middles: Sequence[Sequence[int]], tail: Sequence[int], *, most: int, room: int
    ) -> "LocalPrompts":
        """Return prompts with room for further tokens."""
        return LocalPrompts(self._local, head, middles, tail, most, room)


class LocalPrompts:
    """Prompts of a `LocalTokens` in blocks of a public number of rows, by the public width of their middles."""

    def __init__(
        self,
        local: LocalModel,
        head: Sequence[int],
        middles: Sequence[Sequence[int]],
        tail: Sequence[int],
        most: int,
        room: int,
    ) -> None:
        self._torch = need("torch", extra="models", what="private prediction")
        self._shape = (len(middles), local.loaded.vocabulary)
        self._blocks: list[tuple[Rows, list[int]]] = []
        self.logits = np.zeros(self._shape, np.float32)
        for width, members in blocks([len(middle) for middle in middles], most, lambda width: _ROWS):
            read = [list(middles[number]) for number in members]
            tokens, mask = laid_out((list(head), list(tail)), read, width, _ROWS)
            rows = Rows(local.loaded, len(head), tokens, mask, room)
            with self._torch.inference_mode():
                self.logits[members] = rows.start(1)[: len(members), -1]
            self._blocks.append((rows, members))

    def feed(self, token: int) -> None:
        """Append a released token to each prompt; the empty rows of a block get it too."""
        found = np.zeros(self._shape, np.float32)
        for rows, members in self._blocks:
            with self._torch.inference_mode():
                found[members] = rows.step([token] * _ROWS)[: len(members), -1]
        self.logits = found
