"""Signals of membership: how much of a text is found again in released texts, read from those texts alone.

Three scores, larger for a text that was used: how likely it is under an n-gram model of the released texts (`ngram`),
how similar it is to the released texts nearest to it by a sentence embedder (`nearest`) or by the sets of their words
(`jaccard`). No model that was trained on private text is asked, and a score depends on its own text and the released
ones alone. Source: Meeus et al. 2025, arXiv:2502.14921, section 3. The smoothing is ours: a count is mixed with the
next shorter context in proportion to a prior weight (a Dirichlet prior, MacKay & Peto 1995), so that only the n-grams
of the targets need to be counted, whatever the number of released texts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from hf_dpsynth.compute.nearest import top_k
from hf_dpsynth.compute.unit_rows import unit_rows
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import check_count, check_texts
from hf_dpsynth.metrics.embedding import embed
from hf_dpsynth.metrics.words import words
from hf_dpsynth.models import load_embedder
from hf_dpsynth.models.base import Embedder
from hf_dpsynth.registry import closest

NGRAM, NEAREST, JACCARD, ALL = "ngram", "nearest", "jaccard", "all"
SIGNALS = (NGRAM, NEAREST, JACCARD)
_START, _END = "<s>", "</s>"  # no word of `words` has more than one sign that is no letter
_PRIOR = 1.0
_CELLS = 4_000_000  # similarities that are held at once

Gram = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How released texts are read: the public options of all signals.

    Args:
        n (`int`): words in an n-gram.
        neighbours (`int`): how many nearest released texts are averaged.
        calibrated (`bool`): whether `ngram` takes off what a model of single words says.
    """

    n: int = 2
    neighbours: int = 25
    calibrated: bool = True

    def __post_init__(self) -> None:
        check_count("n", self.n, 1)
        check_count("neighbours", self.neighbours, 1)
        if self.n == 1 and self.calibrated:
            raise ConfigError("n is 1 and the score of single words is taken off: nothing is left. Pass n=2 or more.")


def named(signal: str) -> tuple[str, ...]:
    """Return the signals that a name stands for.

    Raises:
        ConfigError: there is no such signal.
    """
    if signal == ALL:
        return SIGNALS
    if signal not in SIGNALS:
        raise ConfigError(f"signal is {signal!r}{closest(str(signal), [*SIGNALS, ALL])}")
    return (signal,)


def released(synthetic: Sequence[str]) -> list[str]:
    """Return the released texts as a list.

    Args:
        synthetic (`Sequence[str]`): released texts. Public.
    Raises:
        ConfigError: it is empty, or holds something else than text.
    """
    rows = check_texts(synthetic, "synthetic")
    if not rows:
        raise ConfigError("synthetic= is empty; pass the released texts")
    return rows


def scores_of(
    signal: str,
    synthetic: Sequence[str],
    targets: Sequence[str],
    *,
    reading: Reading,
    embedder: str | Embedder,
    starts: Sequence[int] | None = None,
) -> np.ndarray:
    """Score targets by one signal.

    Args:
        signal (`str`): a name of `SIGNALS`.
        synthetic (`Sequence[str]`): released texts, at least one. Public.
        targets (`Sequence[str]`): texts that may have been used. Sensitive.
        reading (`Reading`): the options.
        embedder (`str` or object with `.embed`): for `nearest`.
        starts (`Sequence[int]`, *optional*): for `ngram`, the first word of each target that counts. Public.
    Returns:
        `np.ndarray`: shape (targets,), float64. As sensitive as the targets.
    """
    if signal == NEAREST:
        return nearest_similarity(synthetic, targets, load_embedder(embedder), neighbours=reading.neighbours)
    if signal == JACCARD:
        return shared_words(synthetic, targets, neighbours=reading.neighbours)
    return likelihood(synthetic, targets, n=reading.n, calibrated=reading.calibrated, starts=starts)


def likelihood(
    synthetic: Sequence[str],
    targets: Sequence[str],
    *,
    n: int = 2,
    calibrated: bool = True,
    starts: Sequence[int] | None = None,
) -> np.ndarray:
    """Return the mean log-likelihood of a target's words under an n-gram model of the released texts.

    A word of a text is lower-case letters and figures, or one mark. With c the counts, P of a word w after the words h
    is (c(hw) + P(w after a word less)) / (c(h) + 1), down to P(w) = (c(w) + 1) / (number of words + kinds + 1). The
    end of a text is a word too, so a text of one word has two terms, and one of none has one.

    Args:
        synthetic (`Sequence[str]`): released texts. Public.
        targets (`Sequence[str]`): texts that may have been used. Sensitive.
        n (`int`, defaults to 2): words in an n-gram.
        calibrated (`bool`, defaults to `True`): whether log P(w) is taken off each term: then a text of common words
            is not taken for one that was used.
        starts (`Sequence[int]`, *optional*): the first word of each target that counts; those before are context.
    Returns:
        `np.ndarray`: shape (targets,), float64. As sensitive as the targets.
    Examples:
        >>> from hf_dpsynth.audit.signals import likelihood
        >>> likelihood(["a good film", "a dull plot"], ["a good film", "film a good"]).round(2).tolist()
        [1.22, -0.36]
    """
    tokens = [words(text) for text in targets]
    wanted: dict[Gram, int] = {}
    for row in tokens:
        for gram in _grams(row, n):
            wanted.setdefault(gram, 0)
    total, kinds = _count(synthetic, n, wanted)
    found = np.zeros(len(tokens))
    for place, row in enumerate(tokens):
        start = 1 + (min(starts[place], len(row)) if starts is not None else 0)
        found[place] = np.mean(_terms([_START, *row, _END], start, n, wanted, total, kinds, calibrated))
    return found


