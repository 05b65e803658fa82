"""Drawing tokens: inverting the cumulative distribution of the vocabulary, one uniform a token.

Exact in law, cheaper than a multinomial draw, and a function of its arguments alone: no global generator is read.
"""

from typing import Any

from hf_dpsynth.extras import need
from hf_dpsynth.privacy.keys import public_seed

_BLOCK = 256
_NUCLEUS = 1024


def choose(logits: Any, uniforms: Any, *, temperature: float, top_p: float = 1.0, top_k: int = 0) -> Any:
    """Draw one token a row by inverting the cumulative distribution.

    Args:
        logits (`torch.Tensor`): shape (rows, vocabulary), any float type.
        uniforms (`torch.Tensor`): float64 in [0, 1), shape (rows,).
        temperature (`float`): divides the logits; 0 takes the largest.
        top_p (`float`): keep the likeliest tokens that together hold this share of the probability.
        top_k (`int`): keep so many likeliest tokens before; 0 keeps all.
    Returns:
        `torch.Tensor`: token ids, shape (rows,). A token of probability 0 is never drawn.
    """
    torch = need("torch", extra="models", what="CausalLM")
    if temperature == 0:
        return logits.argmax(-1)
    weights = logits.float()
    weights = weights.sub(weights.amax(-1, keepdim=True)).div_(temperature).exp_()
    if 0 < top_k < weights.shape[-1]:
        largest, tokens = weights.topk(top_k, dim=-1)
        place = _choose_in_nucleus(largest, uniforms, top_p) if top_p < 1 else _invert(largest, uniforms)[0]
        return tokens.gather(-1, place[:, None])[:, 0]
    if top_p < 1:
        return _choose_in_nucleus(weights, uniforms, top_p)
    # Two levels: sum blocks of the vocabulary, find the block, search inside it. A full cumulative sum costs more.
    rows, vocabulary = weights.shape
    padding = -vocabulary % _BLOCK
    blocks = torch.nn.functional.pad(weights, (0, padding)).view(rows, -1, _BLOCK)
    block, rest = _invert(blocks.sum(-1), uniforms)
    inside = blocks[torch.arange(rows, device=block.device), block]
    token, _ = _invert(inside, rest)
    return block * _BLOCK + token


def row_uniforms(rows: list[int], max_new_tokens: int, seed: int) -> Any:
    """Return each row's own stream of uniforms. Public.

    Args:
        rows (`list[int]`): numbers of the prompts.
        max_new_tokens (`int`): draws a row.
        seed (`int`): seed of the public streams.
    Returns:
        `torch.Tensor`: float64 in [0, 1), shape (rows, max_new_tokens).
    """
    torch = need("torch", extra="models", what="CausalLM")
    streams = []
    for row in rows:
        generator = torch.Generator().manual_seed(public_seed(seed, "generate", row))
        streams.append(torch.rand(max_new_tokens, generator=generator, dtype=torch.float64))
    return torch.stack(streams)


def _invert(weights: Any, uniforms: Any) -> tuple[Any, Any]:
    """Return, for each row, the index that a uniform falls on, and the uniform that is left inside that index."""
    torch = need("torch", extra="models", what="CausalLM")
    cumulative = weights.double().cumsum(-1)
    target = (uniforms * cumulative[:, -1])[:, None]
    index = torch.searchsorted(cumulative, target, right=True)
    # Rounding can put the target on the end: the last index of positive weight takes it.
    last = weights.shape[-1] - 1 - (weights.flip(-1) > 0).int().argmax(-1, keepdim=True)
    index = torch.minimum(index, last)
    weight = weights.gather(-1, index).double()
    below = cumulative.gather(-1, index) - weight
    return index[:, 0], ((target - below) / weight).clamp(0, 1)[:, 0]


def _choose_in_nucleus(weights: Any, uniforms: Any, top_p: float) -> Any:
    """Draw among the likeliest tokens that hold a share of the probability."""
    total = weights.sum(-1, keepdim=True, dtype=weights.double().dtype)
    largest, tokens = weights.topk(min(_NUCLEUS, weights.shape[-1]), dim=-1)
    if bool((largest.double().sum(-1, keepdim=True) < top_p * total).any()):
        largest, tokens = weights.sort(dim=-1, descending=True)
    before = largest.double().cumsum(-1) - largest.double()
    index, _ = _invert(largest.where(before < top_p * total, 0), uniforms)
    return tokens.gather(-1, index[:, None])[:, 0]
