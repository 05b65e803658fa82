"""What a text costs: the law of what comes out, over a vocabulary of four tokens, whatever a model computes."""

import itertools
import math
from collections import Counter
from functools import partial

import numpy as np
import pytest
from scipy.stats import chi2

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.rewrite import base
from hf_dpsynth.mechanisms.rewrite.dp_mlm import DPMLM
from hf_dpsynth.mechanisms.rewrite.dp_prompt import DPPrompt
from hf_dpsynth.privacy.keys import Key

LETTERS = "abcd"
INF, NAN = float("inf"), float("nan")
ODD = {
    "one": [1e9, -1e9, 0, 0], "other": [-1e9, 1e9, 0, 0], "lost": [NAN, NAN, NAN, NAN], "far": [INF, -INF, NAN, 3],
    "back": [-INF, INF, INF, -3], "plain": [0.5, -1, 2, 1], "even": [0, 0, 0, 0],
}  # fmt: skip


class Given:
    """A model of four tokens whose logits are given for each text, at each step more by what was drawn before it."""

    id = "given"

    def __init__(self, logits, moved=0.0, length=2):
        self.logits, self.moved, self.length = logits, moved, length

    def _drawn(self, text, number, steps, draw):
        made = ""
        for step in range(steps):
            row = np.array(self.logits[text], dtype=np.float32)
            row[0] += self.moved * made.count("a")
            made += LETTERS[draw(number, step, row)]
        return made

    def continued(self, texts, template, most, count, draw):
        return [self._drawn(text, number, count, draw) for number, text in enumerate(texts)]

    def redrawn(self, texts, template, most, draw):
        return [self._drawn(text, number, min(self.length, most), draw) for number, text in enumerate(texts)]


class At:
    """A stream whose uniforms are known."""

    def __init__(self, place):
        self.place = place

    def random(self, count):
        return np.full(count, self.place)


def streams(seed=0):
    generator = Key.from_insecure_seed(seed).generator("all")
    return lambda row: generator


def softmax(logits, epsilon, low, high):
    logits = np.array(logits, dtype=float)
    scores = np.clip(logits - logits.max(), low, high) * epsilon / (2 * (high - low))
    return np.exp(scores) / np.exp(scores).sum()


def differs(counts, probabilities):
    """Pearson's chi-square at level 1e-6; 12k texts find a 10 % wrong temperature with probability > 0.999."""
    expected = counts.sum() * probabilities
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1) < 1e-6


@pytest.mark.parametrize(
    "mechanism", [DPPrompt(max_new_tokens=2, logit_range=(-3, 0)), DPMLM(max_tokens=2, logit_range=(-3, 0))]
)
def test_a_text_comes_out_with_the_product_of_the_probabilities_of_its_tokens(mechanism):
    model = Given(ODD, moved=1.5)
    made = Counter(mechanism.privatize(["plain"] * 12_000, model, 12.0, streams()))
    outputs = ["".join(pair) for pair in itertools.product(LETTERS, repeat=2)]
    counts = np.array([made[output] for output in outputs])
    assert counts.sum() == 12_000

    def law(epsilon):
        found = []
        for first, second in itertools.product(range(4), repeat=2):
            later = [ODD["plain"][0] + 1.5 * (first == 0), *ODD["plain"][1:]]
            one, other = (softmax(logits, epsilon / 2, -3, 0) for logits in (ODD["plain"], later))
            found.append(one[first] * other[second])
        return np.array(found)

    assert not differs(counts, law(12.0))
    for wrong in (10.8, 13.2):
        assert differs(counts, law(wrong))


def exact(mechanism, text, epsilon):
    """The law of the first token of a text: a draw is monotone in its place, so bisection finds the edges."""
    below, above = np.zeros(3), np.ones(3)
    for _ in range(50):
        middle = (below + above) / 2
        made = mechanism.privatize([text] * 3, Given(ODD), epsilon, lambda row, middle=middle: At(middle[row]))
        found = np.array([LETTERS.index(output[0]) for output in made])
        below = np.where(found <= np.arange(3), middle, below)
        above = np.where(found <= np.arange(3), above, middle)
    return np.diff([0, *below, 1])


