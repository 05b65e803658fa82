"""Tuning on synthetic rows: do they choose the hyper-parameters that real rows would choose.

The same trials are trained on each source. A source ranks them by accuracy on rows of its own that were set aside; the
truth ranks them by accuracy on the real test rows. How well both agree is reported, with real rows as the upper bound.
Source: Kurakin et al. 2023, arXiv:2306.01684, section on tuning, Table 3 (28 trials) and Appendix I (the sweeps).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hf_dpsynth.downstream.classifier import Classifier
from hf_dpsynth.downstream.examples import Examples
from hf_dpsynth.downstream.experiment import resolve
from hf_dpsynth.downstream.sources import Source, gather
from hf_dpsynth.downstream.table import markdown, shown
from hf_dpsynth.downstream.word_cnn import WordCNN
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.logging import progress_bar
from hf_dpsynth.metrics import rank_agreement
from hf_dpsynth.metrics.base import check_count, check_seed
from hf_dpsynth.privacy.keys import public_generator

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

LEARNING_RATES = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
WEIGHT_DECAYS = (5e-1, 5e-2, 5e-3, 5e-4, 5e-5, 5e-6, 0.0)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One pair of hyper-parameters on one source.

    Args:
        learning_rate (`float`): the optimizer's step.
        weight_decay (`float`): its decay.
        validation_accuracy (`float`): accuracy on rows of the source that were set aside.
        test_accuracy (`float`): accuracy on the real test rows.
    """

    learning_rate: float
    weight_decay: float
    validation_accuracy: float
    test_accuracy: float


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How well one source ranks the trials.

    Args:
        source (`str`): "real", which is the upper bound, or the name of a synthetic set.
        guarantee (`str`): what the source promises, in short.
        trials (`tuple[Trial, ...]`): the trials in the order of the grid.
        spearman (`float`, *optional*): rank correlation; None where all accuracies of one side are equal.
        kendall (`float`, *optional*): tau-b; None likewise.
        rbo (`float`, *optional*): rank-biased overlap; None likewise, because ties agree with anything.
        top_mean (`float`): mean test accuracy of the trials that the source ranks highest.
        top_std (`float`, *optional*): their standard deviation; None for a single trial.
        seconds (`float`): time of all trials.
        limits (`tuple[str, ...]`): what a reader must know about this line.
    """

    source: str
    guarantee: str
    trials: tuple[Trial, ...]
    spearman: float | None
    kendall: float | None
    rbo: float | None
    top_mean: float
    top_std: float | None
    seconds: float
    limits: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The agreement of each source with the real test rows.

    Args:
        rows (`tuple[Agreement, ...]`): the upper bound "real" first, then each synthetic set.
        model (`str`): the public name of the model that was tuned.
        num_trials (`int`): trials a source.
        num_top (`int`): trials that count as the top.
        persistence (`float`): of the rank-biased overlap.

    No guarantee covers these figures: they read real test rows.
    """

    rows: tuple[Agreement, ...]
    model: str
    num_trials: int
    num_top: int
    persistence: float

    uses_private_data: ClassVar[bool] = True

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values. Sensitive."""
        return {"uses_private_data": self.uses_private_data, **_plain(asdict(self))}

    def table(self) -> str:
        """Return the lines as aligned Markdown, with the limits below. Sensitive."""
        heads = ["tuned on", "guarantee", "Spearman", "Kendall", "RBO", f"top {self.num_top} mean", "std", "seconds"]
        lines = [
            [
                row.source,
                row.guarantee,
                *(shown(value) for value in (row.spearman, row.kendall, row.rbo, row.top_mean, row.top_std)),
                shown(row.seconds, 0),
            ]
            for row in self.rows
        ]
        limits = dict.fromkeys(limit for row in self.rows for limit in row.limits)
        said = f"{self.num_trials} trials of {self.model}, RBO with persistence {self.persistence:.3f}."
        return "\n".join([markdown(heads, lines), "", said, *(f"- {limit}." for limit in limits)])

    def __str__(self) -> str:
        return self.table()


def rank(
    *,
    real: "Dataset | DatasetDict",
    synthetic: Mapping[str, Any],
    label_column: str,
    text_column: str | None = None,
    model: str | WordCNN | Classifier = "word-cnn",
    holdout: float = 0.2,
    learning_rates: Sequence[float] = LEARNING_RATES,
    weight_decays: Sequence[float] = WEIGHT_DECAYS,
    num_trials: int = 28,
    top_fraction: float = 0.25,
    top_weight: float = 0.85,
    seed: int = 0,
) -> Ranking:
    """Tune on each source and compare its ranking of the trials with the one of the real test rows.

    Args:
        real (`DatasetDict` or `Dataset`): as in `study`. Sensitive.
        synthetic (`Mapping[str, Any]`): as in `study`: sets made from the training split alone, or functions of it.
        label_column (`str`): the column of labels.
        text_column (`str`, *optional*): the column of text; the only other string column when missing.
        model (`str`, `WordCNN` or `Classifier`): the model to tune, by name or as an instance with its other options.
        holdout (`float`): the share of the texts of a single Dataset that is held out.
        learning_rates (`Sequence[float]`): the sweep of the paper when missing.
        weight_decays (`Sequence[float]`): the sweep of the paper when missing.
        num_trials (`int`): pairs to try, drawn so that each learning rate occurs as often as any other.
        top_fraction (`float`): the top of the ranking, as a share of the trials.
        top_weight (`float`): the weight that rank-biased overlap gives to the top.
        seed (`int`): seed of the public streams of split, draw and fits.
    Returns:
        `Ranking`: `.rows`, `.to_dict()` and `.table()`. Sensitive: no guarantee covers test figures on private rows.
    Raises:
        ConfigError: an argument is wrong, or real and synthetic data do not fit together.
    """
    check_seed(seed)
    tuned = resolve(model)
    if not isinstance(tuned, (WordCNN, Classifier)):
        raise ConfigError(f"model is a {type(tuned).__name__}, which has no learning rate to tune; use 'word-cnn'.")
    pairs = grid(learning_rates, weight_decays, num_trials, seed)
    variants: list[WordCNN | Classifier] = [
        replace(tuned, learning_rate=rate, weight_decay=decay) for rate, decay in pairs
    ]
    persistence = rank_agreement.persistence(num_trials, top_fraction, top_weight)
    num_top = round(num_trials * top_fraction)
    material = gather(
        real,
        synthetic,
        label_column=label_column,
        text_column=text_column,
        group_column=None,
        holdout=holdout,
        seed=seed,
    )
    for source in material.sources:
        if len(source.examples) < 2:
            raise ConfigError(
                f"{source.name!r} has fewer than 2 training rows with a text and a label; training and validation "
                "need one each. Add rows."
            )
    rows = [_agreement(source, material.test, variants, num_top, persistence, seed) for source in material.sources]
    return Ranking(rows=tuple(rows), model=tuned.name, num_trials=num_trials, num_top=num_top, persistence=persistence)


def grid(
    learning_rates: Sequence[float], weight_decays: Sequence[float], num_trials: int, seed: int
) -> list[tuple[float, float]]:
    """Draw pairs from two sweeps, no pair twice and each learning rate as often as any other, give or take one.

    Args:
        learning_rates (`Sequence[float]`): the first sweep.
        weight_decays (`Sequence[float]`): the second sweep.
        num_trials (`int`): pairs to draw, at least 2.
        seed (`int`): seed of the public stream.
    Raises:
        ConfigError: there are fewer pairs than trials, or fewer than two trials.
    Examples:
        >>> from collections import Counter
        >>> sorted(Counter(rate for rate, _ in grid(LEARNING_RATES, WEIGHT_DECAYS, 28, seed=0)).values())
        [4, 4, 4, 4, 4, 4, 4]
    """
    rates, decays = tuple(dict.fromkeys(learning_rates)), tuple(dict.fromkeys(weight_decays))
    check_count("num_trials", num_trials, 2)
    if not num_trials <= len(rates) * len(decays):
        raise ConfigError(
            f"num_trials is {num_trials}; it is at least 2 and at most {len(rates) * len(decays)}, the pairs of "
            f"{len(rates)} learning rates and {len(decays)} weight decays"
        )
    rng = public_generator(seed, "trials")
    orders = [rng.permutation(len(decays)) for _ in rates]
    drawn = [(row, int(order[turn])) for turn in range(len(decays)) for row, order in enumerate(orders)]
    return [(rates[row], decays[column]) for row, column in sorted(drawn[:num_trials])]


def _agreement(
    source: Source,
    test: Examples,
    variants: Sequence[WordCNN | Classifier],
    num_top: int,
    persistence: float,
    seed: int,
) -> Agreement:
    """Run all trials on one source."""
    started = time.perf_counter()
    bar = progress_bar(iterable=variants, desc=f"Tuning on {source.name}", unit="trial")
    trials = [_trial(model, source.examples, test, seed) for model in bar]
    validation = np.array([trial.validation_accuracy for trial in trials])
    tested = np.array([trial.test_accuracy for trial in trials])
    top_mean, top_std = top_figures(validation, tested, num_top)
    correlation = rank_agreement.spearman(list(validation), list(tested))
    equal = () if correlation is not None else (f"all trials on {source.name} are equally good: there is no ranking",)
    return Agreement(
        source=source.name,
        guarantee=source.guarantee,
        trials=tuple(trials),
        spearman=correlation,
        kendall=rank_agreement.kendall(list(validation), list(tested)),
        rbo=None if equal else rank_agreement.rbo(list(validation), list(tested), persistence),
        top_mean=top_mean,
        top_std=top_std,
        seconds=time.perf_counter() - started,
        limits=(*source.limits(), *equal),
    )


def top_figures(validation: np.ndarray, tested: np.ndarray, num_top: int) -> tuple[float, float | None]:
    """Return mean and standard deviation of the test accuracies of the trials that were ranked highest.

    Trials tied at the cut share the places that are left, so the order of the trials does not matter.

    Args:
        validation (`np.ndarray`): the accuracies that rank the trials, shape (n,). Sensitive.
        tested (`np.ndarray`): their accuracies on the real test rows, shape (n,). Sensitive.
        num_top (`int`): places at the top, from 1 to n.
    Returns:
        `tuple[float, float | None]`: the mean, and the deviation; None for a single place. Sensitive.
    """
    cut = np.sort(validation)[-num_top]
    above, tied = validation > cut, validation == cut
    shares = above + tied * (num_top - above.sum()) / tied.sum()
    mean = float(shares @ tested / num_top)
    return mean, float(np.sqrt(shares @ (tested - mean) ** 2 / (num_top - 1))) if num_top > 1 else None


def _trial(model: WordCNN | Classifier, train: Examples, test: Examples, seed: int) -> Trial:
    """Fit one pair of hyper-parameters; a fit that diverges keeps the weights of its last good epoch."""
    fitted = model.fit(train, seed=seed)
    return Trial(
        learning_rate=model.learning_rate,
        weight_decay=model.weight_decay,
        validation_accuracy=float(fitted.validation_accuracy or 0.0),
        test_accuracy=fitted.accuracy(test),
    )


def _plain(value: Any) -> Any:
    """Return tuples as lists, all the way down."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value
