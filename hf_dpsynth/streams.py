"""`privatize` on streams: rows that are privatized when they are read, in the same way at each reading.

A stream is charged once, when `privatize` is called, and before any row is read. The noise of a row is keyed by the
release's key, its shard, its number in the shard and its content, so each reading gives the same text, whatever
`batch_size`, and in whichever worker a row is read. The key lives in this process and in workers forked from it: what
comes out cannot be pickled, and after a restart the same rows are a new release.

The numbers of the rows are only as stable as the source. Shuffled, repeated and randomly interleaved sources are
refused; that functions given to `from_generator`, `.map` and `.filter` do the same at each reading is the user's
business: a row that comes at another place gets new noise, which is a further release of it.

Where features are unknown, a row without a named column, or with something else than a string, a number or null for
text, stops the reading with a ConfigError: the rows before it have come out, and it stops there at each reading.
"""

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import pyarrow
from datasets import DatasetInfo, Features, IterableDataset, IterableDatasetDict, Value, iterable_dataset

from hf_dpsynth import columns
from hf_dpsynth.errors import ConfigError, HfDpsynthError, PrivacyError
from hf_dpsynth.mechanisms.keyed_release import Job, forget, make_ready, privatize_batch, row_key
from hf_dpsynth.plans import Plan
from hf_dpsynth.privacy.budget import PrivacyBudget
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.records import PrivateTexts
from hf_dpsynth.release import STREAM_NOTES, Release, budget_state, remember
from hf_dpsynth.run import opened

_OPEN = (  # their rows are those of their shards, one after the other
    iterable_dataset.ExamplesIterable,
    iterable_dataset.ArrowExamplesIterable,
    iterable_dataset.SelectColumnsIterable,
    iterable_dataset.FormattedExamplesIterable,
    iterable_dataset.RebatchedArrowExamplesIterable,
    iterable_dataset.MappedExamplesIterable,
    iterable_dataset.FilteredExamplesIterable,
    iterable_dataset.VerticallyConcatenatedMultiSourcesExamplesIterable,
)
_WHOLE = (  # what they yield of a shard is not what they yield of it in the whole
    iterable_dataset.TakeExamplesIterable,
    iterable_dataset.SkipExamplesIterable,
    iterable_dataset.StepExamplesIterable,
    iterable_dataset.CyclingMultiSourcesExamplesIterable,
    iterable_dataset.HorizontallyConcatenatedMultiSourcesExamplesIterable,
)


def is_stream(ds: Any) -> bool:
    """Return whether an object is an IterableDataset or an IterableDatasetDict."""
    return isinstance(ds, (IterableDataset, IterableDatasetDict))


def declared(features: Any, text_column: str | None, keep_columns: str | Sequence[str]) -> Any:
    """Return features, or what the arguments say of them where they are unknown: no row is read to find out.

    Args:
        features (`Features`, *optional*): None where a stream does not know them.
        text_column (`str`, *optional*): the column of text.
        keep_columns (`str` or `Sequence[str]`): the columns to copy in clear.
    Returns:
        `Mapping`: of a kept column whose feature is unknown the value is None.
    Raises:
        ConfigError: they are unknown and so is the column of text.
    """
    if features is not None:
        return features
    if text_column is None:
        raise ConfigError(
            "the features of this stream are unknown, so text_column= must name the column of text; or give it "
            "features with .cast(Features(...))."
        )
    kept = (keep_columns,) if isinstance(keep_columns, str) else tuple(keep_columns)
    return {text_column: Value("string"), **{name: None for name in kept if name != text_column}}


def release(
    ds: Any,
    splits: Mapping[str, Any],
    plan: Plan,
    job: Job,
    budget: PrivacyBudget | None,
    *,
    out: str | os.PathLike[str] | None,
) -> Any:
    """Charge one release of each split, and return streams that privatize their rows when they are read.

    Args:
        ds (`IterableDataset` or `IterableDatasetDict`): the private data. Sensitive.
        splits (`Mapping[str, IterableDataset]`): its splits. Sensitive.
        plan (`Plan`): what is released.
        job (`Job`): how to privatize.
        budget (`PrivacyBudget`, *optional*): a budget to charge.
        out (`str` or path, *optional*): refused.
    Returns:
        an object of the class of `ds`, with its release.
    Raises:
        ConfigError: a split has no stable order of rows, `out` or several processes were asked for; nothing was spent.
        BudgetExceeded: the budget has too little left; nothing was spent.
    """
    if out is not None:
        raise ConfigError(
            "out= cannot hold a stream, whose rows are made when they are read. Leave it out and save what comes out, "
            "or privatize a Dataset."
        )
    if job.num_proc > 1:
        raise ConfigError(
            f"num_proc is {job.num_proc}; a stream is privatized by whoever reads it. Leave it out and read the "
            "result with torch.utils.data.DataLoader(num_workers=...)."
        )
    made = {name: _stream(_reader(name, split, plan), job, name) for name, split in splits.items()}
    with opened(plan, None, budget, {}) as (ledger, _):
        make_ready(job)
        for name in splits:
            # committed at once: the key of the noise is drawn, and what is read later follows from it
            ledger.release(f"privatize/{name}", job.mechanism.event(job.epsilon), lambda: "released")
        ledger.finish()
        found = Release(
            plan=plan,
            guarantee=plan.guarantee,
            charges=ledger.charges(),
            notes=STREAM_NOTES,
            guarantee_id=ledger.run_id,
            budget=budget_state(budget),
        )
    result = IterableDatasetDict(made) if isinstance(ds, IterableDatasetDict) else next(iter(made.values()))
    remember(result, found)
    return result


