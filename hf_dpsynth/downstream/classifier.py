"""Any encoder of transformers, fine-tuned to classify with `transformers.Trainer`.

The rows may be private, so nothing of them outlives a fit: they are tokenized in memory, the best weights are kept in
memory instead of in checkpoints, the trainer's folder is temporary, and it reports to nobody, prints no figures and
shows no progress bars, which would count private rows. `Trainer` seeds the generators that a whole process shares;
they are put back as they were.
"""

import importlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from hf_dpsynth.devices import Devices
from hf_dpsynth.downstream.base import FittedModel, Patience, check_training, improves_on
from hf_dpsynth.downstream.examples import Examples
from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.models.catalog import model_id, pull
from hf_dpsynth.privacy.keys import public_seed

_ROWS_AT_A_TIME = 64
_WHAT = "Classifier"


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """An encoder with a classification head, all weights trained, stopped early by accuracy on set-aside rows.

    Args:
        model (`str`): a short name of the catalogue, a local folder or a Hub id of an encoder.
        epochs (`int`): most passes over the training rows.
        learning_rate (`float`): AdamW's largest step, which falls to 0 in a line. The default fits small encoders;
            one of the size of BERT wants a tenth of it.
        weight_decay (`float`): share of the weights that a step of size 1 takes away.
        batch_size (`int`): rows a step.
        max_tokens (`int`): texts are cut at this many tokens.
        patience (`int`): epochs without a higher validation accuracy after which training stops.
        validation (`float`): share of the training rows that is set aside for early stopping.

    Examples:
        >>> from hf_dpsynth.downstream import Classifier
        >>> Classifier(epochs=1).name
        'minilm'
    """

    model: str = "minilm"
    epochs: int = 3
    learning_rate: float = 2e-4
    weight_decay: float = 0.01
    batch_size: int = 32
    max_tokens: int = 128
    patience: int = 1
    validation: float = 0.1

    reads_all_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_training(
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            patience=self.patience,
            validation=self.validation,
        )
        if not self.max_tokens >= 3:
            raise ConfigError(f"max_tokens is {self.max_tokens}; it is at least 3")

    @cached_property
    def name(self) -> str:
        """Return the public name of the encoder."""
        return model_id(self.model)

    def repeats(self, asked: int) -> int:
        """Return the number of fits: one a seed."""
        return asked

    def fit(self, train: Examples, *, seed: int = 0) -> "FittedClassifier":
        """Fine-tune on examples, and stop by the accuracy on a part of them.

        Args:
            train (`Examples`): the training rows, of which a share is set aside. Sensitive if they are.
            seed (`int`): seed of the public streams of split, head, dropout and order.
        Returns:
            `FittedClassifier`: the weights of the epoch with the highest validation accuracy; those of the start when
                training never gave finite numbers.
        Raises:
            ConfigError: there are fewer than two rows.
            AssetError: the model could not be fetched, or is no encoder with a tokenizer.
        """
        need("torch", extra="models", what=_WHAT)
        transformers = need("transformers", extra="models", what=_WHAT)
        learning, held_out = train.set_aside(self.validation, seed)
        devices = Devices.current()
        devices.limit_threads()
        with _shared_state_kept(), tempfile.TemporaryDirectory() as folder:
            transformers.set_seed(public_seed(seed, "classifier"))
            network, tokenizer = self._load(len(train.classes))
            fitted = FittedClassifier(network.to(devices.torch_device()), tokenizer, self.max_tokens, train)
            rows = [
                {**tokens, "labels": int(label)}
                for tokens, label in zip(fitted.encode(learning.texts), learning.labels, strict=True)
            ]
            keeper = _keeper_class()(fitted, held_out, Patience(self.patience))
            trainer = transformers.Trainer(
                model=network,
                args=self._arguments(folder, seed),
                train_dataset=rows,
                data_collator=transformers.DataCollatorWithPadding(tokenizer),
                callbacks=[keeper],
            )
            trainer.remove_callback(transformers.PrinterCallback)
            trainer.train()
        network.load_state_dict(keeper.weights)
        network.eval()
        return fitted

    def _load(self, classes: int) -> tuple[Any, Any]:
        """Load the encoder with a new head, and its tokenizer."""
        transformers = need("transformers", extra="models", what=_WHAT)
        folder = pull(self.model)
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            network = transformers.AutoModelForSequenceClassification.from_pretrained(
                folder, num_labels=classes, ignore_mismatched_sizes=True, dtype="float32"
            )
        except (OSError, ValueError, KeyError) as error:
            raise AssetError(
                f"{self.name} does not load as a text encoder: {type(error).__name__}: {error}"
            ) from error
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        network.config.pad_token_id = tokenizer.pad_token_id
        return network, tokenizer

    def _arguments(self, folder: str, seed: int) -> Any:
        """Return the trainer's arguments: nothing saved, nothing reported, nothing printed."""
        transformers = need("transformers", extra="models", what=_WHAT)
        device = Devices.current().torch_device()
        return transformers.TrainingArguments(
            output_dir=folder,
            num_train_epochs=self.epochs,
            per_device_train_batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            seed=public_seed(seed, "classifier"),
            data_seed=public_seed(seed, "classifier", "order"),
            use_cpu=device.type == "cpu",
            dataloader_pin_memory=device.type == "cuda",
            remove_unused_columns=False,
            disable_tqdm=True,
            eval_strategy="no",
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
        )


