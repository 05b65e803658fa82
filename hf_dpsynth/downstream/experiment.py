"""One call gives the table: train on real rows and on each synthetic set, test all of them on the same real rows.

The test rows never enter a mechanism, and early stopping sees rows of the training source only.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_dpsynth.downstream.base import DownstreamModel
from hf_dpsynth.downstream.classifier import Classifier
from hf_dpsynth.downstream.examples import Examples
from hf_dpsynth.downstream.in_context import InContext
from hf_dpsynth.downstream.private_training import DPOnReal, PrivateSource, check_baselines
from hf_dpsynth.downstream.scores import score
from hf_dpsynth.downstream.sources import REAL, Material, Source, check_data, gather
from hf_dpsynth.downstream.table import Row, Study
from hf_dpsynth.downstream.word_cnn import WordCNN
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.extras import need
from hf_dpsynth.logging import progress_bar
from hf_dpsynth.metrics.base import check_count, check_seed
from hf_dpsynth.models import catalog
from hf_dpsynth.privacy.keys import public_generator, public_seed
from hf_dpsynth.registry import closest

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

MAJORITY, ZERO_SHOT = "none: commonest class", "none: zero-shot"
_STUCK = "they diverged, or had too few rows or steps; try another learning_rate= or more epochs="


def study(
    *,
    real: "Dataset | DatasetDict",
    synthetic: Mapping[str, Any],
    label_column: str,
    text_column: str | None = None,
    models: Sequence[str | DownstreamModel] = ("word-cnn", "minilm"),
    holdout: float = 0.2,
    amounts: Sequence[float] = (1,),
    real_baselines: Sequence[DPOnReal] = (),
    subgroup_column: str | None = None,
    seeds: int = 3,
    seed: int = 0,
    confidence: float = 0.95,
) -> Study:
    """Train classifiers on real and on synthetic rows and test them on real rows that no mechanism has seen.

    Args:
        real (`DatasetDict` or `Dataset`): splits "train" and "test"; or a single Dataset, of which a share is held out
            with `downstream.split`. Sensitive.
        synthetic (`Mapping[str, Any]`): by name, a Dataset (or a DatasetDict with a split "train") that was made from
            the training split alone, or a function that makes it and is called with the training split. Beside a
            single Dataset only functions are accepted: a ready set would have seen the test rows.
        label_column (`str`): a ClassLabel, string, integer or bool column. Labels are compared by name.
        text_column (`str`, *optional*): the column of text; the only other string column when missing.
        models (`Sequence[str | DownstreamModel]`): "word-cnn", "in-context", names of encoders ("minilm", a Hub id, a
            path), or instances such as `InContext(shots=3)`.
        holdout (`float`): the share of the texts of a single Dataset that is held out.
        amounts (`Sequence[float]`): training rows as multiples of the real training rows; (1, 3) in the paper. Above 1
            there are no real rows; a set that is too small says so.
        real_baselines (`Sequence[DPOnReal]`): adds a row "DP-on-real" for each: the model trained on the real training
            rows with DP-SGD, used for the test figures and dropped. The number of these rows is taken as public.
        subgroup_column (`str`, *optional*): a column of the test rows by whose values accuracy is compared.
        seeds (`int`): fits that each figure is averaged over; `InContext` draws its own number of resamples.
        seed (`int`): seed of the public streams of split, subsets and fits.
        confidence (`float`): of the intervals.
    Returns:
        `Study`: `.rows`, `.to_dict()` and `.table()`. Sensitive: no guarantee covers test figures on private rows.
    Raises:
        ConfigError: an argument is wrong, or real and synthetic data do not fit together.
        AssetError: a model could not be fetched.
    Examples:
        ```py
        >>> from datasets import Dataset
        >>> from hf_dpsynth import downstream
        >>> rows = {"text": [f"{w} film {i}" for i in range(60) for w in ("good", "bad")], "label": [1, 0] * 60}
        >>> study = downstream.study(
        ...     real=Dataset.from_dict(rows),
        ...     synthetic={"words": lambda train: train.privatize("madlib", epsilon=20, keep_columns=["label"])},
        ...     label_column="label",
        ...     models=[downstream.WordCNN(epochs=2)],
        ...     seeds=1,
        ... )
        >>> [(row.source, row.guarantee) for row in study.rows[1:]]
        [('real', 'none'), ('words', 'metric DP at scale 20 per word')]

        ```
    """
    chosen = [resolve(model) for model in models]
    if not all(isinstance(amount, (int, float)) and not isinstance(amount, bool) for amount in amounts):
        raise ConfigError(f"amounts is {amounts!r}; it holds multiples of the real training rows, e.g. (1, 3)")
    sizes = sorted(set(amounts))
    _check_numbers(sizes, len(chosen), seeds, confidence)
    check_seed(seed)
    need("sklearn", extra="metrics", what="a study")
    check_data(real, synthetic)
    check_baselines(real_baselines, chosen, len(real["train"] if isinstance(real, dict) else real))
    material = gather(
        real,
        synthetic,
        label_column=label_column,
        text_column=text_column,
        group_column=subgroup_column,
        holdout=holdout,
        seed=seed,
    )
    runner = _Runner(material, chosen, seeds, seed, confidence)
    baseline = runner.majority()
    rows = [baseline, *runner.zero_shot(chosen)]
    real_rows, *made = material.sources
    sources = [real_rows, *(PrivateSource.of(real_rows, options) for options in real_baselines), *made]
    pairs = [(source, model) for source in sources for model in chosen]
    for source, model in progress_bar(iterable=pairs, desc="Training on each source", unit="model"):
        rows += runner.rows(source, model, sizes)
    return Study(
        rows=tuple(rows),
        classes=material.test.classes,
        num_test=len(material.test),
        majority=baseline.accuracy or 0.0,
        confidence=confidence,
        notes=material.notes(),
    )


def _check_numbers(amounts: Sequence[float], models: int, seeds: int, confidence: float) -> None:
    if not amounts or not all(0 < amount < math.inf for amount in amounts):
        raise ConfigError(f"amounts is {tuple(amounts)}; it holds multiples of the real training rows, each above 0")
    if not models:
        raise ConfigError(f"models has {models} models; it has at least 1")
    check_count("seeds", seeds, 1)
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence is {confidence}; it lies between 0 and 1")


def resolve(model: str | DownstreamModel) -> DownstreamModel:
    """Return a model of a name, or an instance as it is, and fetch what it needs before anything is made or spent.

    Raises:
        ConfigError: the name is unknown, or the object is no downstream model.
        AssetError: the model could not be fetched.
    """
    found = _named(model)
    if isinstance(found, (Classifier, InContext)):
        catalog.pull(found.model)
    return found


def _named(model: str | DownstreamModel) -> DownstreamModel:
    if not isinstance(model, str):
        if not isinstance(model, DownstreamModel):
            raise ConfigError(
                f"models= holds a {type(model).__name__}; pass names or instances of WordCNN, Classifier, InContext."
            )
        return model
    if model == "word-cnn":
        return WordCNN()
    if model == "in-context":
        return InContext()
    encoders = [asset.name for asset in catalog.models() if asset.kind == "embedder"]
    if model not in encoders and "/" not in model and not Path(model).exists():
        raise ConfigError(f"model {model!r} is unknown{closest(model, ['word-cnn', 'in-context', *encoders])}")
    return Classifier(model=model)


def labels(models: Sequence[DownstreamModel]) -> list[str]:
    """Return the names of models; those that share one get the options that are not the default behind it.

    Examples:
        >>> labels([WordCNN(epochs=3), WordCNN(), InContext(shots=3)])
        ['word-cnn, epochs=3', 'word-cnn', 'in-context smollm2-135m, 3 shots']
    """
    names = [model.name for model in models]
    return [
        ", ".join([name, *(_options(model) if names.count(name) > 1 else [])])
        for model, name in zip(models, names, strict=True)
    ]


def _options(model: Any) -> list[str]:
    """Return the options of a model that are not the default and not in its name."""
    found = []
    for option in fields(model) if is_dataclass(model) else ():
        default = option.default if option.default_factory is MISSING else option.default_factory()
        value = getattr(model, option.name)
        if option.name not in ("model", "shots") and value != default:
            found.append(f"{option.name}={value}")
    return found


class _Runner:
    """Fits and tests; one for each study."""

    def __init__(
        self, material: Material, models: Sequence[DownstreamModel], seeds: int, seed: int, confidence: float
    ) -> None:
        self._material = material
        self._labels = list(zip(models, labels(models), strict=True))
        self._seeds = seeds
        self._seed = seed
        self._confidence = confidence

    def majority(self) -> Row:
        """Return the line of always naming the commonest class of the real training rows."""
        test, commonest = self._material.test, int(np.bincount(self._material.real.labels).argmax())
        figures = score([np.full(len(test), commonest)], test, self._confidence)
        return Row(source=MAJORITY, model="-", fits=1, **vars(figures))

    def zero_shot(self, models: Sequence[DownstreamModel]) -> Iterator[Row]:
        """Yield the lines of language models without demonstrations, each once."""
        bare: list[InContext] = []
        for model in models:
            if isinstance(model, InContext) and replace(model, shots=0) not in bare:
                bare.append(replace(model, shots=0))
        for model in bare:
            yield self._row(
                Source(ZERO_SHOT, "", self._material.real, 0), model, self._material.real, None, (), model.name
            )

    def rows(self, source: Source, model: DownstreamModel, amounts: Sequence[float]) -> Iterator[Row]:
        """Yield a source's lines under one model: one an amount, or a single one where the amount does not matter."""
        label = next(label for known, label in self._labels if known is model)
        if isinstance(source, PrivateSource):
            yield self._row(source, source.trainer(model), source.examples, 1, source.notes(model), label)
            return
        if not model.reads_all_rows:
            # without demonstrations every source gives the same line, which stands at the top
            if not (isinstance(model, InContext) and model.shots == 0):
                yield self._row(source, model, source.examples, None, (), label)
            return
        if source.name == REAL:
            amounts = [amount for amount in amounts if amount <= 1] or [1]
        order = public_generator(self._seed, "amount", source.name).permutation(len(source.examples))
        used: dict[int, float] = {}
        for amount in amounts:
            wanted = max(1, round(amount * len(self._material.real)))
            size = min(wanted, len(source.examples))
            short = f"{source.name} has {size} of the {wanted} rows that {amount:g}x asks for" if size < wanted else ""
            if size in used:
                said = f"{short or f'{amount:g}x is {size} rows'}: not run again, see {used[size]:g}x"
                yield Row(source=source.name, guarantee=source.guarantee, model=label, amount=amount, limits=(said,))
                continue
            used[size] = amount
            chosen = source.examples if size == len(source.examples) else source.examples.take(np.sort(order[:size]))
            yield self._row(source, model, chosen, amount, (short,) if short else (), label)

    def _row(
        self,
        source: Source,
        model: DownstreamModel,
        train: Examples,
        amount: float | None,
        said: tuple[str, ...],
        label: str,
    ) -> Row:
        """Fit once a seed, test each fit, and return the line; a fit that is refused says why in its line."""
        started = time.perf_counter()
        line = Row(source=source.name, guarantee=source.guarantee, model=label, amount=amount)
        predictions, num_train, stuck = [], 0, 0
        try:
            for number in range(model.repeats(self._seeds)):
                fitted = model.fit(train, seed=public_seed(self._seed, "fit", number))
                predictions.append(fitted.predict(self._material.test.texts))
                num_train = fitted.num_train
                stuck += fitted.improved is False
        except ConfigError as error:
            return replace(line, limits=(*said, f"not run: {str(error).rstrip('.')}"))
        figures = dict(vars(score(predictions, self._material.test, self._confidence)))
        own = () if source.name == ZERO_SHOT else source.limits()
        if stuck:
            said = (*said, f"{stuck} of {len(predictions)} fits did not improve on their first weights: {_STUCK}")
        limits = (*said, *own, *figures.pop("limits"))
        return replace(
            line,
            **figures,
            num_train=num_train,
            fits=len(predictions),
            test_copies=None if source.name == ZERO_SHOT else source.test_copies,
            seconds=time.perf_counter() - started,
            limits=limits,
        )
