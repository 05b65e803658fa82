"""Names that are no good: what YAML, Markdown and the libraries of the Hub read of a card is what was meant."""

import base64
import time
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import yaml
from datasets import Dataset, load_dataset
from datasets.utils.metadata import MetadataConfigs
from huggingface_hub import DatasetCard, ModelCard

from hf_dpsynth.guarantees import SecretProtection
from hf_dpsynth.publish.card import claims, front_matter, render
from hf_dpsynth.publish.model_card import model_front_matter, render_model
from hf_dpsynth.publish.privacy_json import to_privacy_json
from hf_dpsynth.publish.readme import parts
from hf_dpsynth.publish.report import charts, facts
from hf_dpsynth.publish.report.page import public_page
from tests.publish import golden
from tests.publish.reading import FOREIGN, HOSTILE, YAML_WORDS, body, structure

RELEASES = golden.releases()
NAMES = list(dict.fromkeys([*HOSTILE, *YAML_WORDS, *FOREIGN]))
EACH = pytest.mark.parametrize("text", NAMES)
LARGEST = 100_000  # bytes of a card that GitHub and the Hub show whole; front matter is far below
SHOWN = 50


def named(name, text="words"):
    """The content of privacy.json of `named_release`, with a metric and an audit."""
    metric = {"metric": text, "value": -0.5, "uses_private_data": True, "accounted": False}
    audit = {**metric, "attack": text, "ci": [-1.0, 1e-7]}
    return {**to_privacy_json(named_release(name, text)), "evaluation": [metric], "audit": [audit]}


def named_release(name, text="words"):
    """A golden release in which every name that a user or a plug-in chooses is this one."""
    base = RELEASES[name]
    plan = replace(
        base.plan, mechanism=text, params={text: text}, kept_columns=(text,), label_columns=(text,), unit_column=text,
        model_ids={text: text}, warnings=(text,),
    )  # fmt: skip
    guarantee = base.guarantee
    if isinstance(guarantee, SecretProtection):
        guarantee = replace(guarantee, kinds=((text, 1e-5, 1e-3),))
    else:
        guarantee = replace(guarantee, assumptions=(text, f"{text}: unknown"))
    files = ((f"data/{text}-00000-of-00001.parquet", "0" * 64),)
    release = golden.fixed(replace(plan, guarantee=guarantee), 5, notes=(text,))
    return replace(release, files=files)


@pytest.mark.parametrize("name", ["aug-pe-add-remove", "madlib", "sec-pe"])
@EACH
def test_a_card_is_read_as_it_was_meant_and_a_name_stays_in_its_place(name, text):
    claim = named(name, text)
    card, meant = render(claim), front_matter(claim)
    held, _ = parts(card)
    assert yaml.safe_load(held) == meant
    read = DatasetCard(card.encode("utf-8").decode("utf-8"))
    assert read.data.to_dict() == meant and all(isinstance(tag, str) and tag for tag in meant["tags"])
    if "configs" in meant:
        assert list(MetadataConfigs.from_dataset_card_data(read.data)) == ["default"]
    assert structure(read.text.lstrip()) == structure(body(render(named(name))).lstrip())
    for sign in ("<", "{{", "](", "~~", "\x00", "\u202e", "\u2066", "\u200b", "\ufeff", "://", "www.", "@"):
        assert sign not in read.text
    assert claims(card, claim)


@EACH
def test_a_model_card_is_read_as_it_was_meant(text):
    held = {**named("dp-lora", text), "mechanisms": to_privacy_json(RELEASES["dp-lora"])["mechanisms"]}
    card = render_model(held, base="org/base")
    read = ModelCard(card)
    meant = model_front_matter(held, base="org/base")
    assert read.data.to_dict() == yaml.safe_load(parts(card)[0]) == meant
    plain = {**named("dp-lora"), "mechanisms": held["mechanisms"]}
    assert structure(read.text.lstrip()) == structure(body(render_model(plain, base="org/base")).lstrip())


@pytest.mark.parametrize("base", ["on", "no", "null", "1e-06", "2024-01-01", "0x1f", "y", "org/1.0", "123"])
def test_a_base_model_stays_a_name(base):
    card = render_model(to_privacy_json(RELEASES["dp-lora"]), base=base)
    assert ModelCard(card).data.to_dict()["base_model"] == yaml.safe_load(parts(card)[0])["base_model"] == base


@pytest.mark.parametrize("shards", [1, 2, 60])
@pytest.mark.parametrize("split", ["train", "on", "null", "017", "a.b", "\u6f22"])
def test_rows_in_any_number_of_files_are_loaded_with_their_card(tmp_path, shards, split):
    rows = Dataset.from_dict({"text": [f"row {number}" for number in range(60)]})
    (tmp_path / "data").mkdir()
    names = [f"data/{split}-{at:05d}-of-{shards:05d}.parquet" for at in range(shards)]
    for at, path in enumerate(names):
        rows.shard(shards, at, contiguous=True).to_parquet(str(tmp_path / path))
    release = replace(RELEASES["madlib"], files=tuple((path, "0" * 64) for path in names))
    (tmp_path / "README.md").write_text(release.card(), encoding="utf-8")
    read = load_dataset(str(tmp_path), cache_dir=str(tmp_path / "cache"))
    assert list(read) == [split] and read[split]["text"][:] == rows["text"][:]


