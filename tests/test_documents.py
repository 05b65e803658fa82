"""Whatever a record holds and however long it is: a clear result or a clear error, on data sets and on streams."""

import re
import subprocess
import sys
import time

import numpy as np
import pytest
from datasets import Dataset, Features, List, Value

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word.text import PUNCTUATION
from hf_dpsynth.models.word_vectors import WordVectors
from hf_dpsynth.privacy.keys import Key
from tests.stubs import ROOT

WORDS = tuple(f"word{one}{other}" for one in "abcdefghij" for other in "abcdefghij")
VECTORS = WordVectors(WORDS, np.random.default_rng(1).standard_normal((len(WORDS), 8)), "small")
MECHANISMS = ("madlib",)
MEGABYTE = 1_000_000
MOST_SECONDS, MOST_MEGABYTES = 10, 400

pytestmark = [
    pytest.mark.parametrize("form", ["dataset", "stream"]),
    pytest.mark.parametrize("mechanism", MECHANISMS),
]


def privatized(values, mechanism, form, column="text", features=None, **more):
    """The texts that come out for one column."""
    ds = Dataset.from_dict({column: values}, features=features)
    ds = ds if form == "dataset" else ds.to_iterable_dataset()
    settings = {"epsilon": 3.0, "text_column": column, "vectors": VECTORS} | more
    return [row[column] for row in ds.privatize(mechanism, **settings)]


ODD = {
    "": 0,
    "  \n\t": 0,
    "\u00a0\u2028": 0,
    "!?": 0,
    "\U0001f600\U0001f600 wordaa": 2,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467": 1,
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd": 2,
    "\u0645\u0631\u062d\u0628\u0627\u060c wordaa": 2,
    "\u202ewordaa wordbb": 2,
    "\x00": 1,
    "a\x00b wordaa": 2,
    "wordaa\x07": 1,
    "\u4f60\u597d\u4e16\u754c": 1,
    "19,500.75 3.14": 2,
    "WordAA, wordbb!": 2,
}


def test_odd_text_becomes_words_of_the_vocabulary(mechanism, form):
    out = privatized([*ODD, None], mechanism, form)
    assert out.pop() is None
    for text, (source, words) in zip(out, ODD.items(), strict=True):
        found = [word for word in re.split("[ " + re.escape(PUNCTUATION) + "]+", text) if word]
        assert set(found) <= set(WORDS) and len(found) == words, source
        assert words or not text.strip(PUNCTUATION)
    assert out[:4] == ["", "", "", "!?"]


@pytest.mark.parametrize(
    ("dtype", "values"), [("int64", [1, None, -30]), ("float32", [0.5, None, 1e30]), ("uint8", [0, None, 255])]
)
def test_a_named_column_of_numbers_is_read_as_text(mechanism, form, dtype, values):
    features = Features({"code": Value(dtype)})
    out = privatized(values, mechanism, form, "code", features)
    assert out[1] is None and all(out[::2]) and all(isinstance(text, str) for text in out[::2])
    same = privatized([None if v is None else str(v) for v in Dataset.from_dict({"code": values}, features)["code"]],
                      mechanism, form, "code", insecure_noise_seed=1)  # fmt: skip
    assert privatized(values, mechanism, form, "code", features, insecure_noise_seed=1) == same


@pytest.mark.parametrize(
    ("values", "features", "words"),
    [
        ([["secret"]], None, r"column 'text' holds List\(Value\('string'\).*not text"),
        ([[0.5]], None, r"holds List\(Value\('float64'\)"),
        ([{"body": "secret"}], None, r"holds \{'body': Value\('string'\)\}"),
        ([True], None, r"holds Value\('bool'\)"),
        ([b"secret"], None, r"holds Value\('binary'\)"),
        ([[{"role": "user", "content": "secret"}]], None, "holds conversations"),
        ([[["secret"]]], Features({"text": List(List(Value("string")))}), r"holds List\(List\("),
    ],
)
def test_a_column_that_is_no_text_is_refused_by_its_type(mechanism, form, values, features, words):
    with pytest.raises(ConfigError, match=words) as caught:
        privatized(values, mechanism, form, features=features)
    assert "secret" not in str(caught.value)


