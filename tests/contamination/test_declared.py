"""A recipe takes sources or overlaps away from its public corpus, and its plan says which assumption fails."""

import csv
import dataclasses
from pathlib import Path

import pytest

from hf_dpsynth import cli, recipe
from hf_dpsynth.contamination import ASSUMPTION
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.publish.recipe_text import recipe_text
from tests.stubs import WORDS, StubEmbedder

LETTER = " ".join(f"word{number}" for number in range(60))
BASE = (
    "mechanism: sentdp-select\nepsilon: 4\ndelta: 1e-4\nnum_rows: 3\ntext_column: text\ndata: {path: private.csv}\n"
    "public: {path: public.csv"
)


@pytest.fixture(autouse=True)
def files(in_a_folder_of_its_own):
    write("private.csv", ["text"], [[LETTER], *([f"{word} film"] for word in WORDS)])
    news = [[f"a {word} story", "news"] for word in WORDS[:5]]
    write("public.csv", ["text", "site"], [[f"so: {LETTER} end", "mirror"], ["one two three", "forum"], *news])


def write(name, header, rows):
    with open(name, "w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([header, *rows])


def load(more=""):
    Path("recipe.yaml").write_text(f"{BASE}{more}}}\n", encoding="utf-8")
    return recipe.load("recipe.yaml")


def public_rows(more):
    """The public rows that a run of the recipe gets, and its release."""
    seen = []

    class Watching(StubEmbedder):
        def embed(self, texts):
            seen.extend(texts)
            return super().embed(texts)

    found = load(more)
    _, release = dataclasses.replace(found, arguments={**found.arguments, "embedder": Watching()}).run()
    return {text for text in seen if not text.endswith(" film") and text != LETTER}, release


def test_sources_go_by_name_without_an_assumption():
    rows, release = public_rows(", remove_sources: {site: [mirror, forum]}")
    assert rows == {f"a {word} story" for word in WORDS[:5]}
    assert ASSUMPTION not in release.guarantee.assumptions
    assert ASSUMPTION not in load(", remove_sources: {site: [mirror]}").plan().guarantee.assumptions


@pytest.mark.parametrize(("mode", "rest"), [("drop", set()), ("cut", {"so: end"})])
def test_overlaps_go_and_the_plan_and_the_release_have_the_assumption(mode, rest):
    rows, release = public_rows(f", overlaps: {mode}")
    assert rows == {"one two three", *(f"a {word} story" for word in WORDS[:5]), *rest}
    planned = load(f", overlaps: {mode}").plan().guarantee
    assert ASSUMPTION in planned.assumptions and ASSUMPTION in release.guarantee.assumptions


def test_sources_go_before_overlaps_and_the_window_is_that_of_the_recipe():
    rows, _ = public_rows(", remove_sources: {site: [forum, news]}, overlaps: cut, window: 60")
    assert rows == {"so: end"}
    rows, release = public_rows(", remove_sources: {site: [forum, news]}, overlaps: cut, window: 61")
    assert rows == {f"so: {LETTER} end"}, "one token too few is no overlap"
    assert ASSUMPTION in release.guarantee.assumptions, "that nothing was found is told by the private texts, too"


def test_a_plan_shows_the_assumption_where_no_data_is(capfd):
    load(", overlaps: drop")
    for name in ("private.csv", "public.csv"):
        Path(name).unlink()
    assert cli.call(["plan", "recipe.yaml"]) == 0
    assert ASSUMPTION in capfd.readouterr().out


def test_a_source_that_no_row_has_is_refused_before_anything_is_spent():
    with pytest.raises(ConfigError, match=r"no row is of the source 'mirrow'; did you mean 'mirror'"):
        load(", remove_sources: {site: [mirrow]}").run()
    with pytest.raises(ConfigError, match=r"column 'sit' does not exist; did you mean 'site'"):
        load(", remove_sources: {sit: [mirror]}").run()


def test_the_recipe_beside_published_rows_says_what_it_cannot_hold():
    plan = load(", overlaps: cut").plan()
    written = recipe_text(plan)
    assert "# and say public.overlaps, drop or cut." in written
    assert "overlaps" not in recipe_text(load().plan())
    Path("beside.yaml").write_text(written, encoding="utf-8")
    again = recipe.load("beside.yaml", ["public.path=public.csv", "public.overlaps=cut"]).plan()
    assert again == plan
