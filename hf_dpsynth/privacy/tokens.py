"""Tokens drawn from clipped logits: local DP of a whole text, by composition over a public number of tokens.

The one rule: whatever the model computes, its logits enter through a clip to a public range [low, high], so the
probability of a token changes by at most a factor exp(2 (high - low) / temperature) between any two texts. At the
temperature 2 (high - low) / epsilon that is epsilon a token. Source: Utpala, Hooker & Chen 2023 (arXiv:2310.16111).
"""

import math
from dataclasses import dataclass

import numpy as np
from dp_accounting import DpEvent

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.words import at_places, checked

MOST_TOKENS = 4096  # so many times a loss of at least 41 binary digits is exact


@dataclass(frozen=True)
class TokensDpEvent(DpEvent):  # type: ignore[misc]
    """Draws at most `tokens` tokens of each text, each epsilon-DP in the text and what was drawn before it.

    Args:
        epsilon (`float`): the loss of one token.
        tokens (`int`): the public largest number of tokens of a text.
    """

    epsilon: float
    tokens: int


def per_token(epsilon: float, tokens: int) -> float:
    """Return the loss of one of the tokens of a text: the epsilon of the text in equal parts, rounded down.

    It is rounded so that `tokens` times it is exact in double precision, and so never above epsilon.

    Args:
        epsilon (`float`): the loss of a whole text.
        tokens (`int`): the public largest number of tokens of a text, 1 to 4096.
    Raises:
        ConfigError: epsilon is NaN or below 1e-100, or `tokens` is out of range.
    Examples:
        >>> per_token(8.0, 64), 3 * per_token(10.0, 3) <= 10
        (0.125, True)
    """
    checked(epsilon)
    if not 1 <= tokens <= MOST_TOKENS:
        raise ConfigError(f"a text has at most {tokens} tokens; the number must be from 1 to {MOST_TOKENS}")
    if math.isinf(epsilon):
        return math.inf
    mantissa, exponent = math.frexp(epsilon / tokens)
    odd_part = tokens // (tokens & -tokens)
    digits = 53 - odd_part.bit_length()
    return math.ldexp(math.floor(math.ldexp(mantissa, digits)), exponent - digits)


def temperature(epsilon: float, low: float, high: float) -> float:
    """Return the temperature at which one token of logits clipped to [low, high] costs epsilon; 0 for infinite.

    Examples:
        >>> temperature(2.0, 0.0, 10.0)
        10.0
    """
    if not (epsilon > 0 and low < high):
        raise ConfigError(f"epsilon is {epsilon} and the logits' range is [{low}, {high}]; both must be positive")
    return 2 * (high - low) / epsilon


def draw_token(logits: np.ndarray, place: float, epsilon: float, low: float, high: float) -> int:
    """Draw one token from clipped logits in float64.

    Args:
        logits (`np.ndarray`): of every token, shape (V,). Sensitive; NaN counts as `low`.
        place (`float`): a secret uniform place in [0, 1), of `words.uniforms`.
        epsilon (`float`): the loss of this token; infinite takes the largest logit, the first of several.
        low (`float`): the lower end of the public range.
        high (`float`): its upper end.
    Returns:
        `int`: the token. Released.
    Sensitivity:
        a clipped logit moves by at most high - low, whatever the text.
    """
    scores = np.clip(np.nan_to_num(logits.astype(np.float64), nan=low), low, high)
    if np.isinf(epsilon):
        return int(scores.argmax())
    # the largest weight is 1: however cold it is, they are not all 0
    weights = np.exp((scores - scores.max()) / temperature(epsilon, low, high))
    return int(at_places(weights, np.array([place]))[0])
