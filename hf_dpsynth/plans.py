"""Plans: what a run will do and what it will cost, fixed and stored before any private record is read.

Every field of `Facts` and `Plan` is public. A plan is a function of its arguments alone: neighbouring data sets that
declare the same facts get the same plan.
"""

import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any

from dp_accounting import DpEvent

from hf_dpsynth import guarantees
from hf_dpsynth.guarantees import Guarantee
from hf_dpsynth.privacy.event_json import event_from_json, event_to_json

Label = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Numbers and domains that the user declares public, and the relation they imply.

    Args:
        num_records (`int`, *optional*): the declared number of privacy units; None when the plan does not use it.
        num_rows (`int`, *optional*): rows to make; None leaves it open, which a run refuses.
        labels (`tuple[tuple, ...]`): the declared joint domain of the conditioning columns; one empty tuple without
            them.
        proportions (`tuple[float, ...]`, *optional*): declared shares of `labels`; None when they are bought.
        adjacency (`str`): the neighbouring relation.
        unit (`str`): whose contribution is protected: `"record"` or `"user"`.
        mu (`float`, *optional*): mu of Gaussian DP at the target, of which shares are given to parts of a mechanism;
            None without a target.
        delta (`float`, *optional*): the delta of the target, of which parts go to events that may fail.
    """

    num_records: int | None = None
    num_rows: int | None = None
    labels: tuple[Label, ...] = ((),)
    proportions: tuple[float, ...] | None = None
    adjacency: str = "add-remove"
    unit: str = "record"
    mu: float | None = None
    delta: float | None = None

    @property
    def buys_proportions(self) -> bool:
        """Whether a part of the budget pays for a noisy histogram of the labels."""
        return self.proportions is None and len(self.labels) > 1


@dataclass(frozen=True, kw_only=True)
class Cost:
    """An upper bound on the work of a run: calls of the language model, tokens it makes, texts to embed.

    Training reads an expected number of tokens.
    """

    lm_calls: int = 0
    tokens: int = 0
    embeddings: int = 0
    training_tokens: int = 0


CLEAR_COLUMNS = "columns copied in clear are not protected: "


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run's hyper-parameters, events and guarantee. Public; pinned in the run directory before data is touched.

    Args:
        mechanism (`str`): the registry name.
        params (`dict`): every hyper-parameter, defaults included.
        event (`DpEvent`): the full event tree that the guarantee accounts for.
        noise_multiplier (`float`, *optional*): noise standard deviation per unit of sensitivity; 0 without privacy.
        guarantee (`Guarantee`): what the run promises if it spends all of its events.
        delta (`float`, *optional*): the delta it promises it at.
        adjacency (`str`): the neighbouring relation.
        labels (`tuple[tuple, ...]`): the declared label domain.
        num_records (`int`, *optional*): the declared number of privacy units, when the plan uses it.
        num_rows (`int`, *optional*): rows to make.
        seed (`int`): the seed of public randomness.
        model_ids (`dict[str, str]`): the public models by role.
        cost (`Cost`, *optional*): an upper bound on the work; None when the number of rows is open.
        account (`str`): `"pld"`; `"zcdp"` where events have no privacy loss distribution; `"rdp"` under a budget
            across runs.
        discretisation (`float`): interval of the privacy loss.
        proportions (`tuple[float, ...]`, *optional*): declared shares of the labels.
        text_column (`str`): the column of the text in the output.
        label_columns (`tuple[str, ...]`): the conditioning columns.
        kept_columns (`tuple[str, ...]`): columns copied in clear, which the guarantee does not cover.
        unit_column (`str`, *optional*): the column whose values are the users; it is not in the output.
        messages (`bool`): whether the text column holds conversations.
        insecure_noise (`bool`): True in tests only; such a release is refused at push.
        warnings (`tuple[str, ...]`): what the user should know before running.
    """

    mechanism: str
    params: dict[str, Any]
    event: DpEvent
    noise_multiplier: float | None
    guarantee: Guarantee
    delta: float | None
    adjacency: str
    labels: tuple[Label, ...] = ((),)
    num_records: int | None = None
    num_rows: int | None = None
    seed: int = 0
    model_ids: dict[str, str] = field(default_factory=dict)
    cost: Cost | None = None
    account: str = "pld"
    discretisation: float = 1e-4
    proportions: tuple[float, ...] | None = None
    text_column: str = "text"
    label_columns: tuple[str, ...] = ()
    kept_columns: tuple[str, ...] = ()
    unit_column: str | None = None
    messages: bool = False
    insecure_noise: bool = False
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", _plain(self.params))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values; floats that carry the guarantee are hexadecimal in the event tree."""
        public = {name: value for name, value in vars(self).items() if name not in ("event", "guarantee", "cost")}
        return {
            **{name: _plain(value) for name, value in public.items()},
            "event": event_to_json(self.event),
            "guarantee": guarantees.to_json(self.guarantee),
            "cost": None if self.cost is None else vars(self.cost),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Plan":
        """Read a plan that `to_json` wrote."""
        tuples: dict[str, Any] = {"labels": tuple(tuple(label) for label in data["labels"])}
        for name in ("proportions", "label_columns", "kept_columns", "warnings"):
            tuples[name] = None if data[name] is None else tuple(data[name])
        return cls(
            **{
                **data,
                **tuples,
                "event": event_from_json(data["event"]),
                "guarantee": guarantees.from_json(data["guarantee"]),
                "cost": None if data["cost"] is None else Cost(**data["cost"]),
            }
        )

    def digest(self) -> str:
        """Return the SHA-256 of the plan. A plan is public, so an unkeyed digest tells nothing."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def differences(self, other: "Plan") -> list[str]:
        """Name the fields in which two plans differ."""
        mine, theirs = self.to_json(), other.to_json()
        return [name for name in mine if mine[name] != theirs.get(name)]


def default_delta(units: int) -> float:
    """Return min(1e-5, 1/(m ln m) rounded down to a power of ten) for m privacy units, m >= 1000.

    Examples:
        >>> default_delta(5000), default_delta(200000)
        (1e-05, 1e-07)
    """
    return float(f"1e{math.floor(math.log10(min(1e-5, 1 / (units * math.log(units)))))}")


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
