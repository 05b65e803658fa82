import sqlite3
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from tqdm import tqdm

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.metrics import embedding
from hf_dpsynth.metrics.embedding import EmbeddingMetric, embed
from tests.stubs import CANARY, StubEmbedder, files_with


class Named(StubEmbedder):
    id = "stub"


class Fixed:
    def __init__(self, *arrays):
        self.arrays = list(arrays)

    def embed(self, texts):
        return self.arrays.pop(0) if len(self.arrays) > 1 else self.arrays[0]


@dataclass(frozen=True, kw_only=True)
class Gap(EmbeddingMetric):
    name: ClassVar[str] = "gap"
    description: ClassVar[str] = "Distance of means."
    source: ClassVar[str] = "-"
    higher_is_better: ClassVar[bool] = False

    def score(self, predictions, references, *, seed):
        return float(np.linalg.norm(predictions.mean(0) - references.mean(0)))


def test_embedding_in_blocks_is_embedding_at_once(monkeypatch):
    texts = [f"text {i}" for i in range(10)]
    monkeypatch.setattr(embedding, "_BLOCK", 3)
    assert np.array_equal(embed(texts, StubEmbedder(), what="references", public=False), StubEmbedder().embed(texts))


def test_a_cache_saves_the_second_call_and_goes_on_after_an_interruption(monkeypatch, tmp_path):
    texts = [f"text {i}" for i in range(10)] + ["text 0"]
    monkeypatch.setattr(embedding, "_BLOCK", 3)

    class Interrupted(Named):
        def embed(self, rows):
            if self.calls == 2:
                raise KeyboardInterrupt
            return super().embed(rows)

    Interrupted.__name__ = Named.__name__
    path = tmp_path / "sub" / "vectors.db"
    with pytest.raises(KeyboardInterrupt):
        embed(texts, Interrupted(), what="predictions", public=True, cache=path)
    second, third = Named(), Named()
    found = embed(texts, second, what="predictions", public=True, cache=path)
    assert second.calls == 2 and np.array_equal(found, StubEmbedder().embed(texts))
    assert np.array_equal(embed(texts, third, what="predictions", public=True, cache=path), found) and third.calls == 0


def test_another_model_does_not_read_the_cache_of_the_first(tmp_path):
    class Other(Named):
        id = "other"

    other = Other()
    for model in (Named(), other):
        embed(["a"], model, what="predictions", public=True, cache=tmp_path / "v.db")
    assert other.calls == 1


def test_vectors_of_private_texts_are_never_cached(tmp_path):
    with pytest.raises(ConfigError, match="never cached"):
        embed([CANARY], Named(), what="references", public=False, cache=tmp_path / "v.db")
    Gap().compute(predictions=["a"] * 4, references=[CANARY] * 4, embedder=Named(), cache=tmp_path / "v.db")
    with sqlite3.connect(tmp_path / "v.db") as database:
        assert database.execute("SELECT count(*) FROM vectors").fetchone() == (1,)
    database.close()
    assert files_with(tmp_path, CANARY) == []


def test_a_file_that_is_no_cache_is_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("notes " * 999)
    with pytest.raises(ConfigError, match="no cache of vectors"):
        embed(["a"], Named(), what="predictions", public=True, cache=path)
    assert path.read_text() == "notes " * 999


def test_a_private_set_that_does_not_fit_lies_in_a_file_without_a_name(monkeypatch, tmp_path):
    monkeypatch.setattr(embedding, "free_memory", lambda: 100)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = embed(["a", "b"], StubEmbedder(), what="references", public=False)
    assert isinstance(found, np.memmap) and np.array_equal(found, StubEmbedder().embed(["a", "b"]))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "made",
    [np.full((2, 3), np.nan), np.full((2, 3), np.inf), np.zeros(2), np.zeros((1, 3)), np.zeros((2, 0)), [["a"]] * 2],
)
def test_embeddings_that_are_none_are_refused_without_showing_a_text(made):
    with pytest.raises(ConfigError) as caught:
        embed([CANARY, "b"], Fixed(made), what="references", public=False)
    assert CANARY not in str(caught.value) and "references" in str(caught.value)


def test_an_embedder_of_two_widths_is_refused(monkeypatch):
    monkeypatch.setattr(embedding, "_BLOCK", 2)
    with pytest.raises(ConfigError, match="width 3, then 4"):
        embed(["a", "b", "c", "d"], Fixed(np.zeros((2, 3)), np.zeros((2, 4))), what="references", public=False)


def test_no_texts_are_refused():
    with pytest.raises(ConfigError, match="predictions= is empty"):
        Gap().compute(predictions=[], references=["a"] * 4, embedder=StubEmbedder())


def test_a_bar_over_private_texts_shows_no_count(monkeypatch, capsys):
    monkeypatch.setattr(embedding, "progress_bar", lambda **options: tqdm(**options))
    embed(["a"] * 1234, StubEmbedder(), what="references", public=False)
    hidden = capsys.readouterr().err
    embed(["a"] * 1234, StubEmbedder(), what="predictions", public=True)
    shown = capsys.readouterr().err
    assert "1234" not in hidden and "%" not in hidden and "references" in hidden and "1234" in shown
