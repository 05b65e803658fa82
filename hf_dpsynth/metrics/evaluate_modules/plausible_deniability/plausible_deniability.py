"""The module that `evaluate.load("hf_dpsynth/plausible_deniability")` loads."""

import evaluate  # noqa: F401  (evaluate reads the imports to check that they are installed)

from hf_dpsynth.metrics.evaluation import module

PlausibleDeniability = module("plausible_deniability")
