import gzip
from collections import Counter
from importlib.resources import files

import numpy as np
import pytest

from hf_dpsynth.errors import MissingExtra
from hf_dpsynth.models import lexicon
from hf_dpsynth.models.lexicon import lexical_tags
from hf_dpsynth.models.tags import TAGS, tag_codes
from hf_dpsynth.models.word_vectors import load_vectors

# The 17 tags of Universal Dependencies (universaldependencies.org/u/pos) and their classes of Petrov et al. 2012.
UNIVERSAL = {
    "ADJ": "ADJ",
    "ADP": "ADP",
    "ADV": "ADV",
    "AUX": "VERB",
    "CCONJ": "CONJ",
    "DET": "DET",
    "INTJ": "X",
    "NOUN": "NOUN",
    "NUM": "NUM",
    "PART": "PRT",
    "PRON": "PRON",
    "PROPN": "NOUN",
    "PUNCT": "X",
    "SCONJ": "CONJ",
    "SYM": "X",
    "VERB": "VERB",
    "X": "X",
}


def names(codes):
    return [TAGS[code] for code in codes]


def test_every_universal_tag_falls_into_one_of_eleven_classes():
    assert len(set(TAGS)) == 11 and set(UNIVERSAL.values()) == set(TAGS)
    assert names(tag_codes(list(UNIVERSAL))) == list(UNIVERSAL.values())
    assert names(tag_codes(["", "SPACE", "unheard"])) == ["X", "X", "X"]


def test_the_table_holds_the_default_vocabulary_and_needs_no_tagger(monkeypatch):
    monkeypatch.setattr(lexicon, "tag_alone", None)
    words = load_vectors("glove-50d").words
    codes = lexical_tags(words)
    assert codes.shape == (50_000,) and codes.dtype == np.int8 and not codes.flags.writeable
    assert set(lexicon._table()) == set(words)
    assert lexical_tags(words) is codes
    assert lexical_tags(words[::-1]).tolist() == codes[::-1].tolist()
    assert set(names(codes)) == set(TAGS) and Counter(names(codes)).most_common(1)[0][0] == "NOUN"


def test_plain_words_have_the_tags_of_a_dictionary():
    expected = {
        "NOUN": "time people london doctor water monday clinton",
        "VERB": "said is became believe ate written going",
        "ADJ": "good happy old large political terrible",
        "ADV": "quickly never very again often",
        "PRON": "he they she him it we",
        "DET": "the a every",
        "ADP": "of in with from",
        "NUM": "1979 seven 3.5 7 1,000 10:30",
        "CONJ": "and or if because",
        "PRT": "to not n't",
        "X": ", . -- ''",
    }
    for tag, words in expected.items():
        assert set(names(lexical_tags(words.split()))) == {tag}, tag


def test_the_shipped_file_is_small_and_has_each_word_once():
    packed = files("hf_dpsynth.models").joinpath(lexicon.TABLE).read_bytes()
    assert len(packed) < 300_000
    entries = [line.split(" ") for line in gzip.decompress(packed).decode().split("\n")]
    assert [entry[0] for entry in entries] == list(TAGS)
    assert sum(len(entry) - 1 for entry in entries) == 50_000


def test_words_that_the_table_lacks_are_tagged_like_those_it_has():
    pytest.importorskip("spacy")
    known = ["london", "gotta", "!", "1979"]
    made = lexical_tags([*known, "unheardingly", "55,555.5", "\u05e9\u05dc\u05d5\u05dd", "\ud800", "!!!!!!!", ""])
    assert made[:4].tolist() == lexical_tags(known).tolist()
    assert names(made[[4, 5, 8, 9]]) == ["ADV", "NUM", "X", "X"]


def test_without_a_tagger_only_the_tables_words_have_tags(monkeypatch):
    def missing(module, **_):
        raise MissingExtra(module)

    monkeypatch.setattr("hf_dpsynth.models.tagger.need", missing)
    assert names(lexical_tags(["london"])) == ["NOUN"]
    with pytest.raises(MissingExtra, match=r"50000 words and lacks 2 of the 3 .*hf-dpsynth\[tagger\]"):
        lexical_tags(["london", "unheardness", "unheardly"])


@pytest.mark.slow
def test_the_table_is_what_the_tagger_makes():
    pytest.importorskip("spacy")
    words = load_vectors("glove-50d").words[::100]
    assert lexicon.tag_alone(words).tolist() == lexical_tags(words).tolist()
