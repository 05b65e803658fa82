import copy
import pickle

import pytest

from hf_dpsynth.errors import PrivacyError
from hf_dpsynth.privacy.keys import Key
from hf_dpsynth.privacy.records import PrivateRecords


def records():
    return PrivateRecords(["canary one", None, "  ", "x" * 50], [("a",), ("a",), ("a",), ("b",)], max_characters=10)


def test_records_are_not_printed_pickled_or_copied():
    for shown in (repr(records()), str(records()), f"{records()}", f"{[records()]}"):
        assert "canary" not in shown
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(PrivacyError):
            leak(records())


def test_null_and_blank_texts_cast_no_vote_and_long_ones_are_cut():
    assert records().of_label(("a",)) == ["canary one"]
    assert records().of_label(("b",)) == ["x" * 10]
    assert records().of_label(("undeclared",)) == []


def test_the_commitment_sees_null_blank_and_label():
    key = Key()
    variants = [[None], [""], [" "], ["\x00"], ["\udcff"]]
    digests = {key.commit(PrivateRecords(texts).chunks()) for texts in variants}
    digests.add(key.commit(PrivateRecords([""], [("a",)]).chunks()))
    assert len(digests) == len(variants) + 1


def test_a_missing_label_is_refused():
    with pytest.raises(PrivacyError, match="lengths"):
        PrivateRecords(["a"], [])
