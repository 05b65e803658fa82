"""Local sentence encoders: texts in, unit vectors out, each a function of its own text alone.

A vote must not move because another row stood beside it, and matrix products depend on the shape they run in. So every
forward pass has one of four public widths and one fixed number of rows; short batches are filled with dummy rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_dpsynth.devices import Devices
from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.models.catalog import model_id, pull

_WIDTHS = (32, 64, 128, 256, 512)
_DUMMY = "dummy"


class SentenceEmbedder:
    """A sentence-transformers model that satisfies `Embedder`.

    Args:
        model (`str`): a short name of the catalogue, a local folder of a sentence-transformers model or a Hub id.
        batch_size (`int`): rows of every forward pass, dummy rows included. Public, and part of what a vector depends
            on in its last bits: keep it when a run is resumed.
        max_tokens (`int`): texts are cut at this many tokens. Public.

    Example:
        >>> SentenceEmbedder("minilm").id
        'minilm'
    """

    def __init__(self, model: str = "minilm", *, batch_size: int = 32, max_tokens: int = 256) -> None:
        if not batch_size >= 1:
            raise ConfigError(f"batch_size is {batch_size}; it is at least 1")
        if not 3 <= max_tokens <= _WIDTHS[-1]:
            raise ConfigError(f"max_tokens is {max_tokens}; it is between 3 and {_WIDTHS[-1]}")
        self.model = model
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self._loaded: _Loaded | None = None

    @property
    def id(self) -> str:
        """Return the public name of the model."""
        return model_id(self.model)

    @property
    def dimension(self) -> int:
        """Return the width of the vectors; loads the model."""
        return self._load().dimension

    def __repr__(self) -> str:
        return f"SentenceEmbedder({self.model!r}, batch_size={self.batch_size}, max_tokens={self.max_tokens})"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts.

        Args:
            texts (`Sequence[str]`): texts. Sensitive if they are.
        Returns:
            `np.ndarray`: unit vectors, shape (n, d), float32. As sensitive as the texts.
        Raises:
            AssetError: the model could not be fetched.
        """
        loaded = self._load()
        vectors = np.empty((len(texts), loaded.dimension), dtype=np.float32)
        if not len(texts):
            return vectors
        encoded = loaded.encode(texts)
        widths = [next(width for width in loaded.widths if len(tokens) <= width) for tokens in encoded]
        order = sorted(range(len(texts)), key=lambda row: widths[row])
        # no progress bar: it would print how many private texts there are
        for width in loaded.widths:
            rows = [row for row in order if widths[row] == width]
            for start in range(0, len(rows), self.batch_size):
                batch = rows[start : start + self.batch_size]
                vectors[batch] = loaded.forward([encoded[row] for row in batch], self.batch_size, width)
        return vectors

    def _load(self) -> "_Loaded":
        """Load the model at the first use."""
        if self._loaded is None:
            self._loaded = _Loaded.from_name(self.model, self.max_tokens)
        return self._loaded


@dataclass(frozen=True)
class _Loaded:
    """A model in memory with the public widths that it runs in."""

    model: Any
    prompt: str
    dimension: int
    widths: tuple[int, ...]
    dummy: list[int]

    @classmethod
    def from_name(cls, name: str, max_tokens: int) -> "_Loaded":
        """Load a model from a folder that `pull` provides."""
        library = need("sentence_transformers", extra="models", what="SentenceEmbedder")
        folder = pull(name)
        devices = Devices.current()
        devices.limit_threads()
        try:
            model = library.SentenceTransformer(folder, device=str(devices.torch_device()))
        except (OSError, ValueError) as error:
            raise AssetError(f"{name} does not load as a sentence-transformers model: {error}") from error
        model = model.float().eval()
        limit = min(max_tokens, model.max_seq_length or max_tokens)
        widths = (*(width for width in _WIDTHS if width < limit), limit)
        dummy = model.tokenizer(_DUMMY)["input_ids"]
        prompt = model.prompts.get(model.default_prompt_name or "", "")
        return cls(model, prompt, int(model.get_embedding_dimension()), widths, dummy)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize, cut at the last width."""
        prompted = [self.prompt + text for text in texts]
        encoded = self.model.tokenizer(prompted, truncation=True, max_length=self.widths[-1], padding=False)
        tokens: list[list[int]] = encoded["input_ids"]
        return tokens

    def forward(self, encoded: list[list[int]], rows: int, width: int) -> np.ndarray:
        """Return the unit vectors of one batch of a fixed shape."""
        torch = need("torch", extra="models", what="SentenceEmbedder")
        filled = encoded + [self.dummy] * (rows - len(encoded))
        padded = self.model.tokenizer.pad(
            {"input_ids": filled}, padding="max_length", max_length=width, return_tensors="pt"
        )
        with torch.inference_mode():
            features = self.model({name: tensor.to(self.model.device) for name, tensor in padded.items()})
            vectors = torch.nn.functional.normalize(features["sentence_embedding"].float(), dim=-1)
        result: np.ndarray = vectors.cpu().numpy()[: len(encoded)]
        return result
