"""Exports: nothing that the facts do not say, in the forms that others read."""

import copy
import functools
import json
import re
import shutil

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hf_dpsynth
from hf_dpsynth.errors import ConfigError
from hf_dpsynth.publish.exporters import export, statements
from hf_dpsynth.publish.exporters.croissant import to_croissant, to_json
from hf_dpsynth.publish.exporters.registry import UNNAMED, to_registry, to_yaml
from hf_dpsynth.publish.privacy_json import to_privacy_json
from tests.publish import golden
from tests.publish.forging import edit
from tests.publish.registry_schema import unquoted_or_folded, wrong

NO_EPSILON = ("aug-pe-no-privacy", "madlib", "syntax-guided", "dp-prompt", "sec-pe")
TUNED = {"epsilon": 3.0, "delta": 4e-5, "num_records": 25_000, "params": {"steps": 100, "batch_size": 1024}}


NAMES = (
    "aug-pe-add-remove", "aug-pe-zero-out-own-embedder", "aug-pe-no-privacy", "madlib", "syntax-guided", "dp-prompt",
    "sec-pe", "dp-eda", "dp-eda-limited-domain", "sentdp-select", "dp-icl", "invisible-ink", "dp-lora",
    "dp-lora-users",
)  # fmt: skip
EACH = pytest.mark.parametrize("name", NAMES)


@functools.cache
def stated():
    """The facts of a release of each kind, by name."""
    made = dict(golden.releases())
    for name, unit in (("dp-lora", "record"), ("dp-lora-users", "author")):
        made[name] = golden.fixed(hf_dpsynth.plan("dp-lora", **TUNED, unit=unit, num_rows=500), 500)
    return {name: to_privacy_json(release) for name, release in made.items()}


def facts_of(name):
    """A copy of the facts of one of them."""
    return copy.deepcopy(stated()[name])


def test_every_kind_of_release_is_here():
    assert set(NAMES) <= set(stated())


def texts(value):
    """Every text in a JSON value."""
    if isinstance(value, dict):
        return [text for one in value.values() for text in texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in texts(one)]
    return [value] if isinstance(value, str) else []


