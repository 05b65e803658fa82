"""DP-on-real: a downstream model trained on the real rows themselves with DP-SGD, the rival of synthetic rows.

The same core as the mechanisms: Poisson batches and their event are one object, each row's gradient is clipped, noise
is added once a step, and the sum is divided by the public expected batch size. The guarantee is of one fit, for the
rows of the training split as it was handed over. Source: Kurakin et al. 2023, arXiv:2306.01684, section 5.1 and
Appendix I, which we leave where it reads private rows without an account: the number of steps is fixed, no row is set
aside, nothing stops early, no vocabulary is counted, no loss is logged, and there is no sweep.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from hf_dpsynth.compute import per_example
from hf_dpsynth.devices import Devices
from hf_dpsynth.downstream.base import DownstreamModel, FittedModel
from hf_dpsynth.downstream.examples import Examples
from hf_dpsynth.downstream.private_models import Learner, fetch, learner, note, supports
from hf_dpsynth.downstream.sources import DP_ON_REAL, Source, in_short
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.guarantees import ApproxDP
from hf_dpsynth.mechanisms.planning import check_delta
from hf_dpsynth.privacy.accounting import calibrate
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.sgd import PoissonSampling, noisy_mean

if TYPE_CHECKING:
    import torch

ADJACENCY = "zero-out"  # the sampling probability is a function of the number of rows
_ASSUMPTIONS = ("the number of training rows and the names of the classes are public, not protected",)
_CHECK_TEXTS = ("a", "a good film", "one of the longer texts, which says a little more than the other two did")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What is fixed before the first row is drawn. Public.

    Args:
        sampling (`PoissonSampling`): batches and their event.
        noise_multiplier (`float`): noise per unit of sensitivity; 0 for none.
        guarantee (`ApproxDP`): what one fit promises.
    """

    sampling: PoissonSampling
    noise_multiplier: float
    guarantee: ApproxDP


