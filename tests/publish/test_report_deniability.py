from dataclasses import replace

import numpy as np
import pytest
from datasets import Dataset

import hf_dpsynth
from hf_dpsynth.audit import plausible_deniability
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.evaluation import report
from hf_dpsynth.models.word_vectors import WordVectors
from tests.publish.reporting import words

VECTORS = WordVectors(("good", "bad", "film", "actor", "seven"), np.arange(10.0).reshape(5, 2), "five")


@pytest.fixture
def run(tmp_path):
    rows = Dataset.from_dict({"text": ["a good film", "the bad actor"]})
    rows.privatize("madlib", epsilon=2.0, vectors=VECTORS, out=str(tmp_path / "run"))
    return tmp_path / "run"


def test_the_page_has_a_section_of_what_was_measured(run):
    found = plausible_deniability("madlib", 2.0, 5, 30, vectors=VECTORS)
    page = report(run, deniability=found).public.read_text()
    assert 'id="deniability"' in page and "Empirical, not a proof" in words(page)
    assert "5 words of the public vocabulary" in words(page) and "30 times" in words(page)
    pictures = {path.stem for path in (run / "report").iterdir()}
    assert {"tag-confusion", "self-substitution", "distinct", "bands"} <= pictures
    assert hf_dpsynth.verify(run).ok
    assert "deniability" not in report(run).public.read_text()
    assert not {path.stem for path in (run / "report").iterdir()} & {"tag-confusion", "bands"}


def test_the_private_page_has_it_too(run):
    found = plausible_deniability("madlib", 2.0, 5, 5, vectors=VECTORS)
    study = [{"train_on": "real", "learner": "one", "accuracy": 0.5}]
    assert 'id="deniability"' in report(run, deniability=found, study=study).private.read_text()


def test_a_vocabulary_that_was_cut_is_that_of_the_run(run, tmp_path):
    rows, params = Dataset.from_dict({"text": ["a good film"]}), {"max_words": 4}
    rows.privatize("madlib", epsilon=2.0, vectors=VECTORS, params=params, out=tmp_path / "cut")
    found = plausible_deniability("madlib", 2.0, 4, 5, params, vectors=VECTORS)
    assert report(tmp_path / "cut", deniability=found).public.exists()
    with pytest.raises(ConfigError, match="measured with vectors"):
        report(run, deniability=plausible_deniability("madlib", 2.0, 4, 5, vectors=VECTORS.most_frequent(4)))


def test_a_study_of_something_else_is_refused(run):
    found = plausible_deniability("madlib", 2.0, 5, 5, vectors=VECTORS)
    other = {
        "mechanism": "vickrey",
        "epsilon": 3.0,
        "vectors": "glove-50d",
        "params": {**found.params, "oov": "random"},
    }
    for (name, value), what in zip(other.items(), ("mechanism", "scale", "vectors", "parameters"), strict=True):
        with pytest.raises(ConfigError, match=f"measured with {what}"):
            report(run, deniability=replace(found, **{name: value}))
    with pytest.raises(ConfigError, match="of type dict"):
        report(run, deniability={})
