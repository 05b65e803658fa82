import pytest

from hf_dpsynth import metrics
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.suite import compare
from tests.stubs import StubEmbedder

REAL = [f"{word} film {i}" for i, word in enumerate(["good", "bad", "slow", "fun"] * 5)]
MADE = ["good film", "bad film", "fun plot", "slow plot"] * 3


def test_every_text_is_embedded_once_and_the_figures_are_those_of_each_metric():
    class Counting(StubEmbedder):
        def embed(self, texts):
            self.seen += texts
            return super().embed(texts)

    model = Counting()
    found = compare(MADE, REAL, metrics=["fid", "mmd", "length"], embedder=model, num_splits=2)
    assert sorted(model.seen) == sorted(set(MADE + REAL))
    for name in ("fid", "mmd"):
        alone = metrics.load(name).compute(predictions=MADE, references=REAL, embedder=StubEmbedder(), num_splits=2)
        assert found[name] == alone


def test_without_references_only_metrics_of_one_set_are_computed():
    found = compare(MADE, None, metrics=["ngram", "length", "distinct_n"], embedder=StubEmbedder())
    assert sorted(found) == ["distinct_n", "length"]
    assert not any(result["uses_private_data"] for result in found.values())


def test_a_metric_that_cannot_be_computed_says_why_and_the_others_go_on():
    found = compare(["one"], REAL, metrics=["ngram", "distinct_n"])
    assert "needs 2 synthetic" in found["ngram"]["error"] and found["distinct_n"]["distinct_n"] > 0


def test_metrics_with_options_of_their_own_and_names_that_are_none():
    found = compare(MADE, REAL, metrics=[metrics.load("distinct_n", params={"max_n": 5})])
    assert "distinct_n_5" in found["distinct_n"]
    with pytest.raises(ConfigError, match="each once"):
        compare(MADE, REAL, metrics=["ngram", "ngram"])
    with pytest.raises(ConfigError, match="unknown"):
        compare(MADE, REAL, metrics=["bleurt"])


def test_rankings_are_read_as_numbers():
    found = compare(["0.1", "0.3", "0.2", "0.4"], ["1", "3", "2", "4"], metrics=["rank_agreement"])
    assert found["rank_agreement"]["kendall"] == 1
    assert "numbers" in compare(MADE, REAL, metrics=["rank_agreement"])["rank_agreement"]["error"]
