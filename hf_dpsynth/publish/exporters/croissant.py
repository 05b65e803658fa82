"""A release as Croissant JSON-LD of MLCommons, version 1.1, with the vocabulary for responsible AI (`rai:`), 1.0.

The rows are described where they lie: each file with its digest, each split as a record set with its columns. Creator,
license, use cases and date of publication are in no facts, so they are left out for the publisher to add. Sources:
http://mlcommons.org/croissant/1.1 and http://mlcommons.org/croissant/RAI/1.0.
"""

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.publish.card import front_matter, is_synthetic, title
from hf_dpsynth.publish.exporters import statements
from hf_dpsynth.publish.exporters.statements import line

CONFORMS_TO = ("http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0")
_CROISSANT_NAMES = (
    "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field", "fileObject",
    "fileProperty", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5",
    "parentField", "path", "recordSet", "references", "regex", "repeated", "replace", "samplingRate", "separator",
    "source", "subField", "transform",
)  # fmt: skip
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    **{name: f"cr:{name}" for name in _CROISSANT_NAMES},
}
_PARQUET = "application/x-parquet"
_FORMATS = {".parquet": _PARQUET, ".arrow": "application/vnd.apache.arrow.stream"}
_OTHER = "application/octet-stream"
_SHARD = re.compile(r"data/((.+)-\d{5}-of-(\d{5}))\.parquet")
_CLAIM = "the facts of the release: its claim, what the claim does not cover, and how it was accounted"


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a file of rows.

    Args:
        name (`str`): its name.
        data_type (`str`, *optional*): the type in Croissant's words; None where it has none.
        is_list (`bool`): whether a value is a list of that type.
    """

    name: str
    data_type: str | None
    is_list: bool = False


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a release lies.

    Args:
        page (`str`, *optional*): the address of its page.
        files_at (`str`): what comes before the path of each file; nothing where the description lies beside them.
        claim_sha256 (`str`, *optional*): the digest of the privacy.json that lies there.
    """

    page: str | None = None
    files_at: str = ""
    claim_sha256: str | None = None


def to_croissant(
    facts: dict[str, Any], columns: Mapping[str, tuple[Column, ...]] | None = None, place: Place | None = None
) -> dict[str, Any]:
    """Return the description of a release.

    Args:
        facts (`dict`): what `to_privacy_json` made, the content of a privacy.json.
        columns (`Mapping[str, tuple[Column]]`, *optional*): the columns of each file of rows, by the path that the
            facts list; a file without them gets no record set.
        place (`Place`, *optional*): where the files lie; beside the description by default.
    Returns:
        `dict`: JSON-LD. Public.
    """
    place, known = place or Place(), columns or {}
    files = [_file(entry["path"], entry["sha256"], place) for entry in facts["output"]["files"]]
    if place.claim_sha256 is not None:
        files.append({**_file("privacy.json", place.claim_sha256, place), "description": _CLAIM})
    records = [
        _records(entry["path"], known[entry["path"]]) for entry in facts["output"]["files"] if entry["path"] in known
    ]
    return {
        "@context": copy.deepcopy(CONTEXT),
        "@type": "sc:Dataset",
        "conformsTo": list(CONFORMS_TO),
        "name": line(title(facts)),
        "description": _description(facts),
        "dateCreated": facts["created"],
        "identifier": facts["guarantee_id"],
        "keywords": [line(tag) for tag in front_matter(facts)["tags"]],
        **({} if place.page is None else {"url": place.page}),
        **({"citation": [line(one) for one in facts["references"]]} if facts["references"] else {}),
        **_responsibility(facts),
        **({"distribution": files} if files else {}),
        **({"recordSet": records} if records else {}),
    }


