"""What only the private page shows: figures that were computed from real texts, and words of them.

No guarantee covers any of it. It is of a type of its own, which the publishable page never meets, that prints nothing
and is not pickled.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from hf_dpsynth import metrics as rooms
from hf_dpsynth.audit.attacks import AttackResult
from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.metrics.words import ngrams, words
from hf_dpsynth.privacy.keys import public_generator
from hf_dpsynth.publish.report.numerals import NONE

MOST_POINTS = 1000  # of each set on the map
_MOST_TERMS = 10  # of each sign in a table of n-grams
_MOST_STUDY_ROWS = 200
_NOTHING: tuple[Any, ...] = (None, "", (), [])
_LARGEST_TIMES = 1_000_000
_NOT_SCORES = ("num_rows", "floor_num_rows", "num_tokens", "limits", "uses_private_data")
_BESIDE = ("_floor", "_interval", "_floor_interval")


@dataclass(frozen=True, kw_only=True, repr=False)
class Score:
    """One figure of a metric beside its floor. Sensitive.

    Args:
        name (`str`): the name of the figure.
        main (`bool`): whether it is the figure that the metric is named after.
        value (`float`): of synthetic against real texts.
        interval (`tuple[float, float]`, *optional*): the smallest and the largest value over the splits.
        floor (`float`, *optional*): the same figure of real texts.
        floor_interval (`tuple[float, float]`, *optional*): its smallest and largest value.
        rows (`int`, *optional*): rows of each side.
        floor_rows (`int`, *optional*): rows of each side of the floor.
        direction (`str`): what is better: higher or lower; a dash for a figure that is not the main one.
    """

    name: str
    main: bool
    value: float
    interval: tuple[float, float] | None
    floor: float | None
    floor_interval: tuple[float, float] | None
    rows: int | None
    floor_rows: int | None
    direction: str


@dataclass(frozen=True, repr=False)
class Term:
    """An n-gram, and how often it stands among a thousand of each set. Sensitive: it may be of a real text alone."""

    text: str
    synthetic: float
    real: float


@dataclass(frozen=True, kw_only=True, repr=False)
class PrivateFacts:
    """Everything that the private page shows beside the publishable one. Sensitive.

    Args:
        real (`tuple[str, ...]`, *optional*): the real texts, of which lengths are shown.
        verbatim (`int`, *optional*): rows that are the text of a real row.
        terms (`dict[int, tuple[Term, ...]]`): n-grams by n, the most over- and under-represented ones.
        scores (`tuple[Score, ...]`): figures of the metrics.
        evaluated (`dict[str, str]`): how and when the metrics were computed: the embedder, the date.
        limits (`tuple[str, ...]`): sentences of the metrics on what they could not use.
        points (`tuple[np.ndarray, np.ndarray]`, *optional*): both sets in two dimensions.
        explained (`float`): the share of the variance that these dimensions show.
        study (`tuple[dict, ...]`): rows of the downstream table.
        study_notes (`tuple[str, ...]`): what a reader must know about it.
        audits (`tuple[AttackResult, ...]`): what attacks on the run found.
        seconds (`tuple[float, ...]`): wall time of each opening of this run.
    """

    real: tuple[str, ...] | None
    verbatim: int | None
    terms: dict[int, tuple[Term, ...]]
    scores: tuple[Score, ...]
    evaluated: dict[str, str]
    limits: tuple[str, ...]
    points: tuple[np.ndarray, np.ndarray] | None
    explained: float
    study: tuple[dict[str, Any], ...]
    study_notes: tuple[str, ...]
    audits: tuple[AttackResult, ...]
    seconds: tuple[float, ...]

    def __repr__(self) -> str:
        return "PrivateFacts(<private>)"

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("figures of private texts are not pickled; write the report where they were made.")


def verbatim(synthetic: Sequence[str], real: Iterable[str]) -> int:
    """Count the synthetic texts that are the text of a real row, white space around it aside.

    Args:
        synthetic (`Sequence[str]`): synthetic texts. Public.
        real (`Iterable[str]`): real texts. Sensitive.
    Returns:
        `int`: a count. Sensitive.
    """
    known = {text.strip() for text in real} - {""}
    return sum(text.strip() in known for text in synthetic)


def divergent(synthetic: Sequence[str], real: Sequence[str], n: int) -> tuple[Term, ...]:
    """Return the n-grams that part the two sets most, by their share of the Jensen-Shannon divergence.

    Args:
        synthetic (`Sequence[str]`): synthetic texts. Public.
        real (`Sequence[str]`): real texts. Sensitive.
        n (`int`): words in an n-gram.
    Returns:
        `tuple[Term, ...]`: those that are too frequent among the synthetic texts, then those that are too rare.
            Sensitive.
    """
    left, right = (Counter(gram for text in texts for gram in ngrams(words(text), n)) for texts in (synthetic, real))
    if not left or not right:
        return ()
    sizes = (left.total(), right.total())
    weighed = []
    for gram in left.keys() | right.keys():
        p, q = left[gram] / sizes[0], right[gram] / sizes[1]
        weight = sum(share * math.log(2 * share / (p + q)) for share in (p, q) if share)
        weighed.append((-weight, " ".join(gram), Term(" ".join(gram), 1000 * p, 1000 * q)))
    terms = [term for _, _, term in sorted(weighed, key=lambda entry: entry[:2])]
    over = [term for term in terms if term.synthetic > term.real][:_MOST_TERMS]
    return (*over, *[term for term in terms if term.synthetic < term.real][:_MOST_TERMS])


def plane(synthetic: np.ndarray, real: np.ndarray, *, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Project embeddings of both sets onto the two directions in which both together vary most.

    Args:
        synthetic (`np.ndarray`): embeddings, shape (m, d). Public.
        real (`np.ndarray`): embeddings, shape (n, d). Sensitive.
        seed (`int`): the seed of the public choice of at most 1000 rows of each set.
    Returns:
        points of the synthetic set, points of the real set, both of shape (k, 2), and the share of the variance that
        they show. Sensitive.
    Raises:
        ConfigError: the arrays are no embeddings of one width, or hold values that are not finite.
    """
    sets = [_sampled(_checked(rows, name), seed) for rows, name in ((synthetic, "synthetic"), (real, "real"))]
    if sets[0].shape[1] != sets[1].shape[1]:
        raise ConfigError(
            f"embeddings= are {sets[0].shape[1]} wide for the synthetic texts and {sets[1].shape[1]} for the real "
            "ones; embed both with one model."
        )
    both = np.concatenate(sets)
    centred = both - both.mean(axis=0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2] * np.where(axes[:2].sum(axis=1, keepdims=True) < 0, -1.0, 1.0)
    points = np.zeros((len(both), 2))
    points[:, : len(axes)] = centred @ axes.T
    total = float((sizes**2).sum())
    return points[: len(sets[0])], points[len(sets[0]) :], float((sizes[:2] ** 2).sum()) / total if total else 1.0


