"""The Prefix-LM loss: the mean negative log-likelihood of an example's own target tokens, one number an example.

The loss that models of transformers compute themselves is a mean over all tokens of a batch, which couples the
examples: one record could then move the update by more than its clipped gradient. Only the logits that predict targets
are computed: the vocabulary is most of the work of a small model; where the output layer is frozen, they are computed
for a few tokens at a time and forgotten. Source: Kurakin et al. 2023, arXiv:2306.01684.
"""

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hf_dpsynth.compute.token_loss import precision, token_losses
from hf_dpsynth.extras import need
from hf_dpsynth.mechanisms.finetune.examples import Example

if TYPE_CHECKING:
    import torch


class PrefixLoss:
    """Losses of examples under a model.

    Args:
        model (`torch.nn.Module`): a causal language model.
        virtual (`Callable`, *optional*): batch size -> embeddings of virtual tokens before each example, shape
            (b, v, d).
        autocast (`bool`): whether products are computed in bfloat16.
        head (`tuple`, *optional*): what `frozen_head` found.
    """

    def __init__(
        self,
        model: "torch.nn.Module",
        *,
        virtual: Any = None,
        autocast: bool = False,
        head: tuple[Any, Any] | None = None,
    ) -> None:
        self._torch = need("torch", extra="models", what="fine-tuning")
        self._model, self._virtual, self._autocast = model, virtual, autocast
        self._body: Any = model if head is None else head[0]
        self._head: Any = None if head is None else head[1]
        forward = getattr(self._body, "get_base_model", lambda: self._body)().forward
        self._accepts = frozenset(inspect.signature(forward).parameters)

    def __call__(self, examples: Sequence[Example]) -> "torch.Tensor":
        """Return the loss of each example, shape (b,), float32; 0 for an example without target. Sensitive."""
        torch = self._torch
        device = next(self._model.parameters()).device
        width = max(len(example.tokens) for example in examples)
        tokens = torch.zeros((len(examples), width), dtype=torch.long)
        targets = torch.full((len(examples), width), -100, dtype=torch.long)
        mask = torch.zeros((len(examples), width), dtype=torch.long)
        for row, example in enumerate(examples):
            found, length = torch.tensor(example.tokens), len(example.tokens)
            tokens[row, :length], mask[row, :length] = found, 1
            targets[row, example.prefix : length] = found[example.prefix :]
        start = min(example.prefix for example in examples) - 1
        wanted = targets[:, start + 1 :].to(device)
        kept = wanted != -100
        with precision(device, self._autocast):
            found = self._outputs(tokens.to(device), mask.to(device), start)[:, :-1][kept]
        if self._head is None:
            losses = torch.nn.functional.cross_entropy(found.float(), wanted[kept], reduction="none")
        else:
            losses = token_losses(found, self._head.weight, wanted[kept])
        # spread out again, so that each example adds its own tokens alone and in their order
        apart = torch.zeros(kept.shape, dtype=torch.float32, device=device).masked_scatter(kept, losses)
        return apart.sum(1) / kept.sum(1).clamp(min=1)

    def _outputs(self, tokens: "torch.Tensor", mask: "torch.Tensor", start: int) -> "torch.Tensor":
        """Return logits, or hidden states before a frozen head, from a position of the examples on."""
        torch = self._torch
        inputs: dict[str, Any] = {"input_ids": tokens}
        virtual = 0
        if self._virtual is not None:
            before = self._virtual(len(tokens))
            virtual = before.shape[1]
            words = self._model.get_input_embeddings()(tokens)
            inputs = {"inputs_embeds": torch.cat([before.to(words.dtype), words], dim=1)}
            mask = torch.cat([mask.new_ones((len(tokens), virtual)), mask], dim=1)
        width = mask.shape[1]
        # every row has positions of its own: grad samplers of position embeddings need (b, width)
        positions = torch.arange(width, device=tokens.device).expand(len(tokens), width)
        options: dict[str, Any] = {"attention_mask": mask, "position_ids": positions, "use_cache": False}
        cut = "logits_to_keep" in self._accepts
        if cut:
            options["logits_to_keep"] = torch.arange(virtual + start, width, device=tokens.device)
        known = {name: value for name, value in options.items() if name in self._accepts}
        result = self._body(**inputs, **known)
        found = result.logits if self._head is None else result.last_hidden_state
        return found if cut else found[:, virtual + start :]