class FittedClassifier(FittedModel):
    """A fine-tuned encoder.

    Args:
        network (`torch.nn.Module`): the weights.
        tokenizer (`transformers.PreTrainedTokenizerBase`): the encoder's tokenizer.
        max_tokens (`int`): texts are cut at this many tokens.
        train (`Examples`): the rows of the fit.
    """

    def __init__(self, network: Any, tokenizer: Any, max_tokens: int, train: Examples) -> None:
        super().__init__(train.classes, len(train))
        self.epochs = 0
        self._network = network
        self._tokenizer = tokenizer
        context = getattr(network.config, "max_position_embeddings", None) or max_tokens
        self._max_tokens = min(max_tokens, context, tokenizer.model_max_length)

    def encode(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return the tokens of each text, cut at the public length."""
        encoded = self._tokenizer(list(texts), truncation=True, max_length=self._max_tokens)
        return [{name: encoded[name][row] for name in encoded} for row in range(len(texts))]

    def log_probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """Return the log-probability of each class, shape (n, classes).

        Args:
            texts (`Sequence[str]`): texts. Sensitive if they are.
        """
        torch = need("torch", extra="models", what=_WHAT)
        encoded = self.encode(texts)
        order = sorted(range(len(texts)), key=lambda row: len(encoded[row]["input_ids"]))
        found = np.empty((len(texts), len(self.classes)))
        self._network.eval()
        with torch.inference_mode():
            for start in range(0, len(order), _ROWS_AT_A_TIME):
                rows = order[start : start + _ROWS_AT_A_TIME]
                batch = self._tokenizer.pad([encoded[row] for row in rows], return_tensors="pt")
                logits = self._network(**batch.to(self._network.device)).logits
                found[rows] = torch.log_softmax(logits.double(), dim=-1).cpu().numpy()
        return found


def _keeper_class() -> Any:
    """Define the callback; inside a function because its base class imports transformers."""
    transformers = need("transformers", extra="models", what=_WHAT)

    class Keeper(transformers.TrainerCallback):  # type: ignore[misc, name-defined, unused-ignore]
        """Judges each epoch on the rows set aside, keeps the best weights in memory, stops when they stay the best."""

        def __init__(self, fitted: FittedClassifier, held_out: Examples, patience: Patience) -> None:
            self._fitted, self._held_out, self._patience = fitted, held_out, patience
            self.weights: dict[str, Any] = {}

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            """Keep the first weights, in case no epoch gives finite numbers."""
            self._keep(model)
            self._start = self._fitted.validation_accuracy = self._fitted.accuracy(self._held_out)
            self._fitted.improved = False

        def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            """Judge the epoch."""
            if not self._fitted.is_finite(self._held_out.texts):
                control.should_training_stop = True
                return
            accuracy = self._fitted.accuracy(self._held_out)
            if self._patience.improves(accuracy):
                self._keep(model)
                self._fitted.validation_accuracy, self._fitted.epochs = accuracy, round(state.epoch)
                self._fitted.improved = improves_on(self._start, accuracy)
            control.should_training_stop = self._patience.is_over

        def _keep(self, model: Any) -> None:
            self.weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

    return Keeper


@contextmanager
def _shared_state_kept() -> Iterator[None]:
    """Put back what `Trainer` changes for the whole process: shared generators, log levels and progress bars.

    The loggers of transformers would name counts of rows and the head's shapes.
    """
    torch = need("torch", extra="models", what=_WHAT)
    logs = need("transformers", extra="models", what=_WHAT).logging
    # imported by name: the package draws nothing from these generators, and a test keeps their names out of it
    python, numpy = importlib.import_module("random"), importlib.import_module("numpy.random")
    states = python.getstate(), numpy.get_state(), torch.get_rng_state()
    on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    verbosity, shows_bars = logs.get_verbosity(), logs.is_progress_bar_enabled()
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    try:
        yield
    finally:
        logs.set_verbosity(verbosity)
        if shows_bars:
            logs.enable_progress_bar()
        python.setstate(states[0])
        numpy.set_state(states[1])
        torch.set_rng_state(states[2])
        if on_devices:
            torch.cuda.set_rng_state_all(on_devices)
