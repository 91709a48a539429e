# Set-up and the daily commands. Needs git, make and a python3 >= 3.12; all else goes into .venv.

PYTHON ?= python3
VENV ?= .venv
# One test file a worker: a file's fixtures, and what they compile, are made once. In the order of
# tests/conftest.py, not by the number of tests.
PYTEST_ARGS ?= -q -n 2 --dist loadfile --no-loadscope-reorder

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help example test test-slow test-all coverage lint format docs snippets bench bench-quick reproduce clean

help:
	@echo "make example   install the package and run examples/quickstart.py"
	@echo "make test      install the package and run the quick tests (minutes; PYTEST_ARGS='-q -k name' for some)"
	@echo "make test-all  these, and then those marked slow: many models, seeds, processes and documents"
	@echo "make coverage  the tests, the share of the lines that they run, and errors that none raises"
	@echo "make lint      ruff check, ruff format --check, mypy, and workflows by their schemas"
	@echo "make format    ruff's fixes and formatting, written to the files"
	@echo "make docs      run the notebooks and build docs/_build/html, warnings are errors (minutes)"
	@echo "make snippets  run the Python blocks of README.md and of the pages, docs/snippets.py (minutes)"
	@echo "make bench     calibration of the error bars, and the comparison with peers (long)"
	@echo "make bench-quick  start-up, gradient, draws a second, error of log Z: a line of a history (5 minutes)"
	@echo "make reproduce figures of the papers at small size, docs/benchmarks/reproduction.md (5 minutes)"
	@echo "make clean     remove .venv, caches and builds"

example: $(VENV)/.stamp-examples
	$(BIN)/python examples/quickstart.py

# Each of two workers would start a thread for each core in each product of matrices, and they would
# wait for each other for two thirds of the time.
test test-slow coverage: export OPENBLAS_NUM_THREADS = 1
test test-slow coverage: export OMP_NUM_THREADS = 1
test: $(VENV)/.stamp-test
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m "not slow"

test-slow: $(VENV)/.stamp-test
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m slow

test-all: test test-slow

# The interpreter's own monitoring (Python 3.12) costs a few per cent; other ways double the time.
coverage: $(VENV)/.stamp-coverage
	COVERAGE_CORE=sysmon $(BIN)/python -m pytest $(PYTEST_ARGS) --cov --cov-report= --cov-fail-under=0
	$(BIN)/python tools/unraised.py
	$(BIN)/python -m coverage report

lint: $(VENV)/.stamp-lint
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy --num-workers 2
	$(BIN)/python tools/check_schemas.py

format: $(VENV)/.stamp-lint
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

docs: $(VENV)/.stamp-docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

snippets: $(VENV)/.stamp-test
	$(BIN)/python docs/snippets.py

bench: $(VENV)/.stamp-examples
	$(BIN)/python benchmarks calibration
	$(BIN)/python benchmarks peers

# benchmarks/results/history.csv has a line for each time.
bench-quick: $(VENV)/.stamp-examples
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks quick

# BLAS on one thread: the speed is stated for it.
reproduce: $(VENV)/.stamp-examples
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks reproduce

clean:
	rm -rf $(VENV) build dist docs/_build docs/reference/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp an extra. The install is editable, so only a changed pyproject.toml asks for a new one.
$(VENV)/.stamp-%: pyproject.toml $(VENV)/.stamp-build
	@echo "Installing pymc-tempering[$*] into $(VENV); the first time takes a minute or two."
	@$(PIP) install -q --progress-bar off --no-build-isolation -e ".[$*]"
	@touch $@

# What builds the package; pip would else make an environment with it at each install.
$(VENV)/.stamp-build: $(VENV)/.stamp
	@$(PIP) install -q --progress-bar off "hatchling>=1.27" editables
	@touch $@

$(VENV)/.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 12))' || { \
	  echo "pymc_tempering needs Python 3.12 or newer, but '$(PYTHON)' is: $$($(PYTHON) --version 2>&1 | head -n 1)" >&2; \
	  echo "Install a newer one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12" >&2; \
	  exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@
