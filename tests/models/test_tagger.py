import pytest

from hf_dpsynth.errors import AssetError
from hf_dpsynth.models.base import Tagger
from hf_dpsynth.models.tagger import SpacyTagger

pytest.importorskip("spacy")


@pytest.fixture(scope="module")
def tagger():
    return SpacyTagger()


def test_words_get_universal_tags(tagger):
    assert tagger.tag(["The cat sat on the mat.", ""]) == [
        ["DET", "NOUN", "VERB", "ADP", "DET", "NOUN", "PUNCT"],
        [],
    ]
    assert isinstance(tagger, Tagger)


def test_every_token_gets_one_tag(tagger):
    text = "I don't like it, do you?"
    assert len(tagger.tokenize(text)) == len(tagger.tag([text])[0])
    assert tagger.tag_tokens([tagger.tokenize(text), []]) == [tagger.tag([text])[0], []]


def test_only_what_tagging_needs_is_loaded(tagger):
    tagger.tag(["x"])
    assert tagger._pipeline.pipe_names == ["tok2vec", "tagger", "attribute_ruler"]
    assert tagger._pipeline.component_names == ["tok2vec", "tagger", "attribute_ruler"]


def test_a_folder_that_holds_no_pipeline_is_an_asset_error(tmp_path):
    with pytest.raises(AssetError, match="does not load as a spaCy pipeline"):
        SpacyTagger(str(tmp_path)).tag(["x"])
