"""The card of a tuned model: what it is, and the guarantee that it carries wherever it goes."""

from pathlib import Path

import yaml

from hf_dpsynth.plans import Plan

_NOT_PRIVATE = "NOT PRIVATE: the noise was drawn from a seed that anybody can use again."
_WORDS = frozenset(" .,:;()/'=+-%")


def _plain(text: str) -> str:
    """Write what Markdown or HTML could read as a sign as an entity, on one line: a template may hold anything."""
    line = " ".join(text.split())
    return "".join(sign if sign.isalnum() or sign in _WORDS else f"&#{ord(sign)};" for sign in line)


def model_card(plan: Plan, base: str) -> str:
    """Return the README.md of a tuned model, rendered from its plan alone.

    Args:
        plan (`Plan`): of the run that tuned it.
        base (`str`): the base model, as others load it.
    Returns:
        `str`: front matter and Markdown. Public.
    """
    statement = _plain(_NOT_PRIVATE if plan.insecure_noise else plan.guarantee.statement())
    lora = plan.mechanism != "dp-full"
    # a folder of this machine is no name of a model elsewhere, and the Hub refuses it
    front = {
        **({} if Path(base).is_dir() else {"base_model": base}),
        "library_name": "peft" if lora else "transformers",
        "pipeline_tag": "text-generation",
        "tags": [plan.mechanism, *(["lora"] if plan.mechanism == "dp-lora" else [])],
    }
    params = "\n".join(f"| {name} | {_plain(str(value))} |" for name, value in plan.params.items())
    loader = "AutoPeftModelForCausalLM" if lora else "AutoModelForCausalLM"
    library = "peft" if lora else "transformers"
    return f"""---
{yaml.safe_dump(front, sort_keys=False).strip()}
---

# A language model tuned with {plan.mechanism}

{statement}

The guarantee is of the records that this model was tuned on. It says nothing of what the base model learned before.
It is of this run alone: its hyper-parameters were not chosen on these records, or the runs that chose them count too.
Whatever is sampled from this model carries the same guarantee: that is post-processing.

| parameter | value |
|---|---|
| noise_multiplier | {plan.noise_multiplier} |
{params}

```python
from {library} import {loader}

model = {loader}.from_pretrained("FOLDER")
```
"""
