"""In-context learning: a causal language model labels a text after a few demonstrations, without any training.

A text's class is the label word that is likeliest behind it: log-probabilities, summed over the tokens of a word and
normalised over the words. Demonstrations are drawn in equal numbers from each label, afresh for each resample.
Source: "Generate Synthetic Text Approximating the Private Distribution with Differential Privacy", IJCAI 2024, 4.4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from hf_dpsynth.downstream.base import FittedModel
from hf_dpsynth.downstream.examples import Examples
from hf_dpsynth.downstream.label_scores import LabelScorer
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import check_count
from hf_dpsynth.models.causal_lm import CausalLM
from hf_dpsynth.privacy.keys import public_generator

_FEWEST_TEXT_TOKENS = 4
_BETWEEN = "\n\n"
_in_use: WeakValueDictionary[tuple[str, str | None], CausalLM] = WeakValueDictionary()


@dataclass(frozen=True, kw_only=True)
class InContext:
    """A causal language model with label-balanced demonstrations in its prompt.

    Args:
        model (`str`): a short name of the catalogue, a local folder or a Hub id of a causal language model.
        shots (`int`): demonstrations; 0 for none, 3, 6 and 9 in the paper.
        resamples (`int`): sets of demonstrations that a figure is averaged over.
        instruction (`str`): the first line; {labels} stands for the label words.
        text_prefix (`str`): what comes before each text.
        label_prefix (`str`): what comes between a text and its label; the label word follows after a space.
        verbalisers (`Mapping[str, str]`): the word that stands for a class; its name in lower case when missing.
        max_text_tokens (`int`): texts are cut at this many tokens.
        max_prefix_tokens (`int`): limit of instruction and demonstrations; demonstrations are cut to share it.
        batch_size (`int`): texts that are scored together.
        dtype (`str`, *optional*): "float32" or "bfloat16"; what `devices.best_dtype` says when missing.

    Examples:
        >>> from hf_dpsynth.downstream import InContext
        >>> InContext(shots=3).name
        'in-context smollm2-135m, 3 shots'
    """

    model: str = "smollm2-135m"
    shots: int = 6
    resamples: int = 20
    instruction: str = "Label each text as one of: {labels}."
    text_prefix: str = "Text: "
    label_prefix: str = "\nLabel:"
    verbalisers: Mapping[str, str] = field(default_factory=dict)
    max_text_tokens: int = 64
    max_prefix_tokens: int = 1024
    batch_size: int = 32
    dtype: str | None = None

    reads_all_rows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count("shots", self.shots, 0)
        for name in ("resamples", "batch_size", "max_prefix_tokens"):
            check_count(name, getattr(self, name), 1)
        if not self.max_text_tokens >= _FEWEST_TEXT_TOKENS:
            raise ConfigError(f"max_text_tokens is {self.max_text_tokens}; it is at least {_FEWEST_TEXT_TOKENS}")
        for name in ("instruction", "label_prefix"):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty; a prompt and its last part have at least one token")

    @cached_property
    def name(self) -> str:
        """Return the public name of the model with its number of demonstrations."""
        return f"in-context {self._language_model.id}, {self.shots} shots"

    def repeats(self, asked: int) -> int:
        """Return the number of sets of demonstrations; without demonstrations, one pass says all."""
        return self.resamples if self.shots else 1

    def fit(self, train: Examples, *, seed: int = 0) -> "FittedInContext":
        """Draw demonstrations; nothing is trained.

        Args:
            train (`Examples`): the rows to draw from. Sensitive if they are; the demonstrations stay in memory.
            seed (`int`): seed of the public stream of the draw.
        Raises:
            ConfigError: there are fewer rows than shots, two classes share a label word, or the prompt does not fit.
            AssetError: the model could not be fetched.
        """
        if self.shots > len(train):
            raise ConfigError(f"shots is {self.shots}; the training rows are fewer. Lower shots= or add rows.")
        model, tokenizer = self._language_model.load()
        pieces = _Pieces(self, tokenizer, train.classes)
        rows = balanced(train.labels, self.shots, public_generator(seed, "in-context", self.shots))
        prefix = pieces.prefix([(train.texts[row], int(train.labels[row])) for row in rows])
        room = self.max_text_tokens + len(pieces.before) + len(pieces.after)
        longest = len(prefix) + room + max(len(word) for word in pieces.words)
        context = getattr(model.config.get_text_config(), "max_position_embeddings", None) or longest
        if longest > context:
            raise ConfigError(
                f"a prompt of up to {longest} tokens does not fit into the model's {context}. Lower "
                "max_prefix_tokens= or max_text_tokens=."
            )
        scorer = LabelScorer(model, prefix, pieces.words, batch_size=self.batch_size, room=room)
        return FittedInContext(scorer, pieces, train.classes, self.shots)

    @cached_property
    def _language_model(self) -> CausalLM:
        """The model, kept beside the fields; other instances with the same one share it, so it is loaded once."""
        return _in_use.setdefault((self.model, self.dtype), CausalLM(self.model, dtype=self.dtype))


class FittedInContext(FittedModel):
    """A prompt whose demonstrations are drawn.

    Args:
        scorer (`LabelScorer`): holds the prompt's prefix. As sensitive as the demonstrations.
        pieces (`_Pieces`): makes tokens.
        classes (`tuple[str, ...]`): the names of the classes.
        shots (`int`): demonstrations in the prompt.
    """

    def __init__(self, scorer: LabelScorer, pieces: "_Pieces", classes: tuple[str, ...], shots: int) -> None:
        super().__init__(classes, shots)
        self._scorer = scorer
        self._pieces = pieces

    def log_probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """Return the log-probability of each class, normalised over the label words, shape (n, classes).

        Args:
            texts (`Sequence[str]`): texts. Sensitive if they are.
        """
        scores = self._scorer.scores([self._pieces.question(text) for text in texts])
        highest = scores.max(axis=1, keepdims=True)
        found: np.ndarray = scores - highest - np.log(np.exp(scores - highest).sum(axis=1, keepdims=True))
        return found


class _Pieces:
    """The pieces of a prompt as tokens.

    Args:
        options (`InContext`): the texts around texts and labels.
        tokenizer (`transformers.PreTrainedTokenizerBase`): the model's tokenizer.
        classes (`tuple[str, ...]`): the names of the classes.
    """

    def __init__(self, options: InContext, tokenizer: Any, classes: tuple[str, ...]) -> None:
        words = [str(options.verbalisers.get(name, name.lower())) for name in classes]
        unknown = set(options.verbalisers) - set(classes)
        if len(set(words)) != len(words) or unknown or not all(words):
            raise ConfigError(
                f"verbalisers= must give each of the {len(classes)} classes a word of its own and name no other; "
                f"{len(unknown)} names are no class, {len(set(words))} words differ."
            )
        self._options = options
        self._tokenizer = tokenizer
        self.words = [self._tokens(f" {word}") for word in words]
        self.before = self._tokens(options.text_prefix)
        self.after = self._tokens(options.label_prefix)
        self._end = self._tokens(_BETWEEN)
        head = options.instruction.replace("{labels}", ", ".join(words)) + _BETWEEN
        self._head: list[int] = tokenizer(head)["input_ids"]

    def question(self, text: str) -> list[int]:
        """Return the tokens of a text to label."""
        return self._cut(text, self._options.max_text_tokens)

    def prefix(self, demonstrations: list[tuple[str, int]]) -> list[int]:
        """Return instruction and demonstrations, whose texts share the public limit.

        Raises:
            ConfigError: the limit leaves the demonstrations too few tokens.
        """
        limit = self._options.max_prefix_tokens
        around = sum(len(self.before + self.after + self._end + self.words[label]) for _, label in demonstrations)
        left = (limit - len(self._head) - around) // max(1, len(demonstrations))
        if left < _FEWEST_TEXT_TOKENS and (demonstrations or left < 0):
            raise ConfigError(
                f"max_prefix_tokens is {limit}; instruction and {len(demonstrations)} demonstrations need more than "
                "that. Raise max_prefix_tokens= or lower shots=."
            )
        length = min(left, self._options.max_text_tokens)
        shown = [self._cut(text, length) + self.words[label] + self._end for text, label in demonstrations]
        return self._head + [token for tokens in shown for token in tokens]

    def _cut(self, text: str, length: int) -> list[int]:
        return self.before + self._tokens(text)[:length] + self.after

    def _tokens(self, text: str) -> list[int]:
        # not verbose: a tokenizer's warning of a text beyond the context gives its number of tokens
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return tokens


def balanced(labels: np.ndarray, shots: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rows with as equal a number of each label as there is, in random order.

    Args:
        labels (`np.ndarray`): shape (n,), n at least `shots`. Sensitive if they are.
        shots (`int`): rows to draw.
        rng (`np.random.Generator`): public randomness.
    Returns:
        `np.ndarray`: row numbers, shape (shots,).
    """
    kinds = rng.permutation(np.unique(labels))
    piles = [list(rng.permutation(np.flatnonzero(labels == kind))) for kind in kinds]
    drawn: list[int] = []
    while len(drawn) < shots:
        for pile in piles:
            if pile and len(drawn) < shots:
                drawn.append(int(pile.pop()))
    return rng.permutation(np.array(drawn, dtype=np.int64))