def to_json(description: dict[str, Any]) -> str:
    """Return a description as JSON that may stand in a page: no sign in it can end the element around it."""
    text = json.dumps(description, indent=1, allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text + "\n"


def columns_of(path: Path) -> tuple[Column, ...]:
    """Return the columns of a Parquet file.

    Raises:
        ConfigError: it is none.
    """
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        schema = parquet.read_schema(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise ConfigError(f"{path} is no Parquet file. Run hf-dpsynth verify to see what is wrong.") from error
    found = []
    for column in schema:
        is_list = pyarrow.types.is_list(column.type) or pyarrow.types.is_large_list(column.type)
        kind = _data_type(column.type.value_type if is_list else column.type)
        found.append(Column(name=column.name, data_type=kind, is_list=is_list))
    return tuple(found)


def _data_type(kind: Any) -> str | None:
    import pyarrow

    known = {
        "sc:Boolean": pyarrow.types.is_boolean,
        "sc:Integer": pyarrow.types.is_integer,
        "sc:Float": pyarrow.types.is_floating,
        "sc:Date": pyarrow.types.is_date,
        "sc:DateTime": pyarrow.types.is_timestamp,
    }
    if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
        return "sc:Text"
    return next((name for name, fits in known.items() if fits(kind)), None)


def _file(path: str, digest: str, place: Place) -> dict[str, Any]:
    suffix = Path(path).suffix
    return {
        "@type": "cr:FileObject",
        "@id": quote(path),
        "name": path,
        "contentUrl": place.files_at + quote(path) if place.files_at else path,
        "encodingFormat": "application/json" if suffix == ".json" else _FORMATS.get(suffix, _OTHER),
        "sha256": digest,
    }


def _records(path: str, columns: tuple[Column, ...]) -> dict[str, Any]:
    """Describe the rows of a file: a whole split, or one of its parts."""
    shard = _SHARD.fullmatch(path)
    name = path.removesuffix(".parquet") if shard is None else shard[2] if int(shard[3]) == 1 else shard[1]
    left = [column.name for column in columns if column.data_type is None]
    more = f"; not described, for want of a type: {', '.join(left)}" if left else ""
    return {
        "@type": "cr:RecordSet",
        "@id": quote(name, safe=""),
        "name": name,
        "description": line(f"the rows of {path}{more}"),
        "field": [_field(name, path, column) for column in columns if column.data_type is not None],
    }


def _field(records: str, path: str, column: Column) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"{quote(records, safe='')}/{quote(column.name, safe='')}",
        "name": column.name,
        "dataType": column.data_type,
        **({"isArray": True, "arrayShape": "-1"} if column.is_list else {}),
        "source": {"fileObject": {"@id": quote(path)}, "extract": {"column": column.name}},
    }


def _description(facts: dict[str, Any]) -> str:
    rows = facts["output"]["n_records"]
    number = "" if rows is None else f" {rows} rows."
    return f"{line(title(facts))}.{number} {statements.claim(facts)}"


def _responsibility(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the vocabulary for responsible AI that the facts fill."""
    scope, source = facts["scope"], facts["source"]
    name = "Made" if is_synthetic(facts) else "Each row was privatized"
    revision = f", revision {source['revision']}" if source["revision"] else ""
    units = "" if source["n_units"] is None else f"; number of units, public: {source['n_units']}"
    limits = [
        *(f"not covered by the guarantee: {one}" for one in scope["not_covered"]),
        *(f"assumption, {one}" for one in statements.assumptions(facts)),
        *(f"limitation: {one}" for one in facts["limitations"]),
        *(f"measured: {one}" for one in statements.measured(facts)),
    ]
    sensitive = [
        statements.claim(facts),
        *statements.unit(facts),
        f"counted: {statements.releases(facts)}",
        *(f"not protected: {one}" for one in scope["unprotected_quantities"]),
    ]
    steps = [
        *statements.mechanisms(facts),
        *(f"taken for public: {one}" for one in statements.public_inputs(facts)),
        statements.tuning(facts),
        *statements.accounting(facts),
        *(f"after the noise: {one}" for one in facts["postprocessing"]),
        *(f"released: {one}" for one in scope["released_artifacts"]),
    ]
    made = ", ".join(f"{one['name']} of {one['library']} {one['version']}" for one in facts["mechanisms"])
    return {
        "rai:dataCollection": line(f"{name} by {made}."),
        "rai:dataCollectionRawData": line(f"private data set: {source['name']}{revision}{units}"),
        "rai:dataPreprocessingProtocol": [line(one) for one in steps],
        "rai:dataLimitations": [line(one) for one in limits],
        "rai:personalSensitiveInformation": [line(one) for one in sensitive],
    }
