"""`privatize` and `synthesize`: from a `datasets` object and arguments to a fresh object with a release.

The only orchestration there is: resolve, plan, pin, reserve, run, write, remember. Nothing heavy is imported before a
call, so that importing the package stays light.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hf_dpsynth import tables
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.logging import get_logger
from hf_dpsynth.splits import like, one_split, splits_of

if TYPE_CHECKING:
    from hf_dpsynth.mechanisms.base import Privatizer
    from hf_dpsynth.models.base import Embedder, TextGenerator
    from hf_dpsynth.plans import Plan
    from hf_dpsynth.privacy.budget import PrivacyBudget
    from hf_dpsynth.privacy.ledger import Ledger
    from hf_dpsynth.release import Release
    from hf_dpsynth.store import Store

logger = get_logger(__name__)


def privatize(
    ds: Any,
    mechanism: Any = "syntax-guided",
    *,
    epsilon: float,
    text_column: str | None = None,
    keep_columns: Sequence[str] = (),
    params: dict[str, Any] | None = None,
    vectors: Any = None,
    generator: Any = None,
    budget: "PrivacyBudget | None" = None,
    unit: str | None = None,
    out: str | os.PathLike[str] | None = None,
    batch_size: int = 1000,
    num_proc: int | None = None,
    insecure_noise_seed: int | None = None,
) -> Any:
    """Replace the words of each text by noisy neighbours, or rewrite it: one text in, one text out.

    Args:
        ds (`Dataset`, `DatasetDict` or their iterable forms): the private data; each split is released once. For what
            holds of streams see `hf_dpsynth.streams`.
        mechanism (`str` or a mechanism, defaults to `"syntax-guided"`): a name of `list_mechanisms()`, or an instance.
        epsilon (`float`): the privacy loss for each unit of distance between two words; of a whole text where the
            mechanism rewrites it.
        text_column (`str`, *optional*): the column of text; the only string column when missing.
        keep_columns (`Sequence[str]`): columns to copy in clear; the guarantee lists them as not protected.
        params (`dict`, *optional*): fields of the mechanism, only with a name.
        vectors (`str`, path or `WordVectors`, *optional*): public word vectors; `"glove-50d"` when missing.
        generator (`str` or path, *optional*): for mechanisms that rewrite texts, the local model that does; its text
            is private, so no endpoint is taken.
        budget (`PrivacyBudget`, *optional*): a budget with the `unit` of the mechanism to charge.
        unit (`str`, *optional*): what the mechanism protects: `"word"`, or `"text"` where it rewrites texts.
        out (`str` or path, *optional*): a folder for plan, ledger and rows; in memory when missing. Not for streams.
        batch_size (`int`, defaults to `1000`): rows to search at a time; does not change the result.
        num_proc (`int`, *optional*): worker processes; does not change the result. Not for streams.
        insecure_noise_seed (`int`, *optional*): for tests only: draws noise that anybody can draw again.
    Returns:
        an object of the class of `ds`: the text column and `keep_columns`, as many rows as before. Null stays null.
    Raises:
        ConfigError: an argument is wrong; nothing was read or spent.
        BudgetExceeded: the budget has too little left; nothing was drawn.
    Examples:
        >>> from datasets import Dataset
        >>> import hf_dpsynth
        >>> ds = Dataset.from_dict({"text": ["the movie was terrible"]})
        >>> private = ds.privatize("madlib", epsilon=10)
        >>> len(private), private.privacy.guarantee.epsilon
        (1, 10.0)
    """
    from hf_dpsynth import columns, registry, streams
    from hf_dpsynth.mechanisms.base import check_protected
    from hf_dpsynth.mechanisms.keyed_release import Job, release_split
    from hf_dpsynth.mechanisms.planning import check_epsilon, plan_privatization
    from hf_dpsynth.privacy.records import PrivateRecords
    from hf_dpsynth.publish.folder import record
    from hf_dpsynth.release import Release, budget_state, remember, rows_of
    from hf_dpsynth.run import keys, opened

    found: Privatizer = registry.resolve(mechanism, params, "privatize")
    epsilon = check_epsilon(epsilon)
    splits = splits_of(ds, streams=True)
    features = streams.declared(next(iter(splits.values())).features, text_column, keep_columns)
    column = columns.text_column(features, text_column)
    kept = columns.kept_columns(features, keep_columns, column)
    check_protected(found, unit)
    size, workers = _at_least_one("batch_size", batch_size), _at_least_one("num_proc", num_proc or 1)
    public = _public_input(found, vectors, generator)
    plan = plan_privatization(
        found,
        epsilon=epsilon,
        splits=len(splits),
        kept_columns=kept,
        text_column=column,
        model_ids=_models_of(found, public),
        warnings=found.advice(public, epsilon) if hasattr(found, "advice") else (),
        insecure_noise=insecure_noise_seed is not None,
    )
    for warning in plan.warnings:
        logger.warning("%s", warning)
    job = Job(found, public, epsilon, keys(insecure_noise_seed), size, workers)
    if streams.is_stream(ds):
        return streams.release(ds, splits, plan, job, budget, out=out)
    raw = {name: split.with_format(None) for name, split in splits.items()}
    records = {
        name: PrivateRecords(columns.read_texts(rows, column), columns.read_rows(rows, kept))
        for name, rows in raw.items()
    }
    with opened(plan, out, budget, records) as (ledger, store):
        if not ledger.finished:
            for name, rows in raw.items():
                write = partial(_write_privatized, store, name, rows, column, kept)
                release_split(ledger, name, records[name], job, write, written=store.data_path(name).exists())
            ledger.finish()
        made = {name: tables.read_rows(store.data_path(name)) for name in splits}
        release = Release(
            plan=plan,
            guarantee=plan.guarantee,
            charges=ledger.charges(),
            guarantee_id=ledger.run_id,
            rows=rows_of(made),
            budget=budget_state(budget),
        )
        release = record(release, store)
    result = like(ds, made)
    remember(result, release)
    return result


def _public_input(mechanism: "Privatizer", vectors: Any, generator: Any) -> Any:
    """Return what the mechanism reads besides the texts: word vectors, or a local model."""
    from hf_dpsynth.mechanisms.base import input_role
    from hf_dpsynth.models.word_vectors import load_vectors

    reads = input_role(mechanism)
    for name, value in (("vectors", vectors), ("generator", generator)):
        if value is not None and name != reads:
            raise ConfigError(f"{mechanism.name} takes no {name}=; leave it out.")
    if reads == "generator":
        return mechanism.load(generator)  # type: ignore[attr-defined]
    return load_vectors("glove-50d" if vectors is None else vectors)


def _models_of(mechanism: "Privatizer", public: Any) -> dict[str, str]:
    """Return the public models of a privatization by role."""
    from hf_dpsynth.mechanisms.base import further_models, input_role

    return {input_role(mechanism): str(getattr(public, "public_id", public.id)), **further_models(mechanism)}


def synthesize(
    ds: Any,
    mechanism: Any = "aug-pe",
    *,
    epsilon: float | None,
    delta: float | str | None = None,
    text_column: str | None = None,
    label_column: str | Sequence[str] | None = None,
    labels: Sequence[Any] | Mapping[str, Any] | None = None,
    num_rows: int | None = None,
    num_records: int | None = None,
    unit: str | None = None,
    label_proportions: Mapping[Any, Any] | None = None,
    public: Any = None,
    secrets: Any = None,
    params: dict[str, Any] | None = None,
    generator: "str | TextGenerator | None" = None,
    embedder: "str | Embedder | None" = None,
    budget: "PrivacyBudget | None" = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = True,
    seed: int = 0,
    split: str = "train",
    adjacency: str | None = None,
    insecure_noise_seed: int | None = None,
) -> Any:
    """Make a new data set that resembles the private one, with differential privacy.

    Fine-tuning and `aug-pe` run in several processes where a launcher starts them. Each calls this with the same
    arguments and data; the first one alone writes `out` and charges `budget`; all get the same rows and release.
    `aug-pe` takes shares of the embeddings, the votes and the blocks of 256 texts; its votes are those of one process.

    Args:
        ds (`Dataset` or `DatasetDict`): the private data; of a DatasetDict only `split` is read.
        mechanism (`str` or a mechanism, defaults to `"aug-pe"`): a name of `list_mechanisms()`, or an instance.
        epsilon (`float`, *optional*): the privacy loss; `float("inf")` is allowed and the release says "no privacy".
            None where the guarantee has none: `sec-pe` takes p and r in `params`.
        delta (`float`, *optional*): the probability of a larger loss; min(1e-5, 1/(n ln n)) rounded down to a power of
            ten when missing, which publishes n.
        text_column (`str`, *optional*): the column of text; the only string column when missing. Where the mechanism
            reads them, a column of lists of {"role", "content"} holds conversations, and so does the output.
        label_column (`str` or `Sequence[str]`, *optional*): the conditioning columns.
        labels (`Sequence` or `dict`, *optional*): their domain, declared public; the names of a ClassLabel when
            missing.
        num_rows (`int`, *optional*): rows to make; as many as there are records when missing, which publishes n.
        num_records (`int`, *optional*): the number of records, declared public; `len(ds)` where the plan needs it. At
            a user unit the number of users.
        unit (`str`, *optional*): `"record"`, never a column, or where the mechanism offers it the column whose values
            are the users, also when it is named `"user"`: all records of a user are then protected together, rows
            without a user are left out, and `num_rows` must be given. The column is not in the output.
        label_proportions (`dict`, *optional*): shares of the labels, declared public; bought from the budget when
            missing.
        public (`Dataset` or `Sequence[str]`, *optional*): public rows with the text and label columns of `ds`, or
            texts where there is no label column. `sentdp-select` picks its rows among them, `dp-eda` starts from them,
            `sec-pe` clusters them; fine-tuning reports its loss on at most 256 of them, which changes nothing. Rows
            that `contamination.find_overlaps` left make the release conditional on an assumption that fails.
        secrets (`str`, `Callable` or detector, *optional*): for mechanisms that protect listed secrets: a column of
            lists, which is not in the output, a function from a text to its secrets, or `"regex"`, `"spacy"`,
            `"presidio"` (`hf_dpsynth.secrets`). Rows without a listed secret get no protection.
        params (`dict`, *optional*): fields of the mechanism, only with a name.
        generator (`str` or `TextGenerator`, *optional*): a short name, Hub id, path or object; `"smollm2-135m"` when
            missing. It never sees private text, but for `dp-icl` and `invisible-ink`, which show it to a local model.
        embedder (`str` or `Embedder`, *optional*): likewise; `"minilm"` when missing.
        budget (`PrivacyBudget`, *optional*): a budget across runs to charge.
        out (`str` or path, *optional*): the run directory; in memory and without resume when missing.
        resume (`bool`, defaults to `True`): whether a run directory that exists is continued.
        seed (`int`, defaults to `0`): the seed of public randomness; never of noise.
        split (`str`, defaults to `"train"`): the split of a DatasetDict to read.
        adjacency (`str`, *optional*): `"add-remove"`, `"zero-out"` or `"replace-one"`; what the plan implies when
            missing.
        insecure_noise_seed (`int`, *optional*): for tests only: a mechanism's own secret streams follow this seed and
            the release is marked. The noise of counts comes from OpenDP, which takes no seed.
    Returns:
        `Dataset` or `DatasetDict`: the text column and the conditioning columns, `num_rows` rows.
    Raises:
        ConfigError: an argument is wrong; nothing was spent.
        BudgetExceeded: the budget has too little left; no model ran.
        ResumeMismatch: `out` holds another plan or other data.
    Examples:
        >>> import hf_dpsynth
        >>> reviews = hf_dpsynth.data.load("movie")["train"].select(range(20))
        >>> class Echo:
        ...     def generate(self, prompts, *, max_new_tokens, temperature, seed):
        ...         return [f"a good film, number {seed % 7}"] * len(prompts)
        >>> synth = reviews.synthesize(
        ...     "aug-pe", epsilon=4, delta=1e-3, label_column="label", num_rows=4, generator=Echo(),
        ...     params={"iterations": 1},
        ... )
        >>> synth.privacy.guarantee.epsilon, synth.privacy.guarantee.neighbours
        (4.0, 'add-remove')
    """
    from hf_dpsynth import columns, models, registry
    from hf_dpsynth.contamination import origin
    from hf_dpsynth.mechanisms import public_inputs
    from hf_dpsynth.mechanisms.base import PublicInputs, Synthesizer
    from hf_dpsynth.mechanisms.planning import check_seed, declared_units, plan_synthesis, privacy_unit
    from hf_dpsynth.privacy.records import PrivateRecords, PrivateTexts
    from hf_dpsynth.publish.folder import record
    from hf_dpsynth.release import remember
    from hf_dpsynth.run import Run, devices, hand_out, keys, opened_by_all
    from hf_dpsynth.secrets import secrets_of

    found: Synthesizer = registry.resolve(mechanism, params, "synthesize")
    processes = devices(found)
    for name, value in (("public", public), ("secrets", secrets)):
        if value is not None and name not in getattr(found, "takes", ()):
            raise ConfigError(f"{found.name} takes no {name}=; leave it out.")
    data = one_split(ds, split)
    column = columns.text_column(data.features, text_column, messages=getattr(found, "reads_messages", False))
    conditions = columns.label_columns(data.features, label_column, column)
    domain, proportions = columns.label_domain(data.features, conditions, labels, label_proportions)
    level, owner = privacy_unit(found, unit)
    users = None if owner is None else columns.read_users(data, owner, (column, *conditions))
    present = len(data) if users is None else len(set(users) - {None})
    if delta is None and budget is not None:
        delta = budget.delta
    inputs = PublicInputs(
        generator=models.load_generator("smollm2-135m" if generator is None else generator),
        embedder=models.load_embedder("minilm" if embedder is None else embedder),
        dataset=() if public is None else columns.public_rows(public, data, column, conditions, domain),
    )
    models_used = getattr(found, "models_used", ("generator", "embedder"))
    if embedder is not None and "embedder" not in models_used:
        raise ConfigError(f"{found.name} takes no embedder=; leave it out.")
    texts = PrivateTexts(columns.read_texts(data, column))
    held = secrets_of(found, secrets, data, texts, (column, *conditions))
    plan = plan_synthesis(
        found,
        epsilon=epsilon,
        delta=delta,
        num_records=declared_units(found, num_records, present, level, needed=_needs_number(epsilon, delta, num_rows)),
        num_rows=num_rows,
        labels=domain,
        proportions=proportions,
        adjacency=adjacency,
        unit=unit,
        account="pld" if budget is None else "rdp",
        assumptions=(*public_inputs.assumed(found, inputs, models_used), *origin.assumed(public), *held.assumptions),
        seed=check_seed(seed),
        model_ids=public_inputs.named(found, inputs, models_used),
        text_column=column,
        label_columns=conditions,
        messages=columns.is_messages(data.features[column]),
        insecure_noise=insecure_noise_seed is not None,
    )
    for warning in plan.warnings:
        logger.warning("%s", warning)
    if plan.num_rows is None:
        why = "a user unit" if users is not None else "adjacency='add-remove'"
        raise ConfigError(f"num_rows= must be given with {why}: its default would publish the number of records.")
    records = PrivateRecords(texts, columns.read_rows(data, conditions), units=users, secrets=held.rows)
    features = columns.output_features(data.features, (column, *conditions), column)
    ready = partial(found.prepare, inputs, plan) if hasattr(found, "prepare") else None
    with opened_by_all(processes, plan, out, budget, {split: records}, resume=resume, ready=ready) as (ledger, store):
        if not processes.lead(lambda: ledger.finished and store.data_path("train").exists()):
            run = Run(ledger, store, keys(insecure_noise_seed), processes)
            rows = [columns.encode(features, row) for row in found.run(records, inputs, plan, run)]
            values = {name: [row[name] for row in rows] for name in features}
            processes.lead(lambda: store.write_data("train", tables.parquet_writer(features, values)))
            processes.lead(ledger.finish)
        folders = getattr(found, "folders", ())
        hand_out(store, processes, ("data", *folders))
        made = tables.read_rows(store.data_path("train"))
        release = processes.lead(lambda: record(_release_of(plan, ledger, made, budget), store, folders))
        if hasattr(found, "sampler"):
            # the table, not the dataset: a release that held its dataset would keep it alive for ever
            further = partial(_further_rows, found.sampler(inputs, plan, store), plan, made.data.table)
            release = replace(release, sampler=further)
    result = like(ds, {"train": made})
    remember(result, release)
    return result


def _release_of(plan: "Plan", ledger: "Ledger", made: Any, budget: "PrivacyBudget | None") -> "Release":
    """Return the release of synthesized rows, with the rounds that were lost."""
    from hf_dpsynth.release import Release, budget_state, rows_of

    notes = (f"{key} was charged and lost when a process stopped; its round was skipped." for key in ledger.lost)
    return Release(
        plan=plan,
        guarantee=ledger.guarantee(),
        charges=ledger.charges(),
        notes=tuple(notes),
        guarantee_id=ledger.run_id,
        rows=rows_of({"train": made}),
        budget=budget_state(budget),
    )


def _further_rows(sampler: Any, plan: "Plan", table: Any, num_rows: int, seed: int) -> Any:
    """Return a fresh Dataset of rows that a mechanism makes from released ones."""
    from datasets import Dataset

    from hf_dpsynth import columns
    from hf_dpsynth.mechanisms.planning import check_seed

    number, made = _at_least_one("num_rows", num_rows), tables.fresh(table)
    released = list(zip(made[plan.text_column][:], columns.read_rows(made, plan.label_columns), strict=True))
    rows = sampler(released, number, check_seed(seed))
    encoded = [columns.encode(made.features, row) for row in rows]
    values = {name: [row[name] for row in encoded] for name in made.features}
    return tables.fresh(Dataset.from_dict(values, features=made.features).data.table)


def _at_least_one(name: str, number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ConfigError(f"{name} is {number!r}; it must be a whole number >= 1")
    return number


def _needs_number(epsilon: float | None, delta: float | str | None, num_rows: int | None) -> bool:
    """Return whether a plan needs the number of records: for its delta, or for the number of rows to make."""
    return num_rows is None or (epsilon is not None and delta in (None, "1/n"))


def _write_privatized(
    store: "Store", split: str, rows: Any, column: str, kept: tuple[str, ...], texts: list[str | None]
) -> None:
    """Write privatized texts beside the columns the user chose to keep, in the order they had."""
    from hf_dpsynth import columns

    names = [name for name in rows.features if name in (column, *kept)]
    features = columns.output_features(rows.features, names, column)
    store.write_data(
        split, tables.parquet_writer(features, {name: texts if name == column else rows[name][:] for name in features})
    )
