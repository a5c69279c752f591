# `make serve` and `make test` do all set-up on a fresh machine, once. `make help` lists the rest.

PYTHON ?= python3
ARGS ?=
PROMPT ?=
BIN := .venv/bin

.PHONY: help setup setup-dev run serve test check format bench

help:
	@echo "make run     set up, and answer one prompt (PROMPT='...' ARGS='-v')"
	@echo "make serve   set up, and serve HTTP on 127.0.0.1:8080 (ARGS='-m model.gguf -np 4')"
	@echo "make test    set up, and pass the tests (ARGS='-k name')"
	@echo "make check   ruff and mypy"
	@echo "make bench   plain against speculative decoding, pairwise"

setup:
	@$(PYTHON) tools/setup_venv.py

setup-dev:
	@$(PYTHON) tools/setup_venv.py --dev

run: setup
	@$(BIN)/surefoot run $(ARGS) $(if $(PROMPT),"$(PROMPT)",--temp 0 -v -f examples/repeat.txt)

serve: setup
	@exec $(BIN)/surefoot serve $(ARGS)

test: setup-dev
	@$(BIN)/python -m pytest $(ARGS)

check: setup-dev
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: setup-dev
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

bench: setup
	@$(BIN)/surefoot bench $(ARGS)
