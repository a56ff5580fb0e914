# make run    install into .venv, run every study on built-in data, write results/index.html
# make test   install into .venv, then ruff, mypy and all tests (WORKERS=n processes)
# make test-deploy   whole federations on loopback: start, use, kill, stop (slow)
# make test-graph    three SuperLinks in a line on loopback: the same (very slow)
# make bench  side-by-side benchmarks in 5 minutes (FULL=1 all, ONLY=name one), writes benchmarks/results.json
# make paper  the papers' figures at their own sizes, writes docs/papers.md (QUICK=1 in 15 minutes)
# make docs   the documentation as a site without a network, into site/; broken links fail
# make notebook   run docs/own-data.ipynb and docs/tour.ipynb anew and keep what they show
# make apps   write the Flower apps' pyproject.toml files from the studies' config classes
# make lock   resolve and pin every version anew
# make clean  remove everything the commands above made

SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WORKERS ?= 3

# Nothing we start phones home, and Flower uses what is installed here.
export FLWR_TELEMETRY_ENABLED := 0
export FLWR_DISABLE_UPDATE_CHECK := 1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION := 1
export RAY_USAGE_STATS_ENABLED := 0

.PHONY: install run test test-deploy test-graph lint bench paper docs notebook apps lock clean

install: $(INSTALLED)

$(INSTALLED): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

run: install
	$(BIN)/trellis run all --out results

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One process more than two cores: Flower's runtimes wait about as much as they compute.
test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not deploy"

# One after the other: each starts several processes, and waits for them.
test-deploy: install
	$(BIN)/python -m pytest -m deploy tests/deploy --ignore-glob='*/test_graph*.py'

test-graph: install
	$(BIN)/python -m pytest -m deploy tests/deploy/test_graph.py tests/deploy/test_graph_kit.py

bench: install
	$(BIN)/python -m benchmarks $(if $(FULL),--full) $(ONLY)

paper: install
	$(BIN)/trellis paper all $(if $(QUICK),--quick) --out results/paper --record docs/papers.json

# Material warns at every build that it will be followed by another project.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

notebook: install
	$(BIN)/python -m tests.docs.notebook docs/own-data.ipynb docs/tour.ipynb

apps: install
	$(BIN)/python -m trellis.apps.command.flower_apps

# Pins every version anew. torch is pinned by hand: newer ones bring gigabytes of CUDA packages.
lock:
	rm -rf .venv-lock
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet 'setuptools>=77,<82' torch==2.13.0 '.[laptop,gnn,docs,test]'
	( echo "# Made by make lock; installed by make install."; \
	  .venv-lock/bin/python -m pip freeze --all --exclude trellis --exclude pip \
	  | sed -E 's/\+cpu$$//; s/^torch @.*/torch==2.13.0/' ) > requirements.lock
	rm -rf .venv-lock build *.egg-info

clean:
	rm -rf $(VENV) .venv-peers results site build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis *.fab
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
