"""The downstream models as DP-SGD trains them: which weights move, and how a text alone becomes an input.

The one rule: nothing here is read off the training rows. A vocabulary of their words would be a release without noise,
so the word CNN reads the words of a public file; an encoder keeps its public weights. Few weights move, because noise
grows with their number: the CNN's word vectors stay what the file says, and an encoder gets a linear head. The CNN of
Kurakin et al. 2023 learns its vectors from nothing, so ours profits from public text where theirs does not.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hf_dpsynth.devices import Devices
from hf_dpsynth.downstream.base import DownstreamModel, FittedModel
from hf_dpsynth.downstream.classifier import Classifier
from hf_dpsynth.downstream.examples import Examples
from hf_dpsynth.downstream.word_cnn import FIRST_WORD, PADDING, UNKNOWN, FittedWordCNN, WordCNN, network_class, padded
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.models import catalog
from hf_dpsynth.models.sentence import SentenceEmbedder
from hf_dpsynth.models.word_vectors import load_vectors
from hf_dpsynth.privacy.keys import public_seed

_WHAT = "DP-on-real"
_MOST_TOKENS = 512  # the widest pass of `SentenceEmbedder`


class Learner(ABC):
    """A network whose trainable weights DP-SGD moves.

    Args:
        network (`torch.nn.Module`): the weights, on their device; those that stay public do not require gradients.
        fitted (`FittedModel`): the model that judges with these weights.
    """

    def __init__(self, network: Any, fitted: FittedModel) -> None:
        self.network = network
        self.fitted = fitted

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[Any]:
        """Return one input a text, each a function of its text alone. As sensitive as the texts."""

    @abstractmethod
    def logits(self, encoded: Sequence[Any]) -> Any:
        """Return the logits of some inputs, shape (b, classes)."""

    def losses(self, examples: Sequence[tuple[Any, int]]) -> Any:
        """Return each example's cross-entropy, shape (b,): never a mean, which would couple the examples."""
        torch = need("torch", extra="models", what=_WHAT)
        logits = self.logits([encoded for encoded, _ in examples])
        labels = torch.tensor([label for _, label in examples], device=logits.device)
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


class WordLearner(Learner):
    """The word CNN over frozen public word vectors; convolution, hidden layer and logits are trained.

    Args:
        model (`WordCNN`): the options. `vocabulary_size` counts the file's words, `embedding_size` is the file's.
        train (`Examples`): the rows to come, for the names of the classes and their number. Sensitive.
        vectors (`str`): a short name of the catalogue or a file of word vectors. Public.
        seed (`int`): seed of the public stream of the first weights.
    """

    def __init__(self, model: WordCNN, train: Examples, vectors: str, seed: int) -> None:
        torch = need("torch", extra="models", what=_WHAT)
        known = load_vectors(vectors, max_words=model.vocabulary_size)
        width = known.vectors.shape[1]
        generator = torch.Generator().manual_seed(public_seed(seed, "word-cnn", "weights"))
        options = replace(model, embedding_size=width)
        network = network_class()(options, len(known) + FIRST_WORD, len(train.classes), generator)
        with torch.no_grad():
            network.embedding.weight[PADDING] = 0
            network.embedding.weight[UNKNOWN] = torch.from_numpy(known.unk)
            network.embedding.weight[FIRST_WORD:] = torch.from_numpy(known.vectors)
        network.embedding.weight.requires_grad_(False)
        vocabulary = {word: number for number, word in enumerate(known.words, start=FIRST_WORD)}
        self._words = FittedWordCNN(network.to(Devices.current().torch_device()), vocabulary, model.max_words, train)
        super().__init__(network, self._words)

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """Return the numbers of each text's words. As sensitive as the texts."""
        return [self._words.encode(text) for text in texts]

    def logits(self, encoded: Sequence[Any]) -> Any:
        """Return logits, shape (b, classes)."""
        return self.network(padded(list(encoded)))


