"""Every registered mechanism has a unit audit, and each audit faults that it refutes."""

from hf_dpsynth import list_mechanisms
from hf_dpsynth.mechanisms.evolution.dp_eda import GAUSSIAN, LIMITED
from tests.audit.mechanisms import (
    test_evolution,
    test_finetune,
    test_prediction,
    test_rewrite,
    test_secrets,
    test_words,
)

FAMILIES = (test_evolution, test_finetune, test_prediction, test_rewrite, test_secrets, test_words)
UNITS = {name: unit for family in FAMILIES for name, unit in family.UNITS.items()}


def test_every_mechanism_of_the_registry_has_a_unit_audit():
    registered = {name for name, kind, *_ in list_mechanisms() if kind != "plugin"}
    assert {name.split()[0] for name in UNITS} == registered
    assert {f"dp-eda {selection}" for selection in (GAUSSIAN, LIMITED)} <= set(UNITS)


def test_every_unit_audit_has_faults_to_refute():
    assert all(len(unit.faults) >= 2 for unit in UNITS.values())
