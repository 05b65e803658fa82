"""A trained inverter as a folder: `config.json`, `mapper.safetensors` and `adapter/`, a plain adapter of peft.

`config.json` is written last and holds the digests of the other files, so a folder that reads is whole and is what was
trained.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from hf_dpsynth.errors import AssetError
from hf_dpsynth.extras import need
from hf_dpsynth.models.adapters import fill

CONFIG, MAPPER, ADAPTER = "config.json", "mapper.safetensors", "adapter"
_FORMAT = "hf-dpsynth-inverter-1"
_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
_FILES = (MAPPER, *(f"{ADAPTER}/{name}" for name in _ADAPTER_FILES))
_WHAT = "an inverter"


@dataclass(frozen=True, kw_only=True)
class InverterConfig:
    """What an inverter was made for and how it was trained. Public.

    Args:
        encoder (`str`): the public name of the embedder.
        dimension (`int`): the width of its vectors.
        language_model (`str`): the base model, as it is loaded.
        language_model_id (`str`): its public name, which tells folders of the same path apart.
        prefix_length (`int`): virtual tokens that stand for an embedding.
        hidden (`int`): width of the mapper's hidden layer.
        max_tokens (`int`): most tokens of a text, its end included.
        training (`dict`): settings and figures of the training.
    """

    encoder: str
    dimension: int
    language_model: str
    language_model_id: str
    prefix_length: int
    hidden: int
    max_tokens: int
    training: dict[str, Any]


def new_mapper(dimension: int, hidden: int, prefix_length: int, words: Any, generator: Any) -> Any:
    """Return an untrained mapper from unit vectors to virtual tokens.

    Args:
        dimension (`int`): the width of the vectors.
        hidden (`int`): width of the hidden layer.
        prefix_length (`int`): virtual tokens that stand for a vector.
        words (`torch.Tensor`): the embeddings of the vocabulary; virtual tokens begin at their length.
        generator (`torch.Generator`, *optional*): draws the initial values; without one they are empty.
    Returns:
        `torch.nn.Sequential`: (n, dimension) to (n, prefix_length, width of the model), float32.
    """
    torch = need("torch", extra="models", what=_WHAT)
    width = words.shape[1]
    layers = torch.nn.Sequential(
        _empty_linear(torch, dimension, hidden),
        torch.nn.GELU(),
        _empty_linear(torch, hidden, prefix_length * width),
        torch.nn.Unflatten(1, (prefix_length, width)),
        torch.nn.LayerNorm(width),
    )
    if generator is not None:
        for layer in (layers[0], layers[2]):
            fill(layer.weight, (3 / layer.in_features) ** 0.5, generator)
            torch.nn.init.zeros_(layer.bias)
        torch.nn.init.constant_(layers[4].weight, float(words.float().pow(2).mean().sqrt()))
    return layers


def prefixes(mapper: Any, vectors: Any) -> Any:
    """Return the virtual tokens of unit vectors, shape (n, prefix_length, width)."""
    return mapper(vectors * vectors.shape[1] ** 0.5)  # entries of about 1, as the initial weights expect


def _empty_linear(torch: Any, inputs: int, outputs: int) -> Any:
    # the constructor would draw from torch's global generator
    return torch.nn.utils.skip_init(torch.nn.Linear, inputs, outputs)


def write_inverter(folder: Path, config: InverterConfig, mapper: Any, tuned: Any) -> None:
    """Write a trained inverter; `config.json` comes last.

    Args:
        folder (`Path`): the folder, which exists.
        config (`InverterConfig`): what it is.
        mapper (`torch.nn.Module`): the trained mapper.
        tuned (`peft.PeftModel`): the language model with its low-rank updates.
    """
    files = need("safetensors.torch", extra="models", what=_WHAT)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in mapper.state_dict().items()}
    files.save_file(weights, folder / MAPPER, metadata={"format": "pt"})
    tuned.save_pretrained(folder / ADAPTER, save_embedding_layers=False)
    digests = {name: _digest(folder / name) for name in _FILES}
    content = {"format": _FORMAT, **asdict(config), "files": digests}
    replace_file(folder / CONFIG, json.dumps(content, indent=1, allow_nan=False).encode() + b"\n")


def read_config(folder: Path) -> InverterConfig:
    """Return the configuration of an inverter's folder, once its files are as they were written.

    Raises:
        AssetError: the folder holds something else, or a file of it is missing, cut or changed.
    """
    try:
        content = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AssetError(
            f"{folder} holds no {CONFIG}; an inverter's folder is made by `hf-dpsynth models train-inverter`."
        ) from None
    except (OSError, ValueError) as error:
        raise AssetError(
            f"{folder / CONFIG} cannot be read ({type(error).__name__}); train the inverter again."
        ) from (error)
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise AssetError(
            f"{folder / CONFIG} is not of the format {_FORMAT!r}: the folder holds another model. An inverter's "
            "folder is made by `hf-dpsynth models train-inverter`."
        )
    names, digests = [field.name for field in fields(InverterConfig)], content.get("files")
    absent = [name for name in (*names, "files") if name not in content]
    if absent or not isinstance(digests, dict):
        raise AssetError(f"{folder / CONFIG} lacks {', '.join(absent) or 'digests'}; train the inverter again.")
    for name in _FILES:
        path = folder / name
        if not path.is_file() or _digest(path) != digests.get(name):
            state = "is not as it was written" if path.is_file() else "is missing"
            raise AssetError(f"{path} {state}; copy the folder again, or train the inverter again.")
    return InverterConfig(**{name: content[name] for name in names})


def read_mapper(folder: Path, config: InverterConfig, words: Any) -> Any:
    """Return the trained mapper of a folder.

    Raises:
        AssetError: its weights do not fit the configuration and the language model.
    """
    files = need("safetensors.torch", extra="models", what=_WHAT)
    mapper = new_mapper(config.dimension, config.hidden, config.prefix_length, words, None)
    try:
        mapper.load_state_dict(files.load_file(folder / MAPPER))
    except (RuntimeError, OSError, ValueError) as error:
        raise AssetError(f"{folder / MAPPER} does not fit {config.language_model_id}: {error}") from error
    return mapper.requires_grad_(False).eval()


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that at any moment its old or its new content is there, whole and synced."""
    partial = partial_of(path)
    with partial.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    partial.replace(path)


def partial_of(path: Path) -> Path:
    """Return where `replace_file` writes what is not whole yet."""
    return path.with_name(path.name + ".partial")


def _digest(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
