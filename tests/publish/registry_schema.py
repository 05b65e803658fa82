"""What the registry of deployments asks of a record: the names of its fields, their types and their permitted values.

Written by hand after https://github.com/opendp/deployments-registry-data, `schemas/deployments-schema.yaml` and
`tests/good_deployments/template.yaml` at commit 057e5d81cf60150dd3307e0cf4504b957802fb3b, read on 2026-11-30 from a
stored copy, which holds no date of the commit. The repository holds no license file, so nothing of its text is here;
fields that we never write are left out, which makes this check the stricter one.
"""

import jsonschema
import yaml


def _closed(required="", **properties):
    return {
        "type": "object", "properties": properties, "required": required.split(), "additionalProperties": False
    }  # fmt: skip


def _one_of(*values):
    return {"enum": list(values)}


TEXT, NUMBER = {"type": "string", "minLength": 1}, {"type": "number"}
CURATOR = {
    "type": "object",
    "properties": {"data_curator_name": TEXT, "data_curator_type": _one_of("Government", "Industry", "Nonprofit")},
    "required": ["data_curator_name", "data_curator_type"],
}
BASIC = _closed(
    "name data_curators description intended_use data_product_type data_product_region publication_date",
    name=TEXT,
    data_curators={"type": "array", "items": CURATOR, "minItems": 1},
    description=TEXT,
    intended_use=TEXT,
    data_product_type=_one_of(
        "Summary statistics", "Machine learning model", "Dataset", "Synthetic data", "Interactive API", "SQL queries"
    ),
    data_product_region=TEXT,
    publication_date={"type": "string", "format": "date"},
)
VARIANT = _closed(
    variant_name=_one_of("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
    unprotected_quantities=TEXT,
)
LOSS = _closed(
    privacy_unit=TEXT,
    privacy_unit_details=TEXT,
    number_of_privacy_units={"type": "integer"},
    privacy_parameters=_closed(epsilon=NUMBER, delta=NUMBER, rho=NUMBER),
    privacy_parameters_details=TEXT,
)
MODEL = _closed(
    model_name=_one_of("Local", "Central", "Shuffle", "Federated", "Varies"),
    model_name_details=TEXT,
    release_type=_one_of("One release", "Many releases"),
    release_type_details=TEXT,
    access_type=_one_of("Interactive", "Non-interactive"),
    access_type_details=TEXT,
)
IMPLEMENTATION = _closed(
    preprocessing_and_hyperparameter_tuning=TEXT,
    mechanisms=TEXT,
    composition=TEXT,
    post_processing=TEXT,
    utility=TEXT,
    additional_information=TEXT,
)
ADMINISTRATIVE = _closed(
    "status registry_authors tier",
    status=_one_of("Draft"),  # of a new record; the others are for the registry to set
    registry_authors={"type": "array", "items": TEXT, "minItems": 1},
    tier=_one_of(1, 2, 3),
)
SCHEMA = _closed(
    "url_slug deployment",
    url_slug=TEXT,
    deployment=_closed(
        "basic administrative",
        basic=BASIC,
        dp_variant=VARIANT,
        privacy_loss=LOSS,
        deployment_model=MODEL,
        implementation=IMPLEMENTATION,
        administrative=ADMINISTRATIVE,
    ),
)


def wrong(record):
    """The fields of a record that the registry would refuse."""
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    errors = jsonschema.Draft202012Validator(SCHEMA, format_checker=checker).iter_errors(record)
    return sorted(error.json_path.removeprefix("$.") for error in errors)


def unquoted_or_folded(text):
    """Scalars in a style that the checks of the registry refuse: it takes plain, quoted and literal ones."""
    return [token.value for token in yaml.scan(text) if getattr(token, "style", None) not in (None, "|", '"', "'")]
