"""DP-SGD: who is in a batch, what a record may contribute, and the noise, each beside the event that accounts for it.

One step samples every record alone with a public probability (Poisson), clips each record's gradient, adds them in
float32, adds Gaussian noise once and divides by the public expected batch size. An empty batch is a step like any
other: it releases noise. Fixed-size batches are not offered; shuffled ones have an event of their own, which claims no
amplification. A user is drawn and clipped as a record is: `units` makes one gradient of all of its records.
Source: Abadi et al. 2016, arXiv:1607.00133, Algorithm 1; Kurakin et al. 2023, arXiv:2306.01684.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dp_accounting import DpEvent, GaussianDpEvent, NonPrivateDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.extras import need
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.processes import Processes

if TYPE_CHECKING:
    import torch

_WHAT = "DP-SGD"
_BELOW = 1 - 1e-5  # clip a little below C, so that rounding in float32 never lifts a record above it


@dataclass(frozen=True, kw_only=True)
class PoissonSampling:
    """Every record enters a batch alone with probability `batch_size / num_records`. Sampler and event are one object.

    Args:
        num_records (`int`): the declared number of records. Public.
        batch_size (`int`): the expected number of records in a batch, at most `num_records`. Public.
        steps (`int`): batches that are drawn. Public.
    Raises:
        ConfigError: a number is out of range, or a batch is larger than the data.
    """

    num_records: int
    batch_size: int
    steps: int

    def __post_init__(self) -> None:
        for name in ("num_records", "batch_size", "steps"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not value >= 1:
                raise ConfigError(f"{name} is {value!r}; it must be a whole number >= 1")
        if self.batch_size > self.num_records:
            raise ConfigError(
                f"batch_size is {self.batch_size} and the data has {self.num_records} privacy units; a batch has at "
                "most as many. Lower batch_size."
            )

    @property
    def probability(self) -> float:
        """The probability that a record is in a batch."""
        return self.batch_size / self.num_records

    def step_event(self, noise_multiplier: float) -> DpEvent:
        """Return the event of one step; 0 means no noise."""
        if noise_multiplier == 0:
            return NonPrivateDpEvent()
        return PoissonSampledDpEvent(self.probability, GaussianDpEvent(float(noise_multiplier)))

    def event(self, noise_multiplier: float) -> DpEvent:
        """Return the event of all steps; 0 means no noise."""
        return SelfComposedDpEvent(self.step_event(noise_multiplier), self.steps)

    def event_until(self, noise_multiplier: float, stop: int) -> DpEvent:
        """Return the event of the first steps."""
        return SelfComposedDpEvent(self.step_event(noise_multiplier), stop)

    def blocks(self, length: int) -> Iterator[tuple[int, int]]:
        """Yield start and stop of blocks of steps that are charged together."""
        for start in range(0, self.steps, length):
            yield start, min(start + length, self.steps)

    def block_event(self, noise_multiplier: float, start: int, stop: int) -> tuple[DpEvent, int]:
        """Return the event of a block of steps, and how often it happens."""
        return self.step_event(noise_multiplier), stop - start

    def batch(self, key: Key, step: int, present: int, *, rank: int = 0) -> np.ndarray:
        """Draw the records of one step. Sensitive: who is in a batch is as secret as the noise.

        Args:
            key (`Key`): secret randomness of this process start.
            step (`int`): the number of the step.
            present (`int`): records that this process holds. Sensitive.
            rank (`int`): the number of the process, which draws for its own records.
        Returns:
            `np.ndarray`: positions in 0 .. present - 1, ascending, int64.
        """
        draws = key.generator("poisson", rank, step).random(present)
        return np.flatnonzero(draws < self.probability)


@dataclass(frozen=True, kw_only=True)
class ShuffledBatches:
    """Batches of a fixed size from a secret order of the records, anew each epoch: no amplification is claimed.

    Each record is in at most `ceil(steps * batch_size / num_records)` batches of one pass each, so the event is as
    many Gaussian releases, under zero-out.

    Args:
        num_records (`int`): the declared number of records. Public.
        batch_size (`int`): records in a batch. Public.
        steps (`int`): batches that are drawn. Public.
    """

    num_records: int
    batch_size: int
    steps: int

    def __post_init__(self) -> None:
        PoissonSampling(num_records=self.num_records, batch_size=self.batch_size, steps=self.steps)

    @property
    def per_epoch(self) -> int:
        """The number of batches in an epoch, the last one smaller."""
        return math.ceil(self.num_records / self.batch_size)

    @property
    def epochs(self) -> int:
        """The number of epochs that are begun."""
        return math.ceil(self.steps / self.per_epoch)

    def step_event(self, noise_multiplier: float) -> DpEvent:
        """Return the event of one epoch, in which a record is in one batch; 0 means no noise."""
        return NonPrivateDpEvent() if noise_multiplier == 0 else GaussianDpEvent(float(noise_multiplier))

    def event(self, noise_multiplier: float) -> DpEvent:
        """Return the event of all steps; 0 means no noise."""
        return SelfComposedDpEvent(self.step_event(noise_multiplier), self.epochs)

    def event_until(self, noise_multiplier: float, stop: int) -> DpEvent:
        """Return the event of the first steps."""
        return SelfComposedDpEvent(self.step_event(noise_multiplier), math.ceil(stop / self.per_epoch))

    def blocks(self, length: int) -> Iterator[tuple[int, int]]:
        """Yield start and stop of the epochs: a resumed process draws another order, so an epoch is never split."""
        for start in range(0, self.steps, self.per_epoch):
            yield start, min(start + self.per_epoch, self.steps)

    def block_event(self, noise_multiplier: float, start: int, stop: int) -> tuple[DpEvent, int]:
        """Return the event of an epoch, and that it happens once."""
        return self.step_event(noise_multiplier), 1

    def batch(self, key: Key, step: int, present: int) -> np.ndarray:
        """Return the records of one step, ascending, int64. Sensitive.

        The slots of an epoch are the declared ones: a record beyond `num_records` would have none.

        Raises:
            PrivacyError: more records are present than were declared.
        """
        if present > self.num_records:
            raise PrivacyError("more records are present than num_records declares. Declare the true number.")
        epoch, place = divmod(step, self.per_epoch)
        order = key.generator("shuffle", epoch).permutation(self.num_records)
        slots = np.sort(order[place * self.batch_size : (place + 1) * self.batch_size])
        kept: np.ndarray = slots[slots < present]
        return kept


class ClippedSum:
    """The sum of the records' gradients, each clipped to a norm, in float32.

    Args:
        shapes (`Sequence[torch.Size]`): the shape of each parameter.
        clip_norm (`float`): C, the largest L2 norm of a record's whole gradient, over all parameters.
        device (`torch.device`): where the sum lies.
    Sensitivity:
        L2 <= C under add-remove and zero-out, <= 2 C under replace-one.
    """

    def __init__(self, shapes: Sequence["torch.Size"], clip_norm: float, device: "torch.device") -> None:
        self._torch = need("torch", extra="models", what=_WHAT)
        if not 0 < clip_norm < math.inf:
            raise ConfigError(f"clip_norm is {clip_norm}; it is a positive number")
        self.clip_norm = clip_norm
        self.sums = [self._torch.zeros(shape, dtype=self._torch.float32, device=device) for shape in shapes]

    def add(self, gradients: Sequence["torch.Tensor"]) -> None:
        """Clip the gradients of some records and add them. A gradient that is not finite counts as zero.

        Args:
            gradients (`Sequence[torch.Tensor]`): for each parameter shape (b, *shape): row i is record i's gradient
                of its own loss. Sensitive.
        Raises:
            PrivacyError: a parameter's gradients are not one for each record.
        """
        torch = self._torch
        count = len(gradients[0])
        for gradient, total in zip(gradients, self.sums, strict=True):
            if gradient.shape != (count, *total.shape):
                raise PrivacyError(
                    f"per-record gradients have shape {tuple(gradient.shape)}; ({count}, *{tuple(total.shape)}) is "
                    "needed: this model couples the records of a batch"
                )
        if not count:
            return
        squares = sum(gradient.detach().float().flatten(1).square().sum(1) for gradient in gradients)
        norms = squares.sqrt()
        finite = torch.isfinite(norms)
        factors = torch.where(finite, (self.clip_norm * _BELOW / norms).clamp(max=1.0), 0.0)
        for gradient, total in zip(gradients, self.sums, strict=True):
            rows = gradient.detach().float()
            if not bool(finite.all()):  # 0 x NaN is NaN: the whole record is replaced, not scaled
                rows = torch.where(finite.view(-1, *[1] * (rows.dim() - 1)), rows, torch.zeros_like(rows))
            total += torch.einsum("b,b...->...", factors, rows)

    def noised(self, noise_multiplier: float, generator: np.random.Generator) -> Iterator["torch.Tensor"]:
        """Yield each parameter's sum plus Gaussian noise of standard deviation `noise_multiplier * clip_norm`.

        The event is a Gaussian of this noise multiplier. Drawn once a step, in double precision, then rounded to
        float32 (`float_safe=false`).

        Args:
            noise_multiplier (`float`): noise per unit of sensitivity; 0 adds none (epsilon infinite).
            generator (`np.random.Generator`): a secret stream of `keys.Key`.
        """
        if not 0 <= noise_multiplier < math.inf:
            raise ConfigError(f"noise_multiplier is {noise_multiplier}; it is 0 or a positive number")
        for total in self.sums:
            if noise_multiplier == 0:
                yield total
                continue
            draws = generator.standard_normal(total.numel()) * (noise_multiplier * self.clip_norm)
            noise = self._torch.from_numpy(draws).to(total.device, self._torch.float32)
            yield total + noise.view_as(total)


def noisy_mean(
    gradients: Iterable[Sequence["torch.Tensor"]],
    parameters: Sequence["torch.Tensor"],
    *,
    clip_norm: float,
    noise_multiplier: float,
    batch_size: int,
    generator: np.random.Generator,
    processes: Processes | None = None,
) -> list["torch.Tensor"]:
    """Return the noisy gradient of a batch: clip, add, noise once, divide by the public expected batch size.

    The event is a Gaussian of this noise multiplier, Poisson-sampled where the batch was. An empty batch gives noise.
    Several processes each bring the records of their shard; their sums are added and the first one draws the noise.

    Args:
        gradients (`Iterable[Sequence[torch.Tensor]]`): micro-batches of the records' gradients, for each parameter of
            shape (b, *shape). Sensitive.
        parameters (`Sequence[torch.Tensor]`): what is trained, for shapes and device. Public.
        clip_norm (`float`): the largest L2 norm of a record's whole gradient.
        noise_multiplier (`float`): noise per unit of sensitivity; 0 adds none.
        batch_size (`int`): the expected number of records in a batch. Public.
        generator (`np.random.Generator`): a secret stream of `keys.Key`, fresh for each step.
        processes (`Processes`, *optional*): those that hold disjoint records; this one alone when missing.
    Returns:
        `list[torch.Tensor]`: float32, of the shapes of the parameters, the same in every process. Public once it is
            accounted for.
    Sensitivity:
        before the noise, L2 <= clip_norm / batch_size under add-remove and zero-out.
    """
    total = ClippedSum([parameter.shape for parameter in parameters], clip_norm, parameters[0].device)

    def fill() -> None:
        for micro_batch in gradients:
            total.add(micro_batch)

    noisy = (processes or Processes()).summed(total.sums, fill, lambda: total.noised(noise_multiplier, generator))
    return [part / batch_size for part in noisy]
