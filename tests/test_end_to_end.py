"""The main job on real text with the real models of the catalogue."""

import numpy as np
import pytest

import hf_dpsynth
from tests.stubs import files_with


@pytest.fixture(scope="module")
def reviews():
    return hf_dpsynth.data.load("movie")["train"]


def test_smollm2_and_minilm_synthesize_labelled_reviews_and_resume_for_free(reviews, tmp_path):
    private = reviews.select(range(64))

    def synth():
        return private.synthesize(
            "aug-pe", epsilon=4, delta=1e-3, text_column="text", label_column="label", num_rows=6,
            out=tmp_path / "run",
            params={"iterations": 2, "variations": 3, "max_new_tokens": 12, "subject": "movie review"},
        )  # fmt: skip

    out = synth()
    assert len(out) == 6 and out.features == private.features
    assert all(len(text.split()) > 1 for text in out["text"])
    assert [charge.key for charge in out.privacy.charges] == ["label-counts", "votes-001", "votes-002"]
    assert "(4, 0.001)-differentially private per record under add-remove adjacency" in out.privacy.statement()
    assert "row" not in out.privacy.statement(), "our own embedder embeds rows independently, without an assumption"
    for text in private["text"][:]:
        assert files_with(tmp_path, text) == []
    again = synth()
    assert again["text"][:] == out["text"][:] and again.privacy.charges == out.privacy.charges


def test_madlib_changes_real_reviews_over_glove_and_keeps_their_shape(reviews):
    private = reviews.select(range(40))
    out = private.privatize("madlib", epsilon=8, text_column="text", keep_columns=["label"])
    assert out["label"][:] == private["label"][:] and out.features == private.features
    changed = np.mean([a != b for a, b in zip(out["text"][:], private["text"][:], strict=True)])
    assert changed > 0.9
    assert "label" in out.privacy.statement()


def test_workers_and_batches_do_not_change_the_noise(reviews):
    private = reviews.select(range(30))
    ways = [{}, {"batch_size": 7}, {"num_proc": 2}, {"num_proc": 3, "batch_size": 4}]
    texts = [private.privatize("madlib", epsilon=5, insecure_noise_seed=1, **way)["text"][:] for way in ways]
    assert all(other == texts[0] for other in texts)
    assert private.privatize("madlib", epsilon=5)["text"][:] != private.privatize("madlib", epsilon=5)["text"][:]


def test_an_edited_row_gets_fresh_noise_and_the_others_keep_theirs(reviews):
    private = reviews.select(range(20))
    texts = private["text"][:]
    edited = private.remove_columns("text").add_column("text", [texts[0] + " indeed", *texts[1:]])
    kwargs = {"epsilon": 5, "text_column": "text", "insecure_noise_seed": 1}
    one, other = (ds.privatize("madlib", **kwargs)["text"][:] for ds in (private, edited))
    assert one[1:] == other[1:]
    assert one[0].split()[:3] != other[0].split()[:3]
