"""From embeddings back to texts, and which of the texts can be read. All of it is public or post-processing."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from hf_dpsynth.compute.nearest import top_k_indices
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.evolution import prompts
from hf_dpsynth.mechanisms.evolution.gaussian_search import unit_rows
from hf_dpsynth.models.base import Embedder, TextGenerator
from hf_dpsynth.privacy.keys import public_seed

_TEMPERATURE, _MAX_TOKENS = 0.7, 64


class Decoder(Protocol):
    """Turns embeddings into texts. Only public or privatized embeddings are ever decoded."""

    def invert(self, embeddings: np.ndarray, *, seed: int) -> list[str]:
        """Return one text a row of float32 embeddings, shape (n, d), in order."""
        ...


def load_decoder(
    inverter: str | None, *, encoder: Embedder, generator: TextGenerator, public_texts: Sequence[str]
) -> Decoder:
    """Return what turns the vectors of an encoder into texts.

    Args:
        inverter (`str`, *optional*): the folder of a trained inverter; without one the generator paraphrases the
            nearest public text.
        encoder (`Embedder`): whose vectors are decoded.
        generator (`TextGenerator`): paraphrases.
        public_texts (`Sequence[str]`): the texts of the fallback. Public.
    Raises:
        ConfigError: the inverter cannot be used with this encoder.
    """
    if inverter is not None:
        raise ConfigError(f"inverter={inverter!r}: this version reads no trained inverter. Leave inverter out.")
    return _Paraphrased(list(dict.fromkeys(public_texts)), encoder, generator)


class _Paraphrased:
    """Answers an embedding with another wording of the nearest public text."""

    def __init__(self, texts: list[str], encoder: Embedder, generator: TextGenerator) -> None:
        self.texts, self.encoder, self.generator = texts, encoder, generator
        self.vectors: np.ndarray | None = None

    def invert(self, embeddings: np.ndarray, *, seed: int) -> list[str]:
        """Return one text an embedding."""
        if self.vectors is None:
            self.vectors = unit_rows(np.asarray(self.encoder.embed(self.texts)))
        nearest = [self.texts[row] for row in top_k_indices(embeddings, self.vectors, 1)[:, 0]]
        asked = [f"Rewrite this text in other words. Reply with the new text only.\n\n{text}" for text in nearest]
        stream = public_seed(seed, "paraphrase")
        return self.generator.generate(asked, max_new_tokens=_MAX_TOKENS, temperature=_TEMPERATURE, seed=stream)


def decoded(decoder: Decoder, embeddings: np.ndarray, fallback: Sequence[str], seed: int) -> list[str]:
    """Decode embeddings; a blank text is replaced by a parent, so that a population never shrinks.

    Args:
        decoder (`Decoder`): what makes the texts.
        embeddings (`np.ndarray`): unit rows, shape (n, d), float32. Public or privatized.
        fallback (`Sequence[str]`): texts of parents, at least one.
        seed (`int`): the seed of the decoder's public stream.
    Returns:
        `list[str]`: one text a row.
    Raises:
        ConfigError: the inverter returned another number of texts.
    """
    if not len(embeddings):
        return []
    made = decoder.invert(embeddings, seed=seed)
    if len(made) != len(embeddings):
        raise ConfigError(f"the inverter returned {len(made)} texts for {len(embeddings)} embeddings; one for each.")
    return [prompts.clean(text) or fallback[row % len(fallback)] for row, text in enumerate(made)]


def readable(generator: Any, texts: Sequence[str], limit: float | None) -> list[bool]:
    """Return which texts can be read: not blank and, where the generator scores texts, of a perplexity below a limit.

    Args:
        generator (`TextGenerator`): its `.perplexity`, where it has one, takes texts and returns one number each.
        texts (`Sequence[str]`): public or privatized texts.
        limit (`float`, *optional*): None leaves the filter out.
    Returns:
        `list[bool]`: False also where the perplexity is undefined (NaN): of an empty text or of a single token.
    Raises:
        ConfigError: the generator returned another number of values.
    """
    worded = [bool(text) and not text.isspace() for text in texts]
    if limit is None or not can_score(generator) or not texts:
        return worded
    values = np.asarray(generator.perplexity(list(texts)), dtype=np.float64)
    if values.shape != (len(texts),):
        raise ConfigError(f"the generator's .perplexity returned shape {values.shape} for {len(texts)} texts")
    return [bool(good and value < limit) for good, value in zip(worded, values, strict=True)]


def can_score(generator: Any) -> bool:
    """Return whether a generator says how fluent texts are."""
    return callable(getattr(generator, "perplexity", None))
