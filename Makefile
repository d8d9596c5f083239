# The two commands: `make audit` (the main job) and `make test`. Both set everything up by themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: audit test lint bench clean

audit: $(READY)
	$(BIN)/seeupo audit --out results/audit $(AUDIT_FLAGS)

test: lint
	$(BIN)/python -m pytest -n auto

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,lint]'
	touch $@

clean:
	rm -rf $(VENV) results build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
