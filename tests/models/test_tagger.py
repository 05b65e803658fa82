import itertools
import time

import numpy as np
import pytest

from hf_dpsynth.errors import AssetError, ConfigError
from hf_dpsynth.models.base import Tagger
from hf_dpsynth.models.tagger import SpacyTagger
from hf_dpsynth.models.tags import TAGS

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


class Recorded:
    """A pipeline that remembers which batches its texts came in."""

    def __init__(self, pipeline):
        self.pipeline, self.vocab, self.batches = pipeline, pipeline.vocab, []

    def memory_zone(self):
        return self.pipeline.memory_zone()

    def pipe(self, pieces, batch_size):
        pieces = iter(pieces)
        while batch := list(itertools.islice(pieces, batch_size)):
            self.batches.append([len(piece) for piece in batch])
            yield from self.pipeline.pipe(batch, batch_size=batch_size)


def test_no_text_shares_a_matrix_product_with_another(tagger, monkeypatch):
    sentences = [["the", "old", "doctor"], [], ["wrote"], ["a"] * 2500]
    alone = [tagger.tag_words([sentence])[0].tolist() for sentence in sentences]
    recorded = Recorded(tagger._load())
    monkeypatch.setattr(tagger, "_pipeline", recorded)
    assert [codes.tolist() for codes in tagger.tag_words(sentences)] == alone
    assert recorded.batches == [[3], [1], [1024], [1024], [452]]
    assert [len(codes) for codes in alone] == [3, 0, 1, 2500]


def test_words_get_one_of_eleven_classes(tagger):
    (codes,) = tagger.tag_words([["she", "did", "n't", "go", "to", "london", ",", "and", "laughed"]])
    assert codes.dtype == np.int8
    assert [TAGS[code] for code in codes] == ["PRON", "VERB", "PRT", "VERB", "ADP", "NOUN", "X", "CONJ", "VERB"]


@pytest.mark.parametrize(
    "word", ["\u05e9\u05dc\u05d5\u05dd", "\U0001f600", "\x00", "\ud800", "\u4f60\u597d", " ", "", "x" * 10**6]
)
def test_no_word_is_an_error(tagger, word):
    (codes,) = tagger.tag_words([["good", word, "good"]])
    assert codes.shape == (3,)
    tagger.tag([f"good {word} good"])


@pytest.mark.parametrize("unit", ["good ", "(", "a.", "\u4f60"])
def test_time_is_linear_and_no_letter_is_lost(tagger, unit):
    text = unit * (60_000 // len(unit))
    seconds = []
    for part in (text[: len(text) // 4], text):
        start = time.process_time()
        tokens = tagger.tokenize(part)
        seconds.append(time.process_time() - start)
    assert "".join(tokens) == text.replace(" ", "")
    assert seconds[1] < 3 and seconds[1] < 8 * seconds[0] + 0.2


@pytest.mark.slow
def test_a_megabyte_is_tagged(tagger):
    (tags,) = tagger.tag(["good " * 220_000])
    assert len(tags) == 220_000


def test_texts_are_tokenized_as_spacy_does(tagger):
    text = (
        "  I don't  like it,\n do you (a.k.a. U.S.)? https://example.org/a?b=c :-) 10km e.g. \u201cwell-known\u201d "
    )
    assert tagger.tokenize(text) == [token.text for token in tagger._load().make_doc(text)]


def test_the_strings_of_a_call_are_forgotten(tagger):
    tagger.tag_words([["unforgettablexq"]])
    tagger.tokenize("unforgettablexr")
    strings = tagger._load().vocab.strings
    assert "unforgettablexq" not in strings and "unforgettablexr" not in strings


def test_a_pipeline_that_tags_no_words_is_refused(tmp_path):
    spacy = pytest.importorskip("spacy")
    spacy.blank("de").to_disk(tmp_path / "blank")
    with pytest.raises(ConfigError, match=r"blank@.* has no component that tags words .* 'de'"):
        SpacyTagger(str(tmp_path / "blank")).tag(["x"])
