"""The golden cards of model_cards/, from releases that are fixed here. Refresh: python -m tests.publish.golden"""

import math
import pathlib

from hf_dpsynth.mechanisms.evolution.aug_pe import AugPE
from hf_dpsynth.mechanisms.planning import plan_privatization, plan_synthesis
from hf_dpsynth.mechanisms.rewrite.dp_prompt import DPPrompt
from hf_dpsynth.mechanisms.word.madlib import Madlib
from hf_dpsynth.mechanisms.word.syntax_guided import SyntaxGuided
from hf_dpsynth.privacy.accounting import leaves
from hf_dpsynth.privacy.ledger import Charge
from hf_dpsynth.release import Release, Rows

FOLDER = pathlib.Path(__file__).parents[2] / "model_cards"
VERSIONS = {"hf_dpsynth": "0.1.0", "dp_accounting": "0.6.0", "opendp": "0.16.0", "randomgen": "2.5.1"}
LABELS = {"labels": (("negative",), ("positive",)), "label_columns": ("label",)}
OURS = {"model_ids": {"generator": "smollm2-135m", "embedder": "minilm"}}
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
    lost = "votes-002 was charged and lost when a process stopped; its round was skipped."
    return {
        "aug-pe-add-remove": fixed(add_remove, 500),
        "aug-pe-zero-out-own-embedder": fixed(zero_out, 500, notes=(lost,)),
        "aug-pe-no-privacy": fixed(infinite, 500),
        "madlib": fixed(words, 2000),
        "syntax-guided": fixed(guided, 2000),
        "dp-prompt": fixed(prompted, 2000),
    }


if __name__ == "__main__":
    for name, release in releases().items():
        FOLDER.joinpath(f"{name}.md").write_text(release.card(), encoding="utf-8")
