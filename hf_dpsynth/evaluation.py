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

from hf_dpsynth import columns, inputs
from hf_dpsynth.audit.deniability import Deniability
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.logging import get_logger
from hf_dpsynth.metrics import load, suite
from hf_dpsynth.metrics.base import Metric, Result
from hf_dpsynth.models import load_embedder
from hf_dpsynth.models.assets import cache_folder
from hf_dpsynth.models.base import Embedder
from hf_dpsynth.plans import Plan
from hf_dpsynth.publish.folder import existing, load_privacy
from hf_dpsynth.publish.report import Report, write_report
from hf_dpsynth.publish.verify import verify
from hf_dpsynth.release import Release
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
                    _range(result.get(f"{name}_interval")),
                    _shown(result.get(f"{name}_floor", result.get(f"references_{name}"))),
                    _range(result.get(f"{name}_floor_interval")),
                    str(result.get("num_rows", "-")),
                    "-" if better is None else "higher" if better else "lower",
                )
            )
        return rows


def _shown(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}"


def _range(interval: Any) -> str:
    return "-" if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}"


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
    release = None if plan is None else _checked(folder)
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
        run=None if release is None else _identity(release),
        real=None if release is None or texts is None else _commitment(folder, texts),
    )
    return found if release is None else _keep(folder, found)


def _checked(folder: Path) -> Release:
    """Return the release of a run whose files of rows are those that it made.

    Raises:
        ConfigError: they are not, so nothing says that they hold no private text.
    """
    release, found = load_privacy(folder), verify(folder)
    if not found.files_match:
        raise ConfigError(
            f"{folder} holds other rows than it released: {found.findings[0]}. Run hf-dpsynth verify to see all."
        )
    return release


def _identity(release: Release) -> str:
    return " ".join((release.guarantee_id, *(digest for _, digest in release.files)))


def _commitment(folder: Path, texts: list[str]) -> str | None:
    """Return the keyed digest of real texts, or None where the run's key is gone."""
    store = Store(folder)
    if not (store.beside / "commitment.key").exists():
        return None
    return store.commitment_key(fresh=False).commit(text.encode("utf-8", "surrogatepass") for text in texts)


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
    path = Store(folder).beside / FILE
    if not path.exists():
        return None
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        found = Evaluation(**{name: kept[name] for name in _KEPT}, path=path)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is none that hf-dpsynth evaluate writes. Remove it, and evaluate again.") from error
    if found.run != _identity(load_privacy(folder)):
        logger.warning("%s is of another run and is not used; evaluate again", path)
        return None
    return found


def plan_of(folder: Path) -> Plan | None:
    """Return the plan of a run directory, or None where a path is none.

    Raises:
        ConfigError: there is a plan of another version.
    """
    path = folder / "plan.json"
    if not path.is_file():
        return None
    try:
        return Plan.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not a plan of this version.") from error


def _is_private(plan: Plan) -> bool:
    """Return whether a plan gives its rows any privacy: rows without it are the private texts again."""
    return not plan.insecure_noise and math.isfinite(getattr(plan.guarantee, "epsilon", 0.0))


def _texts(real: Any, plan: Plan | None, text_column: str | None, split: str | None) -> list[str] | None:
    """Return real texts, of an input or a list."""
    if isinstance(real, (str, os.PathLike)):
        return texts_of(real, text_column, split, also=None if plan is None else plan.text_column)
    return None if real is None else list(real)


def released_texts(folder: Path, plan: Plan, text_column: str | None) -> list[str]:
    """Return the texts of every split that a run released; conversations as they are written out."""
    loaded = inputs.load_input(folder / "data")
    splits = loaded.values() if isinstance(loaded, dict) else [loaded]
    column = text_column or plan.text_column
    return [
        text
        for data in splits
        for text in columns.read_texts(data, columns.text_column(data.features, column, messages=True))
        if text is not None
    ]


def texts_of(
    source: str | os.PathLike[str], text_column: str | None, split: str | None, *, also: str | None = None
) -> list[str]:
    """Return the texts of an input, conversations as they are written out. As sensitive as the input.

    Missing values are left out.

    Args:
        source (`str` or path): a file, a folder of files, a Hub id or a catalogue name.
        text_column (`str`, *optional*): the column of text; the only one when missing.
        split (`str`, *optional*): the split; `train`, or the only one, when missing.
        also (`str`, *optional*): a column to take, where it exists, when `text_column` is missing.
    Raises:
        ConfigError: the input cannot be read, has no such column, or several splits to choose from.
    """
    if also is None:
        inputs.check_headed(source, text_column)
    loaded = inputs.load_input(source, text_column=text_column or also)
    data = _one(loaded, split, source)
    asked = text_column or (also if also in data.features else None)
    column = columns.text_column(data.features, asked, messages=True)
    return [text for text in columns.read_texts(data, column) if text is not None]


def _one(loaded: Any, split: str | None, source: str | os.PathLike[str]) -> Any:
    if not isinstance(loaded, dict):
        if split not in (None, "train"):
            raise ConfigError(f"split {split!r} does not exist in {os.fspath(source)!r}; it has train.")
        return loaded
    wanted = split or ("train" if "train" in loaded or len(loaded) > 1 else next(iter(loaded)))
    if wanted not in loaded:
        raise ConfigError(f"split {wanted!r} does not exist in {os.fspath(source)!r}; it has {', '.join(loaded)}.")
    return loaded[wanted]


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
    """Write the report of a run, with the evaluation that RUN.private/ holds.

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
    evaluation = held(folder)
    texts = _texts(real, plan_of(folder), text_column, split)
    if evaluation is not None and texts is not None and evaluation.real not in (None, _commitment(folder, texts)):
        raise ConfigError(
            f"{evaluation.path} compares with other real texts than these. Evaluate again, or leave real out."
        )
    return write_report(
        folder,
        real=texts,
        metrics=None if evaluation is None else evaluation.results,
        study=study,
        deniability=deniability,
        embedder=embedder if texts is not None else None,
        evaluated=None if evaluation is None else {"embedder": evaluation.embedder, "date": evaluation.created},
    )
