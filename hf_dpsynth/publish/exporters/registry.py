"""The record of a release for the registry of deployments that the OpenDP project keeps, as YAML.

What the facts do not name stays null: curators, the intended use, the region, the authors of the record. A publisher
fills these in and sends the record in as a draft. Fields: opendp/deployments-registry-data on GitHub,
`schemas/deployments-schema.yaml` at commit 057e5d81cf60150dd3307e0cf4504b957802fb3b.
"""

import re
from typing import Any

import yaml

from hf_dpsynth.publish.card import is_synthetic, title
from hf_dpsynth.publish.exporters import statements
from hf_dpsynth.publish.exporters.statements import is_claimed, is_differential_privacy, line

UNNAMED = (
    "deployment.basic.data_curators",
    "deployment.basic.intended_use",
    "deployment.basic.data_product_region",
    "deployment.administrative.registry_authors",
)
"""Fields that the registry requires and that no facts name."""
_VARIANTS = {
    "pure_dp": "Pure DP",
    "approximate_dp": "Approximate DP",
    "zcdp": "Zero-concentrated DP",
    "rdp": "Renyi DP",
    "gdp": "Custom",
    "local_dp": "Custom",
    "metric_dp": "Custom",
}
_MARKS = re.compile(r"[\\`*\[\]<>$~]|(?<![^\W_])_|_(?![^\W_])")  # what Markdown, HTML or LaTeX could read as a sign
_ALONE = "each {unit} is drawn alone; the facts do not say who held the private data"


class _Dumper(yaml.SafeDumper):
    """Quotes every value that is a text, so that no version of YAML reads it as something else; our keys stay bare."""

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        node = super().represent_mapping(tag, mapping, flow_style)
        for key, _ in node.value:
            key.style = None
        return node


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else '"')


_Dumper.add_representer(str, _text)


def to_registry(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a release.

    Args:
        facts (`dict`): what `to_privacy_json` made, the content of a privacy.json.
    Returns:
        `dict`: JSON values; the fields of `UNNAMED` are None. Public.
    """
    name = f"{facts['mechanisms'][0]['name']} {facts['guarantee_id']}".lower()
    return {
        "url_slug": re.sub("[^a-z0-9]+", "-", name).strip("-"),
        "deployment": {
            "basic": _basic(facts),
            "dp_variant": _variant(facts),
            "privacy_loss": _loss(facts),
            "deployment_model": _model(facts),
            "implementation": _implementation(facts),
            "administrative": {
                "status": "Draft",
                "registry_authors": None,
                "tier": 2 if is_differential_privacy(facts) else 1,
            },
        },
    }


def to_yaml(record: dict[str, Any]) -> str:
    """Return a record as YAML that versions 1.1 and 1.2 read alike."""
    text: str = yaml.dump(record, Dumper=_Dumper, sort_keys=False, width=10**9, allow_unicode=False)
    return text


def _basic(facts: dict[str, Any]) -> dict[str, Any]:
    rows = facts["output"]["n_records"]
    number = [] if rows is None else [f"{rows} rows."]
    return {
        "name": _plain(title(facts)),
        "data_curators": None,
        "description": " ".join([f"{_plain(title(facts))}.", *number, _plain(statements.claim(facts))]),
        "intended_use": None,
        "data_product_type": "Synthetic data" if is_synthetic(facts) else "Dataset",
        "data_product_region": None,
        "publication_date": facts["created"],
    }


def _variant(facts: dict[str, Any]) -> dict[str, Any]:
    variant = _VARIANTS.get(facts["definition"]) if is_claimed(facts) else None
    quantities = facts["scope"]["unprotected_quantities"]
    return {
        **({} if variant is None else {"variant_name": variant}),
        "unprotected_quantities": _list(quantities) if quantities else "none is named",
    }


def _loss(facts: dict[str, Any]) -> dict[str, Any]:
    units, stated = facts["source"]["n_units"], facts["parameters"]
    numbers = {name: stated[name] for name in ("epsilon", "delta", "rho") if stated[name] is not None}
    more = [f"mu: {stated['mu']}"] if stated["mu"] is not None else []
    details = [
        statements.claim(facts),
        *(more if is_differential_privacy(facts) else ()),
        f"counted: {statements.releases(facts)}",
        *(f"not covered: {one}" for one in facts["scope"]["not_covered"]),
        *(f"assumption, {one}" for one in statements.assumptions(facts)),
    ]
    return {
        "privacy_unit": _plain(f"{facts['privacy_unit']['level']} ({facts['privacy_unit']['description']})"),
        "privacy_unit_details": _list(statements.unit(facts)),
        **({} if units is None else {"number_of_privacy_units": units}),
        "privacy_parameters": numbers if is_differential_privacy(facts) else {},
        "privacy_parameters_details": _list(details),
    }


def _model(facts: dict[str, Any]) -> dict[str, Any]:
    central = facts["model"] == "central"
    unit = facts["privacy_unit"]["description"].removeprefix("one ")
    return {
        "model_name": "Central" if central else "Local",
        **({} if central else {"model_name_details": _plain(_ALONE.format(unit=unit))}),
        "release_type": "One release",
        "release_type_details": _plain(f"this record is of one release; counted: {statements.releases(facts)}"),
        "access_type": "Non-interactive",
        "access_type_details": _list(f"released: {one}" for one in facts["scope"]["released_artifacts"]),
    }


def _implementation(facts: dict[str, Any]) -> dict[str, Any]:
    inputs = [f"taken for public: {one}" for one in statements.public_inputs(facts)]
    figures = statements.measured(facts)
    source, tool = facts["source"], facts["tool"]
    commit = f", commit {tool['git_commit']}" if tool["git_commit"] else ""
    revision = f", revision {source['revision']}" if source["revision"] else ""
    more = [
        f"guarantee {facts['guarantee_id']}, privacy.json of schema {facts['schema_version']}",
        f"written by {tool['name']} {tool['version']}{commit}",
        f"private data set: {source['name']}{revision}",
        *(f"limitation: {one}" for one in facts["limitations"]),
        *(f"file {one['path']}, sha256 {one['sha256']}" for one in facts["output"]["files"]),
        *(f"reference: {one}" for one in facts["references"]),
        *([f"contact: {facts['contact']}"] if facts["contact"] else []),
    ]
    return {
        "preprocessing_and_hyperparameter_tuning": _list([statements.tuning(facts), *inputs]),
        "mechanisms": _list(statements.mechanisms(facts)),
        "composition": _list(statements.accounting(facts)),
        "post_processing": _list(facts["postprocessing"]) if facts["postprocessing"] else "none is named",
        **({"utility": _list(figures)} if figures else {}),
        "additional_information": _list(more),
    }


def _list(lines: Any) -> str:
    return "".join(f"- {_plain(one)}\n" for one in lines)


def _plain(text: Any) -> str:
    """Return a text on one line that Markdown shows as it is."""
    return _MARKS.sub(lambda sign: "\\" + sign[0], line(text))
