"""Recipes: the keyword arguments of `privatize` and `synthesize` as strict YAML.

A recipe holds public settings alone. Unknown and repeated keys are refused.
"""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_dpsynth import dataset, inputs, registry
from hf_dpsynth.contamination import declared
from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.strict_yaml import parse

if TYPE_CHECKING:
    from hf_dpsynth.plans import Plan
    from hf_dpsynth.privacy.budget import PrivacyBudget
    from hf_dpsynth.release import Release

_FUNCTIONS: dict[str, Callable[..., Any]] = {"privatize": dataset.privatize, "synthesize": dataset.synthesize}
_DATA_KEYS = ("path", "name", "split")
_BUDGET_KEYS = ("path", "epsilon", "delta", "unit", "adjacency")
_UNPLANNED_LABELS = (
    "label_column= has no labels= here, so this plan is without a label histogram; a run takes the domain of a "
    "ClassLabel column and buys its proportions with 5 % of the budget"
)
_TEXT, _LIST, _DICT = (str,), (str, list), (dict,)
_TYPES: dict[str, tuple[type, ...]] = {
    "mechanism": _TEXT, "text_column": _TEXT, "label_column": _LIST, "keep_columns": _LIST, "params": _DICT,
    "labels": (list, dict), "label_proportions": _DICT, "generator": _TEXT, "embedder": _TEXT, "vectors": _TEXT,
    "out": _TEXT, "split": _TEXT, "resume": (bool,), "unit": _TEXT, "adjacency": _TEXT, "data": (str, dict),
    "budget": (str, dict), "public": (str, dict), "secrets": _TEXT, "name": _TEXT, "path": _TEXT,
}  # fmt: skip
_NUMBERS = ("epsilon", "delta")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A checked recipe.

    Args:
        kind (`str`): `"privatize"` or `"synthesize"`.
        mechanism (`str`): a name of `list_mechanisms()`.
        arguments (`dict`): keyword arguments of that function, without `out`.
        data (`dict`): `path`, and where given `name` and `split`; empty when the recipe names no data.
        out (`str`, *optional*): the run directory.
    """

    kind: str
    mechanism: str
    arguments: dict[str, Any] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    out: str | None = None

    def plan(self) -> "Plan":
        """Plan without reading data: the domain of a ClassLabel column is not known here, so state `labels`.

        Raises:
            ConfigError: a value is out of range, or the plan needs what the recipe does not state.
        """
        from hf_dpsynth.columns import label_domain
        from hf_dpsynth.mechanisms.planning import plan_privatization, plan_synthesis

        given = self.arguments
        found = registry.resolve(self.mechanism, given.get("params"), self.kind)
        if self.kind == "privatize":
            kept = _names(given.get("keep_columns"))
            return plan_privatization(found, epsilon=given["epsilon"], kept_columns=kept)
        budget = given.get("budget")
        labels, shares = given.get("labels"), given.get("label_proportions")
        domain, proportions = label_domain(None, _names(given.get("label_column")), labels, shares)
        made = plan_synthesis(
            found,
            epsilon=given.get("epsilon"),
            delta=given.get("delta", None if budget is None else _budget_delta(budget)),
            num_records=given.get("num_records"),
            num_rows=given.get("num_rows"),
            labels=domain,
            proportions=proportions,
            adjacency=given.get("adjacency"),
            unit=given.get("unit"),
            account="pld" if budget is None else "rdp",
            assumptions=declared.assumptions(given.get("public")),
        )
        silent = made.delta is not None and bool(given.get("label_column")) and labels is None and shares is None
        return replace(made, warnings=(*made.warnings, _UNPLANNED_LABELS)) if silent else made

    def read(self) -> Any:
        """Load the data that the recipe names. Sensitive.

        Raises:
            ConfigError: it names no data, or the data cannot be read.
        """
        if "path" not in self.data:
            raise ConfigError("the recipe names no data; add data: {path: ...}, a file, a folder, or a name.")
        return self._loaded(self.data)

    def _loaded(self, section: Mapping[str, str]) -> Any:
        """Load what a section names: private data, or public data with the same columns."""
        inputs.check_headed(section["path"], self.arguments.get("text_column"))
        return inputs.load_input(
            **_renamed(section),
            text_column=self.arguments.get("text_column"),
            label_columns=(*_names(self.arguments.get("label_column")), *_names(self.arguments.get("unit"))),
        )

    def _public(self, section: Mapping[str, Any], private: Any) -> Any:
        """Load public rows, without what the section takes away of them."""
        loaded = self._loaded({name: value for name, value in section.items() if name in _DATA_KEYS})
        split, column = self.arguments.get("split") or "train", self.arguments.get("text_column")
        return declared.corpus(section, loaded, private, split=split, text_column=column)

    def run(self, private: Any = None) -> tuple[Any, "Release"]:
        """Run on the data that the recipe names, and return the rows and the release.

        Args:
            private (`Dataset` or `DatasetDict`, *optional*): the data, when `read` was called before. Sensitive.
        Returns:
            `tuple[Dataset | DatasetDict, Release]`: what `privatize` or `synthesize` returns, and its `.privacy`.
        Raises:
            ConfigError: an argument does not fit the data; nothing was spent.
        """
        from hf_dpsynth.release import release_of

        private = self.read() if private is None else private
        arguments = {"epsilon": None, **self.arguments}
        if inputs.is_written_as_text(self.data.get("path", "")):
            for name in {"labels", "label_proportions"} & set(arguments):
                arguments[name] = _written(arguments[name])
        if "budget" in arguments:
            arguments["budget"] = _budget(arguments["budget"])
        if "public" in arguments:
            arguments["public"] = self._public(arguments["public"], private)
        result = _FUNCTIONS[self.kind](private, self.mechanism, out=self.out, **arguments)
        release = release_of(result)
        if release is None:
            raise PrivacyError(f"{self.mechanism} returned rows without a release.")
        return result, release


def _written(declared: Any) -> Any:
    """Return declared labels as a CSV file writes them, since its labels are text."""
    if isinstance(declared, dict):
        return {_written(key): _written(value) if _is_group(value) else value for key, value in declared.items()}
    if isinstance(declared, (list, tuple)):
        return type(declared)(_written(value) for value in declared)
    return str(declared).lower() if isinstance(declared, bool) else str(declared)


def _is_group(value: Any) -> bool:
    """Return whether a value of a mapping holds labels, and is no share."""
    return isinstance(value, (dict, list, tuple))


def load(path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> Recipe:
    r"""Read and check a recipe.

    Args:
        path (`str` or path): the YAML file.
        overrides (`Iterable[str]`): `"a.b=c"`, each sets one value; c is YAML.
    Returns:
        `Recipe`: checked as far as that is possible without data.
    Raises:
        ConfigError: the file cannot be read, or a key or value is wrong; the closest key is named.
    Examples:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "recipe.yaml")
        ...     with open(path, "w") as handle:
        ...         _ = handle.write("mechanism: aug-pe\nepsilon: 1\ndelta: 1e-6\nnum_rows: 500\n")
        ...     load(path, ["params.iterations=10"]).plan().noise_multiplier
        13.367
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"recipe {str(path)!r} cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError:
        raise ConfigError(f"recipe {str(path)!r} is not UTF-8 text.") from None
    values = parse(text, str(path))
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds no mapping; a recipe has lines such as 'mechanism: aug-pe'.")
    for override in overrides:
        _set(values, override)
    return build(values)


