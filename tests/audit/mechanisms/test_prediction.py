"""Texts that dp-icl and invisible-ink release, with and without one record, on a model that tells them apart.

The model likes "yes" where the record stands in its prompt and "no" elsewhere, so a token moves as far as it can.
All draws come from fixed keys, so that verdicts repeat.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from hf_dpsynth.audit import audit_independence, audit_sampling, audit_words
from hf_dpsynth.audit.rates import rates_finding
from hf_dpsynth.mechanisms.base import PublicInputs
from hf_dpsynth.mechanisms.planning import plan_synthesis
from hf_dpsynth.mechanisms.prediction import dp_icl, invisible_ink
from hf_dpsynth.privacy import accounting, predictions
from hf_dpsynth.privacy.accounting import leaves
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.records import PrivateRecords
from tests.audit.mechanisms.unit import DELTA, SURE, Unit, open_run, planted
from tests.stubs import StubEmbedder

END, YES, NO, RECORD, OTHERS = 0, 1, 2, 3, 64
VOCABULARY = 124


class Telling:
    """A `TokenModel` of given logits for prompts with the record, for others with a text, and without any."""

    def __init__(self, with_record, without, *, once=False):
        self.start, self.ends, self.context, self.once = [], frozenset([END]), 10_000, once
        self.logits, self.opened = (without, with_record), []

    def generate(self, prompts, **more):
        raise AssertionError("private prediction draws from logits")

    def read(self, texts, most):
        last = [(text.split() or [text])[-1] for text in texts]
        return [[RECORD] if word == "record" else [OTHERS + int(word)] if word.isdigit() else [] for word in last]

    def write(self, tokens):
        words = ["yes" if token == YES else "no" for token in tokens]
        return " ".join(words) + ("\n" if self.once else "")

    def open(self, head, middles, tail, *, most, room):
        self.opened.append([[token for token in middle if token >= RECORD] for middle in middles])
        return Opened(np.array([self.logits[RECORD in middle] for middle in middles]).reshape(-1, len(self.logits[0])))


class Opened:
    def __init__(self, logits):
        self.logits = logits

    def feed(self, token):
        pass


def logits(yes, no, others, size=VOCABULARY):
    made = np.full(size, float(others))
    made[[YES, NO]] = yes, no
    return made


def released(mechanism, model, texts, rows, noise, seed=0, **more):
    """The texts that a run releases, one a charge, and the event of a charge."""
    plan = plan_synthesis(mechanism, epsilon=np.inf, num_rows=rows, **more)
    run = open_run(seed)
    inputs = PublicInputs(generator=model, embedder=StubEmbedder())
    list(mechanism.run(PrivateRecords(texts), inputs, replace(plan, noise_multiplier=noise), run))
    return [value[0] for _, _, value in run.ledger.released], run.ledger.released[0][1]


SHARP = logits(0, -40, -60), logits(-40, 0, -60)
FLAT = logits(9, -40, -60), logits(0.1, 0.2, 0)
TOKENS, TEXTS, SUBSETS = 2, 700, 4


def tokens_of(model, texts, seed):
    mechanism = dp_icl.DPICL(max_new_tokens=TOKENS, subsets=SUBSETS, rate=1.0, top_k=2, texts=TEXTS, force=True)
    made, event = released(mechanism, Telling(*model), texts, TEXTS, 1.0, seed, adjacency="add-remove")
    return np.array([[word == "yes" for word in text.split()] for text in made], dtype=float), event


def told(model):
    """A first token "yes" says that the record is there: of two tokens, that is the best test, at a mu of 1.

    700 texts a side: half the noise (mu 2) reads a mu of 1.45 with a deviation of .07 at confidence 1 - 1e-6.
    """
    sides = [tokens_of(model, texts, seed) for seed, texts in enumerate(([], ["record"]))]
    (token,) = leaves(sides[0][1])
    claim = accounting.epsilon(token, DELTA)
    first = [made[:, 0] for made, _ in sides]
    yield rates_finding(*first, 0.5, attack="tokens", delta=DELTA, confidence=SURE, gaussian=True, claimed=claim)
    bits = sides[0][0].T
    yield audit_independence(bits - bits.mean(axis=1, keepdims=True))


def sampled():
    """Who stands in the prompts of 1400 tokens, by the rate of the event that is charged."""
    mechanism = dp_icl.DPICL(
        max_new_tokens=TOKENS, subsets=SUBSETS, shots=60, rate=0.2, top_k=2, texts=TEXTS, force=True
    )
    model = Telling(*SHARP)
    _, event = released(mechanism, model, [str(number) for number in range(60)], TEXTS, 5.0, adjacency="add-remove")
    (leaf,) = leaves(event)
    prompts = [opened for opened in model.opened if opened != [[]]]
    drawn = np.zeros((len(prompts), 60), dtype=bool)
    for step, opened in enumerate(prompts):
        drawn[step, [token - OTHERS for middle in opened for token in middle]] = True
    return [audit_sampling(drawn, leaf.sampling_probability, SURE)]


def icl_units():
    yield from told(SHARP)
    yield from told(FLAT)
    yield from sampled()


def noise_over(factor, patch):
    real = predictions.SampledPrompts.deviation
    patch.setattr(
        predictions.SampledPrompts, "deviation", lambda self, noise: real(self, noise) / factor if factor else 0.0
    )


def shared_by_tokens(patch):
    """All tokens of a text draw their noise from one place of a stream."""
    patch.setattr(Key, "generator", lambda self, *labels, real=Key.generator: real(self, labels[0]))


def in_every_prompt(patch):
    """A record that is sampled stands in all prompts."""
    real = predictions.SampledPrompts.draw
    patch.setattr(
        predictions.SampledPrompts,
        "draw",
        lambda self, *given: [np.unique(np.concatenate(real(self, *given)))] * self.subsets,
    )


def sums_to_one(patch):
    """The mean over the allowed tokens is made to sum to 1 again: small probabilities count as much as large ones."""

    def wrong(distributions, allowed, real=dp_icl.mean_distribution):
        mean = real(distributions, allowed)
        return mean / mean.sum()

    patch.setattr(dp_icl, "mean_distribution", wrong)


def larger_rate(patch):
    def wrong(self, generator, present, rate, real=predictions.SampledPrompts.draw):
        more = min(1.0, 1.1 * rate)
        return real(replace(self, rate=more), generator, present, more)

    patch.setattr(predictions.SampledPrompts, "draw", wrong)


def fixed_sample(patch):
    """As many records as are expected stand in each sample, in place of a coin for each."""

    def wrong(self, generator, present, rate):
        chosen = generator.permutation(present)[: round(rate * present)]
        return np.array_split(chosen, self.subsets)

    patch.setattr(predictions.SampledPrompts, "draw", wrong)


BATCH, INK_TEXTS = 4, 3000
UNLIKELY = logits(20, 0, -60, size=4), logits(-2, 0, -60, size=4)


def ink(present, seed, size):
    """First tokens of texts of disjoint batches, each of which holds the record or a null in its place."""
    mechanism = invisible_ink.InvisibleInk(max_new_tokens=4, batch_size=BATCH, top_k=2)
    texts = ["record" if present else None] * size
    model = Telling(*UNLIKELY, once=True)
    made, event = released(mechanism, model, texts, size, 2 / (1.5 * np.sqrt(4)), seed, num_records=size)
    return np.array([text == "yes" for text in made], dtype=int), event


def ink_units():
    """One token costs 1.5, twice which is found in 3000 texts: each reads what it can of a logistic law."""
    ((leaf, count),) = leaves(ink(False, 9, 5)[1]).items()
    assert count == 4 and leaf.epsilon == pytest.approx(1.5)

    def draw(present, size, generator):
        return ink(bool(present), present, size)[0]

    return [audit_words(draw, 1.0 - np.eye(2), leaf.epsilon, draws=INK_TEXTS, confidence=SURE)]


def clipped_too_late(patch):
    """The mean of the moves is clipped, and not each of them before it is divided by B."""

    def wrong(self, private, public, bound):
        return public + np.clip((private - public).sum(axis=0) / self.batch_size, -bound, bound)

    patch.setattr(predictions.ClippedLogits, "moved", wrong)


def divided_by_those_present(patch):
    def wrong(self, private, public, bound, real=predictions.ClippedLogits.moved):
        return real(replace(self, batch_size=max(1, len(private))), private, public, bound)

    patch.setattr(predictions.ClippedLogits, "moved", wrong)


def unclipped(patch):
    real = predictions.ClippedLogits.moved
    patch.setattr(predictions.ClippedLogits, "moved", lambda self, *given: real(self, *given[:2], np.inf))


def half_the_temperature(patch):
    real = predictions.ClippedLogits.draw
    patch.setattr(
        predictions.ClippedLogits,
        "draw",
        lambda self, *given: real(replace(self, temperature=self.temperature / 2), *given),
    )


UNITS = {
    "dp-icl": Unit(
        icl_units,
        {
            "half the noise": partial(noise_over, 2),
            "no noise": partial(noise_over, 0),
            "tokens share noise": shared_by_tokens,
            "a record in every prompt": in_every_prompt,
            "the mean sums to 1 again": sums_to_one,
            "a tenth more are sampled": larger_rate,
            "samples of a fixed size": fixed_sample,
        },
    ),
    "invisible-ink": Unit(
        ink_units,
        {
            "clipped too late": clipped_too_late,
            "divided by those present": divided_by_those_present,
            "not clipped": unclipped,
            "half the temperature": half_the_temperature,
        },
    ),
}


@pytest.mark.parametrize("name", UNITS)
def test_released_texts_keep_what_is_charged(name):
    assert UNITS[name].refuted() == []


@pytest.mark.parametrize(("unit", "fault"), planted(UNITS))
def test_a_planted_fault_is_refuted(unit, fault, monkeypatch):
    assert unit.caught(fault, monkeypatch)
