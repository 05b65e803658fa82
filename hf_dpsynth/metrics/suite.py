"""Several metrics of the same two sets of texts, each text embedded once."""

import inspect
import os
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.logging import progress_bar
from hf_dpsynth.metrics import load
from hf_dpsynth.metrics.base import Metric, Result, check_texts
from hf_dpsynth.metrics.embedding import embed
from hf_dpsynth.models import load_embedder
from hf_dpsynth.models.base import Embedder

DEFAULT = ("mauve", "fid", "mmd", "wasserstein", "prdc", "ngram", "length", "vendi", "self_bleu", "distinct_n")


def compare(
    predictions: Sequence[str],
    references: Sequence[str] | None,
    *,
    metrics: Sequence[str | Metric] = DEFAULT,
    embedder: str | Embedder = "minilm",
    holdout: Sequence[str] | None = None,
    num_splits: int = 5,
    seed: int = 0,
    public_references: bool = False,
    cache: str | os.PathLike[str] | None = None,
) -> dict[str, Result]:
    """Compute several metrics of synthetic against real texts.

    Args:
        predictions (`Sequence[str]`): synthetic texts. Public.
        references (`Sequence[str]`, *optional*): real texts; without them only metrics of one set are computed.
            Sensitive.
        metrics (`Sequence` of `str` or `Metric`): names, or metrics with options of their own. `rank_agreement`
            reads the texts as numbers.
        embedder (`str` or object with `.embed`): the model of all embedding metrics.
        holdout (`Sequence[str]`, *optional*): further real texts for the floors. Sensitive.
        num_splits (`int`): public random halves that scores and floors are averaged over.
        seed (`int`): the seed of public randomness.
        public_references (`bool`): whether the references are public.
        cache (`str` or path, *optional*): a file that keeps the vectors of `predictions`. Only if they are public.
    Returns:
        `dict[str, dict]`: the result of each metric by its name. A metric that cannot be computed on these texts has
        its reason under `error` and no figure. As sensitive as the references.
    Raises:
        ConfigError: an unknown metric, or texts that are none.
    Examples:
        >>> from hf_dpsynth.metrics.suite import compare
        >>> found = compare(["a b", "c d"], ["a b", "a b", "c d", "e f"], metrics=["length", "distinct_n"])
        >>> found["length"]["length"], found["distinct_n"]["distinct_n_1"]
        (0.0, 1.0)
    """
    chosen = [load(one) if isinstance(one, str) else one for one in metrics]
    _check_names([metric.name for metric in chosen])
    synthetic = check_texts(predictions, "predictions")
    real = None if references is None else check_texts(references, "references")
    rest = None if holdout is None else check_texts(holdout, "holdout")
    if real is None:
        chosen = [metric for metric in chosen if not metric.needs_references]
    memory = _Memory(load_embedder(embedder)) if any(metric.needs_embedder for metric in chosen) else None
    if memory is not None:
        memory.learn(synthetic, "predictions", public=True, cache=cache)
        for texts, what in ((real, "references"), (rest, "holdout")):
            memory.learn(texts or [], what, public=public_references)
    found: dict[str, Result] = {}
    with progress_bar(total=len(chosen), desc="Metrics", unit=" metrics") as bar:
        for metric in chosen:
            try:
                found[metric.name] = call(
                    metric,
                    predictions=synthetic,
                    references=real,
                    embedder=memory,
                    holdout=rest,
                    num_splits=num_splits,
                    seed=seed,
                    public_references=public_references,
                )
            except ConfigError as error:
                found[metric.name] = {
                    "error": str(error),
                    "uses_private_data": real is not None and not public_references,
                }
            bar.update()
    return found


def call(metric: Metric, **arguments: Any) -> Result:
    """Compute a metric with those of the arguments that it takes.

    Args:
        metric (`Metric`): a metric.
        arguments: arguments of `compute` of any metric.
    """
    compute = cast(Any, metric).compute
    accepted = inspect.signature(compute).parameters
    result: Result = compute(**{name: value for name, value in arguments.items() if name in accepted})
    return result


def _check_names(names: list[str]) -> None:
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"metrics= names {len(names)} metrics, {len(set(names))} of them distinct; name each once")


class _Memory:
    """An embedder that keeps the vectors of what it has seen in this process, so that metrics share them."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._rows: dict[str, np.ndarray] = {}

    def learn(self, texts: list[str], what: str, *, public: bool, cache: str | os.PathLike[str] | None = None) -> None:
        """Embed the texts that are new."""
        fresh = [text for text in dict.fromkeys(texts) if text not in self._rows]
        if fresh:
            vectors = embed(fresh, self._embedder, what=what, public=public, cache=cache)
            self._rows.update(zip(fresh, vectors, strict=True))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of texts that were learnt, shape (n, d)."""
        return np.stack([self._rows[text] for text in texts])
