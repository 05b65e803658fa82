"""`verify` finds whatever was tampered with, and says what it cannot see."""

import json
import pathlib
import shutil
import sqlite3
from contextlib import closing

import pytest

import hf_dpsynth
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.publish import accounts
from hf_dpsynth.publish.card import render
from hf_dpsynth.publish.privacy_json import to_privacy_json
from hf_dpsynth.publish.reading import from_privacy_json
from hf_dpsynth.publish.verify import NOT_CHECKABLE
from hf_dpsynth.release import Release
from tests.publish import golden
from tests.publish.forging import edit, put
from tests.stubs import StubGenerator, synth

DATA = "data/train-00000-of-00001.parquet"


@pytest.mark.parametrize("kind", ["aug-pe", "sized", "infinite", "budget", "madlib", "clear"])
def test_what_a_run_wrote_is_borne_out(run, kind):
    found = hf_dpsynth.verify(run(kind))
    assert found.ok and found.schema and found.accounting_recomputed and found.files_match and found.findings == ()
    more = ("the budget across runs: its file is with the publisher",) if kind == "budget" else ()
    assert found.not_checkable == (*NOT_CHECKABLE, *more) and "verified private" not in repr(found)


@pytest.mark.parametrize("kind", ["aug-pe", "sized", "infinite", "budget", "madlib", "clear"])
def test_privacy_json_alone_carries_all_of_its_facts(run, kind):
    facts = json.loads((run(kind) / "privacy.json").read_text())
    assert to_privacy_json(from_privacy_json(facts)) == facts


CLAIMS = {
    "a smaller epsilon": (put("parameters.epsilon", 0.5), "parameters.epsilon: claimed 0.5, the events cost 3.99"),
    "a smaller delta": (put("parameters.delta", 1e-6), "parameters.epsilon"),
    "a delta of nothing": (put("parameters.delta", 0.0), "parameters.delta"),
    "one event less": (put("accounting.events.events.0.count", 0), ""),
    "more rounds": (put("accounting.events.events.0.count", 4), "parameters.epsilon"),
    "less noise": (put("accounting.events.events.0.event.sigma", (0.5).hex()), "parameters.epsilon"),
    "no noise": (put("accounting.events", {"type": "NonPrivateDpEvent"}), "parameters.epsilon"),
    "replaced records": (
        lambda facts: facts.update(adjacency="replace_one") or put("accounting.relation", "replace_one")(facts),
        "adjacency: replace_one",
    ),
    "another relation": (put("accounting.relation", "zero_out"), "adjacency"),
    "an unconditional claim": (put("claim_status", "formal_dp"), "claim_status: formal_dp although"),
    "a failing assumption": (put("accounting.assumptions.0.holds", False), "although an assumption fails"),
    "a known seed": (put("randomness.seed_source", "user_seed"), "claim_status: the noise came from a seed"),
    "a number without a claim": (put("claim_status", "none"), "parameters.epsilon: 4.0 beside claim_status none"),
    "no number": (put("parameters.epsilon", None), "parameters.epsilon: null"),
    "text for a number": (put("parameters.epsilon", "4"), "parameters.epsilon"),
    "true for a number": (put("parameters.epsilon", True), "parameters.epsilon"),
    "an unknown accountant": (put("accounting.accountant", "paper"), "accounting.accountant"),
    "an unknown definition": (put("definition", "zcdp"), "definition"),
    "an interval of zero": (put("accounting.discretisation.interval", 1e-300), "accounting.events"),
    "a filter by PLD": (put("accounting.composition", "filter"), "accounting.composition"),
    "tiny noise": (put("accounting.events.events.0.event.sigma", (1e-9).hex()), "accounting.events"),
    "huge counts": (put("accounting.events.events.0.count", 10**30), "accounting.events"),
    "an unknown event": (put("accounting.events", {"type": "MagicDpEvent"}), "MagicDpEvent"),
    "an event that is none": (put("accounting.events", ["x"]), "accounting"),
    "a missing scope": (lambda facts: facts.pop("scope"), "scope"),
    "a missing claim": (lambda facts: facts.pop("parameters"), "parameters"),
    "an extra key": (put("parameters.note", "trust me"), "note"),
    "a scope without limits": (put("scope.not_covered", []), "scope.not_covered"),
    "a shorter scope": (lambda facts: facts["scope"]["not_covered"].pop(), "scope.not_covered"),
    "a better scope": (put("scope.not_covered.0", "nothing"), "scope.not_covered[0]"),
    "exact noise": (put("randomness.cryptographic", False), "randomness.cryptographic"),
    "clean models": (put("public_inputs.0.overlap_with_private", "none"), "public_inputs[0]"),
    "more rows": (put("output.n_records", 13), "output.n_records"),
    "another digest": (put("output.files.0.sha256", "0" * 64), "parquet: sha256 differs"),
    "no files": (put("output.files", []), "parquet: not listed"),
    "a path that leads out": (put("output.files.0.path", "../x.parquet"), "leads out of the folder"),
    "an absolute path": (put("output.files.0.path", "/etc/passwd"), "leads out of the folder"),
}


