"""Membership from released texts: a leak is found, and a release that read nobody tells nothing."""

import numpy as np
import pytest

from hf_dpsynth.audit import audit_membership
from hf_dpsynth.errors import ConfigError
from tests.stubs import CANARY, WORDS, StubEmbedder


def texts(n, seed):
    """Sentences of 8 of 400 words, so that pairs are rare."""
    rng = np.random.default_rng(seed)
    return [" ".join(f"{WORDS[at % 16]}{at}" for at in rng.integers(0, 400, 8)) for _ in range(n)]


MEMBERS, OTHERS = texts(200, 0), texts(200, 1)


@pytest.mark.parametrize("signal", ["ngram", "nearest", "jaccard"])
def test_half_of_the_members_among_other_rows_is_found(signal):
    """Half told for sure and the rest by chance is an area of .75, with a standard error of .025 here."""
    leak = [*MEMBERS[:100], *texts(100, 2)]
    found = audit_membership(leak, MEMBERS, OTHERS, signal=signal, embedder=StubEmbedder(), neighbours=1)
    assert found["auc"].value > 0.67 and found["auc"].interval[0] > 0.6
    assert found["tpr_at_1_fpr"].value >= 0.45 and found["empirical_epsilon"].value > 1
    assert all(one.uses_private_data and one.limits for one in found.findings) and not found["auc"].violated


def test_rows_made_of_members_halves_are_found_by_pairs_of_words():
    halves = [" ".join([*a.split()[:4], *b.split()[4:]]) for a, b in zip(MEMBERS, reversed(MEMBERS), strict=True)]
    assert audit_membership(halves, MEMBERS, OTHERS)["auc"].value > 0.9


@pytest.mark.parametrize("signal", ["ngram", "jaccard"])
def test_a_release_that_read_nobody_is_not_accused(signal):
    """40 audits at 200 a side: an area has a standard error of .029, that of the mean of 40 is .005."""
    areas, shown = [], []
    for seed in range(40):
        found = audit_membership(texts(100, 100 + seed), texts(200, 200 + seed), texts(200, 300 + seed), signal=signal)
        areas.append(found["auc"].value)
        shown.append(found["empirical_epsilon"].value)
    assert abs(np.mean(areas) - 0.5) < 0.02 and max(shown) < 1


def test_repeated_texts_do_not_tell_a_longer_list_from_a_shorter_one():
    """Both lists are drawn from one population in which some texts are common; the release shows the common ones."""
    rng, common = np.random.default_rng(0), texts(400, 5)
    pool = texts(4000, 6)
    areas = []
    for _ in range(10):
        rows = np.array([*rng.permutation(pool)[:1600], *rng.choice(common, 400)])[rng.permutation(2000)]
        areas.append(audit_membership(common, list(rows[:1600]), list(rows[1600:]))["auc"].value)
    assert abs(np.mean(areas) - 0.5) < 0.03  # each has a standard error of .02


def test_all_signals_have_figures_of_their_own():
    found = audit_membership(MEMBERS, MEMBERS, OTHERS, signal="all", embedder=StubEmbedder())
    assert {one.metric for one in found.findings} == {
        f"{signal}_{metric}"
        for signal in ("ngram", "nearest", "jaccard")
        for metric in ("auc", "tpr_at_1_fpr", "empirical_epsilon")
    }
    assert found["ngram_auc"].value == 1.0 and len(found.curve) > 2


def test_texts_of_both_lists_are_left_out_and_counted():
    both = texts(30, 8)
    with_both = audit_membership(MEMBERS, [*MEMBERS, *both], [*OTHERS, *both, OTHERS[0]])
    assert with_both["auc"].n == 399 and "31 kinds of texts" in with_both["auc"].statement()
    assert "kinds of texts" not in audit_membership(MEMBERS, MEMBERS, OTHERS)["auc"].statement()


def test_a_signal_that_is_silent_is_said_and_alone_refused():
    one, other = ([f"{kind}{n}" for n in range(20)] for kind in ("film", "plot"))
    with pytest.raises(ConfigError, match="scores all texts alike"):
        audit_membership(["nobody says so"], one, other, signal="jaccard")
    found = audit_membership(["nobody says so"], one, other, signal="all", embedder=StubEmbedder())
    assert "jaccard scores all texts alike" in found["nearest_auc"].statement()


@pytest.mark.parametrize(
    ("synthetic", "members", "others", "words"),
    [
        ([], MEMBERS, OTHERS, "synthetic= is empty"), (MEMBERS, [], OTHERS, "members="),
        (MEMBERS, MEMBERS, None, "others= is missing"), (MEMBERS, MEMBERS, MEMBERS, "occur once"),
        (MEMBERS, [*MEMBERS, None], OTHERS, "NoneType"), (MEMBERS, f"{CANARY} text", OTHERS, "pass a list"),
    ],
)  # fmt: skip
def test_lists_that_cannot_be_compared_are_refused_without_their_text(synthetic, members, others, words):
    with pytest.raises(ConfigError, match=words) as caught:
        audit_membership(synthetic, members, others)
    assert CANARY not in str(caught.value) and not any(word in str(caught.value) for word in WORDS[:9])
