# Every target first creates .venv, if it is missing, with the versions in constraints.txt: two minutes.
SHELL := /bin/bash
# Keep byte code: without it, each test worker rewrites the assertions of all tests again (10 s).
export PYTHONDONTWRITEBYTECODE :=
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One test worker per core; each worker imports the whole package.
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN)
PYTHONS ?= 3.11 3.12 3.13 3.14
NEEDED ?= 3.11 3.12 3.13
# Limit each process to 12 GiB, so that a test that needs more fails instead of exhausting the machine.
LIMIT = ulimit -S -d 12582912;
TEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: help venv demo smoke check test test-pythons lint bench gpu real figures torture docs docs-tables wheel clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

$(STAMP): setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt 'torch==2.13.0' 'setuptools>=77' wheel
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

venv: $(STAMP)  ## create .venv with an editable install and all dependencies: two minutes

demo: $(STAMP)  ## run the k-MIP attention demo offline: a minute on two cores, after the two of venv
	$(BIN)/kmip-data demo

SMOKE = tests/kmip_data/format tests/kmip_data/reading/test_dataset.py tests/models/search/test_registry.py tests/cli/test_info.py tests/cli/test_runs.py

smoke: $(STAMP)  ## run 19 tests of format, items, search and two commands: under a minute
	$(BIN)/python -m pytest -q -m 'not torture and not slow' --core $(SMOKE)

check: $(STAMP)  ## run the first two tests of each file that are not slow: 3 to 4 CPU minutes
	$(LIMIT) $(TEST) -m 'not torture and not slow' --core

test: $(STAMP)  ## run all tests except mass fault injection: about 15 CPU minutes
	$(LIMIT) $(TEST) -m 'not torture'

test-pythons:  ## run the tests on Python 3.11, 3.12 and 3.13, and on 3.14 if installed, each in its own .venv-3.X
	@for version in $(PYTHONS); do \
	  python$$version -c '' 2>/dev/null || { missing="$$missing $$version"; continue; }; \
	  $(MAKE) --no-print-directory test PYTHON=python$$version VENV=.venv-$$version \
	    && passed="$$passed $$version" || failed="$$failed $$version"; \
	done; \
	echo "Python: passed on$${passed:- none}, failed on$${failed:- none}, not here$${missing:- none}"; [ -z "$$failed" ] && \
	for version in $(NEEDED); do case " $$missing " in *" $$version "*) exit 1;; esac; done

torture: $(STAMP)  ## inject many faults (kills, bit flips, links, full disks …) and count them by kind
	$(TEST) -m torture

bench: $(STAMP)  ## measure the speed table, or only TOPIC, and print ratios from a single run
	$(BIN)/python -m benchmarks $(TOPIC)

gpu: $(STAMP)  ## check the GPU claims in 3 minutes on a GPU; DRY=1 rehearses on a CPU
	$(BIN)/python -m tools.gpu check --out build/gpu $(if $(DRY),--dry --minutes 60)

real: $(STAMP)  ## download, build and train every dataset for one epoch, or NAMES="paris …"; resumable; DRY=1 needs no network
	$(BIN)/python -m tools.real --out build/real$(if $(DRY),-dry) $(NAMES)

lint: $(STAMP)  ## run ruff, the structure check, the count of typed advice, mypy, the import layering and codespell
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tools.structure
	$(BIN)/python -m tools.advice
	$(BIN)/mypy -p kmip_data
	PYTHONPATH=. $(BIN)/lint-imports --no-cache
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs kmip_data pipelines models cli manifests tests benchmarks tools setup.py

figures: $(STAMP)  ## count the source files executed by a training step, a training run and a build
	$(BIN)/python tools/journeys.py

$(VENV)/.installed-docs: $(STAMP)
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[docs]'
	@touch $@

docs: $(VENV)/.installed-docs  ## redraw the pictures, run the notebooks and build the site in build/site
	$(BIN)/python docs/site/pictures.py
	$(BIN)/python docs/site/notebooks.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

WRITERS = $(shell grep -rl KMIP_DATA_WRITE_DOCS tests --include='test_*.py' | grep -v adding_parts)

docs-tables: $(STAMP)  ## regenerate the tables and pages that tests compare with the code
	KMIP_DATA_WRITE_DOCS=1 $(BIN)/python -m pytest -q $(WRITERS)

wheel: $(STAMP)  ## build a reproducible wheel and sdist in dist/
	$(BIN)/python -m build --no-isolation --outdir dist .

clean:  ## remove builds and virtual environments
	rm -rf build dist src/*.egg-info $(VENV) .venv-3.*
