"""What is trained of an inverter: a mapper, and low-rank updates of a frozen language model."""

import inspect
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_dpsynth.devices import Devices, best_dtype
from hf_dpsynth.extras import need
from hf_dpsynth.models.adapters import low_rank
from hf_dpsynth.models.causal_lm import load_pretrained
from hf_dpsynth.models.inverter_examples import Examples, noisy
from hf_dpsynth.models.inverter_folder import InverterConfig, new_mapper, prefixes
from hf_dpsynth.privacy.keys import public_seed

if TYPE_CHECKING:
    from hf_dpsynth.models.inverter_training import InverterTraining

_WHAT = "training an inverter"
