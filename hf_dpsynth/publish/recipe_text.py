"""The recipe that a release followed, and a script that runs it: published beside the rows, without private data.

Both follow from the plan. Where the private data lie is not told; neither are models and word vectors that were passed
as objects, which whoever runs the recipe passes again.
"""

import math
from typing import Any

import yaml

from hf_dpsynth import registry
from hf_dpsynth.contamination.origin import ASSUMPTION
from hf_dpsynth.guarantees import ApproxDP, MetricDP, SecretProtection
from hf_dpsynth.plans import Plan
from hf_dpsynth.publish.card import Dumper

RECIPE, SCRIPT = "recipe.yaml", "make.py"
PLACE = "PRIVATE_DATA"
_HEAD = """\
# What made these rows. Put the place of the private data at data.path, then: hf-dpsynth run recipe.yaml
# Each run draws fresh noise, gives other rows, and is one more release of the same records.
"""
SCRIPT_TEXT = '''\
"""Make rows as these were made, from private data: python make.py PRIVATE_DATA OUT

Each run draws fresh noise, gives other rows, and is one more release of the same records.
"""

import pathlib
import sys

from hf_dpsynth import cli

recipe = pathlib.Path(__file__).with_name("recipe.yaml")
sys.exit(cli.call(["run", str(recipe), "--set", f"data.path={sys.argv[1]}", "--set", f"out={sys.argv[2]}"]))
'''


def recipe_text(plan: Plan) -> str:
    """Return the recipe of a plan as YAML.

    Args:
        plan (`Plan`): the whole plan of a release, as release.json holds it.
    """
    entry = registry.table().get(plan.mechanism)
    privatizes = isinstance(plan.guarantee, MetricDP) or (entry is not None and entry.kind == "privatize")
    values = {"mechanism": plan.mechanism, "data": {"path": PLACE}, **_loss(plan)}
    values |= _privatize(plan) if privatizes else _synthesize(plan)
    values["params"] = {name: value for name, value in plan.params.items() if value is not None}
    text: str = yaml.dump(values, Dumper=Dumper, sort_keys=False, width=10**9, allow_unicode=False)
    return _HEAD + _remarks(plan) + text


def _loss(plan: Plan) -> dict[str, Any]:
    if isinstance(plan.guarantee, SecretProtection):
        return {"epsilon": None}
    return {"epsilon": plan.guarantee.epsilon}


def _privatize(plan: Plan) -> dict[str, Any]:
    models = {role: name for role, name in plan.model_ids.items() if role in ("vectors", "generator")}
    kept = {"keep_columns": list(plan.kept_columns)} if plan.kept_columns else {}
    return {"text_column": plan.text_column, **kept, **models}


def _synthesize(plan: Plan) -> dict[str, Any]:
    found: dict[str, Any] = {"text_column": plan.text_column}
    if plan.delta is not None and isinstance(plan.guarantee, ApproxDP):
        found["delta"] = plan.delta
    if plan.label_columns:
        found |= _labels(plan)
    found |= {"num_rows": plan.num_rows, "seed": plan.seed}
    if plan.num_records is not None:
        found["num_records"] = plan.num_records
    if plan.unit_column is not None:
        found["unit"] = plan.unit_column
    if plan.adjacency != "custom":
        found["adjacency"] = plan.adjacency
    return found | {role: name for role, name in plan.model_ids.items() if role in ("generator", "embedder")}


def _labels(plan: Plan) -> dict[str, Any]:
    """Return the columns, their domain, and their shares where they were declared."""
    names = list(plan.label_columns)
    if len(names) == 1:
        domain = [label[0] for label in plan.labels]
        shares = None if plan.proportions is None else dict(zip(domain, plan.proportions, strict=True))
        return {"label_column": names[0], **({"labels": domain} if shares is None else {"label_proportions": shares})}
    values: dict[str, Any] = {
        name: list(dict.fromkeys(label[at] for label in plan.labels)) for at, name in enumerate(names)
    }
    return {"label_column": names, "labels": values}


def _remarks(plan: Plan) -> str:
    """Return comments on what a recipe cannot say."""
    found = []
    if ASSUMPTION in plan.guarantee.assumptions:
        found.append(
            "# Its public rows were chosen by what they share with the private texts: name them at public.path"
        )
        found.append(
            "# and say public.overlaps, drop or cut. Other public rows make a release with other assumptions."
        )
    if plan.account == "rdp":
        found.append("# The run was charged to a budget across runs (budget=): its noise was calibrated by Renyi DP.")
    if len(plan.label_columns) > 1:
        whole = math.prod(len(set(column)) for column in zip(*plan.labels, strict=True))
        if whole != len(plan.labels):
            found.append("# Only some combinations of the labels were declared: pass labels= in Python.")
        if plan.proportions is not None:
            found.append("# The shares of the combinations were declared: pass label_proportions= in Python.")
    return "".join(f"{line}\n" for line in found)
