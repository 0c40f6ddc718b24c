# Each target sets up all that it needs: a fresh machine with Python 3.11 or newer is enough.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
MODELS := .venv-models
MODELS_STAMP := $(MODELS)/.installed
PIP := -m pip install --quiet --disable-pip-version-check
NEEDS_311 := import sys; sys.exit(sys.version_info < (3, 11) and "streamsim needs Python 3.11 or newer, got %d.%d: call make PYTHON=python3.11" % sys.version_info[:2])

.PHONY: demo test test-models venv lint clean

demo: $(STAMP)
	$(VENV)/bin/streamsim demo

test: $(STAMP)
	$(VENV)/bin/python -m pytest

# the tests of agents that run checkpoints: they need torch, so they have an environment of their own
test-models: $(MODELS_STAMP)
	$(MODELS)/bin/python -m pytest tests/agents/vlm tests/agents/memory

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

venv: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c '$(NEEDS_311)'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python $(PIP) -e '.[dev]'
	@touch $(STAMP)

# versions that are known to go together; torchvision without its dependencies, so that torch stays as it is
$(MODELS_STAMP): pyproject.toml
	@$(PYTHON) -c '$(NEEDS_311)'
	$(PYTHON) -m venv $(MODELS)
	$(MODELS)/bin/python $(PIP) torch==2.13.0
	$(MODELS)/bin/python $(PIP) --no-deps torchvision==0.28.0
	$(MODELS)/bin/python $(PIP) transformers==5.24.0 num2words==0.5.14 safetensors
	$(MODELS)/bin/python $(PIP) -e '.[dev]'
	@touch $(MODELS_STAMP)

clean:
	rm -rf $(VENV) $(MODELS) build dist
