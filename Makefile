# Stormpetrel. `make help` lists what there is; the first use of a target sets up what it needs: `make demo` the small .venv-demo,
# the others .venv. Another Python: make test PYTHON=python3.13 VENV=.venv313
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO_VENV ?= $(VENV)-demo
REAL := realdata or slurm or postgres or prometheus or alertmanager or graphite or mpi or browser
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_ONLY_BINARY := :all:
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start hundreds of interpreters: what one has compiled, the next one reads.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup setup-full setup-demo demo check test test-bare test-all bench wheelhouse docs screenshots format clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.ready ## make .venv with Stormpetrel and what its development needs, without torch, SDV, JupyterLab and Ray

setup-full: $(VENV)/.ready-full ## the same with them, as CI has it: no test is skipped for want of a package

setup-demo: $(DEMO_VENV)/.ready ## make .venv-demo with the dashboard and what scores traces, and nothing else

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --editable . --group dev
	touch $@

$(VENV)/.ready-full: $(VENV)/.ready
	$(BIN)/pip install --quiet --editable . --group full
	touch $@

$(DEMO_VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DEMO_VENV)
	$(DEMO_VENV)/bin/pip install --quiet --no-compile --editable '.[dashboard,scoring]'
	touch $@

demo: setup-demo ## simulate a small site, learn from it, and show it live on http://127.0.0.1:8050
	$(DEMO_VENV)/bin/stormpetrel demo .demo

check: setup ## formatter, linter, type checker, import contracts, docs test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/test_docs.py tests/test_rooms.py

test: setup ## the tests, twenty minutes on two cores
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow"

test-bare: setup ## what needs real components or public logs, as on a machine that has neither: all of it is skipped
	CI= STORMPETREL_TEST_BARE=1 $(BIN)/pytest -q -rfE -n 2 --dist loadfile -m "($(REAL)) and not slow" | tee .bare.log
	@grep -qE '^[0-9]+ skipped in' .bare.log || (echo "Something ran, or failed, that should have been skipped."; exit 1)
	@rm .bare.log

test-all: setup-full ## the tests and the long proofs
	POLARS_MAX_THREADS=2 $(BIN)/pytest -n 2 --dist loadfile

bench: setup-full ## measure, print the ratios, and write benchmarks/results
	$(BIN)/python -m benchmarks.ingest
	$(BIN)/python -m benchmarks.simulate
	$(BIN)/python -m benchmarks.jobs
	$(BIN)/python -m benchmarks.watch
	$(BIN)/python -m benchmarks.overview
	$(BIN)/python -m benchmarks.serve --watch
	$(BIN)/python -m benchmarks.exporter
	$(BIN)/python -m benchmarks.traces
	$(BIN)/python -m benchmarks.events_ingest
	$(BIN)/python -m benchmarks.events
	$(BIN)/python -m benchmarks.synth_speed

wheelhouse: setup ## every wheel that an installation without internet needs, in dist/wheelhouse
	rm -rf dist/wheelhouse
	$(BIN)/pip wheel --quiet --wheel-dir dist/wheelhouse '.[dashboard,scoring,postgres]'
	@echo "copy dist/wheelhouse to the machine, then there: pip install --no-index --find-links wheelhouse 'stormpetrel[dashboard,scoring,postgres]'"

docs: setup ## build the documentation into docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build/html
	@echo "docs/_build/html/index.html"

screenshots: setup ## photograph every page of a demo site, light and dark, into docs/screenshots (needs Chromium)
	$(BIN)/python docs/screenshots.py

format: setup ## let the formatter and the linter change what they can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove what can be made again
	rm -rf $(VENV) $(DEMO_VENV) .demo docs/_build .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