def _grams(tokens: Sequence[str], n: int) -> Iterator[Gram]:
    """Yield all runs of at most n words, the marks of start and end among them."""
    row = (_START, *tokens, _END)
    for size in range(1, n + 1):
        for start in range(len(row) - size + 1):
            yield row[start : start + size]


def _count(synthetic: Sequence[str], n: int, wanted: dict[Gram, int]) -> tuple[int, int]:
    """Count the wanted n-grams in place; return the number of words, ends among them, and of kinds of words."""
    total, kinds = 0, set()
    for text in synthetic:
        row = words(text)
        total += len(row) + 1
        kinds.update(row)
        for gram in _grams(row, n):
            if gram in wanted:
                wanted[gram] += 1
    return total, len(kinds) + 1


def _terms(
    row: list[str], start: int, n: int, counts: dict[Gram, int], total: int, kinds: int, calibrated: bool
) -> list[float]:
    terms = []
    for place in range(start, len(row)):
        single = chance = (counts[(row[place],)] + 1) / (total + kinds + 1)
        for size in range(2, min(n, place + 1) + 1):
            before = tuple(row[place - size + 1 : place])
            chance = (counts[(*before, row[place])] + _PRIOR * chance) / (counts[before] + _PRIOR)
        terms.append(float(np.log(chance) - (np.log(single) if calibrated else 0.0)))
    return terms


def nearest_similarity(
    synthetic: Sequence[str], targets: Sequence[str], embedder: Embedder, *, neighbours: int = 25
) -> np.ndarray:
    """Return the mean cosine of a target to the released texts nearest to it, all of them where there are fewer.

    Args:
        synthetic (`Sequence[str]`): released texts, at least one. Public.
        targets (`Sequence[str]`): texts that may have been used. Sensitive.
        embedder (`Embedder`): the model.
        neighbours (`int`, defaults to 25): how many.
    Returns:
        `np.ndarray`: shape (targets,), float64. As sensitive as the targets.
    """
    table = unit_rows(embed(synthetic, embedder, what="synthetic", public=True))
    rows = unit_rows(embed(targets, embedder, what="targets", public=False))
    _, squares = top_k(rows, table, min(neighbours, len(table)))
    return np.asarray(1 - squares.astype(np.float64).mean(axis=1) / 2)


def shared_words(synthetic: Sequence[str], targets: Sequence[str], *, neighbours: int = 25) -> np.ndarray:
    """Return the mean Jaccard similarity of a target's words to those of the released texts nearest to it.

    Memory: the words of the released texts as a sparse matrix, and 4 million similarities at a time.

    Args:
        synthetic (`Sequence[str]`): released texts, at least one. Public.
        targets (`Sequence[str]`): texts that may have been used. Sensitive.
        neighbours (`int`, defaults to 25): how many; all of them where there are fewer.
    Returns:
        `np.ndarray`: shape (targets,), float64. As sensitive as the targets.
    Examples:
        >>> from hf_dpsynth.audit.signals import shared_words
        >>> shared_words(["a good film", "a dull plot"], ["a good plot", ""], neighbours=1).tolist()
        [0.5, 0.0]
    """
    known: dict[str, int] = {}
    sets = [[sorted({known.setdefault(word, len(known)) for word in words(text)}) for text in rows]
            for rows in (targets, synthetic)]  # fmt: skip
    rows, table = (_sparse(one, len(known)) for one in sets)
    sizes, lengths = (np.diff(one.indptr) for one in (rows, table))
    turned = table.T.tocsr()
    count, found = min(neighbours, len(lengths)), np.empty(len(sizes))
    step = max(1, _CELLS // len(lengths))
    for start in range(0, len(sizes), step):
        part = slice(start, start + step)
        common = (rows[part] @ turned).toarray()
        union = np.maximum(sizes[part, None] + lengths[None] - common, 1)
        alike = np.partition(common / union, len(lengths) - count, axis=1)[:, len(lengths) - count :]
        found[part] = np.sort(alike, axis=1).mean(axis=1)
    return found


def _sparse(sets: list[list[int]], width: int) -> csr_matrix:
    ends = np.cumsum([0, *map(len, sets)])
    columns = np.fromiter((word for row in sets for word in row), dtype=np.int64, count=int(ends[-1]))
    return csr_matrix((np.ones(len(columns), dtype=np.float32), columns, ends), shape=(len(sets), max(width, 1)))
