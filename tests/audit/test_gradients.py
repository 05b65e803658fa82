"""The gradient canary: the library's step passes, and each planted fault of DP-SGD is named.

1000 steps of 16 places on each side: noise 5 % off is more than 10 standard errors off. All draws are seeded.
"""

from functools import partial

import numpy as np
import pytest

from hf_dpsynth.audit import audit_gradients, audit_steps
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.accounting import epsilon
from hf_dpsynth.privacy.keys import public_generator
from hf_dpsynth.privacy.sgd import PoissonSampling, noisy_mean

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(("clip_norm", "noise_multiplier"), [(1.0, 1.0), (0.1, 3.0)])
def test_the_step_of_the_library_passes(clip_norm, noise_multiplier):
    found = audit_gradients(clip_norm=clip_norm, noise_multiplier=noise_multiplier)
    assert not found.violated and found.faults == () and 0.99 < found.moved <= 1
    assert found.noise_interval[1] / found.noise_interval[0] < 1.03
    assert found.epsilon_lower <= found.claimed and (noise_multiplier > 1 or found.epsilon_lower > 2)
    assert found.as_audit().metric == "step_epsilon_lower", "a push compares the epsilon of a whole run"
    whole = PoissonSampling(num_records=9, batch_size=9, steps=1)
    assert found.claimed == pytest.approx(epsilon(whole.event(noise_multiplier), 1e-5), abs=2e-3)


def unclipped(gradients, parameters, **more):
    """No gradient is clipped, and the noise has its scale."""
    scale = more["noise_multiplier"] * more["clip_norm"] / 1e6
    return noisy_mean(gradients, parameters, **more | {"clip_norm": 1e6, "noise_multiplier": scale})


def without_noise(gradients, parameters, **more):
    return noisy_mean(gradients, parameters, **more | {"noise_multiplier": 0.0})


def less_noise(gradients, parameters, **more):
    return noisy_mean(gradients, parameters, **more | {"noise_multiplier": 0.95 * more["noise_multiplier"]})


def noise_of_the_mean(gradients, parameters, **more):
    """The noise is divided by the batch size twice."""
    return noisy_mean(gradients, parameters, **more | {"noise_multiplier": more["noise_multiplier"] / 8})


def shared(gradients, parameters, **more):
    """Every step, and every worker, draws from the same stream."""
    return noisy_mean(gradients, parameters, **more | {"generator": public_generator(0, "the same")})


def workers(gradients, parameters, **more):
    """Two workers add noise of half the variance each, and draw it from the same stream."""
    clean = noisy_mean(gradients, parameters, **more | {"noise_multiplier": 0.0})
    draws = more["generator"].standard_normal(parameters[0].numel()) * more["noise_multiplier"] * more["clip_norm"]
    noise = torch.from_numpy(draws / np.sqrt(2)).float() / more["batch_size"]
    return [part + noise + noise for part in clean]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (unclipped, "moves the sum by"), (without_noise, "The noise has 0 to 0"),
        (less_noise, "The noise has 0.9"), (noise_of_the_mean, "shows an epsilon of at least"),
        (shared, "Steps share noise"), (workers, "The noise has 1.39"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_named(fault, words):
    found = audit_gradients(fault)
    assert found.violated and any(words in said for said in found.faults), found.faults
    assert words in found.statement() and found.statement().endswith("not a proof")


def along(direction, present, noise_multiplier, number):
    """A step of a training in which a record moves all parameters a little."""
    noise = public_generator(7, "steps", int(present), number).standard_normal(len(direction))
    return present * direction + noise_multiplier * noise


def test_a_record_that_moves_many_parameters_is_read_along_its_direction():
    """200 steps of 400 places: half the noise, and a record twice as long, are found by far."""
    direction = np.full(400, 1 / 20)
    right = audit_steps(partial(along, direction), clip_norm=1.0, noise_multiplier=1.0, steps=200)
    assert right.faults == () and right.moved == pytest.approx(1) and 1 < right.epsilon_lower < right.claimed
    longer = audit_steps(partial(along, 2 * direction), clip_norm=1.0, noise_multiplier=1.0, steps=200)
    assert any("moves the sum by 2 clip norms" in said for said in longer.faults)
    half = partial(along, direction)
    less = audit_steps(
        lambda here, noise, at: half(here, noise / 2, at), clip_norm=1.0, noise_multiplier=1.0, steps=200
    )
    assert any("The noise has" in said for said in less.faults)


def test_the_audit_repeats_and_refuses_what_is_out_of_range():
    assert audit_gradients(steps=50) == audit_gradients(steps=50) != audit_gradients(steps=50, seed=1)
    for wrong in ({"clip_norm": 0.0}, {"noise_multiplier": 0.0}, {"noise_multiplier": float("nan")}, {"steps": 5}):
        with pytest.raises(ConfigError):
            audit_gradients(**wrong)
