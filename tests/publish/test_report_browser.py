"""Both pages in headless Chromium, from disk: nothing leaves, nothing overflows, the claim is seen first."""

import shutil

import pytest

from tests.publish import reporting
from tests.stubs import synth

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SCREENS = {"desktop": (1280, 800), "phone": (390, 844)}
PAGES = ("run/report.html", "run.private/report.html")

WIDE = "[...document.querySelectorAll('.scroll')].filter(at => at.scrollWidth > at.clientWidth).map(at => at.tabIndex)"
SMALL = """[...document.querySelectorAll('main *')]
    .filter(at => !at.childElementCount && at.textContent.trim() && parseFloat(getComputedStyle(at).fontSize) < 12)
    .map(at => at.textContent)"""
FOCUS = """(() => {
    const at = document.activeElement, look = getComputedStyle(at)
    return [at.tagName, look.outlineStyle, parseFloat(look.outlineWidth)]
})()"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    synth(out=folder / "run")
    reporting.write(folder / "run")
    return folder


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, folder):
    """Open a page, and collect what it says on the console and asks for."""
    contexts = []

    def opener(name, size=(1280, 800), scheme="light"):
        context = browser.new_context(viewport=dict(zip(("width", "height"), size, strict=True)), color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto((folder / name).as_uri())
        page.wait_for_load_state("load")
        return page

    yield opener
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_from_disk_alone(opened, folder, name, scheme):
    page = opened(name, scheme=scheme)
    assert page.said == []
    assert [url for url in page.asked if not url.startswith("data:")] == [(folder / name).as_uri()]
    images = page.evaluate("[...document.images].map(one => [one.complete, one.naturalWidth, one.currentSrc])")
    assert len(images) >= 4 and all(complete and width > 100 for complete, width, _ in images)
    light = page.evaluate("[...document.images].every(one => one.currentSrc === one.src)")
    assert light == (scheme == "light")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    bright = sum(map(int, ground.removeprefix("rgb(").removesuffix(")").split(","))) > 3 * 128
    assert bright == (scheme == "light")


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_epsilon_delta_unit_and_adjacency_stand_in_the_first_screen(opened, name, screen):
    page = opened(name, SCREENS[screen])
    for head in ("DP epsilon", "delta", "protected unit", "adjacency"):
        value = page.locator(f".hero dt:text-is('{head}') + dd")
        box = value.bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= SCREENS[screen][1], head
        assert value.is_visible()
    assert page.locator(".hero dt:text-is('DP epsilon') + dd").inner_text() == "4"


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_scrolls_tables_and_never_the_page(opened, name):
    page = opened(name, (360, 740))
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.evaluate("scrollTo(500, 0)")
    assert page.evaluate("[document.documentElement.scrollWidth, scrollX]") == [360, 0]
    wide = page.evaluate(WIDE)
    assert wide and set(wide) == {0}, "wide tables scroll by themselves, by keyboard too"
    assert page.evaluate(SMALL) == []


def test_the_keyboard_reaches_everything_and_shows_where_it_is(opened):
    page = opened(PAGES[1])
    seen = []
    for _ in range(30):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(FOCUS))
    assert {"A", "SUMMARY", "DIV"} <= {tag for tag, _, _ in seen}
    assert all(style == "solid" and width >= 2 for tag, style, width in seen if tag != "BODY")


def test_the_private_page_says_so_wherever_one_is(opened):
    page = opened(PAGES[1], SCREENS["phone"])
    banner = page.get_by_role("note")
    for place in (0, 2000, 6000):
        page.evaluate(f"scrollTo({{top: {place}, behavior: 'instant'}})")
        assert banner.inner_text() == "This page reads private data: no guarantee covers it. Keep it."
        assert banner.bounding_box()["y"] == pytest.approx(0, abs=1)
