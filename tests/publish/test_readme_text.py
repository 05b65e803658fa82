"""A README.md that was there: its text stands below the card, once, and no field of it speaks of privacy."""

import pytest
import yaml

from hf_dpsynth.publish.readme import KEPT, parts, with_kept_text, without_kept_text
from tests.publish import golden

CARD = golden.releases()["madlib"].card()
THERE = {
    "text alone": "# Mine\n\nmywords\n",
    "front matter": "---\nlicense: mit\nlanguage:\n- en\n---\n\n# Mine\n\nmywords\n",
    "other line ends": "---\r\nlicense: mit\r\n---\r\n\r\nmywords\r\n",
    "a rule in the text": "# Mine\n\n---\n\nmywords\n\n---\n",
    "a claim of its own": "---\ndifferential-privacy: 0.1\nepsilon: 0.1\ntags: [differential-privacy]\n---\nmywords\n",
    "no YAML": "---\nlicense: [\n---\nmywords\n",
    "anchors": "---\na: &a [1]\nlicense: *a\n---\nmywords\n",
    "no mapping": "---\n- license\n---\nmywords\n",
    "an open fence": "---\nlicense: mit\nmywords\n",
    "nothing": "",
}


@pytest.mark.parametrize("there", THERE.values(), ids=THERE)
def test_the_card_stands_first_and_a_second_push_changes_nothing(there):
    once = with_kept_text(CARD, there)
    assert with_kept_text(CARD, once) == once
    assert once.count("mywords") == there.count("mywords") and once.count(KEPT) == bool(there)
    front, body = parts(without_kept_text(once))
    assert body.rstrip() == parts(CARD)[1].rstrip()
    added = set(yaml.safe_load(front)) - set(yaml.safe_load(parts(CARD)[0]))
    assert added <= {"license", "language"} and yaml.safe_load(front)["tags"] == yaml.safe_load(parts(CARD)[0])["tags"]
    assert ("license" in added) == ("license: mit\n" in there.replace("\r", "") and there.count("---") > 1)


def test_another_card_replaces_the_card_and_keeps_the_text():
    old = with_kept_text(golden.releases()["aug-pe-add-remove"].card(), THERE["front matter"])
    assert with_kept_text(CARD, old) == with_kept_text(CARD, THERE["front matter"])
    assert with_kept_text(CARD, CARD) == CARD