class Tags(HTMLParser):
    """The elements of a page with the names of their attributes, without words."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, *sorted(name for name, _ in attrs)))


def page(release, text):
    """The publishable page of rows and labels that are this text."""
    rows = [facts.Row(text, text), facts.Row(f"{text} {text}", text), facts.Row("words", "words")]
    return public_page(facts.public_facts(release, rows, num_samples=3, seed=0), {})


@EACH
def test_a_page_of_the_report_shows_a_name_in_its_place(text):
    made, plain = page(named_release("madlib", text), text), page(named_release("madlib"), "other words")
    if text.strip():  # a row of white space is shown as one, in another element
        assert Tags(made).found == Tags(plain).found
    for sign in ("\x00", "\u202e", "\u2066", "\ufeff", "\ud800"):
        assert sign not in made
    made.encode("utf-8")


def test_figures_of_labels_take_any_name():
    shares = [facts.Share(text, at, None) for at, text in enumerate(NAMES, 1)]
    for start in range(0, len(NAMES), 12):
        drawn = charts.labels(shares[start : start + 12])
        assert not set("\x00\u202e\u2066") & set(base64.b64decode(drawn.light.partition(",")[2]).decode("utf-8"))


def test_ten_thousand_labels_leave_a_page_that_people_read():
    release = replace(many_release(10_000), charges=())
    rows = [facts.Row("a text", f"label {at:06d}") for at in range(10_000)]
    start = time.perf_counter()
    found = facts.public_facts(release, rows, num_samples=3, seed=0)
    shown = public_page(found, {"labels": charts.labels(found.labels)})
    assert time.perf_counter() - start < 10
    assert len(shown.encode()) < 4 * LARGEST and shown.count("<tr>") < 4 * SHOWN
    assert "19,950 more labels" in shown and "9,950 more, which privacy.json lists" in shown
    assert f"name {SHOWN - 1:06d} and 9,950 more" in shown


def many(number):
    """The content of privacy.json of `many_release`, with many metrics and audits."""
    metric = {"metric": "m", "value": 1, "uses_private_data": False, "accounted": False}
    lists = {"evaluation": [metric] * number, "audit": [{**metric, "attack": "a", "ci": None}] * number}
    return {**to_privacy_json(many_release(number)), **lists}


def many_release(number):
    """A release with so many entries in every list that grows with what a user declares."""
    base = RELEASES["sec-pe"]
    names = tuple(f"a column with the name {at:06d}" for at in range(number))
    kinds = tuple((f"kind {at:06d}", 1e-5 * (1 + at / number), 1e-3) for at in range(number))
    guarantee = replace(base.guarantee, kinds=kinds, assumptions=(*names, "the last one fails: unknown"))
    plan = replace(
        base.plan, kept_columns=names, label_columns=names, params=dict.fromkeys(names, "x"),
        labels=tuple((name,) for name in names), warnings=names, guarantee=guarantee,
        model_ids={name: name for name in names},
    )  # fmt: skip
    files = tuple((f"data/train-{at:05d}-of-{number:05d}.parquet", "0" * 64) for at in range(number))
    return replace(golden.fixed(plan, 500), files=files)


def test_ten_thousand_names_leave_a_card_that_people_read():
    held = many(10_000)
    start = time.perf_counter()
    card = render(held)
    assert time.perf_counter() - start < 2
    assert len(card.encode()) < LARGEST and max(map(len, card.split("\n"))) < 3_000
    front, shown = parts(card)
    assert len(front) < LARGEST / 4 and DatasetCard(card).data.to_dict() == front_matter(held)
    for section in shown.split("\n## ")[1:]:
        lines = [line for line in section.split("\n") if line.startswith(("- ", "| a ", "| m "))]
        assert len(lines) <= 2 * SHOWN + 20, section[:40]
    assert "19,950 more, which privacy.json lists: public" in shown
    assert "10,000 kinds with bounds of their own, each at most" in shown
    assert "**the last one fails: unknown**" in shown, "what does not hold is never cut"
    assert "no protection. This holds if the unknown assumptions below do." in shown
    assert claims(card, held)


def test_what_is_short_is_shown_whole():
    card = render(many(20))
    assert "more, which privacy.json lists" not in card and "name 000019" in card


def test_a_long_value_is_cut_and_says_so():
    held = named("madlib", "x" * 5_000)
    card = render(held)
    assert "and 3000 more characters, in privacy.json" in card and "x" * 2_001 not in parts(card)[1]
