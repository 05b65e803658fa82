"""The module that `evaluate.load("hf_dpsynth/self_bleu")` loads."""

import evaluate  # noqa: F401  (evaluate reads the imports to check that they are installed)

from hf_dpsynth.metrics.evaluation import module

SelfBleu = module("self_bleu")
