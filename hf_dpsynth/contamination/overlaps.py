"""`find_overlaps`: what a public corpus shares with private texts, counted, dropped or cut."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, SupportsIndex

import numpy as np

from hf_dpsynth.contamination.corpora import Corpus, Edit, private_texts
from hf_dpsynth.contamination.index import PrivateIndex
from hf_dpsynth.contamination.origin import ASSUMPTION, marked
from hf_dpsynth.contamination.rules import Rules, check_count
from hf_dpsynth.contamination.scanning import Batch
from hf_dpsynth.contamination.workers import scanned
from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.logging import progress_bar

if TYPE_CHECKING:
    from hf_dpsynth.release import Release

MODES = ("report", "drop", "cut")
COUNTS = ("window", "num_scanned", "num_documents", "num_windows", "num_private", "num_short")
_STATISTIC = (
    "These counts and spans are statistics of the private texts, and no guarantee covers them. Keep them, and do not "
    "choose public material by them."
)
_DEPENDS = (
    "What is left of the public corpus depends on the private texts. A release that is made with it is "
    f'formal_dp_conditional, and this assumption fails: "{ASSUMPTION}". remove_sources removes whole sources by name '
    "and looks at no private text."
)


class Span(NamedTuple):
    """A part of a public text that overlaps. Sensitive.

    Args:
        row (`int`): the number of the row in the public corpus.
        start (`int`): its first token.
        end (`int`): the token behind it.
        start_character (`int`): its first character.
        end_character (`int`): the character behind it.
    """

    row: int
    start: int
    end: int
    start_character: int
    end_character: int


@dataclass(frozen=True, repr=False, eq=False)
class Overlaps:
    """What a public corpus shares with private texts: statistics of the private texts. Sensitive.

    Args:
        mode (`str`): `"report"`, `"drop"` or `"cut"`.
        window (`int`): the tokens of a window.
        num_scanned (`int`): public texts that were read.
        num_documents (`int`): public texts that overlap.
        num_windows (`int`): windows of public texts that a private text has, each place counted.
        num_private (`int`): private texts of which something was found.
        num_short (`int`): private texts that have fewer tokens than the window, blank ones left out.
        spans (`tuple[Span, ...]`): where public texts overlap, as they were given: windows that overlap or touch are
            one span.
        dataset (`Dataset` or `IterableDataset`, *optional*): the corpus without what overlaps; None in a report. Its
            description is `ASSUMPTION`, which a release that is made with it as `public=` then states.
    """

    mode: str
    window: int
    num_scanned: int
    num_documents: int
    num_windows: int
    num_private: int
    num_short: int
    spans: tuple[Span, ...]
    dataset: Any = field(default=None)

    @property
    def note(self) -> str:
        """What these results are, and what follows for a release that is made with them."""
        return _STATISTIC if self.mode == "report" else f"{_STATISTIC} {_DEPENDS}"

    def to_json(self) -> str:
        """Return counts and spans as JSON, without any text. Sensitive."""
        spans = [span._asdict() for span in self.spans]
        return json.dumps(
            {**{name: getattr(self, name) for name in ("mode", *COUNTS)}, "spans": spans, "note": self.note}
        )

    def declare(self, release: "Release | Any", *, corpus: str) -> "Release":
        """Publish the counts in the record of a release: its card and privacy.json then show them.

        Nothing else does that. The counts are statistics of the private texts, and they stand under what the guarantee
        does not cover; spans and texts are not published.

        Args:
            release (`Release`, `Dataset` or `DatasetDict`): a release, or released rows, whose `.privacy` then has
                the counts.
            corpus (`str`): the public corpus by name, in one line. Public.
        Returns:
            `Release`: the release with the counts, in place of those that it had of that corpus. Public.
        Raises:
            ConfigError: it is neither a release nor rows of one, or the name is none.
        """
        from hf_dpsynth.release import Contamination, Release, release_of, remember

        held = release if isinstance(release, Release) else release_of(release)
        if held is None:
            raise ConfigError(
                f"a {type(release).__name__} without a release was given; pass .privacy of released rows, or the rows."
            )
        counted = Contamination(corpus=corpus, mode=self.mode, **{name: getattr(self, name) for name in COUNTS})
        others = tuple(one for one in held.contamination if one.corpus != corpus)
        declared = replace(held, contamination=(*others, counted))
        if held is not release:
            remember(release, declared)
        return declared

    def __repr__(self) -> str:
        return f"Overlaps(mode={self.mode!r}, window={self.window}, <private statistics>)"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise PrivacyError("overlaps cannot be pickled: they are statistics of private texts. Write .to_json() out.")


def find_overlaps(
    private: Any,
    public: Any,
    *,
    window: int = 50,
    mode: str = "report",
    text_column: str | None = None,
    public_column: str | None = None,
    short_texts: str = "exact",
    ngram: int = 13,
    similarity: float = 0.8,
    num_proc: int | None = None,
) -> Overlaps:
    """Find what a public corpus shares with private texts.

    A token is what stands between white space, as `str.split()` has it: letter case and punctuation count, and nothing
    is normalised. A window is `window` tokens in a row of one text. Each window of a public text that a private text
    has is found, and nothing else: hashes only choose what is compared token by token. The private side is held in
    memory as sorted 64-bit hashes under a key of this call; the public side is read in batches and may be larger than
    memory. Nothing is written to disk.

    A private text below the window has none. `short_texts` says what is done with it: `"exact"` finds public texts of
    exactly its tokens; `"ngram"` finds windows of `ngram` tokens of it, and of texts below `ngram` what `"exact"`
    finds; `"minhash"` finds public texts below the window whose sets of tokens have a Jaccard similarity of
    `similarity` or more (candidates by MinHash, so that a few may be missed; extra `contamination`); `"ignore"` finds
    nothing.

    Public text that is dropped or cut by what private texts hold depends on them: see `ASSUMPTION` and `.note`. The
    safe way is `remove_sources`.

    Args:
        private (`Dataset`, `DatasetDict`, `Sequence[str | None]` or path): the private texts; of a DatasetDict, those
            of every split. Sensitive.
        public (`Dataset`, `IterableDataset`, `Iterable` or path): the corpus: rows, or texts, or a file, which is read
            into memory. A stream is read again when its result is read and must give the same rows in the same order:
            a text of another length is noticed, another text of the same length is not. Public.
        window (`int`, defaults to `50`): the tokens that make an overlap.
        mode (`str`, defaults to `"report"`): `"report"` counts; `"drop"` also gives the corpus without texts that
            overlap; `"cut"` without the spans, again until no overlap is left, also none across a cut. A text of
            which nothing is left stays as a row.
        text_column (`str`, *optional*): the column of text of both sides; the only string column when missing.
        public_column (`str`, *optional*): that of the public side, where it has another name.
        short_texts (`str`, defaults to `"exact"`): what is done with private texts below the window.
        ngram (`int`, defaults to `13`): the tokens of a window of `short_texts="ngram"`.
        similarity (`float`, defaults to `0.8`): the similarity of `short_texts="minhash"`.
        num_proc (`int`, *optional*): processes that search, each with a copy of the index; the result is the same.
    Returns:
        `Overlaps`: counts, spans, and a corpus in memory, or a stream where a stream was given. Sensitive.
    Raises:
        ConfigError: an argument is wrong, or a corpus that is read once was to be dropped from or cut.
        MissingExtra: `short_texts="minhash"` lacks its package.
    Examples:
        >>> found = find_overlaps(["we met at nine"], ["now: we met at nine sharp", "at nine"], window=4, mode="cut")
        >>> found.num_documents, found.spans[0][:3], found.dataset["text"][:]
        (1, (0, 1, 5), ['now: sharp', 'at nine'])
    """
    rules = Rules(window=window, short_texts=short_texts, ngram=ngram, similarity=similarity)
    if mode not in MODES:
        raise ConfigError(f"mode is {mode!r}; it is one of {', '.join(MODES)}.")
    check_count("num_proc", 1 if num_proc is None else num_proc, "processes")
    corpus = Corpus(public, text_column if public_column is None else public_column)
    if corpus.is_read_once and mode != "report":
        raise ConfigError(
            f"mode {mode!r} reads the public texts twice, and a {type(public).__name__} gives them once. Pass a list, "
            "a Dataset or IterableDataset.from_generator(...)."
        )
    if corpus.is_numbers and mode == "cut":
        raise ConfigError(f"column {corpus.column!r} of the public texts holds numbers. Pass mode='drop', or a text.")
    index = PrivateIndex(private_texts(private, text_column), rules)
    total = _Total(index)
    total.add(scanned(index, corpus.batches(), cut=mode == "cut", num_proc=int(num_proc or 1)))
    return Overlaps(
        mode=mode,
        window=int(window),
        num_scanned=total.num_scanned,
        num_documents=len(total.lengths),
        num_windows=total.num_windows,
        num_private=total.num_private(),
        num_short=index.num_short,
        spans=tuple(total.spans),
        dataset=None if mode == "report" else marked(corpus.edited(total.edits())),
    )


class _Total:
    """What all batches share with the private texts, added up. Sensitive."""

    def __init__(self, index: PrivateIndex) -> None:
        self._finders = index.finders
        self._seen = [np.zeros(finder.num_entries, bool) for finder in index.finders]
        self.num_scanned = self.num_windows = 0
        self.spans: list[Span] = []
        self.lengths: dict[int, int] = {}
        self._cuts: dict[int, list[tuple[int, int]]] = {}

    def add(self, batches: Iterator[Batch]) -> None:
        """Add batches in order, with a bar over public texts."""
        bar = progress_bar(desc="overlaps", unit="text", disable=None)
        for batch in batches:
            first = self.num_scanned
            self.num_scanned += batch.num_texts
            self.num_windows += batch.num_windows
            self.spans += [Span(first + row, *rest) for row, *rest in batch.spans]
            self.lengths |= {first + row: length for row, length in batch.lengths.items()}
            self._cuts |= {first + row: ranges for row, ranges in batch.cuts.items()}
            for seen, entries in zip(self._seen, batch.entries, strict=True):
                seen[entries] = True
            bar.update(batch.num_texts)
        bar.close()

    def num_private(self) -> int:
        """Return how many private texts were found."""
        rows = [finder.rows_of(seen) for finder, seen in zip(self._finders, self._seen, strict=True)]
        return len(np.unique(np.concatenate(rows)))

    def edits(self) -> dict[int, Edit]:
        """Return what to do with each text that overlaps."""
        return {row: (length, self._cuts.get(row)) for row, length in self.lengths.items()}
