"""What a model must be able to do: one-method protocols, so that any object with the method serves."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np


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
