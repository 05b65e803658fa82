# Two commands set everything up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# On a machine without a CPU build of torch at hand: make test PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu"
PIP_FLAGS ?=
READY := $(VENV)/.ready

.PHONY: demo test test-slow lint types bench clean

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) -c constraints.txt -e ".[all,dev]"
	touch $(READY)

demo: $(READY)
	$(BIN)/python -m hf_dpsynth.demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not gpu"

test-slow: $(READY)
	$(BIN)/python -m pytest -m "slow and not gpu"

lint: $(READY)
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks.generation

clean:
	rm -rf $(VENV) demo-run demo-run.private .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
