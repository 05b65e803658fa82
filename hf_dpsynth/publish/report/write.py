"""Writing a report: everything is made in memory first, then put at its place file by file, the page last.

The publishable page lies in the run directory, the private one in the folder beside it that only its owner reads.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hf_dpsynth.audit.attacks import AttackResult
from hf_dpsynth.audit.deniability import Deniability
from hf_dpsynth.audit.deniability_figures import deniability_figures
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.figures.drawing import MARK, Figure
from hf_dpsynth.metrics.base import check_texts
from hf_dpsynth.metrics.embedding import embed
from hf_dpsynth.models import load_embedder
from hf_dpsynth.models.base import Embedder
from hf_dpsynth.publish.folder import existing, load_privacy
from hf_dpsynth.publish.report import private as figures_of
from hf_dpsynth.publish.report.charts import public_figures
from hf_dpsynth.publish.report.comparisons import private_figures
from hf_dpsynth.publish.report.deniability import check_measured
from hf_dpsynth.publish.report.facts import PublicFacts, public_facts, read
from hf_dpsynth.publish.report.page import private_page, public_page
from hf_dpsynth.publish.report.private import PrivateFacts
from hf_dpsynth.publish.verify import PICTURES, REPORT, verify
from hf_dpsynth.release import Release
from hf_dpsynth.store import Store, write_whole

_GENERATOR = f'<meta name="generator" content="{MARK}">'
_HEAD = 4096  # bytes of a page or a picture that name its maker


@dataclass(frozen=True)
class Report:
    """Where a report lies.

    Args:
        public (`Path`): the page that may be published with the run.
        private (`Path`, *optional*): the page that must be kept; None when nothing private was passed.
    """

    public: Path
    private: Path | None


def write_report(
    run: str | os.PathLike[str],
    *,
    real: Sequence[str] | None = None,
    metrics: Mapping[str, Mapping[str, Any]] | None = None,
    evaluated: Mapping[str, str] | None = None,
    study: Any = None,
    audits: Sequence[AttackResult] = (),
    deniability: Deniability | None = None,
    embeddings: tuple[np.ndarray, np.ndarray] | None = None,
    embedder: str | Embedder | None = None,
    num_samples: int = 8,
    seed: int = 0,
) -> Report:
    """Write the report of a run: a page that may be published, and one that must be kept where real texts were read.

    Args:
        run (`str` or path): the run directory, with its record and its rows.
        real (`Sequence[str]`, *optional*): the real texts. Sensitive; they reach the private page alone.
        metrics (`Mapping`, *optional*): by the name of each metric what its `compute` returned. Sensitive.
        evaluated (`Mapping[str, str]`, *optional*): how and when `metrics` were computed, to stand beside them, e.g.
            `{"embedder": "minilm", "date": "2026-11-30"}`.
        study (`Study` or list of dicts, *optional*): the downstream table. Sensitive.
        audits (`Sequence[AttackResult]`): what attacks on the run found. Sensitive.
        deniability (`Deniability`, *optional*): the plausible deniability of the run's mechanism, measured on public
            words, for both pages. Public.
        embeddings (`tuple[np.ndarray, np.ndarray]`, *optional*): embeddings of synthetic and of real texts, for the
            map. Sensitive.
        embedder (`str` or object with `.embed`, *optional*): embeds both sets for the map where `embeddings` is not
            given; the vectors of real texts stay in memory.
        num_samples (`int`): released rows to show.
        seed (`int`): the seed of the public choice of rows to show and of points on the map.
    Returns:
        `Report`: the paths of the pages. The pictures lie in a folder beside each page.
    Raises:
        ConfigError: the run has no record or no rows, `verify` finds a fault in it, an argument is none of the
            above, a file that is not ours is in the way, or a folder cannot be written; no page was changed.
        MissingExtra: matplotlib is not installed.
    Examples:
        >>> import tempfile, hf_dpsynth
        >>> from datasets import Dataset
        >>> from hf_dpsynth.publish.report import write_report
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ds = Dataset.from_dict({"text": ["a good film"]})
        ...     _ = ds.privatize("madlib", epsilon=10, out=f"{folder}/run")
        ...     report = write_report(f"{folder}/run")
        ...     report.public.name, report.private
        ('report.html', None)
    """
    if isinstance(num_samples, bool) or not isinstance(num_samples, int) or not num_samples >= 0:
        raise ConfigError(f"num_samples is {num_samples}; it is a whole number, at least 0")
    store = Store(existing(run))
    folder, beside = store.folder, store.folder.with_name(store.folder.name + ".private")
    release = _checked(folder)
    public = public_facts(release, read(folder, release), num_samples=num_samples, seed=seed)
    private = None
    if audits or any(given is not None for given in (real, metrics, study, embeddings)):
        points = _embeddings(public, real, embeddings, embedder, seed)
        private = _private(public, real, metrics or {}, evaluated, study, audits, points, beside, seed)
    figures = public_figures(public)
    if deniability is not None:
        check_measured(deniability, release.plan)
        figures |= deniability_figures(deniability)
    pages = [(folder, public_page(public, figures, deniability), figures, 0o644)]
    if private is not None:
        compared = private_figures(public, private)
        pages.append(
            (beside, private_page(public, private, figures, compared, deniability), figures | compared, 0o600)
        )
    for place, _, drawn, _ in pages:
        _refuse_strangers(place, drawn)
    try:
        if private is not None:
            store.private_folder()
        for place, text, drawn, mode in pages:
            _put(place, text, drawn, mode)
    except OSError as error:
        raise ConfigError(
            f"the report in {folder} cannot be written ({error.strerror}). Free it, or copy it."
        ) from error
    return Report(folder / REPORT, None if private is None else beside / REPORT)


def _checked(folder: Path) -> Release:
    """Return the release of a run that bears out what it claims.

    Raises:
        ConfigError: it does not.
    """
    release = load_privacy(folder)
    missing = [name for name, _ in release.files if not (folder / name).is_file()]
    if missing:
        raise ConfigError(f"{folder / missing[0]} is missing. Put the rows back; a report is never made without them.")
    found = verify(folder)
    if not found.ok:
        raise ConfigError(
            f"{folder} does not bear out its claim: {found.findings[0]}. Run hf-dpsynth verify to see all; a report "
            "is made of a sound run only."
        )
    return release


def _embeddings(
    public: PublicFacts, real: Sequence[str] | None, given: Any, embedder: str | Embedder | None, seed: int
) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Return the points of the map. Sensitive."""
    if given is not None:
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise ConfigError("embeddings= must be two arrays: of the synthetic and of the real texts.")
        return figures_of.plane(given[0], given[1], seed=seed)
    if embedder is None or real is None or not public.texts:
        return None
    model = load_embedder(embedder)
    theirs = figures_of.sample(check_texts(real, "real"), seed)
    if not theirs:
        return None
    ours = embed(figures_of.sample(public.texts, seed), model, what="synthetic", public=True)
    return figures_of.plane(ours, embed(theirs, model, what="real", public=False), seed=seed)


