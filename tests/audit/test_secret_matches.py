"""Secrets are found as planted, chance is told by the hold-out, and none is ever shown."""

import json

import numpy as np
import pytest

from hf_dpsynth.audit import audit_secret_matches
from hf_dpsynth.errors import ConfigError


def mails(first, last):
    return [f"name{number}@example.org" for number in range(first, last)]


def rows(addresses):
    return [f"Please write to {address} about it" for address in addresses]


def test_secrets_are_counted_as_planted():
    """12 of 200 addresses of members and 2 of 200 of the hold-out stand in the released rows."""
    members, others = mails(0, 200), mails(200, 400)
    released = rows([*members[:12], *others[:2], *mails(900, 950)] * 3)
    found = audit_secret_matches([text.upper() for text in released], rows(members), rows(others))
    assert found["secrets_found"].value == 0.06 and found["secrets_found"].n == 200
    assert found["secrets_found_holdout"].value == 0.01 and found["secrets_found_of_all"].value == 0.06
    assert found["secrets_found_p_value"].value < 0.01 and found["secrets_found_p_value"].n == 14
    assert all(one.uses_private_data for one in found.findings)


def test_a_right_set_shows_nothing_and_five_secrets_show():
    """Power: one-sided, 5 of 5 give a p-value of .030, 4 of 4 one above .05."""
    members, others = mails(0, 100), mails(100, 200)
    for leaked, shown in ((0, False), (4, False), (5, True)):
        found = audit_secret_matches(rows([*mails(500, 600), *members[:leaked]]), rows(members), rows(others))
        assert (found["secrets_found_p_value"].value < 0.05) == shown
        assert found["secrets_found"].value == leaked / 100


def test_invented_secrets_accuse_nobody_more_than_the_test_says():
    """300 audits in which released addresses are those of either side by chance: below .09 at 3 errors."""
    rng, below = np.random.default_rng(0), 0
    for _ in range(300):
        drawn = rng.permutation(120)
        members, others = ([f"name{one}@example.org" for one in part] for part in (drawn[:60], drawn[60:]))
        below += audit_secret_matches(rows(mails(0, 30)), members, others)["secrets_found_p_value"].value < 0.05
    assert below / 300 < 0.09


def test_secrets_of_public_texts_and_of_both_sides_are_left_out():
    members, others = mails(0, 20), mails(19, 39)
    found = audit_secret_matches(rows(members), rows(members), rows(others), public=rows(mails(0, 5)))
    assert found["secrets_found"].n == 14 and found["secrets_found_of_all"].n == 15
    assert found["secrets_found"].value == 1.0 and found["secrets_found_holdout"].value == 0.0
    assert "Left out as on both sides: 1 secrets." in found["secrets_found"].statement()


def test_listed_secrets_are_found_where_their_words_stand_in_a_row():
    listed = ([["Ann  Lee"], None, ["Bo Day"]], [["Cy"], [], [{"kind": "name", "value": "Di Fox"}]])
    released = ["ann lee called", "Bo had a Day", "the cyan fox, Di", "saw DI\nFOX"]
    found = audit_secret_matches(released, ["a", "b", "c"], ["d", None, "f"], listed=listed)
    assert found["secrets_found"].value == 0.5 and found["secrets_found_holdout"].value == 0.5


def test_a_function_and_an_object_detect_like_a_name():
    class Found:
        def find(self, texts):
            return [[("mail", word) for word in text.split() if "@" in word] for text in texts]

    lists = rows(mails(0, 3)), rows(mails(0, 20)), rows(mails(20, 40))
    results = [
        audit_secret_matches(*lists, secrets=one)
        for one in ("regex", Found(), lambda text: [word for word in text.split() if "@" in word])
    ]
    assert results[0] == results[1] == results[2] and results[0]["secrets_found"].value == 0.15


def test_numbers_are_found_however_they_are_spaced():
    members, others = ["call 0171 234 5678"], ["call 0171 234 9999"]
    assert audit_secret_matches(["ring 0171-234-5678"], members, others)["secrets_found"].value == 1.0


def test_texts_without_secrets_give_no_share_and_say_so():
    found = audit_secret_matches(["a"], ["b", "c"], ["d"])
    assert found["secrets_found"].value == 0 and found["secrets_found"].interval == (0, 1)
    assert found["secrets_found_p_value"].value == 1 and "none to be found" in found["secrets_found"].statement()


def test_no_secret_is_in_a_result_or_an_error():
    found = audit_secret_matches(rows(mails(0, 3)), rows(mails(0, 9)), rows(mails(9, 18)))
    assert "example" not in json.dumps(found.to_json(), allow_nan=False) + repr(found)
    lists = (["a"], ["b"], ["c"])
    for more, words in (
        ({"secrets": "regexp"}, "detectors are presidio, regex, spacy"),
        ({"secrets": lambda text: [3]}, "something else than strings"),
        ({"listed": ([["canaryx"]], [])}, "listed= has 0 rows for others="),
        ({"listed": ("canaryx", [[]])}, "listed= holds a str"),
        ({"confidence": 0}, "confidence"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            audit_secret_matches(*lists, **more)
        assert "canaryx" not in str(caught.value)
    with pytest.raises(ConfigError, match="others="):
        audit_secret_matches(["a"], ["b"], None)
