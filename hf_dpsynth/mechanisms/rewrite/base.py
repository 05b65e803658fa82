"""What the rewriting mechanisms share: the epsilon of a text in equal parts over a public number of draws.

The one rule: a token leaves as a draw of `privacy.tokens` from scores in a public range, one uniform place of the
text's secret stream each; the model sees the text, its scores are all that the text moves. So each draw is e-DP in the
text given the draws before it, and N of them compose to N e. Where we leave the papers: the logits enter the clip less
their own largest one, a function of the text as the logits are, so that the range is used in full whatever a model
adds to all of them; the largest token then always has the largest probability.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.guarantees import LocalDP, digits
from hf_dpsynth.mechanisms.base import check_one, check_whole
from hf_dpsynth.mechanisms.rewrite.fixed_shapes import Draw
from hf_dpsynth.mechanisms.rewrite.local_model import LocalModel, local_name
from hf_dpsynth.privacy.tokens import MOST_TOKENS, TokensDpEvent, draw_token, per_token
from hf_dpsynth.privacy.words import uniforms

_FARTHEST = 1e100  # a logit beyond this counts as this, so that differences are finite


@dataclass(frozen=True, kw_only=True)
class RewritingMechanism:
    """The fields of every rewriting mechanism.

    Args:
        prompt_template (`str`): the prompt, which holds `{text}` once; in the chat template of a model that has one.
        max_tokens (`int`): tokens of a text that are read; the rest is cut off.
        logit_range (`tuple[float, float]`, defaults to `(-10.0, 0.0)`): the public range that logits are clipped to,
            less the largest of them. The default was chosen on 24 short texts that SmolLM2-135M made by itself and
            then paraphrased: of its likeliest tokens, 90 % of the probability lies within 9 of the largest.
    """

    name: ClassVar[str]
    kind: ClassVar[str] = "privatize"
    reads: ClassVar[str] = "generator"
    units: ClassVar[tuple[str, ...]] = ("text",)

    prompt_template: str = "{text}"
    max_tokens: int = 64
    logit_range: tuple[float, float] = (-10.0, 0.0)

    def __post_init__(self) -> None:
        check_one(self.name, "prompt_template", self.prompt_template)
        if not isinstance(self.prompt_template, str) or self.prompt_template.count("{text}") != 1:
            raise ConfigError(f"{self.name}: prompt_template is {self.prompt_template!r}; it must hold {{text}} once")
        self.check_tokens("max_tokens")
        object.__setattr__(self, "logit_range", _range(self.name, self.logit_range))

    def check_tokens(self, field: str) -> None:
        """Refuse a number of tokens that is out of range.

        Raises:
            ConfigError: it is no whole number from 1 to 4096.
        """
        tokens = getattr(self, field)
        check_whole(self.name, field, tokens, 1)
        if tokens > MOST_TOKENS:
            raise ConfigError(f"{self.name}: {field} is {tokens}; it must be at most {MOST_TOKENS}")

    @property
    def draws(self) -> int:
        """The public largest number of tokens that are drawn for a text."""
        raise NotImplementedError

    def layout(self, epsilon: float) -> tuple[str, ...]:
        """Return the sentences on what a text costs and what of its form is public, with the loss of a token."""
        raise NotImplementedError

    def needs(self, model: LocalModel) -> None:
        """Refuse a model that cannot hold the longest text.

        Raises:
            ConfigError: it cannot.
        """
        raise NotImplementedError

    def made(self, texts: Sequence[str], model: Any, draw: Draw) -> list[str]:
        """Return one text a text from draws; `draw(i, j, logits)` is the j-th token of the i-th text."""
        raise NotImplementedError

    def load(self, generator: Any) -> LocalModel:
        """Return the local model of a name or folder, ready and known to fit.

        Raises:
            ConfigError: it is an address or an object, of a wrong kind, or too small.
            AssetError: it could not be fetched or loaded.
        """
        model = LocalModel(local_name(self.name, generator))
        self.needs(model)
        return model

    def event(self, epsilon: float) -> TokensDpEvent:
        """Return the event of one release of a data set: at most `draws` tokens of each text."""
        return TokensDpEvent(per_token(epsilon, self.draws), self.draws)

    def guarantee(self, epsilon: float) -> LocalDP:
        """Return what one release of a text promises: its epsilon, in how many parts, and what is assumed."""
        return LocalDP(
            epsilon=epsilon,
            unit="text",
            assumptions=(
                *self.layout(per_token(epsilon, self.draws)),
                "which texts are missing (null) is public",
                "the model computes each row of a batch by itself; it and its prompt are public",
                "each further release of the same text adds its own epsilon",
                "tokens are drawn in double precision",
            ),
        )

    def privatize(
        self,
        texts: Sequence[str | None],
        public: Any,
        epsilon: float,
        generators: Callable[[int], np.random.Generator],
    ) -> list[str | None]:
        """Return one text a text. A row's output depends on its text, its stream and public inputs, on no other row.

        Args:
            texts (`Sequence[str | None]`): None stays None; others, blank ones too, are rewritten. Sensitive.
            public (`LocalModel`): what `load` returned. Public.
            epsilon (`float`): the loss of a whole text; infinite takes the likeliest token each time.
            generators (`Callable[[int], np.random.Generator]`): the secret stream of the i-th text. Sensitive.
        Returns:
            `list[str | None]`: Public under the guarantee.
        Raises:
            ConfigError: epsilon is NaN or below 1e-100.
        """
        each = per_token(epsilon, self.draws)
        rows = [row for row, text in enumerate(texts) if text is not None]
        places = [uniforms(generators(row), self.draws) for row in rows]

        def draw(row: int, step: int, logits: np.ndarray) -> int:
            return draw_token(_below_the_largest(logits), places[row][step], each, *self.logit_range)

        made = iter(self.made([str(texts[row]) for row in rows], public, draw))
        return [None if text is None else next(made) for text in texts]


def _below_the_largest(logits: np.ndarray) -> np.ndarray:
    """Return logits less the largest of them, finite whatever they are; shape (V,). Sensitive."""
    finite = np.nan_to_num(logits.astype(np.float64), nan=-_FARTHEST).clip(-_FARTHEST, _FARTHEST)
    return np.asarray(finite - finite.max())


def costs(each: float) -> str:
    """Return the loss of a token in words."""
    return "no privacy" if math.isinf(each) else f"epsilon {digits(each)}"


def _range(mechanism: str, value: Any) -> tuple[float, float]:
    """Return the two ends of a range.

    Raises:
        ConfigError: they are not two finite numbers of which the second is larger.
    """
    numbers = isinstance(value, (tuple, list)) and all(type(end) in (int, float) for end in value)
    if not (numbers and len(value) == 2 and -1e6 <= value[0] < value[1] <= 1e6):
        raise ConfigError(f"{mechanism}: logit_range is {value!r}; it must be (low, high), within 1e6, low < high")
    return float(value[0]), float(value[1])
