"""DP-SGD on records, charged block by block: charge, steps, checkpoint, commit.

A block of steps is charged before its first batch is drawn and committed after its checkpoint lies on disk. A process
that is killed inside a block loses that block: its steps stay charged and are not repeated. Checkpoints hold
parameters and the state of Adam, both functions of noisy sums, so a checkpoint is as public as the model; no key, no
draw and no loss of a record is in it. Of several processes the first one charges, writes and commits; nothing that is
kept depends on their number, so a run may go on in another.
"""

import io
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_dpsynth.compute import per_example
from hf_dpsynth.errors import ConfigError, PrivacyError, ResumeMismatch
from hf_dpsynth.extras import need
from hf_dpsynth.logging import get_logger, progress_bar
from hf_dpsynth.mechanisms.base import PublicInputs, Row, label_shares, largest_remainder
from hf_dpsynth.mechanisms.finetune import reports
from hf_dpsynth.mechanisms.finetune.chat import ChatEncoder
from hf_dpsynth.mechanisms.finetune.examples import Encoder, Example
from hf_dpsynth.mechanisms.finetune.generation import TunedModel, written
from hf_dpsynth.mechanisms.finetune.model_card import model_card
from hf_dpsynth.mechanisms.finetune.public_loss import PublicLoss, held_out
from hf_dpsynth.mechanisms.finetune.trainable import Trainable
from hf_dpsynth.mechanisms.rounds import planned_noise
from hf_dpsynth.models.causal_lm import CausalLM
from hf_dpsynth.plans import Label, Plan
from hf_dpsynth.privacy.keys import public_generator
from hf_dpsynth.privacy.records import PrivateRecords
from hf_dpsynth.privacy.sgd import PoissonSampling, noisy_mean
from hf_dpsynth.privacy.units import capped, unit_means
from hf_dpsynth.run import Run
from hf_dpsynth.store import Store, file_digest, write_whole

if TYPE_CHECKING:
    import torch

    from hf_dpsynth.mechanisms.finetune.tuning import FineTuning

ADAPTER = "adapter"
_CHECKPOINTS = "checkpoints"
_CHECK_TEXTS = ("a", "a short text", "a longer text that says a little more than the other two, and ends here")

logger = get_logger(__name__)


def prepare(mechanism: "FineTuning", public: PublicInputs, plan: Plan, store: Store) -> None:
    """Try what is public of a run, before anything of it is reserved or charged.

    Raises:
        ConfigError: the model, its tokenizer, the template, the engine, `public` or `report_to` do not fit.
    """
    reports.check(mechanism.report_to, store)
    trainable = trainable_of(mechanism, public, plan)
    encoder = encoder_of(mechanism, trainable, plan)
    held_out(public, plan, encoder)
    engine_of(mechanism, trainable, encoder).close()


def synthetic_rows(
    mechanism: "FineTuning", private: PrivateRecords, public: PublicInputs, plan: Plan, run: Run
) -> Iterator[Row]:
    """Tune the base model, write what was trained, and yield the planned rows in a public random order."""
    if plan.num_rows is None or plan.num_records is None or plan.noise_multiplier is None:
        raise ConfigError(f"{mechanism.name} needs num_rows= and num_records=")
    here, store = run.devices, run.store
    trainable = here.together(lambda: trainable_of(mechanism, public, plan))
    encoder = here.together(lambda: encoder_of(mechanism, trainable, plan))
    watched = here.together(lambda: held_out(public, plan, encoder))
    here.lead(lambda: reports.check(mechanism.report_to, store))
    sizes = largest_remainder(plan.num_rows, label_shares(private, plan, run, planned_noise(plan)))
    if here.lead(lambda: not (store.folder / ADAPTER).exists()):
        Training(mechanism, private, plan, run, trainable, encoder, watched).fit()
        here.lead(lambda: store.write_folder(ADAPTER, lambda folder: _save(trainable, plan, folder)))
        shutil.rmtree(store.folder / _CHECKPOINTS, ignore_errors=True)
    else:
        trainable.restore(here.lead(lambda: trainable.read(store.folder / ADAPTER)))
    tuned = here.together(lambda: TunedModel(trainable, encoder, mechanism))
    wanted = _repeated(sizes)
    texts = written(
        run, len(wanted), tuned.block, lambda start, stop: tuned.sample(wanted[start:stop], plan.seed, start)
    )
    for position in public_generator(plan.seed, "row order").permutation(len(texts)).tolist():
        yield _row(plan, wanted[position], texts[position])


