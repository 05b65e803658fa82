"""What a model must be able to do: one-method protocols, so that any object with the method serves."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from hf_dpsynth.errors import ConfigError


@runtime_checkable
class TextGenerator(Protocol):
    """Turns prompts into texts. Only public or already privatized text ever stands in a prompt."""

    def generate(self, prompts: Sequence[str], *, max_new_tokens: int, temperature: float, seed: int) -> list[str]:
        """Return one text a prompt, in order."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors. A row's vector must depend on that row's text alone."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return float32 embeddings, shape (n, d)."""
        ...


@runtime_checkable
class Tagger(Protocol):
    """Turns texts into part-of-speech tags. A text's tags must depend on that text alone."""

    def tag(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the universal part-of-speech tags of each text's tokens."""
        ...


@runtime_checkable
class Inverter(Protocol):
    """Turns embeddings back into texts. Only public or already privatized embeddings are ever inverted.

    Args:
        encoder (`str`): the public name of the embedder whose vectors it inverts.
        dimension (`int`): the width of these vectors.
    """

    @property
    def encoder(self) -> str:
        """Return the public name of the embedder."""
        ...

    @property
    def dimension(self) -> int:
        """Return the width of the embedder's vectors."""
        ...

    def invert(self, embeddings: np.ndarray, *, seed: int) -> list[str]:
        """Return one text a row of float32 embeddings, shape (n, d), in order."""
        ...


def check_sampling(max_new_tokens: int, temperature: float) -> None:
    """Refuse what no generator can sample with.

    Raises:
        ConfigError: `max_new_tokens` is below 1, or `temperature` is negative, infinite or NaN.
    """
    if not max_new_tokens >= 1:
        raise ConfigError(f"max_new_tokens is {max_new_tokens}; it is at least 1")
    if not 0 <= temperature < float("inf"):
        raise ConfigError(f"temperature is {temperature}; it is 0 or a positive number")
