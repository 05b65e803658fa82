"""What all mechanisms share: a field takes one value."""

import numpy as np
import pytest

import hf_dpsynth
from hf_dpsynth.errors import ConfigError


@pytest.mark.parametrize(
    ("mechanism", "name", "values"),
    [
        ("dp-lora", "learning_rate", [1e-4, 1e-3]),
        ("dp-lora", "rank", (4, 8)),
        ("dp-prompt-tuning", "prompt_length", range(5, 20)),
        ("dp-full", "clip_norm", np.array([0.5, 1.0])),
        ("dp-lora", "steps", [100, 200]),
        ("dp-lora", "epochs", [1.0, 2.0]),
        ("dp-lora", "sampling", ["poisson", "shuffle"]),
        ("aug-pe", "iterations", [5, 10]),
        ("aug-pe", "temperature", [0.8, 1.2]),
    ],
)
def test_several_values_of_a_field_are_refused_as_a_search_on_private_data(mechanism, name, values):
    with pytest.raises(ConfigError, match=f"{name} is .*not offered.*downstream.rank.*one PrivacyBudget"):
        hf_dpsynth.plan(mechanism, epsilon=1, delta=1e-6, num_records=1000, num_rows=10, params={name: values})
