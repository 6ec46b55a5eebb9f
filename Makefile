# `make demo` and `make test` each set everything up in .venv by themselves; CONTRIBUTING.md says how.
#   PYTHON=python3.12          the interpreter of .venv (3.10 to 3.13)
#   TORCH=2.11.0 or a .whl     the torch of .venv; without it a recent one that is already there is kept
#   PYTEST_ARGS="-k storage"   more arguments for pytest

PYTHON ?= python3
TORCH ?=
PYTEST_ARGS ?=
BIN := .venv/bin

# a PYTHONPATH of the user's could put other packages before the pinned ones
unexport PYTHONPATH

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test test-torch lint pytest gpu format dist clean distclean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

setup: ## build .venv, or bring it up to date
	@$(PYTHON) scripts/setup_venv.py --torch "$(TORCH)"

demo: setup ## collect measurements on this machine and show what came of it
	@echo "==> diode demo: python -m diode.demo"
	@$(BIN)/python -m diode.demo

test: lint pytest ## all checks and all tests

test-torch: ## the Inductor tests with another torch, in an environment of its own: TORCH=2.15.0
	@$(PYTHON) scripts/torch_versions.py --torch "$(TORCH)" -- $(PYTEST_ARGS)

lint: setup ## ruff and mypy
	@echo "==> lint: ruff check"
	@$(BIN)/ruff check .
	@echo "==> format: ruff format --check"
	@$(BIN)/ruff format --check .
	@echo "==> types: mypy --strict (the first run reads torch's own types, about a minute)"
	@$(BIN)/mypy

pytest: setup ## the tests, with coverage
	@echo "==> tests: pytest, with coverage"
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --cov --cov-report=term $(PYTEST_ARGS)

gpu: setup ## what is checked on a GPU, kept in build/gpu_checks.json
	@echo "==> GPU: the checks of tests/integration/gpu"
	@mkdir -p build
	@PYTHONPATH=src $(BIN)/python benchmarks/gpu_checks.py --output build/gpu_checks.json

format: setup ## rewrite the sources as ruff wants them
	@$(BIN)/ruff check --fix --exit-zero --quiet .
	@$(BIN)/ruff format .

dist: setup ## both distributions, as sdist and wheel, into dist/
	@$(BIN)/python scripts/build_distributions.py

clean: ## remove caches and build outputs
	rm -rf build dist htmlcov coverage.xml .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv*/*' -prune -exec rm -rf {} +

distclean: clean ## and all environments
	rm -rf .venv .venv-torch-*
