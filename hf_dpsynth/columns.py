"""Columns: which one holds text, which labels may occur, and what the output looks like.

The label domain is declared, never read off the rows: a label that one person holds would be a disclosure.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.records import PrivateTexts

Label = tuple[Any, ...]
MAX_LABELS = 1000
ROLES = ("system", "user", "assistant")
_TURN = re.compile(rf"({'|'.join(ROLES)}) (\d+) ")


def _is_string(feature: Any) -> bool:
    return getattr(feature, "dtype", None) in ("string", "large_string") and not hasattr(feature, "names")


def _is_number(feature: Any) -> bool:
    kind = str(getattr(feature, "dtype", ""))
    return kind.lstrip("u").startswith(("int", "float")) and not hasattr(feature, "names")


def _is_label(feature: Any) -> bool:
    """Return whether a column holds ClassLabel, string, integer or bool values: labels, or the names of users."""
    kind = str(getattr(feature, "dtype", None))
    return kind in ("string", "large_string", "bool") or kind.lstrip("u").startswith("int")


def _turn(feature: Any) -> Mapping[str, Any]:
    """Return the struct that a column holds lists of; empty for other columns."""
    inner: Any = feature[0] if isinstance(feature, list) and len(feature) == 1 else getattr(feature, "feature", None)
    return inner if isinstance(inner, Mapping) and type(feature).__name__ in ("list", "List", "LargeList") else {}


def is_messages(feature: Any) -> bool:
    """Return whether a column holds conversations: lists of structs of two strings, role and content."""
    turn = _turn(feature)
    return set(turn) == {"role", "content"} and all(map(_is_string, turn.values()))


def write_messages(messages: Any) -> str | None:
    r"""Write a conversation as one text, which stays readable when it is cut. As sensitive as the conversation.

    Args:
        messages (`list[dict]`, *optional*): turns with a role and a content.
    Returns:
        `str`: empty where a role is none of `ROLES`, a value is missing or all contents are blank; None for None.
    Examples:
        >>> write_messages([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}])
        'user 2 Hiassistant 5 Hello'
    """
    if messages is None:
        return None
    turns = []
    for turn in messages:
        if turn is None or turn["role"] not in ROLES or turn["content"] is None:
            return ""
        turns.append((turn["role"], str(turn["content"])))
    blank = not any(content.strip() for _, content in turns)
    return "" if blank else "".join(f"{role} {len(content)} {content}" for role, content in turns)


def read_messages(text: str) -> list[dict[str, str]]:
    """Read what `write_messages` wrote; the last content may be cut, other text is no conversation.

    Examples:
        >>> read_messages("user 2 Hiassistant 5 Hel")
        [{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Hel'}]
    """
    found, at = [], 0
    while match := _TURN.match(text, at):
        at = match.end() + int(match[2])
        found.append({"role": match[1], "content": text[match.end() : at]})
    return found


def _shown(names: Iterable[str]) -> list[str]:
    """Return names for a message; what is no plain name may be a record of a file without a header."""
    return [name if re.fullmatch(r"[\w.-]{1,40}", name) else "..." for name in names]


def text_column(features: Any, asked: str | None, *, messages: bool = False) -> str:
    """Return the column of text: the one asked for, or the only string column.

    A named column of numbers is read as text, and one of conversations is taken where `messages` is true.

    Raises:
        ConfigError: no such column, not a text column, or several to choose from.
    """
    strings = [name for name, feature in features.items() if _is_string(feature)]
    if asked is None:
        if len(strings) != 1:
            raise ConfigError(
                f"text_column= must name the column of text; the string columns are {_shown(strings)} "
                f"among the columns {_shown(features)}."
            )
        return str(strings[0])
    if asked not in features:
        raise ConfigError(f"column {asked!r} does not exist; the columns are {_shown(features)}.")
    if is_messages(features[asked]):
        if not messages:
            raise ConfigError(
                f"column {asked!r} holds conversations, which dp-lora, dp-prompt-tuning and dp-full alone read; the "
                f"string columns are {_shown(strings)}."
            )
        return asked
    if asked not in strings and not _is_number(features[asked]):
        further = set(_turn(features[asked])) > {"role", "content"}
        way = "of its turns keep only role and content" if further else f"the string columns are {_shown(strings)}"
        raise ConfigError(f"column {asked!r} holds {features[asked]}, not text; {way}.")
    return asked


def label_columns(features: Any, asked: str | Sequence[str] | None, text: str) -> tuple[str, ...]:
    """Return the conditioning columns.

    Raises:
        ConfigError: a column does not exist, is the text, or holds neither string, integer, bool nor ClassLabel.
    """
    columns = () if asked is None else (asked,) if isinstance(asked, str) else tuple(asked)
    for column in columns:
        if column not in features:
            raise ConfigError(f"column {column!r} does not exist; the columns are {_shown(features)}.")
        if column == text or not _is_label(features[column]):
            raise ConfigError(
                f"label_column={column!r} cannot be a label; labels are ClassLabel, string, integer or bool columns "
                "other than the text."
            )
    if len(set(columns)) != len(columns):
        raise ConfigError(f"label_column= names a column twice: {list(columns)}.")
    return columns


def read_users(dataset: Any, column: str, taken: Sequence[str]) -> PrivateTexts:
    """Return the user of each row; None where a row has none. Sensitive.

    Args:
        dataset (`datasets.Dataset`): the rows. Sensitive.
        column (`str`): the column whose values are the users.
        taken (`Sequence[str]`): the columns of text and labels.
    Raises:
        ConfigError: the column does not exist, is one of those, or holds neither string, integer, bool nor ClassLabel.
    """
    features = dataset.features
    if column not in features:
        raise ConfigError(f"unit={column!r} names no column; the columns are {_shown(features)}.")
    if column in taken or not _is_label(features[column]):
        raise ConfigError(
            f"unit={column!r} cannot name the users; they are the values of a string, integer, bool or ClassLabel "
            "column other than the text and the labels."
        )
    return PrivateTexts(user for (user,) in read_rows(dataset, (column,)))


def label_domain(
    features: Any, columns: Sequence[str], labels: Any, proportions: Any
) -> tuple[tuple[Label, ...], tuple[float, ...] | None]:
    """Return the declared joint domain of the conditioning columns and its declared shares.

    Args:
        features (`datasets.Features`, *optional*): the columns' features; None when there is no data.
        columns (`Sequence[str]`): the conditioning columns; empty without data means one column.
        labels (`Sequence` or `dict`, *optional*): values, tuples of values, or values by column.
        proportions (`dict`, *optional*): shares by value or tuple, or by column and value.
    Returns:
        the labels as tuples, and their shares or None.
    Raises:
        ConfigError: no domain is declared, a value occurs twice, or shares do not sum to 1.
    """
    if features is not None and not columns:
        if labels is not None or proportions is not None:
            raise ConfigError("labels= and label_proportions= need label_column=: the column they speak of.")
        return ((),), None
    if labels is None and proportions is None and features is None:
        return ((),), None
    width = max(1, len(columns))
    if labels is not None:
        domain = _joint(labels, columns, width, "labels")
    elif proportions is not None:
        domain = tuple(_shares(proportions, columns, width))
    else:
        domain = _from_features(features, columns)
    domain = tuple(_named(features, columns, label) for label in domain)
    _check_size(domain, features)
    return domain, None if proportions is None else _declared_shares(features, columns, domain, proportions)


def _check_size(domain: tuple[Label, ...], features: Any) -> None:
    if len(set(domain)) != len(domain) or not domain:
        raise ConfigError(f"labels= has {len(domain)} labels, {len(set(domain))} of them distinct; name each once.")
    if features is not None and len(domain) == 1:
        raise ConfigError(f"labels= has a single label, {domain[0]}: there is nothing to condition on. Leave it out.")
    if len(domain) > MAX_LABELS:
        raise ConfigError(
            f"labels= has {len(domain)} labels; the limit is {MAX_LABELS}. Votes for so many labels drown in the "
            "noise: group them, or leave label_column out."
        )


def _declared_shares(
    features: Any, columns: Sequence[str], domain: tuple[Label, ...], proportions: Any
) -> tuple[float, ...]:
    """Return the declared shares in the order of the domain."""
    declared = _shares(proportions, columns, max(1, len(columns)))
    shares = {_named(features, columns, label): share for label, share in declared.items()}
    known = set(domain)
    strangers = [label for label in shares if label not in known]
    if strangers:
        raise ConfigError(f"label_proportions= names {strangers[0]}, which is not among the labels.")
    try:
        values = tuple(float(shares.get(label, 0.0)) for label in domain)
    except (TypeError, ValueError) as error:
        raise ConfigError("label_proportions= holds a share that is no number; shares sum to 1.") from error
    if not all(math.isfinite(value) and value >= 0 for value in values) or not abs(sum(values) - 1) < 1e-6:
        raise ConfigError(f"label_proportions= sums to {sum(values):.6g}; shares are >= 0 and sum to 1.")
    return values


def _tuples(values: Any, width: int, argument: str) -> list[Label]:
    labels = [value if isinstance(value, tuple) else (value,) for value in values]
    for label in labels:
        if len(label) != width:
            raise ConfigError(f"{argument}= has a label of {len(label)} values for {width} label columns.")
    return labels


def _joint(labels: Any, columns: Sequence[str], width: int, argument: str) -> tuple[Label, ...]:
    if isinstance(labels, Mapping):
        if set(labels) != set(columns):
            raise ConfigError(f"{argument}= by column names {list(labels)}; the label columns are {list(columns)}.")
        for column in columns:
            if isinstance(labels[column], str) or not isinstance(labels[column], Sequence):
                raise ConfigError(f"{argument}= of {column!r} is {labels[column]!r}; pass a list of values.")
        return tuple(product(*(labels[column] for column in columns)))
    if isinstance(labels, np.ndarray):
        labels = labels.tolist()
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise ConfigError(f"{argument}= is {type(labels).__name__}; pass a list of values, or a dict by column.")
    return tuple(_tuples(labels, width, argument))


def _shares(proportions: Any, columns: Sequence[str], width: int) -> dict[Label, float]:
    if not isinstance(proportions, Mapping):
        raise ConfigError(f"label_proportions= is {type(proportions).__name__}; pass a dict from label to share.")
    if columns and set(proportions) == set(columns) and all(isinstance(v, Mapping) for v in proportions.values()):
        joint = product(*(proportions[column].items() for column in columns))
        return {tuple(value for value, _ in cell): math.prod(share for _, share in cell) for cell in joint}
    keys = _tuples(proportions, width, "label_proportions")
    return dict(zip(keys, proportions.values(), strict=True))


def _from_features(features: Any, columns: Sequence[str]) -> tuple[Label, ...]:
    for column in columns:
        if not hasattr(features[column], "names"):
            raise ConfigError(
                f"label_column={column!r} has no declared domain: pass labels= or label_proportions=, or cast the "
                "column to ClassLabel. Labels are never read off private rows."
            )
    return tuple(product(*(features[column].names for column in columns)))


def _named(features: Any, columns: Sequence[str], label: Label) -> Label:
    """Return a declared label in the types of its columns, ClassLabel numbers as names."""
    if features is None or not columns:
        return tuple(_plain(value, None) for value in label)
    return tuple(_plain(value, features[column]) for column, value in zip(columns, label, strict=True))


def _plain(value: Any, feature: Any) -> Any:
    """Check a declared label value against its column."""
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, (str, int, bool)):
        raise ConfigError(f"label {value!r} is of type {type(value).__name__}; labels are strings, integers or bools.")
    if feature is None:
        return value
    if hasattr(feature, "names"):
        known = value in feature.names if isinstance(value, str) else 0 <= value < len(feature.names)
        if isinstance(value, bool) or not known:
            raise ConfigError(f"label {value!r} is not in the ClassLabel column; its names are {feature.names}.")
        return _name(feature, value)
    expected = {"bool": bool, "string": str, "large_string": str}.get(feature.dtype, int)
    if type(value) is not expected:
        raise ConfigError(f"label {value!r} is of type {type(value).__name__}; the column holds {feature.dtype}.")
    return value


def _name(feature: Any, value: Any) -> Any:
    """Return the name of a ClassLabel number; None for a missing one, other values as they are."""
    if not hasattr(feature, "names") or isinstance(value, str):
        return value
    return feature.names[value] if value is not None and 0 <= value < len(feature.names) else None


def kept_columns(features: Any, asked: str | Sequence[str], text: str) -> tuple[str, ...]:
    """Return the columns to copy in clear.

    Raises:
        ConfigError: a column does not exist, or is the text.
    """
    names = (asked,) if isinstance(asked, str) else tuple(dict.fromkeys(asked))
    others = [name for name in features if name != text]
    for name in names:
        if name not in others:
            raise ConfigError(f"keep_columns= names {name!r}; the columns beside the text are {_shown(others)}.")
    return names


def read_rows(dataset: Any, columns: Sequence[str]) -> list[Label]:
    """Return the values of columns by row, ClassLabel numbers as names. Sensitive."""
    if not columns:
        return [()] * len(dataset)
    plain, features = dataset.with_format(None), dataset.features
    read = [[_name(features[column], value) for value in plain[column][:]] for column in columns]
    return list(zip(*read, strict=True))


def read_texts(dataset: Any, column: str) -> list[str | None]:
    """Return the texts of all rows; numbers and conversations are written as text, null stays null. Sensitive."""
    values = dataset.with_format(None)[column][:]
    if is_messages(dataset.features[column]):
        return [write_messages(messages) for messages in values]
    return values if _is_string(dataset.features[column]) else [None if v is None else str(v) for v in values]


def public_rows(
    public: Any, private: Any, text: str, labels: Sequence[str], domain: Sequence[Label]
) -> list[tuple[Label, str]]:
    """Return public rows as pairs of label and text; those without text or with another label are left out.

    Args:
        public (`Dataset` or `Sequence[str]`): rows with the columns of the private data, or texts. Public.
        private (`Dataset`): the private data, to tell that these are other rows of the same kind. Sensitive.
        text (`str`): the column of text.
        labels (`Sequence[str]`): the conditioning columns.
        domain (`Sequence[tuple]`): the declared labels.
    Raises:
        ConfigError: it is the private data, of another type or kind of text, lacks a column, or has no usable row.
    """
    from datasets import Dataset

    talks = is_messages(private.features[text])
    if isinstance(public, Dataset) and _are_same(public, private):
        raise ConfigError("public= is the private data itself, whose loss would tell of its records. Pass other text.")
    if isinstance(public, Dataset):
        for name in (text, *labels):
            if name not in public.features:
                raise ConfigError(f"public= has no column {name!r}; its columns are {_shown(public.features)}.")
        if is_messages(public.features[text]) != talks:
            kind = "conversations" if talks else "text"
            raise ConfigError(f"column {text!r} of public= holds no {kind}, unlike the private one. Pass {kind}.")
        rows = list(zip(read_rows(public, labels), read_texts(public, text), strict=True))
    elif not isinstance(public, (list, tuple)) or not all(isinstance(row, str) for row in public):
        raise ConfigError(f"public= is {type(public).__name__}; pass a Dataset (one split) or a list of texts.")
    elif talks or labels:
        needed = "conversations" if talks else f"{', '.join(labels)} too"
        raise ConfigError(f"public= is a list of texts; pass a Dataset that has {needed}.")
    else:
        rows = [((), row) for row in public]
    known = set(domain)
    found = [(label, row) for label, row in rows if label in known and row and not row.isspace()]
    if not found:
        raise ConfigError(f"public= has no row with text and one of the labels {list(domain)[:5]}.")
    return found


def _are_same(one: Any, other: Any) -> bool:
    """Return whether two data sets are of one origin, or are the same rows in memory in another format."""
    return one._fingerprint == other._fingerprint or one.data.table is other.data.table


def output_features(features: Any, columns: Sequence[str], text: str) -> Any:
    """Return the features of the named columns, as they were; a text column of numbers becomes strings."""
    from datasets import Features, Value

    kept = {column: features[column] for column in columns}
    same = _is_string(features[text]) or is_messages(features[text])
    return Features(kept if same else {**kept, text: Value("string")})


def encode(features: Any, row: dict[str, Any]) -> dict[str, Any]:
    """Write label names as the numbers of their ClassLabel, and written conversations as lists of turns.

    A conversation without a turn is one empty message of a user.
    """
    return {name: _encoded(features[name], value) for name, value in row.items()}


def _encoded(feature: Any, value: Any) -> Any:
    if is_messages(feature):
        return read_messages(value) or [{"role": "user", "content": ""}]
    return feature.str2int(value) if hasattr(feature, "names") else value
