"""Log-probabilities of labels after a text, under a causal language model whose prefix is read once.

A prompt is prefix + text + label, tokenized piece by piece. The keys and values of the prefix are computed once and
repeated for each batch of texts; a label of several tokens is scored behind the text's keys and values, which are then
cropped back. `uncached` computes the same numbers from whole sequences: it is the law the cache is tested against, and
what models take whose layers do not attend to everything.
"""

import copy
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hf_dpsynth.devices import rows_that_fit
from hf_dpsynth.extras import need
from hf_dpsynth.models.key_value_cache import growing_cache

_WHAT = "InContext"
Tokens = list[int]


class LabelScorer:
    """Scores labels behind a fixed prefix.

    Args:
        model (`torch.nn.Module`): a causal language model of transformers, in evaluation mode.
        prefix (`list[int]`): tokens that all prompts begin with, at least one. Sensitive if the demonstrations are.
        labels (`Sequence[list[int]]`): tokens of each label, at least one each.
        batch_size (`int`): most texts that are scored together; fewer where memory is short.
        room (`int`): most tokens of a text, for which the cache makes room.
    """

    def __init__(self, model: Any, prefix: Tokens, labels: Sequence[Tokens], *, batch_size: int, room: int) -> None:
        self._torch = need("torch", extra="models", what=_WHAT)
        self._model = model
        self._accepts = frozenset(inspect.signature(model.forward).parameters)
        self._prefix = prefix
        self._labels = list(labels)
        self._room = room + max(len(label) for label in labels)
        self._batch_size = rows_that_fit(self._row_bytes(), batch_size, model.device)
        self._prefilled: Any = None

    def _row_bytes(self) -> int:
        """Return the memory of a text at its peak: keys and values of every layer, and the logits of its labels."""
        config = self._model.config.get_text_config()
        cached = 2 * config.num_hidden_layers * config.hidden_size * (len(self._prefix) + self._room)
        return int(4 * (cached + 3 * config.vocab_size * max(len(label) for label in self._labels)))

    def scores(self, texts: Sequence[Tokens]) -> np.ndarray:
        """Return the log-probability of each label after each text, summed over the label's tokens.

        Args:
            texts (`Sequence[list[int]]`): tokens of each text, at least one. Sensitive if the texts are.
        Returns:
            `np.ndarray`: shape (texts, labels), float64.
        """
        cache, is_plain = growing_cache(self._model.config, self._room)
        if not is_plain:
            return self.uncached(texts)
        found = np.empty((len(texts), len(self._labels)))
        with self._torch.inference_mode():
            if self._prefilled is None:
                self._prefilled = self._prefill(cache)
            for rows in self._batches(texts):
                found[rows] = self._score([texts[row] for row in rows])
        return found

    def uncached(self, texts: Sequence[Tokens]) -> np.ndarray:
        """Return the same scores from whole sequences, one pass a label."""
        found = np.empty((len(texts), len(self._labels)))
        with self._torch.inference_mode():
            for rows in self._batches(texts):
                for number, label in enumerate(self._labels):
                    tokens, mask = self._left_padded([self._prefix + texts[row] + label for row in rows])
                    positions = (mask.cumsum(-1) - 1).clamp(min=0)
                    logits = self._forward(tokens, positions, mask, None, len(label) + 1)[:, :-1]
                    found[rows, number] = self._picked(logits, label).sum(-1).cpu().numpy()
        return found

    def _prefill(self, cache: Any) -> Any:
        """Read the prefix into a cache of one row."""
        length = len(self._prefix)
        tokens, mask = self._torch.tensor([self._prefix]), self._torch.ones((1, length), dtype=self._torch.long)
        self._forward(tokens, self._torch.arange(length)[None], mask, cache, 1)
        return cache

    def _score(self, texts: list[Tokens]) -> np.ndarray:
        """Score one batch behind a copy of the prefix's keys and values."""
        torch, rows = self._torch, len(texts)
        cache = copy.deepcopy(self._prefilled)
        cache.batch_repeat_interleave(rows)
        tokens, mask = self._left_padded(texts)
        lengths = mask.sum(-1)
        mask = torch.cat([torch.ones((rows, len(self._prefix)), dtype=torch.long), mask], dim=1)
        positions = (mask.cumsum(-1) - 1)[:, len(self._prefix) :]
        first = self._forward(tokens, positions, mask, cache, 1)
        columns = []
        for label in self._labels:
            score = self._picked(first, label[:1]).sum(-1)
            if len(label) > 1:
                fed = len(label) - 1
                mask_with_label = torch.cat([mask, torch.ones((rows, fed), dtype=torch.long)], dim=1)
                places = (lengths + len(self._prefix))[:, None] + torch.arange(fed)
                rest = self._forward(torch.tensor([label[:-1]] * rows), places, mask_with_label, cache, fed)
                score = score + self._picked(rest, label[1:]).sum(-1)
                cache.crop(-fed)
            columns.append(score)
        result: np.ndarray = torch.stack(columns, dim=-1).cpu().numpy()
        return result

    def _picked(self, logits: Any, label: Tokens) -> Any:
        """Return the log-probabilities of a label's tokens, shape (rows, tokens), float64."""
        chances = self._torch.log_softmax(logits.float(), dim=-1)
        return chances[:, self._torch.arange(len(label)), self._torch.tensor(label)].double()

    def _left_padded(self, sequences: list[Tokens]) -> tuple[Any, Any]:
        """Return tokens and mask, shape (rows, longest), padded on the left."""
        width = max(len(sequence) for sequence in sequences)
        tokens = self._torch.zeros((len(sequences), width), dtype=self._torch.long)
        mask = self._torch.zeros_like(tokens)
        for row, sequence in enumerate(sequences):
            tokens[row, width - len(sequence) :] = self._torch.tensor(sequence)
            mask[row, width - len(sequence) :] = 1
        return tokens, mask

    def _forward(self, tokens: Any, positions: Any, mask: Any, cache: Any, kept: int) -> Any:
        """Run the model and return the logits of the last positions."""
        inputs = {"input_ids": tokens, "attention_mask": mask, "position_ids": positions}
        placed = {name: tensor.to(self._model.device) for name, tensor in inputs.items() if name in self._accepts}
        if cache is not None:
            placed["cache"] = cache
        return self._model(**placed, use_cache=cache is not None, logits_to_keep=kept).logits[:, -kept:]

    def _batches(self, texts: Sequence[Tokens]) -> Iterator[list[int]]:
        """Yield rows of texts of similar length."""
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        for start in range(0, len(order), self._batch_size):
            yield order[start : start + self._batch_size]
