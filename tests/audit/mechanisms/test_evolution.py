"""Votes and picks of aug-pe, dp-eda and sentdp-select, as their own rounds release them.

Votes: four rounds at a mu of 1.5 together, 400 runs, confidence 1 - 1e-6. A record that votes twice, noise of half the
scale and noise divided by the root of the rounds (mu 3) read a mu of 2.11 with a deviation of .10: of 20,000 simulated
audits none passes. A right mechanism reads .83 and is accused in one of a million at most; noise of OpenDP takes no
seed.
"""

import math
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pytest
from dp_accounting import SelfComposedDpEvent

from hf_dpsynth.audit import audit_counts, audit_histograms, audit_independence, audit_matrix, audit_votes
from hf_dpsynth.audit.histograms import limited_domain_law
from hf_dpsynth.mechanisms.base import PublicInputs
from hf_dpsynth.mechanisms.evolution import aug_pe, dp_eda, eda_run, sentdp_select
from hf_dpsynth.mechanisms.planning import plan_synthesis
from hf_dpsynth.privacy import accounting, limited_domain, selection
from hf_dpsynth.privacy.accounting import leaves
from hf_dpsynth.privacy.records import PrivateRecords
from tests.audit.mechanisms.unit import DELTA, SURE, Unit, noise_over, open_run, planted, shared_by_rounds
from tests.stubs import StubGenerator

ROUNDS, RUNS, LABELS, SIGMA = 4, 400, 100, 4 / 3


VOTES = ("here", "here", "here", "there", "there", "far")


class Places:
    """Embeds a text at the place that its first word names."""

    def embed(self, texts):
        return np.eye(4, dtype=np.float32)[
            ["here there far".split().index(text) if text in VOTES else 3 for text in texts]
        ]


def inputs(embedder, texts=()):
    return PublicInputs(generator=StubGenerator(), embedder=embedder, dataset=texts)


def planned(mechanism, noise, labels=1, **more):
    """A plan with so much noise, for so many labels of equal shares."""
    names = [(number,) for number in range(labels)]
    given = {"epsilon": math.inf, "num_rows": 3 * labels, "label_columns": ("label",)} | more
    delta = given.pop("delta", None)
    made = plan_synthesis(mechanism, labels=names, proportions=[1 / labels] * labels, **given)
    return replace(made, noise_multiplier=noise, delta=delta)


def records(plan, texts):
    """The same records in each label."""
    return PrivateRecords([text for _ in plan.labels for text in texts], [own for own in plan.labels for _ in texts])


def aug_pe_rounds(plan, private, run, rounds):
    """So many votes of an `aug-pe` run on two candidates of each label."""
    mechanism = aug_pe.AugPE(iterations=ROUNDS)
    evolution = aug_pe._Votes(mechanism, private, inputs(Places()), plan, run)
    evolution.bounds = list(range(0, 2 * len(plan.labels) + 1, 2))
    for number in range(1, rounds + 1):
        evolution.vote(number, "population", ["here", "there"] * len(plan.labels))


def dp_eda_rounds(plan, private, run, rounds):
    """The same of a `dp-eda` run."""
    search = eda_run.Search(dp_eda.DPEDA(iterations=ROUNDS), private, inputs(Places()), plan, run)
    for step in range(1, rounds + 1):
        search._vote(step, [""] * len(plan.labels), [["here", "there"]] * len(plan.labels))