def further_rows(
    mechanism: "FineTuning", public: PublicInputs, plan: Plan, store: Store
) -> Callable[[Sequence[tuple[str, Label]], int, int], Iterator[Row]]:
    """Return what makes further rows, in the shares of the released ones, from what was trained."""
    folder = store.folder / ADAPTER
    # a temporary folder goes away with the run: then the parameters stay in memory
    held = None if store.kept else trainable_of(mechanism, public, plan).read(folder)

    def sample(released: Sequence[tuple[str, Label]], num_rows: int, seed: int) -> Iterator[Row]:
        trainable = trainable_of(mechanism, public, plan)
        trainable.restore(trainable.read(folder) if held is None else held)
        tuned = TunedModel(trainable, encoder_of(mechanism, trainable, plan), mechanism)
        counts = Counter(label for _, label in released)
        sizes = largest_remainder(num_rows, [float(counts[label]) for label in plan.labels])
        wanted = _repeated(sizes)
        for start in range(0, len(wanted), tuned.block):
            block = wanted[start : start + tuned.block]
            for number, text in zip(block, tuned.sample(block, seed, start, stream="more"), strict=True):
                yield _row(plan, number, text)

    return sample


def _save(trainable: Trainable, plan: Plan, folder: Path) -> None:
    """Write what was trained, and a model card that carries the guarantee."""
    trainable.save(folder)
    held = zip(trainable.parameters, trainable.read(folder), strict=True)
    if not all(ours.detach().cpu().equal(theirs.cpu()) for ours, theirs in held):
        raise PrivacyError("what was saved is not what was trained. The installed torch and peft do not fit.")
    (folder / "README.md").write_text(model_card(plan, trainable.base_id), encoding="utf-8")


def _repeated(sizes: Sequence[int]) -> list[int]:
    """Return the number of each label as often as it has rows."""
    return [number for number, size in enumerate(sizes) for _ in range(size)]


def _row(plan: Plan, label: int, text: str) -> Row:
    return {plan.text_column: text, **dict(zip(plan.label_columns, plan.labels[label], strict=True))}


def trainable_of(mechanism: "FineTuning", public: PublicInputs, plan: Plan) -> Trainable:
    """Return the base model with fresh parameters to train.

    Raises:
        ConfigError: the generator is no local model.
    """
    name = getattr(public.generator, "model", None)
    if not isinstance(public.generator, CausalLM) or not isinstance(name, str):
        raise ConfigError(
            f"{mechanism.name} tunes a local causal language model; generator= is a short name, a folder or a Hub id."
        )
    return Trainable(
        name,
        method=mechanism.method,
        rank=getattr(mechanism, "rank", 0),
        target_modules=getattr(mechanism, "target_modules", ""),
        prompt_length=getattr(mechanism, "prompt_length", 0),
        dtype=None if mechanism.dtype == "auto" else mechanism.dtype,
        seed=plan.seed,
    )


def encoder_of(mechanism: "FineTuning", trainable: Trainable, plan: Plan) -> Encoder:
    """Return the rules by which records become examples."""
    kind = ChatEncoder if plan.messages else Encoder
    return kind(trainable.tokenizer, mechanism.prompt_template, plan.label_columns, plan.labels, mechanism.max_tokens)


