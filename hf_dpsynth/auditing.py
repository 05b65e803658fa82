"""Attacks on a run: what `hf-dpsynth audit` does, and where its figures stay.

Figures that read real texts are covered by no guarantee. They go to RUN.private/, and into the record of the run only
where somebody asks for it by name. What reads no private text is added to the record.
"""

import importlib
import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock

from hf_dpsynth import columns, inputs
from hf_dpsynth.audit.attacks import COLUMNS, AttackResult
from hf_dpsynth.audit.findings import check_confidence
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.guarantees import LocalDP, MetricDP
from hf_dpsynth.metrics.base import check_seed, check_texts
from hf_dpsynth.plans import Plan
from hf_dpsynth.publish.folder import existing, load_privacy, write_record
from hf_dpsynth.publish.run_files import (
    checked,
    commitment,
    held_json,
    identity,
    one_split,
    plan_of,
    released_texts,
    texts_of,
)
from hf_dpsynth.registry import closest
from hf_dpsynth.release import Audit
from hf_dpsynth.store import Store, write_whole

FILE = "audits.json"
_KEPT = ("run", "real", "created", "confidence", "results", "skipped")


@dataclass(frozen=True)
class _Attack:
    """An attack by its function in `hf_dpsynth.audit` and by what it reads.

    Args:
        function (`str`): its name.
        reads (`str`): `"plan"`, `"rows"` (released rows, members, others) or `"pairs"` (rows that kept their place).
        asked (`bool`): whether it only runs where it is asked for: it loads a large model.
    """

    function: str
    reads: str
    asked: bool = False


ATTACKS: Mapping[str, _Attack] = {
    "mechanism": _Attack("audit_plan", "plan"),
    "membership": _Attack("audit_membership", "rows"),
    "neighbours": _Attack("audit_neighbours", "rows"),
    "leakage": _Attack("audit_leakage", "rows"),
    "secrets": _Attack("audit_secret_matches", "rows"),
    "inversion": _Attack("audit_inversion", "pairs"),
    "masks": _Attack("audit_masks", "pairs", asked=True),
}


@dataclass(frozen=True)
class Audits:
    """What the attacks on a run found. As sensitive as the real texts.

    Args:
        results (`tuple[AttackResult, ...]`): one an attack, by the order of `ATTACKS`.
        skipped (`dict[str, str]`): attacks that could not be made, with the reason.
        created (`str`): the UTC date.
        confidence (`float`): that of the intervals.
        run (`str`): the guarantee's id and the digests of the rows.
        real (`str`, *optional*): HMAC of the real texts under the run's commitment key.
        path (`Path`, *optional*): the file in RUN.private/ that holds it.
        published (`tuple[Audit, ...]`): the entries that the record of the run got.
        made (`tuple[str, ...]`): the names of the results that are of this audit; others are of earlier ones.
    """

    results: tuple[AttackResult, ...]
    skipped: dict[str, str]
    created: str
    confidence: float
    run: str
    real: str | None = None
    path: Path | None = None
    published: tuple[Audit, ...] = ()
    made: tuple[str, ...] = ()

    @property
    def violated(self) -> bool:
        """Whether an attack refutes the claim."""
        return any(one.violated for result in self.results for one in result.findings)

    def table(self) -> list[tuple[str, ...]]:
        """Return a header and a line for each figure, as text: attack, metric, value, interval, n."""
        return [COLUMNS, *(row for result in self.results for row in result.rows())]

    def to_json(self) -> str:
        """Return the audits as JSON. As sensitive as the real texts."""
        held = {name: getattr(self, name) for name in _KEPT} | {"results": [one.to_json() for one in self.results]}
        return json.dumps(held, indent=1, allow_nan=False) + "\n"


