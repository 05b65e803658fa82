"""What every finding says, and that a release which it refutes cannot be pushed."""

import dataclasses
import math
import traceback

import numpy as np
import pytest

from hf_dpsynth import audit
from hf_dpsynth.audit.findings import Finding, check_delta
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.publish.cumulative import LOWER_BOUND, refuted
from hf_dpsynth.release import Audit

RNG = np.random.default_rng(0)
COINS = RNG.integers(0, 2, 200).astype(bool)
FOUND = [
    audit.one_run(COINS + 0.1 * RNG.standard_normal(200), COINS, 1e-5, 0.95, claimed_epsilon=1.0),
    audit.multi_run(RNG.standard_normal(100), RNG.standard_normal(100) + 4, 1e-5, 0.95),
    audit.audit_votes(1.0, 2, 1.0, 1e-5, 100, 0.99),
    audit.audit_noise(RNG.standard_normal(100), lambda x: 0 * x + 0.5),
    audit.audit_matrix(np.array([[0.6, 0.4], [0.4, 0.6]]), np.ones((2, 2)), 1.0),
]


@pytest.mark.parametrize("found", FOUND, ids=lambda found: found.attack)
def test_a_finding_is_frozen_says_what_it_rests_on_and_that_it_is_no_proof(found):
    said = found.statement()
    assert said.endswith("not a proof") and found.attack in said and f"n = {found.n}" in said
    assert f"confidence {found.confidence:.8g}" in said and found.metric in said
    assert (found.delta is None) == ("delta" not in said)
    assert ("refuted" in said) == (found.claimed is not None or found.metric == "p_value")
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.value = 0.0


def test_a_claim_below_a_bound_is_refuted_and_the_statement_says_so():
    values = {"attack": "a", "metric": "epsilon_lower", "interval": None, "n": 9, "confidence": 0.9, "delta": 0.1}
    above, below, none = (Finding(value=2.0, claimed=claimed, **values) for claimed in (3.0, 1.0, None))
    assert (above.violated, below.violated, none.violated) == (False, True, False)
    assert "claim of 3 is not refuted" in above.statement() and "claim of 1 is refuted" in below.statement()
    assert "claim" not in none.statement()


def test_an_entry_of_a_release_has_the_metric_that_a_push_looks_at_and_json_can_hold_it():
    one = FOUND[0].as_audit()
    assert isinstance(one, Audit) and one.metric == LOWER_BOUND == "epsilon_lower"
    assert (
        one.value <= FOUND[0].epsilon_lower < one.value * 1.001
        and one.ci is None
        and one.uses_private_data
        and not one.accounted
    )
    assert not FOUND[0].as_audit(uses_private_data=False).uses_private_data
    for claimed, expected in ((one.value - 0.1, 1), (one.value + 0.1, 0)):
        assert (
            len(refuted({"parameters": {"epsilon": claimed, "metric_dp": None}, "audit": [dataclasses.asdict(one)]}))
            == expected
        )
    exact = FOUND[4].as_audit()
    assert exact.ci == (exact.value, exact.value) and not exact.uses_private_data


SECRET = "zqsecret is a private text"


@pytest.mark.parametrize(
    "attack",
    [
        lambda: audit.one_run([SECRET] * 20, COINS[:20], 1e-5, 0.95),
        lambda: audit.multi_run([SECRET] * 20, range(20), 1e-5, 0.95),
        lambda: audit.multi_run(range(20), [SECRET] * 20, 1e-5, 0.95),
        lambda: audit.discrimination([SECRET] * 20, range(20), attack="a"),
    ],
)
def test_texts_that_are_passed_for_scores_are_not_shown(attack):
    with pytest.raises(ConfigError, match="something else than numbers") as caught:
        attack()
    assert "zqsecret" not in "".join(traceback.format_exception_only(caught.value))
    assert caught.value.__suppress_context__, "numpy's own message shows the text"


@pytest.mark.parametrize("bad", [math.nan, -1.0])
def test_a_claim_that_is_none_is_refused_and_not_held_for_kept(bad):
    law, apart = np.array([[0.9, 0.1], [0.1, 0.9]]), np.ones((2, 2))
    for wrong in (
        lambda: audit.one_run(COINS + 0.0, COINS, 1e-5, 0.95, claimed_epsilon=bad),
        lambda: audit.multi_run(range(20), range(50, 70), 1e-5, 0.95, claimed_epsilon=bad),
        lambda: audit.audit_matrix(law, apart, bad),
        lambda: audit.audit_matrix(law, bad * apart, 1.0),
        lambda: audit.audit_words(lambda word, size, _: np.full(size, word), apart, bad, draws=10),
        lambda: audit.audit_words(lambda word, size, _: np.full(size, word), bad * apart, 1.0, draws=10),
        lambda: audit.audit_histograms(lambda _: {(): 1.0}, "add-remove", bad, 0.01),
    ):
        with pytest.raises(ConfigError, match=r"claim|distances|epsilon"):
            wrong()


@pytest.mark.parametrize("bad", [0, 1, -0.1, 1.5, math.nan, True, None, "0.9"])
def test_a_confidence_that_is_none_is_refused(bad):
    with pytest.raises(ConfigError, match="confidence is"):
        audit.one_run([0.0, 1.0], [False, True], 1e-5, bad)


@pytest.mark.parametrize("bad", [1, -0.1, math.nan, True, None, "0"])
def test_a_delta_that_is_none_is_refused(bad):
    with pytest.raises(ConfigError, match="delta is"):
        check_delta(bad)
    with pytest.raises(ConfigError, match="delta is"):
        audit.multi_run(np.arange(20), np.arange(20), bad, 0.9)
