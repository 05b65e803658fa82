"""Pictures of a card: what they show is what the events say, and equal facts give equal bytes anywhere."""

import hashlib
import json
import math
import os
import re
import subprocess
import sys
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from dp_accounting import GaussianDpEvent, NonPrivateDpEvent, NoOpDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from scipy.stats import norm

from hf_dpsynth.figures.vector import Axis, bars, curve
from hf_dpsynth.guarantees import ApproxDP, LocalDP
from hf_dpsynth.privacy.accounting import epsilon
from hf_dpsynth.privacy.noise import DiscreteGaussianDpEvent
from hf_dpsynth.privacy.profiles import profile
from hf_dpsynth.publish.card import render
from hf_dpsynth.publish.model_card import render_model
from hf_dpsynth.publish.pictures import PRIVACY, SPLIT, captions, pictures
from hf_dpsynth.publish.privacy_json import to_privacy_json
from tests.publish import golden
from tests.stubs import ROOT

FACTS = {name: to_privacy_json(release) for name, release in golden.releases().items()}
DRAWN = {name: pictures(facts) for name, facts in FACTS.items()}
VOID = {name for name, facts in FACTS.items() if facts["claim_status"] == "none"}
LOCAL = {name for name, release in golden.releases().items() if isinstance(release.guarantee, LocalDP)}
DP = {name for name, release in golden.releases().items() if isinstance(release.guarantee, ApproxDP)} - VOID
BOUGHT = {"aug-pe-add-remove", "aug-pe-zero-out-own-embedder", "aug-pe-replace-one", "dp-lora"}
LEFT, TOP, WIDTH, HEIGHT = 70, 52, 480 - 70 - 24, 312 - 52 - 48  # of the ground that a curve is drawn on


def shape(svg, tag, **attributes):
    found = [node for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("}" + tag)]
    return [node for node in found if all(node.get(name) == value for name, value in attributes.items())]


def points(svg):
    """The line of a picture in shares of its axes, from 0 to 1."""
    (line,) = shape(svg, "polyline")
    pairs = [map(float, pair.split(",")) for pair in line.get("points").split()]
    return [((x - LEFT) / WIDTH, 1 - (y - TOP) / HEIGHT) for x, y in pairs]


def words(svg):
    return ["".join(node.itertext()) for node in shape(svg, "text")]


def test_each_claim_that_has_a_picture_has_one_and_several_kinds_of_events_have_a_second():
    assert {name for name, drawn in DRAWN.items() if not drawn} == VOID | LOCAL
    assert {name for name, drawn in DRAWN.items() if SPLIT in drawn} == BOUGHT
    assert all(set(drawn) <= {PRIVACY, SPLIT} and drawn.keys() == captions(FACTS[name]).keys()
               for name, drawn in DRAWN.items())  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(FACTS) - VOID - LOCAL))
def test_a_picture_is_a_small_file_that_loads_nothing_and_says_what_it_shows(name):
    for path, svg in DRAWN[name].items():
        text = svg.decode("utf-8")
        assert len(svg) < 10_000 and not re.search(r"href|url\(|<script|<style|font-face|<!|on\w+=", text)
        assert text.count("http") == text.count('xmlns="http://www.w3.org/2000/svg"') == 1
        (about,) = shape(svg, "desc")
        assert about.text == captions(FACTS[name])[path] and len(about.text) > 80
        assert shape(svg, "title")[0].text in words(svg)


def test_equal_facts_give_equal_bytes_in_another_process():
    script = (
        "import hashlib, json, sys\nfrom hf_dpsynth.publish.pictures import pictures\n"
        "for facts in json.load(sys.stdin):\n"
        "    print(*(hashlib.sha256(svg).hexdigest() for svg in pictures(facts).values()))"
    )
    names = ["aug-pe-add-remove", "dp-lora", "dp-eda-limited-domain", "madlib", "sec-pe"]
    environment = os.environ | {"PYTHONHASHSEED": "7", "LC_ALL": "C", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps([FACTS[name] for name in names]), cwd=ROOT, env=environment,
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    ours = [" ".join(hashlib.sha256(svg).hexdigest() for svg in DRAWN[name].values()) for name in names]
    assert ran.stdout.split("\n")[:-1] == ours


@pytest.mark.parametrize("name", sorted(DP))
def test_the_claim_is_marked_where_the_curve_is_or_above_it(name):
    line = points(DRAWN[name][PRIVACY])
    (dot,) = shape(DRAWN[name][PRIVACY], "circle")
    x, y = (float(dot.get("cx")) - LEFT) / WIDTH, 1 - (float(dot.get("cy")) - TOP) / HEIGHT
    assert abs(x - 0.5) < 0.001
    at = min(line, key=lambda point: abs(point[0] - x))
    assert at[0] == pytest.approx(x, abs=0.001) and -0.004 < y - at[1] < 0.12
    assert all(first[1] >= second[1] for first, second in pairwise(line)), "delta falls"


def test_the_profile_of_gaussian_noise_is_that_of_the_closed_form():
    """Balle & Wang 2018, arXiv:1805.06530, Theorem 8."""
    event, mu = SelfComposedDpEvent(GaussianDpEvent(2.5), 6), math.sqrt(6) / 2.5
    at = (0.25, 1.0, 2.0, 4.0)
    exact = [norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) for e in at]
    for account, room in (("pld", 1.001), ("rdp", 8.0)):
        found = profile(event, at, adjacency="zero-out", account=account)
        assert all(true <= ours <= room * true for true, ours in zip(exact, found, strict=True)), (account, found)
    assert any(ours > 1.5 * true for true, ours in zip(exact, found, strict=True)), (
        "RDP is looser, so it is told apart"
    )


