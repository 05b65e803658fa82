"""The golden cards of model_cards/, from releases that are fixed here. Refresh: python -m tests.publish.golden"""

import functools
import math
import pathlib
from dataclasses import replace

from hf_dpsynth import registry
from hf_dpsynth.mechanisms.evolution.aug_pe import AugPE
from hf_dpsynth.mechanisms.evolution.dp_eda import DPEDA
from hf_dpsynth.mechanisms.evolution.sec_pe import SecPE
from hf_dpsynth.mechanisms.evolution.sentdp_select import SentDPSelect
from hf_dpsynth.mechanisms.finetune.tuning import DPFull, DPLora, DPPromptTuning
from hf_dpsynth.mechanisms.planning import plan_privatization, plan_synthesis
from hf_dpsynth.mechanisms.prediction.dp_icl import DPICL
from hf_dpsynth.mechanisms.prediction.invisible_ink import InvisibleInk
from hf_dpsynth.mechanisms.rewrite.dp_prompt import DPPrompt
from hf_dpsynth.mechanisms.word.madlib import Madlib
from hf_dpsynth.mechanisms.word.syntax_guided import SyntaxGuided
from hf_dpsynth.privacy.accounting import leaves
from hf_dpsynth.privacy.ledger import Charge
from hf_dpsynth.publish.model_card import render_model
from hf_dpsynth.publish.privacy_json import to_privacy_json
from hf_dpsynth.release import Release, Rows

FOLDER = pathlib.Path(__file__).parents[2] / "model_cards"
VERSIONS = {"hf_dpsynth": "0.1.0", "dp_accounting": "0.6.0", "opendp": "0.16.0", "randomgen": "2.5.1"}
LABELS = {"labels": (("negative",), ("positive",)), "label_columns": ("label",)}
OURS = {"model_ids": {"generator": "smollm2-135m", "embedder": "minilm"}}
BASE = "org/base"
EVEN = {"proportions": (0.5, 0.5)}
FOUND = ("regex finds a secret in the same rows whatever its value: unknown",)
UNKNOWN = ("the embedder embeds each row independently of the others: unknown",)


def fixed(plan, number, **more):
    """A release of a plan with the same id, date, digests and versions at every call."""
    charges = tuple(Charge(f"release-{at:03d}", leaf, "2026-11-30") for at, leaf in enumerate(leaves(plan.event)))
    return Release(
        plan=plan,
        guarantee=plan.guarantee,
        charges=charges,
        guarantee_id="00000000-0000-4000-8000-000000000000",
        rows=(Rows("train", number, "0" * 64),),
        files=(("data/train-00000-of-00001.parquet", "0" * 64),),
        versions=VERSIONS,
        **more,
    )


@functools.cache
def releases():
    """The releases by the name of their card."""
    aug_pe, madlib = AugPE(subject="movie review"), Madlib()
    add_remove = plan_synthesis(aug_pe, epsilon=1, delta=1e-6, num_rows=500, **LABELS, **OURS)
    theirs = {"model_ids": {"generator": "smollm2-135m", "embedder": "app.models.Encoder"}, "assumptions": UNKNOWN}
    zero_out = plan_synthesis(aug_pe, epsilon=4, num_records=5000, num_rows=500, **LABELS, **theirs)
    infinite = plan_synthesis(aug_pe, epsilon=math.inf, num_rows=500, **LABELS, **OURS)
    words = plan_privatization(madlib, epsilon=10, kept_columns=("label",), model_ids={"vectors": "glove-50d"})
    guided = plan_privatization(SyntaxGuided(), epsilon=6, model_ids={"vectors": "glove-50d"})
    prompted = plan_privatization(DPPrompt(), epsilon=1920, model_ids={"generator": "smollm2-135m"})
    written = SecPE(p={"other": 1e-4, "phone": 1e-5}, r=1e-3, subject="e-mail")
    secrets = plan_synthesis(written, epsilon=None, num_rows=500, assumptions=FOUND, **LABELS, **OURS)
    lost = "votes-002 was charged and lost when a process stopped; its round was skipped."
    return {
        "aug-pe-add-remove": fixed(add_remove, 500),
        "aug-pe-zero-out-own-embedder": fixed(zero_out, 500, notes=(lost,)),
        "aug-pe-no-privacy": fixed(infinite, 500),
        "madlib": fixed(words, 2000),
        "syntax-guided": fixed(guided, 2000),
        "dp-prompt": fixed(prompted, 2000),
        "sec-pe": fixed(secrets, 500),
        **{name: fixed(plan, plan.num_rows) for name, plan in {**further(), **tuned(), **kinds()}.items()},
        **{name: fixed(plan, 2000) for name, plan in private_words().items()},
    }