def build(values: Mapping[Any, Any]) -> Recipe:
    """Check the keys and types of a recipe's values.

    Args:
        values (`Mapping`): what the YAML holds.
    Raises:
        ConfigError: an unknown or missing key, or a value of another type.
    """
    values = dict(values)
    mechanism = values.pop("mechanism", None)
    if mechanism is None:
        raise ConfigError("mechanism is missing; `hf-dpsynth list` names the mechanisms.")
    _check_type("mechanism", mechanism)
    kind = _kind(mechanism)
    known = argument_names(kind)
    _check_keys(values, ("mechanism", "data", *known), "the recipe")
    for name, value in values.items():
        _check_type(name, value)
    if values.get("epsilon") is None and not hasattr(registry.table()[mechanism].load(), "protection"):
        raise ConfigError("epsilon is missing (a flag: --epsilon); it is a number > 0, or .inf for no privacy.")
    data = _section(values.pop("data", None), "data", _DATA_KEYS)
    if "split" in data and values.get("split") is not None:
        raise ConfigError("split stands twice: in data and at the top. Keep one.")
    out = values.pop("out", None)
    arguments = {name: _labels(name, value) for name, value in values.items() if value is not None}
    for name, keys in (("budget", _BUDGET_KEYS), ("public", (*_DATA_KEYS, *declared.KEYS))):
        if name in arguments:
            arguments[name] = _section(arguments[name], name, keys)
    declared.check(arguments.get("public", {}))
    if data and "public" in arguments and _are_same(data, arguments["public"], values.get("split")):
        raise ConfigError(
            "public names what data names, the private records, whose loss would tell of them. Name other text."
        )
    registry.resolve(mechanism, arguments.get("params"), kind)
    return Recipe(kind=kind, mechanism=mechanism, arguments=arguments, data=data, out=out)


