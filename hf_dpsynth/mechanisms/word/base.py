"""What all word mechanisms share: how a text is read, which words are replaced, and what comes out.

A mechanism names its event and its metric, and gives a `Law`: what is drawn for each word from the secret stream of
its text, and which word of the public vocabulary W that is. Nothing but words of W and ASCII punctuation comes out. A
row's output is a function of its text, its stream and public inputs, on no other row. Words outside W are points of
the metric (the mean of W, or of W's numbers) and go through the same law; published code copies them in clear.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from dp_accounting import DpEvent

from hf_dpsynth.compute.candidates import Candidates
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.guarantees import MetricDP
from hf_dpsynth.mechanisms.base import check_choice, check_one, check_whole
from hf_dpsynth.mechanisms.word.stop_words import STOP_WORDS
from hf_dpsynth.mechanisms.word.text import is_number, read, write
from hf_dpsynth.models.vector_geometry import Scales
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.accounting import round_up
from hf_dpsynth.privacy.words import checked

CHUNK_WORDS = 32_768
EUCLIDEAN = "Euclidean distance of word embeddings"
_RANDOM = -1
_LAST = "_last_law"
_VACUOUS, _NOISE = 10.0, 1.0  # losses of a word, in the median
_LAYOUT = {
    "keep": "the number of words, white space and punctuation are public",
    "drop": "the number of words is public",
}
_OOV = {
    "unk": ("words outside the public vocabulary are one point of the metric",),
    "random": ("whether a token is in W is not protected",),
}
_NUMBERS = {"class": ("numbers outside the public vocabulary are one point of the metric",), "oov": ()}
_STOP_WORDS = {
    "privatize": (),
    "keep": ("which words are stop words, and which ones, is public: they are copied, the claim is void for them",),
}
Drawn = tuple[np.ndarray, ...]


class Law(Protocol):
    """The law of a mechanism over one vocabulary at one scale."""

    def draw(self, codes: np.ndarray, marks: np.ndarray | None, generator: np.random.Generator) -> Drawn:
        """Draw what decides the words of one text.

        Args:
            codes (`np.ndarray`): the row of each word in `Vocabulary.points`, shape (n,). Sensitive.
            marks (`np.ndarray`, *optional*): what `WordMechanism.marks` says of each word, shape (n, ...). Sensitive.
            generator (`np.random.Generator`): the secret stream of the text.
        Returns:
            `tuple[np.ndarray, ...]`: arrays with a row for each word. Sensitive.
        """
        ...

    def choose(self, *drawn: np.ndarray) -> np.ndarray:
        """Return the rows in W that draws of many texts, one after the other, decide; shape (n,), int64.

        A function of each word's draws and public inputs alone.
        """
        ...


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The words that come out, and the points that words stand at.

    Args:
        vectors (`WordVectors`): W and its embedding. Public.
        points (`np.ndarray`): shape (V + 2, d), float32: W, then the words and the numbers outside W. Public.
    """

    vectors: WordVectors
    points: np.ndarray

    @cached_property
    def candidates(self) -> Candidates:
        """W, ready to be searched; made once."""
        return Candidates(self.vectors.vectors)

    @property
    def size(self) -> int:
        """The number of words in W; their codes come first."""
        return len(self.vectors)

    @property
    def unknown(self) -> int:
        """The code of words outside W."""
        return len(self.vectors)

    @property
    def number(self) -> int:
        """The code of numbers outside W."""
        return len(self.vectors) + 1


@dataclass(frozen=True)
class _Text:
    """One text as a mechanism sees it: codes, and the rows that are fixed before the law (or -1). Sensitive."""

    codes: np.ndarray
    fixed: np.ndarray
    marks: np.ndarray | None