class HeadLearner(Learner):
    """A linear head, which begins at 0, on the frozen sentence vectors of an encoder.

    Args:
        model (`Classifier`): names the encoder and the length at which texts are cut.
        train (`Examples`): the rows to come, for the names of the classes and their number. Sensitive.
    """

    def __init__(self, model: Classifier, train: Examples) -> None:
        torch = need("torch", extra="models", what=_WHAT)
        self._embedder = SentenceEmbedder(model.model, max_tokens=min(model.max_tokens, _MOST_TOKENS))
        # skip_init: the layer's own first weights come from the generator that everybody shares
        head = torch.nn.utils.skip_init(torch.nn.Linear, self._embedder.dimension, len(train.classes))
        for parameter in head.parameters():
            torch.nn.init.zeros_(parameter)
        super().__init__(head.to(Devices.current().torch_device()), FittedHead(self, train))

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """Return each text's unit vector. As sensitive as the texts."""
        return list(self._embedder.embed(texts))

    def logits(self, encoded: Sequence[Any]) -> Any:
        """Return logits, shape (b, classes)."""
        torch = need("torch", extra="models", what=_WHAT)
        return self.network(torch.from_numpy(np.stack(encoded)).to(self.network.weight.device))


class FittedHead(FittedModel):
    """A frozen encoder with a trained head.

    Args:
        learner (`HeadLearner`): encoder and head.
        train (`Examples`): the rows of the fit.
    """

    def __init__(self, learner: HeadLearner, train: Examples) -> None:
        super().__init__(train.classes, len(train))
        self._learner = learner

    def log_probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """Return the log-probability of each class, shape (n, classes).

        Args:
            texts (`Sequence[str]`): texts. Sensitive if they are.
        """
        torch = need("torch", extra="models", what=_WHAT)
        if not len(texts):
            return np.empty((0, len(self.classes)))
        with torch.inference_mode():
            logits = self._learner.logits(self._learner.encode(texts))
        found: np.ndarray = torch.log_softmax(logits.double(), dim=-1).cpu().numpy()
        return found


def supports(model: DownstreamModel) -> bool:
    """Return whether a model can be trained with DP-SGD here."""
    return isinstance(model, (WordCNN, Classifier))


def learner(model: DownstreamModel, train: Examples, *, vectors: str, seed: int) -> Learner:
    """Return a model ready to be trained with DP-SGD.

    Args:
        model (`DownstreamModel`): the options.
        train (`Examples`): the rows to come, for the names of the classes and their number. Sensitive.
        vectors (`str`): the word CNN's public word vectors.
        seed (`int`): seed of the public stream of the first weights.
    Raises:
        ConfigError: the model trains no weights, or not here.
        AssetError: the encoder or the vectors could not be fetched.
    """
    if isinstance(model, WordCNN):
        return WordLearner(model, train, vectors, seed)
    if isinstance(model, Classifier):
        return HeadLearner(model, train)
    raise ConfigError(
        f"{_WHAT} trains weights with DP-SGD, and {type(model).__name__} has none to train here: use WordCNN or "
        "Classifier"
    )


def fetch(model: DownstreamModel, vectors: str) -> None:
    """Fetch what training will need, so that a missing file is told before anything is spent.

    Raises:
        ConfigError: there are no such vectors.
        AssetError: something could not be fetched.
    """
    if isinstance(model, WordCNN):
        load_vectors(vectors, max_words=2)
    elif isinstance(model, Classifier):
        catalog.pull(model.model)


def note(model: DownstreamModel, vectors: str) -> str:
    """Return in words which weights of a model DP-SGD trains; "" for a model that it does not train."""
    if isinstance(model, WordCNN):
        name = Path(vectors).name  # a path would say where on this machine the file lies
        return (
            f"{_WHAT}: {model.name} reads the words of {name} through its frozen vectors, because a vocabulary of "
            "the private rows would be a release of its own; unlike the other lines it profits from public text"
        )
    if isinstance(model, Classifier):
        return f"{_WHAT}: {model.name} keeps its public weights and trains a linear head on its sentence vectors"
    return ""
