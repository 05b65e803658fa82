import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.models.word_vectors import WordVectors, load_vectors


def made(rows, name="made"):
    return WordVectors(("7", "9", *(f"w{row}" for row in range(len(rows) - 2))), rows, name)


def random_rows(seed, count, width, spread=3.0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((count, width)) * np.logspace(0, -spread, width) + rng.standard_normal(width)


def distances(vectors):
    points = np.concatenate([vectors.vectors, vectors.unk[None], vectors.number[None]]).astype(np.float64)
    return np.linalg.norm(points[:, None] - points[None], axis=2)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    width=st.integers(1, 12),
    dimensions=st.integers(1, 12),
    scale=st.sampled_from([1e-12, 1.0, 1e9]),
    near=st.sampled_from([0.0, 1e-7, 1e-3, 1.0]),
)
def test_no_two_points_move_apart_when_reduced(seed, width, dimensions, scale, near):
    rows = random_rows(seed, 20, width) * scale
    rows[10:] = rows[:10] + near * (rows[10:] - rows[:10])
    full = made(rows)
    before, after = distances(full), distances(full.reduced(min(dimensions, width)))
    longest = np.linalg.norm(full.vectors.astype(np.float64), axis=1).max()
    far = before >= longest / 256
    assert far.any() and (after[far] <= before[far]).all()
    assert (after <= before + longest * 2.0**-20).all()


def test_the_axes_are_the_principal_ones_and_nothing_is_scaled_but_by_a_4096th():
    full = made(random_rows(0, 200, 6))
    centred = full.vectors.astype(np.float64) - full.vectors.mean(axis=0, dtype=np.float64)
    values = np.linalg.svd(centred, compute_uv=False)
    whole = full.reduced(6)
    axes = np.linalg.lstsq(centred, whole.vectors.astype(np.float64))[0]
    assert (axes[np.abs(axes).argmax(axis=0), np.arange(6)] > 0).all()  # else a sign is the solver's to choose
    np.testing.assert_allclose(distances(whole), distances(full) * (1 - 2.0**-12), rtol=1e-5, atol=1e-6)
    for dimensions in (1, 3, 6):
        rows = full.reduced(dimensions).vectors.astype(np.float64)
        assert rows.shape == (200, dimensions)
        np.testing.assert_allclose(rows.T @ rows, np.diag(values[:dimensions] ** 2), rtol=1e-3, atol=2e-2)
        np.testing.assert_allclose(rows, whole.vectors[:, :dimensions], rtol=1e-5, atol=1e-6)


def test_unknown_words_and_numbers_stand_at_the_means_of_the_reduced_vectors():
    reduced = made(random_rows(1, 50, 5)).reduced(2)
    np.testing.assert_allclose(reduced.unk, reduced.vectors.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(reduced.number, reduced.vectors[:2].mean(axis=0), atol=1e-6)
    assert reduced.id == "made|pca2" and reduced.words[:2] == ("7", "9")
    assert reduced.most_frequent(10).id == "made|pca2[:10]"


CODE = """
import hashlib, numpy as np
from hf_dpsynth.models.word_vectors import WordVectors
rng = np.random.default_rng(5)
full = WordVectors(tuple(map(str, range(3000))), rng.standard_normal((3000, 40)), "made")
print(hashlib.sha256(full.reduced(10).vectors.tobytes()).hexdigest(), full.scales())
"""


def test_reduced_vectors_and_scales_are_the_same_in_every_process():
    rng = np.random.default_rng(5)
    full = WordVectors(tuple(map(str, range(3000))), rng.standard_normal((3000, 40)), "made")
    here = f"{hashlib.sha256(full.reduced(10).vectors.tobytes()).hexdigest()} {full.scales()}"
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == here


@pytest.mark.parametrize("dimensions", [0, -1, 6, 2.0, True, None])
def test_vectors_cannot_be_reduced_to_no_or_more_dimensions(dimensions):
    with pytest.raises(ConfigError, match=f"dimensions is {dimensions}; made can be reduced to 1 to 5 dimensions"):
        made(random_rows(2, 10, 5)).reduced(dimensions)


def test_privatize_takes_reduced_vectors_and_names_them(tmp_path):
    from datasets import Dataset

    full = made(random_rows(3, 30, 5))
    out = Dataset.from_dict({"text": ["w1 7 w3 unknown 12345"]}).privatize(
        "madlib", epsilon=float("inf"), vectors=full.reduced(5)
    )
    assert out["text"][0].split()[:3] == ["w1", "7", "w3"]
    assert out.privacy.plan.model_ids["vectors"].startswith("made|pca5@")


def test_scales_are_medians_of_distances():
    line = WordVectors(tuple("abcd"), np.array([[-5.0], [0.0], [1.0], [6.0]]), "line")
    assert line.scales().nearest == 3.0  # 5, 1, 1, 5
    assert line.scales().pair in (5.0, 6.0)  # 1, 5, 5, 6, 6, 11
    assert line.scales() is line.scales()
    pair = WordVectors(("a", "b"), np.array([[0.0, 0.0], [3.0, 4.0]]), "pair")
    assert (pair.scales().nearest, pair.scales().pair) == (5.0, 5.0)
    twins = WordVectors(("a", "b"), np.ones((2, 3)), "twins")
    assert (twins.scales().nearest, twins.scales().pair) == (0.0, 0.0)


def test_scales_of_a_sample_are_close_to_those_of_all_words():
    full = made(random_rows(4, 2500, 4, spread=0.5))
    gaps = np.linalg.norm(full.vectors[:, None] - full.vectors[None], axis=2)
    pairs = np.median(gaps[np.triu_indices(2500, 1)])
    np.fill_diagonal(gaps, np.inf)
    # Medians of 1,000 words and of 10,000 pairs have standard errors of about 2 % and 1 %; 5 times that is allowed.
    assert full.scales().nearest == pytest.approx(np.median(gaps.min(axis=1)), rel=0.10)
    assert full.scales().pair == pytest.approx(pairs, rel=0.05)


def test_scales_of_the_shipped_vectors():
    vectors = load_vectors("glove-50d")
    found = vectors.scales()
    assert vectors.id == "glove-50d" and len(vectors) == 50_000
    assert found.nearest == pytest.approx(2.914, abs=0.01) and found.pair == pytest.approx(6.680, abs=0.01)
