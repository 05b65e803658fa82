"""The module that `evaluate.load("hf_dpsynth/distinct_n")` loads."""

import evaluate  # noqa: F401  (evaluate reads the imports to check that they are installed)

from hf_dpsynth.metrics.evaluation import module

DistinctN = module("distinct_n")
