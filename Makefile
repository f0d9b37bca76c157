# Two commands do everything on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := pacehound collector streams storage alerts actuators simulator bench tests examples

.PHONY: demo test check prove bench format clean

demo: $(VENV)/.embedded
	$(BIN)/pacehound demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest

check: $(VENV)/.dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

# The long proofs; what they print is committed under docs/proofs/.
prove: $(VENV)/.dev
	$(BIN)/python -m pytest -m prove -o addopts="-ra --strict-markers -s" --timeout 7200

bench: $(VENV)/.dev
	$(BIN)/python -m bench

format: $(VENV)/.dev
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv

# What the embedded pipeline needs: no torch, no compiler.
$(VENV)/.embedded: $(BIN)/uv pyproject.toml constraints.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[collector,embedded]'
	$(BIN)/python -c "from streams.level_series import warm_up; warm_up()" # compiles the detectors, half a minute
	touch $@

# With torch, the test tools and the C++ hooks.
$(VENV)/.dev: $(VENV)/.embedded
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[collector,embedded,dev]'
	-$(BIN)/python -m pacehound.instrument.build # without a compiler the Python hooks do the same, more slowly
	touch $@
