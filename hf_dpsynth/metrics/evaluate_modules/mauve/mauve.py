"""The module that `evaluate.load("hf_dpsynth/mauve")` loads."""

import evaluate  # noqa: F401  (evaluate reads the imports to check that they are installed)

from hf_dpsynth.metrics.evaluation import module

Mauve = module("mauve")
