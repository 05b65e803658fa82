"""Whole texts of dp-prompt and dp-mlm: the loss between any two texts, whatever a model makes of them.

Two tokens of four letters at an epsilon of 2 a text, and 8000 texts each, from keys that are fixed, so that verdicts
repeat. A model of any logits stands in for a language model: the clip must hold whatever they are.
"""

from collections import Counter
from functools import partial

import numpy as np
import pytest

from hf_dpsynth.audit import audit_words
from hf_dpsynth.mechanisms.rewrite import base
from hf_dpsynth.mechanisms.rewrite.dp_mlm import DPMLM
from hf_dpsynth.mechanisms.rewrite.dp_prompt import DPPrompt
from hf_dpsynth.privacy import tokens
from hf_dpsynth.privacy.keys import Key
from tests.audit.mechanisms.unit import SURE, Unit, planted

LETTERS, RANGE, EPSILON, TEXTS = "abcd", (-3.0, 0.0), 2.0, 8000
LOGITS = {"one": [9.0, -9, -9, -9], "other": [-9.0, 9, 9, 9]}


class Given:
    """A model whose logits of two tokens are given for each text."""

    def __init__(self):
        self.rows = {text: np.array(logits, dtype=np.float32) for text, logits in LOGITS.items()}

    def _drawn(self, text, number, draw):
        return "".join(LETTERS[draw(number, step, self.rows[text])] for step in range(2))

    def continued(self, texts, template, most, count, draw):
        return [self._drawn(text, number, draw) for number, text in enumerate(texts)]

    def redrawn(self, texts, template, most, draw):
        return [self._drawn(text, number, draw) for number, text in enumerate(texts)]


def drawn(mechanism):
    inputs, model = list(LOGITS), Given()

    def draw(text, size, generator):
        stream = Key.from_insecure_seed(text).generator("all")
        found = Counter(mechanism.privatize([inputs[text]] * size, model, EPSILON, lambda row: stream))
        return np.repeat(np.arange(16), [found[first + second] for first in LETTERS for second in LETTERS])

    return [audit_words(draw, 1.0 - np.eye(2), EPSILON, draws=TEXTS, confidence=SURE)]


def half_the_temperature(patch):
    patch.setattr(tokens, "temperature", lambda *given, real=tokens.temperature: real(*given) / 2)


def every_token_at_the_whole_epsilon(patch):
    patch.setattr(base, "per_token", lambda epsilon, tokens: epsilon)


def unclipped(patch):
    """The range is the model's own: what it computes moves the probabilities without a bound."""

    def wrong(logits, place, epsilon, low, high):
        scores = np.nan_to_num(logits.astype(np.float64), nan=low).clip(-1e6, 1e6)
        weights = np.exp((scores - scores.max()) / tokens.temperature(epsilon, low, high))
        return int(tokens.at_places(weights, np.array([place]))[0])

    patch.setattr(base, "draw_token", wrong)


def likeliest(patch):
    patch.setattr(base, "draw_token", lambda logits, *more: int(np.nanargmax(logits)))


FAULTS = {
    "half the temperature": half_the_temperature,
    "every token at the epsilon of the text": every_token_at_the_whole_epsilon,
    "logits are not clipped": unclipped,
    "no draw": likeliest,
}
UNITS = {
    "dp-prompt": Unit(partial(drawn, DPPrompt(max_new_tokens=2, logit_range=RANGE)), FAULTS),
    "dp-mlm": Unit(partial(drawn, DPMLM(max_tokens=2, logit_range=RANGE)), FAULTS),
}


@pytest.mark.parametrize("name", UNITS)
def test_rewritten_texts_keep_their_epsilon(name):
    assert UNITS[name].refuted() == []


@pytest.mark.parametrize(("unit", "fault"), planted(UNITS))
def test_a_planted_fault_is_refuted(unit, fault, monkeypatch):
    assert unit.caught(fault, monkeypatch)
