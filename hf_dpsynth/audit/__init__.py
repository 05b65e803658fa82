"""Audits: what mechanisms do, measured. Empirical: an audit can show that a claim is wrong, never that it is right."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_dpsynth.audit.attacks import AttackResult
    from hf_dpsynth.audit.calibration import Calibration, calibrate
    from hf_dpsynth.audit.canaries import Canaries, audit_canaries, make_canaries
    from hf_dpsynth.audit.deniability import Deniability
    from hf_dpsynth.audit.findings import Finding, Fit
    from hf_dpsynth.audit.gradients import GradientFinding, audit_gradients, audit_steps
    from hf_dpsynth.audit.histograms import audit_histograms
    from hf_dpsynth.audit.inversion import audit_inversion
    from hf_dpsynth.audit.laws import audit_counts, audit_independence, audit_noise, audit_sampling
    from hf_dpsynth.audit.leakage import audit_leakage
    from hf_dpsynth.audit.masks import audit_masks
    from hf_dpsynth.audit.matrices import audit_matrix, audit_words
    from hf_dpsynth.audit.membership import audit_membership
    from hf_dpsynth.audit.neighbours import audit_neighbours
    from hf_dpsynth.audit.planned import audit_plan
    from hf_dpsynth.audit.prompts import audit_prompts
    from hf_dpsynth.audit.rates import RatesFinding
    from hf_dpsynth.audit.reconstruction import audit_secrets
    from hf_dpsynth.audit.repeated import multi_run
    from hf_dpsynth.audit.reruns import repeat_runs
    from hf_dpsynth.audit.secret_matches import audit_secret_matches
    from hf_dpsynth.audit.separation import discrimination
    from hf_dpsynth.audit.steinke import OneRun, one_run
    from hf_dpsynth.audit.votes import audit_votes, voting
    from hf_dpsynth.audit.words import plausible_deniability

__all__ = [
    "AttackResult",
    "Calibration",
    "Canaries",
    "Deniability",
    "Finding",
    "Fit",
    "GradientFinding",
    "OneRun",
    "RatesFinding",
    "audit_canaries",
    "audit_counts",
    "audit_gradients",
    "audit_histograms",
    "audit_independence",
    "audit_inversion",
    "audit_leakage",
    "audit_masks",
    "audit_matrix",
    "audit_membership",
    "audit_neighbours",
    "audit_noise",
    "audit_plan",
    "audit_prompts",
    "audit_sampling",
    "audit_secret_matches",
    "audit_secrets",
    "audit_steps",
    "audit_votes",
    "audit_words",
    "calibrate",
    "discrimination",
    "make_canaries",
    "multi_run",
    "one_run",
    "plausible_deniability",
    "repeat_runs",
    "voting",
]

_ROOMS = {
    "AttackResult": "attacks",
    "discrimination": "separation",
    "Calibration": "calibration",
    "calibrate": "calibration",
    "Canaries": "canaries",
    "make_canaries": "canaries",
    "audit_canaries": "canaries",
    "audit_membership": "membership",
    "repeat_runs": "reruns",
    "Deniability": "deniability",
    "plausible_deniability": "words",
    "Finding": "findings",
    "Fit": "findings",
    "RatesFinding": "rates",
    "audit_votes": "votes",
    "voting": "votes",
    "OneRun": "steinke",
    "one_run": "steinke",
    "multi_run": "repeated",
    "audit_plan": "planned",
    "audit_noise": "laws",
    "audit_counts": "laws",
    "audit_independence": "laws",
    "audit_sampling": "laws",
    "audit_matrix": "matrices",
    "audit_words": "matrices",
    "audit_histograms": "histograms",
    "audit_secrets": "reconstruction",
    "audit_leakage": "leakage",
    "audit_neighbours": "neighbours",
    "audit_secret_matches": "secret_matches",
    "audit_prompts": "prompts",
    "audit_inversion": "inversion",
    "audit_masks": "masks",
    "GradientFinding": "gradients",
    "audit_gradients": "gradients",
    "audit_steps": "gradients",
}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ROOMS[name]}"), name)
