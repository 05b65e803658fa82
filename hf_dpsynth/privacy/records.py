"""Private records in memory: they can be embedded and voted with, not printed, pickled or counted in a log.

A guard-rail, not a wall: code that wants to leak can read `.texts()`. What it stops are accidents: a repr in a
traceback, a pickle in a cache, a worker that receives more than its slice.
"""

from collections.abc import Iterator, Sequence
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
        max_characters (`int`, defaults to `20_000`): a public length at which longer texts are cut.

    Null and blank texts stay in the commitment and cast no vote.
    """

    __slots__ = ("_labels", "_texts", "max_characters")

    def __init__(
        self,
        texts: Sequence[str | None],
        labels: Sequence[tuple[Any, ...]] | None = None,
        *,
        max_characters: int = 20_000,
    ) -> None:
        self._texts = list(texts)
        self._labels = [()] * len(self._texts) if labels is None else list(labels)
        self.max_characters = max_characters
        if len(self._labels) != len(self._texts):
            raise PrivacyError("texts and labels have different lengths; each record needs one of each")

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

    def chunks(self) -> Iterator[bytes]:
        """Yield every record as bytes, for a keyed commitment. Sensitive."""
        for text, label in zip(self._texts, self._labels, strict=True):
            yield b"\x00" if text is None else b"\x01" + text.encode("utf-8", "surrogatepass")
            yield repr(label).encode()

    def __repr__(self) -> str:
        return "PrivateRecords(<redacted>)"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise PrivacyError(
            "private records cannot be pickled: they would outlive the run in a file or another process"
        )