def engine_of(mechanism: "FineTuning", trainable: Trainable, encoder: Encoder) -> per_example.Engine:
    """Return the engine, after its gradients of public examples were compared with plain autograd."""
    labels = len(encoder.prefixes)
    texts = [encoder.sample(text) for text in _CHECK_TEXTS]
    public = [encoder.example(number % labels, text) for number, text in enumerate(texts)]
    return per_example.checked_engine(
        mechanism.engine,
        trainable.module,
        trainable.losses,
        public,
        micro_batch_size=mechanism.micro_batch_size,
        rough=trainable.rough,
    )


class Training:
    """One run of DP-SGD. Holds private records, in memory only.

    Args:
        mechanism (`FineTuning`): the hyper-parameters.
        private (`PrivateRecords`): the records. Sensitive.
        plan (`Plan`): fixes sampling, steps and noise.
        run (`Run`): ledger, store and secret randomness.
        trainable (`Trainable`): what is trained, in place.
        encoder (`Encoder`): records as examples.
        public (`Sequence[Example]`): held-out public examples, whose loss is reported.
    """

    def __init__(
        self,
        mechanism: "FineTuning",
        private: PrivateRecords,
        plan: Plan,
        run: Run,
        trainable: Trainable,
        encoder: Encoder,
        public: Sequence[Example] = (),
    ) -> None:
        self._torch = need("torch", extra="models", what="fine-tuning")
        self._mechanism, self._plan, self._run = mechanism, plan, run
        self._trainable, self._encoder = trainable, encoder
        self._batches = mechanism.batches(plan.num_records or 0)
        self._sigma = plan.noise_multiplier or 0.0
        # every process caps all units and trains on its own, so that no unit is in two of them
        self._units = capped(private.by_unit(plan.labels), mechanism.max_contributions, run.keys)
        self._shard = self._units[run.devices.rank :: run.devices.world_size]
        self._public_loss = PublicLoss(trainable.losses, public, mechanism.micro_batch_size)
        self._parameters = trainable.parameters
        self._optimizer = self._torch.optim.Adam(self._parameters, lr=mechanism.learning_rate)

    def fit(self) -> None:
        """Run every block of steps that was not charged before, from the last checkpoint on."""
        here, ledger = self._run.devices, self._run.ledger
        blocks = list(self._batches.blocks(self._mechanism.checkpoint_every))
        states = here.lead(lambda: [ledger.state(_key(*block)) for block in blocks])
        committed = [block for block, state in zip(blocks, states, strict=True) if state == "committed"]
        fresh = [block for block, state in zip(blocks, states, strict=True) if state is None]
        if committed:
            self._resume(_key(*committed[-1]))
        if not fresh:
            return
        engine, before = here.together(self._engine), self._trainable.state()
        bar = progress_bar(total=self._batches.steps, initial=fresh[0][0], desc=self._mechanism.name, unit="step")
        with reports.Reports(self._mechanism.report_to, self._plan, self._run, self._public_loss) as report:
            for start, stop in fresh:
                event, count = self._batches.block_event(self._sigma, start, stop)
                here.lead(partial(ledger.steps, _key(start, stop), event, count))
                for step in range(start, stop):
                    self._step(engine, step)
                    bar.update()
                here.lead(partial(self._commit, _key(start, stop)))
                bar.set_postfix_str(report.checkpoint(stop, shown=not bar.disable))
        bar.close()
        engine.close()
        here.together(lambda: self._check_moved(before))

    def _check_moved(self, before: list["torch.Tensor"]) -> None:
        """Refuse to release a model that did not learn: some versions of libraries train nothing and say nothing."""
        after = self._trainable.parameters
        if all(self._torch.equal(old, new) for old, new in zip(before, after, strict=True)):
            raise PrivacyError("no parameter moved in training. The installed torch, peft and opacus do not fit.")
        if not all(bool(self._torch.isfinite(new).all()) for new in after):
            raise PrivacyError("a parameter is not finite after training. Lower learning_rate.")

    def _engine(self) -> per_example.Engine:
        """Return the engine, checked, and say which one it is."""
        engine = engine_of(self._mechanism, self._trainable, self._encoder)
        logger.info("%s computes per-example gradients with engine=%r", self._mechanism.name, engine.name)
        return engine

    def _step(self, engine: per_example.Engine, step: int) -> None:
        """Take one step: draw, clip, add, noise, divide by the public expected batch size, update."""
        noisy = noisy_mean(
            self._gradients(engine, step),
            self._parameters,
            clip_norm=self._mechanism.clip_norm,
            noise_multiplier=self._sigma,
            batch_size=self._mechanism.batch_size,
            generator=self._run.keys.generator("sgd-noise", step),
            processes=self._run.devices,
        )
        for parameter, gradient in zip(self._parameters, noisy, strict=True):
            parameter.grad = gradient.to(parameter.dtype)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def _gradients(self, engine: per_example.Engine, step: int) -> Iterator[Sequence["torch.Tensor"]]:
        """Yield the gradients of this process's units of a step, drawn when the first of them is asked for."""
        units = sorted(
            (self._examples(self._shard[place]) for place in self._drawn(step)), key=lambda unit: len(unit[-1].tokens)
        )
        examples = [example for unit in units for example in unit]
        yield from unit_means(engine.gradients(examples), [len(unit) for unit in units])

    def _examples(self, records: Sequence[tuple[int, str]]) -> list[Example]:
        """Return the examples of a unit's records, the longest last."""
        return sorted((self._encoder.example(*record) for record in records), key=lambda one: len(one.tokens))

    def _drawn(self, step: int) -> Iterable[int]:
        """Return the places of a step's units in this process's shard. Sensitive."""
        here, keys = self._run.devices, self._run.keys
        if isinstance(self._batches, PoissonSampling):
            return self._batches.batch(keys, step, len(self._shard), rank=here.rank)
        # one secret order for all, of which each process takes its own
        slots = here.lead(partial(self._batches.batch, keys, step, len(self._units)))
        mine: Iterable[int] = slots[slots % here.world_size == here.rank] // here.world_size
        return mine

    def _commit(self, key: str) -> None:
        """Write the checkpoint of a block, commit it, and take those before it away."""
        self._run.ledger.commit(key, {"sha256": self._checkpoint(key)})
        self._prune(key)

    def _checkpoint(self, key: str) -> str:
        """Write parameters and optimizer, and return the digest."""
        folder = self._run.store.folder / _CHECKPOINTS
        folder.mkdir(exist_ok=True)
        buffer = io.BytesIO()
        state = {"parameters": self._trainable.state(), "optimizer": self._optimizer.state_dict()}
        self._torch.save(state, buffer)
        path = folder / f"{key}.pt"
        write_whole(path, buffer.getvalue())
        return file_digest(path)

    def _prune(self, key: str) -> None:
        """Take the checkpoints before a committed one away."""
        for path in (self._run.store.folder / _CHECKPOINTS).glob("*.pt"):
            if path.stem != key:
                path.unlink()

    def _resume(self, key: str) -> None:
        """Go back to the last committed checkpoint."""
        state = self._run.devices.lead(partial(self._read, key))
        self._trainable.restore(state["parameters"])
        self._optimizer.load_state_dict(state["optimizer"])

    def _read(self, key: str) -> dict[str, Any]:
        """Return what a committed checkpoint holds."""
        path = self._run.store.folder / _CHECKPOINTS / f"{key}.pt"
        held = self._run.ledger.value(key)
        if not path.exists() or file_digest(path) != held["sha256"]:
            raise ResumeMismatch(f"{path} is gone or changed; without it this run cannot resume. Pass another out=.")
        # on the CPU, from where every process puts it on a device of its own
        found: dict[str, Any] = self._torch.load(path, weights_only=True, map_location="cpu")
        return found


def _key(start: int, stop: int) -> str:
    return f"steps-{start + 1:06d}-{stop:06d}"
