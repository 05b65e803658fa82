"""What releases of words leave behind, show, and add up to."""

import gc
import json

import numpy as np
import pytest
from datasets import Dataset, DatasetDict, Features, IterableDataset, IterableDatasetDict, Value

import hf_dpsynth
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.models.word_vectors import WordVectors
from tests.publish.forging import edit, put

WORDS = tuple(f"w{one}{other}" for one in "abcdefghij" for other in "abcdefghij")
ROWS = np.random.default_rng(2).standard_normal((len(WORDS), 5))
TEXT = " ".join(WORDS) * 2


def vectors(rows=ROWS):
    return WordVectors(WORDS, rows, "toy")


def private(texts=("waa wbb", "wcc")):
    return Dataset.from_dict({"text": list(texts), "label": list(range(len(texts)))})


def spend(budget, mechanism="madlib", params=None, given=None):
    private().privatize(
        mechanism, epsilon=1, params=params, text_column="text", vectors=given or vectors(), budget=budget
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"mechanism": "custext"}, {"mechanism": "custext", "params": {"max_words": 50}}),
        ({"mechanism": "diffractor"}, {"mechanism": "diffractor", "params": {"max_words": 50}}),
        ({}, {"params": {"max_words": 50}}),
        ({}, {"params": {"numbers": "oov"}}),
        ({}, {"params": {"oov": "random"}}),
        ({}, {"params": {"stop_words": "keep"}}),
        ({}, {"mechanism": "syntax-guided"}),
        ({}, {"mechanism": "syntax-guided", "params": {"tag_privacy": "public"}}),
        ({}, {"given": vectors(ROWS + 1e-3)}),
    ],
)
def test_a_budget_refuses_scales_that_do_not_add_up(tmp_path, first, second):
    budget = hf_dpsynth.PrivacyBudget(tmp_path / "b.db", epsilon=9, delta=0, unit="word")
    spend(budget, **first)
    with pytest.raises(ConfigError, match="do not add"):
        spend(budget, **second)
    assert budget.spent() == 1.0


def test_a_budget_adds_mechanisms_of_one_metric(tmp_path):
    budget = hf_dpsynth.PrivacyBudget(tmp_path / "b.db", epsilon=9, delta=0, unit="word")
    for mechanism, params in [
        ("madlib", None),
        ("tem", {"beta": 0.1}),
        ("vickrey", None),
        ("syntax-guided", {"tag_privacy": "none"}),
    ]:
        spend(budget, mechanism, params)
    private().privatize(
        "santext", epsilon=1, text_column="text", keep_columns="label", vectors=vectors(), budget=budget
    )
    assert budget.spent() == 5.0


@pytest.mark.parametrize("form", ["dataset", "stream"])
def test_nothing_of_the_texts_is_kept_after_a_release(form):
    public = vectors()
    ds = private() if form == "dataset" else private().to_iterable_dataset()
    assert list(ds.privatize("santext", epsilon=1, text_column="text", vectors=public)["text"])
    gc.collect()
    kept = [one for one in gc.get_objects() if type(one).__name__ == "ExponentialWord"]
    assert not [one for one in kept if one.vocabulary.vectors is public]


@pytest.mark.parametrize("form", ["dataset", "stream"])
def test_equal_rows_of_two_splits_get_noise_of_their_own(form):
    """A text of 200 words at a small scale: that two draws are equal by chance has a probability below 1e-100."""
    splits = DatasetDict(train=private([TEXT]), test=private([TEXT]))
    if form == "stream":
        splits = IterableDatasetDict({name: split.to_iterable_dataset() for name, split in splits.items()})
    out = splits.privatize("madlib", epsilon=0.1, text_column="text", vectors=vectors(), insecure_noise_seed=1)
    first, second = (next(iter(out[name]))["text"] for name in ("train", "test"))
    assert first != second


