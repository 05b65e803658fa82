"""The reconstruction game of (p, r)-secret protection against the counts that a run of sec-pe releases.

Each of 600 labels is a game of its own: three rows hold one secret, whose value decides which of ten clusters they
are nearest to. At p .1 and r .3 the right release lets .267 of the values be guessed and half the noise .514, which
600 games tell from r with probability > .999 at confidence 1 - 1e-6.
"""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from hf_dpsynth.audit import audit_independence, audit_secrets
from hf_dpsynth.mechanisms.base import PublicInputs
from hf_dpsynth.mechanisms.evolution import sec_pe
from hf_dpsynth.mechanisms.evolution.clusters import Clusters
from hf_dpsynth.privacy import secrets
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.privacy.secrets import GRID
from tests.audit.mechanisms.unit import SURE, Unit, noise_over, open_run, planted, shared_by_rounds
from tests.stubs import StubGenerator

P, R, GAMES, HOLDERS = 0.1, 0.3, 600, 3


class Values:
    """Embeds a number as the cluster of that number."""

    def embed(self, texts):
        return np.eye(round(1 / P), dtype=np.float32)[[int(text) for text in texts]]


def counted(params, values, candidates):
    """The noisy counts of all rounds of a run, shape (rounds, games, candidates)."""
    mechanism = sec_pe.SecPE(p=P, r=R, clusters=GAMES * candidates, iterations=4, **params)
    labels = [(game,) for game in range(len(values))]
    texts = [str(value) for value in values for _ in range(HOLDERS)]
    held = [[("name", f"secret {game}")] for game in range(len(values)) for _ in range(HOLDERS)]
    run = open_run()
    evolution = object.__new__(sec_pe._Represented)  # clusters are given: public texts need not be clustered
    evolution.protecting, evolution.sigma, evolution._sums = mechanism, mechanism.noise_multiplier(), None
    evolution.private = PrivateRecords(texts, np.repeat(labels, HOLDERS, axis=0).tolist(), secrets=held)
    evolution.private._labels = [tuple(label) for label in evolution.private._labels]
    evolution.public = PublicInputs(generator=StubGenerator(), embedder=Values())
    evolution.run, evolution.plan = run, SimpleNamespace(labels=labels)
    centres = np.eye(candidates, dtype=np.float32)
    evolution.clusters = Clusters([centres] * len(labels), [np.ones(candidates)] * len(labels), {})
    for number in range(1, mechanism.rounds + 1):
        evolution._release(number)
    return np.array([value for _, _, value in run.ledger.released]).reshape(-1, len(labels), candidates)


def played(**params):
    """The game on the sum of all rounds, and whether rounds share noise."""
    seen = []

    def release(values, candidates, generator):
        seen.append(counted(params, values, candidates))
        return seen[0].sum(axis=0)

    found = [audit_secrets(release, P, R, games=GAMES, confidence=SURE)]
    rounds = seen[0].reshape(len(seen[0]), -1)
    clean = np.median(seen[0])
    return [*found, *([audit_independence(rounds - clean)] if len(rounds) > 1 else [])]


def whole_rows(patch):
    """Every row has one vote, whatever its secret is allowed."""

    def wrong(held, allowances, way):
        return np.full(held.matrix.shape[1], GRID, dtype=np.int64)

    patch.setattr(sec_pe, "secret_weights", wrong)


def one_row_too_much(patch):
    """One row of each secret has a whole vote beside what the others share."""

    def wrong(held, allowances, way, real=sec_pe.secret_weights):
        steps = real(held, allowances, way)
        steps[::HOLDERS] = GRID
        return steps

    patch.setattr(sec_pe, "secret_weights", wrong)


def noise_of_one_round(patch):
    """Each round has the noise of a single release."""
    patch.setattr(sec_pe.SecPE, "noise_multiplier", lambda self: self.norm)
    patch.setattr(sec_pe, "usable_by_kind", lambda pairs, event, real=sec_pe.usable_by_kind: real(pairs, event.event))


ROUNDS = {"release": "each-round", "weights": "closed"}
UNITS = {
    "sec-pe": Unit(
        lambda: [*played(weights="flattened"), *played(**ROUNDS)],
        {
            "half the noise": partial(noise_over, secrets, 2),
            "no noise": partial(noise_over, secrets, 0),
            "rounds share noise": partial(shared_by_rounds, secrets),
            "rows of a whole vote": whole_rows,
            "one vote above the allowance": one_row_too_much,
            "the noise of one round in each": noise_of_one_round,
        },
    )
}


def test_the_counts_of_a_run_keep_the_bound_on_guesses():
    assert UNITS["sec-pe"].refuted() == []


@pytest.mark.parametrize(("unit", "fault"), planted(UNITS))
def test_a_planted_fault_is_refuted(unit, fault, monkeypatch):
    assert unit.caught(fault, monkeypatch)