def test_kept_columns_are_named_and_all_others_dropped(mechanism, form):
    ds = Dataset.from_dict({"id": [1], "text": ["wordaa"], "stars": [5], "tags": [["a"]], "note": ["secret"]})
    ds = ds if form == "dataset" else ds.to_iterable_dataset()
    out = ds.privatize(mechanism, epsilon=3.0, text_column="text", keep_columns=["tags", "stars"], vectors=VECTORS)
    assert list(out.features) == ["text", "stars", "tags"] == list(next(iter(out)))
    assert [out.features[name] for name in ("stars", "tags")] == [ds.features[name] for name in ("stars", "tags")]
    assert next(iter(out))["tags"] == ["a"]
    release = out.privacy
    assert release.plan.kept_columns == ("tags", "stars")
    assert "columns copied in clear are not protected: tags, stars" in release.statement()
    assert "column copied in clear: tags: public, not protected" in release.card().replace("&#58;", ":")
    bare = ds.privatize(mechanism, epsilon=3.0, text_column="text", vectors=VECTORS)
    assert list(bare.features) == ["text"] and "in clear" not in bare.privacy.statement()


def long_texts():
    """Units of which a megabyte is one record."""
    rng = np.random.default_rng(5)
    page = " ".join(rng.choice(WORDS, size=1000)) + ". "
    return {"words": page, "short words": "a ", "one word": "a", "joined": "a.", "emoji": "\U0001f600 ", "marks": "?!"}


@pytest.mark.parametrize("unit", long_texts())
def test_a_megabyte_takes_seconds_and_time_linear_in_its_length(mechanism, form, unit):
    part = long_texts()[unit]
    text = (part * (MEGABYTE // len(part.encode()) + 1)).encode()[:MEGABYTE].decode(errors="ignore")
    privatized(["wordaa"], mechanism, form)
    seconds = []
    for record in (text[: len(text) // 4], text):
        start = time.process_time()
        (out,) = privatized([record], mechanism, form)
        seconds.append(time.process_time() - start)
    assert seconds[1] < MOST_SECONDS and seconds[1] < 10 * seconds[0] + 0.5, seconds
    assert len(out) >= 1


def test_a_long_record_is_the_same_on_a_stream_and_whatever_stands_beside_it(mechanism, form):
    text = long_texts()["words"] * 40
    alone, beside = (
        privatized([text, *more], mechanism, form, insecure_noise_seed=1) for more in ([], ["wordaa"] * 9)
    )
    other = privatized([text], mechanism, "dataset" if form == "stream" else "stream", insecure_noise_seed=1)
    assert alone[0] == beside[0] == other[0] and len(alone[0].split()) == 40_000


class Counting:
    """A generator that notes how many numbers are drawn from it at a time."""

    def __init__(self, generator, drawn):
        self._generator, self._drawn = generator, drawn

    def __getattr__(self, name):
        draw = getattr(self._generator, name)

        def noted(*args, **kwargs):
            found = draw(*args, **kwargs)
            self._drawn.append(len(np.atleast_1d(found)))
            return found

        return noted


def test_the_noise_of_a_long_record_is_drawn_in_chunks(mechanism, form, monkeypatch):
    drawn, real = [], Key.generator
    monkeypatch.setattr(Key, "generator", lambda self, *labels: Counting(real(self, *labels), drawn))
    privatized(["a " * 100_000], mechanism, form)
    assert sum(drawn) >= 100_000 and max(drawn) <= 32_768


PEAK = r"""
import re, sys
import numpy as np
from datasets import Dataset
import hf_dpsynth
from hf_dpsynth.models.word_vectors import WordVectors

words = tuple(f"word{i}" for i in range(2000))
vectors = WordVectors(words, np.random.default_rng(1).standard_normal((2000, 50)), "some")

def peak(text):
    ds = Dataset.from_dict({"text": [text]})
    ds = ds if sys.argv[2] == "dataset" else ds.to_iterable_dataset()
    out = ds.privatize(sys.argv[1], epsilon=10, vectors=vectors)
    assert len(next(iter(out))["text"].split()) == len(text.split())
    # not ru_maxrss, which a new process has from the one that started it
    return int(re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())[1]) / 1024

before = peak("word1 word2")
print(peak("a " * 500_000) - before)
"""


def test_a_megabyte_needs_bounded_memory(mechanism, form):
    command = [sys.executable, "-c", PEAK, mechanism, form]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert 0 < float(done.stdout) < MOST_MEGABYTES
