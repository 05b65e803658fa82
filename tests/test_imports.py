"""The house has floors, and an arrow may only point down."""

import ast
import pathlib
import re
import subprocess
import sys

import hf_dpsynth

PACKAGE = pathlib.Path(hf_dpsynth.__file__).parent
FLOORS = (
    {"errors", "logging"},
    {"extras", "guarantees", "registry", "strict_yaml"},
    {"compute", "devices", "figures"},
    {"processes"},
    {"privacy"},
    {"models", "columns", "formats", "tables", "splits"},
    {"data", "plans", "secrets"},
    {"release", "store", "inputs"},
    {"run"},
    {"mechanisms"},
    {"metrics"},
    {"downstream", "audit", "contamination"},
    {"publish", "streams"},
    {"dataset", "auditing"},
    {"evaluation"},
    {"attach", "demo", "recipe", "doctor"},
    {"cli", "__init__"},
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
UPWARD = {("release", "publish")}  # Release.card() and Release.save(): one lazy line each
HEAVY = ("torch", "transformers", "peft", "opacus", "spacy", "faiss", "dp_accounting", "sentence_transformers")


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "hf_dpsynth":
            parts = node.module.split(".")
            names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
            yield from (name for name in names if name in FLOOR)
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("hf_dpsynth."))


def forbidden(path, rooms):
    here = room_of(path)
    rooms = [room for room in rooms if (here, room) not in UPWARD]
    return [f"{path.relative_to(PACKAGE)} -> {room}" for room in rooms if room != here and FLOOR[room] >= FLOOR[here]]


def test_every_module_has_a_floor():
    assert {room_of(path) for path in PACKAGE.rglob("*.py")} <= set(FLOOR)


def test_no_import_points_up():
    arrows = [arrow for path in PACKAGE.rglob("*.py") for arrow in forbidden(path, imported_rooms(path))]
    assert arrows == []


def test_the_walk_sees_a_forbidden_arrow(tmp_path):
    assert forbidden(PACKAGE / "privacy" / "noise.py", ["mechanisms"]) == ["privacy/noise.py -> mechanisms"]


def test_accelerate_is_imported_by_devices_alone():
    named = [p.name for p in PACKAGE.rglob("*.py") if re.search(r'import accelerate|need\("accelerate', p.read_text())]
    assert named == ["devices.py"]


def test_processes_talk_in_one_module_alone():
    named = [p.name for p in PACKAGE.rglob("*.py") if "torch.distributed" in p.read_text()]
    assert named == ["processes.py"]


def test_importing_the_package_loads_nothing_heavy():
    code = f"import sys, hf_dpsynth; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def ambient(tree):
    """Every use of a generator that somebody else could seed, share or replay."""
    for node in ast.walk(tree):
        text = ast.unparse(node) if isinstance(node, (ast.Attribute, ast.Import, ast.ImportFrom)) else ""
        allowed = ("np.random.Generator", "np.random.PCG64", "np.random")
        if text.startswith(("random.", "np.random", "numpy.random")) and text not in allowed:
            yield text
        elif text in ("import random", "torch.manual_seed", "torch.random") or text.startswith("from random "):
            yield text


def test_no_ambient_randomness_in_the_package():
    for path in PACKAGE.rglob("*.py"):
        assert list(ambient(ast.parse(path.read_text(encoding="utf-8")))) == [], path
    for bad in ("np.random.normal(3)", "import random", "torch.manual_seed(1)", "np.random.default_rng(0)"):
        assert list(ambient(ast.parse(bad))) != []
