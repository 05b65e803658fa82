"""The index of the private texts: a vocabulary, and finders of windows and of short texts.

All of it derives from private text: it lives in memory under a key of this process, and goes when it is dropped.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import Any, NoReturn, Protocol, SupportsIndex

import numpy as np

from hf_dpsynth.contamination.rules import Rules
from hf_dpsynth.contamination.short_texts import Alike, Whole
from hf_dpsynth.contamination.windows import Flat, Found, Windows
from hf_dpsynth.errors import PrivacyError
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.records import PrivateTexts


class Vocabulary(dict[str, int]):
    """A number for each token of the private texts; its repr shows none, for frames that a traceback prints."""

    def __missing__(self, token: str) -> int:
        number = self[token] = len(self)
        return number

    def __repr__(self) -> str:
        return "Vocabulary(<redacted>)"


class Finder(Protocol):
    """Finds private material in texts."""

    @property
    def num_entries(self) -> int:
        """How many different things it knows. Sensitive."""

    def find(self, public: Flat) -> Found:
        """Return where texts hold one of them."""

    def rows_of(self, seen: np.ndarray) -> np.ndarray:
        """Return the private rows that hold one of those that are marked. Sensitive."""

    def for_search(self) -> "Finder":
        """Return what another process needs. Sensitive."""


class PrivateIndex:
    """What private texts hold, for a search in public ones. Sensitive.

    Args:
        texts (`Iterable[str | None]`): the private texts; null has no tokens. Sensitive.
        rules (`Rules`): what counts as an overlap.
    """

    __slots__ = ("_finders", "_vocabulary", "num_short")

    def __init__(self, texts: Iterable[str | None], rules: Rules) -> None:
        vocabulary = Vocabulary()
        ids: list[np.ndarray] = []
        short = PrivateTexts()
        for row, text in enumerate(texts):
            tokens = text.split() if text else []
            ids.append(np.fromiter(chain(map(vocabulary.__getitem__, tokens), (-1,)), np.int32, len(tokens) + 1))
            if 0 < len(tokens) < rules.window:
                short.append((row, tokens))
        self._vocabulary, self.num_short = vocabulary, len(short)
        generator = Key().generator("contamination")
        values = generator.integers(0, 2**64, size=len(vocabulary) + 1, dtype=np.uint64)
        factor = int(generator.integers(0, 2**63)) * 2 + 1
        flat = _flat(ids)
        self._finders: tuple[Finder, ...] = (
            Windows(flat, np.arange(len(ids)), rules.window, values, factor),
            *_finders_of_short(short, ids, rules, values, factor, int(generator.integers(0, 2**63))),
        )

    @property
    def finders(self) -> tuple[Finder, ...]:
        """The finders, that of windows first."""
        return self._finders

    def flat(self, texts: Sequence[str | None]) -> Flat:
        """Return texts as one array of the private texts' tokens; others are -1."""
        tokens: list[list[Any]] = [text.split() if text else [] for text in texts]
        for text in tokens:
            text.append(None)
        ends = np.cumsum(np.fromiter(map(len, tokens), np.int64, len(tokens))) - 1
        total = int(ends[-1]) + 1 if len(ends) else 0
        ids = np.fromiter(map(self._vocabulary.get, chain.from_iterable(tokens), repeat(-1)), np.int32, total)
        return Flat(ids, ends, tokens)

    def for_workers(self) -> tuple[Vocabulary, tuple[Finder, ...]]:
        """Return what a worker's index is made of, to send over a pipe on purpose. Sensitive."""
        return self._vocabulary, tuple(finder.for_search() for finder in self._finders)

    @classmethod
    def of(cls, vocabulary: Vocabulary, finders: tuple[Finder, ...]) -> "PrivateIndex":
        """Return the index that `for_workers` took apart."""
        made = object.__new__(cls)
        made._vocabulary, made._finders, made.num_short = vocabulary, finders, 0
        return made

    def __repr__(self) -> str:
        return "PrivateIndex(<redacted>)"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise PrivacyError("an index of private texts cannot be pickled: it would outlive this process")


def _finders_of_short(
    short: PrivateTexts,
    ids: list[np.ndarray],
    rules: Rules,
    values: np.ndarray,
    factor: int,
    seed: int,
) -> list[Finder]:
    """Return the finders of the private texts below the window."""
    if rules.short_texts == "ignore":
        return []
    if rules.short_texts == "minhash":
        rows = np.array([row for row, _ in short], np.int64)
        return [Alike([tokens for _, tokens in short], rows, rules.window, rules.similarity, seed)]
    least = rules.ngram if rules.short_texts == "ngram" else rules.window
    below = [row for row, tokens in short if len(tokens) < least]
    above = [row for row, tokens in short if len(tokens) >= least]
    found: list[Finder] = [Whole(_flat([ids[row] for row in below]), np.array(below, np.int64))]
    if above:
        part = _flat([ids[row] for row in above])
        found.append(Windows(part, np.array(above, np.int64), rules.ngram, values, factor))
    return found


def _flat(ids: list[np.ndarray]) -> Flat:
    """Return texts, each with its -1, one after the other."""
    ends = np.cumsum(np.fromiter(map(len, ids), np.int64, len(ids))) - 1
    return Flat(np.concatenate([*ids, np.empty(0, np.int32)]), ends)