def test_an_error_of_a_stream_quotes_no_value_of_any_column():
    features = Features({"text": Value("string"), "n": Value("int64")})

    def rows():
        yield {"text": "waa", "n": 1}
        yield {"text": "wbb", "n": "SECRETNAME"}

    source = IterableDataset.from_generator(rows, features=features)
    out = source.privatize("madlib", epsilon=1, text_column="text", vectors=vectors())
    assert len(list(out)) == 2, "a column that does not come out is not read"
    kept = source.privatize("madlib", epsilon=1, text_column="text", keep_columns=["n"], vectors=vectors())
    with pytest.raises(ConfigError, match="cannot be read as its features say") as error:
        list(kept)
    assert "SECRETNAME" not in str(error.value) and error.value.__suppress_context__


@pytest.mark.parametrize(
    ("mechanism", "params", "said"),
    [
        ("santext+", None, "the most frequent 0.1"),
        ("custext", None, "the group of near words"),
        ("custext+", None, "stop words of the texts"),
        ("madlib", {"stop_words": "keep"}, "stop words of the texts"),
        ("syntax-guided", {"tag_privacy": "public"}, "the part of speech of each word"),
    ],
)
def test_what_comes_out_without_noise_is_listed(mechanism, params, said, tmp_path):
    private().privatize(
        mechanism, epsilon=1, params=params, text_column="text", vectors=vectors(), out=tmp_path / "run"
    )
    facts = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert any(line.startswith(said) for line in facts["scope"]["unprotected_quantities"])
    assert "what comes out without noise" in facts["postprocessing"][0]
    assert hf_dpsynth.verify(tmp_path / "run").ok


def test_a_local_tagger_is_named_without_its_path(tmp_path):
    from hf_dpsynth.models import pull

    folder = tmp_path / "alice-confidential" / "tagger"
    folder.parent.mkdir()
    folder.symlink_to(pull("en-core-web-sm"), target_is_directory=True)
    params = {"tags": "contextual", "tagger": str(folder)}
    out = private().privatize(
        "syntax-guided", epsilon=1, params=params, text_column="text", vectors=vectors(), out=tmp_path / "run"
    )
    assert out.privacy.plan.model_ids["tagger"].split("@")[0] not in ("", str(folder))
    for file in ("privacy.json", "README.md", "plan.json"):
        assert "alice-confidential" not in (tmp_path / "run" / file).read_text(), file
    assert hf_dpsynth.verify(tmp_path / "run").ok


@pytest.mark.parametrize(
    ("place", "value", "finding"),
    [
        ("privacy_unit.column", "user_id", "privacy_unit"),
        ("public_inputs", [], "public_inputs"),
        ("mechanisms.0.params.noise_multiplier", 0.5, "noise multiplier"),
        ("accounting.discretisation.interval", 0.5, "interval"),
    ],
)
def test_forged_facts_of_a_word_release_are_found(tmp_path, place, value, finding):
    private().privatize("madlib", epsilon=1, text_column="text", vectors=vectors(), out=tmp_path / "run")
    assert any(finding in line for line in edit(tmp_path / "run", put(place, value)).findings)


def test_a_plan_takes_nothing_that_says_nothing_of_it():
    for given, words in [
        ({"unit": "user_id"}, "it protects each word"),
        ({"delta": 1e-5}, "takes no delta="),
        ({"num_records": 4}, "takes no num_records="),
        ({"adjacency": "add-remove"}, "replace-one"),
    ]:
        with pytest.raises(ConfigError, match=words):
            hf_dpsynth.plan("madlib", epsilon=1, **given)
    assert hf_dpsynth.plan("madlib", epsilon=1, unit="word", adjacency="replace-one").guarantee.epsilon == 1


def test_words_in_capitals_would_never_be_found():
    with pytest.raises(ConfigError, match="word 2 is not in lower case"):
        WordVectors(("a", "The"), np.eye(2), "names")


@pytest.mark.parametrize("epsilon", [0, -1.0, float("nan"), "4", None, True])
def test_a_scale_that_is_none_is_refused_before_anything_is_measured(epsilon):
    with pytest.raises(ConfigError, match="epsilon is"):
        private().privatize("madlib", epsilon=epsilon, text_column="text", vectors=vectors())
