"""What a recipe does to its public corpus: sources that go by name, or overlaps that are dropped or cut.

Names in a recipe are public, so a corpus without them needs no assumption. What overlaps is told by the private texts,
so the release then has one that fails, which the plan shows before any data is read.
"""

from collections.abc import Mapping
from typing import Any

from hf_dpsynth import registry
from hf_dpsynth.contamination.origin import ASSUMPTION
from hf_dpsynth.contamination.rules import check_count
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.splits import one_split

KEYS = ("remove_sources", "overlaps", "window")
_LEFT = ("drop", "cut")


def check(section: Mapping[str, Any]) -> None:
    """Check what a recipe says of its public corpus.

    Args:
        section (`Mapping[str, Any]`): `public` of a recipe; keys that are not among `KEYS` are left alone.
    Raises:
        ConfigError: a value is of another type or unknown, or there is a window without overlaps.
    """
    sources, overlaps = section.get("remove_sources"), section.get("overlaps")
    if sources is not None and not (isinstance(sources, Mapping) and sources):
        raise ConfigError(
            f"public: remove_sources is {sources!r}; it must be a mapping, of a column to the sources to remove."
        )
    for column, names in (sources or {}).items():
        if not isinstance(column, str) or not isinstance(names, list) or not names or not all(map(_is_name, names)):
            raise ConfigError(
                f"public: remove_sources of {column!r} is {names!r}; it must be a list of texts or numbers."
            )
    if overlaps is not None and overlaps not in _LEFT:
        raise ConfigError(f"public: overlaps is {overlaps!r}{registry.closest(str(overlaps), list(_LEFT))}")
    if "window" in section:
        check_count("public: window", section["window"], "tokens")
        if overlaps is None:
            raise ConfigError("public: window stands without overlaps, which it is for. Add overlaps: drop, or cut.")


def _is_name(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def assumptions(section: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return what the guarantee must say of a corpus that a recipe describes; reads no data.

    Args:
        section (`Mapping[str, Any]`, *optional*): `public` of a recipe.
    """
    return (ASSUMPTION,) if section is not None and section.get("overlaps") is not None else ()


def corpus(section: Mapping[str, Any], public: Any, private: Any, *, split: str, text_column: str | None) -> Any:
    """Return a public corpus without what a recipe takes away: first whole sources, then overlaps.

    Args:
        section (`Mapping[str, Any]`): `public` of a recipe, checked.
        public (`Dataset` or `DatasetDict`): the corpus as it was read. Public.
        private (`Dataset` or `DatasetDict`): the private data, read only where overlaps are taken away. Sensitive.
        split (`str`): the split of the private data that is released.
        text_column (`str`, *optional*): the column of text of both; the only string column when missing.
    Returns:
        `Dataset` or `DatasetDict`: marked by `find_overlaps` where private texts had a part in it.
    Raises:
        ConfigError: a column or a source does not exist, or the corpus has several splits.
    """
    from hf_dpsynth.contamination.overlaps import find_overlaps
    from hf_dpsynth.contamination.sources import remove_sources

    for column, names in section.get("remove_sources", {}).items():
        public = remove_sources(public, column, names)
    if section.get("overlaps") is None:
        return public
    window = {"window": section["window"]} if "window" in section else {}
    own = one_split(private, split)
    return find_overlaps(own, public, mode=section["overlaps"], text_column=text_column, **window).dataset
