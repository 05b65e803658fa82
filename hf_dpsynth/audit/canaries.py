"""Canaries: made records, each planted or not by a secret coin, and what the released texts tell of the coins.

A canary begins like a text of the data and goes on in words that nobody writes in a row. A generator that was asked
for ordinary text still takes up the beginning, and whatever it repeats of the end is told from all else. The coins are
fair and independent, so `one_run` gives a bound on epsilon that holds for any mechanism and any score. Sources: Meeus
et al. 2025, arXiv:2502.14921 (the form of the texts); Steinke, Nasr & Jagielski 2023, arXiv:2305.08846 (the bound).
Where the first takes the end from a language model at a high temperature, we draw words uniformly from a public
vocabulary, without repeating one while there are others, so that no two canaries share what gives them away.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from hf_dpsynth import columns
from hf_dpsynth.audit.attacks import AttackResult, Curve
from hf_dpsynth.audit.findings import Finding, check_confidence, check_delta
from hf_dpsynth.audit.membership import prefixed
from hf_dpsynth.audit.separation import AUC, LEAST, TPR, discrimination
from hf_dpsynth.audit.signals import NGRAM, Reading, named, released, scores_of
from hf_dpsynth.audit.steinke import one_run
from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.metrics.base import check_count, check_seed, check_texts
from hf_dpsynth.metrics.words import words
from hf_dpsynth.models.base import Embedder
from hf_dpsynth.privacy.keys import Key, public_generator

_WORDS = "glove-50d"
_SHORT = 3
_HERE = "It bounds what the released texts tell by this score; a model that was trained may tell more."
_SILENT = "{signal} scores all canaries alike: nothing of them is in the released texts, so it bounds nothing."
_PAST = "This figure refutes no claim; epsilon_lower does."


class Canaries:
    """Made texts with a secret coin each. Made by `make_canaries`.

    Who sees the coins can pass any audit, so they are neither shown nor pickled, and no seed leads to them.

    Args:
        texts (`Sequence[str]`): the canaries, all different. As sensitive as the texts that they begin like.
        starts (`Sequence[int]`): how many words of each are its beginning. Public.
        labels (`Sequence`, *optional*): the label of each.
        copies (`int`): how often an included canary is planted. Public.
        key (`Key`): what the coins come from. Secret.
    """

    __slots__ = ("_key", "_labels", "copies", "included", "starts", "texts")

    def __init__(
        self, texts: Sequence[str], starts: Sequence[int], labels: Sequence[Any] | None, copies: int, key: Key
    ) -> None:
        self.texts, self.starts, self.copies = tuple(texts), tuple(starts), copies
        self._labels, self._key = None if labels is None else tuple(labels), key
        self.included = key.generator("canary-coins").integers(0, 2, len(self.texts)).astype(bool)
        self.included.flags.writeable = False

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"Canaries({len(self)}, copies={self.copies}, <secret>)"

    def __reduce__(self) -> NoReturn:
        raise PrivacyError(
            "canaries cannot be pickled: their coins are secret. Audit in the process that planted them."
        )

    def plant(self, dataset: Any, text_column: str, label_column: str | None = None) -> Any:
        """Return the data with the included canaries among its rows, in a secret order that stays the same.

        Columns beside text and label are null in these rows. A mechanism whose unit is a user leaves rows without a
        user out, and one that privatizes returns a row for each row: neither can be audited in this way.

        Args:
            dataset (`Dataset`): the private data; one split. Sensitive.
            text_column (`str`): the column of text.
            label_column (`str`, *optional*): a ClassLabel, string, integer or bool column, for canaries with labels.
        Returns:
            `Dataset`: a new one, as sensitive as `dataset`. Pass `num_records=len(dataset) + len(canaries) * copies`
            and `num_rows=` where the plan would else depend on the number of rows: the coins move it.
        Raises:
            ConfigError: a column does not exist or is of another type, or a label is none of the column.
        """
        from datasets import Dataset, concatenate_datasets

        if not isinstance(dataset, Dataset):
            raise ConfigError(f"dataset is of type {type(dataset).__name__}; pass a Dataset: one split, no stream")
        plain = dataset.with_format(None)
        column = columns.text_column(plain.features, text_column)
        if getattr(plain.features[column], "dtype", None) not in ("string", "large_string"):
            raise ConfigError(f"column {column!r} holds no text, so no canary can be planted there")
        chosen = [int(place) for place in np.flatnonzero(self.included) for _ in range(self.copies)]
        made: dict[str, list[Any]] = {name: [None] * len(chosen) for name in plain.features}
        made[column] = [self.texts[place] for place in chosen]
        if label_column is not None:
            (name,) = columns.label_columns(plain.features, label_column, column)
            made[name] = self._labels_of(plain.features[name], chosen)
        both = concatenate_datasets([plain, Dataset.from_dict(made, features=plain.features)])
        order = self._key.generator("canary-places").permutation(len(both))
        return both.select(order, keep_in_memory=True)

    def _labels_of(self, feature: Any, chosen: list[int]) -> list[Any]:
        if self._labels is None:
            raise ConfigError("label_column= is given and the canaries have no labels. Pass labels= to make_canaries.")
        return [_encoded(feature, self._labels[place]) for place in chosen]


def make_canaries(
    texts: Sequence[str],
    number: int,
    *,
    labels: Sequence[Any] | None = None,
    prefix_words: int = 8,
    suffix_words: int = 8,
    vocabulary: Sequence[str] | None = None,
    copies: int = 1,
    key: Key | None = None,
    seed: int = 0,
) -> Canaries:
    """Make canaries: the beginning of a text, and words drawn uniformly from a public vocabulary.

    Args:
        texts (`Sequence[str]`): texts like those of the data, to begin like them; each is taken once before one is
            taken again. Public texts keep the canaries public; private ones make them as sensitive, and a canary that
            begins like a private row strengthens that row's own words too.
        number (`int`): how many canaries; about half will be planted. 1000 can show an epsilon of 3.47
            at delta 1e-5, confidence 0.95 and 100 guesses, 100 with 20 guesses one of 1.82.
        labels (`Sequence`, *optional*): the label of each of `texts`; its canaries have the same.
        prefix_words (`int`, defaults to 8): how many words of a text a canary begins with.
        suffix_words (`int`, defaults to 8): how many drawn words follow.
        vocabulary (`Sequence[str]`, *optional*): the words to draw from; those of `"glove-50d"` that are letters alone
            and have 3 or more when missing. Public: words of private texts would be released as they are.
        copies (`int`, defaults to 1): how often an included canary is planted. More are found more easily, and the
            bound is for all copies together, so it is turned back into one for a single record, which costs more.
        key (`Key`, *optional*): where the coins come from. A fresh one when missing. Keep a key of your own, secret,
            to make the same canaries again in another process.
        seed (`int`, defaults to 0): of the choice of texts and words, never of the coins. Public.
    Returns:
        `Canaries`: the texts with a secret coin each.
    Raises:
        ConfigError: no text has a word, the vocabulary has too few, or an argument is out of range.
    Examples:
        >>> from hf_dpsynth.audit import make_canaries
        >>> made = make_canaries(["a good film", "a dull plot"], 4, prefix_words=2, suffix_words=1, vocabulary="pqrs")
        >>> sorted(text.rsplit(" ", 1)[0] for text in made.texts), made
        (['a dull', 'a dull', 'a good', 'a good'], Canaries(4, copies=1, <secret>))
    """
    for name, value, least in (
        ("number", number, 1), ("prefix_words", prefix_words, 1), ("suffix_words", suffix_words, 1),
        ("copies", copies, 1),
    ):  # fmt: skip
        check_count(name, value, least)
    check_seed(seed)
    rows = check_texts(texts, "texts")
    if labels is not None and len(labels) != len(rows):
        raise ConfigError(f"labels= has {len(labels)} values; it needs the label of each of the texts")
    usable = [place for place, text in enumerate(rows) if words(text)]
    if not usable:
        raise ConfigError("texts= has no text with a word; a canary begins like one of them")
    order = public_generator(seed, "canary-prefixes").permutation(usable)
    chosen = [int(order[place % len(order)]) for place in range(number)]
    prefixes = [" ".join(rows[place].split()[:prefix_words]) for place in chosen]
    ends = _suffixes(_vocabulary(vocabulary), number, suffix_words, seed)
    made = [f"{prefix} {end}" for prefix, end in zip(prefixes, ends, strict=True)]
    if len(set(made)) < number:
        raise ConfigError(f"{number} canaries would not all differ. Pass more suffix_words=, or a longer vocabulary=.")
    own = None if labels is None else [labels[place] for place in chosen]
    return Canaries(made, [len(words(prefix)) for prefix in prefixes], own, copies, Key() if key is None else key)


def audit_canaries(
    synthetic: Sequence[str],
    canaries: Canaries,
    *,
    signal: str = NGRAM,
    embedder: str | Embedder = "minilm",
    neighbours: int = 1,
    delta: float = 1e-5,
    confidence: float = 0.95,
    claimed_epsilon: float | None = None,
    guesses: int | Sequence[int] | None = None,
    seed: int = 0,
) -> AttackResult:
    """Bound epsilon by what the texts that were released from planted data tell of the canaries' coins.

    Args:
        synthetic (`Sequence[str]`): all texts that one run on the planted data released. Public.
        canaries (`Canaries`): what was planted. Secret.
        signal (`str`, defaults to `"ngram"`): `"ngram"` (likelihood of a canary's drawn words), `"nearest"`,
            `"jaccard"` or `"all"`, which share 1 - confidence; see `audit_membership`.
        embedder (`str` or object with `.embed`, defaults to `"minilm"`): for `"nearest"`.
        neighbours (`int`, defaults to 1): how many nearest texts are averaged; one leaked row is lost among more.
        delta (`float`, defaults to 1e-5): the delta of the claim, for one record.
        confidence (`float`, defaults to 0.95): with which the bound holds, for all signals together.
        claimed_epsilon (`float`, *optional*): the claim at delta, for one record.
        guesses (`int` or `Sequence[int]`, *optional*): as for `one_run`; all of them say that a canary was included,
            as most of those that were leave no trace in a few rows.
        seed (`int`, defaults to 0): of the order of equal scores. Public.
    Returns:
        `AttackResult`: `epsilon_lower`, which refutes a claim below it, and the `auc` of included canaries against
        those left out, with `signal="all"` as `"ngram_auc"` and the like. Sensitive.
    Raises:
        ConfigError: a list is empty or holds something else than text, the coins fell so that there is nothing to
            guess, or an argument is out of range.
    Examples:
        >>> from hf_dpsynth.audit import audit_canaries, make_canaries
        >>> from hf_dpsynth.privacy.keys import Key
        >>> made = make_canaries(["a good film"], 400, key=Key.from_insecure_seed(0))
        >>> leak = [text for text, there in zip(made.texts, made.included) if there]
        >>> found = audit_canaries(leak, made, claimed_epsilon=1.0)["epsilon_lower"]
        >>> round(found.value, 2), found.violated
        (2.54, True)
    """
    check_delta(delta)
    check_confidence(confidence)
    if not isinstance(canaries, Canaries):
        raise ConfigError(f"canaries is of type {type(canaries).__name__}; pass what make_canaries returned")
    rows, signals = released(synthetic), named(signal)
    reading, bounds = Reading(neighbours=neighbours, calibrated=False), []
    findings: list[Finding] = []
    curve: Curve = ()
    for one in signals:
        scores = scores_of(one, rows, canaries.texts, reading=reading, embedder=embedder, starts=canaries.starts)
        bounds.append(_bound(one, scores, canaries, len(signals), delta, confidence, claimed_epsilon, guesses, seed))
        area = _area(one, scores, canaries, confidence, seed)
        if area is not None:
            curve = curve or area.curve
            findings += prefixed(one, area) if len(signals) > 1 else area.findings
    best = max(bounds, key=lambda bound: bound.value)
    if len(signals) > 1:
        said = f"The best of {len(signals)} signals, which share 1 - confidence."
        best = replace(best, confidence=confidence, limits=(said, *best.limits))
    return AttackResult(name="canaries", findings=(best, *findings), curve=curve)


def _bound(
    signal: str,
    scores: np.ndarray,
    canaries: Canaries,
    shares: int,
    delta: float,
    confidence: float,
    claimed: float | None,
    guesses: int | Sequence[int] | None,
    seed: int,
) -> Finding:
    """Return the bound of one signal at its share of 1 - confidence."""
    silent = np.ptp(scores) == 0
    if silent:  # no score tells any two apart: guesses in a public order are as good
        scores = public_generator(seed, "canary-order").permutation(len(scores)).astype(float)
    found = one_run(
        scores,
        canaries.included,
        delta,
        1 - (1 - confidence) / shares,
        guesses=guesses,
        claimed_epsilon=claimed,
        included_share=1.0,  # a trace is a sure sign; most included canaries leave none in a few rows
        copies=canaries.copies,
        seed=seed,
    )
    said = _SILENT.format(signal=signal) if silent else _HERE
    return replace(found, attack=f"canaries by {signal}", limits=(*found.limits, said))


def _area(signal: str, scores: np.ndarray, canaries: Canaries, confidence: float, seed: int) -> AttackResult | None:
    """Return the area under the curve and the sure hits; None where the scores tell nothing or are too few."""
    inside, outside = scores[canaries.included], scores[~canaries.included]
    if np.ptp(scores) == 0 or min(len(inside), len(outside)) < LEAST:
        return None
    found = discrimination(
        inside, outside, attack=f"canaries by {signal}", confidence=confidence, limits=(_PAST,), seed=seed
    )
    return replace(found, findings=(found[AUC], found[TPR]))


def _encoded(feature: Any, label: Any) -> Any:
    """Return a label as the column holds it."""
    if hasattr(feature, "names"):
        known = label in feature.names if isinstance(label, str) else label in range(len(feature.names))
        if isinstance(label, bool) or not known:
            raise ConfigError(
                f"a label of the canaries is not in the ClassLabel column; its names are {feature.names}"
            )
        return feature.str2int(label) if isinstance(label, str) else int(label)
    kind = {"bool": bool, "string": str, "large_string": str}.get(feature.dtype, int)
    if type(label) is not kind:
        raise ConfigError(
            f"a label of the canaries is of type {type(label).__name__}; the column holds {feature.dtype}"
        )
    return label


def _vocabulary(given: Sequence[str] | None) -> list[str]:
    if given is None:
        from hf_dpsynth.models.word_vectors import load_vectors

        return [word for word in load_vectors(_WORDS).words if len(word) >= _SHORT and word.isalpha()]
    found = list(dict.fromkeys(given))
    if len(found) < 2 or not all(isinstance(word, str) and len(words(word)) == 1 for word in found):
        raise ConfigError("vocabulary= needs two or more different words, each without a space or mark")
    return found


def _suffixes(vocabulary: list[str], number: int, size: int, seed: int) -> Iterator[str]:
    """Yield the drawn words of each canary: no word twice before all have been taken."""
    rng, row = public_generator(seed, "canary-suffixes"), np.empty(0, np.int64)
    for _ in range(number):
        while len(row) < size:
            row = np.concatenate([row, rng.permutation(len(vocabulary))])
        taken, row = row[:size], row[size:]
        yield " ".join(vocabulary[word] for word in taken)