def audit_run(
    run: str | os.PathLike[str],
    real: str | os.PathLike[str] | Sequence[str | None] | None = None,
    *,
    holdout: str | os.PathLike[str] | Sequence[str] | None = None,
    attacks: Sequence[str] | None = None,
    publish: Sequence[str] = (),
    embedder: Any = "minilm",
    vectors: Any = None,
    text_column: str | None = None,
    split: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Audits:
    """Attack a run, keep what was found in RUN.private/, and add what read no private text to its record.

    Args:
        run (`str` or path): the run directory. Public.
        real (`str`, path or `Sequence[str]`, *optional*): the real texts that the run read; without them only the
            mechanism's code is audited. Sensitive.
        holdout (`str`, path or `Sequence[str]`, *optional*): real texts of the same kind that it did not read; the
            split `test` of `real` when missing, where there is one. Sensitive.
        attacks (`Sequence[str]`, *optional*): names of `ATTACKS`; all that fit the run and load no large model when
            missing.
        publish (`Sequence[str]`): attacks whose figures go into the record although they read real texts.
        embedder (`str` or object with `.embed`): the model of attacks by embeddings.
        vectors (`str`, path or `WordVectors`, *optional*): those of the run, for attacks on its words; by the name in
            the plan when missing.
        text_column (`str`, *optional*): the column of text of the real data; that of the plan when missing.
        split (`str`, *optional*): the split of the real data that the run read.
        confidence (`float`, defaults to 0.95): that of each interval.
        seed (`int`): the seed of public randomness.
    Returns:
        `Audits`: the figures, and why an attack could not be made. As sensitive as the real texts.
    Raises:
        ConfigError: the folder is no run, its rows are not those that it released, an attack is unknown or is to be
            published and not made, the texts cannot be read, or an argument is out of range.
    """
    check_confidence(confidence)
    check_seed(seed)
    folder = existing(run)
    plan, release = plan_of(folder), checked(folder)
    if plan is None:
        raise ConfigError(f"{folder} holds no plan.json. Audit the run directory itself.")
    names = _chosen(plan, real is not None, attacks, publish)
    sources = _Sources(folder, plan, real, holdout, text_column, split, vectors)
    committed = None if real is None else commitment(folder, sources.readable())
    held(folder)
    options = {"confidence": confidence, "seed": seed}
    results, skipped = {}, {}
    for name in names:
        try:
            results[name] = _attacked(ATTACKS[name], sources, options, embedder)
        except ConfigError as error:
            skipped[name] = str(error)
    published = tuple(
        one.as_audit()
        for name, result in results.items()
        for one in result.findings
        if name in publish or not one.uses_private_data
    )
    found = Audits(
        results=tuple(results.values()),
        skipped=skipped,
        created=datetime.now(UTC).date().isoformat(),
        confidence=confidence,
        run=identity(release),
        real=committed,
        published=published,
        made=tuple(one.name for one in results.values()),
    )
    return _kept(folder, found, compared=real is not None)


def held(folder: str | os.PathLike[str]) -> Audits | None:
    """Return the audits that RUN.private/ holds, or None where there are none of this run. Sensitive.

    Args:
        folder (`str` or path): the run directory.
    Raises:
        ConfigError: the file is none that `audit_run` writes.
    """
    kept = held_json(Path(folder), FILE, "audit", _KEPT)
    if kept is None:
        return None
    results = tuple(AttackResult.from_json(one) for one in kept["results"])
    return Audits(**kept | {"results": results}, path=Store(folder).beside / FILE)


def _chosen(plan: Plan, compared: bool, attacks: Sequence[str] | None, publish: Sequence[str]) -> list[str]:
    """Return which attacks to make, in their order."""
    for name in (*(attacks or ()), *publish):
        if name not in ATTACKS:
            raise ConfigError(f"there is no attack {name!r}{closest(name, list(ATTACKS))}")
    rows = "pairs" if isinstance(plan.guarantee, (MetricDP, LocalDP)) else "rows"
    fitting = ("plan", rows) if compared else ("plan",)
    found = [name for name, one in ATTACKS.items() if one.reads in fitting and not one.asked]
    found = found if attacks is None else list(dict.fromkeys(attacks))
    for name in publish:
        if name not in found:
            raise ConfigError(
                f"{name!r} is to be published and is not made here. Pass real texts, or it as an attack."
            )
    return found


def _attacked(attack: _Attack, sources: "_Sources", options: dict[str, Any], embedder: Any) -> AttackResult:
    function: Callable[..., AttackResult] = getattr(importlib.import_module("hf_dpsynth.audit"), attack.function)
    if attack.reads == "plan":
        return function(sources.plan, **options)
    taken = inspect.signature(function).parameters
    more = {**options, "embedder": embedder, "delta": sources.delta, **sources.law()}
    passed = {name: value for name, value in more.items() if name in taken}
    if attack.reads == "pairs":
        return function(*sources.pairs, **passed)
    return function(sources.released, sources.members, sources.others, **passed)


@dataclass(frozen=True, repr=False)
class _Sources:
    """Where the texts of attacks come from; they are read when an attack first asks for them. Sensitive."""

    folder: Path
    plan: Plan
    real: Any
    holdout: Any
    text_column: str | None
    split: str | None
    vectors: Any

    @property
    def delta(self) -> float:
        """The delta of the claim, or a usual one where it has none."""
        return getattr(self.plan.guarantee, "delta", None) or 1e-5

    def law(self) -> dict[str, Any]:
        """Return the mechanism, its scale and its vectors, where they are public, for who knows what made the rows."""
        plan, epsilon = self.plan, getattr(self.plan.guarantee, "epsilon", None)
        known = {"mechanism": plan.mechanism, "epsilon": epsilon, "params": dict(plan.params)}
        named = plan.model_ids.get("vectors")
        vectors = self.vectors if self.vectors is not None else named
        return known | ({} if vectors is None else {"vectors": vectors})

    @cached_property
    def released(self) -> list[str]:
        return released_texts(self.folder, self.plan, None)

    @cached_property
    def members(self) -> list[str]:
        return self._texts(self.real, self.split, "--real: the texts that the run read")

    @cached_property
    def others(self) -> list[str]:
        if self.holdout is None and isinstance(self.real, (str, os.PathLike)) and self.split != "test":
            loaded = inputs.load_input(self.real, text_column=self.text_column or self.plan.text_column)
            if isinstance(loaded, dict) and "test" in loaded and len(loaded) > 1:  # alone, it is what the run read
                return self._texts(self.real, "test", "")
        return self._texts(self.holdout, None, "--holdout: real texts of the same kind that the run did not read")

    def _texts(self, source: Any, split: str | None, what: str) -> list[str]:
        if source is None:
            raise ConfigError(f"this attack needs {what}.")
        if isinstance(source, (str, os.PathLike)):
            return texts_of(source, self.text_column, split, also=self.plan.text_column)
        return _listed(source)

    def readable(self) -> list[str]:
        """Return the real texts, before an attack takes its time; a hold-out that is given must be readable too."""
        if self.holdout is not None:
            _ = self.others
        try:
            return self.members
        except ConfigError:
            if not (
                isinstance(self.real, (str, os.PathLike)) and isinstance(self.plan.guarantee, (MetricDP, LocalDP))
            ):
                raise
            return [text for text in self._real_places() if text is not None]  # a run that privatized several splits

    @cached_property
    def pairs(self) -> tuple[list[str | None], list[str | None]]:
        """Return released and real texts that stand at the same place."""
        made, real = self._places(self.folder / "data", None), self._real_places()
        if len(made) != len(real):
            raise ConfigError(
                f"the run released {len(made)} rows and --real has {len(real)}; a row and its original stand at the "
                "same place. Pass the data of the run, and --split where it read one split."
            )
        return made, real

    def _real_places(self) -> list[str | None]:
        if self.real is None:
            raise ConfigError("this attack needs --real: the texts that the run read.")
        if isinstance(self.real, (str, os.PathLike)):
            return self._places(self.real, self.split)
        return list(self.real)

    def _places(self, source: Any, split: str | None) -> list[str | None]:
        loaded = inputs.load_input(source, text_column=self.text_column or self.plan.text_column)
        sets = dict(loaded) if isinstance(loaded, dict) else {"train": loaded}
        chosen = sets if split is None else {split: one_split(loaded, split, source)}
        read = (
            columns.read_texts(chosen[name], columns.text_column(chosen[name].features, self._column(chosen[name])))
            for name in sorted(chosen)
        )
        return [text for texts in read for text in texts]

    def _column(self, data: Any) -> str | None:
        return self.text_column if self.text_column in data.features else self.plan.text_column


def _listed(texts: Any) -> list[str]:
    """Return texts without missing ones; the keys of a mapping are none."""
    if isinstance(texts, Mapping):
        raise ConfigError(
            f"the texts are a {type(texts).__name__}; pass a list of texts, such as a column of one split"
        )
    return check_texts(_present(texts), "real or holdout")


def _present(texts: Any) -> Any:
    return [text for text in texts if text is not None] if hasattr(texts, "__iter__") else texts


def _kept(folder: Path, found: Audits, *, compared: bool) -> Audits:
    """Write the figures beside the run and the published ones into its record, with those of earlier audits."""
    store = Store(folder)
    path = store.private_folder() / FILE
    with FileLock(path.with_suffix(".lock")):
        found = _joined(held(folder), found, compared)
        write_whole(path, found.to_json().encode(), mode=0o600)
    if found.published:
        fresh = {(one.attack, one.metric) for one in found.published}
        with store.opened():
            release = load_privacy(folder)  # another audit may have written since
            if identity(release) != found.run:
                raise ConfigError(f"{folder} holds other rows than when the audit began. Audit again.")
            audits = tuple(one for one in release.audits if (one.attack, one.metric) not in fresh)
            write_record(replace(release, audits=(*audits, *found.published)), folder)
    return replace(found, path=path)


def _joined(earlier: Audits | None, found: Audits, compared: bool) -> Audits:
    """Add the results of an earlier audit that are of no real texts, or of the same ones."""
    if earlier is None:
        return found
    same = not compared or (found.real is not None and found.real == earlier.real)
    before = [
        one
        for one in earlier.results
        if one.name not in found.made and (same or not any(part.uses_private_data for part in one.findings))
    ]
    return replace(found, results=(*before, *found.results), real=found.real if compared else earlier.real)
