"""Cross-entropy of tokens from hidden states, without the logits of more than a few tokens at a time.

The vocabulary of a small model is most of its work and nearly all of its memory: logits, their logarithms and their
gradients are three tables of tokens x vocabulary. Where the output layer is frozen, the gradient of a token's loss
with respect to its own hidden state is known as soon as its logits are, so both are computed for a block of tokens
and the logits are forgotten. Each token's loss depends on its own hidden state alone.
"""

from contextlib import nullcontext
from typing import Any

from hf_dpsynth.extras import need

_BLOCK = 256
_PROBE = 4  # tokens that a model's logits are compared on
_LOUD = 1024.0  # a power of two, so that nothing is rounded


def token_losses(hidden: Any, weight: Any, targets: Any) -> Any:
    """Return the cross-entropy of each token's target.

    Args:
        hidden (`torch.Tensor`): shape (m, d), the states that predict the targets. Sensitive.
        weight (`torch.Tensor`): shape (v, d), the frozen output layer, in the precision of the product.
        targets (`torch.Tensor`): shape (m,), numbers below v. Sensitive.
    Returns:
        `torch.Tensor`: shape (m,), float32, in nats; differentiable with respect to `hidden`.
    """
    torch = need("torch", extra="models", what="training a language model")
    losses: Any = _function(torch).apply(hidden, weight, targets)
    return losses


def frozen_head(model: Any, *, autocast: bool = False) -> tuple[Any, Any] | None:
    """Return the body of a model and its output layer, where logits are their plain product and the layer is frozen.

    Some models scale or bend their logits, so the product is compared with what the model makes, for public tokens, of
    an output layer that is much louder: small logits would hide a bend.

    Args:
        model (`torch.nn.Module`): a causal language model of transformers, or an adapter of peft around one.
        autocast (`bool`): whether products are computed in bfloat16.
    Returns:
        `tuple` or `None`: body and layer; None where only the model itself can compute its logits.
    """
    torch = need("torch", extra="models", what="training a language model")
    base = getattr(model, "get_base_model", lambda: model)()
    head, body = base.get_output_embeddings(), base.base_model
    if type(head) is not torch.nn.Linear or head.bias is not None or head.weight.requires_grad or body is base:
        return None
    tokens = torch.arange(_PROBE, device=head.weight.device)[None]
    try:
        with torch.no_grad(), precision(head.weight.device, autocast):
            with head.register_forward_hook(lambda module, inputs, output: output * _LOUD):
                whole = base(input_ids=tokens, use_cache=False).logits.float()
            product = _LOUD * head(body(input_ids=tokens, use_cache=False).last_hidden_state).float()
    except (RuntimeError, TypeError, ValueError, AttributeError):  # another kind of model: it computes its own logits
        return None
    return (body, head) if bool((whole - product).abs().max() <= 1e-3 * product.abs().max()) else None


def precision(device: Any, autocast: bool) -> Any:
    """Return the context in which products are computed in bfloat16, or in the precision of their factors."""
    torch = need("torch", extra="models", what="training a language model")
    return torch.autocast(device.type, torch.bfloat16) if autocast else nullcontext()


def _function(torch: Any) -> Any:
    class TokenLosses(torch.autograd.Function):  # type: ignore[misc, name-defined, unused-ignore]
        """Losses forward; backward scales the gradients that were found on the way."""

        @staticmethod
        def forward(ctx: Any, hidden: Any, weight: Any, targets: Any) -> Any:
            """Compute losses and, where they are needed, gradients, a block of tokens at a time."""
            losses = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
            wanted = ctx.needs_input_grad[0]
            gradients = torch.empty_like(hidden) if wanted else None
            for start in range(0, len(hidden), _BLOCK):
                part = slice(start, start + _BLOCK)
                logits = (hidden[part].to(weight.dtype) @ weight.T).float()
                own = targets[part, None]
                log_probabilities = torch.log_softmax(logits, dim=-1)
                losses[part] = -log_probabilities.gather(1, own)[:, 0]
                if gradients is not None:
                    slope = log_probabilities.exp_()
                    slope.scatter_add_(1, own, torch.full_like(own, -1, dtype=slope.dtype))
                    gradients[part] = (slope.to(weight.dtype) @ weight).to(hidden.dtype)
            ctx.gradients = gradients
            return losses

        @staticmethod
        def backward(ctx: Any, scale: Any) -> Any:
            """Return the gradient with respect to the hidden states."""
            return (scale[:, None] * ctx.gradients).to(ctx.gradients.dtype), None, None

    return TokenLosses
