"""What a downstream model is: a frozen dataclass of public options that fits examples and then judges texts."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from hf_dpsynth.downstream.examples import Examples
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import check_count


class FittedModel(ABC):
    """A model that was fitted. As sensitive as the rows it was fitted to.

    Args:
        classes (`tuple[str, ...]`): the names of the classes.
        num_train (`int`): rows that the fit has read, validation rows included.
        validation_accuracy (`float`, *optional*): accuracy on the rows that the fit set aside, if it did.
    """

    improved: bool | None = None
    """Whether training raised the validation accuracy above that of the first weights; None if no rows judge it."""

    def __init__(self, classes: tuple[str, ...], num_train: int, validation_accuracy: float | None = None) -> None:
        self.classes = classes
        self.num_train = num_train
        self.validation_accuracy = validation_accuracy

    @abstractmethod
    def log_probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """Return the log-probability of each class, shape (n, classes), each row a function of its text alone.

        Args:
            texts (`Sequence[str]`): texts. Sensitive if they are.
        """

    def predict(self, texts: Sequence[str]) -> np.ndarray:
        """Return the number of each text's likeliest class, shape (n,).

        Args:
            texts (`Sequence[str]`): texts. Sensitive if they are.
        Raises:
            ConfigError: the model's output is not a number.
        """
        scores = self.log_probabilities(texts)
        if np.isnan(scores).any():
            raise ConfigError(f"{type(self).__name__} gives no numbers: the fit diverged. Lower learning_rate=.")
        found: np.ndarray = scores.argmax(axis=1)
        return found

    def is_finite(self, texts: Sequence[str]) -> bool:
        """Return whether the weights give numbers for these texts."""
        return bool(np.isfinite(self.log_probabilities(texts)).all())

    def accuracy(self, examples: Examples) -> float:
        """Return the share of examples whose class is predicted. Sensitive if the examples are."""
        return float((self.predict(examples.texts) == examples.labels).mean())


@runtime_checkable
class DownstreamModel(Protocol):
    """Fits examples. Its fields are public options; texts and labels are arguments."""

    reads_all_rows: ClassVar[bool]
    """Whether a fit reads every row, so that their amount matters."""

    @property
    def name(self) -> str:
        """Return the public name that stands in a table."""
        ...

    def repeats(self, asked: int) -> int:
        """Return how many fits a figure is averaged over when so many seeds were asked for."""
        ...

    def fit(self, train: Examples, *, seed: int = 0) -> FittedModel:
        """Fit examples with public randomness of a seed."""
        ...


def improves_on(start: float, accuracy: float) -> bool:
    """Return whether an accuracy is higher than the one before training, or as high as can be."""
    return accuracy > start or accuracy == 1


class Patience:
    """Early stopping by validation accuracy that does not increase.

    Args:
        epochs (`int`): how many epochs in a row may fail to improve before training stops.
    """

    def __init__(self, epochs: int) -> None:
        self.best = -1.0
        self._epochs = epochs
        self._waited = 0

    def improves(self, accuracy: float) -> bool:
        """Take an epoch's accuracy and return whether it is the best so far."""
        better = accuracy > self.best
        self._waited = 0 if better else self._waited + 1
        self.best = max(self.best, accuracy)
        return better

    @property
    def is_over(self) -> bool:
        """Return whether training should stop."""
        return self._waited >= self._epochs


def check_training(
    *, epochs: int, learning_rate: float, weight_decay: float, batch_size: int, patience: int, validation: float
) -> None:
    """Refuse options that no training loop can use.

    Raises:
        ConfigError: an option is out of range; it is named with its limit.
    """
    for name, count in (("epochs", epochs), ("batch_size", batch_size), ("patience", patience)):
        check_count(name, count, 1)
    if not 0 < learning_rate < math.inf:
        raise ConfigError(f"learning_rate is {learning_rate}; it is a positive number")
    if not 0 <= weight_decay < math.inf:
        raise ConfigError(f"weight_decay is {weight_decay}; it is 0 or a positive number")
    if not 0 < validation < 1:
        raise ConfigError(f"validation is {validation}; it is a share between 0 and 1")
