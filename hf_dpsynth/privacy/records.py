"""Private records in memory: they can be embedded and voted with, not printed, pickled or counted in a log.

A guard-rail, not a wall: code that wants to leak can read `.texts()`. What it stops are accidents: a repr in a
traceback, a pickle in a cache, a worker that receives more than its slice.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, SupportsIndex

from hf_dpsynth.errors import PrivacyError


class PrivateTexts(list[Any]):
    """A list of private texts whose repr shows none of them, for frames that a traceback prints."""

    def __repr__(self) -> str:
        return "PrivateTexts(<redacted>)"

    __str__ = __repr__

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise PrivacyError("private texts cannot be pickled: they would outlive the run in a file or another process")


class PrivateRecords:
    """The private side of a run.

    Args:
        texts (`Sequence[str | None]`): one text a record. Sensitive.
        labels (`Sequence[tuple]`, *optional*): the values of the conditioning columns, one tuple a record. Sensitive.
        units (`Sequence[Hashable | None]`, *optional*): whose record each is, where that is the privacy unit; each
            record is a unit of its own when missing. Sensitive.
        secrets (`Sequence[Sequence[tuple[str, str]]]`, *optional*): the secrets that each record holds, as pairs of
            kind and value. Sensitive.
        max_characters (`int`, defaults to `20_000`): a public length at which longer texts are cut.

    Null and blank texts, and records of no unit (null), stay in the commitment and cast no vote.
    """

    __slots__ = ("_labels", "_secrets", "_texts", "_units", "max_characters")

    def __init__(
        self,
        texts: Sequence[str | None],
        labels: Sequence[tuple[Any, ...]] | None = None,
        *,
        units: Sequence[Hashable | None] | None = None,
        secrets: Sequence[Sequence[tuple[str, str]]] | None = None,
        max_characters: int = 20_000,
    ) -> None:
        self._texts = list(texts)
        self._labels = [()] * len(self._texts) if labels is None else list(labels)
        self._units = None if units is None else list(units)
        self._secrets = None if secrets is None else list(secrets)
        self.max_characters = max_characters
        beside = (self._labels, self._units, self._secrets)
        if any(len(other) != len(self._texts) for other in beside if other is not None):
            raise PrivacyError("texts, labels, units and secrets have different lengths; a record needs one of each")

    def texts(self) -> PrivateTexts:
        """Return every text, uncut. Sensitive."""
        return PrivateTexts(self._texts)

    def of_label(self, label: tuple[Any, ...]) -> PrivateTexts:
        """Return the non-blank texts of one declared label, cut at the public length. Sensitive."""
        return PrivateTexts(
            text[: self.max_characters]
            for text, own in zip(self._texts, self._labels, strict=True)
            if own == label and text and not text.isspace()
        )

    def secrets(self) -> PrivateTexts:
        """Return the secrets of every record, blank ones included, as pairs of kind and value. Sensitive."""
        return PrivateTexts([()] * len(self._texts) if self._secrets is None else self._secrets)

    def usable(self, labels: Sequence[tuple[Any, ...]]) -> PrivateTexts:
        """Return the records with a declared label and a text that is not blank. Sensitive.

        Args:
            labels (`Sequence[tuple]`): the declared labels.
        Returns:
            `PrivateTexts`: triples of the number of the record, the number of its label, and its text, cut at the
                public length.
        """
        numbers = {label: number for number, label in enumerate(labels)}
        return PrivateTexts(
            (row, numbers[label], text[: self.max_characters])
            for row, (text, label) in enumerate(zip(self._texts, self._labels, strict=True))
            if label in numbers and text and not text.isspace()
        )

    def placed(self, label: tuple[Any, ...]) -> PrivateTexts:
        """Return the non-blank texts of one declared label, each behind its place in the data. Sensitive."""
        return PrivateTexts(
            (place, text[: self.max_characters])
            for place, (text, own) in enumerate(zip(self._texts, self._labels, strict=True))
            if own == label and text and not text.isspace()
        )

    def places(self) -> int:
        """Return the number of places, those of blank texts included. Sensitive, unless that number is public."""
        return len(self._texts)

    def by_unit(self, labels: Sequence[tuple[Any, ...]]) -> PrivateTexts:
        """Return the records of each unit that has any with a declared label and a text that is not blank. Sensitive.

        Args:
            labels (`Sequence[tuple]`): the declared labels.
        Returns:
            `PrivateTexts`: for each unit its records, as pairs of the number of the label and the text, cut at the
                public length.
        """
        numbers = {label: number for number, label in enumerate(labels)}
        owners: Iterable[Hashable | None] = range(len(self._texts)) if self._units is None else self._units
        found: dict[Hashable, PrivateTexts] = {}
        for owner, text, label in zip(owners, self._texts, self._labels, strict=True):
            if owner is not None and label in numbers and text and not text.isspace():
                record = (numbers[label], text[: self.max_characters])
                found.setdefault(owner, PrivateTexts()).append(record)
        return PrivateTexts(found.values())

    def chunks(self) -> Iterator[bytes]:
        """Yield every record as bytes, for a keyed commitment. Sensitive."""
        for text, label in zip(self._texts, self._labels, strict=True):
            yield b"\x00" if text is None else b"\x01" + text.encode("utf-8", "surrogatepass")
            yield repr(label).encode()
        for unit in self._units or ():
            yield repr(unit).encode()
        for secrets in self._secrets or ():
            yield b"\x02" + repr(list(secrets)).encode("utf-8", "surrogatepass")

    def __repr__(self) -> str:
        return "PrivateRecords(<redacted>)"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise PrivacyError(
            "private records cannot be pickled: they would outlive the run in a file or another process"
        )
