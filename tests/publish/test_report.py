"""The report: what each page may hold, that pages are whole and equal, and which files are replaced."""

import json
import math
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest
from datasets import Dataset

import hf_dpsynth
from hf_dpsynth.errors import ConfigError, PrivacyError
from hf_dpsynth.figures.palette import LIGHT
from hf_dpsynth.publish.report import facts, write_report
from hf_dpsynth.publish.report.page import public_page
from hf_dpsynth.publish.report.private import PrivateFacts
from hf_dpsynth.publish.verify import NOT_CHECKABLE
from hf_dpsynth.release import release_of
from tests.publish import reporting
from tests.publish.reporting import markup, pictures, words
from tests.stubs import CANARY, ROOT, StubGenerator, files_with, reviews, synth, toy_vectors

BANNER = "This page reads private data: no guarantee covers it. Keep it."
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)> \" ' {{ 7 * 7 }} $x$ \u202eevil\u2066 \x1b[31m\x00 \u6f22"
)


@pytest.fixture(scope="module")
def reported(made, tmp_path_factory):
    """Both pages of one run of 131 private records, to be read and not changed."""
    folder = tmp_path_factory.mktemp("reported")
    run = folder / "run"
    synth(reviews(131), out=run)
    report = reporting.write(run, real=reviews(131)["text"][:])
    return run, report.public.read_text(), report.private.read_text()


def test_no_private_text_figure_or_count_reaches_the_publishable_page(reported):
    run, public, private = reported
    secrets = ("131", "4,322 s", "0.6217", "0.9513", "zqlimit", "zqlearner", "0.8123", BANNER)
    everything = " ".join([words(public), *re.findall(r'alt="([^"]*)"', public), *map(words, pictures(public))])
    for secret in (CANARY, *secrets):
        assert not re.search(rf"\b{re.escape(secret)}", everything), secret
        assert secret in words(private) or secret == CANARY, secret
    assert CANARY not in public + "".join(pictures(public))
    assert files_with(run, CANARY) == []
    assert not {path.stem for path in (run / "report").iterdir()} & {"map", "metrics", "ngrams-1", "ngrams-2", "study"}


def test_words_of_real_texts_stand_on_the_private_page(tmp_path):
    synth(reviews(24), out=tmp_path / "run")
    real = [f"{CANARY} likes it"] * 24
    report = write_report(tmp_path / "run", real=real)
    assert CANARY in words(report.private.read_text())
    assert files_with(tmp_path / "run", CANARY) == []


def test_the_publishable_page_is_the_same_with_and_without_real_texts(run):
    folder = run()
    before = write_report(folder)
    page, drawn = before.public.read_bytes(), {path: path.read_bytes() for path in (folder / "report").iterdir()}
    assert before.private is None
    reporting.write(folder)
    assert page == (folder / "report.html").read_bytes()
    assert drawn == {path: path.read_bytes() for path in (folder / "report").iterdir()}


def test_the_pages_carry_no_time_finer_than_a_day_and_no_path(reported):
    run, public, _ = reported
    for text in (words(public), *pictures(public)):
        assert not re.search(r"\d\d:\d\d", text) and "T00" not in text
        assert str(run.parent) not in text and str(ROOT) not in text and os.path.expanduser("~") not in text