def sample(texts: Sequence[str], seed: int) -> list[str]:
    """Return at most as many texts as a map shows, by a public choice. Sensitive if they are."""
    order = public_generator(seed, "report-map").permutation(len(texts))[:MOST_POINTS]
    return [texts[at] for at in sorted(order)]


def _sampled(rows: np.ndarray, seed: int) -> np.ndarray:
    order = public_generator(seed, "report-map").permutation(len(rows))[:MOST_POINTS]
    return rows[np.sort(order)]


def _checked(rows: Any, name: str) -> np.ndarray:
    found = np.asarray(rows)
    if found.ndim != 2 or not len(found) or not found.shape[1] or found.dtype.kind not in "fiu":
        raise ConfigError(f"embeddings= of the {name} texts is no matrix of numbers with a row a text.")
    if not np.isfinite(found).all():
        raise ConfigError(f"embeddings= of the {name} texts hold NaN or infinite values. Check the embedder.")
    return found.astype(np.float64)


def scores(results: Mapping[str, Mapping[str, Any]]) -> tuple[Score, ...]:
    """Return the figures of metric results: every number that is none of floor, interval or count.

    Args:
        results (`Mapping`): by the name of the metric what its `compute` returned. Sensitive.
    Raises:
        ConfigError: it is no mapping of mappings.
    """
    if not isinstance(results, Mapping) or not all(isinstance(one, Mapping) for one in results.values()):
        raise ConfigError("metrics= must map the name of each metric to the dict that its compute() returned.")
    return tuple(
        _score(metric, name, result)
        for metric, result in results.items()
        for name, value in result.items()
        if _is_number(value) and not _is_beside(name, result)
    )


def _score(metric: str, name: str, result: Mapping[str, Any]) -> Score:
    floor = next((result[key] for key in (f"{name}_floor", _of_references(name)) if key in result), None)
    return Score(
        name=name,
        main=name == metric,
        value=float(result[name]),
        interval=_pair(result.get(f"{name}_interval")),
        floor=float(floor) if floor is not None and _is_number(floor) else None,
        floor_interval=_pair(result.get(f"{name}_floor_interval")),
        rows=result.get("num_rows"),
        floor_rows=result.get("floor_num_rows"),
        direction=_direction(metric) if name == metric else NONE,
    )


def _is_beside(name: str, result: Mapping[str, Any]) -> bool:
    """Return whether a number is none of the scores, but stands beside one: a floor, a count, that of real texts."""
    if name in _NOT_SCORES or name.endswith(_BESIDE):
        return True
    return any(name == _of_references(other) for other in result)