def largest_loss(mechanism, epsilon):
    """The largest log-ratio between any two of the texts; infinite where one of them cannot give a token."""
    laws = [exact(mechanism, text, epsilon) for text in ODD]
    with np.errstate(divide="ignore"):
        logs = np.log(np.stack(laws).clip(0, 1))
    return max(column.max() - column.min() if np.isfinite(column.max()) else 0.0 for column in logs.T)


MECHANISMS = [partial(DPPrompt, max_new_tokens=2), partial(DPMLM, max_tokens=2)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("range_", [(-10.0, 0.0), (-3.0, -1.0), (-5.0, 5.0)])
def test_no_two_texts_differ_by_more_than_the_loss_of_a_token(mechanism, range_):
    for epsilon in (2.0, 12.0):
        assert largest_loss(mechanism(logit_range=range_), epsilon) <= epsilon / 2 + 1e-9
    assert largest_loss(mechanism(logit_range=range_), 2.0) > 0.6 * 2.0 / 2 or range_ == (-5.0, 5.0)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_same_check_finds_logits_that_are_not_clipped(mechanism, monkeypatch):
    def unclipped(logits, place, epsilon, low, high):
        return draw(logits * (high - low) / 1e12, place, epsilon * 1e12 / (high - low), -1e12, 0.0)

    draw = base.draw_token
    monkeypatch.setattr(base, "draw_token", unclipped)
    assert largest_loss(mechanism(), 4.0) > 10


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_null_stays_null_and_blank_texts_are_drawn_like_others(mechanism):
    asked = []

    def stream(row):
        asked.append(row)
        return streams()(row)

    logits = {"": [1, 0, 0, 0], "x": [0, 1, 0, 0]}
    made = mechanism().privatize([None, "", "x", None], Given(logits), INF, stream)
    assert made == [None, "aa", "bb", None] and asked == [1, 2]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_guarantee_says_what_a_text_and_a_token_cost(mechanism):
    found = mechanism().guarantee(100)
    assert (found.epsilon, found.unit) == (100, "text")
    assert "epsilon 100 per text" in found.statement() and "2 tokens at epsilon 50 each" in found.statement().replace(
        "as many tokens as it has, at most 2,", "2 tokens"
    )
    event = mechanism().event(100)
    assert (event.epsilon, event.tokens) == (50.0, 2)
    assert "no privacy" in " ".join(mechanism().guarantee(math.inf).assumptions)
    assert ("number of tokens of each text" in found.statement()) == (mechanism.func is DPMLM)


@pytest.mark.parametrize("mechanism", [DPPrompt, DPMLM])
def test_wrong_fields_are_refused(mechanism):
    for params, words in [
        ({"prompt_template": "no place"}, "must hold {text} once"),
        ({"prompt_template": "{text} {text}"}, "must hold {text} once"),
        ({"prompt_template": ["{text}", "a {text}"]}, "takes one value"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_tokens": 4097}, "at most 4096"),
        ({"logit_range": (0, 0)}, "logit_range is"),
        ({"logit_range": (0, NAN)}, "logit_range is"),
        ({"logit_range": (-INF, 0)}, "logit_range is"),
        ({"logit_range": (0, 1, 2)}, "logit_range is"),
        ({"logit_range": 7}, "logit_range is"),
        ({"logit_range": ("0", "1")}, "logit_range is"),
    ]:
        with pytest.raises(ConfigError, match=words):
            mechanism(**params)
    assert mechanism(logit_range=[-4, 0]).logit_range == (-4.0, 0.0)
    with pytest.raises(ConfigError, match="max_new_tokens"):
        DPPrompt(max_new_tokens=True)
    for epsilon in (0.0, NAN, -1.0):
        with pytest.raises(ConfigError, match="epsilon is"):
            mechanism().privatize(["secret"], Given(ODD), epsilon, streams())
