"""What a study of plausible deniability found: N_w, S_w, tags and distances of public words. Public.

N_w is the share of draws that return the word, in %, and S_w the number of different words among 100 draws. Empirical,
not a proof: a word that is rarely returned may still be guessed from its substitutes.
"""

import json
import os
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hf_dpsynth.models.tags import TAGS

_FIRST_BANDS = (100, 1000)
_DOUBLED = 10_000


@dataclass(frozen=True, kw_only=True)
class Band:
    """Means over the words of one band of frequency.

    Args:
        first (`int`): the first rank of the band, 1 for the most frequent word of the vocabulary.
        last (`int`): the last one.
        num_words (`int`): the words of the study that lie in it.
        self_substitution (`float`): mean N_w, in %.
        distinct (`float`): mean S_w.
        tags_kept (`float`): the share of draws that kept the lexical tag.
    """

    first: int
    last: int
    num_words: int
    self_substitution: float
    distinct: float
    tags_kept: float


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Deniability:
    """Substitutes of some public words, counted.

    Args:
        mechanism (`str`): its name.
        params (`dict`): its fields.
        epsilon (`float`): the scale.
        vectors (`str`): the public name of the word vectors.
        vocabulary_size (`int`): words in W.
        draws (`int`): draws for each word.
        words (`tuple[str, ...]`): the words, n of them.
        ranks (`np.ndarray`): their ranks in W, 1 for the most frequent, shape (n,).
        self_substitution (`np.ndarray`): N_w: the draws that returned the word, in % whatever the number of draws,
            shape (n,).
        distinct (`np.ndarray`): S_w: different words that came out, shape (n,). With at most 100 draws they are those
            of all draws, not scaled up, so fewer draws give less; with more, those expected among 100 of them.
        tags_kept_by_word (`np.ndarray`): the share of each word's draws that kept its lexical tag, shape (n,).
        confusion (`np.ndarray`): draws by lexical tag of the word (rows) and of its substitute, shape (11, 11), in
            the order of `tags`.
        distances (`np.ndarray`): Euclidean distances of all substitutes that differ from their word.
        tags (`tuple[str, ...]`): the names of the tags.
    """

    mechanism: str
    params: dict[str, Any]
    epsilon: float
    vectors: str
    vocabulary_size: int
    draws: int
    words: tuple[str, ...]
    ranks: np.ndarray
    self_substitution: np.ndarray
    distinct: np.ndarray
    tags_kept_by_word: np.ndarray
    confusion: np.ndarray
    distances: np.ndarray
    tags: tuple[str, ...] = field(default=TAGS)

    @property
    def tags_kept(self) -> float:
        """The share of all draws whose substitute has the lexical tag of the word."""
        return float(self.confusion.trace() / self.confusion.sum())

    def self_quantile(self, quantile: float) -> float:
        """Return a quantile of N_w over words, in %; large values are what deniability lacks."""
        return float(np.quantile(self.self_substitution, quantile))

    def distinct_quantile(self, quantile: float) -> float:
        """Return a quantile of S_w over words; small values are what deniability lacks."""
        return float(np.quantile(self.distinct, quantile))

    @property
    def bands(self) -> tuple[Band, ...]:
        """Means by frequency rank: up to 100, 1,000, 10,000, then doubled; a band without a word is left out.

        A uniform choice has few words of the first bands, which most of a text is made of: name words to see more.
        """
        size = self.vocabulary_size
        doubled = (_DOUBLED * 2**power for power in range(size.bit_length()))
        edges = [0, *(edge for edge in (*_FIRST_BANDS, *doubled) if edge < size), size]
        found = []
        for start, stop in pairwise(edges):
            inside = (self.ranks > start) & (self.ranks <= stop)
            if inside.any():
                means = (self.self_substitution, self.distinct, self.tags_kept_by_word)
                own, distinct, kept = (float(values[inside].mean()) for values in means)
                band = {"first": start + 1, "last": stop, "num_words": int(inside.sum())}
                found.append(Band(**band, self_substitution=own, distinct=distinct, tags_kept=kept))
        return tuple(found)

    def __repr__(self) -> str:
        return (
            f"Deniability({self.mechanism!r}, epsilon={self.epsilon:g}, {self.vectors}: {len(self.words)} words x "
            f"{self.draws} draws; N_w mean {self.self_substitution.mean():.1f} %, 90 % quantile "
            f"{self.self_quantile(0.9):.1f} %; S_w mean {self.distinct.mean():.1f}; "
            f"tags kept {100 * self.tags_kept:.1f} %)"
        )

    def to_json(self) -> dict[str, Any]:
        """Return all figures as JSON values; an infinite epsilon becomes null, distances a histogram. Public."""
        counts, edges = np.histogram(self.distances, bins=50) if len(self.distances) else (np.zeros(0), np.zeros(0))
        return {
            "mechanism": self.mechanism,
            "params": self.params,
            "epsilon": self.epsilon if np.isfinite(self.epsilon) else None,
            "vectors": self.vectors,
            "vocabulary_size": self.vocabulary_size,
            "draws": self.draws,
            "tags_kept": self.tags_kept,
            "self_substitution_mean": float(self.self_substitution.mean()),
            "distinct_mean": float(self.distinct.mean()),
            "bands": [vars(band) for band in self.bands],
            "words": [
                {"word": word, "rank": rank, "self_substitution": own, "distinct": distinct, "tags_kept": kept}
                for word, rank, own, distinct, kept in zip(
                    self.words,
                    self.ranks.tolist(),
                    self.self_substitution.tolist(),
                    self.distinct.tolist(),
                    self.tags_kept_by_word.tolist(),
                    strict=True,
                )
            ],
            "tags": list(self.tags),
            "confusion": self.confusion.tolist(),
            "distances": {"counts": counts.tolist(), "edges": edges.tolist()},
        }

    def save(self, folder: "str | os.PathLike[str]") -> Path:
        """Write the figures as PNG files and all numbers as `deniability.json`; what is there is replaced.

        Args:
            folder (`str` or path): is made where it is missing.
        Returns:
            `Path`: the folder.
        Raises:
            MissingExtra: matplotlib is not installed.
            ConfigError: the folder cannot be written.
        """
        from hf_dpsynth.audit.deniability_figures import deniability_figures
        from hf_dpsynth.errors import ConfigError
        from hf_dpsynth.store import write_whole

        place = Path(folder)
        figures = deniability_figures(self)
        try:
            place.mkdir(parents=True, exist_ok=True)
            for name, one in figures.items():
                write_whole(place / f"{name}.png", one.png, 0o644)
            text = json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"
            write_whole(place / "deniability.json", text.encode("utf-8"), 0o644)
        except OSError as error:
            raise ConfigError(f"{place} cannot be written ({error.strerror}). Pass another folder.") from error
        return place
