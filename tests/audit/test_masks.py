"""Mask inference: a context that tells is caught, a text of noise is not accused, and no guess reads its own word."""

from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest

from hf_dpsynth.audit import audit_masks
from hf_dpsynth.audit.word_guesses import LocalGuesser, WordGuesser, load_guesser
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.mechanisms.word.madlib import Madlib
from hf_dpsynth.models.word_vectors import load_vectors
from hf_dpsynth.privacy.keys import Key
from tests.mechanisms import tiny

COMMON = load_vectors("glove-50d", max_words=400)
PLAIN = [word for word in COMMON.words if word.isalpha()]


def chained(rows=100, words=20, seed=0):
    """Texts in which each word is followed by the next one of the vocabulary nine times in ten."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(rows):
        place, text = int(rng.integers(len(PLAIN))), []
        for _ in range(words):
            text.append(PLAIN[place])
            place = (place + 1) % len(PLAIN) if rng.random() < 0.9 else int(rng.integers(len(PLAIN)))
        made.append(" ".join(text))
    return made


class Bigrams:
    """Guesses the words that followed the word before most often in public texts."""

    def __init__(self, public):
        self.followed = defaultdict(Counter)
        for text in public:
            words = text.split()
            for before, after in pairwise(words):
                self.followed[before][after] += 1

    def guess(self, words, gaps, places, top):
        before = ["" if place == 0 else words[place - 1] for place in places]
        return [[word for word, _ in self.followed[one].most_common(top)] for one in before]


MODEL = Bigrams(chained(400, seed=1))


def released(epsilon, originals):
    return Madlib().privatize(originals, COMMON, epsilon, Key.from_insecure_seed(1).generator)


def rates(made, originals, **more):
    found = audit_masks(made, originals, model=MODEL, vectors=COMMON, **more)
    return {one.metric: one.value for one in found.findings}


def test_a_context_that_came_out_as_it_was_tells_what_the_original_one_tells():
    found = rates(chained(), chained())
    assert found["words_inferred"] == found["words_inferred_from_originals"] > 0.8
    assert found["words_inferred_top_10"] >= found["words_inferred"]


def test_more_noise_means_fewer_words_inferred():
    """2000 words: four standard errors of a difference are below .063; the rates are further apart than that."""
    measured = [rates(released(epsilon, chained()), chained()) for epsilon in (0.1, 6.0, 12.0, 60.0)]
    inferred = [found["words_inferred"] for found in measured]
    assert (np.diff(inferred) > 0.063).all() and inferred[-1] > 0.8
    assert len({found["words_inferred_from_originals"] for found in measured}) == 1


def test_a_context_of_noise_tells_no_more_than_frequency():
    """2000 words of one frequency: chance is 1 in 360, and a rate above .012 is four standard errors off."""
    found = rates(released(0.01, chained()), chained())
    assert found["words_inferred"] < 0.012 and found["words_by_frequency"] < 0.012
    assert found["words_inferred_from_originals"] > 0.8


def test_words_are_counted_up_to_the_limit_and_by_a_public_draw_of_texts():
    found = audit_masks(chained(30), chained(30), model=MODEL, vectors=COMMON, words=25, top=1)
    assert {one.n for one in found.findings} == {25}
    assert [one.metric for one in found.findings] == [
        "words_inferred", "words_inferred_from_originals", "words_by_frequency"
    ]  # fmt: skip
    assert found == audit_masks(chained(30), chained(30), model=MODEL, vectors=COMMON, words=25, top=1)
    assert all(one.uses_private_data and one.interval[0] <= one.value <= one.interval[1] for one in found.findings)


def test_words_that_the_vocabulary_lacks_are_not_guessed_at():
    found = audit_masks(["city of people", None], ["people of zqprivate", "the"], model=MODEL, vectors=COMMON)
    assert found["words_inferred"].n == 2 and "zqprivate" not in str(found.to_json())


@pytest.mark.parametrize("kind", ["causal", "gpt2", "masked"])
def test_a_local_model_guesses_a_word_by_its_context_alone(tmp_path, kind):
    save = {"causal": tiny.save, "gpt2": lambda folder: tiny.save(folder, "gpt2"), "masked": tiny.save_masked}[kind]
    guesser = load_guesser(save(tmp_path))
    assert isinstance(guesser, LocalGuesser) and guesser.sees_both_sides == (kind == "masked")
    words, gaps = ["good", "film", "bad"], ["", " ", " ", ""]
    one = guesser.guess(words, gaps, [0, 1, 2], 5)
    assert [len(found) for found in one] == [5, 5, 5]
    assert all(word == word.lower() and "<" not in word for found in one for word in found)
    for place in range(3):
        other = [*words[:place], "awful", *words[place + 1 :]]
        assert guesser.guess(other, gaps, [place], 5) == [one[place]], "the word itself was read"
    seen_before = guesser.guess(["awful", "film", "bad"], gaps, [2], 30)[0]
    assert seen_before != guesser.guess(words, gaps, [2], 30)[0], "what stands before was not read"
    seen_behind = guesser.guess(["good", "film", "awful"], gaps, [0], 30)[0]
    assert (seen_behind != guesser.guess(words, gaps, [0], 30)[0]) == (kind == "masked")


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_a_text_beyond_the_context_is_cut_and_not_refused(tmp_path, kind):
    guesser = load_guesser((tiny.save if kind == "causal" else tiny.save_masked)(tmp_path))
    words = ["good"] * 90
    found = guesser.guess(words, ["", *[" "] * 89, ""], [0, 89], 3)
    assert len(found[0]) == 3 and len(found[1]) == (3 if kind == "masked" else 0)


def test_a_trained_model_would_be_asked_with_the_words_it_knows(tmp_path):
    """The tiny model's guesses are those of its own logits at the end of the text before the word."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tiny.save(tmp_path)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    tokens = [tokenizer.bos_token_id, *tokenizer("good film", add_special_tokens=False)["input_ids"]]
    with torch.inference_mode():
        logits = model(torch.tensor([tokens])).logits[0, -1]
    order = [tokenizer.convert_ids_to_tokens(int(token)) for token in logits.argsort(descending=True)]
    wanted = [word for word in order if word.isalnum()][:3]
    found = load_guesser(folder).guess(["good", "film", "bad"], ["", " ", " ", ""], [2], 3)[0]
    assert found == [word.lower() for word in wanted]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "http://127.0.0.1:1/v1#m"}, "model= is an address"),
        ({"model": 5}, "model= is a int"),
        ({"words": 0}, "words is 0"),
        ({"originals": ["zqprivate"]}, "no word of the originals"),
    ],
)
def test_what_cannot_be_attacked_is_refused_without_private_text(change, words):
    given = {"privatized": ["city"], "originals": ["people"], "vectors": COMMON, "model": MODEL} | change
    with pytest.raises(ConfigError, match=words) as error:
        audit_masks(given.pop("privatized"), given.pop("originals"), **given)
    assert "zqprivate" not in str(error.value)


def test_a_model_that_skips_places_is_refused():
    class Silent:
        def guess(self, words, gaps, places, top):
            return []

    assert isinstance(Silent(), WordGuesser)
    with pytest.raises(ConfigError, match="gave guesses for 0 places of 1"):
        audit_masks(["city"], ["people"], model=Silent(), vectors=COMMON)
