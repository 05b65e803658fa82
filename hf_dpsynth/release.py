"""Releases: what a run gave away, under which guarantee, by which charges. Data only, all of it public.

A release is remembered beside a dataset, not in it: a table by id() with a finaliser and the fingerprint of each
split. A derived dataset inherits nothing, because it is another object with another fingerprint.
"""

import hashlib
import json
import os
import uuid
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from hf_dpsynth import guarantees
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.guarantees import Guarantee
from hf_dpsynth.plans import Plan
from hf_dpsynth.privacy.accounting import round_up
from hf_dpsynth.privacy.budget import PrivacyBudget
from hf_dpsynth.privacy.event_json import event_to_json
from hf_dpsynth.privacy.ledger import Charge

_releases: dict[int, tuple["Release", Any]] = {}
_BLOCK = 1000
_LONGEST_NAME = 200
STREAM_NOTES = (
    "A stream: its rows are made when they are read, so this record has no digest of them and no file of them can be "
    "matched with it.",
    "Each reading gives the same rows as long as the source yields the same rows in the same order; a row that comes "
    "at another place is one more release of it.",
)


@dataclass(frozen=True)
class Rows:
    """The rows that a release made in one split.

    Args:
        split (`str`): the split's name; empty where it is not known.
        number (`int`): how many rows were made.
        sha256 (`str`): the digest of their content, whatever file holds them; empty where it is not known.
    """

    split: str
    number: int
    sha256: str = ""


