# Every target sets up what it needs in .venv, once; `make clean` starts over.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint types imports unit bench peers lock verify clean help

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-8s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt $(wildcard saccade/kernels/*.c saccade/kernels/*.h)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing saccade and its tools into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: $(READY)  ## train on the built-in corpus, translate, draw the alignment
	@$(BIN)/saccade demo

test: lint types imports unit  ## lint, types, import contracts, tests

lint: $(READY)  ## ruff: style and formatting
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "Not formatted: run $(BIN)/ruff format ."; exit 1; }

types: $(READY)  ## mypy
	@$(BIN)/mypy --no-error-summary

imports: $(READY)  ## import-linter: imports go one way
	@$(BIN)/lint-imports --no-cache > $(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }

unit: $(READY)  ## pytest
	@$(BIN)/pytest -n auto --dist loadfile

bench: $(READY)  ## measure speed and memory beside torch's own layers; writes benchmarks/results
	@$(BIN)/python -m benchmarks.attention
	@$(BIN)/python -m benchmarks.local2d
	@$(BIN)/python -m benchmarks.glance

peers: $(READY)  ## measure training beside other libraries; with RUN=directory decoding, start-up and serving, too
	@$(BIN)/python -m pip install --quiet --editable '.[peers]'
	@# JoeyNMT asks for versions that nobody else wants; it works without.
	@$(BIN)/python -m pip install --quiet --no-deps joeynmt subword-nmt
	@for each in training recurrent vision; do $(BIN)/python -m benchmarks.$$each || exit 1; done
	@test -z "$(RUN)" || for each in decoding startup serving; do $(BIN)/python -m benchmarks.$$each $(RUN) || exit 1; done
	@$(BIN)/python -m benchmarks.picture
	@$(BIN)/python -m benchmarks.glance

lock: $(READY)  ## write requirements.lock and constraints.txt from what is installed
	@PIP_CONSTRAINT= $(BIN)/python .ci/lock.py

verify: $(READY)  ## compare what pip would download with the hashes of requirements.lock
	@$(BIN)/python -m pip download --quiet --require-hashes --no-deps --dest $(VENV)/verified --requirement requirements.lock

clean:  ## remove the environment and everything built
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
