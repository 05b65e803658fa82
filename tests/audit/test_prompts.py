"""Prompt membership: a model that remembers its prompt is caught, one that does not is not accused."""

import json

import numpy as np
import pytest

from hf_dpsynth.audit import AttackResult, audit_prompts
from hf_dpsynth.downstream import Examples
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.privacy.keys import public_generator
from hf_dpsynth.privacy.records import PrivateTexts

CLASSES = ("ham", "spam")


def examples(name, n, classes=CLASSES):
    return Examples(PrivateTexts(f"{name} {row}" for row in range(n)), np.arange(n) % len(classes), classes)


class Remembering:
    """Gives the label of a row in its prompt a probability of .99, that of others .3 to .7, by their text alone."""

    def __init__(self, remembers=True):
        self.remembers, self.prompts = remembers, []

    def fit(self, train, *, seed=0):
        self.prompts.append((list(train.texts), seed))
        shown = dict(zip(train.texts, train.labels, strict=True)) if self.remembers else {}

        class Fitted:
            def log_probabilities(self, texts):
                rows = []
                for text in texts:
                    spam = 0.3 + 0.4 * public_generator(0, "stub", text).random()
                    spam = {0: 0.01, 1: 0.99}[int(shown[text])] if text in shown else spam
                    rows.append([1 - spam, spam])
                return np.log(rows)

        return Fitted()


def attacked(model, *, shown, resamples=100, **more):
    sides = examples("made", 40), examples("mine", 200), examples("theirs", 200)
    return audit_prompts(*sides, model=model, shown=shown, resamples=resamples, **more)


def test_a_model_that_remembers_its_prompt_is_caught():
    """Members score .99 and others .7 at most: every figure is certain."""
    found = attacked(Remembering(), shown=True)
    assert found["auc"].value == 1.0 and found["auc"].interval[0] > 0.95
    assert found["tpr_at_1_fpr"].value == 1.0 and found["empirical_epsilon"].value > 1
    assert found["label_probability_of_members"].value == pytest.approx(0.99)
    assert found["label_probability_of_others"].interval[1] < 0.6


def test_made_rows_or_a_model_that_remembers_nothing_are_not_accused():
    """100 members and 800 others: the area is .5 with a standard error of .03; five of them are allowed."""
    for model, shown in ((Remembering(), False), (Remembering(remembers=False), True)):
        found = attacked(model, shown=shown)
        assert abs(found["auc"].value - 0.5) < 0.15 and found["empirical_epsilon"].value < 0.6
        assert found["auc"].uses_private_data and not found["auc"].violated


def test_each_prompt_holds_one_row_of_the_right_side_and_its_number_is_the_seed():
    for shown, name in ((True, "mine"), (False, "made")):
        model = Remembering()
        attacked(model, shown=shown, resamples=12)
        assert [seed for _, seed in model.prompts] == list(range(12))
        assert all(len(texts) == 1 and texts[0].startswith(name) for texts, _ in model.prompts)


def test_one_seed_gives_one_result_and_another_seed_another():
    one, again, other = (attacked(Remembering(), shown=True, resamples=20, seed=seed) for seed in (0, 0, 1))
    assert one == again and one["label_probability_of_others"] != other["label_probability_of_others"]
    assert AttackResult.from_json(json.loads(json.dumps(one.to_json(), allow_nan=False))) == one


def test_texts_on_both_sides_are_left_out_and_counted():
    mine, theirs = examples("mine", 30), examples("theirs", 30)
    both = Examples(PrivateTexts([*theirs.texts, *mine.texts[:5]]), np.arange(35) % 2, CLASSES)
    model = Remembering()
    found = audit_prompts(examples("made", 3), mine, both, model=model, shown=True)
    assert "5 texts that are on both sides are left out." in found["auc"].limits
    shown = {text for texts, _ in model.prompts for text in texts}
    assert shown and not shown & set(mine.texts[:5])
    with pytest.raises(ConfigError, match="members= has no text that the other side lacks"):
        audit_prompts(examples("made", 3), mine, mine, model=Remembering())


def test_the_intervals_of_means_cover_them():
    """300 studies: coverage of 95 % lies within 91.2 and 98.8 % at three standard errors."""
    held = []
    for seed in range(300):
        found = attacked(Remembering(remembers=False), shown=False, resamples=10, others_per_prompt=2, seed=seed)
        low, high = found["label_probability_of_others"].interval
        held.append(low <= population() <= high)
    assert 0.912 < np.mean(held) < 0.988


def population():
    spam = np.array([0.3 + 0.4 * public_generator(0, "stub", f"theirs {row}").random() for row in range(200)])
    return np.where(np.arange(200) % 2, spam, 1 - spam).mean()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "smollm2-135m"}, r"model= is a str; .*InContext"),
        ({"resamples": 5}, "resamples is 5"),
        ({"rows": examples("made", 0)}, "rows= is empty"),
        ({"members": ["a secret text"]}, "members= is a list"),
        ({"others": examples("theirs", 9, ("a", "b", "c"))}, r"different classes \(2, 2, 3 of them\)"),
        ({"others": examples("theirs", 0)}, "others= has no text"),
    ],
)
def test_what_cannot_be_attacked_is_refused_without_private_text(change, words):
    given = {"rows": examples("made", 9), "members": examples("mine", 9), "others": examples("theirs", 9)}
    given |= {"model": Remembering()} | change
    sides = [given.pop(name) for name in ("rows", "members", "others")]
    with pytest.raises(ConfigError, match=words) as error:
        audit_prompts(*sides, **given)
    assert "secret" not in str(error.value) and "mine" not in str(error.value)


def test_a_model_that_gives_no_probabilities_is_refused():
    class Silent:
        def fit(self, train, *, seed=0):
            return self

        def log_probabilities(self, texts):
            return np.full((len(texts), 2), np.nan)

    with pytest.raises(ConfigError, match="not finite"):
        attacked(Silent(), shown=True)
