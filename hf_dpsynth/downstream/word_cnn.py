"""The word CNN of the DP fine-tuning paper: a shallow classifier without any pre-training.

Lower-case, split on white space and punctuation, the most common words of the training texts, an embedding, one
convolution, global max-pooling, one hidden layer, logits. Source: Kurakin et al. 2023, arXiv:2306.01684, Appendix I.

Weights begin where Keras, which the paper used, begins them: uniform embeddings, Glorot-uniform matrices, no biases.
Padding is masked out of convolution and pooling, so a text's logits do not depend on its neighbours in a batch.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hf_dpsynth.devices import Devices
from hf_dpsynth.downstream.base import FittedModel, Patience, check_training, improves_on
from hf_dpsynth.downstream.examples import Examples
from hf_dpsynth.extras import need
from hf_dpsynth.metrics.base import check_count
from hf_dpsynth.privacy.keys import public_generator, public_seed

_WORD = re.compile(r"[^\W_]+")
PADDING, UNKNOWN, FIRST_WORD = 0, 1, 2
_EMBEDDING_BOUND = 0.05
_ROWS_AT_A_TIME = 256


def words(text: str) -> list[str]:
    """Return the lower-case words of a text, split at white space and punctuation.

    Examples:
        >>> words("A good-looking film; isn't it?")
        ['a', 'good', 'looking', 'film', 'isn', 't', 'it']
    """
    return _WORD.findall(text.lower())


@dataclass(frozen=True, kw_only=True)
class WordCNN:
    """The shallow CNN over words, trained with Adam and decoupled weight decay and stopped early.

    Args:
        vocabulary_size (`int`): most common words of the training texts; all others share one embedding.
        embedding_size (`int`): width of the embeddings, which begin at random.
        filters (`int`): filters of the convolution over three words.
        hidden_size (`int`): width of the hidden layer.
        max_words (`int`): texts are cut at this many words.
        epochs (`int`): most passes over the training rows.
        learning_rate (`float`): Adam's step.
        weight_decay (`float`): share of the weights that a step of size 1 takes away.
        batch_size (`int`): rows a step.
        patience (`int`): epochs without a higher validation accuracy after which training stops; the paper's is 1.
        validation (`float`): share of the training rows that is set aside for early stopping.

    Examples:
        >>> from hf_dpsynth.downstream import Examples, WordCNN
        >>> from datasets import Dataset
        >>> rows = {"text": ["good fun", "dull plot"] * 20, "label": ["pos", "neg"] * 20}
        >>> train = Examples.of(Dataset.from_dict(rows), label_column="label")
        >>> fitted = WordCNN(epochs=3).fit(train)
        >>> [fitted.classes[number] for number in fitted.predict(["a good film", "a dull film"])]
        ['pos', 'neg']
    """

    vocabulary_size: int = 30_000
    embedding_size: int = 384
    filters: int = 256
    hidden_size: int = 256
    max_words: int = 256
    epochs: int = 20
    learning_rate: float = 1e-3
    weight_decay: float = 5e-4
    batch_size: int = 64
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
        for name in ("vocabulary_size", "embedding_size", "filters", "hidden_size", "max_words"):
            check_count(name, getattr(self, name), 1)

    @property
    def name(self) -> str:
        """Return the public name of the model."""
        return "word-cnn"

    def repeats(self, asked: int) -> int:
        """Return the number of fits: one a seed."""
        return asked

    def fit(self, train: Examples, *, seed: int = 0) -> "FittedWordCNN":
        """Train on examples, and stop by the accuracy on a part of them.

        Args:
            train (`Examples`): the training rows, of which a share is set aside. Sensitive if they are.
            seed (`int`): seed of the public streams of split, first weights and order.
        Returns:
            `FittedWordCNN`: the weights of the epoch with the highest validation accuracy; those of the start when
            training never gave finite numbers.
        Raises:
            ConfigError: there are fewer than two rows.
        """
        torch = need("torch", extra="models", what="WordCNN")
        devices = Devices.current()
        devices.limit_threads()
        learning, held_out = train.set_aside(self.validation, seed)
        vocabulary = self._vocabulary(learning.texts)
        generator = torch.Generator().manual_seed(public_seed(seed, "word-cnn", "weights"))
        network = network_class()(self, len(vocabulary) + FIRST_WORD, len(train.classes), generator)
        fitted = FittedWordCNN(network.to(devices.torch_device()), vocabulary, self.max_words, train)
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay, fused=True
        )
        encoded = [fitted.encode(text) for text in learning.texts]
        order = public_generator(seed, "word-cnn", "order")
        patience, best = Patience(self.patience), _copy(network)
        start = fitted.validation_accuracy = fitted.accuracy(held_out)
        fitted.improved = False
        for epoch in range(self.epochs):
            self._train(network, optimizer, encoded, learning.labels, order)
            if not fitted.is_finite(held_out.texts):
                break
            accuracy = fitted.accuracy(held_out)
            if patience.improves(accuracy):
                best, fitted.validation_accuracy, fitted.epochs = _copy(network), accuracy, epoch + 1
                fitted.improved = improves_on(start, accuracy)
            if patience.is_over:
                break
        network.load_state_dict(best)
        return fitted

    def _vocabulary(self, texts: Sequence[str]) -> dict[str, int]:
        """Return the numbers of the most common words of the training texts."""
        counts = Counter(word for text in texts for word in words(text))
        common = counts.most_common(self.vocabulary_size)
        return {word: number for number, (word, _) in enumerate(common, start=FIRST_WORD)}

    def _train(
        self, network: Any, optimizer: Any, encoded: list[list[int]], labels: np.ndarray, order: np.random.Generator
    ) -> None:
        """Pass once over the rows in a random order."""
        torch = need("torch", extra="models", what="WordCNN")
        permutation = order.permutation(len(encoded))
        for start in range(0, len(permutation), self.batch_size):
            rows = permutation[start : start + self.batch_size]
            logits = network(padded([encoded[row] for row in rows]))
            loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels[rows]).to(logits.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


class FittedWordCNN(FittedModel):
    """A trained word CNN with the vocabulary of its training texts.

    Args:
        network (`torch.nn.Module`): the weights.
        vocabulary (`dict[str, int]`): numbers of the known words. Sensitive if the training texts are.
        max_words (`int`): texts are cut at this many words.
        train (`Examples`): the rows of the fit.
    """

    def __init__(self, network: Any, vocabulary: dict[str, int], max_words: int, train: Examples) -> None:
        super().__init__(train.classes, len(train))
        self.epochs = 0
        self._network = network
        self._vocabulary = vocabulary
        self._max_words = max_words

    def encode(self, text: str) -> list[int]:
        """Return the numbers of a text's words."""
        return [self._vocabulary.get(word, UNKNOWN) for word in words(text)[: self._max_words]]

    def log_probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """Return the log-probability of each class, shape (n, classes).

        Args:
            texts (`Sequence[str]`): texts. Sensitive if they are.
        """
        torch = need("torch", extra="models", what="WordCNN")
        found = np.empty((len(texts), len(self.classes)))
        with torch.inference_mode():
            for rows in _blocks(len(texts)):
                logits = self._network(padded([self.encode(texts[row]) for row in rows]))
                found[rows.start : rows.stop] = torch.log_softmax(logits.double(), dim=-1).cpu().numpy()
        return found