@dataclass(frozen=True, kw_only=True)
class DPOnReal:
    """Options of a fit on real rows with DP-SGD and Adam.

    Choosing them by the test figures of private rows is a selection that the guarantee does not cover; choose them on
    synthetic or public rows.

    Args:
        epsilon (`float`): the privacy loss of one fit; infinite for the same training without noise.
        delta (`float` or `"1/n"`, *optional*): its delta; min(1e-5, 1/(n ln n)) rounded down to a power of ten when
            missing, for at least 1000 training rows.
        steps (`int`): steps, all of which are taken.
        batch_size (`int`): expected rows a step.
        clip_norm (`float`): largest L2 norm of a row's gradient.
        learning_rate (`float`): Adam's step.
        engine (`str`): "loop", "hooks", or "auto": hooks, where their gradients need at most 1 GiB.
        micro_batch_size (`int`): rows that `hooks` computes together.
        vectors (`str`): the word CNN's vocabulary and frozen vectors: a short name of the catalogue, or a file.

    Examples:
        >>> from hf_dpsynth.downstream import DPOnReal
        >>> DPOnReal(epsilon=1.0, steps=100).schedule(5000).guarantee.delta
        1e-05
    """

    epsilon: float = 3.0
    delta: float | str | None = None
    steps: int = 300
    batch_size: int = 256
    clip_norm: float = 1.0
    learning_rate: float = 5e-3
    engine: str = "auto"
    micro_batch_size: int = 32
    vectors: str = "glove-50d"

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise ConfigError(f"epsilon is {self.epsilon}; it is a positive number, or infinite for no noise")
        if self.delta not in (None, "1/n") and (isinstance(self.delta, str) or not 0 < (self.delta or 0) < 1):
            raise ConfigError(f"delta is {self.delta!r}; it lies between 0 and 1, or is '1/n'")
        for name in ("steps", "batch_size", "micro_batch_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not value >= 1:
                raise ConfigError(f"{name} is {value!r}; it is a whole number of at least 1")
        for name in ("clip_norm", "learning_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}; it is a positive number")
        if self.engine not in ("auto", "loop", "hooks"):
            raise ConfigError(f"engine is {self.engine!r}; it is 'auto', 'loop' or 'hooks'")

    def sampling(self, num_records: int) -> PoissonSampling:
        """Return the batches for a public number of training rows.

        Raises:
            ConfigError: a batch is larger than the data.
        """
        return PoissonSampling(num_records=num_records, batch_size=self.batch_size, steps=self.steps)

    def guarantee(self, num_records: int) -> ApproxDP:
        """Return what one fit on so many training rows promises.

        Raises:
            ConfigError: `delta` is missing and there are too few rows for its default.
        """
        delta = 0.0 if math.isinf(self.epsilon) else check_delta(self.delta, self.epsilon, num_records) or 0.0
        return ApproxDP(epsilon=self.epsilon, delta=delta, neighbours=ADJACENCY, assumptions=_ASSUMPTIONS)

    def schedule(self, num_records: int) -> Schedule:
        """Fix batches, noise and guarantee for a public number of training rows. Reads no rows.

        Raises:
            ConfigError: a batch is larger than the data, `delta` is missing, or no noise reaches `epsilon`.
        """
        sampling, guarantee = self.sampling(num_records), self.guarantee(num_records)
        if math.isinf(self.epsilon):
            return Schedule(sampling=sampling, noise_multiplier=0.0, guarantee=guarantee)
        multiplier = calibrate(sampling.event, self.epsilon, guarantee.delta, adjacency=ADJACENCY)
        return Schedule(sampling=sampling, noise_multiplier=multiplier, guarantee=guarantee)

    def fit(self, model: DownstreamModel, train: Examples, *, seed: int = 0) -> FittedModel:
        """Train a model on real rows.

        Args:
            model (`DownstreamModel`): `WordCNN` or `Classifier`. Its own epochs, batch size, learning rate, decay,
                patience and validation share are not used.
            train (`Examples`): the training rows. Their number, rows that were skipped included, is taken as public:
                a neighbour has one row without a text in the place of another. Sensitive.
            seed (`int`): seed of the public stream of the first weights. Batches and noise are secret.
        Returns:
            `FittedModel`: its trained weights keep `schedule(...).guarantee`; what it says of private texts does not.
        Raises:
            ConfigError: the model cannot be trained so, a batch is larger than the data, or `delta` is missing.
            AssetError: the encoder or the vectors could not be fetched.
        """
        schedule = self.schedule(declared(train))
        Devices.current().limit_threads()
        training = Training(self, schedule, learner(model, train, vectors=self.vectors, seed=seed), train, Key())
        return training.fit()


def declared(train: Examples) -> int:
    """Return the number of records that is taken as public: rows without a text or a label keep their place."""
    return len(train) + train.skipped


class Training:
    """One run of DP-SGD. Holds private rows, in memory only.

    Args:
        options (`DPOnReal`): clip norm, learning rate and engine.
        schedule (`Schedule`): batches and noise.
        trained (`Learner`): what is trained, in place.
        train (`Examples`): the rows. Sensitive.
        key (`Key`): secret randomness, fresh for each fit.
    """

    def __init__(self, options: DPOnReal, schedule: Schedule, trained: Learner, train: Examples, key: Key) -> None:
        self._torch = need("torch", extra="models", what=DP_ON_REAL)
        self._options, self._schedule, self._learner, self._key = options, schedule, trained, key
        self._rows = list(zip(trained.encode(train.texts), train.labels.tolist(), strict=True))

    def fit(self) -> FittedModel:
        """Take every step and return the model."""
        public = [(encoded, 0) for encoded in self._learner.encode(_CHECK_TEXTS)]
        engine = per_example.checked_engine(
            self._options.engine,
            self._learner.network,
            self._learner.losses,
            public,
            micro_batch_size=self._options.micro_batch_size,
        )
        optimizer = self._torch.optim.Adam(engine.parameters, lr=self._options.learning_rate)
        for step in range(self._schedule.sampling.steps):
            chosen = self._schedule.sampling.batch(self._key, step, len(self._rows))
            gradients = self.gradients(engine, [self._rows[row] for row in chosen], step)
            for parameter, gradient in zip(engine.parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        engine.close()
        self._learner.network.eval()
        return self._learner.fitted

    def gradients(
        self, engine: per_example.Engine, batch: Sequence[tuple[Any, int]], step: int
    ) -> list["torch.Tensor"]:
        """Return the noisy gradient of a batch for each parameter; an empty batch gives noise alone.

        Args:
            engine (`Engine`): computes the gradients of each row.
            batch (`Sequence[tuple[Any, int]]`): inputs and labels. Sensitive.
            step (`int`): the number of the step, which names its stream of noise.
        Sensitivity:
            before the noise, L2 <= clip_norm / batch_size under zero-out.
        """
        return noisy_mean(
            engine.gradients(batch),
            engine.parameters,
            clip_norm=self._options.clip_norm,
            noise_multiplier=self._schedule.noise_multiplier,
            batch_size=self._schedule.sampling.batch_size,
            generator=self._key.generator("sgd-noise", step),
        )


@dataclass(frozen=True)
class _PrivatelyTrained:
    """A downstream model whose fit is one of DP-SGD."""

    model: DownstreamModel
    options: DPOnReal

    reads_all_rows: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Return the public name of the model."""
        return self.model.name

    def repeats(self, asked: int) -> int:
        """Return the number of fits: one a seed."""
        return asked

    def fit(self, train: Examples, *, seed: int = 0) -> FittedModel:
        """Train with DP-SGD."""
        return self.options.fit(self.model, train, seed=seed)


@dataclass(frozen=True, eq=False, repr=False)
class PrivateSource(Source):
    """The real training rows as DP-SGD reads them.

    Args:
        options (`DPOnReal`): how a model is trained on them.
    """

    options: DPOnReal

    @classmethod
    def of(cls, real: Source, options: DPOnReal) -> "PrivateSource":
        """Return the source of these options."""
        try:
            guarantee = in_short(options.guarantee(declared(real.examples)))
        except ConfigError:
            guarantee = ""  # each line of this source says why it is not run
        return cls(DP_ON_REAL, guarantee, real.examples, real.test_copies, options)

    def trainer(self, model: DownstreamModel) -> DownstreamModel:
        """Return a model that is fitted with DP-SGD."""
        return _PrivatelyTrained(model, self.options)

    def notes(self, model: DownstreamModel) -> tuple[str, ...]:
        """Return what a reader must know about a model's line."""
        if not supports(model):
            return ()
        claim = (
            f"{DP_ON_REAL}: the guarantee is of one fit on the training split; {_ASSUMPTIONS[0]}; several fits "
            "together cost more, and figures on real test rows are not covered"
        )
        no_noise = (f"{DP_ON_REAL}: no noise, so no guarantee",)
        return note(model, self.options.vectors), *(no_noise if math.isinf(self.options.epsilon) else (claim,))


def check_baselines(baselines: Sequence[DPOnReal], models: Sequence[DownstreamModel], most_records: int) -> None:
    """Refuse what shows before anything is split, made or spent, and fetch what training will need.

    Args:
        baselines (`Sequence[DPOnReal]`): options.
        models (`Sequence[DownstreamModel]`): the models of a study.
        most_records (`int`): the training rows are at most so many. Taken as public.
    Raises:
        ConfigError: something else stands among the options, a batch is larger than the data, or `delta` is missing.
        AssetError: something could not be fetched.
    """
    for options in baselines:
        if not isinstance(options, DPOnReal):
            raise ConfigError(f"real_baselines= holds a {type(options).__name__}; it holds instances of DPOnReal.")
        options.sampling(most_records)
        options.guarantee(most_records)
        for model in models:
            fetch(model, options.vectors)