@pytest.mark.parametrize("private", [False, True])
def test_pictures_hold_no_date_and_no_name_but_ours(reported, private):
    folder = reported[0].with_name("run.private") if private else reported[0]
    files = sorted((folder / "report").glob("*.png"))
    assert len(files) == (9 if private else 4)
    for path in files:
        data, at, held = path.read_bytes(), 8, []
        while at < len(data):
            (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
            held.append((kind, data[at + 8 : at + 8 + length] if kind not in (b"IDAT", b"IHDR", b"pHYs") else b""))
            at += length + 12
        assert {kind for kind, _ in held} <= {b"IHDR", b"IDAT", b"IEND", b"pHYs", b"tEXt"}
        assert [text for kind, text in held if kind == b"tEXt"] == [b"Software\x00hf-dpsynth report"]
    for picture in pictures(reported[2]):
        assert "dc:date" not in picture and re.findall("<dc:title>(.*?)</dc:title>", picture) in (
            [],
            ["hf-dpsynth report"],
        )


@pytest.mark.parametrize("at", [1, 2], ids=["public", "private"])
def test_every_figure_has_words_a_table_and_a_dark_twin(reported, at):
    page = reported[at]
    drawn = page.split("<figure")[1:]
    assert len(drawn) == (4 if at == 1 else 9)
    for figure in drawn:
        alt = re.search(r'alt="([^"]*)"', figure)[1]
        assert len(alt) > 30 and alt.endswith(".") and any(sign.isdigit() for sign in alt)
        assert '<source media="(prefers-color-scheme: dark)" srcset="data:image/svg+xml;base64,' in figure
        assert "<caption>" in figure and "<details>" in figure and 'scope="col"' in figure and 'scope="row"' in figure
    light, dark = pictures(page)[1::2], pictures(page)[0::2]
    assert len(light) == len(dark) == len(drawn) and not set(light) & set(dark)


@pytest.mark.parametrize("at", [1, 2], ids=["public", "private"])
def test_a_page_names_nothing_outside_itself(reported, at):
    text = markup(reported[at])
    assert "http://" not in text and "https://" not in text and "<script" not in text and "url(" not in reported[at]
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in text
    assert {link[0] for link in re.findall(r'(?:href|src|srcset)="([^"])', reported[at])} <= {"#", "d"}
    assert '<html lang="en">' in text and "<main" in text and "<nav" in text and "<footer" in text


def luminance(color):
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first, second):
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_enough_in_both_themes(reported):
    """4.5 for text by WCAG 2.2, 1.4.3; 3 for marks of figures and the focus, by 1.4.11."""
    assert len(set(asdict(LIGHT).values())) == len(asdict(LIGHT)), "else a picture could not be turned dark"
    themes = re.findall(r":root \{(.*?)\}", reported[1], flags=re.S)[:2]
    assert len(themes) == 2
    for theme in themes:
        colors = dict(re.findall(r"--([\w-]+): (#\w{6});", theme))
        for text in ("ink", "muted", "accent"):
            for ground in ("page", "panel"):
                assert contrast(colors[text], colors[ground]) >= 4.5, (text, ground)
        for tone in ("good", "warn", "bad"):
            assert contrast(colors[tone], colors[f"{tone}-ground"]) >= 4.5, tone
        for mark in ("synthetic", "real", "accent"):
            assert contrast(colors[mark], colors["panel"]) >= 3, mark
        used = set(re.findall(r"var\(--([\w-]+)\)", reported[2]))
        assert used <= set(colors)


def test_equal_input_gives_equal_bytes_in_another_process(run):
    folder = run()
    reporting.write(folder)
    places = [folder, folder.with_name("run.private")]

    def held():
        files = [path for place in places for path in [place / "report.html", *sorted((place / "report").iterdir())]]
        return {str(path): path.read_bytes() for path in files}

    before = held()
    script = "import pathlib, sys; from tests.publish import reporting; reporting.write(pathlib.Path(sys.argv[1]))"
    environment = os.environ | {"PYTHONHASHSEED": "7", "MPLBACKEND": "svg"}
    subprocess.run([sys.executable, "-c", script, str(folder)], cwd=ROOT, env=environment, check=True)
    assert held() == before


def test_hostile_text_is_shown_and_never_markup(tmp_path):
    class Hostile(StubGenerator):
        def generate(self, prompts, **options):
            return [HOSTILE for _ in super().generate(prompts, **options)]

    names = ["<b>$neg", "pos\u202e\U0001f600"]
    shares = {names[0]: 0.25, names[1]: 0.75}
    synth(out=tmp_path / "run", generator=Hostile(), labels=names, label_proportions=shares)
    real = ["<i>zqreal $ \u202e</i>", HOSTILE]
    metrics = {"<u>m": {"<u>m": 1.0, "<u>m_floor": 2.0, "limits": ["<u>"], "uses_private_data": True}}
    report = write_report(tmp_path / "run", real=real, metrics=metrics, study=[{"<s>": "<s>", "x": math.nan}])
    for page in (report.public.read_text(), report.private.read_text()):
        assert not re.search(r"<(script|img src=x|b>|i>|u>|s>)", markup(page))
        assert "\u202e" not in page and "\x1b" not in page and "\x00" not in page and "\u2066" not in page
        assert "<script>alert(1)</script>" in words(page).replace("\ufffd", "") or "alert(1)" in words(page)
        assert "{{ 7 * 7 }}" in words(page) and "not private" not in words(page).lower()
    assert "All rows are the same text." in words(report.public.read_text())


def test_a_run_with_a_report_is_still_borne_out(reported):
    found = hf_dpsynth.verify(reported[0])
    assert found.ok, found.findings
    assert found.not_checkable[:-1] == NOT_CHECKABLE and found.not_checkable[-1].startswith("what report.html")


def test_only_the_owner_reads_the_private_page(reported):
    private = reported[0].with_name("run.private")
    assert (private.stat().st_mode | (private / "report").stat().st_mode) & 0o077 == 0
    for path in (private / "report.html", *(private / "report").iterdir()):
        assert path.stat().st_mode & 0o777 == 0o600
    assert (reported[0] / "report.html").stat().st_mode & 0o444 == 0o444


