# Every target does its own set-up: a virtual environment in .venv, installed once from constraints.txt.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# As many as cores: each further worker imports everything once more.
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN)
PYTHONS ?= 3.11 3.12 3.13 3.14
NEEDED ?= 3.11 3.12 3.13
# A test that outgrows 12 GiB fails by itself, where the system would stop whatever runs beside it.
LIMIT = ulimit -S -d 12582912;
TEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: help venv demo smoke check test test-pythons lint bench gpu real figures torture docs docs-tables wheel clean
.DEFAULT_GOAL := help

help:  ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

$(STAMP): setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt 'torch==2.13.0' 'setuptools>=77' wheel
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

venv: $(STAMP)  ## make .venv with everything installed, editable

demo: $(STAMP)  ## what k-MIP attention is for, offline: about a minute of work on two cores
	$(BIN)/kmip-data demo

SMOKE = tests/kmip_data/format tests/kmip_data/reading/test_dataset.py tests/models/search/test_registry.py tests/cli/test_info.py tests/cli/test_runs.py

smoke: $(STAMP)  ## 19 tests of format, items, search and two commands: under a minute of work
	$(BIN)/python -m pytest -q -m 'not torture and not slow' --core $(SMOKE)

check: $(STAMP)  ## the core of the tests, in two minutes: the first two of each file that are not slow
	$(LIMIT) $(TEST) -m 'not torture and not slow' --core

test: $(STAMP)  ## all tests but mass fault injection
	$(LIMIT) $(TEST) -m 'not torture'

test-pythons:  ## the tests on Python 3.11, 3.12 and 3.13, and 3.14 if it is here, each in its own .venv-3.X
	@for version in $(PYTHONS); do \
	  python$$version -c '' 2>/dev/null || { missing="$$missing $$version"; continue; }; \
	  $(MAKE) --no-print-directory test PYTHON=python$$version VENV=.venv-$$version \
	    && passed="$$passed $$version" || failed="$$failed $$version"; \
	done; \
	echo "Python: passed on$${passed:- none}, failed on$${failed:- none}, not here$${missing:- none}"; [ -z "$$failed" ] && \
	for version in $(NEEDED); do case " $$missing " in *" $$version "*) exit 1;; esac; done

torture: $(STAMP)  ## mass fault injection: kills, bit flips, links, full disks …; counts by kind
	$(TEST) -m torture

bench: $(STAMP)  ## the speed table, or TOPIC of it; prints ratios measured in one run
	$(BIN)/python -m benchmarks $(TOPIC)

gpu: $(STAMP)  ## prove or disprove what is claimed of a GPU, in 3 minutes of one; DRY=1 tries it on a CPU
	$(BIN)/python -m tools.gpu check --out build/gpu $(if $(DRY),--dry --minutes 60)

real: $(STAMP)  ## every dataset from its real mirrors, to one epoch; NAMES="paris …"; resumable; DRY=1 needs no network
	$(BIN)/python -m tools.real --out build/real$(if $(DRY),-dry) $(NAMES)

lint: $(STAMP)  ## ruff, structure, mypy strict, the layering, codespell
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tools.structure
	$(BIN)/mypy -p kmip_data
	PYTHONPATH=. $(BIN)/lint-imports --no-cache
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs kmip_data pipelines models cli manifests tests benchmarks tools setup.py

figures: $(STAMP)  ## files of ours that a training step, a training and a build execute
	$(BIN)/python tools/journeys.py

$(VENV)/.installed-docs: $(STAMP)
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[docs]'
	@touch $@

docs: $(VENV)/.installed-docs  ## draw the pictures of docs/ again, run its notebooks, make a site of it all in build/site
	$(BIN)/python docs/site/pictures.py
	$(BIN)/python docs/site/notebooks.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

WRITERS = $(shell grep -rl KMIP_DATA_WRITE_DOCS tests --include='test_*.py' | grep -v adding_parts)

docs-tables: $(STAMP)  ## write the tables and pages that tests compare with the code
	KMIP_DATA_WRITE_DOCS=1 $(BIN)/python -m pytest -q $(WRITERS)

wheel: $(STAMP)  ## wheel and sdist into dist/, the same bytes wherever it is run
	$(BIN)/python -m build --no-isolation --outdir dist .

clean:  ## remove what was built
	rm -rf build dist src/*.egg-info $(VENV) .venv-3.*
