# Every target does its own set-up: a virtual environment in .venv, installed once from constraints.txt.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TYPED := build/typed
WORKERS ?= auto

.PHONY: help venv demo test lint bench torture wheel clean
.DEFAULT_GOAL := help

help:  ## show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

$(STAMP): setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt 'torch==2.13.0' 'setuptools>=64' wheel
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

venv: $(STAMP)  ## make .venv with everything installed, editable

demo: $(STAMP)  ## a real city to a trained model, offline, in a few minutes
	$(BIN)/kmip-data demo

test: $(STAMP)  ## all tests but mass fault injection
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not torture'

torture: $(STAMP)  ## mass fault injection: kills, bit flips, truncations, hostile servers
	$(BIN)/python -m pytest -n $(WORKERS) -m torture

bench: $(STAMP)  ## the speed table; prints ratios measured in one run
	$(BIN)/kmip-data bench all

lint: $(STAMP)  ## ruff, mypy strict and the layering on the built tree, codespell
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf $(TYPED) && $(BIN)/python setup.py -q build --build-base build/typed-base --build-lib $(TYPED) >/dev/null
	cd $(TYPED) && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.mypy_cache -p kmip_data
	cd $(TYPED) && PYTHONPATH=. $(CURDIR)/$(BIN)/lint-imports --config $(CURDIR)/pyproject.toml --no-cache
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs kmip_data pipelines models cli manifests tests setup.py

wheel: $(STAMP)  ## wheel and sdist into dist/
	$(BIN)/python -m build --no-isolation --outdir dist .

clean:  ## remove what was built
	rm -rf build dist *.egg-info $(VENV)
