"""`dp-lora`, `dp-prompt-tuning`, `dp-full`: tune a causal language model with DP-SGD, then sample from it.

Records become "prefix that names the labels, text, end"; their per-example Prefix-LM losses give per-example
gradients, which `privacy.sgd` samples, clips, adds and noises. Everything after the last step is post-processing:
any number of rows, at any temperature. Source: Kurakin et al. 2023, arXiv:2306.01684. Where we leave the paper:
Poisson batches and their exact accounting, the noisy sum divided by the public expected batch size, a fixed number of
steps instead of early stopping on private data, and label proportions declared or bought instead of read.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dp_accounting import DpEvent

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.base import PublicInputs, Row, check_choice, check_one, check_whole
from hf_dpsynth.mechanisms.finetune.examples import check_template
from hf_dpsynth.mechanisms.rounds import with_labels
from hf_dpsynth.plans import Cost, Facts, Plan
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.privacy.sgd import PoissonSampling, ShuffledBatches
from hf_dpsynth.run import Run
from hf_dpsynth.store import Store

_DEFAULT_EPOCHS = 10.0
_WHOLE = {
    "batch_size": 1, "micro_batch_size": 1, "max_tokens": 4, "max_new_tokens": 1, "top_k": 0, "num_decodes": 1,
    "checkpoint_every": 1, "rank": 1, "prompt_length": 1, "max_contributions": 1,
}  # fmt: skip
_TRACKERS = ("tensorboard", "trackio")
_POSITIVE = ("learning_rate", "clip_norm", "temperature")


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """What the three methods share.

    Of several processes (`torchrun`, `accelerate launch`) each takes every so many-th record and holds the whole
    model. In each step their clipped sums are added up, the first one adds the noise, and all take the same update.
    Further rows are made by each process alone: equal seeds give equal rows.

    Args:
        steps (`int`, *optional*): steps of DP-SGD; instead of `epochs`.
        epochs (`float`, *optional*): expected passes over the declared number of privacy units; 10 when both are
            missing.
        batch_size (`int`, defaults to `256`): expected privacy units in a batch, which the noisy sum is divided by.
        micro_batch_size (`int`, defaults to `16`): records that are computed together; does not change the result.
        learning_rate (`float`, defaults to `1e-3`): of Adam; fixed.
        clip_norm (`float`, defaults to `1.0`): largest norm of a privacy unit's gradient; a user's is the mean of the
            gradients of its records.
        max_contributions (`int`, defaults to `8`): at a user unit, the most records of a user that are read in a step,
            drawn in secret once a process start. Public.
        max_tokens (`int`, defaults to `128`): prefix, text and end together; longer text is cut.
        max_new_tokens (`int`, defaults to `64`): the longest synthetic text.
        temperature (`float`, defaults to `1.0`): of sampling.
        top_k (`int`, defaults to `0`): sample among the likeliest k tokens; 0 samples all.
        num_decodes (`int`, defaults to `1`): texts sampled for a row, of which the likeliest is kept.
        prompt_template (`str`): words with `{column}` for the values of label columns; `column: value` lines and
            `text:` when empty. Public.
        sampling (`str`, defaults to `"poisson"`): `"shuffle"` takes fixed batches, for which no amplification by
            sampling is claimed.
        engine (`str`, defaults to `"auto"`): `"loop"` (one autograd call a record), `"hooks"` (Opacus); auto takes
            hooks, unless the gradients of a micro-batch need more than 1 GiB.
        dtype (`str`, defaults to `"auto"`): `"float32"` or `"bfloat16"` products; auto takes the faster one.
        checkpoint_every (`int`, defaults to `50`): steps in one charge; a killed process loses at most so many.
        report_to (`str` or `Sequence[str]`, defaults to `"none"`): `"tensorboard"`, `"trackio"` or both get, at each
            checkpoint, the learning rate, a bound on epsilon so far and the loss on `public=`, in RUN.private/logs;
            never a figure of private records. Not in the plan: a run may be resumed with another one.
    """

    kind: ClassVar[str] = "synthesize"
    method: ClassVar[str]
    uses_num_records: ClassVar[bool] = True
    units: ClassVar[tuple[str, ...]] = ("record", "user")
    reads_messages: ClassVar[bool] = True
    models_used: ClassVar[tuple[str, ...]] = ("generator",)
    takes: ClassVar[tuple[str, ...]] = ("public",)
    plans_public: ClassVar[bool] = False  # only a loss is shown of it; a resume may pass others
    distributed: ClassVar[bool] = True
    folders: ClassVar[tuple[str, ...]] = ("adapter",)

    steps: int | None = None
    epochs: float | None = None
    batch_size: int = 256
    micro_batch_size: int = 16
    learning_rate: float = 1e-3
    clip_norm: float = 1.0
    max_contributions: int = 8
    max_tokens: int = 128
    max_new_tokens: int = 64
    temperature: float = 1.0
    top_k: int = 0
    num_decodes: int = 1
    prompt_template: str = ""
    sampling: str = "poisson"
    engine: str = "auto"
    dtype: str = "auto"
    checkpoint_every: int = 50
    report_to: str | Sequence[str] = field(default="none", metadata={"planned": False})

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for name, least in _WHOLE.items():
            check_whole(self.name, name, getattr(self, name, least), least)
        for name in _POSITIVE:
            value = getattr(self, name)
            check_one(self.name, name, value)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise ConfigError(f"{self.name}: {name} is {value!r}; it must be a positive number")
        for name, known in (
            ("sampling", ("poisson", "shuffle")),
            ("engine", ("auto", "loop", "hooks")),
            ("dtype", ("auto", "float32", "bfloat16")),
        ):
            check_choice(self.name, name, getattr(self, name), known)
        self._check_length()
        self._check_reports()
        if not isinstance(self.prompt_template, str):
            raise ConfigError(f"{self.name}: prompt_template is no text")
        check_template(self.prompt_template, None)

    def _check_length(self) -> None:
        if self.steps is not None and self.epochs is not None:
            raise ConfigError(f"{self.name}: steps and epochs are both given; pass one of them")
        for name, value, kinds in (("steps", self.steps, int), ("epochs", self.epochs, (int, float))):
            if value is None:
                continue
            check_one(self.name, name, value)
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < math.inf:
                raise ConfigError(
                    f"{self.name}: {name} is {value!r}; it must be a positive number, of steps a whole one"
                )

    def _check_reports(self) -> None:
        """Write the trackers as a tuple, empty for "none"."""
        asked = (self.report_to,) if isinstance(self.report_to, str) else self.report_to
        if not isinstance(asked, (list, tuple)):
            raise ConfigError(f"{self.name}: report_to is {asked!r}; it is a name or a list of names")
        for name in asked:
            check_choice(self.name, "report_to", name, ("none", *_TRACKERS) if len(asked) == 1 else _TRACKERS)
        object.__setattr__(self, "report_to", tuple(name for name in dict.fromkeys(asked) if name != "none"))

    def batches(self, num_records: int) -> PoissonSampling | ShuffledBatches:
        """Return the sampler, which is also the event, for a declared number of records.

        Raises:
            ConfigError: a batch is larger than the data.
        """
        steps = self.steps or math.ceil((self.epochs or _DEFAULT_EPOCHS) * num_records / self.batch_size)
        kind = PoissonSampling if self.sampling == "poisson" else ShuffledBatches
        return kind(num_records=num_records, batch_size=self.batch_size, steps=steps)

    def event(self, noise_multiplier: float, facts: Facts) -> DpEvent:
        """Return all steps and, where proportions are bought, one histogram of labels with 5 % of mu squared."""
        if facts.num_records is None:
            raise ConfigError(f"{self.name} samples batch_size of num_records units. Declare num_records=.")
        steps = self.batches(facts.num_records).event(noise_multiplier)
        return with_labels(steps, noise_multiplier, facts)

    def cost(self, facts: Facts) -> Cost:
        """Return an upper bound on sampling, and on the expected tokens of training."""
        calls = (facts.num_rows or 0) * self.num_decodes
        batches = self.batches(facts.num_records or self.batch_size)
        records = self.max_contributions if facts.unit == "user" else 1
        return Cost(
            lm_calls=calls,
            tokens=calls * self.max_new_tokens,
            training_tokens=batches.steps * self.batch_size * records * self.max_tokens,
        )

    def warnings(self, noise_multiplier: float, epsilon: float, delta: float | None, facts: Facts) -> tuple[str, ...]:
        """Say what a user of fixed batches should know."""
        if self.sampling == "poisson":
            return ()
        return ("sampling='shuffle': no amplification is claimed, so the noise is many times that of 'poisson'.",)

    def prepare(self, public: PublicInputs, plan: Plan, store: Store) -> None:
        """Try the model, its tokenizer, the template and the engine on public texts, before anything is reserved.

        Raises:
            ConfigError: one of them does not fit.
        """
        from hf_dpsynth.mechanisms.finetune.training import prepare

        prepare(self, public, plan, store)

    def run(self, private: PrivateRecords, public: PublicInputs, plan: Plan, run: Run) -> Iterator[Row]:
        """Tune, write the adapter, and yield the rows of the synthetic set."""
        from hf_dpsynth.mechanisms.finetune.training import synthetic_rows

        return synthetic_rows(self, private, public, plan, run)

    def sampler(self, public: PublicInputs, plan: Plan, store: Store) -> Any:
        """Return what makes further rows from the tuned model: post-processing, without a charge.

        Args:
            public (`PublicInputs`): the base model.
            plan (`Plan`): of the release.
            store (`Store`): the run directory that holds what was trained.
        Returns:
            `Callable`: (released rows as pairs of text and label, number of rows, seed) -> rows.
        """
        from hf_dpsynth.mechanisms.finetune.training import further_rows

        return further_rows(self, public, plan, store)


@dataclass(frozen=True, kw_only=True)
class DPLora(FineTuning):
    """Low-rank updates of linear layers, tuned with DP-SGD.

    Args:
        rank (`int`, defaults to `8`): rank of the updates; above 32 little is gained.
        target_modules (`str` or `Sequence[str]`, defaults to `"all-linear"`): layers that get one.
    """

    name: ClassVar[str] = "dp-lora"
    method: ClassVar[str] = "lora"

    rank: int = 8
    target_modules: str | Sequence[str] = "all-linear"

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.target_modules
        if not (isinstance(names, str) or all(isinstance(name, str) for name in names)):
            raise ConfigError(f"dp-lora: target_modules is {names!r}; it is 'all-linear' or names of layers")
        if not isinstance(names, str):
            object.__setattr__(self, "target_modules", tuple(names))


@dataclass(frozen=True, kw_only=True)
class DPPromptTuning(FineTuning):
    """Virtual tokens before the prefix, tuned with DP-SGD.

    Args:
        prompt_length (`int`, defaults to `20`): how many.
        learning_rate (`float`, defaults to `0.01`): of Adam; fixed.
    """

    name: ClassVar[str] = "dp-prompt-tuning"
    method: ClassVar[str] = "prompt-tuning"

    prompt_length: int = 20
    learning_rate: float = 0.01


@dataclass(frozen=True, kw_only=True)
class DPFull(FineTuning):
    """All parameters of the model, tuned with DP-SGD.

    Args:
        learning_rate (`float`, defaults to `1e-4`): of Adam; fixed.
    """

    name: ClassVar[str] = "dp-full"
    method: ClassVar[str] = "full"

    learning_rate: float = field(default=1e-4)
