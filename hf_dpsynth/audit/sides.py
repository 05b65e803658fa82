"""Members and hold-out of an attack at equal numbers, and what is found of each: the baseline of every leak.

Released text resembles its source by chance too: how often is told by like texts that the run did not read. So as
many rows of both are drawn, and what stands on both sides, or in the rows that were not drawn, is left out of both:
for what is left, each side was as likely as the other where the hold-out was drawn by chance. That gives the test: of
the texts that were found, how many are members', each counted once however many released rows hold it.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy.stats import hypergeom

from hf_dpsynth.audit.findings import Finding
from hf_dpsynth.audit.rates import share
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.keys import public_generator
from hf_dpsynth.privacy.records import PrivateTexts

INSIDE, OUTSIDE, MEMBER = 1, 2, 4
BY_CHANCE = "It holds where the hold-out was drawn by chance, and says nothing where it differs in time or source."
_TEST = "It counts each {kind} once, however many rows hold it."
_ROWS = "The interval takes released rows for independent draws, which rows with one source are not."
_ALL = "There is no baseline beside it: what the hold-out has too is counted."


class Sides:
    """What the rows of members and of the hold-out hold, each kind of item once. Sensitive.

    Args:
        members (`Iterable[Iterable[str]]`): the items of each row: its text, or its secrets. Sensitive.
        others (`Iterable[Iterable[str]]`): those of the hold-out. Sensitive.
    """

    def __init__(self, members: Iterable[Iterable[str]], others: Iterable[Iterable[str]]) -> None:
        numbers: dict[str, int] = {}
        self._members, self._others = (_numbered(rows, numbers) for rows in (members, others))
        self.items = PrivateTexts(numbers)

    def marks(self, seed: int, split: int = 0) -> np.ndarray:
        """Return for each item which sides it is on, at equal numbers of rows. Sensitive.

        Args:
            seed (`int`): of the rows of the larger side that are drawn. Public.
            split (`int`, defaults to 0): which of several draws.
        Returns:
            `np.ndarray`: uint8, shape (items,): `INSIDE` for a drawn member's alone, `OUTSIDE` for the drawn
            hold-out's alone, plus `MEMBER` for that of any member.
        """
        sizes = [len(side) for side in (self._members, self._others)]
        drawn, rest = [], np.zeros(len(self.items), bool)
        for side, size in zip((self._members, self._others), sizes, strict=True):
            order = public_generator(seed, "audit-sides", str(split)).permutation(size)
            drawn.append(self._held(side, order[: min(sizes)]))
            rest |= self._held(side, order[min(sizes) :])
        inside, outside = drawn
        found = np.where(inside & ~outside & ~rest, INSIDE, 0) + np.where(outside & ~inside & ~rest, OUTSIDE, 0)
        return np.asarray(found + np.where(self._held(self._members), MEMBER, 0), dtype=np.uint8)

    @property
    def uneven(self) -> bool:
        """Whether there are more rows on one side, so that draws differ."""
        return len(self._members) != len(self._others)

    def limits(self, kind: str) -> tuple[str, ...]:
        """Return what was left out, in words. Sensitive."""
        shared = int((self._held(self._members) & self._held(self._others)).sum())
        said = [f"Left out as on both sides: {shared} {kind}s."] if shared else []
        if self.uneven:
            said.append(f"As many rows of both were drawn; each {kind} of the rest was left out too.")
        return tuple(said)

    def _held(self, side: list[np.ndarray], rows: np.ndarray | None = None) -> np.ndarray:
        """Return which items some of the rows hold, or all rows."""
        chosen = side if rows is None else [side[row] for row in rows]
        found = np.zeros(len(self.items), bool)
        if chosen:
            found[np.concatenate(chosen)] = True
        return found


def _numbered(rows: Iterable[Iterable[str]], numbers: dict[str, int]) -> list[np.ndarray]:
    return [np.array([numbers.setdefault(one, len(numbers)) for one in row], np.int64) for row in rows]


def kept(texts: Any, what: str) -> PrivateTexts:
    """Return the texts of a list that are neither missing nor blank.

    Args:
        texts (`Sequence[str | None]`): texts. Sensitive if they are.
        what (`str`): the name of the argument, for the message.
    Raises:
        ConfigError: no list, no text in it, or something else than text; never shows a text.
    """
    if texts is None or isinstance(texts, (str, bytes)) or not hasattr(texts, "__iter__"):
        raise ConfigError(f"{what}= is of type {type(texts).__name__}; pass a list of texts{_HOLDOUT.get(what, '')}")
    rows = list(texts)
    wrong = next((row for row in rows if row is not None and not isinstance(row, str)), None)
    if wrong is not None:
        raise ConfigError(f"{what}= holds a value of type {type(wrong).__name__}; every row must be a text")
    found = PrivateTexts(row for row in rows if row and not row.isspace())
    if not found:
        raise ConfigError(f"{what}= holds no text that is not blank; pass at least one{_HOLDOUT.get(what, '')}")
    return found


_HOLDOUT = {"others": ": rows like the members that the run did not read"}


def both(members: Sequence[str], others: Sequence[str]) -> tuple[PrivateTexts, PrivateTexts]:
    """Return the texts of both sides that are neither missing nor blank; raises as `kept` does."""
    return kept(members, "members"), kept(others, "others")


def left_on_both(marks: np.ndarray, least: int = 1) -> np.ndarray:
    """Return the marks of texts where enough are left on both sides.

    Args:
        marks (`np.ndarray`): the sides of each text, uint8. Sensitive.
        least (`int`, defaults to 1): how many are needed.
    Raises:
        ConfigError: a side has fewer.
    """
    for side, what in ((INSIDE, "members"), (OUTSIDE, "others")):
        count = int((marks & side > 0).sum())
        if count < least:
            raise ConfigError(
                f"{what}= has {count} different texts that are not on both sides; at least {least} are needed. Pass "
                "more rows, or a hold-out that the run did not read."
            )
    return marks


def normal(text: str) -> str:
    """Return a text less differences in case, in spaces and in how Unicode writes a character.

    Args:
        text (`str`): a text. Sensitive if it is.
    Examples:
        >>> normal("  Write to  ANN ")
        'write to ann'
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def compared(
    attack: str,
    metric: str,
    kind: str,
    marks: np.ndarray,
    found: np.ndarray,
    confidence: float,
    *,
    rows: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    limits: Sequence[str] = (),
) -> tuple[Finding, ...]:
    """Return what was found of the members, of the hold-out and of all members, and the test between the first two.

    Args:
        attack (`str`): what was tried.
        metric (`str`): the name of the first figure; the others end in `_holdout`, `_p_value` and `_of_all`.
        kind (`str`): what an item is called.
        marks (`np.ndarray`): the sides of each item. Sensitive.
        found (`np.ndarray`): whether each was found, bool. Sensitive.
        confidence (`float`): that of each interval.
        rows (`np.ndarray`, *optional*): the sides of what each released text holds; the shares are then those of
            released rows, and of items when missing. Sensitive.
        weights (`np.ndarray`, *optional*): in how many rows each released text stands. Public.
        limits (`Sequence[str]`): sentences for every figure.
    """
    shares, common = [], tuple(limits)
    for end, side in (("", INSIDE), ("_holdout", OUTSIDE), ("_of_all", MEMBER)):
        if rows is None or weights is None:
            hits, trials = int(((marks & side > 0) & found).sum()), int((marks & side > 0).sum())
        else:
            hits, trials, common = int(weights[rows & side > 0].sum()), int(weights.sum()), (_ROWS, *limits)
        said = (_ALL, *common) if side == MEMBER else common
        shares.append(share(attack, f"{metric}{end}", hits, trials, confidence, said))
    inside, outside = (int(((marks & side > 0) & found).sum()) for side in (INSIDE, OUTSIDE))
    sizes = [int((marks & side > 0).sum()) for side in (INSIDE, OUTSIDE)]
    test = Finding(
        attack=attack,
        metric=f"{metric}_p_value",
        value=min(1.0, float(hypergeom.sf(inside - 1, sum(sizes), sizes[0], inside + outside))),
        interval=None,
        n=inside + outside,
        confidence=confidence,
        delta=None,
        limits=(_TEST.format(kind=kind), BY_CHANCE, *limits),
        uses_private_data=True,
    )
    return (*shares[:2], test, shares[2])
