"""Public texts as an inverter learns them: their tokens and their vectors, in batches of like length."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hf_dpsynth.compute.unit_rows import unit_rows
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.models.base import Embedder
from hf_dpsynth.privacy.keys import public_generator

_SORTED_BATCHES = 32  # batches whose texts are sorted by length together


@dataclass(frozen=True, eq=False)
class Examples:
    """Texts to learn from.

    Args:
        tokens (`tuple[tuple[int, ...], ...]`): tokens of each text, its end included. Public.
        vectors (`np.ndarray`): unit vectors, shape (n, d), float32. Public.
    """

    tokens: tuple[tuple[int, ...], ...]
    vectors: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[str], tokenizer: Any, embedder: Embedder, max_tokens: int) -> "Examples":
        """Tokenize and embed texts; one that is too long is cut before it is embedded, so that its vector fits it.

        Raises:
            ConfigError: the tokenizer has no end token.
        """
        if tokenizer.eos_token_id is None:
            raise ConfigError("the language model's tokenizer has no end token; use another model")
        if not texts:
            return cls((), np.empty((0, 0), dtype=np.float32))
        encoded = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        most = max_tokens - 1
        kept = [
            text if len(tokens) <= most else tokenizer.decode(tokens[:most], skip_special_tokens=True)
            for text, tokens in zip(texts, encoded, strict=True)
        ]
        ended = tuple((*tokens[:most], tokenizer.eos_token_id) for tokens in encoded)
        return cls(ended, unit_rows(embedder.embed(kept)))

    def batch(self, step: int, batch_size: int, seed: int) -> list[int]:
        """Return the rows of a batch: each text once in an epoch, in another order in each."""
        lengths = tuple(map(len, self.tokens))
        epoch, place = divmod(step, -(-len(lengths) // batch_size))
        return _epoch(lengths, batch_size, epoch, seed)[place]


@lru_cache(maxsize=2)
def _epoch(lengths: tuple[int, ...], batch_size: int, epoch: int, seed: int) -> list[list[int]]:
    generator = public_generator(seed, "epoch", epoch)
    order = generator.permutation(len(lengths)).tolist()
    window = _SORTED_BATCHES * batch_size
    batches: list[list[int]] = []
    for start in range(0, len(order), window):
        rows = sorted(order[start : start + window], key=lambda row: lengths[row])
        batches += [rows[place : place + batch_size] for place in range(0, len(rows), batch_size)]
    return [batches[place] for place in generator.permutation(len(batches)).tolist()]


def noisy(vectors: np.ndarray, share: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return unit vectors with Gaussian noise, of length 1 again.

    Args:
        vectors (`np.ndarray`): unit rows, shape (n, d). Public.
        share (`np.ndarray`): the expected length of each row's noise, shape (n,).
        directions (`np.ndarray`): standard normal draws, shape (n, d).
    Returns:
        `np.ndarray`: shape (n, d), float32.
    """
    scale = share[:, None] / np.sqrt(vectors.shape[1])
    return unit_rows(vectors + scale * directions)


def digest_of(parts: Iterable[str]) -> str:
    """Return the SHA-256 of texts, each with its length before it."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()