@pytest.mark.parametrize(
    "event",
    [
        SelfComposedDpEvent(DiscreteGaussianDpEvent(4.0), 10),
        SelfComposedDpEvent(PoissonSampledDpEvent(0.05, GaussianDpEvent(1.1)), 50),
    ],
)
def test_the_profile_is_the_inverse_of_epsilon(event):
    together = profile(event, (0.5, 1.0, 2.0))
    assert together == tuple(profile(event, (value,))[0] for value in (0.5, 1.0, 2.0))
    for value, delta in zip((0.5, 1.0, 2.0), together, strict=True):
        assert epsilon(event, delta) == pytest.approx(value, rel=1e-3)


def test_the_profile_of_nothing_and_of_no_noise():
    assert profile(NoOpDpEvent(), (0.0, 1.0)) == (0.0, 0.0)
    assert profile(NonPrivateDpEvent(), (0.0, 1.0)) == (1.0, 1.0)


@pytest.mark.parametrize("name", ["madlib", "syntax-guided"])
def test_the_odds_of_metric_dp_are_exp_of_scale_times_distance(name):
    scale = FACTS[name]["parameters"]["metric_dp"]["scale"]
    (start, end), svg = points(DRAWN[name][PRIVACY]), DRAWN[name][PRIVACY]
    assert start == pytest.approx((0, 0), abs=1e-3)
    shown = [float(word) for word in words(svg) if re.fullmatch(r"[\d.e]+", word)]
    top = max(shown)
    (far,) = (float(found) for found in re.findall(r"at distance ([\d.]+)\. Nothing", captions(FACTS[name])[PRIVACY]))
    assert top >= 1e4 and far in shown
    slope = end[1] / end[0] * math.log(top)  # the loss at the end of the axis
    most = max(4 * math.log(10) / scale, 1.0)
    assert slope == pytest.approx(scale * most, rel=0.01)


def test_what_each_kind_of_event_costs_alone_is_less_than_all_together():
    for name in BOUGHT:
        svg = DRAWN[name][SPLIT]
        *parts, together = [float(bar.get("width")) for bar in shape(svg, "rect")[1:]]
        assert max(parts) < together < sum(parts), name
        claim = FACTS[name]["parameters"]["epsilon"]
        shown = [float(word) for word in words(svg) if re.fullmatch(r"[\d.]+", word)]
        assert shown[-1] == claim and max(shown) == claim
        for part, value in zip(parts, shown, strict=False):
            assert part / together == pytest.approx(value / claim, rel=0.05)


def test_events_that_are_too_costly_are_not_drawn():
    for change in ({"count": 10**9}, {"count": 1}):
        facts = json.loads(json.dumps(FACTS["dp-full"]))
        facts["accounting"]["events"].update(change)
        facts["accounting"]["events"]["event"]["event"]["noise_multiplier"] = (1e-9).hex()
        assert pictures(facts) == {}


def test_a_card_shows_pictures_only_when_asked():
    facts = FACTS["aug-pe-add-remove"]
    without, shown = render(facts), render(facts, pictures=True)
    assert "![" not in without
    lines = [line for line in shown.split("\n") if line.startswith("![")]
    assert [line.rpartition("](")[2] for line in lines] == ["figures/privacy.svg)", "figures/split.svg)"]
    assert [line for line in shown.split("\n") if line and line not in lines] == [
        line for line in without.split("\n") if line
    ]
    assert "DP epsilon = 1 at delta = 1e-06" in lines[0] and "DP epsilon alone" not in lines[0]
    assert render(FACTS["aug-pe-no-privacy"], pictures=True) == render(FACTS["aug-pe-no-privacy"])
    assert render_model(FACTS["dp-lora"], base=None, pictures=True).count("![") == 2


def test_no_name_that_a_user_chose_stands_in_a_picture():
    facts = json.loads(json.dumps(FACTS["madlib"]))
    facts["parameters"]["metric_dp"] |= {"metric": "<zqname>", "unit": "<zqname>"}
    facts["mechanisms"][0]["name"] = "<zqname>"
    assert b"zqname" not in pictures(facts)[PRIVACY] and "zqname" not in "".join(captions(facts).values())


def test_a_scale_of_any_size_has_a_picture():
    for scale in (1e-6, 0.1, 1.0, 2.302585093, 700.0, 1e6):
        facts = json.loads(json.dumps(FACTS["madlib"]))
        facts["parameters"]["metric_dp"]["scale"] = scale
        (start, end) = points(pictures(facts)[PRIVACY])
        assert start == pytest.approx((0, 0), abs=1e-3) and end[0] == pytest.approx(1, abs=1e-3) and end[1] > 0.5
        assert len(shape(pictures(facts)[PRIVACY], "text")) < 20


def test_words_in_a_picture_are_no_markup():
    axis = Axis(name="<a&b>", low=0.0, high=1.0, ticks=((0.0, "<0>"),))
    line = curve("<t>", "<d>", axis, axis, [(0, 0), (1, 1)], (0, 0, "<m>"))
    for svg in (line, bars("<t>", "<d>", "<u>", [("<n>", 1, "<v>")])):
        assert "<t>" in words(svg) and shape(svg, "desc")[0].text == "<d>"
