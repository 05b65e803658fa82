"""DP-MLM: each token of a text is drawn anew from a model's clipped logits at its place.

A text of n tokens costs n parts of epsilon / N, N = `max_tokens`; n is public. Each draw is a function of the whole
original text and of its own secret place, so what other draws were moves nothing, and n draws compose to n parts. The
original token may be drawn. A masked model sees the text beside a copy in which the token is masked, as in the source:
Meisenbacher, Chevli, Vladika & Matthes 2024 (arXiv:2407.00637). A causal model sees the text in its prompt and the
original tokens before the one that is drawn: one pass a text. Where we leave the source: it draws words, we draw the
model's own tokens, never a special one, so that the number of draws is fixed before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hf_dpsynth.mechanisms.rewrite.base import RewritingMechanism, costs
from hf_dpsynth.mechanisms.rewrite.fixed_shapes import Draw
from hf_dpsynth.mechanisms.rewrite.local_model import LocalModel


@dataclass(frozen=True, kw_only=True)
class DPMLM(RewritingMechanism):
    """Redraws each token of a text by a local masked or causal model; local DP of a whole text, its length public.

    With a vocabulary of 50,000 tokens an epsilon of 10 a token gives words at random, 20 about half of the original
    ones, and from 30 on most tokens stay what they were: readable, and hardly protected.

    Args:
        prompt_template, max_tokens, logit_range: as in every rewriting mechanism (`RewritingMechanism`). A masked
            model has no prompt.
    Examples:
        >>> DPMLM(max_tokens=32).event(1600)
        TokensDpEvent(epsilon=50.0, tokens=32)
    """

    name: ClassVar[str] = "dp-mlm"

    prompt_template: str = "Repeat this text: {text}"

    @property
    def draws(self) -> int:
        """The largest number of tokens that are drawn for a text."""
        return self.max_tokens

    def layout(self, epsilon: float) -> tuple[str, ...]:
        """Return what a text costs, and that its length is public."""
        return (
            f"each text costs as many tokens as it has, at most {self.draws}, at {costs(epsilon)} each",
            f"the number of tokens of each text, up to {self.draws}, is public",
        )

    def needs(self, model: LocalModel) -> None:
        """Refuse a model whose context is too short."""
        parts = model.pair() if model.loaded.masked else model.prompt(self.prompt_template)
        model.check_room(self.name, sum(len(part) for part in parts) + 2 * self.max_tokens)

    def made(self, texts: Sequence[str], model: Any, draw: Draw) -> list[str]:
        """Return the texts of the drawn tokens."""
        found: list[str] = model.redrawn(texts, self.prompt_template, self.max_tokens, draw)
        return found
