"""Strict YAML: the scalars of the core schema of YAML 1.2, and no key twice.

`1e-6` is a number, only `true` and `false` are booleans, so that the labels `no` and `on` stay words.
Source: YAML 1.2.2, section 10.3.
"""

import re
from collections.abc import Hashable
from typing import Any

import yaml

from hf_dpsynth.errors import ConfigError


class _Loader(yaml.SafeLoader):
    """Safe YAML with the scalars of the core schema and without repeated keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (what PyYAML reads)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping; a key that comes twice, or that is a list, is an error."""
        made: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            problem = None
            if not isinstance(key, Hashable):
                problem = "a key is a list or a mapping"
            elif key in made:
                problem = f"key {key!r} stands twice"
            if problem:
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            made[key] = self.construct_object(value_node, deep=True)
        return made


def _whole(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node)
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    return int(text[2:], base) if base != 10 else int(text)


def _number(loader: _Loader, node: yaml.ScalarNode) -> float:
    return float(loader.construct_scalar(node).lower().replace(".inf", "inf").replace(".nan", "nan"))


def _truth(loader: _Loader, node: yaml.ScalarNode) -> bool:
    return loader.construct_scalar(node).lower() == "true"


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    return loader.construct_mapping(node)


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
     "-+.0123456789"),
):  # fmt: skip
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), ["" if c == "\0" else c for c in _first]
    )
_Loader.add_constructor("tag:yaml.org,2002:int", _whole)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)
_Loader.add_constructor("tag:yaml.org,2002:bool", _truth)
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def parse(text: str, what: str) -> Any:
    """Return the value of a YAML text.

    Args:
        text (`str`): the YAML. Public.
        what (`str`): where it stands, for the message.
    Raises:
        ConfigError: it is no YAML; the line is named.
    Examples:
        >>> parse("{delta: 1e-6, labels: [no, on]}", "here")
        {'delta': 1e-06, 'labels': ['no', 'on']}
    """
    try:
        return yaml.load(text, Loader=_Loader)  # a subclass of SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" line {mark.line + 1}:"
        raise ConfigError(f"{what}:{line} {getattr(error, 'problem', None) or 'is no YAML'}.") from None
    except (RecursionError, ValueError):
        raise ConfigError(f"{what}: is no YAML that can be read.") from None