def _blocks(size: int) -> Iterator[range]:
    """Yield consecutive ranges of rows."""
    for start in range(0, size, _ROWS_AT_A_TIME):
        yield range(start, min(size, start + _ROWS_AT_A_TIME))


def padded(encoded: list[list[int]]) -> Any:
    """Return word numbers as a tensor, shape (n, longest), padded on the right."""
    torch = need("torch", extra="models", what="WordCNN")
    width = max(1, *(len(numbers) for numbers in encoded))
    filled = np.full((len(encoded), width), PADDING, dtype=np.int64)
    for row, numbers in enumerate(encoded):
        filled[row, : len(numbers)] = numbers
    return torch.from_numpy(filled)


def _copy(network: Any) -> dict[str, Any]:
    """Return a copy of the weights."""
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}


@functools.cache
def network_class() -> Any:
    """Define the network; inside a function because its base class imports torch."""
    torch = need("torch", extra="models", what="WordCNN")
    layer, function = torch.nn, torch.nn.functional

    class Network(layer.Module):  # type: ignore[misc, name-defined, unused-ignore]
        """Embedding, convolution, pooling, hidden layer, logits."""

        def __init__(self, options: WordCNN, vocabulary: int, classes: int, generator: Any) -> None:
            super().__init__()
            # skip_init: the layers' own first weights come from the generator that everybody shares
            new = layer.utils.skip_init
            self.embedding = new(layer.Embedding, vocabulary, options.embedding_size, padding_idx=PADDING)
            self.convolution = new(layer.Conv1d, options.embedding_size, options.filters, 3, padding=1)
            self.hidden = new(layer.Linear, options.filters, options.hidden_size)
            self.logits = new(layer.Linear, options.hidden_size, classes)
            layer.init.uniform_(self.embedding.weight, -_EMBEDDING_BOUND, _EMBEDDING_BOUND, generator=generator)
            with torch.no_grad():
                self.embedding.weight[PADDING] = 0
            for dense in (self.convolution, self.hidden, self.logits):
                layer.init.xavier_uniform_(dense.weight, generator=generator)
                layer.init.zeros_(dense.bias)

        def forward(self, numbers: Any) -> Any:
            """Return logits, shape (n, classes), of word numbers, shape (n, words)."""
            numbers = numbers.to(self.embedding.weight.device)
            features = function.relu(self.convolution(self.embedding(numbers).transpose(1, 2)))
            # after a ReLU, 0 is neutral to the maximum, so padding and empty texts add nothing
            pooled = (features * (numbers != PADDING)[:, None]).amax(dim=2)
            return self.logits(function.relu(self.hidden(pooled)))

    return Network