def shown(text):
    """What Markdown shows of a text that was escaped for it."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text)


def both(facts):
    """All that each format says, as one text."""
    record, description = to_registry(facts), to_croissant(facts)
    return [shown("\n".join(texts(record))), "\n".join(texts(description))]


@EACH
def test_a_record_is_one_of_the_registry_but_for_what_no_facts_name(name):
    record = to_registry(facts_of(name))
    assert wrong(record) == sorted(UNNAMED)
    for path in UNNAMED:
        place = record
        *above, last = path.split(".")
        for step in above:
            place = place[step]
        assert place[last] is None
    record["deployment"]["basic"] |= {"intended_use": "research", "data_product_region": "Global"}
    record["deployment"]["basic"]["data_curators"] = [{"data_curator_name": "a", "data_curator_type": "Industry"}]
    record["deployment"]["administrative"]["registry_authors"] = ["b"]
    assert wrong(record) == []


def test_the_check_of_records_can_fail():
    record = to_registry(facts_of("dp-eda"))
    record["deployment"]["privacy_loss"]["privacy_parameters"]["mu"] = 1.0
    record["deployment"]["dp_variant"]["variant_name"] = "Metric DP"
    record["deployment"]["basic"]["publication_date"] = "30.11.2026"
    found = set(wrong(record)) - set(UNNAMED)
    assert found == {
        "deployment.basic.publication_date", "deployment.dp_variant.variant_name",
        "deployment.privacy_loss.privacy_parameters",
    }  # fmt: skip
    assert unquoted_or_folded("a: >\n  b\n  c\n") == ["b c\n"]


@EACH
def test_only_differential_privacy_of_a_data_set_has_numbers(name):
    facts = facts_of(name)
    deployment = to_registry(facts)["deployment"]
    numbers, variant = deployment["privacy_loss"]["privacy_parameters"], deployment["dp_variant"]
    words = both(facts)
    keywords = to_croissant(facts)["keywords"]
    if name in NO_EPSILON:
        assert numbers == {} and deployment["administrative"]["tier"] == 1
        assert ("variant_name" in variant) == (name in ("madlib", "syntax-guided", "dp-prompt"))
        assert variant.get("variant_name", "Custom") == "Custom" and "differential-privacy" not in keywords
        for text in words:
            told = text.replace("not differential privacy", "")
            assert "differential privacy" not in told and "differentially private" not in told
            assert "DP epsilon" not in told and "total epsilon" not in told and "Approximate DP" not in told
    else:
        assert numbers == {key: facts["parameters"][key] for key in ("epsilon", "delta")}
        assert all(isinstance(value, float) for value in numbers.values())
        assert variant["variant_name"] == "Approximate DP" and "differential-privacy" in keywords
        assert all(f"DP epsilon = {facts['parameters']['epsilon']:g} " in text for text in words)


def test_each_kind_of_claim_is_told_in_its_own_words():
    for name, words in {
        "aug-pe-no-privacy": "No privacy, per record",
        "madlib": "Metric DP at scale 10 per word",
        "dp-prompt": "Local DP with a loss of at most 1920 between any two values of one text",
        "sec-pe": "(0.0001, 0.001)-secret protection, not differential privacy",
        "dp-lora-users": "per user under zero-out adjacency",
    }.items():
        assert all(words in text for text in both(facts_of(name))), name
    none = facts_of("aug-pe-no-privacy")
    for text in both(none):
        assert "everything: nothing here protects the records" in text and "covered: 1 x" not in text
    seeded = {**facts_of("dp-eda"), "claim_status": "none", "parameters": none["parameters"]}
    measured = {**facts_of("dp-eda"), "claim_status": "empirical_only"}
    for facts in (seeded, measured):
        assert to_registry(facts)["deployment"]["privacy_loss"]["privacy_parameters"] == {}
        assert not any("differentially private" in text for text in both(facts))


@EACH
def test_what_is_open_is_carried_along(name):
    facts = facts_of(name)
    for text in both(facts):
        for entry in facts["scope"]["not_covered"]:
            assert f": {entry}" in text
        for entry in facts["accounting"]["assumptions"]:
            holds = "unknown whether it holds" if entry["holds"] == "unknown" else "holds"
            assert f"assumption, {holds}: {entry['name']} ({entry['note']})" in text
        carried = [*facts["scope"]["unprotected_quantities"], *facts["limitations"], *facts["references"]]
        carried += [*facts["scope"]["data_accesses_covered"], *facts["postprocessing"], facts["created"]]
        carried += [f"{key}: " for key in facts["mechanisms"][0]["params"]]
        carried += [entry["id"] for entry in facts["public_inputs"]]
        assert all(entry in text for entry in carried)
    digests = [entry["sha256"] for entry in facts["output"]["files"]]
    assert [file["sha256"] for file in to_croissant(facts)["distribution"]] == digests
    units = to_registry(facts)["deployment"]["privacy_loss"].get("number_of_privacy_units")
    assert units == facts["source"]["n_units"]


def test_a_user_is_named_with_its_column_and_its_bound():
    facts = facts_of("dp-lora-users")
    assert facts["privacy_unit"]["level"] == "user"
    for text in both(facts):
        assert "a unit is a value of the column author" in text and "most contributions of a unit: 8" in text
        assert "only some records of a user" in text


def test_figures_on_private_data_are_said_to_be_uncovered():
    facts = facts_of("dp-eda")
    facts["evaluation"] = [{"metric": "mauve", "value": 0.5, "uses_private_data": True, "accounted": False}]
    audit = {"attack": "canaries", "metric": "auc", "value": 0.51, "ci": None}
    facts["audit"] = [{**audit, "uses_private_data": True, "accounted": False}]
    for text in both(facts):
        assert "mauve: 0.5; computed on private data, not covered by the guarantee" in text
        assert "canaries, auc: 0.51 (an audit is not a proof); computed on private data" in text


@EACH
def test_yaml_of_any_version_reads_what_was_written(name):
    record = to_registry(facts_of(name))
    text = to_yaml(record)
    assert yaml.safe_load(text) == record and unquoted_or_folded(text) == []
    words = [token.value for token in yaml.scan(text) if isinstance(token, yaml.ScalarToken) and token.plain]
    keys = {key for key in re.findall(r"^ *(?:- )?([a-z_]+):", text, re.MULTILINE)}
    values = [word for word in words if word not in keys]
    assert all(re.fullmatch(r"null|\d+|\d+\.\d+(e[+-]\d+)?", word) for word in values), values


ODD = (
    "on",
    "no",
    "1e-06",
    "~",
    "null",
    "0x1F",
    "12:30:00",
    "2026-11-30",
    "=",
    "<<",
    "---",
    "a: b",
    "- x",
    "#",
    " &a *b ",
)


@pytest.mark.parametrize("word", ODD)
def test_a_text_that_yaml_knows_stays_a_text(word):
    facts = facts_of("madlib")
    facts["mechanisms"][0]["name"] = facts["source"]["name"] = facts["privacy_unit"]["column"] = word
    facts["scope"]["unprotected_quantities"] = [word]
    record = to_registry(facts)
    assert yaml.safe_load(to_yaml(record)) == record
    assert shown(record["deployment"]["dp_variant"]["unprotected_quantities"]) == f"- {word.strip()}\n"
    assert to_croissant(facts)["rai:personalSensitiveInformation"][-1] == f"not protected: {word.strip()}"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=20), min_size=1, max_size=3))
def test_any_text_is_data(notes):
    facts = {**facts_of("sec-pe"), "limitations": notes}
    record, description = to_registry(facts), to_croissant(facts)
    assert yaml.safe_load(to_yaml(record)) == record
    text = to_json(description)
    assert json.loads(text) == description and not {"<", ">", "&"} & set(text) and text.isascii()
    assert len(shown(record["deployment"]["implementation"]["additional_information"]).splitlines()) == 5 + len(notes)
    for note in notes:
        assert statements.line(note) in "\n".join(description["rai:dataLimitations"])


def test_a_text_cannot_become_a_link_or_a_tag():
    facts = {**facts_of("sec-pe"), "limitations": ["<script>x</script> [a](http://b) __c__ $d$ `e` snake_case\n# f"]}
    last = [line for line in to_yaml(to_registry(facts)).splitlines() if "script" in line and "limitation" in line]
    assert last == [r"      - limitation: \<script\>x\</script\> \[a\](http://b) \_\_c\_\_ \$d\$ \`e\` snake_case # f"]


def test_the_same_facts_are_exported_from_a_folder(run):
    folder = run("infinite")
    facts = json.loads((folder / "privacy.json").read_text())
    assert yaml.safe_load(export(folder, "opendp-registry")) == to_registry(facts)
    shutil.rmtree(folder / "data")
    alone = json.loads(export(str(folder), "croissant"))
    assert "recordSet" not in alone and len(alone["distribution"]) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda facts: facts.pop("scope"),
            "none that we write: .*'scope' is a required property.*Run hf-dpsynth verify",
        ),
        (lambda facts: facts["parameters"].update(epsilon="on"), "none that we write"),
        (lambda facts: facts.update(claim_status="none"), "contradicts itself. Run hf-dpsynth verify"),
        (lambda facts: facts["accounting"].update(events={"type": "Unknown"}), "none that we write|cannot be read"),
    ],
)
@pytest.mark.parametrize("format", ["opendp-registry", "croissant"])
def test_facts_that_are_broken_are_not_exported(run, change, said, format):
    folder = run()
    edit(folder, change)
    with pytest.raises(ConfigError, match=said):
        export(folder, format)


def test_no_folder_no_facts_and_no_format_say_what_to_do(run, tmp_path):
    folder = run()
    with pytest.raises(ConfigError, match=r"did you mean 'croissant'.*Known: croissant, opendp-registry"):
        export(folder, "croisant")
    with pytest.raises(ConfigError, match=r"is no folder here. Pass a run directory or a folder with a privacy.json"):
        export(tmp_path / "nowhere", "croissant")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"privacy\.json cannot be read \(No such file"):
        export(tmp_path / "empty", "opendp-registry")
    (folder / "privacy.json").write_text("{")
    with pytest.raises(ConfigError, match="no JSON that we write"):
        export(folder, "croissant")


def test_the_verb_prints_or_writes_what_the_function_returns(run, call, tmp_path):
    folder = run()
    code, out, err = call("export", folder, "--format", "opendp-registry")
    assert (code, err) == (0, "") and out == export(folder, "opendp-registry")
    written = tmp_path / "croissant.json"
    assert call("export", folder, "--format", "croissant", "--output", written) == (0, "", "")
    assert written.read_text() == export(folder, "croissant")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "--format", "rdf"), "Known: croissant, opendp-registry"),
        (("run",), "--format"),
        (("./nowhere", "--format", "croissant"), "is no folder here"),
        (("run", "--format", "croissant", "--output", "nowhere/c.json"), "pass a file in a folder that is there"),
        (("run", "--format", "croissant", "--output", "run"), "pass a file in a folder that is there"),
        (("run", "--format", "croissant", "--output", "run/privacy.json"), "belongs to a release"),
    ],
)
def test_wrong_arguments_take_one_line(run, call, arguments, said):
    before = (run() / "privacy.json").read_bytes()
    code, out, err = call("export", *arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1) and said in err
    with open("run/privacy.json", "rb") as file:
        assert file.read() == before


def test_a_broken_claim_takes_one_line(run, call):
    (run() / "privacy.json").write_text('{"claim": NaN}')
    code, out, err = call("export", "run", "--format", "opendp-registry")
    assert (code, out, len(err.splitlines())) == (2, "", 1) and "is no JSON that we write" in err
