"""The inverter without training: nearest public texts, and prompts that fit whatever stands in them."""

import pytest
from datasets import Dataset

from hf_dpsynth.errors import ConfigError
from hf_dpsynth.models import NearestTextInverter, load_inverter
from hf_dpsynth.models.base import Inverter
from hf_dpsynth.models.nearest_text import beginning
from tests.mechanisms.test_dp_eda import eda
from tests.models.test_inverter import TEXTS
from tests.stubs import StubEmbedder, StubGenerator


def test_without_training_the_nearest_public_text_comes_back():
    near = load_inverter(None, encoder=StubEmbedder(), public_texts=[*TEXTS, "", TEXTS[0]])
    assert isinstance(near, Inverter) and near.dimension == 64 and near.encoder == "tests.stubs.StubEmbedder"
    vectors = StubEmbedder().embed(TEXTS)
    assert near.invert(vectors[::-1] * 3, seed=0) == TEXTS[::-1]
    between = vectors[2] + 0.9 * vectors[5]
    assert near.invert(between[None], seed=0) == [TEXTS[2]]
    with pytest.raises(ConfigError, match="no inverter and no public text"):
        load_inverter(encoder=StubEmbedder())


def test_a_generator_paraphrases_the_nearest_public_text():
    generator = StubGenerator()
    near = load_inverter(None, encoder=StubEmbedder(), public_texts=TEXTS, generator=generator)
    said = near.invert(StubEmbedder().embed(TEXTS[:3]), seed=0)
    assert [prompt.splitlines()[-1] for prompt in generator.prompts] == TEXTS[:3]
    assert len(said) == 3 and not set(said) & set(TEXTS)
    generator.generate = lambda prompts, **_: [" ", " new text ", ""]
    assert near.invert(StubEmbedder().embed(TEXTS[:3]), seed=0) == [TEXTS[0], "new text", TEXTS[2]]


LONG = {
    "words": "good film " * 3000,
    "no spaces": "\u597d" * 9000,
    "spaces": "good" + "\n \t" * 9000 + "film",
    "long words": " ".join(["awful" * 400] * 90),
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
@pytest.mark.parametrize("most", [1, 7, 200])
def test_what_a_text_begins_with_is_bounded_in_words_and_in_bytes(text, most):
    begun = beginning(text, most)
    assert begun.strip() and len(begun.split()) <= most and len(begun.encode()) <= 8 * most
    assert begun.split()[0] in text


def test_a_text_that_is_short_enough_is_paraphrased_as_it_stands():
    for text in ("a  short\n\ntext ", " ".join(["film"] * 200), "x" * 1600):
        assert beginning(text, 200) == text
    with pytest.raises(ConfigError, match="max_words is 0"):
        NearestTextInverter(TEXTS, encoder=StubEmbedder(), max_words=0)


class Narrow(StubGenerator):
    """Refuses, as a local model does, a prompt that is longer than its context: here of 1,800 bytes."""

    def generate(self, prompts, **more):
        if longest := [prompt for prompt in prompts if len(prompt.encode()) > 1800]:
            raise ConfigError(f"{len(longest)} prompts are too long")
        return super().generate(prompts, **more)


def test_no_public_text_is_long_enough_to_end_a_run_of_dp_eda_after_a_charge():
    texts = [f"{word} {text}" for text in LONG.values() for word in ("fun", "dull", "plot", "script")]
    labels = [label for label in ("neg", "pos") for _ in texts]
    generator = Narrow()
    out = eda(generator=generator, public=Dataset.from_dict({"text": texts * 2, "label": labels}))
    assert len(out) == 12 and len(out.privacy.charges) == 4 and any("film" in prompt for prompt in generator.prompts)
