"""What a release by the limited domain says of itself, and which forgeries of it are found."""

import shutil
import time

import pytest

import hf_dpsynth
from tests.mechanisms.test_dp_eda import LIMITED, eda
from tests.publish.forging import edit, put


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limited") / "run"
    eda(out=folder, params={"selection": LIMITED})
    return folder


@pytest.fixture
def run(made, tmp_path):
    def copy():
        shutil.copytree(made, tmp_path / "run")
        return tmp_path / "run"

    return copy


def test_the_release_names_its_extra_delta_its_noise_and_no_gradients(run):
    folder = run()
    found, facts = hf_dpsynth.verify(folder), {}
    assert found.ok and found.accounting_recomputed, found.findings
    edit(folder, facts.update)
    assert (facts["accounting"]["accountant"], facts["accounting"]["composition"]) == ("zcdp", "fixed")
    (extra,) = facts["accounting"]["extra_deltas"]
    assert extra == pytest.approx(1e-4 / 2, rel=1e-5)
    reads = facts["scope"]["data_accesses_covered"]
    assert any("at most 4 names of the largest counts" in line and "Gumbel" in line for line in reads)
    assert "gradient" not in str(facts["privacy_unit"]) and "several processes" not in str(facts["scope"])
    assert facts["randomness"]["prng"].startswith("AES") and not facts["randomness"]["float_safe"]


ROUND = "accounting.events.events.0.event"
PUBLIC = "the number of records is public, not protected"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put("accounting.extra_deltas", []), "accounting.extra_deltas: 0 in all"),
        (put("accounting.extra_deltas", [1e-5]), "accounting.extra_deltas: 1e-05 in all"),
        (put("accounting.extra_deltas", [5e-5, 5e-5]), "accounting.extra_deltas"),
        (put("parameters.epsilon", 3.9), "parameters.epsilon: claimed 3.9"),
        (put("parameters.delta", 2e-5), "parameters.delta"),
        (put(f"{ROUND}.epsilon", (0.01).hex()), "accounting.events: not those of dp-eda"),
        (put(f"{ROUND}.picks", 3), "accounting.events: not those of dp-eda"),
        (put(f"{ROUND}.moves", 2), "accounting.events: not those of dp-eda"),
        (put(f"{ROUND}.moves", 3), "accounting: the claim cannot be recomputed"),
        (put(f"{ROUND}.moves", (1.0).hex()), "accounting: the claim cannot be recomputed"),
        (put(f"{ROUND}.picks", 0), "accounting: the claim cannot be recomputed"),
        (put(f"{ROUND}.picks", 1.5), "accounting: the claim cannot be recomputed"),
        (put(f"{ROUND}.picks", 10**40), "accounting.events: a cost of"),
        (put(f"{ROUND}.epsilon", (1e300).hex()), "accounting"),
        (put(f"{ROUND}.delta", (1e-300).hex()), "accounting.extra_deltas"),
        (put("accounting.events.events.0.count", 10**30), "accounting.extra_deltas"),
        (put("accounting.accountant", "pld"), "accounting"),
        (put("mechanisms.0.params.domain", 9.5), "mechanisms[0].params"),
        (put("mechanisms.0.params.selection", "gaussian-top-k"), "accounting.events: not those of dp-eda"),
    ],
)
def test_a_forged_account_is_found_and_costs_no_time(run, change, words):
    started = time.perf_counter()
    found = edit(run(), change, everywhere=True)
    assert any(line.startswith(words) for line in found.findings), found.findings
    assert time.perf_counter() - started < 20


def relabelled(facts):
    """Call a release for one vote that comes or goes one for a replacement, which needs twice the noise."""
    facts["adjacency"] = facts["accounting"]["relation"] = "replace_one"
    facts["accounting"]["assumptions"].append({"name": PUBLIC, "holds": True, "note": "by construction"})


def test_a_release_for_added_records_is_none_for_replaced_ones(tmp_path):
    # declared shares: no histogram of labels, whose event has a relation of its own
    folder, shares = tmp_path / "run", {"neg": 0.5, "pos": 0.5}
    eda(out=folder, params={"selection": LIMITED}, label_proportions=shares)
    facts = {}
    edit(folder, facts.update)
    assert hf_dpsynth.verify(folder).ok and facts["accounting"]["events"]["type"] == "SelfComposedDpEvent"
    found = edit(folder, relabelled, everywhere=True)
    assert not found.ok and not found.accounting_recomputed
    assert any(line.startswith("adjacency: replace_one, but in an event one count moves") for line in found.findings)


def test_a_release_for_replaced_records_is_whole_and_says_so_in_its_events(tmp_path):
    folder, shares, facts = tmp_path / "run", {"neg": 0.5, "pos": 0.5}, {}
    out = eda(out=folder, params={"selection": LIMITED}, label_proportions=shares, adjacency="replace-one")
    found = edit(folder, facts.update)
    assert found.ok and found.accounting_recomputed, found.findings
    assert facts["accounting"]["events"]["event"]["moves"] == 2
    assert all(charge.event.moves == 2 for charge in out.privacy.charges)


def test_a_run_with_a_seed_for_tests_claims_nothing_and_is_whole():
    eda(out="run", params={"selection": LIMITED}, insecure_noise_seed=3)
    found = hf_dpsynth.verify("run")
    assert not [line for line in found.findings if "accounting" in line or "events" in line], found.findings
