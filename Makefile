# make demo   the main job on a real model, from nothing to text
# make test   everything that runs without a GPU
# make bench  speeds of this machine, a JSON line each; bench-cpu and bench-compile are its parts
# make pages  write reviewed pages of plans and seeds anew: read the difference
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint types weights test-gpu bench bench-cpu bench-compile bench-gpu plot \
        pages clean

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
	$(BIN)/mypy & types=$$!; $(BIN)/pytest -q -n 2 --dist loadfile && wait $$types

test-gpu: $(STAMP)
	$(BIN)/pytest -q -m gpu tests/gpu

bench: bench-cpu bench-compile

bench-cpu: weights
	$(BIN)/python -P tests/bench/decode_cpu.py
	$(BIN)/python -P tests/bench/tp_cpu.py

bench-compile: $(STAMP)
	$(BIN)/python -P tests/bench/compile_time.py

bench-gpu: $(STAMP)
	$(BIN)/python -P tests/bench/decode_gpu.py

plot: $(STAMP)
	$(BIN)/python -P tests/bench/compile_time.py --curve

pages: $(STAMP)
	$(BIN)/python -P tests/support/plancc_golden_plans.py
	$(BIN)/python -P tests/support/plancc_seed_table.py

clean:
	rm -rf $(VENV) .demo build
