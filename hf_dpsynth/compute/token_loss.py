"""Cross-entropy of tokens from hidden states, without the logits of more than a few tokens at a time.

The vocabulary of a small model is most of its work and nearly all of its memory: logits, their logarithms and their
gradients are three tables of tokens x vocabulary. Where the output layer is frozen, the gradient of a token's loss
with respect to its own hidden state is known as soon as its logits are, so both are computed for a block of tokens
and the logits are forgotten. Each token's loss depends on its own hidden state alone.
"""

from typing import Any

from hf_dpsynth.extras import need

_BLOCK = 256


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
