"""A language model over private rows in shapes that no other row moves.

The one rule: what a row's logits are is a function of its own tokens and of public inputs. Sums of floats depend on
the shapes of the arrays, so every block has a public number of rows, empty ones in the place of missing ones, and a
width that is a public function of the row's own length; a row that has ended stays in its block. Padding is masked by
length, never by a token. Products run in one thread, because several round a row by its place in the block.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_dpsynth.compute.threads import one_torch_thread
from hf_dpsynth.extras import need
from hf_dpsynth.models.key_value_cache import growing_cache

if TYPE_CHECKING:
    from hf_dpsynth.mechanisms.rewrite.local_model import Loaded

Draw = Callable[[int, int, np.ndarray], int]
ROWS = 16
_LEAST_WIDTH = 16
_TOKENS = 128  # of a block whose logits are all needed at once


def width_of(length: int, most: int) -> int:
    """Return the public width for a text of some length: 16, 32, 64 ... and at last `most`.

    Examples:
        >>> [width_of(length, 100) for length in (0, 16, 17, 64, 65, 100)]
        [16, 16, 32, 64, 100, 100]
    """
    return min(most, max(_LEAST_WIDTH, 1 << max(length - 1, 0).bit_length()))


def blocks(lengths: Sequence[int], most: int, rows: Callable[[int], int]) -> Iterator[tuple[int, list[int]]]:
    """Yield widths and the numbers of the texts that are computed together, at most `rows(width)` of them."""
    widths = [width_of(length, most) for length in lengths]
    for width in sorted(set(widths)):
        members = [number for number, found in enumerate(widths) if found == width]
        for start in range(0, len(members), rows(width)):
            yield width, members[start : start + rows(width)]


def continued(
    loaded: "Loaded",
    prompt: tuple[list[int], list[int]],
    texts: Sequence[list[int]],
    most: int,
    count: int,
    draw: Draw,
) -> list[list[int]]:
    """Continue a prompt with each text by drawn tokens, up to an end token.

    Args:
        loaded (`Loaded`): a causal model.
        prompt (`tuple[list[int], list[int]]`): tokens before and after a text. Public.
        texts (`Sequence[list[int]]`): tokens of the texts, at most `most` each. Sensitive.
        most (`int`): public largest length of a text.
        count (`int`): public largest number of tokens to draw.
        draw (`Callable[[int, int, np.ndarray], int]`): gives a token for the number of a text, of a step, and logits.
    Returns:
        `list[list[int]]`: the drawn tokens before the end token.
    """
    torch = need("torch", extra="models", what="rewriting")
    made: list[list[int]] = [[] for _ in texts]
    for width, members in blocks([len(text) for text in texts], most, lambda width: ROWS):
        with torch.inference_mode():
            tokens, mask = laid_out(prompt, [texts[number] for number in members], width, ROWS)
            rows = Rows(loaded, len(prompt[0]), tokens, mask, count)
            found = _stepped(rows, members, count, draw, loaded.ends)
        for number, drawn in found.items():
            made[number] = drawn
    return made


def _stepped(
    rows: "Rows", members: Sequence[int], count: int, draw: Draw, ends: frozenset[int]
) -> dict[int, list[int]]:
    """Return what is drawn for each text of a block; one that has ended is fed a dummy: no shape changes."""
    made: dict[int, list[int]] = {number: [] for number in members}
    logits, live = rows.start(1), set(members)
    for step in range(count):
        fed = [0] * ROWS
        for place, number in enumerate(members):
            if number in live:
                fed[place] = draw(number, step, logits[place, -1])
                if fed[place] in ends:
                    live.discard(number)
                else:
                    made[number].append(fed[place])
        if not live or step + 1 == count:
            break
        logits = rows.step(fed)
    return made


class Rows:
    """Rows [before, padding, text, after] that may grow by a token a step; what is before a text is computed once."""

    def __init__(self, loaded: "Loaded", shared: int, tokens: np.ndarray, mask: np.ndarray, room: int) -> None:
        self._loaded = loaded
        self._cache, plain = growing_cache(loaded.model.config, room)
        self._shared = shared if plain else 0
        self._tokens, self._mask = tokens, mask

    def start(self, keep: int) -> np.ndarray:
        """Compute the rows and return the last logits of each, shape (rows, keep, vocabulary). Sensitive."""
        shared = self._shared
        if shared:
            self._forward(self._tokens[:1, :shared], self._mask[:1, :shared], 1)
            self._cache.batch_repeat_interleave(len(self._tokens))
        return self._forward(self._tokens[:, shared:], self._mask, keep)

    def step(self, fed: Sequence[int]) -> np.ndarray:
        """Feed a token to each row and return the logits of the next ones. Sensitive."""
        self._mask = np.pad(self._mask, ((0, 0), (0, 1)), constant_values=1)
        return self._forward(np.array(fed)[:, None], self._mask, 1)

    def _forward(self, tokens: np.ndarray, mask: np.ndarray, keep: int) -> np.ndarray:
        positions = (mask.cumsum(-1) - 1).clip(min=0)[:, -tokens.shape[1] :]
        inputs = {"input_ids": tokens, "attention_mask": mask, "position_ids": positions}
        return _logits(self._loaded, inputs, keep, cache=self._cache, use_cache=True)


def followed(
    loaded: "Loaded", prompt: tuple[list[int], list[int]], texts: Sequence[list[int]], most: int
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield the logits of each token of each text by a causal model that read the whole text in its prompt.

    A row is [before, text, after, text]: the logits of a token come after the prompt and the tokens before it.

    Args:
        loaded (`Loaded`): a causal model.
        prompt (`tuple[list[int], list[int]]`): tokens before and after a text. Public.
        texts (`Sequence[list[int]]`): tokens of the texts, at most `most` each. Sensitive.
        most (`int`): public largest length of a text.
    Returns:
        number of the text, number of its token, logits of shape (vocabulary,). Sensitive.
    """
    torch = need("torch", extra="models", what="rewriting")
    for width, members in blocks([len(text) for text in texts], most, rows_of_tokens):
        read = [texts[number] for number in members]
        tokens, mask = laid_out(prompt, read, width, rows_of_tokens(width), again=True)
        with torch.inference_mode():
            logits = Rows(loaded, len(prompt[0]), tokens, mask, 2 * width + len(prompt[1])).start(width + 1)
        for place, number in enumerate(members):
            for position in range(len(texts[number])):
                yield number, position, logits[place, position]


