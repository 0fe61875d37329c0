.DEFAULT_GOAL := help
VENV := .venv/bin
OUT ?= fasttrack-out
# A file's tests stay in one process: they share what is costly to make.
PARALLEL := --numprocesses $(shell nproc) --maxprocesses 8 --dist loadfile

.PHONY: help setup validate test test-quick check mutate format

help: ## List the commands.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

setup: ## Create .venv with fasttrack and a CPU build of vLLM (does nothing when it is up to date).
	@python3 tools/setup_env.py

validate: setup ## Judge the Kimi K3 path, as committed, on a real vLLM engine on this CPU.
	@$(VENV)/fasttrack validate --base empty --paths 'specialized_path/**' --out $(OUT)

test: test-quick ## Run every test: those without an engine in one process a core, those with one alone.
	@$(VENV)/python -m pytest -m engine

test-quick: setup ## Run the tests that start no engine.
	@$(VENV)/python -m pytest -m "not engine" $(PARALLEL)

check: setup ## Format, lint, types, imports, tests that start no engine.
	@$(VENV)/ruff format --check .
	@$(VENV)/ruff check .
	@$(VENV)/mypy
	@$(VENV)/lint-imports
	@$(VENV)/python -m pytest -m "not engine" $(PARALLEL)

mutate: setup ## Mutation testing: make mutate MUTATE='SOURCE=TESTS ...' (docs/mutation.md); in a private copy.
	@$(VENV)/python tools/mutate.py $(MUTATE)

format: setup ## Format the code.
	@$(VENV)/ruff format .
	@$(VENV)/ruff check --fix .
