"""Words and n-grams as the metrics of this room count them, and diversity metrics of one set of texts."""

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.base import Metric, Result, check_seed, check_texts
from hf_dpsynth.privacy.keys import public_generator

_WORD = re.compile(r"\w+|[^\w\s]")


def words(text: str) -> list[str]:
    """Return the lower-case words and punctuation marks of a text.

    Args:
        text (`str`): a text. Sensitive if it is.
    """
    return _WORD.findall(text.lower())


def ngrams(tokens: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """Return the n-grams of tokens, in order."""
    return list(zip(*(tokens[start:] for start in range(n)), strict=False))


@dataclass(frozen=True, kw_only=True)
class DiversityMetric(Metric):
    """A metric of one set of texts; with references, of as many real texts beside it."""

    needs_references: ClassVar[bool] = False
    least_texts: ClassVar[int] = 1

    @abstractmethod
    def figures(self, texts: list[str]) -> dict[str, float]:
        """Return the figures of a set of texts by name, the main one under the metric's name."""

    def compute(
        self,
        *,
        predictions: Sequence[str],
        references: Sequence[str] | None = None,
        seed: int = 0,
        public_references: bool = False,
    ) -> Result:
        """Measure the predictions, and as many references where there are any.

        Args:
            predictions (`Sequence[str]`): synthetic texts. Public.
            references (`Sequence[str]`, *optional*): real texts. Sensitive.
            seed (`int`): the seed of the public choice of rows where the sets differ in size: diversity depends on
                the number of texts.
            public_references (`bool`): whether the references are public.
        Returns:
            `dict`: the figures of the predictions by name, those of the references under `references_{name}`,
            `num_rows`, `limits`, `uses_private_data`. As sensitive as the references.
        Raises:
            ConfigError: too few texts, or a value that is no text.
        """
        check_seed(seed)
        sets = {"": self._enough(predictions, "predictions")}
        if references is not None:
            sets["references_"] = self._enough(references, "references")
        size = min(map(len, sets.values()))
        found: Result = {}
        limits: list[str] = []
        for start, texts in sets.items():
            rows = public_generator(seed, "metric-rows", start).permutation(len(texts))[:size]
            kept = texts if len(texts) == size else [texts[row] for row in sorted(rows)]
            limits += _without_variety(kept, "references" if start else "predictions")
            found |= {f"{start}{name}": figure for name, figure in self.figures(kept).items()}
        if max(map(len, sets.values())) > size:
            limits.insert(0, f"computed on {size} texts of each set: diversity depends on it")
        return {
            **found,
            "num_rows": size,
            "limits": limits,
            "uses_private_data": references is not None and not public_references,
        }

    def _enough(self, texts: Sequence[str], what: str) -> list[str]:
        rows = check_texts(texts, what)
        if len(rows) < self.least_texts:
            raise ConfigError(f"{self.name} needs {self.least_texts} or more texts; {what}= has {len(rows)}")
        return rows


def _without_variety(texts: list[str], what: str) -> list[str]:
    """Return the limit of a set in which there is nothing to tell apart."""
    if not any(map(words, texts)):
        return [f"no text of {what} has a word: the figures say nothing of its diversity"]
    if len(texts) > 1 and len(set(texts)) == 1:
        return [f"all texts of {what} are the same"]
    return []


def ids(texts: Sequence[str], n: int, known: dict[tuple[str, ...], int]) -> list[np.ndarray]:
    """Return the n-grams of each text as numbers; `known` gets those that it does not have yet."""
    return [
        np.array([known.setdefault(gram, len(known)) for gram in ngrams(words(text), n)], dtype=np.int64)
        for text in texts
    ]
