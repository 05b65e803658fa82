"""aug-pe: plans, rounds and selection by law, on stub models."""

import json
import math
import shutil
import sqlite3

import numpy as np
import pytest
from dp_accounting import NonPrivateDpEvent
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_dpsynth
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.base import largest_remainder
from hf_dpsynth.mechanisms.evolution import prompts
from hf_dpsynth.mechanisms.evolution.aug_pe import AugPE
from hf_dpsynth.mechanisms.evolution.ranking import select
from hf_dpsynth.plans import Facts
from hf_dpsynth.privacy import accounting
from hf_dpsynth.privacy.accounting import leaves
from tests.stubs import CANARY, StubEmbedder, StubGenerator, reviews, synth


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("iterations", 0), ("iterations", 1.5), ("variations", 1), ("lookahead", -1), ("mask_probability", 1.1),
        ("mask_probability", math.nan), ("temperature", math.inf), ("selection", "best"), ("variation", ""),
        ("threshold", -1), ("threshold", math.inf), ("iterations", True),
        ("keywords", 5), ("keywords", [1]), ("subject", None), ("subject", " "),
    ],
)  # fmt: skip
def test_a_field_out_of_range_is_refused_by_name(field, value):
    with pytest.raises(ConfigError, match=field):
        AugPE(**{field: value})


def test_buying_proportions_shifts_five_percent_of_mu_squared():
    facts = Facts(labels=(("a",), ("b",)))
    votes, labels = leaves(AugPE().event(13.71, facts))
    assert leaves(AugPE().event(13.71, facts))[votes] == 10
    assert labels.sigma == pytest.approx(18.89, abs=0.01)
    share = (1 / labels.sigma**2) / (1 / labels.sigma**2 + 10 / votes.sigma**2)
    assert share == pytest.approx(0.05)


def test_the_joint_account_of_votes_and_labels_is_the_target():
    plan = hf_dpsynth.plan("aug-pe", epsilon=1.0, delta=1e-6, labels=["a", "b"], params={"iterations": 10})
    assert plan.noise_multiplier == pytest.approx(13.71, abs=0.02)
    assert 0.9995 < accounting.epsilon(plan.event, 1e-6) <= 1.0


def test_declared_proportions_cost_nothing():
    free = hf_dpsynth.plan("aug-pe", epsilon=1.0, delta=1e-6, label_proportions={"a": 0.5, "b": 0.5})
    single = hf_dpsynth.plan("aug-pe", epsilon=1.0, delta=1e-6)
    assert free.noise_multiplier == single.noise_multiplier
    assert len(leaves(free.event)) == 1


def test_infinite_epsilon_adds_no_noise_and_says_so():
    plan = hf_dpsynth.plan("aug-pe", epsilon=math.inf, labels=["a", "b"])
    assert plan.noise_multiplier == 0 and set(leaves(plan.event)) == {NonPrivateDpEvent()}
    assert "No privacy" in plan.guarantee.statement()


@settings(max_examples=50)
@given(
    st.lists(st.floats(-5, 50), min_size=1, max_size=30), st.integers(1, 10), st.sampled_from(["rank", "proportional"])
)
def test_selection_keeps_candidates_that_exist(scores, number, selection):
    kept = select(np.asarray(scores), number, selection, 0.0, np.random.default_rng(0))
    assert 1 <= len(kept) <= number and set(kept.tolist()) <= set(range(len(scores)))


def test_rank_selection_keeps_the_best_and_duplicates_come_last():
    scores = np.asarray([1.0, 9.0, -np.inf, 5.0, -3.0])
    assert select(scores, 2, "rank", 0.0, np.random.default_rng(0)).tolist() == [1, 3]
    assert select(scores, 5, "rank", 0.0, np.random.default_rng(0)).tolist()[-1] == 2
    assert 2 not in select(scores, 200, "proportional", 0.0, np.random.default_rng(0))


def test_the_threshold_clips_before_it_lowers():
    scores = np.asarray([1.0, 9.0, 5.0])
    drawn = select(scores, 400, "proportional", 4.0, np.random.default_rng(0))
    assert set(drawn.tolist()) == {1, 2} and 0.7 < np.mean(drawn == 1) < 0.95  # weights 0, 5, 1


def test_equal_scores_are_not_kept_in_the_order_of_generation():
    kept = select(np.zeros(100), 10, "rank", 0.0, np.random.default_rng(0))
    assert kept.tolist() != list(range(10))


@given(st.integers(1, 500), st.lists(st.floats(-10, 10), min_size=1, max_size=9))
def test_largest_remainder_sums_and_stays_within_one_of_the_share(total, shares):
    parts = largest_remainder(total, shares)
    weights = np.clip(shares, 0, None)
    weights = np.full(len(shares), 1 / len(shares)) if weights.sum() == 0 else weights / weights.sum()
    assert sum(parts) == total and all(
        abs(part - total * w) < 1 + 1e-6 for part, w in zip(parts, weights, strict=True)
    )


def test_without_noise_the_rows_come_closer_to_the_private_texts():
    embedder = StubEmbedder()

    def closeness(out):
        near = []
        for label in ("neg", "pos"):
            private = embedder.embed([t for t, own in zip(ds["text"], ds["label"], strict=True) if own == label])
            made = embedder.embed([t for t, own in zip(out["text"], out["label"], strict=True) if own == label])
            near.append((private @ made.T).mean())
        return np.mean(near)

    ds = reviews(200)
    same = {
        "num_rows": 40, "label_proportions": {"neg": 0.5, "pos": 0.5},
        "params": {"iterations": 6, "variations": 4, "word_count_std": 0.0},
    }  # fmt: skip
    # over 25 runs without information closeness was .256 +- .012, with it .32: six standard errors above the bound,
    # and a selection that ignored the votes would pass once in a hundred and fifty
    blind = np.mean([closeness(synth(ds, epsilon=1e-2, **same)) for _ in range(4)])
    assert closeness(synth(ds, epsilon=math.inf, **same)) > blind + 0.03