@dataclass(frozen=True, eq=False, repr=False)
class _Reader:
    """What is read of a split, shard by shard. Sensitive.

    Args:
        source (`_BaseExamplesIterable`): its rows.
        known (`Features`, *optional*): their features.
        tokens (`dict`): the user's tokens for files of kept columns.
        column (`str`): the column of text.
        names (`tuple[str, ...]`): the columns that come out.
        features (`Features`, *optional*): the features that come out; None where those of a kept column are unknown.
        num_shards (`int`): 1 where the source is not the same in parts.
    """

    source: Any
    known: Any
    tokens: dict[str, Any]
    column: str
    names: tuple[str, ...]
    features: Any
    num_shards: int

    def rows(self, shard: int, start: int, ahead: int) -> Iterator[dict[str, Any]]:
        """Yield the rows of a shard from one on, with the text as a string or None.

        Raises:
            ConfigError: a row lacks a column, or its text is no text.
        """
        part = self.source if self.num_shards == 1 else self.source.shard_data_sources(self.num_shards, shard)
        plain = IterableDataset(part, info=DatasetInfo(features=self.known), token_per_repo_id=self.tokens)
        if self.known is not None:
            plain = plain.select_columns(list(self.names))  # what does not come out is not decoded either
        # not iter(plain), which takes parts of its own in a worker of a DataLoader
        decoded = plain._prepare_ex_iterable_for_iteration(batch_size=ahead)
        for _, row in islice(_without_values(decoded), start, None):
            for name in self.names:
                if name not in row:
                    raise ConfigError(f"a row of the stream has no column {name!r}. Give each row every named column.")
            yield {name: _text(row[name], name) if name == self.column else row[name] for name in self.names}


def _without_values(rows: Iterable[Any]) -> Iterator[Any]:
    """Yield rows; an error of the source, which may quote a value, becomes one that does not."""
    try:
        yield from rows
    except HfDpsynthError:
        raise
    except (ValueError, TypeError, OverflowError, pyarrow.ArrowException) as error:
        raise ConfigError(
            f"a row of the stream cannot be read as its features say ({type(error).__name__}). Cast the columns or "
            "map the values before, and try what reads them on a row of your own."
        ) from None


