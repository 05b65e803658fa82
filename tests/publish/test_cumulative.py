"""Losses of several releases: what they add up to, which do not, and cards that say it."""

import copy
import json
from dataclasses import replace
from fractions import Fraction

import pytest

from hf_dpsynth.errors import PrivacyError
from hf_dpsynth.publish import beside, cumulative
from hf_dpsynth.publish.card import claims, front_matter, number, render, sentence
from hf_dpsynth.publish.privacy_json import to_privacy_json
from hf_dpsynth.publish.reading import from_privacy_json
from tests.publish import golden

RELEASES = golden.releases()
OLD, NEW = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
HERE = (("old/train-00000-of-00001.parquet", "1" * 64),)


def pair(first, second, *, replaced=True):
    """The facts of a release that was there, and of one that comes after it."""
    held = to_privacy_json(replace(RELEASES[first], guarantee_id=OLD, files=HERE))
    comes = replace(RELEASES[second], guarantee_id=NEW)
    before = cumulative.before(held, to_privacy_json(comes), [HERE[0][0]] if replaced else [])
    return held, to_privacy_json(replace(comes, earlier=before))


def test_losses_add_up_and_are_rounded_up():
    held, facts = pair("aug-pe-add-remove", "dp-eda")
    total = facts["cumulative"]
    for name in ("epsilon", "delta"):
        exact = Fraction(held["parameters"][name]) + Fraction(facts["parameters"][name])
        assert exact <= total[name] <= exact * Fraction(1 + 1e-15)
    assert to_privacy_json(from_privacy_json(facts)) == facts
    assert cumulative.sentence(facts, number).startswith("1 earlier release and this one: DP epsilon = ")


def test_a_sum_with_a_release_of_zero_out_holds_under_zero_out_whichever_came_last():
    for pairs in (("aug-pe-add-remove", "dp-lora"), ("dp-lora", "aug-pe-add-remove")):
        _, facts = pair(*pairs)
        assert cumulative.adjacency(facts) == "zero_out"
        assert "under zero-out adjacency" in cumulative.sentence(facts, number)


def test_a_condition_of_any_release_is_one_of_the_sum():
    for pairs in (("aug-pe-add-remove", "aug-pe-zero-out-own-embedder"), ("aug-pe-zero-out-own-embedder", "dp-lora")):
        for replaced in (True, False):
            _, facts = pair(*pairs, replaced=replaced)
            assert "if the assumptions of each hold" in cumulative.sentence(facts, number)
            assert replaced or front_matter(facts)["differential_privacy"]["claim_status"] == "formal_dp_conditional"


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("aug-pe-add-remove", "madlib", "definition"),
        ("madlib", "syntax-guided", "metric"),
        ("aug-pe-replace-one", "aug-pe-add-remove", "adjacency"),
        ("dp-lora-user-level", "dp-lora", "privacy_unit"),
    ],
)
def test_losses_of_different_kinds_are_refused_and_found(first, second, words):
    with pytest.raises(PrivacyError, match=f"its {words} is "):
        pair(first, second)


def test_scales_of_one_metric_add_up():
    _, facts = pair("madlib", "madlib")
    assert "1 earlier release and this one: scale 20 where all are of the same texts" in cumulative.sentence(
        facts, number
    )


@pytest.mark.parametrize(
    "order", [("aug-pe-no-privacy", "aug-pe-add-remove"), ("aug-pe-add-remove", "aug-pe-no-privacy")]
)
def test_rows_without_privacy_void_the_claim_of_the_whole_as_long_as_they_lie_there(order):
    _, facts = pair(*order, replaced=False)
    front = front_matter(facts)
    assert sentence(facts).startswith("This data set holds rows of 2 releases, and no guarantee holds for all of it")
    assert "differential-privacy" not in front["tags"] and "size_categories" not in front
    assert front["differential_privacy"]["claim_status"] == "none" and front["differential_privacy"]["epsilon"] is None
    assert [one["config_name"] for one in front["configs"]] == ["old", "default"]
    _, gone = pair(*order)
    assert "no total epsilon" in cumulative.sentence(gone, number) and not cumulative.whole(gone, number)


def test_a_card_of_another_version_must_say_all_that_weakens_it():
    _, facts = pair("aug-pe-zero-out-own-embedder", "aug-pe-add-remove", replaced=False)
    card = render(facts)
    assert claims(card, facts)
    total = next(line for line in card.split("\n") if line.startswith("1 earlier release"))
    for old, new in (
        (total, "This release alone. DP epsilon = 0.01."),
        (OLD, "none"),
        ("persons behind several records", "nobody"),
        ("## Mechanism", "In short, DP epsilon is 0.01.\n\n## Mechanism"),
    ):
        assert old in card and not claims(card.replace(old, new), facts), old


def test_the_claim_of_an_earlier_release_is_recomputed(tmp_path):
    held, facts = pair("aug-pe-add-remove", "dp-eda")
    (tmp_path / "releases").mkdir()
    place = tmp_path / "releases" / f"{OLD}.json"

    def findings(change=lambda held: None):
        changed = copy.deepcopy(held)
        change(changed)
        place.write_text(json.dumps(changed))
        return beside.earlier(tmp_path, facts)[0]

    assert findings() == []
    assert "claimed 0.1, the events cost" in findings(lambda held: held["parameters"].update(epsilon=0.1))[0]
    assert findings(lambda held: held["mechanisms"][0]["params"].update(noise_multiplier=99.0))
    bound = {"attack": "one_run", "metric": "epsilon_lower", "value": 3.5, "ci": None, "uses_private_data": True}
    assert "shows an epsilon" in findings(lambda held: held["audit"].append(bound | {"accounted": False}))[0]
    assert findings(lambda held: held.update(adjacency="replace_one"))
    place.unlink()
    assert beside.earlier(tmp_path, facts)[0]


def test_a_filter_has_a_budget_that_holds_what_was_spent():
    facts = to_privacy_json(RELEASES["aug-pe-budget"])
    assert facts["accounting"]["composition"] == "filter"
    held = {"epsilon": 2.0, "delta": 1e-6, "spent": 1.5, "runs": 2}
    for budget, words in ((None, "missing"), (held | {"spent": 2.1}, "is spent"), (held, None)):
        found = beside.budget(facts | {"cumulative": facts["cumulative"] | {"budget": budget}})
        assert (not found) if words is None else words in found[0]
