"""Language models that guess a word of a text from the words around it.

The one rule: the text may be private, so the model is local, a name or a folder and never an address. A masked model
sees both sides of the word, a causal one what stands before it. A guess is one token of the model, so words of several
tokens are guessed by no one. Forms that differ in case or in the space before them count as one word.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from hf_dpsynth.compute.threads import one_torch_thread
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.mechanisms.rewrite.local_model import LocalModel

_MARKERS = ("Ġ", "▁")
_ROWS = 16


@runtime_checkable
class WordGuesser(Protocol):
    """Guesses words from what stands around them."""

    def guess(self, words: Sequence[str], gaps: Sequence[str], places: Sequence[int], top: int) -> list[list[str]]:
        """Guess words of one text, each as if it were masked alone.

        Args:
            words (`Sequence[str]`): the n words of the text, lower-case. Sensitive if they are.
            gaps (`Sequence[str]`): the n + 1 gaps around them.
            places (`Sequence[int]`): which words to guess. The guess at a word must not depend on it.
            top (`int`): how many guesses at most.
        Returns:
            `list[list[str]]`: for each place, words in lower case, the likeliest first. Sensitive if the words are.
        """
        ...


def load_guesser(model: "str | WordGuesser") -> WordGuesser:
    """Return a masked or causal language model for a name or folder, an object that has `.guess` as it is.

    Raises:
        ConfigError: it is an address, or no object that guesses.
    """
    if isinstance(model, str) and "://" not in model:
        return LocalGuesser(model)
    if isinstance(model, str) or not callable(getattr(model, "guess", None)):
        given = "an address" if isinstance(model, str) else f"a {type(model).__name__}"
        raise ConfigError(
            f"model= is {given}; the attack shows private text to it, so it is a local model's short name, folder or "
            "Hub id, or an object with .guess(words, gaps, places, top)"
        )
    return model


class LocalGuesser:
    """A masked or causal language model on this machine.

    Args:
        name (`str`): a short name of the catalogue, a folder or a Hub id.
    """

    def __init__(self, name: str) -> None:
        self._model = LocalModel(name)

    def __repr__(self) -> str:
        return f"LocalGuesser({self._model.name!r})"

    @property
    def sees_both_sides(self) -> bool:
        """Whether the model sees what stands behind a word."""
        return self._model.loaded.masked

    def guess(self, words: Sequence[str], gaps: Sequence[str], places: Sequence[int], top: int) -> list[list[str]]:
        """Guess words of one text; a word beyond the model's context gets no guess."""
        pieces = self._model.read([part for pair in _parts(words, gaps) for part in pair], self._model.loaded.context)
        between, whole = pieces[0::2], pieces[1::2]
        logits = self._masked if self.sees_both_sides else self._followed
        found: list[list[str]] = [[] for _ in places]
        for number, row in logits(between, whole, places):
            spaced = gaps[places[number]].endswith(" ")
            found[number] = self._words(row, spaced, top)
        return found

    def _followed(self, between: list[list[int]], whole: list[list[int]], places: Sequence[int]) -> Any:
        """Yield the logits of the first token of each word behind all that comes before it."""
        loaded = self._model.loaded
        begin = loaded.tokenizer.bos_token_id
        tokens: list[int] = [loaded.tokenizer.eos_token_id if begin is None else begin]
        ends = []
        for gap, word in zip(between, whole, strict=False):
            tokens += gap
            ends.append(len(tokens) - 1)
            tokens += word
        logits = self._logits([tokens[: loaded.context]])[0]
        for number, place in enumerate(places):
            if ends[place] < len(logits):
                yield number, logits[ends[place]]

    def _masked(self, between: list[list[int]], whole: list[list[int]], places: Sequence[int]) -> Any:
        """Yield the logits of a mask in the place of each word, between as much of both sides as there is room for."""
        loaded = self._model.loaded
        mask = loaded.tokenizer.mask_token_id
        around = [] if mask is None else loaded.tokenizer(loaded.tokenizer.mask_token)["input_ids"]
        if mask not in around:
            raise ConfigError(f"the tokenizer of {self._model.id} has no mask token. Use another model.")
        start, side = around.index(mask), max(1, (loaded.context - len(around)) // 2)
        rows, ends = [], []
        for place in places:
            left = _joined(between[:place], whole[:place])
            right = _joined(between[place + 1 :], whole[place + 1 :])
            left = [*left, *between[place]][-side:]
            ends.append(start + len(left))
            rows.append([*around[:start], *left, mask, *right[:side], *around[start + 1 :]])
        for first in range(0, len(rows), _ROWS):
            logits = self._logits(rows[first : first + _ROWS])
            for row, place in enumerate(ends[first : first + _ROWS]):
                yield first + row, logits[row, place]

    def _logits(self, rows: list[list[int]]) -> np.ndarray:
        """Return the logits of rows of tokens, shape (rows, longest, vocabulary), float32. Sensitive."""
        torch = need("torch", extra="models", what="audit_masks")
        loaded = self._model.loaded
        tokens = torch.full((len(rows), max(map(len, rows))), loaded.tokenizer.pad_token_id or 0)
        mask = torch.zeros_like(tokens)
        for row, found in enumerate(rows):
            tokens[row, : len(found)], mask[row, : len(found)] = torch.tensor(found), 1
        device = loaded.model.device
        with torch.inference_mode(), one_torch_thread():
            logits = loaded.model(input_ids=tokens.to(device), attention_mask=mask.to(device)).logits
        return np.asarray(logits[..., : loaded.vocabulary].float().cpu().numpy())

    def _words(self, logits: np.ndarray, spaced: bool, top: int) -> list[str]:
        """Return the likeliest words, the probabilities of their forms added up."""
        names, word_of, begins = self._forms
        kept = (word_of >= 0) & (begins if spaced and begins.any() else True)
        weights = np.exp(logits[kept] - logits[kept].max(initial=-np.inf))
        sums = np.bincount(word_of[kept], weights, minlength=len(names))
        best = np.argsort(-sums, kind="stable")[:top]
        return [names[word] for word in best if sums[word] > 0]

    @cached_property
    def _forms(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Return the words that tokens stand for, the word of each token (or -1), and which begin with a space."""
        loaded = self._model.loaded
        tokens = loaded.tokenizer.convert_ids_to_tokens(list(range(loaded.vocabulary)))
        words = [token.lstrip("".join(_MARKERS)).lower() for token in tokens]
        usable = [
            any(sign.isalnum() for sign in word) and not token.startswith("##") and place not in loaded.specials
            for place, (token, word) in enumerate(zip(tokens, words, strict=True))
        ]
        names = sorted({word for word, fine in zip(words, usable, strict=True) if fine})
        numbers = {word: number for number, word in enumerate(names)}
        word_of = [numbers[word] if fine else -1 for word, fine in zip(words, usable, strict=True)]
        return names, np.array(word_of), np.array([token.startswith(_MARKERS) for token in tokens])


def _joined(between: list[list[int]], whole: list[list[int]]) -> list[int]:
    return [token for pair in zip(between, whole, strict=True) for part in pair for token in part]


def _parts(words: Sequence[str], gaps: Sequence[str]) -> list[tuple[str, str]]:
    """Return what stands before each word and the word, with the space before it on its side; then the last gap."""
    found = [
        (gap.removesuffix(" "), f" {word}" if gap.endswith(" ") else word)
        for gap, word in zip(gaps, words, strict=False)
    ]
    return [*found, (gaps[-1], "")]