def further():
    """Plans of mechanisms that select public texts or let private ones vote on tokens, by the name of their card."""
    settings = {"epsilon": 4, "delta": 1e-5, **LABELS, **EVEN}
    searched = DPEDA(subject="movie review")
    limited = DPEDA(subject="movie review", selection="limited-domain")
    sampled = {"num_records": 5000, "model_ids": {"generator": "smollm2-135m"}}
    return {
        "dp-eda": plan_synthesis(searched, num_rows=500, **settings, **OURS),
        "dp-eda-limited-domain": plan_synthesis(limited, num_rows=500, **settings, **OURS),
        "sentdp-select": plan_synthesis(SentDPSelect(), num_rows=40, **settings, model_ids={"embedder": "minilm"}),
        "dp-icl": plan_synthesis(DPICL(subject="movie review"), num_rows=12, **settings, **sampled),
        "invisible-ink": plan_synthesis(InvisibleInk(subject="movie review"), num_rows=12, **settings, **sampled),
    }


def tuned():
    """Plans of mechanisms that tune a model, at each unit and with each way to draw batches."""
    settings = {"epsilon": 4, "num_records": 5000, "num_rows": 500, **LABELS, "model_ids": {"generator": BASE}}
    shuffled = DPLora(steps=100, sampling="shuffle")
    return {
        "dp-lora": plan_synthesis(DPLora(), **settings),
        "dp-prompt-tuning": plan_synthesis(DPPromptTuning(), **settings, **EVEN),
        "dp-full": plan_synthesis(DPFull(), **settings, **EVEN),
        "dp-lora-user-level": plan_synthesis(DPLora(), unit="author", **settings, **EVEN),
        "dp-lora-shuffled-batches": plan_synthesis(shuffled, **settings, **EVEN),
    }


def kinds():
    """Plans with a relation, an accountant or a guarantee that no other one has."""
    settings = {"num_rows": 500, **LABELS, **OURS}
    aug_pe, public = AugPE(subject="movie review"), {"epsilon": 4, "delta": 1e-5}
    bounds = {"p": {"other": 1e-4, "phone": 1e-5}, "r": {"other": 1e-3, "phone": 1e-2}}
    return {
        "aug-pe-replace-one": plan_synthesis(aug_pe, adjacency="replace-one", **public, **settings),
        "aug-pe-budget": plan_synthesis(aug_pe, account="rdp", **public, **settings, **EVEN),
        "aug-pe-seed": replace(plan_synthesis(aug_pe, **public, **settings, **EVEN), insecure_noise=True),
        "sec-pe-own-bounds": plan_synthesis(SecPE(subject="e-mail", **bounds), epsilon=None, **settings, **EVEN),
    }


def private_words():
    """Plans of the further mechanisms of words and of whole texts."""
    vectors, model = {"vectors": "glove-50d"}, {"generator": "org/masked"}
    names = ("mahalanobis", "vickrey", "tem", "santext", "santext+", "custext", "custext+", "diffractor")
    words = {name: plan_privatization(made(name), epsilon=10, model_ids=vectors) for name in names}
    return {
        **words,
        "madlib-no-privacy": plan_privatization(Madlib(), epsilon=math.inf, model_ids=vectors),
        "dp-mlm": plan_privatization(made("dp-mlm"), epsilon=1920, model_ids=model),
    }


def made(name):
    """A privatizing mechanism of the registry, as it is without parameters."""
    return registry.resolve(name, None, "privatize")


def cards():
    """The cards by name: of rows, and of the models that tuning releases."""
    rows = {name: release.card() for name, release in releases().items()}
    models = {f"{name}-model": render_model(facts, base=BASE) for name, facts in tuned_facts().items()}
    return rows | models


def tuned_facts():
    """The content of privacy.json of each model that was tuned."""
    made = releases()
    files = {"dp-full": ("config.json", "model.safetensors")}
    return {
        name: to_privacy_json(
            replace(
                made[name],
                is_model=True,
                rows=(),
                files=tuple((file, "0" * 64) for file in files.get(name, ("adapter_model.safetensors",))),
            )
        )
        for name in ("dp-lora", "dp-prompt-tuning", "dp-full")
    }


if __name__ == "__main__":
    for name, card in cards().items():
        FOLDER.joinpath(f"{name}.md").write_text(card, encoding="utf-8")
