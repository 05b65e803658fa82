"""How likely texts are to a causal language model, in batches that no text's likelihood depends on.

Texts are filled up on their right to one of a few widths; what fills them up comes after every token that is scored.
Logarithms are taken in float32, sums in float64.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hf_dpsynth.devices import rows_that_fit
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.extras import need

_COPIES = 3  # of a token's logits in float32 that are alive at once
_WIDTHS = (16, 32, 64, 128, 256, 512)  # further widths are multiples of the last


def negative_log(
    encoded: Sequence[list[int]], model: Any, *, batch_tokens: int, done: Callable[[int], Any] = lambda rows: None
) -> tuple[np.ndarray, np.ndarray]:
    """Return -log p of the tokens of each text after its first, in nats, and their number.

    Args:
        encoded (`Sequence[list[int]]`): tokens of each text. Sensitive if the texts are.
        model (`torch.nn.Module`): a causal model of transformers in evaluation mode.
        batch_tokens (`int`): most tokens of a batch; fewer where their logits would not fit into memory. One text at
            least.
        done (`Callable[[int], Any]`): is told of the texts of each batch.
    Returns:
        `tuple[np.ndarray, np.ndarray]`: shape (n,), float64, and shape (n,), int64. As sensitive as the texts.
    """
    found, scored = np.zeros(len(encoded)), np.zeros(len(encoded), dtype=np.int64)
    fitting = rows_that_fit(_COPIES * 4 * int(model.config.get_text_config().vocab_size), batch_tokens, model.device)
    for places in _batches([len(tokens) for tokens in encoded], fitting):
        numbers = [max(0, len(encoded[place]) - 1) for place in places]
        if max(numbers) > 0:
            found[places] = _of_batch([encoded[place] for place in places], model)
            scored[places] = numbers
        done(len(places))
    return found, scored


def start_token(tokenizer: Any) -> int | None:
    """Return the token that begins a text, or the one that ends it; None where there is neither."""
    found = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    return None if found is None else int(found)


def context(model: Any) -> int:
    """Return the most tokens that a model reads."""
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 1 << 30)


def perplexities(texts: Sequence[str], model: Any, tokenizer: Any, *, max_tokens: int = 512) -> np.ndarray:
    """Return the perplexity of each text, exp of the mean -log p of its tokens, the first after the start token.

    Args:
        texts (`Sequence[str]`): public or privatized texts.
        model (`torch.nn.Module`): a causal model of transformers in evaluation mode.
        tokenizer: its tokenizer.
        max_tokens (`int`): tokens of a text that are scored.
    Returns:
        `np.ndarray`: shape (n,), float64; NaN for a text of fewer than two tokens, of which it says nothing.
    Raises:
        ConfigError: a likelihood is not finite.
    """
    begin = start_token(tokenizer)
    start = [] if begin is None else [begin]
    most = max(1, min(max_tokens, context(model) - len(start)))
    encoded = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"] if len(texts) else []
    kept = [start + tokens[:most] if len(tokens) >= 2 else [] for tokens in encoded]
    found, scored = negative_log(kept, model, batch_tokens=2048)
    if not np.isfinite(found).all():
        raise ConfigError("the model gave a likelihood that is not finite. Check the model and its dtype.")
    means = np.divide(found, scored, out=np.full(len(found), np.nan), where=scored > 0)
    return np.asarray(np.exp(np.minimum(means, 700.0)))


def _batches(lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield the places of texts of one width, longest first, so that the largest batch shows what memory it takes."""
    order = sorted(range(len(lengths)), key=lambda place: lengths[place], reverse=True)
    while order:
        width = _width(lengths[order[0]])
        rows = max(1, batch_tokens // width)
        batch = [place for place in order[:rows] if _width(lengths[place]) == width]
        yield batch
        order = order[len(batch) :]


def _width(length: int) -> int:
    return next((width for width in _WIDTHS if length <= width), -(-length // _WIDTHS[-1]) * _WIDTHS[-1])


def _of_batch(encoded: list[list[int]], model: Any) -> np.ndarray:
    """Return -log p of each row's tokens after its first, shape (rows,)."""
    torch = need("torch", extra="models", what="perplexity")
    width = min(_width(max(len(tokens) for tokens in encoded)), context(model))
    tokens = torch.zeros((len(encoded), width), dtype=torch.long)
    mask = torch.zeros((len(encoded), width), dtype=torch.long)
    for row, found in enumerate(encoded):
        tokens[row, : len(found)] = torch.tensor(found)
        mask[row, : len(found)] = 1
    with torch.inference_mode():
        tokens, mask = tokens.to(model.device), mask.to(model.device)
        logits = model(input_ids=tokens, attention_mask=mask, use_cache=False).logits[:, :-1]
        each = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
        ).view(len(encoded), -1)
        sums = torch.where(mask[:, 1:] > 0, each, 0.0).double().sum(dim=1)
    result: np.ndarray = sums.cpu().numpy()
    return result
