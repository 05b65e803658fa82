"""Secrets of private rows: a column that lists them, a function, or a detector of e-mail addresses, names and so on.

What is listed is protected, what is not listed is not. A column is the user's own list; a function or a detector may
miss a secret because of its value, and the guarantee says so. Detectors read each text alone, up to a public length.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.models.entities import SpacyEntities
from hf_dpsynth.privacy.records import PrivateTexts
from hf_dpsynth.privacy.secret_weights import OTHER, Secret

PATTERNS: Mapping[str, str] = {
    "email": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",
    "phone": r"(?<![\w.+-])(?:\+\d{1,3}[ .-]?)?(?:\(\d{2,5}\)|\d{2,5})[ .-]\d{3,4}(?:[ .-]?\d{2,4}){1,3}(?![\w-])",
    "iban": r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?(?!\w)",
    "card": r"(?<![\w-])(?:\d{4}[ -]?){3}\d{4}(?![\w-])",
    "ip": r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])",
}
ENTITIES = ("PERSON", "ORG", "GPE", "LOC", "FAC", "NORP")
LONGEST = 20_000  # characters of a text that can vote, as `PrivateRecords` cuts it
_BEYOND = 256  # a secret that the cut splits is found whole
_SEPARATED = ("phone", "iban", "card")


class SecretDetector(Protocol):
    """Finds the secrets of texts. A list of pairs of kind and value for each text, which reads that text alone.

    One that has `kinds`, the kinds that it finds, lets a misspelt kind in p or r be refused.
    """

    def find(self, texts: Sequence[str]) -> Sequence[Sequence[Secret]]:
        """Return the secrets of each text."""
        ...


class RegexDetector:
    """Finds secrets by regular expressions.

    Args:
        patterns (`dict[str, str]`): expressions by kind; e-mail addresses, phone numbers, IBANs, card numbers and
            internet addresses when missing. Public.
    Raises:
        ConfigError: an expression cannot be read.
    Examples:
        >>> RegexDetector().find(["Write to ann@example.org."])
        [[('email', 'ann@example.org')]]
    """

    def __init__(self, patterns: Mapping[str, str] = PATTERNS) -> None:
        try:
            self.patterns = {kind: re.compile(pattern) for kind, pattern in patterns.items()}
        except re.error as error:
            raise ConfigError(f"a pattern of secrets is no regular expression: {error}") from error
        self.kinds = tuple(self.patterns)

    def find(self, texts: Sequence[str]) -> list[list[Secret]]:
        """Return the matches in each text, less differences in case and, in numbers, in spaces. Sensitive."""
        return [
            [
                (kind, _normal(kind, match.group()))
                for kind, pattern in self.patterns.items()
                for match in pattern.finditer(text)
            ]
            for text in texts
        ]


def _normal(kind: str, value: str) -> str:
    return re.sub(r"[^\w+]", "", value).lower() if kind in _SEPARATED else value.lower()


class SpacyDetector:
    """Finds names of people, organisations and places with a spaCy pipeline.

    Args:
        model (`str`, defaults to `"en-core-web-sm"`): a short name of the catalogue or a local folder.
        kinds (`Sequence[str]`): the kinds of entities that are secrets.
    """

    def __init__(self, model: str = "en-core-web-sm", kinds: Sequence[str] = ENTITIES) -> None:
        self.model, self.kinds = SpacyEntities(model), tuple(kinds)

    def find(self, texts: Sequence[str]) -> list[list[Secret]]:
        """Return the entities in each text, less differences in case. Sensitive."""
        found = (self.model.entities(text) for text in texts)
        return [[(kind, value.lower()) for kind, value in pairs if kind in self.kinds] for pairs in found]


class PresidioDetector:
    """Finds personal data with `presidio-analyzer`.

    Args:
        language (`str`, defaults to `"en"`): the language of the texts.
        kinds (`Sequence[str]`, *optional*): Presidio's entities that are secrets; all that it knows when missing.
        analyzer (*optional*): an `AnalyzerEngine` with settings of your own.
    Raises:
        MissingExtra: `presidio-analyzer` is not installed.
    """

    def __init__(self, language: str = "en", kinds: Sequence[str] | None = None, analyzer: Any = None) -> None:
        self.language, self.kinds = language, None if kinds is None else list(kinds)
        if analyzer is None:
            analyzer = need("presidio_analyzer", extra="secrets", what="secrets='presidio'").AnalyzerEngine()
        self.analyzer = analyzer

    def find(self, texts: Sequence[str]) -> list[list[Secret]]:
        """Return what Presidio finds in each text, less differences in case. Sensitive."""
        return [
            [
                (str(one.entity_type), text[one.start : one.end].lower())
                for one in self.analyzer.analyze(text=text, language=self.language, entities=self.kinds)
            ]
            for text in texts
        ]


DETECTORS: Mapping[str, Callable[[], SecretDetector]] = {
    "presidio": PresidioDetector,
    "regex": RegexDetector,
    "spacy": SpacyDetector,
}


class Held(NamedTuple):
    """The secrets of private rows.

    Args:
        rows (`PrivateTexts`, *optional*): for each row its secrets, as pairs of kind and value; None for mechanisms
            that protect none. Sensitive.
        assumptions (`tuple[str, ...]`): what the guarantee must say of where they come from. Public.
    """

    rows: PrivateTexts | None = None
    assumptions: tuple[str, ...] = ()


def secrets_of(mechanism: Any, secrets: Any, data: Any, texts: Sequence[str | None], columns: Sequence[str]) -> Held:
    """Return the secrets of private rows for a mechanism that protects them.

    Args:
        mechanism (`Synthesizer`): the hyper-parameters.
        secrets (`str`, `Callable` or `SecretDetector`): a column, a detector's name, a function from a text to its
            secrets, or a detector. A tuple of two strings is a kind and a value, so an expression for `re.findall` has
            at most one group.
        data (`datasets.Dataset`): the rows. Sensitive.
        texts (`Sequence[str]`): their texts. Sensitive.
        columns (`Sequence[str]`): the columns of text and labels, which list no secrets.
    Raises:
        ConfigError: nothing of the kind, or a mechanism that protects secrets was given none.
    """
    if "secrets" not in getattr(mechanism, "takes", ()):
        return Held()
    if secrets is None:
        raise ConfigError(
            f"{mechanism.name} needs secrets=: a column of lists, a function from a text to its secrets, or one of "
            f"{', '.join(map(repr, DETECTORS))}. Rows without a listed secret get no protection."
        )
    if isinstance(secrets, str) and secrets in data.features:
        return Held(_listed(data, secrets, columns))
    if isinstance(secrets, str) and secrets not in DETECTORS:
        lists = [name for name, feature in data.features.items() if _is_list(feature)]
        raise ConfigError(
            f"secrets={secrets!r} is neither a column nor a detector; the columns of lists are {lists}, the detectors "
            f"{', '.join(DETECTORS)}."
        )
    detector = DETECTORS[secrets]() if isinstance(secrets, str) else secrets
    _check_kinds(mechanism, getattr(detector, "kinds", None))
    name = secrets if isinstance(secrets, str) else _name(detector)
    found = found_secrets(detector, texts)
    return Held(found, (f"{name} finds a secret in the same rows whatever its value: unknown",))


def found_secrets(secrets: Any, texts: Sequence[str | None]) -> PrivateTexts:
    """Return the secrets of each text, as pairs of kind and value. Sensitive if the texts are.

    Args:
        secrets (`str`, `Callable` or `SecretDetector`): a detector's name, a function from a text to its secrets, or a
            detector.
        texts (`Sequence[str]`): texts, read up to a public length. Sensitive if they are.
    Raises:
        ConfigError: nothing of the kind, or not one list for each text.
    """
    if isinstance(secrets, str) and secrets not in DETECTORS:
        raise ConfigError(f"secrets={secrets!r} is no detector; the detectors are {', '.join(DETECTORS)}.")
    detector = DETECTORS[secrets]() if isinstance(secrets, str) else secrets
    find = detector.find if hasattr(detector, "find") else _each(detector)
    cut = PrivateTexts("" if text is None else text[: LONGEST + _BEYOND] for text in texts)
    found = listed_secrets(find(cut))
    if len(found) != len(cut):
        raise ConfigError("the detector of secrets= must return one list for each text")
    return found


def listed_secrets(rows: Iterable[Any]) -> PrivateTexts:
    """Return what a column lists for each row as pairs of kind and value. Sensitive.

    Args:
        rows (`Iterable`): for each row a list of strings, of pairs or of structs, a string, or None. Sensitive.
    Raises:
        ConfigError: a value is something else.
    """
    return PrivateTexts(_pairs(values) for values in rows)


def _check_kinds(mechanism: Any, found: Iterable[str] | None) -> None:
    """Refuse a p or an r of a kind that a detector never finds: its secrets would get those of other kinds.

    Raises:
        ConfigError: a kind that is named is none of those that the detector says it finds.
    """
    if found is None:
        return
    known = list(found)
    for kind in getattr(mechanism, "pairs", dict)():
        if kind != OTHER and kind not in known:
            raise ConfigError(f"p or r names secrets of kind {kind!r}; secrets= finds {', '.join(known)}.")


def _name(detector: Any) -> str:
    """Return the public name of a function or an object."""
    named = detector if hasattr(detector, "__qualname__") else type(detector)
    return f"{named.__module__}.{named.__qualname__}"


def _each(function: Any) -> Callable[[Sequence[str]], list[Any]]:
    if not callable(function):
        raise ConfigError(
            f"secrets= is of type {type(function).__name__}; pass a column, a detector's name, a function from a text "
            "to its secrets, or an object with find(texts)."
        )
    return lambda texts: [function(text) for text in texts]


def _is_list(feature: Any) -> bool:
    """Return whether a column holds lists of strings, or of structs of a kind and a value."""
    inner = feature[0] if isinstance(feature, list) and len(feature) == 1 else getattr(feature, "feature", None)
    if isinstance(inner, Mapping):
        return set(inner) == {"kind", "value"} and all(_is_string(part) for part in inner.values())
    return _is_string(inner)


def _is_string(feature: Any) -> bool:
    return getattr(feature, "dtype", None) in ("string", "large_string", "null")


def _listed(data: Any, column: str, taken: Sequence[str]) -> PrivateTexts:
    if column in taken or not _is_list(data.features[column]):
        raise ConfigError(
            f"secrets={column!r} lists no secrets; a column other than text and labels holds lists of strings, or of "
            "structs {'kind', 'value'}."
        )
    return listed_secrets(data.with_format(None)[column][:])


def _pairs(values: Iterable[Any] | None) -> list[Secret]:
    """Return the secrets of a row as pairs of kind and value; missing and blank ones are none.

    Raises:
        ConfigError: a value is neither a string, a pair nor a struct; a secret that was dropped would be published.
    """
    found = []
    for value in () if values is None else [values] if isinstance(values, str) else values:
        if value is None:
            continue
        kind, secret = (value.get("kind"), value.get("value")) if isinstance(value, Mapping) else (None, value)
        if isinstance(value, tuple) and len(value) == 2:
            kind, secret = value
        if secret is None or (isinstance(secret, str) and not secret.strip()):
            continue
        if not isinstance(secret, str) or not (kind is None or isinstance(kind, str)):
            raise ConfigError("secrets= gave something else than strings, or pairs of kind and value")
        found.append((kind or OTHER, secret.strip()))
    return sorted(set(found))  # a set's order differs from process to process, and a resume compares what was found
