"""The unit audits that belong to a plan: the library's own code, at the parameters of a run.

No private record is read: points and gradients of the audit's own stand for them. So what is found is public, and it
speaks of this library on this machine, not of the run itself. Source: the audits that are called.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent

from hf_dpsynth import registry
from hf_dpsynth.audit.attacks import AttackResult
from hf_dpsynth.audit.findings import Finding
from hf_dpsynth.audit.gradients import audit_gradients
from hf_dpsynth.audit.matrices import audit_words, line
from hf_dpsynth.audit.votes import audit_votes, voting
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word.base import WordMechanism
from hf_dpsynth.mechanisms.word.custext import CusText
from hf_dpsynth.plans import Plan
from hf_dpsynth.privacy.accounting import leaves
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.noise import DiscreteGaussianDpEvent
from hf_dpsynth.privacy.words import ExponentialWordDpEvent, MultivariateLaplaceDpEvent

NAME = "unit audit of the mechanism"
STEP_EPSILON = "step_epsilon_lower"
_NONE = "has no unit audit that its plan alone can run. Pass the real texts for other attacks."
_RUNS, _DRAWS = 2000, 20_000
_OF_CODE = "The code that draws was audited, on points of the audit's own and not on the records of this run."
_SHARED = "{number} kinds of events were audited, which share 1 - confidence."
_OF_A_STEP = "The epsilon is that of one step without sampling, which is more than a step of the run costs."


def audit_plan(plan: Plan, *, confidence: float = 0.99, seed: int = 0) -> AttackResult:
    """Audit the code that draws the noise of a plan.

    Votes by the rates of 2000 sums with and without a record, DP-SGD by a gradient canary, words by 20,000 draws of
    each of four words on a line.

    Args:
        plan (`Plan`): what a run will do or did.
        confidence (`float`, defaults to 0.99): the probability with which right code is not accused, at least,
            by any of the figures.
        seed (`int`, defaults to 0): of the audit's own draws. Public.
    Returns:
        `AttackResult`: a figure for each kind of event that has an audit. Public.
    Raises:
        ConfigError: no event of the plan has one, or the plan has no noise.
    Examples:
        >>> import hf_dpsynth
        >>> from hf_dpsynth.audit import audit_plan
        >>> plan = hf_dpsynth.plan("aug-pe", epsilon=4, delta=1e-6, num_rows=100, params={"iterations": 2})
        >>> found = audit_plan(plan)["epsilon_lower"]
        >>> found.violated, found.uses_private_data
        (False, False)
    """
    claimed = getattr(plan.guarantee, "epsilon", None)
    if claimed is not None and math.isinf(claimed):
        raise ConfigError("the plan has no noise (epsilon is infinite), so there is no claim to audit.")
    audits = [(_audit_of(event), event, count) for event, count in leaves(plan.event).items()]
    made = [(audit, event, count) for audit, event, count in audits if audit is not None]
    if not made:
        raise ConfigError(f"{plan.mechanism} {_NONE}")
    own, shared = 1 - (1 - confidence) / len(made), (_SHARED.format(number=len(made)),) if len(made) > 1 else ()
    found: list[Finding] = []
    for audit, event, count in made:
        one = audit(plan, event, count, own, seed)
        found.append(replace(one, attack=f"unit audit, {one.attack}", limits=(*one.limits, *shared, _OF_CODE)))
    return AttackResult(name=NAME, findings=tuple(found))


def _audit_of(event: DpEvent) -> "Callable[[Plan, DpEvent, int, float, int], Finding] | None":
    if isinstance(event, DiscreteGaussianDpEvent):
        return _votes
    if isinstance(event, PoissonSampledDpEvent) and isinstance(event.event, GaussianDpEvent):
        return _gradients
    return _words if isinstance(event, (MultivariateLaplaceDpEvent, ExponentialWordDpEvent)) else None


def _votes(plan: Plan, event: DpEvent, count: int, confidence: float, seed: int) -> Finding:
    sigma = float(getattr(event, "sigma", math.nan))
    claim = float(getattr(plan.guarantee, "epsilon", math.inf))
    delta = plan.delta or getattr(plan.guarantee, "delta", None) or 1e-5
    sampler = voting(sigma=sigma)
    found = audit_votes(sigma, count, claim, float(delta), _RUNS, confidence, seed=seed, sampler=sampler)
    return replace(found, attack=f"{found.attack}, noise {sigma:.4g}, {count} round{'s' * (count > 1)}")


def _gradients(plan: Plan, event: DpEvent, count: int, confidence: float, seed: int) -> Finding:
    noise = float(getattr(event, "event").noise_multiplier)  # noqa: B009 (typed as a DpEvent)
    found = audit_gradients(
        clip_norm=float(plan.params.get("clip_norm", 1.0)), noise_multiplier=noise, confidence=confidence, seed=seed
    )
    return replace(found, metric=STEP_EPSILON, limits=(*found.limits, _OF_A_STEP))


def _words(plan: Plan, event: DpEvent, count: int, confidence: float, seed: int) -> Finding:
    mechanism = registry.resolve(plan.mechanism, dict(plan.params), "privatize")
    if not isinstance(mechanism, WordMechanism) or isinstance(mechanism, CusText):
        raise ConfigError(f"{plan.mechanism} {_NONE}")
    words, scale, key = line(), float(getattr(event, "epsilon", math.nan)), Key()

    def draw(word: int, size: int, generator: np.random.Generator) -> np.ndarray:
        stream = key.generator("audit", word)
        return np.asarray(mechanism.substitutes((words.words[word],), size, words, scale, lambda place: stream)[0])

    apart = np.abs(words.vectors - words.vectors.T)
    return audit_words(draw, apart, scale, draws=_DRAWS, confidence=confidence, seed=seed)