@dataclass(frozen=True, kw_only=True)
class WordMechanism:
    """The fields and the text rules of every word mechanism; a mechanism inherits it and gives `law` and `event`.

    Args:
        oov (`str`, defaults to `"unk"`): a word outside W stands at the mean of W's vectors (`"unk"`), or becomes a
            uniform word (`"random"`), which shows nothing but that W lacks it. It is never copied.
        numbers (`str`, defaults to `"class"`): a number outside W stands at the mean of W's numbers (`"class"`), or is
            treated as any word outside W (`"oov"`). Numbers in W are words.
        punctuation (`str`, defaults to `"keep"`): ASCII punctuation stays where it is and is public (`"keep"`), or is
            left out (`"drop"`).
        stop_words (`str`, defaults to `"privatize"`): English function words are words as all others (`"privatize"`),
            or are copied where W has them (`"keep"`), which voids the claim for them.
        max_words (`int`, defaults to 50000): W is the first `max_words` words of the vectors.
    """

    name: ClassVar[str]
    kind: ClassVar[str] = "privatize"
    reads: ClassVar[str] = "vectors"
    units: ClassVar[tuple[str, ...]] = ("word",)

    oov: str = "unk"
    numbers: str = "class"
    punctuation: str = "keep"
    stop_words: str = "privatize"
    max_words: int = 50_000

    def __post_init__(self) -> None:
        for field, known in (("oov", _OOV), ("numbers", _NUMBERS), ("punctuation", _LAYOUT)):
            check_choice(self.name, field, getattr(self, field), tuple(known))
        check_choice(self.name, "stop_words", self.stop_words, tuple(_STOP_WORDS))
        check_whole(self.name, "max_words", self.max_words, 2)

    def metric(self, epsilon: float) -> str:
        """Return in words the distance that the scale multiplies."""
        return EUCLIDEAN

    def assumptions(self) -> tuple[str, ...]:
        """Return what must hold besides the rules of texts."""
        return ()

    def event(self, epsilon: float) -> DpEvent:
        """Return the event of one release of a data set: one draw a word."""
        raise NotImplementedError

    def law(self, vocabulary: Vocabulary, epsilon: float) -> Law:
        """Return the law over a vocabulary; kept for the next batch, so it may hold tables."""
        raise NotImplementedError

    def marks(
        self, texts: Sequence[str], words: Sequence[Sequence[str]], codes: Sequence[np.ndarray], vocabulary: Vocabulary
    ) -> Sequence[np.ndarray | None]:
        """Return what the law should know of each word of each text besides its code: nothing.

        Args:
            texts (`Sequence[str]`): texts with at least one word. Sensitive.
            words (`Sequence[Sequence[str]]`): their words, as `text.read` gives them. Sensitive.
            codes (`Sequence[np.ndarray]`): the codes of those; -1 is a uniform word. Sensitive.
            vocabulary (`Vocabulary`): public.
        """
        return [None] * len(texts)

    def advice(self, public: WordVectors, epsilon: float) -> tuple[str, ...]:
        """Return how large the loss is between typical words, from the public vectors alone.

        Args:
            public (`WordVectors`): the vocabulary and its embedding. Public.
            epsilon (`float`): the scale.
        """
        if is_noiseless(epsilon):
            return ()
        typical = self.distances(public.most_frequent(self.max_words))
        near, pair = (_rounded_up(epsilon * distance) for distance in (typical.nearest, typical.pair))
        said = (
            f"At this scale the loss of one word is at most {near} to its nearest other word and {pair} to another "
            "word, in the median of the vocabulary (probabilities may differ by e to that power)"
        )
        if epsilon * typical.nearest > _VACUOUS:
            return (f"{said}, which bounds nothing in practice. What remains is how often words are replaced.",)
        if epsilon * typical.pair < _NOISE:
            return (f"{said}. The text that comes out is next to independent of the one that went in.",)
        return (f"{said}.",)

    def distances(self, vectors: WordVectors) -> Scales:
        """Return typical distances of the metric: a word to its nearest other word, and two words, in the median.

        Args:
            vectors (`WordVectors`): W. Public.
        """
        return vectors.scales()

    def in_clear(self) -> tuple[str, ...]:
        """Return what of a text comes out without noise, besides what stands between its words."""
        return ("stop words of the texts, which are copied",) if self.stop_words == "keep" else ()

    def forget(self, public: WordVectors) -> None:
        """Let go of what was kept of the last texts: for which words tables were made tells which words occurred."""
        vars(public).pop(_LAST, None)

    def guarantee(self, epsilon: float) -> MetricDP:
        """Return what one release of a text promises.

        Raises:
            ConfigError: epsilon is NaN or below 1e-100.
        """
        return MetricDP(
            epsilon=checked(epsilon),
            metric=self.metric(epsilon),
            unit="word",
            assumptions=(
                _LAYOUT[self.punctuation],
                *_OOV[self.oov],
                *_NUMBERS[self.numbers],
                *_STOP_WORDS[self.stop_words],
                *self.assumptions(),
                "the losses of the words of one text add up, and each further release of the same text adds its own",
                "noise is drawn in double precision",
            ),
        )

    def privatize(
        self,
        texts: Sequence[str | None],
        public: WordVectors,
        epsilon: float,
        generators: Callable[[int], np.random.Generator],
    ) -> list[str | None]:
        """Return one text a text. A row's output depends on its text, its stream and public inputs, on no other row.

        Args:
            texts (`Sequence[str | None]`): None stays None, a text without words keeps its punctuation. Sensitive.
            public (`WordVectors`): the vocabulary and its embedding. Public.
            epsilon (`float`): the loss for each unit of distance; infinite adds no noise.
            generators (`Callable[[int], np.random.Generator]`): the secret stream of the i-th text. Sensitive.
        Returns:
            `list[str | None]`: words of W between single spaces and ASCII punctuation. Public under the guarantee.
        Raises:
            ConfigError: epsilon is NaN or below 1e-100.
        """
        vocabulary, law = prepared(self, public, checked(epsilon))
        known, keep = vocabulary.vectors.known, self.punctuation == "keep"
        readings = [None if text is None else read(text, known, keep_punctuation=keep) for text in texts]
        rows = [row for row, reading in enumerate(readings) if reading and reading[0]]
        inputs = self._inputs([str(texts[row]) for row in rows], [readings[row][0] for row in rows], vocabulary)  # type: ignore[index]
        chosen = _chosen(zip(rows, inputs, strict=True), vocabulary, law, generators)
        words = vocabulary.vectors.words
        return [
            None if reading is None else write([words[next(chosen)] for _ in reading[0]], reading[1])
            for reading in readings
        ]

    def substitutes(
        self,
        words: Sequence[str],
        draws: int,
        public: WordVectors,
        epsilon: float,
        generators: Callable[[int], np.random.Generator],
    ) -> np.ndarray:
        """Draw substitutes of single words, by the law that they have in a text of their own.

        Args:
            words (`Sequence[str]`): n words as `text.read` gives them. Sensitive if they are.
            draws (`int`): the number of draws for each word.
            public (`WordVectors`): the vocabulary and its embedding. Public.
            epsilon (`float`): the loss for each unit of distance.
            generators (`Callable[[int], np.random.Generator]`): the stream of the i-th word, for all of its draws.
        Returns:
            `np.ndarray`: rows in W, shape (n, draws), int64. As sensitive as the words and the streams.
        """
        vocabulary, law = prepared(self, public, checked(epsilon))
        repeated = (
            _Text(np.repeat(one.codes, draws), np.repeat(one.fixed, draws), _repeated(one.marks, draws))
            for one in self._inputs(words, [[word] for word in words], vocabulary)
        )
        chosen = list(_chosen(enumerate(repeated), vocabulary, law, generators))
        return np.array(chosen, dtype=np.int64).reshape(len(words), draws)

    def _inputs(self, texts: Sequence[str], words: Sequence[Sequence[str]], vocabulary: Vocabulary) -> Iterator[_Text]:
        """Yield the codes of each text, the rows that are fixed whatever the law, and the marks."""
        known = vocabulary.vectors.known
        unknown = vocabulary.unknown if self.oov == "unk" else _RANDOM
        number = vocabulary.number if self.numbers == "class" else unknown
        kept = {known[word] for word in STOP_WORDS if word in known} if self.stop_words == "keep" else set()
        codes = [
            np.array([known[w] if w in known else number if is_number(w) else unknown for w in part], dtype=np.int64)
            for part in words
        ]
        marks = self.marks(texts, words, codes, vocabulary)
        for code, mark in zip(codes, marks, strict=True):
            copied = np.isin(code, list(kept)) if kept else np.zeros(len(code), dtype=bool)
            yield _Text(code, np.where(copied, code, -1), mark)


