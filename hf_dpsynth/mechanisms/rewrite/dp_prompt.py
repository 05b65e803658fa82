"""DP-Prompt: a paraphrase by a local language model, each token a draw from clipped logits.

A token costs epsilon / N of the text's epsilon, whatever was drawn before it, at a temperature of 2 (high - low) N /
epsilon; N = `max_new_tokens` is public and the same for all texts. No top-k, no top-p: what they leave out depends on
the text. An end token ends the text; draws after it would be discarded, so they are not made. Source: Utpala, Hooker &
Chen 2023 (arXiv:2310.16111), whose bounds of the logits are quantiles of data; ours are a field, chosen on texts that
the model made by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.rewrite.base import RewritingMechanism, costs
from hf_dpsynth.mechanisms.rewrite.fixed_shapes import Draw
from hf_dpsynth.mechanisms.rewrite.local_model import LocalModel


@dataclass(frozen=True, kw_only=True)
class DPPrompt(RewritingMechanism):
    """Lets a local causal model paraphrase each text; local DP of a whole text.

    The epsilon of a text is spent in `max_new_tokens` equal parts. With a vocabulary of 50,000 tokens a part of 10
    draws almost evenly from all of them, and only from about 30 on is the output language: an epsilon of some 2,000
    for a text of 64 tokens, a bound that is nominally vacuous. Whoever wants a small epsilon gets no readable text.

    Args:
        prompt_template, max_tokens, logit_range: as in every rewriting mechanism (`RewritingMechanism`).
        max_new_tokens (`int`, defaults to 64): tokens that are drawn for a text.
    Examples:
        >>> DPPrompt(max_new_tokens=8).event(400)
        TokensDpEvent(epsilon=50.0, tokens=8)
    """

    name: ClassVar[str] = "dp-prompt"

    prompt_template: str = "Paraphrase the following text: {text}"
    max_tokens: int = 128
    max_new_tokens: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_tokens("max_new_tokens")

    @property
    def draws(self) -> int:
        """The number of tokens that are drawn for a text."""
        return self.max_new_tokens

    def layout(self, epsilon: float) -> tuple[str, ...]:
        """Return what a text costs."""
        return (f"each text costs {self.draws} tokens at {costs(epsilon)} each, whatever it holds",)

    def needs(self, model: LocalModel) -> None:
        """Refuse a masked model, or one whose context is too short."""
        if model.loaded.masked:
            raise ConfigError(f"{self.name} needs a causal model and {model.id} is a masked one. Use dp-mlm.")
        before, after = model.prompt(self.prompt_template)
        model.check_room(self.name, len(before) + self.max_tokens + len(after) + self.max_new_tokens)

    def made(self, texts: Sequence[str], model: Any, draw: Draw) -> list[str]:
        """Return the paraphrases."""
        found: list[str] = model.continued(texts, self.prompt_template, self.max_tokens, self.max_new_tokens, draw)
        return found