@pytest.mark.parametrize("name", [name for name in CLAIMS if name != "one event less"])
@pytest.mark.parametrize("everywhere", [False, True])
def test_a_changed_fact_is_found_even_when_everything_else_follows_it(run, name, everywhere):
    change, words = CLAIMS[name]
    folder = run()
    try:
        found = edit(folder, change, everywhere=everywhere)
    except (KeyError, TypeError, AttributeError):  # a card of such facts cannot even be forged
        (folder / "README.md").unlink(missing_ok=True)
        found = hf_dpsynth.verify(folder)
    assert not found.ok and any(words in line for line in found.findings), found.findings
    assert all("\n" not in line and "Traceback" not in line for line in found.findings)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("one event less", put("accounting.events.events.0.count", 1)),
        ("doubled noise", put("accounting.events.events.0.event.sigma", (1.7039 * 2).hex())),
    ],
)
def test_events_that_did_not_run_contradict_the_ledger(run, name, change):
    found = edit(run(), change)
    assert not found.ok and found.accounting_recomputed
    assert any(line.startswith("ledger.db") for line in found.findings), found.findings
    assert any(line.startswith("plan.json contradicts accounting.events") for line in found.findings), name


def test_a_weaker_claim_is_true_and_still_no_release_of_ours(run):
    found = edit(run(), put("parameters.epsilon", 40.0))
    assert found.accounting_recomputed and not found.ok


def test_a_published_number_of_records_is_not_add_remove(run):
    folder = run("sized")
    found = edit(folder, lambda facts: facts.update(adjacency="add_remove"))
    assert any("source.n_units publishes it" in line for line in found.findings)


def test_a_metric_scale_is_compared_with_the_events(run):
    folder = run("madlib")
    assert any("epsilon claimed 3" in line for line in edit(folder, put("parameters.metric_dp.scale", 3)).findings)
    assert any("no scale of the" in line for line in edit(folder, put("parameters.metric_dp.scale", 70)).findings)
    more = put("output.files", [{"path": f"data/{name}.parquet", "sha256": "0" * 64} for name in "ab"])
    assert any("1 releases of the texts" in line for line in edit(folder, more).findings)


def test_bytes_and_files_that_were_added_or_taken_are_found(run):
    folder = run()
    with (folder / DATA).open("ab") as handle:
        handle.write(b"x")
    (folder / "data/test-00000-of-00001.parquet").write_bytes(b"more")
    (folder / "stray.arrow").write_bytes(b"more")
    found = hf_dpsynth.verify(folder)
    assert not found.files_match and found.accounting_recomputed and found.schema
    assert set(found.findings) == {
        f"{DATA}: sha256 differs",
        "data/test-00000-of-00001.parquet: not listed in output.files",
        "stray.arrow: not listed in output.files",
    }
    (folder / DATA).unlink()
    assert f"{DATA}: missing" in hf_dpsynth.verify(folder).findings


