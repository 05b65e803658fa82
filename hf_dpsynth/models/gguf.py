"""GGUF files become folders that load without a network: weights, configuration and tokenizer."""

import shutil
from pathlib import Path

from hf_dpsynth.errors import AssetError
from hf_dpsynth.extras import need

_QUANTIZATION_LEFTOVERS = ("hf_quantizer", "quantization_config", "is_quantized", "quantization_method")


def need_gguf() -> None:
    """Raise `MissingExtra` unless everything that converts a GGUF file is installed."""
    for module in ("torch", "transformers", "gguf", "safetensors"):
        need(module, extra="models", what="converting a GGUF model")


def convert_gguf(folder: Path, filename: str) -> None:
    """Replace a GGUF file by safetensors weights, a configuration and a tokenizer that load from the folder alone.

    Args:
        folder (`Path`): holds the GGUF file and receives the model.
        filename (`str`): name of the GGUF file.
    Raises:
        MissingExtra: a package that reads the file is not installed.
        AssetError: the file cannot be read.
    """
    need_gguf()
    torch, transformers = need("torch", extra="models", what=""), need("transformers", extra="models", what="")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=filename)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=filename, dtype=torch.float32)
    except (ValueError, RuntimeError, KeyError) as error:
        raise AssetError(f"{filename} could not be converted: {type(error).__name__}: {error}") from error
    for owner in (model, model.config):
        for name in _QUANTIZATION_LEFTOVERS:
            if name in vars(owner):
                delattr(owner, name)
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    for weights in folder.glob("*.safetensors"):
        shutil.copymode(folder / "config.json", weights)
    (folder / filename).unlink()
