"""Our metrics as modules of `evaluate`, without its two faults for private text.

`evaluate` writes references in clear to a cache on disk and puts inputs into its messages, and it refuses sets of
unequal size. Our modules keep texts in memory and nowhere else, whatever `keep_in_memory` says, and compare any sizes.
"""

import inspect
from collections.abc import Iterable
from typing import Any, cast

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.metrics import list_metrics, load
from hf_dpsynth.metrics.base import Metric
from hf_dpsynth.registry import closest

_INPUTS = ("predictions", "references")
_HOMEPAGE = "https://github.com/hf-dpsynth/hf-dpsynth"


def module(name: str) -> type[Any]:
    """Return the class of `evaluate` for a metric; the modules in `evaluate_modules` are one call of this each.

    Args:
        name (`str`): e.g. `"mauve"`.
    Raises:
        MissingExtra: evaluate is not installed.
    """
    evaluate = need("evaluate", extra="metrics", what="evaluate.load")
    metric = load(name)
    members = {"metric": metric, "__doc__": metric.description, "__module__": __name__}
    class_name = "".join(part.title() for part in name.split("_"))  # evaluate takes the metric's name from it
    return type(class_name, (_InMemory, evaluate.Metric), members)


class _InMemory:
    """What replaces the cache, the size check and the messages of `evaluate.Metric`."""

    metric: Metric

    def __init__(self, *args: Any, keep_in_memory: bool = True, num_process: int = 1, **options: Any) -> None:
        if num_process != 1:
            raise ConfigError(
                f"num_process is {num_process}; several processes would share texts on disk. Gather them in one."
            )
        self._held: dict[str, list[Any]] = {}
        super().__init__(*args, keep_in_memory=True, num_process=1, **options)  # type: ignore[call-arg]

    def _info(self) -> Any:
        """Describe the metric to `evaluate`."""
        import evaluate
        from datasets import Features, Value

        kind = "string" if "text" in _inputs_of(self.metric) else "float64"
        return evaluate.MetricInfo(
            description=self.metric.description,
            citation=self.metric.source,
            inputs_description=inspect.getdoc(self._call) or "",
            features=Features({name: Value(kind) for name in _INPUTS}),
            homepage=_HOMEPAGE,
        )

    @property
    def _call(self) -> Any:
        return cast(Any, self.metric).compute

    def add_batch(self, *, predictions: Any = None, references: Any = None) -> None:
        """Hold a batch in memory until `compute`; the two sides may differ in size.

        Args:
            predictions (`Sequence`, *optional*): synthetic texts, or scores.
            references (`Sequence`, *optional*): real texts, or scores. Sensitive.
        Raises:
            ConfigError: a side is a single text.
        """
        for name, batch in zip(_INPUTS, (predictions, references), strict=True):
            if batch is None:
                continue
            if isinstance(batch, (str, bytes)) or not isinstance(batch, Iterable):
                raise ConfigError(f"{name}= is of type {type(batch).__name__}; pass a list")
            self._held.setdefault(name, []).extend(batch)

    def add(self, *, prediction: Any = None, reference: Any = None) -> None:
        """Hold one prediction, one reference or one of each in memory until `compute`.

        Args:
            prediction (`str` or `float`, *optional*): a synthetic text, or a score.
            reference (`str` or `float`, *optional*): a real text, or a score. Sensitive.
        """
        self.add_batch(
            predictions=None if prediction is None else [prediction],
            references=None if reference is None else [reference],
        )

    def compute(self, *, predictions: Any = None, references: Any = None, **options: Any) -> dict[str, Any]:
        """Compute the metric on what was added and passed, and forget the texts.

        Args:
            predictions (`Sequence`, *optional*): synthetic texts, or scores.
            references (`Sequence`, *optional*): real texts, or scores. Sensitive.
            options: fields of the metric and further arguments of its `compute`. Those that only other metrics have
                are left out, so that `evaluate.combine` can pass one set to all.
        Returns:
            `dict`: the figures. As sensitive as the references.
        Raises:
            ConfigError: an option that no metric has, or no predictions.
        """
        self.add_batch(predictions=predictions, references=references)
        held, self._held = self._held, {}
        accepted = set(inspect.signature(self._call).parameters)
        chosen = {name: value for name, value in options.items() if name in self.metric.options()}
        passed = {name: value for name, value in options.items() if name in accepted and name not in chosen}
        _check_known([name for name in options if name not in chosen and name not in passed])
        if "predictions" not in held:
            raise ConfigError(f"{self.metric.name} has no predictions. Pass predictions=, or call add_batch before.")
        if "references" not in held and self.metric.needs_references:
            raise ConfigError(f"{self.metric.name} has no references. Pass references=, or call add_batch before.")
        metric = cast(Any, self.metric.with_params(chosen))
        result: dict[str, Any] = metric.compute(**held, **passed)
        return result

    def __len__(self) -> int:
        return max(map(len, self._held.values()), default=0)


def _inputs_of(metric: Metric) -> str:
    """Return whether a metric reads texts or scores."""
    annotation = str(inspect.signature(cast(Any, metric).compute).parameters["predictions"].annotation)
    return "text" if "str" in annotation else "score"


def _check_known(names: list[str]) -> None:
    """Refuse an option that no metric has: a slip of the keyboard must not change what is computed."""
    if not names:
        return
    metrics = [load(name) for name in list_metrics()]
    known = {option for metric in metrics for option in metric.options()}
    known |= {name for metric in metrics for name in inspect.signature(metric.compute).parameters}
    wrong = next((name for name in names if name not in known), None)
    if wrong is not None:
        raise ConfigError(f"no metric has an option {wrong!r}{closest(wrong, sorted(known))}")
