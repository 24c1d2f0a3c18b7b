# Two commands on a fresh machine with Python 3.11+: `make demo` and `make test`. Everything else builds on them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_ENV := PIP_DISABLE_PIP_VERSION_CHECK=1
TEST_JOBS ?= 2
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help demo test test-fast coverage soak bench check models format clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Hedgerow needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml requirements/constraints.txt
	$(PIP_ENV) $(BIN)/python -m pip install -q -c requirements/constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP_ENV) $(BIN)/python -m pip install -q -c requirements/constraints.txt -e '.[dev]'
	@touch $@

demo: $(VENV)/.installed ## See it work: two writers, the fence, and what was refused
	@$(BIN)/hedgerow demo

test: $(VENV)/.installed-dev ## Run every check and every test
	@$(BIN)/python tests/run.py --jobs $(TEST_JOBS)

test-fast: $(VENV)/.installed-dev ## Everything but the tests marked slow
	@$(BIN)/python tests/run.py --jobs $(TEST_JOBS) --fast

coverage: $(VENV)/.installed-dev ## Branch coverage of every room, by the fast tests; at least 90 %
	@rm -f .coverage*
	$(BIN)/python -m coverage run -m pytest -q -m 'not slow' -p no:cacheprovider tests
	$(BIN)/python -m coverage combine -q
	$(BIN)/python -m coverage report --fail-under=90

soak: $(VENV)/.installed-dev ## The long versions: more seeds, whole crash matrices, every model
	@$(BIN)/python tests/soak.py

bench: $(VENV)/.installed-dev ## Measure, and write docs/benchmarks.md
	@$(BIN)/python bench/run.py

check: $(VENV)/.installed-dev ## Lint, types, and the import rules between rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

models: ## Check the protocol's models exhaustively (needs spin and a C compiler)
	$(PYTHON) models/run.py

format: $(VENV)/.installed-dev ## Put the code into its usual form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove what was built or installed here
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis models/build dist build