def test_the_first_words_are_the_claim(reported):
    release = hf_dpsynth.load_privacy(reported[0])
    text = words(reported[1])
    sentence = next(line for line in release.card().split("\n") if line.startswith("This data set is"))
    start = text[: text.index("Budget by charge")]
    for said in (sentence.replace("&#44;", ","), "DP epsilon 4", "delta 0.0001", "one record", "add-remove",
                 "formal_dp_conditional", "What is not covered", "Assumptions", ": unknown"):  # fmt: skip
        assert said in start, said
    assert BANNER not in text and words(reported[2]).index(BANNER) < 120


@pytest.mark.parametrize("kind", ["infinite", "madlib", "clear", "sized", "budget"])
def test_the_words_follow_the_claim(run, kind):
    text = words(write_report(run(kind)).public.read_text())
    assert ("NOT PRIVATE" in text) == (kind == "infinite")
    assert ("differentially private" in text) == (kind in ("sized", "budget"))
    assert ("number of records 24" in text) == (kind == "sized")
    assert ("number of records not published" in text) == (kind == "budget")
    if kind in ("madlib", "clear"):
        assert "Metric DP at scale 7 per word" in text and "scale per word" in text and "DP epsilon alone" not in text
    if kind == "clear":
        assert "not shown on this page: label" in text and not re.search(r"\b(neg|pos)\b", text)


def test_a_seeded_release_is_called_not_private(tmp_path):
    synth(out=tmp_path / "run", insecure_noise_seed=3)
    text = words(write_report(tmp_path / "run").public.read_text())
    assert "NOT PRIVATE" in text and "differentially private" not in text and "DP epsilon none" in text


@pytest.mark.parametrize(
    ("texts", "limit"),
    [
        (["good film"], "There is one row"),
        (["", "good", None], "1 of 3 rows are empty or white space. 1 of 3 rows hold no text"),
        (["", " "], "2 of 2 rows are empty"),
        ([None, None], "2 of 2 rows hold no text"),
    ],
)
def test_odd_rows_give_a_page_that_says_so(tmp_path, texts, limit):
    data = Dataset.from_dict({"text": texts}).cast_column("text", reviews().features["text"])
    data.privatize("madlib", epsilon=7, text_column="text", vectors=toy_vectors(), out=tmp_path / "run")
    for real in (["good film"], []):
        report = write_report(tmp_path / "run", real=real)
        assert limit in words(report.public.read_text())
        assert not re.search(r"\b(nan|NaN|inf)\b", words(report.private.read_text()))


def test_the_private_page_says_with_what_and_when_metrics_were_computed(run):
    folder = run()
    given = {"embedder": "zqembedder <b>", "date": "2026-11-30"}
    report = write_report(folder, metrics=reporting.METRICS, evaluated=given)
    text = words(report.private.read_text())
    assert text.index("rows of the floor") < text.index("embedder: zqembedder <b>; date: 2026-11-30")
    assert "zqembedder" not in report.public.read_text()
    assert "Evaluated with" not in words(write_report(folder, metrics=reporting.METRICS).private.read_text())


def test_only_the_times_of_this_run_are_added_up(run):
    folder = run()
    beside = folder.with_name("run.private")
    beside.mkdir(exist_ok=True)
    own = hf_dpsynth.load_privacy(folder).guarantee_id
    entries = [{"run": own, "seconds": 20.5}, {"run": "of another run", "seconds": 700}, {"seconds": 8000}]
    lines = [json.dumps(entry) for entry in (*entries, {"run": own, "seconds": 1.5})]
    (beside / "times.jsonl").write_text("\n".join(lines))
    assert "wall time 22 s 2 openings of the run" in words(write_report(folder, metrics={}).private.read_text())
    (beside / "times.jsonl").write_text("\n".join(lines[1:3]))
    assert "wall time" not in words(write_report(folder, metrics={}).private.read_text())


def test_metrics_that_have_no_figure_say_why_on_the_page(run):
    report = write_report(run(), metrics={"vendi": {"error": "vendi needs 2 texts", "uses_private_data": True}})
    assert "vendi: not computed. vendi needs 2 texts" in words(report.private.read_text())


def test_one_row_without_labels_gives_a_page(tmp_path):
    synth(out=tmp_path / "run", label_column=None, labels=None, num_rows=1)
    text = words(write_report(tmp_path / "run").public.read_text())
    assert "The rows carry no label" in text and "There is one row" in text


def test_a_dataset_that_was_saved_has_a_report_too(tmp_path):
    out = synth()
    out.save_to_disk(tmp_path / "saved")
    out.privacy.save(tmp_path / "saved")
    text = words(write_report(tmp_path / "saved").public.read_text())
    assert "votes-001" in text and hf_dpsynth.verify(tmp_path / "saved").ok
    (tmp_path / "saved" / "release.json").unlink()
    text = words(write_report(tmp_path / "saved").public.read_text())
    assert "The charges are not in this folder" in text and "3 x a vector of counts" in text


