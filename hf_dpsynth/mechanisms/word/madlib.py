"""Madlib: each word's embedding plus multivariate Laplace noise, then the nearest word.

y = phi(w) + z with density of z proportional to exp(-epsilon |z|); the output is the word of the public vocabulary W
that is nearest to y. The search sees y alone, never w, so it is post-processing of y, and y has metric DP at scale
epsilon. Source: Feyisetan et al. 2020, arXiv:1910.08902, Algorithm 1. Where we leave the paper: words outside W, which
its code copies in clear, are points of the metric (the mean of W, or of W's numbers) and get the same noise.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hf_dpsynth.compute import nearest
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.guarantees import MetricDP
from hf_dpsynth.mechanisms.word.text import is_number, read, write
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.noise import MultivariateLaplaceDpEvent, multivariate_laplace

_CHUNK_WORDS = 32_768
_LEAST_EPSILON = 1e-100
_LONGEST = 1e30
_RANDOM = -1


@dataclass(frozen=True, kw_only=True)
class Madlib:
    """Replaces each word by a word near a noisy copy of its embedding; metric DP per word.

    Args:
        oov (`str`, defaults to `"unk"`): a word outside W stands at the mean of W's vectors (`"unk"`), or becomes a
            uniform word (`"random"`), which shows nothing but that W lacks it. It is never copied.
        numbers (`str`, defaults to `"class"`): a number outside W stands at the mean of W's numbers (`"class"`), or is
            treated as any word outside W (`"oov"`). Numbers in W are words.
        punctuation (`str`, defaults to `"keep"`): ASCII punctuation stays where it is and is public (`"keep"`), or is
            left out (`"drop"`).
        max_words (`int`, defaults to 50000): W is the first `max_words` words of the vectors.
    Examples:
        >>> Madlib(punctuation="drop").guarantee(10).metric
        'Euclidean distance of word embeddings'
    """

    name: ClassVar[str] = "madlib"
    kind: ClassVar[str] = "privatize"

    oov: str = "unk"
    numbers: str = "class"
    punctuation: str = "keep"
    max_words: int = 50_000

    def __post_init__(self) -> None:
        choices = {"oov": ("unk", "random"), "numbers": ("class", "oov"), "punctuation": ("keep", "drop")}
        for field, allowed in choices.items():
            value = getattr(self, field)
            if value not in allowed:
                raise ConfigError(f"{field} is {value!r}; it must be one of {', '.join(allowed)}")
        if isinstance(self.max_words, bool) or not isinstance(self.max_words, int) or not self.max_words >= 2:
            raise ConfigError(f"max_words is {self.max_words!r}; it must be a whole number >= 2")

    def guarantee(self, epsilon: float) -> MetricDP:
        """Return what one release of a text promises.

        Raises:
            ConfigError: epsilon is NaN or below 1e-100.
        """
        layout = {
            "keep": "the number of words, white space and punctuation are public",
            "drop": "the number of words is public",
        }
        unknown = {
            "unk": "words outside the public vocabulary are one point of the metric",
            "random": "whether a token is in W is not protected",
        }
        numbers = {"class": ("numbers outside the public vocabulary are one point of the metric",), "oov": ()}
        return MetricDP(
            epsilon=_checked(epsilon),
            metric="Euclidean distance of word embeddings",
            unit="word",
            assumptions=(
                layout[self.punctuation],
                unknown[self.oov],
                *numbers[self.numbers],
                "each further release of the same text adds its epsilon",
                "noise is drawn in double precision",
            ),
        )

    def event(self, epsilon: float) -> MultivariateLaplaceDpEvent:
        """Return the event of one release of a data set: one draw a word."""
        return MultivariateLaplaceDpEvent(_checked(epsilon))

    def privatize(
        self,
        texts: Sequence[str | None],
        vectors: WordVectors,
        epsilon: float,
        generators: Callable[[int], np.random.Generator],
    ) -> list[str | None]:
        """Return one text a text. A row's output depends on its text, its stream and public inputs, on no other row.

        Args:
            texts (`Sequence[str | None]`): None stays None, a text without words keeps its punctuation. Sensitive.
            vectors (`WordVectors`): the vocabulary W and phi. Public.
            epsilon (`float`): the loss for each unit of distance; infinite adds no noise.
            generators (`Callable[[int], np.random.Generator]`): the secret stream of the i-th text. Sensitive.
        Returns:
            `list[str | None]`: words of W between single spaces and ASCII punctuation. Public under the guarantee.
        Raises:
            ConfigError: epsilon is NaN or below 1e-100.
        """
        vocabulary = vectors.most_frequent(self.max_words)
        keep = self.punctuation == "keep"
        readings = [None if text is None else read(text, vocabulary.known, keep_punctuation=keep) for text in texts]
        rows = [(row, self._codes(reading[0], vocabulary)) for row, reading in enumerate(readings) if reading]
        chosen = self._choose(
            [(row, codes) for row, codes in rows if len(codes)], vocabulary, _checked(epsilon), generators
        )
        return [
            None if reading is None else write([vocabulary.words[next(chosen)] for _ in reading[0]], reading[1])
            for reading in readings
        ]

    def _codes(self, words: Sequence[str], vocabulary: WordVectors) -> np.ndarray:
        """Return the row of each word in `_points`, or the code of a uniform word."""
        known, size = vocabulary.known, len(vocabulary)
        unknown = size if self.oov == "unk" else _RANDOM
        number = size + 1 if self.numbers == "class" else unknown
        codes = [known[word] if word in known else number if is_number(word) else unknown for word in words]
        return np.array(codes, dtype=np.int64)

    def _choose(
        self,
        rows: Sequence[tuple[int, np.ndarray]],
        vocabulary: WordVectors,
        epsilon: float,
        generators: Callable[[int], np.random.Generator],
    ) -> Iterator[int]:
        """Yield the row of the released word for each word of each text, searching many texts at once."""
        points = np.concatenate([vocabulary.vectors, vocabulary.unk[None], vocabulary.number[None]])
        pending: list[tuple[np.ndarray, np.ndarray]] = []
        waiting = 0
        for row, codes in rows:
            generator = generators(row)
            for start in range(0, len(codes), _CHUNK_WORDS):
                part = codes[start : start + _CHUNK_WORDS]
                pending.append(_drawn(part, points, epsilon, generator))
                waiting += len(part)
                if waiting >= _CHUNK_WORDS:
                    yield from _found(pending, vocabulary)
                    pending, waiting = [], 0
        if pending:
            yield from _found(pending, vocabulary)


def _checked(epsilon: float) -> float:
    if not epsilon >= _LEAST_EPSILON:
        raise ConfigError(f"epsilon is {epsilon}; it must be a number >= {_LEAST_EPSILON}, or infinite for no privacy")
    return float(epsilon)


def _drawn(
    codes: np.ndarray, points: np.ndarray, epsilon: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the drawn uniform words (or -1) and the noisy points y of the other words. Sensitive."""
    placed = codes != _RANDOM
    noisy = points[codes[placed]].astype(np.float64)
    if not math.isinf(epsilon):
        noisy += multivariate_laplace(generator, epsilon, len(noisy), points.shape[1])
    # Beyond this length only the direction decides; float32 ends at 3e38.
    noisy /= np.maximum(np.abs(noisy).max(axis=1, keepdims=True, initial=0) / _LONGEST, 1)
    uniform = np.full(len(codes), -1, dtype=np.int64)
    if not placed.all():
        uniform[~placed] = generator.integers(len(points) - 2, size=len(codes) - len(noisy))
    return uniform, noisy.astype(np.float32)


def _found(drawn: Sequence[tuple[np.ndarray, np.ndarray]], vocabulary: WordVectors) -> list[int]:
    """Return the rows of the words nearest to the noisy points, uniform words in their places."""
    chosen = np.concatenate([uniform for uniform, _ in drawn])
    indices, _ = nearest.top_k(np.concatenate([noisy for _, noisy in drawn]), vocabulary.vectors, 1)
    chosen[chosen < 0] = indices[:, 0]
    found: list[int] = chosen.tolist()
    return found
