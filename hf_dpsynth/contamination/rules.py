"""The rules of a search for overlaps: public numbers that are fixed before any text is read."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

from hf_dpsynth.errors import ConfigError

SHORT_TEXTS = ("exact", "ngram", "minhash", "ignore")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What counts as an overlap.

    Args:
        window (`int`, defaults to `50`): tokens that two texts must share in a row.
        short_texts (`str`, defaults to `"exact"`): what is done with private texts of fewer tokens.
        ngram (`int`, defaults to `13`): the window of `short_texts="ngram"`.
        similarity (`float`, defaults to `0.8`): the least Jaccard similarity of `short_texts="minhash"`.
    """

    window: int = 50
    short_texts: str = "exact"
    ngram: int = 13
    similarity: float = 0.8

    def __post_init__(self) -> None:
        for name in ("window", "ngram"):
            check_count(name, getattr(self, name), "tokens")
        if self.short_texts not in SHORT_TEXTS:
            raise ConfigError(f"short_texts is {self.short_texts!r}; it is one of {', '.join(SHORT_TEXTS)}.")
        if self.short_texts == "ngram" and self.ngram >= self.window:
            raise ConfigError(f"ngram is {self.ngram} and window {self.window}; windows of short texts are shorter.")
        if not 0 < self.similarity <= 1:
            raise ConfigError(f"similarity is {self.similarity!r}; it lies above 0 and at most at 1.")


def check_count(name: str, value: Any, what: str) -> None:
    """Refuse what is no number of things.

    Raises:
        ConfigError: it is no whole number, or below 1.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise ConfigError(f"{name} is {value!r}; it is a whole number of {what}, 1 or more.")
