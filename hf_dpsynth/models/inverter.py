"""Embeddings back into text: virtual tokens before a small language model, many samples, the closest one is kept.

An embedding becomes m virtual tokens, after which the language model samples texts; the encoder embeds them again and
the text of the best cosine stays. A correction round aims as far beyond the embedding as the best text fell short of
it and samples again; it can only raise the cosine. Where we leave the source: its corrector is a second model that
reads the guess; feeding the error back through the same model needs no second training. Only public or already
privatized embeddings are inverted: it is post-processing. Source: Morris et al. 2023, arXiv:2310.06816.
"""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hf_dpsynth.compute.unit_rows import unit_rows
from hf_dpsynth.devices import Devices, best_dtype
from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.models.adapters import with_virtual
from hf_dpsynth.models.base import Embedder, Inverter, TextGenerator, check_sampling
from hf_dpsynth.models.catalog import HUB_ID, load_embedder, load_generator, model_id, models
from hf_dpsynth.models.causal_lm import CausalLM, load_pretrained
from hf_dpsynth.models.inverter_folder import ADAPTER, InverterConfig, prefixes, read_config, read_mapper
from hf_dpsynth.models.nearest_text import NearestTextInverter, encoder_id, targets_of
from hf_dpsynth.privacy.keys import public_seed

_CHUNK = 1024  # embeddings whose virtual tokens lie in memory together
_BLANK = -2.0  # below every cosine: a blank text is kept only where all samples are blank


class PrefixInverter:
    """A trained inverter that satisfies `Inverter`, read from the folder that `train_inverter` wrote.

    Args:
        folder (`str` or path): the folder.
        encoder (`str` or `Embedder`, *optional*): the embedder that it was trained for; loaded by its name when
            missing.
        samples (`int`): texts that are sampled for an embedding in a round.
        corrections (`int`): further rounds.
        temperature (`float`): of the samples; 0 takes the likeliest tokens, and more than one sample is then wasted.
        batch_size (`int`): texts that are generated together.
        dtype (`str`, *optional*): "float32" or "bfloat16"; what `devices.best_dtype` says when missing.

    Raises:
        AssetError: the folder is not that of an inverter, or not whole.
        ConfigError: the encoder is another one than it was trained for, or a number is out of range.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        encoder: str | Embedder | None = None,
        samples: int = 8,
        corrections: int = 0,
        temperature: float = 0.7,
        batch_size: int = 64,
        dtype: str | None = None,
    ) -> None:
        for name, value, least in (("samples", samples, 1), ("corrections", corrections, 0), ("batch", batch_size, 1)):
            if not value >= least:
                raise ConfigError(f"{name} is {value}; it is at least {least}")
        check_sampling(1, temperature)
        if dtype not in (None, "float32", "bfloat16"):
            raise ConfigError(f"dtype is {dtype!r}; it is 'float32', 'bfloat16' or None")
        self.folder = Path(folder)
        self.config = read_config(self.folder)
        self.samples, self.corrections, self.temperature = samples, corrections, temperature
        self.batch_size, self.dtype = batch_size, dtype
        self._embedder = load_embedder(_named(self.config.encoder) if encoder is None else encoder)
        _check_encoder(self, self._embedder, str(folder))
        self._loaded: _Loaded | None = None

    @property
    def id(self) -> str:
        """Return the public name of the inverter."""
        return model_id(str(self.folder))

    @property
    def encoder(self) -> str:
        """Return the public name of the embedder that it was trained for."""
        return self.config.encoder

    @property
    def dimension(self) -> int:
        """Return the width of the embedder's vectors."""
        return self.config.dimension

    def __repr__(self) -> str:
        return f"PrefixInverter({self.folder.name!r}, encoder={self.encoder!r}, samples={self.samples})"

    def invert(self, embeddings: np.ndarray, *, seed: int) -> list[str]:
        """Return one text an embedding.

        Args:
            embeddings (`np.ndarray`): shape (n, d), of any length. Public or already privatized.
            seed (`int`): the seed of the public streams; a text depends on its embedding, its place and the seed.
        Returns:
            `list[str]`: texts, in order; a blank one where the model ends every sample at once.
        Raises:
            ConfigError: the embeddings are of another width, or not finite.
            AssetError: the language model could not be loaded, or is another one.
        """
        targets = targets_of(embeddings, self.dimension)
        found: list[str] = []
        for start in range(0, len(targets), _CHUNK):
            part = targets[start : start + _CHUNK]
            found += self._inverted(part, public_seed(seed, "invert", start))
        return found

    def _inverted(self, targets: np.ndarray, seed: int) -> list[str]:
        """Return the closest of the texts that all rounds sample."""
        texts, reached = [""] * len(targets), np.full(len(targets), -np.inf)
        held = np.zeros_like(targets)
        for number in range(1 + self.corrections):
            # beyond the target by what the best text lacks; in the first round nothing is known
            aims = targets if number == 0 else unit_rows(2 * targets - held)
            said = self._sampled(aims, public_seed(seed, "round", number))
            vectors = unit_rows(self._embedder.embed(said)).reshape(len(targets), self.samples, -1)
            cosines = np.einsum("nsd,nd->ns", vectors, targets).astype(np.float64)
            cosines[np.reshape([not text.strip() for text in said], cosines.shape)] = _BLANK
            best = cosines.argmax(1)
            for row in np.flatnonzero(cosines[np.arange(len(best)), best] > reached):
                texts[row] = said[row * self.samples + best[row]]
                reached[row], held[row] = cosines[row, best[row]], vectors[row, best[row]]
        return texts

    def _sampled(self, aims: np.ndarray, seed: int) -> list[str]:
        """Return the samples of each row, one row after the other."""
        if self._loaded is None:
            self._loaded = _Loaded.from_folder(self.folder, self.config, self.batch_size, self.dtype)
        prompts = [prompt for prompt in self._loaded.prompts(aims) for _ in range(self.samples)]
        options = {"max_new_tokens": self.config.max_tokens, "seed": seed}
        tokens = self._loaded.generator.continued(prompts, temperature=self.temperature, **options)
        return [text.strip() for text in self._loaded.tokenizer.batch_decode(tokens, skip_special_tokens=True)]


