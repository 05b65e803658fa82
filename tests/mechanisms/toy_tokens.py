"""A causal model of a dozen words whose law is known: it likes the words of its prompt, and lines of some length."""

import os
import re

import numpy as np

from tests.stubs import WORDS

VOCABULARY = ["<end>", "<unk>", "\n\n", "Example:", *WORDS]
END, UNKNOWN, LINE = 0, 1, 2


class ToyTokens:
    """A `TokenModel` and, because `generator=` asks for it, an object with `generate` that is never called."""

    def __init__(self, gain=2.0, crash_after=None):
        self.start, self.ends, self.context = [], frozenset([END]), 10_000
        self.gain, self.crash_after = gain, crash_after
        self.opened, self.steps = [], 0

    def generate(self, prompts, **more):
        raise AssertionError("private prediction draws from logits")

    def read(self, texts, most):
        number = {word: place for place, word in enumerate(VOCABULARY)}
        return [[number.get(word, UNKNOWN) for word in re.findall(r"\n\n|\S+", text)][:most] for text in texts]

    def write(self, tokens):
        return " ".join(VOCABULARY[token] for token in tokens if token != END)

    def open(self, head, middles, tail, *, most, room):
        assert all(len(middle) <= most for middle in middles)
        self.opened.append([list(middle) for middle in middles])
        return ToyPrompts(self, [[*head, *middle, *tail] for middle in middles])


class ToyPrompts:
    def __init__(self, model, prompts):
        self.model, self.prompts = model, prompts
        self._show()

    def feed(self, token):
        self.model.steps += 1
        if self.model.crash_after is not None and self.model.steps > self.model.crash_after:
            os._exit(41)
        self.prompts = [[*prompt, token] for prompt in self.prompts]
        self._show()

    def _show(self):
        rows = [np.bincount(prompt, minlength=len(VOCABULARY)) for prompt in self.prompts]
        counts = np.asarray(rows, dtype=np.float64).reshape(-1, len(VOCABULARY))
        counts[:, :4] = 0  # no word of its own, no line and no end but by length
        made = [len(prompt) - 1 - max(i for i, t in enumerate(prompt) if t == 3) for prompt in self.prompts]
        self.logits = self.model.gain * counts / np.maximum(1, counts.sum(1, keepdims=True)) * 10
        self.logits[:, LINE] = [-9.0 + 4.0 * length for length in made]
        self.logits[:, UNKNOWN] = -50.0
        self.logits[:, 3] = -50.0
