# make demo   the main job on a real model, from nothing to text
# make test   everything that runs without a GPU
# make bench  speeds of this machine, a JSON line each; bench-cpu and bench-compile are its parts
# make pages  write reviewed pages of plans and seeds anew: read the difference
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint types weights test-gpu bench bench-cpu bench-compile bench-gpu plot \
        pages hooks clean

# pip compiles 13,000 files one after another; all cores compile those that may ever be imported.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
UNUSED := /(tests?|testing|pandas|_inductor|_dynamo|mypyc?|lexers)/|/transformers/models/(?!auto/|llama/|qwen2/)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade "pip>=25"
	$(PIP) -c constraints.txt -e ".[test]"
	-$(BIN)/python -m compileall -qq -j 0 -x '$(UNUSED)' $(VENV)/lib
	touch $@

weights: $(STAMP)
	$(BIN)/python -P tests/support/fetch_smollm2.py

demo: $(STAMP)
	$(BIN)/python -P docs/demo.py

# One thread of torch a test process: two of each would spin for the cores. Ours stay as many.
test: $(STAMP)
	$(MAKE) --no-print-directory -j 2 lint types weights
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder

lint: $(STAMP)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .

types: $(STAMP)
	$(BIN)/mypy

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

$(VENV)/.dev: $(STAMP)
	$(PIP) -c constraints.txt -e ".[dev]"
	touch $@

plot: $(VENV)/.dev
	$(BIN)/python -P tests/bench/compile_time.py --curve

pages: $(STAMP)
	$(BIN)/python -P tests/support/plancc_golden_plans.py
	$(BIN)/python -P tests/support/plancc_seed_table.py

hooks: $(VENV)/.dev
	$(BIN)/pre-commit install

clean:
	rm -rf $(VENV) .demo build
