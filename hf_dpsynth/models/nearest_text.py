"""The inverter that needs no training: the public text nearest to an embedding, in other words of a generator."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from hf_dpsynth.compute.nearest import top_k_indices
from hf_dpsynth.compute.unit_rows import unit_rows
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.models.base import Embedder, TextGenerator, check_sampling
from hf_dpsynth.models.catalog import load_embedder
from hf_dpsynth.privacy.keys import public_seed

_BYTES_A_WORD = 8
_PROMPT = "Rewrite this text in other words. Reply with the new text only.\n\n{text}"


class NearestTextInverter:
    """Answers an embedding with the nearest public text, paraphrased where there is a generator.

    What stands in a prompt has a length that is stated, whatever public text it is of: a generator refuses a prompt
    that is longer than its context, and would end a run that has been paid for.

    Args:
        texts (`Sequence[str]`): public texts; blank ones and copies are left out. Text of the private records here
            would be published word for word.
        encoder (`str` or `Embedder`): the embedder whose vectors are inverted.
        generator (`TextGenerator`, *optional*): paraphrases; without one the public texts themselves come out.
        max_words (`int`): so many words of a public text stand in a prompt at most, and 8 times as many bytes; the
            rest of it is not read.
        max_new_tokens (`int`): most tokens of a paraphrase.
        temperature (`float`): of the generator.

    Raises:
        ConfigError: no text has a word, or a number is out of range.
    """

    id = "nearest-text"

    def __init__(
        self,
        texts: Sequence[str],
        *,
        encoder: str | Embedder = "minilm",
        generator: TextGenerator | None = None,
        max_words: int = 200,
        max_new_tokens: int = 64,
        temperature: float = 0.7,
    ) -> None:
        if not max_words >= 1:
            raise ConfigError(f"max_words is {max_words}; it is at least 1")
        check_sampling(max_new_tokens, temperature)
        self.max_words = max_words
        self.texts = distinct_texts(texts)
        self.generator, self.max_new_tokens, self.temperature = generator, max_new_tokens, temperature
        self._embedder = load_embedder(encoder)

    @property
    def encoder(self) -> str:
        """Return the public name of the embedder."""
        return encoder_id(self._embedder)

    @property
    def dimension(self) -> int:
        """Return the width of the embedder's vectors; embeds the public texts at the first use."""
        return int(self._vectors.shape[1])

    @cached_property
    def _vectors(self) -> np.ndarray:
        return unit_rows(self._embedder.embed(self.texts))

    def __repr__(self) -> str:
        return f"NearestTextInverter({len(self.texts)} public texts, encoder={self.encoder!r})"

    def invert(self, embeddings: np.ndarray, *, seed: int) -> list[str]:
        """Return one text an embedding; where a paraphrase is blank, the public text itself.

        Args:
            embeddings (`np.ndarray`): shape (n, d), of any length. Public or already privatized.
            seed (`int`): the seed of the generator's public stream.
        Returns:
            `list[str]`: texts, in order.
        Raises:
            ConfigError: the embeddings are of another width, or not finite, or the generator returned another number
                of texts.
        """
        targets = targets_of(embeddings, self.dimension)
        if not len(targets):
            return []
        nearest = [self.texts[row] for row in top_k_indices(targets, self._vectors, 1)[:, 0]]
        if self.generator is None:
            return nearest
        said = self.generator.generate(
            [_PROMPT.format(text=beginning(text, self.max_words)) for text in nearest],
            max_new_tokens=self.max_new_tokens,
            temperature=self.temperature,
            seed=public_seed(seed, "invert", "paraphrase"),
        )
        if len(said) != len(nearest):
            raise ConfigError(f"the generator returned {len(said)} texts for {len(nearest)} prompts; one for each.")
        return [other.strip() or text for text, other in zip(nearest, said, strict=True)]


def beginning(text: str, max_words: int) -> str:
    """Return a public text, or what it begins with: at most so many words, and 8 times as many bytes of UTF-8.

    The bytes bound the tokens where words do not: of a text without spaces, or of spaces alone.
    """
    words, most = text.split(), _BYTES_A_WORD * max_words
    if len(words) > max_words or len(text.encode()) > most:
        text = " ".join(words[:max_words])
    return text.encode()[:most].decode(errors="ignore")


def distinct_texts(texts: Sequence[str]) -> list[str]:
    """Return public texts without copies and without those that are blank, in their order.

    Raises:
        ConfigError: a value is no text, or none is left.
    """
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise ConfigError("public texts hold a value that is no text; pass a list of strings")
    found = list(dict.fromkeys(text for text in texts if text.strip()))
    if not found:
        raise ConfigError(f"of {len(texts)} public texts none has a word; an inverter needs public text")
    return found


def encoder_id(embedder: Embedder) -> str:
    """Return an embedder's public name; of an object without one, its module and qualified name."""
    name = getattr(embedder, "id", None)
    return name if isinstance(name, str) else f"{type(embedder).__module__}.{type(embedder).__qualname__}"


def targets_of(embeddings: np.ndarray, dimension: int) -> np.ndarray:
    """Return embeddings as unit rows.

    Raises:
        ConfigError: they are no finite matrix of this width.
    """
    array = np.asarray(embeddings)
    if array.ndim != 2 or array.shape[1] != dimension or array.dtype.kind not in "fiu":
        raise ConfigError(
            f"embeddings have shape {array.shape} and type {array.dtype}; the inverter reads real numbers of shape "
            f"(n, {dimension}). Embed with the encoder that it was made for."
        )
    if not np.isfinite(array).all():
        raise ConfigError("embeddings hold NaN or infinite values")
    return unit_rows(array)
