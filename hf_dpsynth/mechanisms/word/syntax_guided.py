"""Syntax-guided: of the words nearest to a noisy point, the first one with the right part of speech.

y = phi(w) + z as in madlib, C the k words nearest to y, ascending, w itself allowed; the output is the first of C
whose lexical tag is the target tag, else the nearest. Source: Arnold, Yesilbas & Weinzierl 2023, arXiv:2306.01471.
Where we leave the paper: it takes the tag of w and claims madlib's guarantee, but what reads the tag of w is no
post-processing of y, and two words of different tags at distance d can be told apart by far more than epsilon d. So
the tag is randomized by default, and the paper's form says that tags are public.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent

from hf_dpsynth.compute import nearest
from hf_dpsynth.compute.candidates import Candidates
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.guarantees import digits
from hf_dpsynth.mechanisms.base import check_choice, check_whole
from hf_dpsynth.mechanisms.word.base import EUCLIDEAN, Drawn, Vocabulary, WordMechanism, is_noiseless
from hf_dpsynth.mechanisms.word.noisy_points import noisy_points
from hf_dpsynth.mechanisms.word.text import cased
from hf_dpsynth.models.catalog import model_id
from hf_dpsynth.models.lexicon import lexical_tags
from hf_dpsynth.models.tagger import SpacyTagger
from hf_dpsynth.models.tags import TAGS
from hf_dpsynth.privacy.words import MultivariateLaplaceDpEvent, TagResponseDpEvent, checked, randomized_response

_PRIVACY = ("rr", "public", "none")


@dataclass(frozen=True, kw_only=True)
class SyntaxGuided(WordMechanism):
    """Replaces each word by one near a noisy copy of its embedding, of the same part of speech where there is one.

    Args:
        k (`int` or `"all"`, defaults to 20): how many of the nearest words are candidates; 1 is madlib. With `"all"`
            the output is the nearest word of the target tag, however far it is.
        tags (`str`, defaults to `"lexical"`): a word has the tag that stands in a public table, whatever its sentence
            (`"lexical"`), or the one that a tagger gives it in its text (`"contextual"`).
        tag_privacy (`str`, defaults to `"rr"`): the target tag is a randomized response of the word's tag (`"rr"`),
            the tag itself, which is declared public (`"public"`: the paper's form), or the most frequent lexical tag
            of the candidates, which costs nothing (`"none"`).
        tag_epsilon (`float`, defaults to 4.0): the loss, beside that of the words, for each tag that differs; only
            with `"rr"`.
        tagger (`str`, defaults to `"en-core-web-sm"`): the spaCy pipeline of contextual tags, a short name of the
            catalogue or a local folder. A plan names a folder by its last name and a digest of its files.
        oov, numbers, punctuation, stop_words, max_words: as in every word mechanism (`WordMechanism`).
    Examples:
        >>> SyntaxGuided().guarantee(10).metric
        'Euclidean distance of word embeddings plus 4/10 for each part-of-speech tag that differs'
    """

    name: ClassVar[str] = "syntax-guided"

    k: int | str = 20
    tags: str = "lexical"
    tag_privacy: str = "rr"
    tag_epsilon: float = 4.0
    tagger: str = field(default="en-core-web-sm", metadata={"public": model_id})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k != "all":
            check_whole(self.name, "k", self.k, 1)
        check_choice(self.name, "tags", self.tags, ("lexical", "contextual"))
        check_choice(self.name, "tag_privacy", self.tag_privacy, _PRIVACY)
        number = isinstance(self.tag_epsilon, (int, float)) and not isinstance(self.tag_epsilon, bool)
        if not (number and 0 < self.tag_epsilon < float("inf")):
            raise ConfigError(
                f"{self.name}: tag_epsilon is {self.tag_epsilon!r}; it must be a finite number > 0. "
                "Tags that are not randomized are tag_privacy='public'."
            )
        if not isinstance(self.tagger, str) or not self.tagger:
            raise ConfigError(f"{self.name}: tagger is {self.tagger!r}; it must be a name or a folder")
        if self.k == "all" and self.tag_privacy == "none":
            raise ConfigError(
                f"{self.name}: k='all' has no meaning with tag_privacy='none', which reads the tag off the k nearest "
                "words. Use a number."
            )
        if self.tags == "contextual" and self.tag_privacy == "none":
            raise ConfigError(
                f"{self.name}: tags='contextual' has no meaning with tag_privacy='none', which reads the tag off the "
                "noisy point alone. Use tags='lexical', or tag_privacy='rr'."
            )

    def metric(self, epsilon: float) -> str:
        """Return the distance: a tag that differs adds tag_epsilon / epsilon to that of the words."""
        if self.tag_privacy != "rr":
            return EUCLIDEAN
        return (
            f"{EUCLIDEAN} plus {digits(self.tag_epsilon)}/{digits(epsilon)} for each part-of-speech tag that differs"
        )

    def assumptions(self) -> tuple[str, ...]:
        """Return what tags are, and what they cost or show."""
        source = {
            "lexical": (),
            "contextual": (
                f"part-of-speech tags are those that the pipeline {model_id(self.tagger)} gives in the text, also to "
                "words outside W: another word in one place may change the tags of several places",
            ),
        }
        shown = {
            "rr": (
                "the loss between two texts is epsilon times the sum of the distances of their words plus "
                f"tag_epsilon = {digits(self.tag_epsilon)} for each part-of-speech tag of the text that differs",
            ),
            "public": ("the part-of-speech sequence of each text is public",),
            "none": (),
        }
        return (*source[self.tags], *shown[self.tag_privacy])

    def event(self, epsilon: float) -> DpEvent:
        """Return the event of one release of a data set: a draw a word, and one of its tag where it is randomized."""
        noise = MultivariateLaplaceDpEvent(checked(epsilon))
        return (
            ComposedDpEvent([noise, TagResponseDpEvent(self._scale(epsilon))]) if self.tag_privacy == "rr" else noise
        )

    def in_clear(self) -> tuple[str, ...]:
        """Return what comes out without noise: tags in the paper's form, which steer the choice."""
        shown = ("the part of speech of each word",) if self.tag_privacy == "public" else ()
        return (*shown, *super().in_clear())

    def models(self) -> dict[str, str]:
        """Return the tagger of contextual tags."""
        return {"tagger": model_id(self.tagger)} if self.tags == "contextual" else {}

    def law(self, vocabulary: Vocabulary, epsilon: float) -> "_Guided":
        """Return the law: the nearest word of a tag."""
        if self.tags == "contextual":
            _tagger(self.tagger).tag_words([])
        lexical = lexical_tags(vocabulary.vectors.words)
        outside = [TAGS.index("X"), TAGS.index("NUM" if self.numbers == "class" else "X")]
        of_points = np.concatenate([lexical, np.array(outside, dtype=lexical.dtype)])
        k = 0 if isinstance(self.k, str) else min(self.k, vocabulary.size)
        return _Guided(vocabulary, epsilon, k, self.tag_privacy, self._scale(epsilon), of_points)

    def marks(
        self, texts: Sequence[str], words: Sequence[Sequence[str]], codes: Sequence[np.ndarray], vocabulary: Vocabulary
    ) -> Sequence[np.ndarray | None]:
        """Return the contextual tag of each word of each text, or nothing where the code alone decides the tag."""
        if self.tags == "lexical":
            return [None] * len(texts)
        sentences = [cased(text, part) for text, part in zip(texts, words, strict=True)]
        return _tagger(self.tagger).tag_words(sentences)

    def _scale(self, epsilon: float) -> float:
        """Return the scale of the response of tags: where no noise is asked for, there is none."""
        return float("inf") if is_noiseless(epsilon) else float(self.tag_epsilon)


@dataclass(frozen=True, eq=False)
class _Guided:
    """The law over one vocabulary; k is 0 where all words of a tag are candidates."""

    vocabulary: Vocabulary
    epsilon: float
    k: int
    tag_privacy: str
    tag_epsilon: float
    lexical: np.ndarray

    def draw(self, codes: np.ndarray, marks: np.ndarray | None, generator: np.random.Generator) -> Drawn:
        noisy = noisy_points(codes, self.vocabulary, self.epsilon, generator)
        if self.tag_privacy == "none":
            return (noisy,)
        tags = self.lexical[codes] if marks is None else marks
        if self.tag_privacy == "rr":
            tags = randomized_response(generator, tags, self.tag_epsilon, len(TAGS))
        return noisy, tags

    def choose(self, *drawn: np.ndarray) -> np.ndarray:
        if not self.k:
            return self._nearest_of_tag(*drawn)
        candidates = nearest.top_k_indices(drawn[0], self.vocabulary.candidates, self.k)
        tags = self.lexical[candidates]
        target = drawn[1] if len(drawn) > 1 else _most_frequent(tags)
        # the first that matches, or the first of all where none does
        first = (tags == target[:, None]).argmax(axis=1)
        return np.asarray(np.take_along_axis(candidates, first[:, None], axis=1)[:, 0])

    def _nearest_of_tag(self, noisy: np.ndarray, tags: np.ndarray) -> np.ndarray:
        """Return the nearest word of each target tag; of a tag that no word has, the nearest word."""
        chosen = np.empty(len(noisy), dtype=np.int64)
        for tag in np.unique(tags).tolist():
            rows = np.flatnonzero(tags == tag)
            words, ready = self._of_tag.get(tag, self._whole)
            chosen[rows] = words[nearest.top_k_indices(noisy[rows], ready, 1)[:, 0]]
        return chosen

    @cached_property
    def _whole(self) -> tuple[np.ndarray, Candidates]:
        return np.arange(self.vocabulary.size), self.vocabulary.candidates

    @cached_property
    def _of_tag(self) -> dict[int, tuple[np.ndarray, Candidates]]:
        """The rows of each tag that a word of W has, ready to be searched."""
        tags, vectors = self.lexical[: self.vocabulary.size], self.vocabulary.vectors.vectors
        rows = {tag: np.flatnonzero(tags == tag) for tag in np.unique(tags).tolist()}
        return {tag: (words, Candidates(vectors[words])) for tag, words in rows.items()}


def _most_frequent(tags: np.ndarray) -> np.ndarray:
    """Return the most frequent tag of each row; of several, the one that comes first in the row."""
    counts = np.stack([(tags == tag).sum(axis=1) for tag in range(len(TAGS))], axis=1)
    first = np.take_along_axis(counts, tags, axis=1).argmax(axis=1)
    return np.asarray(np.take_along_axis(tags, first[:, None], axis=1)[:, 0])


@lru_cache(maxsize=2)
def _tagger(name: str) -> SpacyTagger:
    return SpacyTagger(name)
