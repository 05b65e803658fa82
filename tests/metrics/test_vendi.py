import numpy as np
import pytest

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics.vendi import Vendi, vendi
from tests.stubs import StubEmbedder


def gaussian(seed, rows, width=6):
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


def definition(rows):
    """The exponential of the entropy of the eigenvalues of the whole n x n matrix of cosines."""
    rows = rows.astype(float)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    values = np.linalg.eigvalsh(units @ units.T / len(rows))
    values = values[values > 1e-15]
    return np.exp(-(values * np.log(values)).sum())


@pytest.mark.parametrize("rows", [1, 4, 7, 8, 200])
def test_few_and_many_rows_give_the_definition(rows):
    assert vendi(gaussian(0, rows)) == pytest.approx(definition(gaussian(0, rows)), rel=1e-6)


def test_different_texts_count_one_each_and_copies_count_once():
    assert vendi(np.eye(9)) == pytest.approx(9)
    assert vendi(np.repeat(np.eye(9), 4, axis=0) * 7) == pytest.approx(9)
    assert vendi(np.ones((50, 3))) == pytest.approx(1)


def test_rows_of_zeros_are_one_more_kind_of_text():
    assert vendi(np.zeros((5, 3))) == pytest.approx(1)
    assert vendi(np.concatenate([np.zeros((5, 3)), np.repeat([[1.0, 0, 0]], 5, axis=0)])) == pytest.approx(2)


def test_the_order_of_rows_does_not_matter():
    rows = gaussian(0, 50)
    assert vendi(rows[::-1]) == pytest.approx(vendi(rows), rel=1e-9)


def test_bad_rows_are_refused():
    for bad, message in (
        (np.full((3, 2), np.nan), "holds NaN"),
        (np.ones((0, 2)), "at least 1"),
        (np.ones(3), "real"),
    ):
        with pytest.raises(ConfigError, match=message):
            vendi(bad)
    with pytest.raises(ConfigError, match="num_splits is 0"):
        Vendi(num_splits=0)


def test_synthetic_texts_alone_read_nothing_private():
    found = Vendi().compute(predictions=["a b", "c d", "e f", ""], embedder=StubEmbedder())
    assert 1 < found["vendi"] <= 4 and found["uses_private_data"] is False and found["num_rows"] == 4


def test_real_texts_are_scored_beside_at_the_same_number_of_rows():
    words = "film actor plot scene soup bread taste salt".split()
    rng = np.random.default_rng(0)
    real = [" ".join(rng.choice(words, 5)) for _ in range(90)]
    poor = [" ".join(rng.choice(words[:2], 5)) for _ in range(30)]
    found = Vendi().compute(predictions=poor, references=real, embedder=StubEmbedder())
    assert found["vendi"] < found["references_vendi"] and found["num_rows"] == 30
    assert found["uses_private_data"] is True and "30 rows" in found["limits"][0]
    public = Vendi().compute(predictions=poor, references=real, embedder=StubEmbedder(), public_references=True)
    assert public["uses_private_data"] is False and public["vendi"] == found["vendi"]
    with pytest.raises(ConfigError, match="predictions= is empty"):
        Vendi().compute(predictions=[], embedder=StubEmbedder())


class WidthOfTheSet:
    """An embedder whose vectors are as wide as the set has texts."""

    def embed(self, texts):
        return np.ones((len(texts), len(texts)), np.float32)


def test_sets_of_two_widths_are_refused():
    with pytest.raises(ConfigError, match="3 and 4 wide"):
        Vendi().compute(predictions=["a"] * 3, references=["b"] * 4, embedder=WidthOfTheSet())


def test_a_set_of_copies_is_said_to_be_one():
    found = Vendi().compute(predictions=["a b"] * 4, references=["a b", "c d"] * 2, embedder=StubEmbedder())
    assert found["vendi"] == pytest.approx(1) and found["limits"] == ["all texts of predictions are the same to vendi"]
