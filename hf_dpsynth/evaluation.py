"""Evaluation of a run or a file: what `hf-dpsynth evaluate` does, and where its figures stay.

Figures that read real texts are covered by no guarantee. They go to RUN.private/, beside the run and never into it.
"""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hf_dpsynth import auditing
from hf_dpsynth.audit.attacks import span
from hf_dpsynth.audit.deniability import Deniability
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.logging import get_logger
from hf_dpsynth.metrics import load, suite
from hf_dpsynth.metrics.base import Metric, Result
from hf_dpsynth.models import load_embedder
from hf_dpsynth.models.assets import cache_folder
from hf_dpsynth.models.base import Embedder
from hf_dpsynth.plans import Plan
from hf_dpsynth.publish.folder import existing
from hf_dpsynth.publish.report import Report, write_report
from hf_dpsynth.publish.run_files import checked, commitment, held_json, identity, plan_of, released_texts, texts_of
from hf_dpsynth.store import Store, write_whole

FILE = "evaluation.json"
_KEPT = ("results", "uses_private_data", "embedder", "created", "run", "real")

logger = get_logger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found.

    Args:
        results (`dict[str, dict]`): the result of each metric by its name. As sensitive as the real texts.
        uses_private_data (`bool`): whether real texts were read that are not public.
        embedder (`str`): the public name of the model that embedded.
        created (`str`): the UTC date.
        run (`str`, *optional*): the guarantee's id and the digests of the rows of a run.
        real (`str`, *optional*): HMAC of the real texts under the run's commitment key. Never an unkeyed digest.
        path (`Path`, *optional*): the file in RUN.private/ that holds it.
    """

    results: dict[str, Result]
    uses_private_data: bool
    embedder: str
    created: str
    run: str | None = None
    real: str | None = None
    path: Path | None = None

    def to_json(self) -> str:
        """Return the evaluation as JSON. As sensitive as the real texts."""
        return json.dumps({name: getattr(self, name) for name in _KEPT}, indent=1, allow_nan=False) + "\n"

    def goes_with(self, other: "Evaluation") -> bool:
        """Return whether another evaluation is of the same rows, real texts and embedder."""
        return all(getattr(self, name) == getattr(other, name) for name in ("run", "real", "embedder"))

    def table(self) -> list[tuple[str, ...]]:
        """Return a header and a row for each metric, as text: score, range, floor, floor's range, rows, better."""
        rows: list[tuple[str, ...]] = [("metric", "score", "range", "floor", "floor range", "rows", "better")]
        for name, result in self.results.items():
            if "error" in result:
                rows.append((name, "-", "-", "-", "-", "-", result["error"]))
                continue
            better = load(name).higher_is_better
            rows.append(
                (
                    name,
                    _shown(result.get(name if name in result else f"{name}_mean")),
                    span(result.get(f"{name}_interval")),
                    _shown(result.get(f"{name}_floor", result.get(f"references_{name}"))),
                    span(result.get(f"{name}_floor_interval")),
                    str(result.get("num_rows", "-")),
                    "-" if better is None else "higher" if better else "lower",
                )
            )
        return rows


def _shown(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}"


def evaluate(
    synthetic: str | os.PathLike[str],
    real: str | os.PathLike[str] | Sequence[str] | None = None,
    *,
    metrics: Sequence[str | Metric] = suite.DEFAULT,
    embedder: str | Embedder = "minilm",
    text_column: str | None = None,
    split: str | None = None,
    seed: int = 0,
) -> Evaluation:
    """Compare synthetic with real texts, and keep the figures of a run in RUN.private/.

    Args:
        synthetic (`str` or path): a run directory, a file, a folder of files, a Hub id or a catalogue name. Public.
        real (`str`, path or `Sequence[str]`, *optional*): the real texts, from any of these or as a list; without
            them only metrics of one set are computed. Sensitive.
        metrics (`Sequence` of `str` or `Metric`): which metrics.
        embedder (`str` or object with `.embed`): the model of the embedding metrics.
        text_column (`str`, *optional*): the column of text of both; that of the plan, or the only one, when missing.
        split (`str`, *optional*): the split of the real data; `train`, or the only one, when missing.
        seed (`int`): the seed of public randomness.
    Returns:
        `Evaluation`: the figures. As sensitive as the real texts.
    Raises:
        ConfigError: an input cannot be read, or an unknown metric.
    """
    folder = Path(synthetic)
    plan = plan_of(folder)
    release = None if plan is None else checked(folder)
    made = released_texts(folder, plan, text_column) if plan else texts_of(synthetic, text_column, None)
    texts = _texts(real, plan, text_column, split)
    model = load_embedder(embedder)
    results = suite.compare(
        made,
        texts,
        metrics=metrics,
        embedder=model,
        seed=seed,
        cache=cache_folder() / "embeddings.db" if plan is not None and _is_private(plan) else None,
    )
    found = Evaluation(
        results,
        uses_private_data=real is not None,
        embedder=getattr(model, "id", type(model).__qualname__),
        created=datetime.now(UTC).date().isoformat(),
        run=None if release is None else identity(release),
        real=None if release is None or texts is None else commitment(folder, texts),
    )
    return found if release is None else _keep(folder, found)