@pytest.mark.parametrize(
    "params",
    [
        {"lookahead": 2},
        {"selection": "proportional"},
        {"keep_selected": False},
        {"variation": "paraphrase", "threshold": 2.0, "keywords": ("food", "music")},
        {"variations": 40},
    ],
)
def test_every_option_makes_the_rows_and_spends_the_same(params):
    out = synth(params={"iterations": 2, "variations": 3} | params)
    assert len(out) == 12
    assert [charge.key for charge in out.privacy.charges] == ["label-counts", "votes-001", "votes-002"]


def test_only_public_words_and_synthetic_text_stand_in_a_prompt():
    generator = StubGenerator()
    synth(generator=generator, params={"iterations": 3, "variations": 2, "lookahead": 1})
    assert generator.prompts and not any(CANARY in prompt for prompt in generator.prompts)
    assert any("label: pos" in prompt for prompt in generator.prompts)


def test_equal_plans_and_models_with_the_same_votes_give_the_same_rows():
    one, other = (synth(epsilon=math.inf, seed=3) for _ in range(2))
    assert one["text"][:] == other["text"][:]
    assert one["text"][:] != synth(epsilon=math.inf, seed=4)["text"][:]


def test_a_label_that_no_record_has_runs_all_rounds():
    out = synth(labels=["neg", "pos", "mixed"], label_proportions={"neg": 0.4, "pos": 0.4, "mixed": 0.2}, num_rows=10)
    assert out["label"][:].count("mixed") == 2
    assert [charge.key for charge in out.privacy.charges] == ["votes-001", "votes-002", "votes-003"]


def test_a_generator_that_returns_too_few_texts_is_refused_and_spends_nothing_more():
    class Short(StubGenerator):
        def generate(self, prompts, **more):
            return super().generate(prompts, **more)[1:]

    with pytest.raises(ConfigError, match="the generator returned"):
        synth(generator=Short())


@pytest.mark.parametrize("bad", [np.nan, None])
def test_an_embedder_without_finite_rows_is_refused(bad):
    class Broken(StubEmbedder):
        def embed(self, texts):
            rows = super().embed(texts)
            return rows * bad if bad is not None else rows[:-1]

    with pytest.raises(ConfigError, match="the embedder"):
        synth(embedder=Broken())


def test_a_private_vector_that_is_not_finite_casts_no_vote_and_raises_no_error():
    class Fragile(StubEmbedder):
        def embed(self, texts):
            rows = super().embed(texts)
            rows[[CANARY in text for text in texts]] = np.nan
            return rows

    out = synth(epsilon=math.inf, delta=None, out="run", embedder=Fragile(), params={"iterations": 1})
    assert len(out) == 12
    with sqlite3.connect("run/ledger.db") as database:
        (value,) = database.execute("SELECT value FROM charges WHERE key = 'votes-001'").fetchone()
    database.close()
    assert sum(sum(votes) for _, votes in json.loads(value)) == 0


def test_a_finished_round_embeds_nothing_again():
    synth(out="run")
    shutil.rmtree("run/data")
    embedder = StubEmbedder()
    synth(out="run", embedder=embedder)
    assert embedder.calls == 0


def test_an_empty_reply_is_replaced_by_its_parent():
    class Silent(StubGenerator):
        def generate(self, prompts, **more):
            return [t if self.calls == 1 else "" for t in super().generate(prompts, **more)]

    assert all(synth(generator=Silent())["text"][:])


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ('Sure, here is a review:\n"A fine film."', "A fine film."),
        ("Here's a short review: Dull and slow.\n\nAnother one.", "Dull and slow."),
        ("1. Great _ fun\n2. no", "Great fun"),
        ("  \n ", ""),
        ("Rewrite this review in other words: A warm film.", "A warm film."),
        ("Sure! This movie review with label: positive is bright.", "positive is bright."),
        ("The plot: thin.", "The plot: thin."),
    ],
)
def test_a_reply_is_cleaned_of_chat(reply, text):
    assert prompts.clean(reply) == text


def test_blanks_follow_the_mask_probability():
    text = " ".join(["word"] * 2000)
    prompt = prompts.fill_blanks("text", "", text, 2000, np.random.default_rng(0), 0.5)
    assert abs(prompt.count(" _") / 2000 - 0.5) < 0.07  # six standard errors


def test_the_plan_warns_when_the_votes_drown_and_names_what_would_do():
    asked = {"epsilon": 1.0, "delta": 1e-5, "num_rows": 1000, "params": {"iterations": 10}}
    (warning,) = hf_dpsynth.plan("aug-pe", num_records=5000, **asked).warnings
    needed = int(warning.split("About ")[1].split(" records")[0])
    epsilon = float(warning.split("epsilon ")[1].split(",")[0])
    assert hf_dpsynth.plan("aug-pe", num_records=needed, **asked).warnings == ()
    assert hf_dpsynth.plan("aug-pe", num_records=5000, **asked | {"epsilon": epsilon * 1.01}).warnings == ()
    assert hf_dpsynth.plan("aug-pe", num_records=5000, **asked | {"epsilon": epsilon * 0.97}).warnings != ()


def test_the_cost_bounds_what_is_generated():
    generator = StubGenerator()
    out = synth(generator=generator, params={"iterations": 3, "variations": 3, "lookahead": 1})
    cost = out.privacy.plan.cost
    assert len(generator.prompts) <= cost.lm_calls and cost.tokens == 64 * cost.lm_calls