def masked(
    loaded: "Loaded", pair: tuple[list[int], list[int], list[int]], texts: Sequence[list[int]], most: int
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield the logits of each token of each text by a masked model, from the text beside its copy with a mask.

    Args:
        loaded (`Loaded`): a masked model.
        pair (`tuple[list[int], list[int], list[int]]`): tokens before, between and after the two. Public.
        texts (`Sequence[list[int]]`): tokens of the texts, at most `most` each. Sensitive.
        most (`int`): public largest length of a text.
    Returns:
        number of the text, number of its token, logits of shape (vocabulary,). Sensitive.
    """
    torch = need("torch", extra="models", what="rewriting")
    jobs = [(number, position) for number, text in enumerate(texts) for position in range(len(text))]
    before, between, after = pair
    fill = loaded.tokenizer.pad_token_id or 0  # some models count positions by it; the mask goes by length
    for width, members in blocks([len(texts[number]) for number, _ in jobs], most, rows_of_tokens):
        shape = rows_of_tokens(width), len(before) + len(between) + len(after) + 2 * width
        tokens, mask, kinds = np.full(shape, fill), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        mask[:, 0] = 1
        places = []
        for row, (number, position) in enumerate(jobs[member] for member in members):
            text = texts[number]
            first = [*before, *text, *between]
            places.append(len(first) + position)
            whole = [*first, *text, *after]
            whole[places[-1]] = loaded.tokenizer.mask_token_id
            tokens[row, : len(whole)], mask[row, : len(whole)] = whole, 1
            kinds[row, len(first) : len(whole)] = 1
        inputs = {"input_ids": tokens, "attention_mask": mask}
        if getattr(loaded.model.config, "type_vocab_size", 1) > 1:
            inputs["token_type_ids"] = kinds
        with torch.inference_mode():
            logits = _logits(loaded, inputs, shape[1])
        for row, place in enumerate(places):
            yield *jobs[members[row]], logits[row, place]


def rows_of_tokens(width: int) -> int:
    """Return the public number of rows of a block of which the logits of all tokens are computed."""
    return max(1, _TOKENS // width)


def laid_out(
    prompt: tuple[list[int], list[int]], texts: Sequence[list[int]], width: int, rows: int, *, again: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens and mask of rows [before, padding, text, after], where asked followed by [text, padding]."""
    before, after = prompt
    start = len(before) + width
    tokens = np.zeros((rows, start + len(after) + (width if again else 0)), np.int64)
    mask = np.zeros(tokens.shape, np.int64)
    tokens[:, : len(before)], tokens[:, start : start + len(after)] = before, after
    mask[:, : len(before)] = mask[:, start : start + len(after)] = 1
    for row, text in enumerate(texts):
        parts = [slice(start - len(text), start)]
        if again:
            parts.append(slice(start + len(after), start + len(after) + len(text)))
        for part in parts:
            tokens[row, part], mask[row, part] = text, 1
    return tokens, mask


def _logits(loaded: "Loaded", inputs: dict[str, np.ndarray], keep: int, **options: Any) -> np.ndarray:
    """Return the logits of the last tokens of each row; float32, shape (rows, keep, vocabulary). Sensitive."""
    torch = need("torch", extra="models", what="rewriting")
    placed = {
        name: torch.from_numpy(np.ascontiguousarray(values)).to(loaded.model.device)
        for name, values in inputs.items()
        if name in loaded.accepts
    }
    if "logits_to_keep" in loaded.accepts:
        options["logits_to_keep"] = keep
    with one_torch_thread():  # several share out the rows of a product, and round a row by its place among them
        logits = loaded.model(**placed, **options).logits[:, -keep:, : loaded.vocabulary]
    return np.asarray(logits.float().cpu().numpy())
