"""From embeddings back to texts, and which of the texts can be read. All of it is public or post-processing."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.evolution import prompts
from hf_dpsynth.models.base import Inverter


def decoded(decoder: Inverter, embeddings: np.ndarray, fallback: Sequence[str], seed: int) -> list[str]:
    """Decode embeddings; a blank text is replaced by a parent, so that a population never shrinks.

    Args:
        decoder (`Inverter`): what makes the texts.
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
