"""What a plan says of public inputs: the models by name, and what a guarantee takes for granted of them."""

from typing import Any

from hf_dpsynth.mechanisms.base import PUBLIC_ROWS, PublicInputs

_ROW_INDEPENDENT = {
    "embedder": "the embedder embeds each row independently of the others: unknown",
    "generator": "the generator reads each prompt independently of the others, on this machine: unknown",
}


def assumed(mechanism: Any, inputs: PublicInputs, roles: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a guarantee takes for granted of public rows, and of models of others that read private text.

    Args:
        mechanism (`Synthesizer`): the hyper-parameters.
        inputs (`PublicInputs`): the models and the public rows.
        roles (`tuple[str, ...]`): what the mechanism uses of the models.
    """
    shown = [role for role in getattr(mechanism, "reads_private", ("embedder",)) if role in roles]
    said = getattr(mechanism, "needs_public", False) or not getattr(mechanism, "plans_public", True)
    rows = (PUBLIC_ROWS,) if len(inputs.dataset) and not said else ()
    return (*(_ROW_INDEPENDENT[role] for role in shown if not _is_ours(getattr(inputs, role))), *rows)


def named(mechanism: Any, inputs: PublicInputs, roles: tuple[str, ...]) -> dict[str, str]:
    """Return the public name of each model, those that a field of the mechanism names included."""
    return {role: _model_id(getattr(inputs, role)) for role in roles} | getattr(mechanism, "further_ids", {})


def _is_ours(model: Any) -> bool:
    from hf_dpsynth.models.causal_lm import CausalLM
    from hf_dpsynth.models.endpoint import Endpoint
    from hf_dpsynth.models.sentence import SentenceEmbedder

    return isinstance(model, (CausalLM, Endpoint, SentenceEmbedder))


def _model_id(model: Any) -> str:
    """Return a model's public id; of a user's object its module and qualified name."""
    return str(model.id) if _is_ours(model) else f"{type(model).__module__}.{type(model).__qualname__}"
