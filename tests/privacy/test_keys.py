import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_dpsynth.errors import PrivacyError
from hf_dpsynth.privacy import keys
from hf_dpsynth.privacy.keys import Key

LABELS = st.lists(st.one_of(st.text(max_size=4), st.integers(0, 10**6), st.binary(max_size=4)), max_size=3).map(tuple)


@given(LABELS, LABELS)
def test_different_labels_are_encoded_differently(one, other):
    assert (keys._encode(one) == keys._encode(other)) == (one == other)


def test_a_fresh_key_draws_fresh_noise():
    assert Key().generator("noise").integers(0, 2**62) != Key().generator("noise").integers(0, 2**62)


def test_the_same_labels_give_the_same_stream_and_others_do_not():
    key = Key()
    same = [key.generator("row", 3).standard_normal(8) for _ in range(2)]
    assert (same[0] == same[1]).all()
    assert (same[0] != key.generator("row", 4).standard_normal(8)).all()
    assert (same[0] != key.derive("row").generator(3).standard_normal(8)).all()


def test_streams_of_neighbouring_labels_are_uncorrelated():
    key = Key.from_insecure_seed(0)
    draws = np.stack([key.generator("row", i).standard_normal(2000) for i in range(20)])
    correlation = np.corrcoef(draws) - np.eye(20)
    assert np.abs(correlation).max() < 6 / np.sqrt(2000)  # six standard deviations, 190 pairs


def test_a_key_cannot_be_printed_or_pickled():
    key = Key()
    assert key.reveal().hex() not in repr(key) + str(key) + repr(vars(Key))
    with pytest.raises(PrivacyError):
        pickle.dumps(key)


def test_a_short_key_is_refused():
    with pytest.raises(PrivacyError, match="32 bytes"):
        Key(b"short")


def test_a_commitment_depends_on_the_key_the_content_and_its_boundaries():
    key = Key()
    one = key.commit([b"ab", b"c"])
    assert one == key.commit(iter([b"ab", b"c"]))
    assert len({one, key.commit([b"a", b"bc"]), key.commit([b"c", b"ab"]), Key().commit([b"ab", b"c"])}) == 4


def test_public_streams_follow_the_seed():
    assert keys.public_seed(1, "a") == keys.public_seed(1, "a") != keys.public_seed(2, "a")
    assert 0 <= keys.public_seed(5, "b") < 2**31
    assert (keys.public_generator(1, "a").random(3) == keys.public_generator(1, "a").random(3)).all()
