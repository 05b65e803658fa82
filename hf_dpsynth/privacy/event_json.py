"""Events as JSON values: an allow-list of types, with floats as hexadecimal text so that nothing is rounded."""

import math
from dataclasses import fields, is_dataclass
from typing import Any

import attr
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
)

from hf_dpsynth.errors import PrivacyError
from hf_dpsynth.privacy.limited_domain import LimitedDomainDpEvent
from hf_dpsynth.privacy.noise import DiscreteGaussianDpEvent
from hf_dpsynth.privacy.picks import BoundedRangeDpEvent
from hf_dpsynth.privacy.secrets import SecretGaussianDpEvent
from hf_dpsynth.privacy.tokens import TokensDpEvent
from hf_dpsynth.privacy.user_votes import ClippedSumDpEvent
from hf_dpsynth.privacy.words import (
    ExponentialWordDpEvent,
    MultivariateLaplaceDpEvent,
    TagResponseDpEvent,
    TwoSidedGeometricDpEvent,
)

_SERIALISED: dict[str, type[DpEvent]] = {
    kind.__name__: kind
    for kind in (
        BoundedRangeDpEvent,
        ClippedSumDpEvent,
        ComposedDpEvent,
        DiscreteGaussianDpEvent,
        ExponentialWordDpEvent,
        GaussianDpEvent,
        LimitedDomainDpEvent,
        MultivariateLaplaceDpEvent,
        NoOpDpEvent,
        NonPrivateDpEvent,
        PoissonSampledDpEvent,
        SecretGaussianDpEvent,
        SelfComposedDpEvent,
        TagResponseDpEvent,
        TokensDpEvent,
        TwoSidedGeometricDpEvent,
        ZCDpEvent,
    )
}


def event_to_json(event: DpEvent) -> dict[str, Any]:
    """Return an event tree as JSON values: type names from an allow-list, floats as hexadecimal text.

    Raises:
        PrivacyError: an event's type is not on the allow-list.
    """
    name = type(event).__name__
    if _SERIALISED.get(name) is not type(event):
        raise PrivacyError(f"event {name} cannot be stored; storable are {', '.join(sorted(_SERIALISED))}.")
    return {"type": name, **{field: _to_json(getattr(event, field)) for field in event_fields(type(event))}}


def event_from_json(data: dict[str, Any]) -> DpEvent:
    """Read an event tree that `event_to_json` wrote.

    Raises:
        PrivacyError: a type or a field is unknown, or a cost is out of range.
    """
    name = data.get("type")
    if name not in _SERIALISED:
        raise PrivacyError(f"event {name!r} is unknown; known are {', '.join(sorted(_SERIALISED))}.")
    kind = _SERIALISED[name]
    if set(data) != {"type", *event_fields(kind)}:
        raise PrivacyError(
            f"event {name} has fields {sorted(set(data) - {'type'})}; expected {sorted(event_fields(kind))}."
        )
    event = kind(**{field: _from_json(data[field]) for field in event_fields(kind)})
    if isinstance(event, ZCDpEvent) and not (event.xi == 0 and 0 < event.rho < math.inf):
        raise PrivacyError(f"event {name} has rho {event.rho} and xi {event.xi}; rho must be finite and > 0, xi 0.")
    return event


def event_fields(kind: type[DpEvent]) -> list[str]:
    """Return the names of the fields of a type of event, ours or dp-accounting's."""
    return [field.name for field in (fields(kind) if is_dataclass(kind) else attr.fields(kind))]


def _to_json(value: Any) -> Any:
    if isinstance(value, DpEvent):
        return event_to_json(value)
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    return float(value).hex() if isinstance(value, float) else int(value)


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return event_from_json(value)
    if isinstance(value, list):
        items = [_from_json(item) for item in value]
        return items if items and isinstance(items[0], DpEvent) else tuple(items)
    return float.fromhex(value) if isinstance(value, str) else value