def test_a_link_in_place_of_a_file_is_found(run):
    folder = run()
    (folder / DATA).rename(folder.parent / "elsewhere.parquet")
    (folder / DATA).symlink_to(folder.parent / "elsewhere.parquet")
    assert not hf_dpsynth.verify(folder).files_match


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("epsilon: 4.0\n", "epsilon: 0.1\n", "README.md front matter: differential_privacy.epsilon: 0.1"),
        ("epsilon: 4.0\n", 'epsilon: "4.0"\n', "README.md front matter: differential_privacy.epsilon"),
        ("- synthetic\n", "- synthetic\n- anonymous\n", "README.md front matter: tags"),
        ("---\npretty", "pretty", "README.md front matter: missing"),
        ("tags:", "tags: [", "README.md front matter: no YAML"),
        ("tags:", "a: &a [1]\nb: [*a, *a]\ntags:", "README.md front matter: no YAML"),
        ("DP epsilon = 4 and", "DP epsilon = 0.1 and", "README.md text"),
        ("## What is not covered", "## What is covered", "README.md text"),
    ],
)
def test_a_changed_card_is_found(run, old, new, words):
    card = run() / "README.md"
    text = card.read_text()
    assert old in text
    card.write_text(text.replace(old, new, 1))
    found = hf_dpsynth.verify(card.parent)
    assert any(line.startswith(words) for line in found.findings), found.findings


def test_line_ends_of_windows_change_nothing(run):
    card = run() / "README.md"
    card.write_bytes(card.read_bytes().replace(b"\n", b"\r\n"))
    assert hf_dpsynth.verify(card.parent).ok


def test_a_card_of_another_template_is_found(run, monkeypatch):
    folder = run()
    source = pathlib.Path(hf_dpsynth.__file__).parent / "publish/templates/card.md.jinja"
    template = source.read_text()
    start, end = template.index("## What is not covered"), template.index("## All releases")
    forged = folder.parent / "publish"
    (forged / "templates").mkdir(parents=True)
    (forged / "templates/card.md.jinja").write_text(template[:start] + template[end:])
    with monkeypatch.context() as patch:
        patch.setattr("hf_dpsynth.publish.card.resources.files", lambda package: forged)
        (folder / "README.md").write_text(render(json.loads((folder / "privacy.json").read_text())))
    found = hf_dpsynth.verify(folder)
    assert len(found.findings) == 1 and found.findings[0].startswith("README.md text")


@pytest.mark.parametrize("name", ["plan.json", "release.json", "ledger.db", "README.md"])
def test_a_broken_file_is_a_finding(run, name):
    folder = run()
    (folder / name).write_bytes(b"\xff\x00{broken")
    found = hf_dpsynth.verify(folder)
    assert not found.ok and any(line.startswith(name) for line in found.findings)


def test_the_files_of_another_run_are_found(run, made):
    folder = run()
    for name in ("plan.json", "ledger.db", "release.json"):
        shutil.copy(made / "sized" / name, folder / name)
    lines = " ".join(hf_dpsynth.verify(folder).findings)
    assert "ledger.db is of another run" in lines and "plan.json contradicts" in lines and "release.json" in lines


def test_charges_beyond_the_plan_are_found(run):
    folder = run()
    with closing(sqlite3.connect(folder / "ledger.db")) as database:
        database.execute("UPDATE charges SET count = 9 WHERE key = 'votes-001'")
        database.commit()
    assert any("accounting.events has 3" in line for line in hf_dpsynth.verify(folder).findings)


def test_a_lost_round_is_named(run):
    folder = run()
    with closing(sqlite3.connect(folder / "ledger.db")) as database:
        database.execute("UPDATE charges SET state = 'charged', value = NULL WHERE key = 'votes-002'")
        database.commit()
    assert "limitations: ledger.db lost votes-002, which none names" in hf_dpsynth.verify(folder).findings
    note = "votes-002 was charged and lost when a process stopped; its round was skipped."
    found = edit(folder, put("limitations", [note]))
    assert not any("lost" in line and line.startswith("limitations") for line in found.findings)


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"


