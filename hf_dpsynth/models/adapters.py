"""What is put into a causal language model: low-rank updates of its layers, and virtual tokens before its words.

Initial values come from a generator that is passed in; those of peft itself are overwritten.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.extras import need


def low_rank(
    model: Any, *, rank: int, target_modules: str | Sequence[str], generator: Any, rough: bool, name: str, what: str
) -> Any:
    """Return a causal language model with low-rank updates, which alone are trained.

    Args:
        model (`torch.nn.Module`): the base model, which is used as it is.
        rank (`int`): rank of the updates.
        target_modules (`str` or `Sequence[str]`): which linear layers get one.
        generator (`torch.Generator`): draws the initial values.
        rough (`bool`): whether products are computed in bfloat16.
        name (`str`): the model's name, for the message.
        what (`str`): the feature that asks, for the message.
    Returns:
        `peft.PeftModel`: in evaluation mode; its updates lie in float32.
    Raises:
        ConfigError: the model has no such layers.
        MissingExtra: peft is not installed.
    """
    peft = need("peft", extra="finetune", what=what)
    targets = target_modules if isinstance(target_modules, str) else list(target_modules)
    config = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        target_modules=targets,
        fan_in_fan_out=any(type(module).__name__ == "Conv1D" for module in model.modules()),
    )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)  # peft asks transformers for an old name
            tuned = peft.get_peft_model(model, config, autocast_adapter_dtype=True)
    except ValueError as error:
        raise ConfigError(f"target_modules={target_modules!r} fits no layer of {name}: {error}") from error
    for module in tuned.modules():
        if rough and hasattr(module, "cast_input_dtype_enabled"):
            # inputs stay in bfloat16, in which autocast multiplies anyway: two copies of each less
            module.cast_input_dtype_enabled = False
    for parameter_name, parameter in tuned.named_parameters():
        if "lora_A" in parameter_name:
            fill(parameter, 1 / math.sqrt(parameter.shape[1]), generator)
    return tuned.eval()


def fill(parameter: Any, bound: float, generator: Any) -> None:
    """Fill a parameter with uniform draws between -bound and bound."""
    torch = need("torch", extra="models", what="training a language model")
    draws = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
    parameter.data.copy_((2 * draws - 1) * bound)


def with_virtual(words: Any, virtual: Any) -> Any:
    """Return an embedding layer in which the numbers after the vocabulary are virtual tokens.

    Args:
        words (`torch.nn.Module`): the embedding layer of the vocabulary.
        virtual (`torch.nn.Embedding`): that of the virtual tokens; the attribute `virtual` of what is returned.
    """
    torch = need("torch", extra="models", what="virtual tokens")

    class WithVirtual(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        """Embeds words and virtual tokens."""

        def __init__(self) -> None:
            super().__init__()
            self.words, self.virtual, self.weight = words, virtual, words.weight

        def forward(self, tokens: Any) -> Any:
            """Return embeddings, shape (b, t, d)."""
            size = self.words.weight.shape[0]
            found = self.virtual((tokens - size).clamp(min=0))
            return torch.where((tokens >= size)[..., None], found, self.words(tokens.clamp(max=size - 1)))

    return WithVirtual()