def _text(value: Any, column: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        return str(value)
    raise ConfigError(
        f"column {column!r} of a row of the stream holds neither a string, a number nor null. Map it to text before."
    )


def _reader(split: str, stream: Any, plan: Plan) -> _Reader:
    """Return how a split is read.

    Raises:
        ConfigError: it has no stable order of rows, or is no stream.
    """
    if not isinstance(stream, IterableDataset):
        raise ConfigError(f"split {split!r} is a {type(stream).__name__}; each split must be an IterableDataset.")
    column, kept, source = str(plan.text_column), plan.kept_columns, stream._ex_iterable
    _check_order(stream, split)
    if stream.features is None:
        names: tuple[str, ...] = (column, *kept)
        features = None if kept else Features({column: Value("string")})
    else:
        names = tuple(name for name in stream.features if name in (column, *kept))
        features = columns.output_features(stream.features, names, column)
    shards = source.num_shards if _is_separable(source) else 1
    return _Reader(source, stream.features, dict(stream._token_per_repo_id), column, names, features, max(1, shards))


def _nodes(source: Any) -> Iterator[Any]:
    """Yield an examples iterable and those that it reads."""
    yield source
    for inner in (getattr(source, "ex_iterable", None), *getattr(source, "ex_iterables", ())):
        if inner is not None:
            yield from _nodes(inner)


def _check_order(stream: Any, split: str) -> None:
    """Refuse a source whose rows have no stable number, or come more than once."""
    faults = [
        (stream._distributed is not None, "was split by node", "Split what comes out"),
        (stream.epoch != 0, "has an epoch, which reorders its shards", "Call set_epoch(0) on it"),
        (stream._starting_state_dict is not None, "starts at a loaded state", "Load the state of what comes out"),
    ]
    for node in _nodes(stream._ex_iterable):
        kind, more = type(node), getattr(node, "stopping_strategy", "") == "all_exhausted"
        shuffled = isinstance(
            node, (iterable_dataset.BufferShuffledExamplesIterable, iterable_dataset.InterleavedShardsExamplesIterable)
        )
        random = isinstance(node, iterable_dataset.RandomlyCyclingMultiSourcesExamplesIterable)
        again = more or isinstance(node, iterable_dataset.RepeatExamplesIterable)
        faults += [
            (shuffled, "was shuffled", "Shuffle what comes out"),
            (random, "was interleaved at random", "Interleave without probabilities, or what comes out"),
            (again, "yields rows more than once, each time as one more release", "Repeat what comes out"),
            (
                kind not in (*_OPEN, *_WHOLE, PrivatizedRows),
                f"is a {kind.__name__}, whose order is unknown",
                "Privatize a Dataset",
            ),
        ]
    for fault, what, way in faults:
        if fault:
            raise ConfigError(
                f"split {split!r} {what}: its rows have no number that stays the same, which the key of their noise "
                f"needs. {way}."
            )


def _is_separable(source: Any) -> bool:
    """Return whether a source yields the rows of its shards, one shard after the other, and the same of each alone."""
    across = getattr(source, "batched", False) or getattr(source, "with_indices", False)
    if across or getattr(source, "drop_last_batch", False) or isinstance(source, _WHOLE):
        return False
    return all(_is_separable(node) for node in _nodes(source) if node is not source)


def _stream(reader: _Reader, job: Job, split: str) -> Any:
    """Return the stream of a split, with a random fingerprint and a DatasetInfo of features only."""
    made = IterableDataset(
        PrivatizedRows(reader, job, row_key(job, split), range(reader.num_shards)),
        info=DatasetInfo(features=reader.features),
    )
    made._fingerprint = secrets.token_hex(8)
    return made


class PrivatizedRows(iterable_dataset._BaseExamplesIterable):  # type: ignore[misc]
    """The rows of a privatized stream: made when they are read, the same at each reading.

    Args:
        reader (`_Reader`): what is read. Sensitive.
        job (`Job`): how to privatize.
        key (`Key`): the key of the split's noise. Sensitive.
        shards (`Sequence[int]`): the numbers of the shards to read.
    """

    def __init__(self, reader: _Reader, job: Job, key: Key, shards: Sequence[int]) -> None:
        super().__init__()
        self._reader, self._job, self._key, self._shards = reader, job, key, shards
        self._sleep_on_threads_shutdown = reader.source.sleep_on_threads_shutdown

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        state = self._state_dict or {"shard": 0, "row": 0}
        while state["shard"] < len(self._shards):
            shard = self._shards[state["shard"]]
            try:
                for row in self._privatized(shard, state["row"]):
                    state["row"] += 1
                    yield f"{shard}-{state['row']}", row
            finally:
                forget(self._job)
            state.update(shard=state["shard"] + 1, row=0)

    def _privatized(self, shard: int, first: int) -> Iterator[dict[str, Any]]:
        """Yield the privatized rows of a shard from one on."""
        column, size = self._reader.column, self._job.batch_size
        key = self._key if self._reader.num_shards == 1 else self._key.derive("shard", shard)
        rows, full = self._reader.rows(shard, first, size), True
        while full:
            batch, wrong = PrivateTexts(), None
            try:
                for row in islice(rows, size):
                    batch.append(row)
            except ConfigError as error:  # after the rows before it, whatever the size of a batch
                wrong = error
            texts = PrivateTexts(row[column] for row in batch)
            for row, text in zip(batch, privatize_batch(self._job, key, first, texts), strict=True):
                yield {**row, column: text}
            if wrong is not None:
                raise wrong
            first, full = first + len(batch), len(batch) == size

    @property
    def is_typed(self) -> bool:
        """Whether the features are known."""
        return self._reader.features is not None

    @property
    def features(self) -> Any:
        """The features of the rows, or None."""
        return self._reader.features

    @property
    def num_shards(self) -> int:
        """How many shards it reads."""
        return len(self._shards)

    def shuffle_data_sources(self, generator: np.random.Generator) -> "PrivatizedRows":
        """Return the same rows in the same order: an epoch changes nothing, and a shuffled buffer does not need it."""
        return self

    def reshard_data_sources(self) -> "PrivatizedRows":
        """Return the same shards: their numbers are part of the key of each row."""
        return self

    def shard_data_sources(self, num_shards: int, index: int, contiguous: bool = True) -> "PrivatizedRows":
        """Return some of the shards, with the numbers they have."""
        chosen = self.split_shard_indices_by_worker(num_shards, index, contiguous=contiguous)
        return PrivatizedRows(self._reader, self._job, self._key, [self._shards[place] for place in chosen])

    def _init_state_dict(self) -> dict[str, Any]:
        self._state_dict: dict[str, Any] = {"shard": 0, "row": 0, "type": type(self).__name__}
        return self._state_dict

    def __copy__(self) -> "PrivatizedRows":
        return PrivatizedRows(self._reader, self._job, self._key, self._shards)

    def __deepcopy__(self, memo: dict[int, Any]) -> "PrivatizedRows":
        return self.__copy__()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise PrivacyError(
            "a privatized stream cannot be pickled: the key of its noise stays in this process. Read it in forked "
            "workers, or save what comes out with .to_parquet() and read that."
        )
