"""The reconstruction game of (p, r)-secret protection: an attacker who knows all but the value of a secret guesses it.

The value is one of 1 / p with the same probability. Each value moves all that the rows of the secret may weigh to a
place of its own, and the attacker names the place with most: no other guess is right more often under symmetric noise.
Guessed right more often than r is refuted. Source: the definition of secret protection (Ganesh et al. 2025; Wang et
al. 2025, arXiv:2510.10990).
"""

from collections.abc import Callable

import numpy as np

from hf_dpsynth.audit.findings import Finding, check_confidence
from hf_dpsynth.audit.rates import both_ends
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import check_count, check_seed
from hf_dpsynth.privacy.keys import public_generator
from hf_dpsynth.privacy.secrets import secret_allowance

Release = Callable[[np.ndarray, int, np.random.Generator], np.ndarray]


def audit_secrets(
    release: Release, p: float, r: float, *, games: int = 5000, confidence: float = 0.99, seed: int = 0
) -> Finding:
    """Play the game, and bound how often the value is guessed.

    Power: with 5000 games the bound lies .02 or less below the rate. The attacker does not reach r: at p .1 and r .3
    the right noise gives .267, noise of half the scale .514; at p .01 and r .05 they give .046 and .147. Noise that is
    a fifth too small gives .324 and .063, which 5000 games tell from r at p .01 in most audits only.

    Args:
        release (`Callable`): `release(values, candidates, generator)` returns what the attacker sees of each game,
            shape (games, candidates), for values 0 .. candidates - 1 of shape (games,).
        p (`float`): the probability of each value; 1 / p is a whole number.
        r (`float`): the claimed bound.
        games (`int`, defaults to 5000): how many.
        confidence (`float`, defaults to 0.99): the probability with which a right release is not accused, at least.
        seed (`int`, defaults to 0): of the values, and of the generator that `release` gets. Public.
    Returns:
        `Finding`: `value` is the lower bound on the rate, `interval` both ends.
    Raises:
        ConfigError: p and r are no pair, 1 / p is no whole number, or `release` returns another shape.
    """
    secret_allowance(p, r)
    candidates = round(1 / p)
    if abs(candidates * p - 1) > 1e-9:
        raise ConfigError(f"p is {p}; 1 / p is the number of values, so it must be whole: 0.1, 0.05, 0.01")
    check_count("games", games, 1)
    check_confidence(confidence)
    check_seed(seed)
    values = public_generator(seed, "audit-secrets", "values").integers(candidates, size=games)
    seen = np.asarray(release(values, candidates, public_generator(seed, "audit-secrets", "release")))
    if seen.shape != (games, candidates):
        raise ConfigError(f"release= returned shape {seen.shape}; ({games}, {candidates}) is needed")
    if not np.isfinite(seen).all():
        raise ConfigError("release= returned a number that is not finite, which hides what the attacker sees")
    right = int((seen.argmax(axis=1) == values).sum())
    low, high = both_ends(right, games, confidence)
    return Finding(
        attack="reconstruction of a secret",
        metric="guess_rate_lower",
        value=low,
        interval=(low, high),
        n=games,
        confidence=confidence,
        delta=None,
        claimed=float(r),
        limits=(f"The prior is {p:g} for each of {candidates} values: secret protection, not differential privacy.",),
    )