def prepared(mechanism: WordMechanism, vectors: WordVectors, epsilon: float) -> tuple[Vocabulary, Law]:
    """Return the vocabulary and the law of a mechanism; the last ones are kept with the vectors for the next batch."""
    held = vars(vectors).get(_LAST)
    if held is None or held[0] != (mechanism, epsilon):
        cut = vectors.most_frequent(mechanism.max_words)
        vocabulary = Vocabulary(cut, np.concatenate([cut.vectors, cut.unk[None], cut.number[None]]))
        held = (mechanism, epsilon), vocabulary, mechanism.law(vocabulary, epsilon)
        vars(vectors)[_LAST] = held
    found: tuple[Vocabulary, Law] = held[1:]
    return found


def _rounded_up(loss: float) -> str:
    if loss >= 1e4:
        return "10000 and more"
    return f"{math.ceil(loss)}" if loss >= 1 else f"{round_up(loss, 1):g}" if loss > 0 else "0"


def _chosen(
    rows: Iterable[tuple[int, _Text]],
    vocabulary: Vocabulary,
    law: Law,
    generators: Callable[[int], np.random.Generator],
) -> Iterator[int]:
    """Yield the row of the released word for each word of each text, deciding many texts at once."""
    pending: list[tuple[np.ndarray, Drawn]] = []
    waiting = 0
    for row, text in rows:
        generator = generators(row)
        for start in range(0, len(text.codes), CHUNK_WORDS):
            pending.append(_drawn(text, slice(start, start + CHUNK_WORDS), vocabulary.size, law, generator))
            waiting += len(pending[-1][0])
            if waiting >= CHUNK_WORDS:
                yield from _decided(pending, law)
                pending, waiting = [], 0
    if pending:
        yield from _decided(pending, law)


