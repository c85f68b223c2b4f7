# make demo   the main job on a real model, from nothing to text
# make test   everything that runs without a GPU
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint types weights test-gpu bench clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=24"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

weights: $(STAMP)
	$(BIN)/python -P tests/support/fetch_smollm2.py

demo: $(STAMP)
	$(BIN)/python -P docs/demo.py

test: weights
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/pytest -q

test-gpu: $(STAMP)
	$(BIN)/pytest -q -m gpu tests/gpu

bench: weights
	$(BIN)/python -P tests/bench/decode_cpu.py
	$(BIN)/python -P tests/bench/compile_time.py

clean:
	rm -rf $(VENV) .demo build
