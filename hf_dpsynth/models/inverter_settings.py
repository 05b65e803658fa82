"""How an inverter is trained: public numbers, checked where they are made."""

import math
from dataclasses import dataclass

from hf_dpsynth.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class InverterTraining:
    """How an inverter is trained. Public.

    Args:
        steps (`int`): batches.
        minutes (`float`, *optional*): training ends after so many minutes, those before a resume included.
        batch_size (`int`): texts of a batch.
        learning_rate (`float`): of Adam; it rises over 20 steps and falls to 5 % at the end.
        prefix_length (`int`): virtual tokens that stand for a vector.
        hidden (`int`): width of the mapper's hidden layer.
        rank (`int`): rank of the low-rank updates.
        noise_std (`float`): the largest noise: its expected length beside a vector of length 1. Each vector gets a
            share of it between 0 and 1.
        max_tokens (`int`): texts are cut at so many tokens, their end included.
        checkpoint_steps (`int`): steps between two checkpoints.
        dtype (`str`, *optional*): precision of the products; the fastest one of the device when missing.
        seed (`int`): the seed of public randomness.
    """

    steps: int = 2000
    minutes: float | None = None
    batch_size: int = 16
    learning_rate: float = 1e-3
    prefix_length: int = 8
    hidden: int = 1024
    rank: int = 16
    noise_std: float = 0.3
    max_tokens: int = 64
    checkpoint_steps: int = 100
    dtype: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "prefix_length", "hidden", "rank", "checkpoint_steps"):
            if not getattr(self, name) >= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it is at least 1")
        if not self.max_tokens >= 2:
            raise ConfigError(f"max_tokens is {self.max_tokens}; it is at least 2: a token and the end")
        for name in ("learning_rate", "minutes"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{name} is {value}; it is a positive number")
        if not 0 <= self.noise_std < math.inf:
            raise ConfigError(f"noise_std is {self.noise_std}; it is 0 or a positive number")
        if self.dtype not in (None, "float32", "bfloat16"):
            raise ConfigError(f"dtype is {self.dtype!r}; it is 'float32', 'bfloat16' or None")