def voted(mechanism, rounds):
    """Each label is a run of its own, several times; epsilon is that of what is charged."""
    plan, noise, charged = planned(mechanism, SIGMA, LABELS), [], set()

    def sampled(present, size, generator):
        run = open_run()
        texts = ["here", "there", "there", *(["here"] if present else [])]
        rounds(plan, records(plan, texts), run, max(1, size // LABELS))
        charged.update(event for _, event, _ in run.ledger.released)
        votes = np.array([[own[1][0] for own in value] for _, _, value in run.ledger.released])
        noise.append(votes[:ROUNDS] - votes[:ROUNDS].mean(axis=1, keepdims=True))
        return votes.reshape(-1, ROUNDS, LABELS).transpose(0, 2, 1).ravel()

    sampled(True, LABELS * ROUNDS, None)  # to see what is charged
    (event,) = charged
    claim = accounting.epsilon(SelfComposedDpEvent(event, ROUNDS), DELTA)
    votes = audit_votes(SIGMA, ROUNDS, claim, DELTA, RUNS, SURE, sampler=sampled)
    assert len(charged) == 1
    return [votes, *map(audit_independence, noise)]


def twice(patch):
    patch.setattr(selection.nearest, "votes", lambda rows, group, real=selection.nearest.votes: 2 * real(rows, group))


VOTING_FAULTS = {
    "a record votes twice": twice,
    "half the noise": partial(noise_over, selection, 2),
    "noise of all rounds in each": partial(noise_over, selection, math.sqrt(ROUNDS)),
    "no noise": partial(noise_over, selection, 0),
    "rounds share noise": partial(shared_by_rounds, selection),
}

DRAWN = 100


def limited(adjacency):
    """1000 picks of a run of labels with equal votes, by law, and the law of the event that is charged."""
    mechanism = dp_eda.DPEDA(selection=dp_eda.LIMITED, iterations=10, parents=1, domain=2)
    plan = planned(mechanism, 0.65, DRAWN, delta=0.2, adjacency=adjacency)
    run = open_run()
    search = eda_run.Search(mechanism, records(plan, VOTES), inputs(Places()), plan, run)
    for step in range(1, mechanism.iterations + 1):
        search._vote(step, [""] * DRAWN, [["here", "there", "far"]] * DRAWN)
    picked = [tuple(own[0]) for _, _, value in run.ledger.released for own in value]
    (event,) = {event for _, event, _ in run.ledger.released}

    def law(votes):
        return limited_domain_law(votes, event, mechanism.domain, DRAWN)

    outputs = sorted(law((3, 2, 1)))
    counts = np.array([picked.count(output) for output in outputs] + [len(picked)])
    counts[-1] -= counts[:-1].sum()
    return [
        audit_histograms(law, adjacency, event.epsilon, event.delta),
        audit_counts(counts, np.array([law((3, 2, 1))[output] for output in outputs] + [0.0])),
    ]


def low_threshold(patch):
    patch.setattr(limited_domain, "threshold", lambda event, labels=1: float(event.moves))


def never_empty(patch):
    def wrong(votes, picks, domain, margin, scale, generator, real=limited_domain._picked):
        while not (found := real(votes, picks, domain, margin, scale, generator)):
            pass
        return found

    patch.setattr(limited_domain, "_picked", wrong)


def less_gumbel(patch):
    def wrong(votes, picks, domain, margin, scale, generator, real=limited_domain._picked):
        return real(votes, picks, domain, margin, scale / 2, generator)

    patch.setattr(limited_domain, "_picked", wrong)


def one_move(patch):
    def wrong(noise, picks, delta, adjacency, real=dp_eda.limited_domain_event):
        return real(noise, picks, delta, "add-remove")

    patch.setattr(dp_eda, "limited_domain_event", wrong)


class Line:
    """Embeds a number at its place on a line."""

    def embed(self, texts):
        return np.array([[float(text), 0.0] for text in texts], dtype=np.float32)


PUBLIC = ["1", "3", "3.1", "3.2", "3.3", "3.4"]
NEIGHBOURS = ["-2"] * 5 + ["2"] * 2, ["-2"] * 5 + ["2"] * 3


def picked_by_depth(texts, again, labels, picks, seed):
    """What a run of `sentdp-select` picks, and the depths and the event behind it."""
    mechanism = sentdp_select.SentDPSelect(projections=3, again=again, picks=picks)
    plan = planned(mechanism, 2.0, labels, num_rows=labels * picks)
    public = inputs(Line(), [(label, text) for label in plan.labels for text in PUBLIC])
    run, private = open_run(seed), records(plan, texts)
    list(mechanism.run(private, public, plan, run))
    ((_, event, value),) = run.ledger.released
    depths = mechanism.depths(private, public, plan, [PUBLIC])[0] if labels == 1 else None
    return np.concatenate(value).astype(int), depths, event


def depth_units():
    """20,000 picks with and 1000 without putting back: noise of half the scale is refuted by far."""
    found, laws = [], []
    for side, texts in enumerate(NEIGHBOURS):
        many, depths, event = picked_by_depth(texts, True, 1, 20_000, side)
        single = np.concatenate([picked_by_depth(texts, False, 100, 1, 10 * side + seed)[0] for seed in range(10)])
        ((leaf, count),) = leaves(event).items()
        assert count == 20_000
        laws.append(np.exp(depths * leaf.epsilon) / np.exp(depths * leaf.epsilon).sum())
        found += [audit_counts(np.bincount(places, minlength=6), laws[-1]) for places in (many, single)]
    return [audit_matrix(np.array(laws), np.ones((2, 2)), leaf.epsilon), *found]


def double_depth(patch):
    patch.setattr(sentdp_select, "tukey_depths", lambda *given, real=sentdp_select.tukey_depths: 2 * real(*given))


def noise_of_picks_over(factor, patch):
    def wrong(generator, scores, noise, count, real=sentdp_select.picks, **more):
        return real(generator, scores, noise / factor if factor else 0.0, count, **more)

    patch.setattr(sentdp_select, "picks", wrong)


UNITS = {
    "aug-pe": Unit(lambda: voted(aug_pe.AugPE(iterations=ROUNDS), aug_pe_rounds), VOTING_FAULTS),
    "dp-eda gaussian-top-k": Unit(lambda: voted(dp_eda.DPEDA(iterations=ROUNDS), dp_eda_rounds), VOTING_FAULTS),
    "dp-eda limited-domain": Unit(
        lambda: chain.from_iterable(map(limited, ("add-remove", "replace-one"))),
        {
            "a threshold too low": low_threshold,
            "an empty output is drawn again": never_empty,
            "half the noise of picks": less_gumbel,
            "a replacement accounted as one move": one_move,
        },
    ),
    "sentdp-select": Unit(
        depth_units,
        {
            "a record counts twice": double_depth,
            "half the sensitivity": partial(noise_of_picks_over, 2),
            "no noise": partial(noise_of_picks_over, 0),
        },
    ),
}


@pytest.mark.parametrize("name", UNITS)
def test_the_rounds_of_a_mechanism_release_what_they_charge_for(name):
    assert UNITS[name].refuted() == []


@pytest.mark.parametrize(("unit", "fault"), planted(UNITS))
def test_a_planted_fault_is_refuted(unit, fault, monkeypatch):
    assert unit.caught(fault, monkeypatch)