def test_a_run_that_is_broken_has_no_report(run):
    folder = run()
    data = folder / "data/train-00000-of-00001.parquet"
    kept = data.read_bytes()
    data.unlink()
    with pytest.raises(ConfigError, match="parquet is missing"):
        write_report(folder)
    data.write_bytes(kept + b"x")
    with pytest.raises(ConfigError, match=r"does not bear out its claim.*sha256 differs"):
        write_report(folder)
    data.write_bytes(kept)
    (folder / "privacy.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"privacy\.json"):
        write_report(folder)
    (folder / "privacy.json").unlink()
    with pytest.raises(ConfigError, match=r"privacy\.json"):
        write_report(folder)
    with pytest.raises(ConfigError, match="no folder"):
        write_report(folder / "nowhere")
    assert not (folder / "report.html").exists() and not (folder / "report").exists()


def test_a_report_replaces_its_own_files_alone(run, tmp_path):
    folder = run()
    write_report(folder)
    (folder / "report" / "notes.png").write_bytes(b"mine")
    shutil.copy(folder / "report" / "budget.png", folder / "report" / "former.png")
    write_report(folder)
    assert (folder / "report" / "notes.png").read_bytes() == b"mine"
    assert not (folder / "report" / "former.png").exists()
    for path in (folder / "report.html", folder / "report" / "budget.png"):
        kept = path.read_bytes()
        path.write_bytes(b"mine")
        with pytest.raises(ConfigError, match="no file of ours"):
            write_report(folder)
        assert path.read_bytes() == b"mine"
        path.write_bytes(kept)
    (folder / "report.html").unlink()
    (folder / "report.html").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="no file of ours"):
        write_report(folder)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"metrics": [1]}, "metrics= must map"),
        ({"metrics": {"mauve": 0.5}}, "metrics= must map"),
        ({"metrics": {}, "evaluated": {"date": 3}}, "evaluated= must map"),
        ({"metrics": {}, "evaluated": ["minilm"]}, "evaluated= must map"),
        ({"study": 3}, "study= must be"),
        ({"study": [3]}, "row of type int"),
        ({"real": CANARY}, "real= is of type str"),
        ({"real": [CANARY, 3]}, "value of type int"),
        ({"embeddings": np.zeros((3, 2))}, "two arrays"),
        ({"embeddings": (np.zeros((3, 2)), np.full((3, 2), np.nan))}, "NaN or infinite"),
        ({"embeddings": (np.zeros((3, 2)), np.zeros((3, 5)))}, "2 wide for the synthetic texts and 5"),
        ({"embeddings": (np.zeros((3, 2)), np.zeros((0, 2)))}, "no matrix"),
        ({"num_samples": -1}, "num_samples is -1"),
    ],
)
def test_an_argument_that_is_none_is_refused_without_a_private_word(run, given, said):
    folder = run()
    with pytest.raises(ConfigError, match=said) as caught:
        write_report(folder, **given)
    assert CANARY not in str(caught.value)
    assert not (folder / "report.html").exists() and not folder.with_name("run.private").exists()


@pytest.mark.parametrize("line", ["3", "{}", '{"seconds": "x"}', '{"seconds": NaN}', '{"seconds": -1}', "{"])
def test_times_that_are_none_are_refused(run, line):
    folder = run()
    folder.with_name("run.private").mkdir()
    (folder.with_name("run.private") / "times.jsonl").write_text(line)
    with pytest.raises(ConfigError, match=r"times\.jsonl must hold"):
        write_report(folder, metrics={})


def test_the_publishable_template_is_given_public_facts_alone():
    made = synth()
    release = release_of(made)
    rows = [facts.Row(text, label) for text, label in zip(made["text"], made["label"], strict=True)]
    page = public_page(facts.public_facts(release, rows, num_samples=2, seed=0), {})
    assert words(page).count("votes-00") >= 3
    folder = ROOT / "hf_dpsynth/publish"
    assert not re.search(r"\bprivate[.(]", (folder / "templates/report.html.jinja").read_text())
    assert "report.private" not in (folder / "report/facts.py").read_text() + (folder / "report/charts.py").read_text()


def test_private_facts_print_nothing_and_are_not_pickled():
    held = PrivateFacts(
        real=(CANARY,), verbatim=1, terms={}, scores=(), evaluated={}, limits=(), points=None, explained=0.0, study=(),
        study_notes=(), audits=(), seconds=(),
    )  # fmt: skip
    assert CANARY not in repr(held) and CANARY not in f"{held}"
    with pytest.raises(PrivacyError):
        pickle.dumps(held)
