# Two commands: `make demo` and `make test`. Each sets up .venv first.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
COMPAT := .venv-compat

.PHONY: demo test lint types pytest fuzz test-compat clean

demo: $(READY)
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

test: lint types pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

pytest: $(READY)
	$(BIN)/pytest -n 2 --dist loadfile

# Property-based tests with examples that no run before has seen; not a part of `make test`.
fuzz: $(READY)
	HYPOTHESIS_PROFILE=fuzz $(BIN)/pytest -n 2 --dist loadfile -m hypothesis

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; call: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[all]" --group dev
	@touch $@

# The oldest supported versions of each framework; not a part of `make test`.
test-compat: $(COMPAT)/.ready
	$(COMPAT)/bin/pytest -n 2 --dist loadfile tests/langchain tests/llama_index tests/chroma

$(COMPAT)/.ready: pyproject.toml constraints-oldest.txt
	test -x $(COMPAT)/bin/python || $(PYTHON) -m venv $(COMPAT)
	$(COMPAT)/bin/python -m pip install --quiet --constraint constraints.txt --upgrade pip
	$(COMPAT)/bin/python -m pip install --quiet --constraint constraints-oldest.txt \
		--editable ".[chroma,langchain,llama-index,parquet,sentence-transformers]" --group compat
	@touch $@

clean:
	rm -rf .venv .venv-compat .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
