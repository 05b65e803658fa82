import numpy as np
import pytest

from hf_dpsynth.errors import AssetError
from hf_dpsynth.models import catalog
from hf_dpsynth.models.glove import convert_glove
from hf_dpsynth.models.word_vectors import load_vectors

TEXT = "5 2\nthe 1 2\nat\u00a0 name@domain.com 9 9\nThe 7 7\ncafé 3 4\nʃ 5 6\n"


def test_a_text_becomes_a_matrix_and_words_without_white_space(tmp_path):
    (tmp_path / "glove.txt").write_text(TEXT, encoding="utf-8")
    convert_glove(tmp_path, "glove.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vectors.npy", "vectors.txt"]
    found = load_vectors(tmp_path)
    assert found.words == ("the", "café", "ʃ")
    np.testing.assert_array_equal(found.vectors, [[1, 2], [3, 4], [5, 6]])


def test_a_text_that_is_cut_short_is_no_asset(tmp_path):
    (tmp_path / "glove.txt").write_text(TEXT.replace("ʃ 5 6\n", ""), encoding="utf-8")
    with pytest.raises(AssetError, match=r"glove\.txt could not be converted: .*promises 5 words"):
        convert_glove(tmp_path, "glove.txt")


def test_word_vectors_of_the_catalogue_are_converted_where_they_are_text(tmp_path):
    rows = {asset.name: asset for asset in catalog.models()}
    assert catalog._converter(rows["glove-50d"]) is None
    (tmp_path / "glove.txt").write_text(TEXT, encoding="utf-8")
    catalog._converter(rows["glove-300d"])(tmp_path)
    assert len(load_vectors(tmp_path)) == 3


@pytest.mark.slow
@pytest.mark.network
def test_the_300_dimensional_vectors_of_the_catalogue_load():
    found = load_vectors("glove-300d")
    assert (found.id, found.vectors.shape) == ("glove-300d", (33_849, 300))
    assert found.words[:5] == ("the", "and", "to", "of", "a")
    assert not any(sign.isspace() for word in found.words for sign in word)