def _keep(folder: Path, found: Evaluation) -> Evaluation:
    """Write an evaluation beside its run, with the metrics that an earlier one of the same texts computed."""
    earlier = held(folder)
    if earlier is not None and earlier.goes_with(found):
        found = replace(found, results={**earlier.results, **found.results})
    path = Store(folder).private_folder() / FILE
    write_whole(path, found.to_json().encode(), mode=0o600)
    return replace(found, path=path)


def held(folder: str | os.PathLike[str]) -> Evaluation | None:
    """Return the evaluation that RUN.private/ holds, or None where there is none of this run. Sensitive.

    Args:
        folder (`str` or path): the run directory.
    Raises:
        ConfigError: the file is none that `evaluate` writes.
    """
    kept = held_json(Path(folder), FILE, "evaluate", _KEPT)
    return None if kept is None else Evaluation(**kept, path=Store(folder).beside / FILE)


def _is_private(plan: Plan) -> bool:
    """Return whether a plan gives its rows any privacy: rows without it are the private texts again."""
    return not plan.insecure_noise and math.isfinite(getattr(plan.guarantee, "epsilon", 0.0))


def _texts(real: Any, plan: Plan | None, text_column: str | None, split: str | None) -> list[str] | None:
    """Return real texts, of an input or a list."""
    if isinstance(real, (str, os.PathLike)):
        return texts_of(real, text_column, split, also=None if plan is None else plan.text_column)
    return None if real is None else list(real)


def report(
    run: str | os.PathLike[str],
    real: str | os.PathLike[str] | Sequence[str] | None = None,
    *,
    study: Any = None,
    deniability: Deniability | None = None,
    text_column: str | None = None,
    split: str | None = None,
    embedder: str | Embedder = "minilm",
) -> Report:
    """Write the report of a run, with the evaluation and the audits that RUN.private/ holds.

    Args:
        run (`str` or path): the run directory. Its page holds released and public material only.
        real (`str`, path or `Sequence[str]`, *optional*): the real texts, for a second page in RUN.private/.
            Sensitive.
        study (`Study`, *optional*): a downstream study, for the second page. Sensitive.
        deniability (`Deniability`, *optional*): what `audit.plausible_deniability` found of the run's mechanism, with
            its parameters, scale and vectors. Public.
        text_column (`str`, *optional*): the column of text of the real data.
        split (`str`, *optional*): its split.
        embedder (`str` or object with `.embed`): the model for the map of both sets.
    Returns:
        `Report`: where the pages lie.
    Raises:
        ConfigError: the folder is no run, or its files contradict its claim.
    """
    folder = existing(run)
    evaluation, audits = held(folder), auditing.held(folder)
    texts = _texts(real, plan_of(folder), text_column, split)
    known = None if texts is None else commitment(folder, texts)
    for one in (evaluation, audits):
        if one is not None and known is not None and one.real not in (None, known):
            again = "Evaluate" if one is evaluation else "Audit"
            raise ConfigError(
                f"{one.path} compares with other real texts than these. {again} again, or leave real out."
            )
    return write_report(
        folder,
        real=texts,
        metrics=None if evaluation is None else evaluation.results,
        study=study,
        audits=() if audits is None else audits.results,
        deniability=deniability,
        embedder=embedder if texts is not None else None,
        evaluated=None if evaluation is None else {"embedder": evaluation.embedder, "date": evaluation.created},
    )
