"""The pages: one of public facts alone, and one that sets private figures beside them.

Each page is one file. It loads nothing, runs nothing and says so to the browser. Every text is escaped. The template
of the publishable page is given nothing but public facts.
"""

from collections.abc import Mapping
from dataclasses import asdict
from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from hf_dpsynth.audit.deniability import Deniability
from hf_dpsynth.figures.drawing import MARK, Figure, Table
from hf_dpsynth.figures.palette import DARK, LIGHT
from hf_dpsynth.figures.signs import visible
from hf_dpsynth.publish import card, cumulative, protection
from hf_dpsynth.publish.report import attacks, texts
from hf_dpsynth.publish.report.charts import budget_table
from hf_dpsynth.publish.report.comparisons import scores_table
from hf_dpsynth.publish.report.facts import PublicFacts
from hf_dpsynth.publish.report.numerals import NONE, anything, figure, loss, percent
from hf_dpsynth.publish.report.private import PrivateFacts
from hf_dpsynth.publish.shortened import shortened

_SECRET = "Secret protection, not differential privacy"
_UNCHECKED, _FALSE = "under assumptions that nobody has checked", "under assumptions of which one is false"
_STATUS = {
    "formal_dp": ("good", "Formal guarantee"),
    "formal_dp_conditional": ("warn", f"Formal guarantee, {_UNCHECKED}"),
    "formal_secret_protection": ("warn", _SECRET),
    "formal_secret_protection_conditional": ("warn", f"{_SECRET}, {_UNCHECKED}"),
    "empirical_only": ("warn", "No formal guarantee"),
    "none": ("bad", "NOT PRIVATE"),
}
_METRIC = "Metric DP, not anonymised"
_POINTS = (("smallest", 0.0), ("5 %", 0.05), ("median", 0.5), ("95 %", 0.95), ("largest", 1.0))


def public_page(facts: PublicFacts, figures: Mapping[str, Figure], deniability: Deniability | None = None) -> str:
    """Return the publishable page. Public.

    Args:
        facts (`PublicFacts`): what it shows.
        figures (`Mapping[str, Figure]`): what `public_figures` drew of them. Public.
        deniability (`Deniability`, *optional*): what was measured of the mechanism on public words. Public.
    """
    return _rendered("report.html.jinja", _context(facts, figures, deniability))


def private_page(
    public: PublicFacts,
    private: PrivateFacts,
    figures: Mapping[str, Figure],
    compared: Mapping[str, Figure],
    deniability: Deniability | None = None,
) -> str:
    """Return the private page. Sensitive.

    Args:
        public (`PublicFacts`): what the publishable page shows.
        private (`PrivateFacts`): what was computed from real texts. Sensitive.
        figures (`Mapping[str, Figure]`): what `public_figures` drew. Public.
        compared (`Mapping[str, Figure]`): what `private_figures` drew; one that has the name of a public figure
            takes its place. Sensitive.
        deniability (`Deniability`, *optional*): what was measured of the mechanism on public words. Public.
    """
    context = _context(public, {**figures, **compared}, deniability) | {
        "private": private,
        "compared": compared,
        "scores": scores_table(private.scores) if private.scores else None,
        "study": _study(private) if private.study else None,
        "attacks": attacks.attacks_table(private.audits) if private.audits else None,
        "attack_limits": attacks.sentences(private.audits),
    }
    if private.real:
        context["lengths"] = _lengths({public.kind: public.texts, "real": private.real})
    return _rendered("report-private.html.jinja", context)


def _rendered(name: str, context: Mapping[str, Any]) -> str:
    environment = Environment(
        loader=FunctionLoader(_template),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"percent": percent, "figure": figure, "number": card.number, "cut": texts.cut}
    return environment.get_template(name).render(context)


def _template(name: str) -> str:
    return resources.files("hf_dpsynth.publish").joinpath(f"templates/{name}").read_text(encoding="utf-8")


def _shown(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _context(facts: PublicFacts, figures: Mapping[str, Figure], deniability: Deniability | None) -> dict[str, Any]:
    claim = facts.claim
    metric = claim["parameters"]["metric_dp"]
    tone, status = _STATUS[claim["claim_status"]]
    if protection.fails(claim):
        status = status.replace(_UNCHECKED, _FALSE)
    if metric is not None and claim["claim_status"] != "none":
        tone, status = "warn", _METRIC
    return {
        "mark": MARK,
        "light": asdict(LIGHT),
        "dark": asdict(DARK),
        "facts": facts,
        "claim": shortened(claim),
        "metric": metric,
        "secret": claim["parameters"]["secret_protection"],
        "tone": tone,
        "status": status,
        "title": card.title(claim),
        "sentence": card.sentence(claim),
        "cumulative": cumulative.sentence(claim, card.number),
        "adjacency": card.adjacency(claim),
        "synthetic": card.is_synthetic(claim),
        "figures": figures,
        "deniability": deniability,
        "audits": attacks.published_table(claim["audit"]) if claim["audit"] else None,
        "spent": loss(facts.spent[-1].total) if facts.spent else NONE,
        "budget": budget_table(facts) if facts.spent else None,
        "lengths": _lengths({"": facts.texts}),
    }


def _lengths(sets: Mapping[str, tuple[str, ...]]) -> Table | None:
    """Return smallest, largest and the quantiles between of the lengths of each set. As sensitive as the texts."""
    if not all(sets.values()):
        return None
    rows = []
    for name, held in sets.items():
        for unit, count in (("words", texts.word_counts), ("characters", texts.characters)):
            values = np.array(count(held))
            points = [figure(float(np.quantile(values, at))) for _, at in _POINTS]
            rows.append((f"{name} {unit}".strip(), *points, figure(float(values.mean()))))
    heads = ("length in" if "" in sets else "length of", *(name for name, _ in _POINTS), "mean")
    return Table("Lengths of the texts", heads, tuple(rows), frozenset(range(1, len(heads))))


def _study(private: PrivateFacts) -> Table:
    """Return the downstream table, whatever its columns are. Sensitive."""
    columns = tuple(dict.fromkeys(name for row in private.study for name in row))
    rows = tuple(tuple(anything(row.get(name)) for name in columns) for row in private.study)
    numbers = {
        at
        for at, name in enumerate(columns)
        if at and all(isinstance(row.get(name), (int, float, tuple, list, type(None))) for row in private.study)
    }
    heads = tuple(str(name).replace("_", " ") for name in columns)
    return Table("Every model, tested on real rows", heads, rows, frozenset(numbers))