@pytest.mark.parametrize(
    "script",
    [
        f"DROP TABLE charges; CREATE VIEW charges AS {ENDLESS} 'k' AS key, '{{}}' AS event, 1 AS count, 'x' AS state",
        f"DROP TABLE meta; CREATE VIEW meta AS {ENDLESS} 'run' AS name, x AS value FROM n WHERE x < 0",
        "ALTER TABLE charges DROP COLUMN state; ALTER TABLE charges ADD COLUMN state AS (hex(zeroblob(9)))",
        "INSERT INTO charges (key, event, count, about, state, day) "
        f"{ENDLESS} x, '{{}}', 1, '', 'charged', '' FROM n LIMIT 100001",
        "UPDATE charges SET event = zeroblob(25000000) WHERE key = 'votes-001'",
        "UPDATE charges SET count = 'many'",
        "DROP TABLE charges",
    ],
)  # fmt: skip
def test_a_hostile_ledger_is_a_finding_and_no_endless_work(run, script):
    folder = run()
    with closing(sqlite3.connect(folder / "ledger.db")) as database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.executescript(script)
    assert any(line.startswith("ledger.db: cannot be read") for line in hf_dpsynth.verify(folder).findings)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "3", '"x"', "{}", '{"a": NaN}', '{"a": Infinity}', '{"a": 1e999}', '{"a": 1, "a": 2}',
     "[" * 100_000, '{"a":' * 900 + "1" + "}" * 900, "1" * 5000],
)  # fmt: skip
def test_a_privacy_json_that_is_none_is_a_finding(run, text):
    folder = run()
    (folder / "privacy.json").write_text(text)
    found = hf_dpsynth.verify(folder)
    assert not found.ok and not found.accounting_recomputed and found.findings
    with pytest.raises(ConfigError):
        hf_dpsynth.load_privacy(folder)


def test_a_folder_without_facts_and_no_folder(tmp_path):
    assert not hf_dpsynth.verify(tmp_path).ok
    for path in ("nobody/nothing/here", tmp_path / "nothing", 3):
        with pytest.raises(ConfigError, match="folder"):
            hf_dpsynth.verify(path)


def test_a_second_opening_leaves_every_file_as_it_is(made, tmp_path):
    out = tmp_path / "run"
    synth(out=out)
    before = {path: path.read_bytes() for path in out.glob("*.*")}
    synth(out=out, generator=StubGenerator())
    assert {path: path.read_bytes() for path in out.glob("*.*")} == before


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 10.0, 1e3, 1e6])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_every_plan_bears_its_own_claim(epsilon, adjacency):
    plan = hf_dpsynth.plan("aug-pe", epsilon=epsilon, delta=1e-9, num_rows=9, labels=[0, 1], adjacency=adjacency)
    facts = to_privacy_json(Release(plan=plan, guarantee=plan.guarantee, charges=()))
    assert accounts.check(facts) == []
    facts["parameters"]["epsilon"] *= 0.99
    assert accounts.check(facts)[0].startswith("parameters.epsilon: claimed")


@pytest.mark.parametrize(
    "events",
    [
        {"type": "SelfComposedDpEvent", "count": 10**8, "event": {"sigma": (1e3).hex(), "shifts": [1]}},
        {"type": "SelfComposedDpEvent", "count": 1, "event": {"sigma": (1e12).hex(), "shifts": [1]}},
        {"type": "SelfComposedDpEvent", "count": 1, "event": {"sigma": (1.0).hex(), "shifts": [10**12]}},
        {"type": "SelfComposedDpEvent", "count": 1, "event": {"sigma": (1e5).hex(), "shifts": [1] * 1000}},
    ],
)
def test_events_that_would_take_hours_are_refused_at_once(events):
    events["event"]["type"] = "DiscreteGaussianDpEvent"
    facts = to_privacy_json(golden.releases()["aug-pe-add-remove"])
    facts["accounting"]["events"] = events
    assert [line for line in accounts.check(facts) if line.startswith("accounting.events")]