@dataclass
class _Loaded:
    """An inverter in memory: its low-rank updates are merged into the weights."""

    generator: CausalLM
    tokenizer: Any
    mapper: Any
    words: Any
    size: int

    @classmethod
    def from_folder(cls, folder: Path, config: InverterConfig, batch_size: int, dtype: str | None) -> "_Loaded":
        """Load language model, adapter and mapper."""
        torch = need("torch", extra="models", what="an inverter")
        peft = need("peft", extra="finetune", what="an inverter")
        if model_id(config.language_model) != config.language_model_id:
            raise AssetError(
                f"{folder} was trained on {config.language_model_id}; {config.language_model!r} is "
                f"{model_id(config.language_model)} now. Put the model back, or train the inverter again."
            )
        devices = Devices.current()
        devices.limit_threads()
        device = devices.torch_device()
        model, tokenizer = load_pretrained(config.language_model, "float32")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)  # peft asks transformers for an old name
            model = peft.PeftModel.from_pretrained(model, folder / ADAPTER).merge_and_unload()
        model = model.requires_grad_(False).to(device, getattr(torch, dtype or best_dtype(device))).eval()
        words = model.get_input_embeddings()
        size, width = words.weight.shape
        mapper = read_mapper(folder, config, words.weight).to(device)
        layer = with_virtual(words, torch.nn.Embedding(1, width, _weight=words.weight[:1]))
        model.set_input_embeddings(layer)
        ends = frozenset({tokenizer.eos_token_id})
        generator = CausalLM.of(model, tokenizer, batch_size=batch_size, ends=ends)
        return cls(generator, tokenizer, mapper, layer, int(size))

    def prompts(self, aims: np.ndarray) -> list[list[int]]:
        """Lay the virtual tokens of each row behind the vocabulary and return their numbers."""
        torch = need("torch", extra="models", what="an inverter")
        weight = self.words.weight
        with torch.no_grad():
            table = prefixes(self.mapper, torch.from_numpy(aims).to(weight.device))
            rows, length, width = table.shape
            table = table.reshape(-1, width).to(weight.dtype)
        self.words.virtual = torch.nn.Embedding(len(table), width, _weight=table, _freeze=True)
        return [list(range(self.size + row * length, self.size + (row + 1) * length)) for row in range(rows)]


def load_inverter(
    inverter: str | os.PathLike[str] | Inverter | None = None,
    *,
    encoder: str | Embedder,
    generator: str | TextGenerator | None = None,
    public_texts: Sequence[str] | None = None,
    samples: int = 8,
) -> Inverter:
    """Return an inverter for the vectors of an encoder.

    Args:
        inverter (`str`, path or `Inverter`, *optional*): the folder that `train_inverter` wrote, or an object that has
            `.invert(embeddings, seed=)`. None takes the nearest public texts, which needs no training.
        encoder (`str` or `Embedder`): the embedder whose vectors will be inverted.
        generator (`TextGenerator`, *optional*): paraphrases the nearest public texts; read only without an inverter.
        public_texts (`Sequence[str]`, *optional*): the texts of the fallback. Public.
        samples (`int`): texts that the inverter of a folder samples for a vector, in one round; the closest is kept.
    Returns:
        `Inverter`: what turns the vectors into texts.
    Raises:
        AssetError: the folder is not that of an inverter, or not whole.
        ConfigError: the inverter was trained for another encoder, or there is neither an inverter nor public text.
    Examples:
        >>> from hf_dpsynth import models
        >>> class Lengths:
        ...     def embed(self, texts):
        ...         return np.array([[len(text), 1] for text in texts], dtype=np.float32)
        >>> near = models.load_inverter(None, encoder=Lengths(), public_texts=["a film", "a rather long review"])
        >>> near.invert(Lengths().embed(["six..."]), seed=0)
        ['a film']
    """
    if inverter is None:
        if public_texts is None:
            raise ConfigError("there is no inverter and no public text; pass an inverter's folder, or public texts.")
        speaker = None if generator is None else load_generator(generator)
        return NearestTextInverter(public_texts, encoder=encoder, generator=speaker)
    if isinstance(inverter, (str, os.PathLike)):
        return PrefixInverter(inverter, encoder=encoder, samples=samples, corrections=0)
    if not isinstance(inverter, Inverter):
        raise ConfigError(
            f"inverter is a {type(inverter).__name__}; it is a folder, or has .invert(embeddings, seed=), .encoder "
            "and .dimension"
        )
    _check_encoder(inverter, load_embedder(encoder), type(inverter).__name__)
    return inverter


def _check_encoder(inverter: Inverter, embedder: Embedder, name: str) -> None:
    """Refuse vectors of another encoder: their directions mean something else."""
    if inverter.encoder != encoder_id(embedder):
        raise ConfigError(
            f"the inverter {name!r} was trained for the encoder {inverter.encoder!r}; the vectors come from "
            f"{encoder_id(embedder)!r}. Use its encoder, or train an inverter for yours."
        )


def _named(encoder: str) -> str:
    """Return an encoder's name where it can be loaded by it."""
    if encoder in {asset.name for asset in models()} or HUB_ID.fullmatch(encoder):
        return encoder
    raise ConfigError(f"the inverter was trained for the encoder {encoder!r}, which has no name; pass encoder=.")
