"""The recipes of the papers: each plans without a network and without data, says its source, and names the Hub."""

import socket

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant

import hf_dpsynth
from hf_dpsynth import recipe
from hf_dpsynth.models.catalog import HUB_ID
from tests.recipe_table import FOLDER, README, line

PAPERS = sorted((FOLDER / "papers").glob("*.yaml"))
SOURCES = ("Kurakin et al. 2023", "Gao et al.", "Arnold, Yesilbas & Weinzierl 2023", "Wang et al. 2025")
ON_NO_HUB = {"openreview-sec-pe-ratio10"}


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a plan asked the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_each_plans_without_network_and_is_named_after_what_it_does(path, no_network):
    found, comment = recipe.load(path), path.read_text(encoding="utf-8").splitlines()[0]
    plan = found.plan()
    epsilon = found.arguments.get("epsilon")
    end = f"ratio{plan.guarantee.r / plan.guarantee.p:g}" if epsilon is None else f"eps{epsilon:g}"
    assert path.stem == found.out and path.stem.endswith(f"-{found.mechanism}-{end}")
    assert (
        comment.removeprefix("# ").startswith(SOURCES) and line(path, found, plan) in README.read_text().splitlines()
    )
    sets = [found.data, *([found.arguments["public"]] if "public" in found.arguments else [])]
    assert all(HUB_ID.fullmatch(one["path"]) for one in sets) and all(
        one["path"].endswith(".csv") == (path.stem in ON_NO_HUB) for one in sets
    )
    if found.kind == "synthesize" and epsilon is not None:
        assert found.arguments["delta"] == "1/n" and plan.delta == 1 / found.arguments["num_records"]
        assert plan.guarantee.epsilon == epsilon and plan.adjacency == "zero-out"
    for name in ("generator", "embedder"):
        assert HUB_ID.fullmatch(found.arguments.get(name, "a/b"))


def test_each_data_set_and_mechanism_of_the_papers_has_one():
    held = {(path.stem, recipe.load(path).mechanism) for path in PAPERS}
    data = {"ag-news", "imdb", "yelp", "trec", "disaster", "openreview", "pubmed", "glue"}
    assert {name for name in data if any(stem.startswith(name) for stem, _ in held)} == data
    assert {mechanism for _, mechanism in held} >= {"dp-lora", "dp-prompt-tuning", "dp-full", "dp-eda", "sec-pe"}
    assert {mechanism for _, mechanism in held} >= {"syntax-guided", "madlib", "custext", "dp-icl", "sentdp-select"}


def test_each_mechanism_has_a_recipe_that_runs_on_embedded_data():
    ours = {recipe.load(path).mechanism for path in FOLDER.glob("*.yaml")}
    assert ours == {row[0] for row in hf_dpsynth.list_mechanisms()}
    assert set(FOLDER.rglob("*.yaml")) == {*FOLDER.glob("*.yaml"), *PAPERS}


def test_the_noise_of_a_fine_tuning_recipe_is_enough_and_not_much_too_much():
    plan = recipe.load(FOLDER / "papers" / "imdb-dp-lora-eps1.yaml").plan()
    steps, rate = 220, 1024 / 22500  # 10 passes over 22,500 records in batches of 1024

    def epsilon(noise):
        step = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
        return PLDAccountant().compose(step, steps).get_epsilon(1 / 22500)

    assert epsilon(plan.noise_multiplier) <= 1.001 < epsilon(0.99 * plan.noise_multiplier)