@dataclass(frozen=True)
class Earlier:
    """A release that was published before in the same repository; its loss adds to that of this one.

    Args:
        guarantee_id (`str`): its name.
        created (`str`): its UTC date.
        mechanism (`str`): what made it.
        claim_status (`str`): as in its privacy.json.
        adjacency (`str`): likewise.
        epsilon (`float`, *optional*): None where it claims none.
        delta (`float`, *optional*): likewise.
        scale (`float`, *optional*): the scale of metric DP.
        files (`tuple[tuple[str, str], ...]`): path and SHA-256 of its rows that still lie there.
    """

    guarantee_id: str
    created: str
    mechanism: str
    claim_status: str
    adjacency: str
    epsilon: float | None
    delta: float | None
    scale: float | None = None
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an attack on a release found. No proof of anything; a lower bound above the claim refutes the claim.

    Args:
        attack (`str`): what was tried.
        metric (`str`): what was measured; `"epsilon_lower"` is a lower bound on epsilon at the claim's delta.
        value (`float`): the figure.
        ci (`tuple[float, float]`, *optional*): its confidence interval.
        uses_private_data (`bool`): whether it was computed from private records.
        accounted (`bool`): whether the guarantee accounts for that.
    """

    attack: str
    metric: str
    value: float
    ci: tuple[float, float] | None = None
    uses_private_data: bool
    accounted: bool = False


@dataclass(frozen=True, kw_only=True)
class Contamination:
    """What a public corpus was measured to share with the private texts, published because somebody asked for it.

    Counts of private texts, which no guarantee covers. No text and no place in one is among them.

    Args:
        corpus (`str`): what the public corpus is, in the words of whoever measured it.
        mode (`str`): whether overlaps were counted (`"report"`), or also taken away (`"drop"`, `"cut"`).
        window (`int`): the tokens of a window.
        num_scanned (`int`): public texts that were read.
        num_documents (`int`): those that overlap.
        num_windows (`int`): windows of public texts that a private text has.
        num_private (`int`): private texts of which something was found.
        num_short (`int`): private texts that have fewer tokens than the window.
        uses_private_data (`bool`, defaults to `True`): always: it is computed from private records.
    """

    corpus: str
    mode: str
    window: int
    num_scanned: int
    num_documents: int
    num_windows: int
    num_private: int
    num_short: int
    uses_private_data: bool = True

    def __post_init__(self) -> None:
        # nothing that breaks the line or the table that it stands in, and nothing as long as a text
        if not isinstance(self.corpus, str) or not self.corpus.strip() or not self.corpus.isprintable():
            raise ConfigError("corpus= names a public corpus in one line of text; pass such a name.")
        if len(self.corpus) > _LONGEST_NAME:
            raise ConfigError(f"corpus= has {len(self.corpus)} characters; a name has {_LONGEST_NAME} at most.")


@dataclass(frozen=True, kw_only=True)
class BudgetState:
    """The budget that a run was charged to, when the run was recorded.

    Args:
        epsilon (`float`): what all of its runs together may spend.
        delta (`float`): at this delta.
        spent (`float`): epsilon of everything reserved and settled by then, this run among it.
        runs (`int`): how many runs that was.
    """

    epsilon: float
    delta: float
    spent: float
    runs: int


def budget_state(budget: PrivacyBudget | None) -> BudgetState | None:
    """Return what a budget holds now; None without one."""
    if budget is None:
        return None
    return BudgetState(epsilon=budget.epsilon, delta=budget.delta, spent=_up(budget.spent()), runs=len(budget.runs()))


def _up(spent: float) -> float:
    return round_up(spent) if spent > 0 else 0.0


def software() -> dict[str, str]:
    """Return the versions of what plans, accounts and draws."""
    found = {}
    for name in ("hf-dpsynth", "dp-accounting", "opendp", "randomgen"):
        try:
            found[name.replace("-", "_")] = version(name)
        except PackageNotFoundError:
            found[name.replace("-", "_")] = "unknown"
    return found


@dataclass(frozen=True, kw_only=True)
class Release:
    """The record of one privatization or synthesis.

    Args:
        plan (`Plan`): what was planned before data was touched.
        guarantee (`Guarantee`): what holds; as planned, also when the run stopped early.
        charges (`tuple[Charge, ...]`): every entry of the ledger: key, event, UTC date.
        notes (`tuple[str, ...]`): what a reader should know besides, e.g. a round that was lost.
        guarantee_id (`str`): the random name of the run's ledger, the same at every opening.
        created (`str`): the UTC date of the last charge.
        rows (`tuple[Rows, ...]`): the released rows by split.
        files (`tuple[tuple[str, str], ...]`): path and SHA-256 of each data file beside the record.
        commitment (`str`, *optional*): HMAC of the private data under a key that stays with the publisher.
        versions (`dict[str, str]`): versions of the software that made the release.
        postprocessing (`tuple[str, ...]`): what was done to the rows after the mechanism made them, in the words of
            whoever did it.
        added_columns (`tuple[str, ...]`): columns that came by it.
        earlier (`tuple[Earlier, ...]`): what was published before in the same repository.
        audits (`tuple[Audit, ...]`): what attacks found.
        contamination (`tuple[Contamination, ...]`): what public corpora share with the private texts, where
            `Overlaps.declare` was called to publish it.
        budget (`BudgetState`, *optional*): the budget across runs.
        models (`tuple[tuple[str, str], ...]`): path and SHA-256 of each file of a model that was released with the
            rows, in the run directory.
        is_model (`bool`): whether `files` are those of that model, and no rows.
        sampler (`Callable[[int, int], Any]`, *optional*): makes further rows from (rows, seed), without private data.
    """

    plan: Plan
    guarantee: Guarantee
    charges: tuple[Charge, ...]
    notes: tuple[str, ...] = ()
    guarantee_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: str = ""
    rows: tuple[Rows, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    commitment: str | None = None
    versions: dict[str, str] = field(default_factory=software)
    postprocessing: tuple[str, ...] = ()
    added_columns: tuple[str, ...] = ()
    earlier: tuple[Earlier, ...] = ()
    audits: tuple[Audit, ...] = ()
    contamination: tuple[Contamination, ...] = ()
    budget: BudgetState | None = None
    models: tuple[tuple[str, str], ...] = ()
    is_model: bool = False
    sampler: Callable[[int, int], Any] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.created and self.charges:
            object.__setattr__(self, "created", max(charge.when for charge in self.charges))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "sampler": None}

    def statement(self) -> str:
        """Return the guarantee in words, with what voids it."""
        text = self.guarantee.statement()
        if self.plan.insecure_noise:
            text = "NOT PRIVATE: the noise was drawn from a seed that anybody can use again."
        said = [text, *self.notes]
        if self.postprocessing:
            done = "; ".join(self.postprocessing)
            said.append(f"The rows were changed afterwards ({done}): it holds if private data had no part in that.")
        if self.earlier:
            said.append(f"Published before in the same repository: {len(self.earlier)}; their losses add to this one.")
        return " ".join(said)

    def to_json(self) -> dict[str, Any]:
        """Return the release as JSON values."""
        return {
            "plan": self.plan.to_json(),
            "guarantee": guarantees.to_json(self.guarantee),
            "statement": self.statement(),
            "charges": [
                {"key": charge.key, "event": event_to_json(charge.event), "when": charge.when}
                for charge in self.charges
            ],
            "notes": list(self.notes),
        }

    def card(self) -> str:
        """Return the dataset card, README.md, rendered from this record alone."""
        from hf_dpsynth.publish.card import render_release

        return render_release(self)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the record beside rows that were saved with `save_to_disk`: privacy.json, release.json, README.md.

        Args:
            folder (`str` or path): a folder that holds the released rows, or none.
        Raises:
            ConfigError: the folder holds other rows, or a README.md that is not ours.
        """
        from hf_dpsynth.publish.folder import save

        save(self, folder)

    def more(self, num_rows: int, *, seed: int = 0) -> Any:
        """Return further rows from what was released: post-processing, without a charge.

        Args:
            num_rows (`int`): rows to make.
            seed (`int`, defaults to `0`): the seed of public randomness.
        Raises:
            ConfigError: this release holds nothing that makes more rows.
        """
        if self.sampler is None:
            raise ConfigError(
                f"this release of {self.plan.mechanism} cannot make more rows: only a synthesis in this process can, "
                "from the noisy votes it released. Call synthesize again with the same out= to get it back for free."
            )
        made = self.sampler(num_rows, seed)
        remember(made, replace(self, rows=rows_of({"train": made}), files=()))
        return made


