"""The mechanisms by name: a table of strings and the entry points of other packages.

A row names the class that carries the hyper-parameters; nothing is imported until a mechanism is asked for. Other
packages add mechanisms under the entry-point group `hf_dpsynth.mechanisms`.
"""

import importlib
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any

from hf_dpsynth.errors import ConfigError

GROUP = "hf_dpsynth.mechanisms"


@dataclass(frozen=True)
class Entry:
    """A row of the table: a mechanism's name, kind, guarantee, source and the place of its class."""

    name: str
    kind: str
    guarantee: str
    source: str
    target: str

    def load(self) -> type[Any]:
        """Import and return the class."""
        module, _, attribute = self.target.partition(":")
        loaded: type[Any] = getattr(importlib.import_module(module), attribute)
        return loaded


_TABLE = (
    Entry(
        "aug-pe",
        "synthesize",
        "(epsilon, delta)-DP per record",
        "Xie et al. 2024, arXiv:2403.01749",
        "hf_dpsynth.mechanisms.evolution.aug_pe:AugPE",
    ),
    Entry(
        "sec-pe",
        "synthesize",
        "(p, r)-secret protection per secret",
        "Wang et al. 2025, arXiv:2510.10990",
        "hf_dpsynth.mechanisms.evolution.sec_pe:SecPE",
    ),
    Entry(
        "dp-eda",
        "synthesize",
        "(epsilon, delta)-DP per record",
        "Gao et al., Generate Synthetic Text Approximating the Private Distribution with Differential Privacy",
        "hf_dpsynth.mechanisms.evolution.dp_eda:DPEDA",
    ),
    Entry(
        "sentdp-select",
        "synthesize",
        "(epsilon, delta)-DP per record",
        "Meehan et al. 2022, arXiv:2205.04605",
        "hf_dpsynth.mechanisms.evolution.sentdp_select:SentDPSelect",
    ),
    Entry(
        "dp-icl",
        "synthesize",
        "(epsilon, delta)-DP per record",
        "Tang et al. 2023, arXiv:2309.11765",
        "hf_dpsynth.mechanisms.prediction.dp_icl:DPICL",
    ),
    Entry(
        "invisible-ink",
        "synthesize",
        "(epsilon, delta)-DP per record",
        "Vinod et al. 2025, arXiv:2507.02974",
        "hf_dpsynth.mechanisms.prediction.invisible_ink:InvisibleInk",
    ),
    *(
        Entry(
            name,
            "synthesize",
            "(epsilon, delta)-DP per record or user",
            "Kurakin et al. 2023, arXiv:2306.01684",
            f"hf_dpsynth.mechanisms.finetune.tuning:{attribute}",
        )
        for name, attribute in (("dp-lora", "DPLora"), ("dp-prompt-tuning", "DPPromptTuning"), ("dp-full", "DPFull"))
    ),
    Entry(
        "madlib",
        "privatize",
        "metric DP per word",
        "Feyisetan et al. 2020, arXiv:1910.08902",
        "hf_dpsynth.mechanisms.word.madlib:Madlib",
    ),
    Entry(
        "syntax-guided",
        "privatize",
        "metric DP per word",
        "Arnold et al. 2023, arXiv:2306.01471",
        "hf_dpsynth.mechanisms.word.syntax_guided:SyntaxGuided",
    ),
    *(
        Entry(name, "privatize", guarantee, source, f"hf_dpsynth.mechanisms.word.{target}")
        for name, guarantee, source, target in (
            ("mahalanobis", "metric DP per word", "Xu et al. 2020, arXiv:2010.11947", "mahalanobis:Mahalanobis"),
            ("vickrey", "metric DP per word", "Xu et al. 2021, arXiv:2104.11838", "vickrey:Vickrey"),
            ("tem", "metric DP per word", "Carvalho et al. 2021, arXiv:2107.07928", "tem:TEM"),
            ("santext", "metric DP per word", "Yue et al. 2021, arXiv:2106.01221", "santext:SanText"),
            ("santext+", "metric DP per rare word", "Yue et al. 2021, arXiv:2106.01221", "santext:SanTextPlus"),
            ("custext", "local DP in a group of words", "Chen et al. 2023, arXiv:2207.01193", "custext:CusText"),
            ("custext+", "local DP in a group of words", "Chen et al. 2023, arXiv:2207.01193", "custext:CusTextPlus"),
            (
                "diffractor",
                "metric DP per word",
                "Meisenbacher et al. 2024, arXiv:2405.01678",
                "diffractor:Diffractor",
            ),
        )
    ),
    Entry(
        "dp-mlm",
        "privatize",
        "local DP per text",
        "Meisenbacher et al. 2024, arXiv:2407.00637",
        "hf_dpsynth.mechanisms.rewrite.dp_mlm:DPMLM",
    ),
    Entry(
        "dp-prompt",
        "privatize",
        "local DP per text",
        "Utpala et al. 2023, arXiv:2310.16111",
        "hf_dpsynth.mechanisms.rewrite.dp_prompt:DPPrompt",
    ),
)


