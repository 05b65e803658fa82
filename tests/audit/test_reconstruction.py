"""The reconstruction game through the sampler of sec-pe: right noise passes at p .01 to .1, and faults are found."""

import numpy as np
import pytest

from hf_dpsynth.audit import audit_secrets
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.secret_weights import incidence, secret_weights
from hf_dpsynth.privacy.secrets import GRID, SecretGaussianDpEvent, noisy_sums, usable

COUNTS = SecretGaussianDpEvent(1.0, 1.0, GRID)
ROWS = 5


def release(p, r, noise=1.0, weighted=True):
    """Noisy counts of games: in each the secret's rows all move to the place of its value."""
    found = incidence([[("other", "the secret")]] * ROWS)
    steps = secret_weights(found, {"other": usable(p, r, COUNTS)}) if weighted else np.full(ROWS, GRID, dtype=np.int64)

    def seen(values, candidates, generator):
        games = len(values)
        places = np.repeat(np.arange(games) * candidates + values, ROWS)
        event = SecretGaussianDpEvent(noise, 1.0, GRID)
        return noisy_sums(np.tile(steps, games), places, games * candidates, event).reshape(games, candidates)

    return seen


# the rates are .267, .179 and .046, and .514, .420 and .147 with half of the noise: more than 8 standard errors off r
@pytest.mark.parametrize(("p", "r", "games"), [(0.1, 0.3, 2000), (0.05, 0.2, 2000), (0.01, 0.05, 3000)])
def test_right_noise_passes_and_half_of_it_is_refused(p, r, games):
    right = audit_secrets(release(p, r), p, r, games=games)
    assert not right.violated and right.value > 2 * p, "an attacker who learns nothing would test nothing"
    assert audit_secrets(release(p, r, noise=0.5), p, r, games=games).violated


def test_rows_that_are_not_weighted_are_refused():
    found = audit_secrets(release(0.1, 0.3, weighted=False), 0.1, 0.3, games=300)
    assert found.violated and found.value > 0.9 and "not differential privacy" in found.statement()


def test_what_is_no_game_is_refused():
    for arguments, words in (((0.3, 0.4), "1 / p is the number"), ((0.1, 0.05), "0 < p < r"), ((0.1, 1), "r is 1")):
        with pytest.raises(ConfigError, match=words):
            audit_secrets(release(0.1, 0.3), *arguments)
    with pytest.raises(ConfigError, match=r"shape \(2,\)"):
        audit_secrets(lambda *_: np.zeros(2), 0.1, 0.3)
    with pytest.raises(ConfigError, match="not finite"):
        audit_secrets(lambda values, candidates, _: np.full((len(values), candidates), np.nan), 0.1, 0.3, games=9)
