"""Docstrings and signatures as Markdown for the reference of docs/api."""

import functools
import inspect
import re
from dataclasses import MISSING, fields, is_dataclass

from docstring_parser import DocstringStyle, parse

_SECTION = re.compile(r"[A-Z][a-z]+:$")
_DEFAULT = re.compile(r",? *defaults to `[^`]*`")
_WIDTH, _LONGEST = 100, 90


def read(thing):
    """The parsed docstring of a class or function."""
    return parse(thing.__doc__ or "", style=DocstringStyle.GOOGLE)


def section(thing, title):
    """The lines below one title of a docstring, as they stand there."""
    lines = inspect.cleandoc(thing.__doc__ or "").split("\n")
    if f"{title}:" not in lines:
        return ""
    rest = lines[lines.index(f"{title}:") + 1 :]
    end = next((at for at, line in enumerate(rest) if _SECTION.match(line)), len(rest))
    return inspect.cleandoc("\n" + "\n".join(rest[:end])).strip()


def described(thing):
    """What stands above the sections of a docstring."""
    found = read(thing)
    return "\n\n".join(part for part in (found.short_description, found.long_description) if part)


def flat(text):
    """A description on one line."""
    return " ".join((text or "").split())


def signature(name, thing):
    """A call of a function or class with the defaults of its parameters, without their types."""
    shown = []
    star = False
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            shown.append("*")
            star = True
        mark = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        star = star or mark == "*"
        bare = parameter.default is parameter.empty
        shown.append(f"{mark}{parameter.name}" + ("" if bare else f"={constant(parameter.default)}"))
    line = f"{name}({', '.join(shown)})"
    if len(line) > _WIDTH:
        line = f"{name}(\n" + "".join(f"    {part},\n" for part in shown) + ")"
    return f"```py\n{line}\n```"


def constant(value):
    """A default as it is written; `...` where that is no constant, or a long one."""
    text = repr(value)
    if text.startswith("<") or " object at 0x" in text or len(text) > _LONGEST:
        return "..."
    return text if '"' in text else text.replace("'", '"')


def entries(thing, *, own=None):
    """The arguments of a function, or the fields of a class that shares some with its bases, as a list."""
    if is_dataclass(thing):
        return "\n".join(_field(thing, field) for field in fields(thing) if field.init and field.name[0] != "_")
    documented = (own or read(thing)).params
    return "\n".join(f"- **{p.arg_name}** ({flat(p.type_name)}): {flat(p.description)}" for p in documented)


def documentation(cls, name):
    """What a class, or the first of its bases that says more than a reference, says of a field: type and words."""
    for base in cls.__mro__:
        if "__doc__" not in vars(base):
            continue
        for entry in read(base).params:
            if entry.arg_name == name:
                return entry
    return None


def _field(cls, field):
    entry = documentation(cls, field.name)
    if entry is None:
        return f"- **{field.name}**"
    of = _DEFAULT.sub("", flat(entry.type_name)).strip(" ,")
    default = "" if field.default is MISSING else f", defaults to `{constant(field.default)}`"
    if field.default is None:
        default = ""
    return f"- **{field.name}** ({of}{default}): {flat(entry.description)}"


def callable_block(name, thing, level=2):
    """A heading, the signature, and every section of the docstring."""
    return _joined([f"{'#' * level} {name}", signature(name.rpartition(".")[2], thing), *sections(thing)])


def sections(thing):
    """The parts of a docstring below the heading."""
    found = read(thing)
    given = entries(thing)
    back = found.returns
    backs = "" if back is None else f"{flat(back.type_name)}: " if back.type_name else ""
    raised = "\n".join(f"- `{flat(r.type_name)}`: {flat(r.description)}" for r in found.raises)
    examples = "\n".join(line for line in section(thing, "Examples").split("\n") if not line.startswith("```")).strip()
    return [
        described(thing),
        f"Args:\n\n{given}" if given else "",
        "" if back is None else f"Returns: {backs}{flat(back.description)}",
        f"Sensitivity: {flat(section(thing, 'Sensitivity'))}" if section(thing, "Sensitivity") else "",
        f"Raises:\n\n{raised}" if raised else "",
        f"```pycon\n{examples}\n```" if examples else "",
    ]


def class_block(name, cls, level=2, *, only=None):
    """A class with its public methods and properties that have a docstring, or with those that are named."""
    parts = [f"{'#' * level} {name}", _call(cls.__name__, cls), *sections(cls)]
    for member, value in [(m, v) for m, v in members(cls) if only is None or m in only]:
        parts += [_member(name, member, value, level + 1)]
    return _joined(parts)


def _call(name, cls):
    """How a class is made; the bases of an error, and nothing for a protocol."""
    if issubclass(cls, Exception):
        return f"Base: {', '.join(f'`{base.__name__}`' for base in cls.__bases__)}."
    return "" if getattr(cls, "_is_protocol", False) else signature(name, cls)


def members(cls):
    """The public functions and properties of a class and its bases in this package, in their order."""
    found = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("hf_dpsynth"):
            found |= {name: value for name, value in vars(base).items() if name[0] != "_"}
    kinds = (staticmethod, classmethod, property, functools.cached_property)
    return [(n, v) for n, v in found.items() if (inspect.isfunction(v) or isinstance(v, kinds)) and _of(v).__doc__]


def _of(value):
    """The function inside of a property or a class method."""
    if isinstance(value, property):
        return value.fget
    return getattr(value, "func", None) or getattr(value, "__func__", value)


def _member(owner, name, value, level):
    if isinstance(value, (property, functools.cached_property)):
        return _joined([f"{'#' * level} {owner}.{name}", flat(described(_of(value)))])
    return callable_block(f"{owner}.{name}", _of(value), level)


def block(name, thing, level=2):
    """A class or a function."""
    return class_block(name, thing, level) if inspect.isclass(thing) else callable_block(name, thing, level)


def _joined(parts):
    return "\n\n".join(part for part in parts if part)