def _of_references(name: str) -> str:
    """Return the name under which metrics of one set state the figure of the real texts."""
    return f"references_{name}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _pair(value: Any) -> tuple[float, float] | None:
    if isinstance(value, (tuple, list)) and len(value) == 2 and all(map(_is_number, value)):
        return float(value[0]), float(value[1])
    return None


def _direction(metric: str) -> str:
    """Return which way is better, or a dash where the metric is not ours or needs a package that is not here."""
    if metric not in rooms.list_metrics():
        return NONE
    try:
        better = rooms.load(metric).higher_is_better
    except ImportError:
        return NONE
    return {True: "higher", False: "lower", None: NONE}[better]


def sentences(results: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return what the metrics say on their limits, and why one has no figure, each with the metric's name."""
    found = []
    for metric, result in results.items():
        found += [f"{metric}: not computed. {result['error']}"] if "error" in result else []
        found += [f"{metric}: {text}" for text in result.get("limits", ())]
    return tuple(found)


def study_rows(study: Any) -> tuple[dict[str, Any], ...]:
    """Return the rows of a downstream study as flat dicts, without what no row has.

    Args:
        study (object with `.to_dict()` or `.rows`, or a list of dicts): the study. Sensitive.
    Raises:
        ConfigError: it has no rows.
    """
    rows = _as_dict(study)["rows"] if hasattr(study, "to_dict") else getattr(study, "rows", study)
    if not isinstance(rows, (list, tuple)):
        raise ConfigError("study= must be a study with .rows, or a list of dicts.")
    flat = [_flat(_as_dict(row)) for row in rows[:_MOST_STUDY_ROWS]]
    empty = {name for row in flat for name in row if all(other.get(name) in _NOTHING for other in flat)}
    return tuple({name: value for name, value in row.items() if name not in {*empty, "limits"}} for row in flat)


def study_notes(study: Any) -> tuple[str, ...]:
    """Return what a study says on its test rows and on its limits. Sensitive."""
    whole = _as_dict(study) if hasattr(study, "to_dict") else {"rows": getattr(study, "rows", study)}
    found = []
    if "num_test" in whole and "majority" in whole:
        found.append(
            f"{whole['num_test']:,} real test rows; always naming one class is right for {whole['majority']:.1%}"
        )
    rows = [_as_dict(row) for row in whole["rows"]]
    return tuple(
        dict.fromkeys([*found, *whole.get("notes", ()), *(text for row in rows for text in row.get("limits", ()))])
    )


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose nested values, e.g. by subgroup, have columns of their own."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        found |= (
            {f"{name}: {part}": one for part, one in value.items()} if isinstance(value, Mapping) else {name: value}
        )
    return found


def _as_dict(row: Any) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return dict(row)
    if hasattr(row, "to_dict"):
        return dict(row.to_dict())
    if is_dataclass(row) and not isinstance(row, type):
        return asdict(row)
    raise ConfigError(f"study= has a row of type {type(row).__name__}; rows are dicts or dataclasses.")


def conditions(evaluated: Any) -> dict[str, str]:
    """Return how and when metrics were computed.

    Args:
        evaluated (`Mapping[str, str]`, *optional*): names of facts and what they were.
    Raises:
        ConfigError: it is no mapping of texts.
    """
    if evaluated is None:
        return {}
    if not isinstance(evaluated, Mapping) or not all(
        isinstance(part, str) for one in evaluated.items() for part in one
    ):
        raise ConfigError("evaluated= must map names to texts, e.g. the embedder and the date of the evaluation.")
    return dict(evaluated)


def seconds(path: Path, run: str) -> tuple[float, ...]:
    """Return the wall times of a run in RUN.private/times.jsonl; none where there is no such file.

    The folder beside a run outlives it: lines of a run that was at this place before, or of none, are left out.

    Args:
        path (`Path`): the file.
        run (`str`): the id of the run's guarantee.
    Raises:
        ConfigError: a line is no `{"run": text, "seconds": number}`.
    """
    if not path.is_file():
        return ()
    try:
        if path.stat().st_size > _LARGEST_TIMES:
            raise ValueError("too long")
        lines = path.read_text(encoding="utf-8").splitlines()
        held = [(entry.get("run"), float(entry["seconds"])) for entry in map(json.loads, filter(str.strip, lines))]
        if not all(0 <= value < math.inf for _, value in held):
            raise ValueError("no time")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f'{path} must hold a line {{"run": text, "seconds": number}} for each opening of the run '
            f"({type(error).__name__}). Remove it to make the report without times."
        ) from error
    return tuple(value for name, value in held if name == run)