def argument_names(kind: str) -> tuple[str, ...]:
    """Return the keyword arguments that a recipe may set for `"privatize"` or `"synthesize"`."""
    parameters = inspect.signature(_FUNCTIONS[kind]).parameters.values()
    names = [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
    return tuple(name for name in names if name != "insecure_noise_seed")


def _kind(mechanism: str) -> str:
    rows = registry.table()
    if mechanism not in rows:
        raise ConfigError(f"mechanism {mechanism!r} is unknown{registry.closest(mechanism, list(rows))}")
    kind = rows[mechanism].kind
    kind = kind if kind in _FUNCTIONS else str(getattr(rows[mechanism].load(), "kind", kind))
    if kind not in _FUNCTIONS:
        raise ConfigError(f"mechanism {mechanism!r} is of kind {kind!r}; a recipe privatizes or synthesizes.")
    return kind


def _check_keys(values: Mapping[Any, Any], known: tuple[str, ...], where: str) -> None:
    for name in values:
        if name not in known:
            raise ConfigError(f"{where} has no key {name!r}{registry.closest(str(name), list(known))}")


def _check_type(name: str, value: Any) -> None:
    expected = _TYPES.get(name)
    if value is None or expected is None or isinstance(value, expected):
        return
    words = {str: "text", list: "a list", dict: "a mapping", bool: "true or false"}
    raise ConfigError(f"{name} is {value!r}; it must be {' or '.join(words[kind] for kind in expected)}.")


def _section(value: Any, where: str, known: tuple[str, ...]) -> dict[str, Any]:
    """Return a section of the recipe as a mapping; a text alone is its path."""
    section = {} if value is None else {"path": value} if isinstance(value, str) else dict(value)
    _check_keys(section, known, where)
    for name, item in section.items():
        _check_type(name, item)
        if name in _NUMBERS and (isinstance(item, bool) or not isinstance(item, (int, float, type(None)))):
            raise ConfigError(f"{where}: {name} is {item!r}; it must be a number.")
    if value is not None and section.get("path") is None:
        raise ConfigError(f"{where} has no path.")
    return {name: item for name, item in section.items() if item is not None}


def _labels(name: str, value: Any) -> Any:
    """Return joint labels, which YAML can only write as lists, as tuples."""
    if name == "labels" and isinstance(value, list):
        return [tuple(label) if isinstance(label, list) else label for label in value]
    return value


def _renamed(data: Mapping[str, str]) -> dict[str, str]:
    return {"source" if name == "path" else name: value for name, value in data.items()}


def _are_same(data: Mapping[str, str], public: Mapping[str, str], split: str | None) -> bool:
    """Return whether two sections name the same rows, however they write the path and what they leave to defaults."""
    paths = {os.path.realpath(section["path"]) for section in (data, public)}
    # a Hub data set has one configuration where none is named, and a file one split
    names = {section["name"] for section in (data, public) if "name" in section}
    splits = {data.get("split") or split or "train", public.get("split") or "train"}
    return len(paths) == 1 and len(names) < 2 and (len(splits) == 1 or os.path.isfile(*paths))


def _names(value: Any) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def _budget_delta(section: Mapping[str, Any]) -> float:
    return section["delta"] if "delta" in section else _budget(section).delta


def _budget(section: Mapping[str, Any]) -> "PrivacyBudget":
    """Return the budget of a recipe: made with its limits, or opened as it is when it states none."""
    from hf_dpsynth.privacy.budget import PrivacyBudget

    limits = {name: value for name, value in section.items() if name != "path"}
    if not limits:
        return PrivacyBudget.open(section["path"])
    missing = [name for name in ("epsilon", "delta") if name not in limits]
    if missing:
        raise ConfigError(f"budget has no {' and no '.join(missing)}; state both, or the path of an existing one.")
    return PrivacyBudget(section["path"], **limits)


def _set(values: dict[Any, Any], override: str) -> None:
    """Set one value in place: "a.b=c"."""
    place, equals, text = override.partition("=")
    parts = place.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"--set {override!r} is not of the form a.b=c.")
    where = values
    for part in parts[:-1]:
        if where.get(part) is None:
            where[part] = {}
        if not isinstance(where[part], dict):
            raise ConfigError(f"--set {place}: {part!r} holds no mapping.")
        where = where[part]
    where[parts[-1]] = parse(text, f"--set {place}")