def table() -> dict[str, Entry]:
    """Return all mechanisms by name: ours, then those of entry points, which cannot replace ours."""
    rows = {entry.name: entry for entry in _TABLE}
    for point in entry_points(group=GROUP):
        rows.setdefault(point.name, Entry(point.name, "plugin", "stated by the plug-in", point.value, point.value))
    return rows


def list_mechanisms() -> list[tuple[str, str, str, str]]:
    """List the mechanisms.

    Returns:
        `list[tuple[str, str, str, str]]`: name, kind (`privatize`, `synthesize` or `plugin`), guarantee, source.
    Examples:
        >>> from hf_dpsynth import list_mechanisms
        >>> ("tem", "privatize", "metric DP per word") in [row[:3] for row in list_mechanisms()]
        True
    """
    return [(row.name, row.kind, row.guarantee, row.source) for row in table().values()]


def closest(name: str, known: list[str]) -> str:
    """Return "; did you mean ...?" or nothing, and the known names."""
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"{hint} Known: {', '.join(sorted(known))}."


def planned(mechanism: Any) -> dict[str, Any]:
    """Return the fields of a mechanism that a plan holds.

    A field with `metadata={"planned": False}` is left out: it changes nothing of what is drawn, released or computed,
    so a run may be resumed with another value, and no card shows it. One with `metadata={"public": function}` is held
    as the function of its value: a local path stays on this machine.

    Args:
        mechanism (a mechanism): the dataclass of hyper-parameters.
    """
    held = asdict(mechanism)
    kept = [field for field in fields(mechanism) if field.metadata.get("planned", True)]
    return {field.name: field.metadata.get("public", _same)(held[field.name]) for field in kept}


def _same(value: Any) -> Any:
    return value


def resolve(mechanism: Any, params: dict[str, Any] | None, kind: str) -> Any:
    """Turn a name and its parameters, or an instance, into the mechanism.

    Args:
        mechanism (`str` or an instance of a mechanism): what the user passed.
        params (`dict`, *optional*): fields of the mechanism, only with a name.
        kind (`str`): `"privatize"` or `"synthesize"`.
    Returns:
        the frozen dataclass of hyper-parameters.
    Raises:
        ConfigError: unknown name or field (the closest one is named), a mechanism of the other kind, or both an
            instance and params.
    """
    if not isinstance(mechanism, str):
        if params:
            raise ConfigError("params= goes with a mechanism's name; an instance carries its own fields.")
        found = mechanism
    else:
        rows = table()
        if mechanism not in rows:
            raise ConfigError(f"mechanism {mechanism!r} is unknown{closest(mechanism, list(rows))}")
        cls = rows[mechanism].load()
        known = [field.name for field in fields(cls)]
        for name in params or {}:
            if name not in known:
                raise ConfigError(f"{mechanism} has no parameter {name!r}{closest(name, known)}")
        found = cls(**(params or {}))
    if getattr(found, "kind", None) != kind:
        raise ConfigError(
            f"mechanism {getattr(found, 'name', type(found).__name__)!r} is of kind {getattr(found, 'kind', None)!r}; "
            f"this call needs {kind!r}. Use .{getattr(found, 'kind', kind)}() instead."
        )
    return found