def rows_of(made: dict[str, Any]) -> tuple[Rows, ...]:
    """Describe the released rows of each split. Public, so an unkeyed digest tells nothing new.

    Args:
        made (`dict[str, Dataset]`): released datasets by split.
    """
    return tuple(Rows(split, len(data), _content(data)) for split, data in made.items())


def _content(data: Any) -> str:
    """Return a digest of names and values that does not depend on the file format."""
    names = sorted(data.column_names)
    digest = hashlib.sha256(json.dumps(names).encode())
    for block in data.with_format("arrow").iter(batch_size=_BLOCK):
        for row in block.select(names).to_pylist():
            digest.update(json.dumps(list(row.values()), default=repr, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def remember(dataset: Any, release: Release) -> None:
    """Remember the release of a dataset, and of each split of a DatasetDict."""
    if isinstance(dataset, dict):
        for split in dataset.values():
            remember(split, release)
    _releases[id(dataset)] = (release, _fingerprint(dataset))
    weakref.finalize(dataset, _releases.pop, id(dataset), None)


def release_of(dataset: Any) -> Release | None:
    """Return the release that made exactly this dataset, or None once a split was replaced."""
    release, fingerprint = _releases.get(id(dataset), (None, None))
    return release if release is not None and fingerprint == _fingerprint(dataset) else None


def _fingerprint(dataset: Any) -> Any:
    if isinstance(dataset, dict):
        return {name: _fingerprint(split) for name, split in dataset.items()}
    return getattr(dataset, "_fingerprint", None)