def _private(
    public: PublicFacts,
    real: Sequence[str] | None,
    metrics: Mapping[str, Mapping[str, Any]],
    evaluated: Mapping[str, str] | None,
    study: Any,
    audits: Sequence[AttackResult],
    points: tuple[np.ndarray, np.ndarray, float] | None,
    beside: Path,
    seed: int,
) -> PrivateFacts:
    """Return what the private page shows. Sensitive."""
    theirs = None if real is None else tuple(check_texts(real, "real"))
    held = theirs or ()
    return PrivateFacts(
        real=theirs,
        verbatim=None if theirs is None else figures_of.verbatim(public.texts, held),
        terms={n: figures_of.divergent(public.texts, held, n) for n in (1, 2)},
        scores=figures_of.scores(metrics),
        evaluated=figures_of.conditions(evaluated),
        limits=figures_of.sentences(metrics),
        points=None if points is None else points[:2],
        explained=0.0 if points is None else points[2],
        study=() if study is None else figures_of.study_rows(study),
        study_notes=() if study is None else figures_of.study_notes(study),
        audits=tuple(audits),
        seconds=figures_of.seconds(beside / "times.jsonl", public.claim["guarantee_id"]),
    )


def _refuse_strangers(place: Path, drawn: Mapping[str, Figure]) -> None:
    """Refuse to replace what a report did not write.

    Raises:
        ConfigError: such a file is in the way.
    """
    pictures = place / PICTURES
    if pictures.is_symlink() or (pictures.exists() and not pictures.is_dir()):
        raise ConfigError(f"{pictures} is no folder of ours. Move it away; a report replaces its own files only.")
    targets = [place / REPORT, *(pictures / f"{name}.png" for name in drawn)]
    for path in targets:
        if path.is_symlink() or (path.exists() and not _is_ours(path)):
            raise ConfigError(f"{path} is no file of ours. Move it away; a report replaces its own files only.")


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as handle:
        head = handle.read(_HEAD)
    return (_GENERATOR if path.name == REPORT else MARK).encode() in head


def _put(place: Path, page: str, drawn: Mapping[str, Figure], mode: int) -> None:
    """Write pictures, take away those of a former report, then write the page."""
    pictures = place / PICTURES
    pictures.mkdir(mode=0o755 if mode & 0o044 else 0o700, exist_ok=True)
    for name, one in drawn.items():
        write_whole(pictures / f"{name}.png", one.png, mode)
    for path in pictures.glob("*.png"):
        if path.stem not in drawn and not path.is_symlink() and _is_ours(path):
            path.unlink()
    write_whole(place / REPORT, page.encode("utf-8"), mode)