def _repeated(marks: np.ndarray | None, draws: int) -> np.ndarray | None:
    return None if marks is None else np.repeat(marks, draws, axis=0)


def _drawn(text: _Text, part: slice, size: int, law: Law, generator: np.random.Generator) -> tuple[np.ndarray, Drawn]:
    """Return the rows that are known already (or -1) and the draws of the other words. Sensitive."""
    codes, fixed = text.codes[part], text.fixed[part].copy()
    placed = (codes != _RANDOM) & (fixed < 0)
    marks = None if text.marks is None else text.marks[part][placed]
    drawn = law.draw(codes[placed], marks, generator)
    uniform = codes == _RANDOM
    if uniform.any():
        fixed[uniform] = generator.integers(size, size=int(uniform.sum()))
    return fixed, drawn


def _decided(pending: Sequence[tuple[np.ndarray, Drawn]], law: Law) -> list[int]:
    """Return the rows of the words, the known ones in their places."""
    rows = np.concatenate([fixed for fixed, _ in pending])
    drawn = [np.concatenate(arrays) for arrays in zip(*(draws for _, draws in pending), strict=True)]
    rows[rows < 0] = law.choose(*drawn)
    found: list[int] = rows.tolist()
    return found


def check_share(mechanism: str, name: str, value: Any) -> None:
    """Refuse a field of a mechanism that is no number in [0, 1].

    Raises:
        ConfigError: it is not.
    """
    check_one(mechanism, name, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ConfigError(f"{mechanism}: {name} is {value!r}; it must be a number in [0, 1]")


def is_noiseless(epsilon: float) -> bool:
    """Return whether a scale is infinite: no noise is drawn, and the release says so."""
    return math.isinf(epsilon)
